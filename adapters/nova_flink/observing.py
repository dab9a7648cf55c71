"""The rates of a running job, as a problem wants them: measured by Flink, operator by operator."""

from __future__ import annotations

import math
import re
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from nova_core.errors import NovaError
from nova_flink.own_jobs import MARK, parts
from nova_flink.rest import SETTLE_S, FlinkError, Rest

# `nova.flink.plugin.ProblemWriter` marks so what is no operator of the job.
MADE = "~"
OUT, IN = "numRecordsOut", "numRecordsIn"
# A problem's rates are above 0; what nothing passes counts as this, tuples/s.
LEAST = 0.001
# How long a job that has just begun, or a busy JobManager, may take to tell figures.
PATIENCE_S = 20.0
_SIGNS = re.compile(r"[^A-Za-z0-9]")


@dataclass(frozen=True)
class _Ends:
    """Where a step's tuples are counted.

    Attributes:
        vertex: of its last operator.
        metric: what that operator emits.
    """

    vertex: str
    metric: str


def observe(
    rest: Rest,
    job_id: str,
    problem: Mapping[str, Any],
    seconds: float,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """A job's problem with the rates that the running job has.

    Args:
        rest: of the job's cluster.
        job_id: of the job, which was submitted with ``execution.target: nova``.
        problem: as the plug-in has written it (``nova.problem-file``) when it was submitted.
        seconds: how long is looked.
        progress: told seconds done and in all.

    Returns:
        The document with other rates of sources and operators.

    Raises:
        FlinkError: for a job that is none of the plug-in's, does not run, or tells no figures.
        NovaError: for a problem of another job.
    """
    sources = {str(one["id"]): one for one in problem.get("sources", ())}
    operators = [one for query in problem.get("queries", ()) for one in query["operators"]]
    named = {str(one["id"]) for one in operators if MADE not in str(one["id"])}
    ends = _ends(rest, job_id)
    missing = sorted((set(sources) | named) - set(ends))
    if missing:
        raise NovaError(
            f"job {job_id} has no {missing[0]}, which the problem has: is it a problem of another "
            f"job? The job has {', '.join(sorted(ends))}"
        )
    state = str(rest.job(job_id)["state"])
    if state != "RUNNING":
        raise FlinkError(f"{rest.url}: job {job_id} is {state}: only a running one can be observed")
    rates = _rates(rest, job_id, ends, seconds, progress)
    return _with(problem, rates)


def _ends(rest: Rest, job_id: str) -> dict[str, _Ends]:
    """Where each step ends; operators stand in Flink's names of a vertex in the order of marks."""
    marked = {part.vertex: part for part in parts(rest, job_id)}
    found = {}
    for node in rest.job(job_id)["plan"]["nodes"]:
        vertex = str(node["id"])
        steps = [mark["id"] for mark in MARK.finditer(str(node["description"]))]
        title = marked[vertex].title
        operators = [one for one in re.split(r" -> |, |\(|\)", title) if one.strip()]
        if len(operators) != len(steps):
            raise FlinkError(
                f"{rest.url}: job {job_id}: cannot tell the operators of {title!r} apart"
            )
        known = _metrics(rest, job_id, vertex)
        for name, step in zip(operators, steps, strict=True):
            metric = known.get(_plain(f"{name}.{OUT}"))
            if metric is not None:
                found[step] = _Ends(vertex, metric)
            else:
                found.setdefault(step, _Ends(vertex, ""))
    return found


def _metrics(rest: Rest, job_id: str, vertex: str) -> dict[str, str]:
    """Flink's names of what operators of a vertex emit, by what is left of them without signs."""
    path = f"/jobs/{job_id}/vertices/{vertex}/subtasks/metrics"
    listed = _fetched(rest, path, lambda rows: any(name.endswith(f".{OUT}") for name in rows))
    return {_plain(one): one for one in listed if one.endswith(f".{OUT}")}


def _fetched(
    rest: Rest, path: str, enough: Callable[[Mapping[str, Mapping[str, Any]]], bool]
) -> dict[str, Mapping[str, Any]]:
    """Metrics by name, once the JobManager has fetched them, or what there is after `PATIENCE_S`.

    Being asked only makes the JobManager fetch them; it answers what it fetched before.
    """
    rest.get(path)
    until = time.monotonic() + PATIENCE_S
    while True:
        time.sleep(SETTLE_S)
        rows = {str(one["id"]): one for one in rest.get(path)}
        if enough(rows) or time.monotonic() > until:
            return rows


def _plain(name: str) -> str:
    """Flink writes signs as _ in names of metrics, and cuts long names."""
    operator, _, metric = name.rpartition(".")
    return f"{_SIGNS.sub('', operator)[:60]}.{metric}"


def _rates(
    rest: Rest,
    job_id: str,
    ends: Mapping[str, _Ends],
    seconds: float,
    progress: Callable[[int, int], None],
) -> dict[str, float]:
    begin, first = time.monotonic(), _counts(rest, job_id, ends)
    while (passed := time.monotonic() - begin) < seconds:
        progress(int(passed), int(seconds))
        time.sleep(min(1.0, seconds - passed))
    last, passed = _counts(rest, job_id, ends), time.monotonic() - begin
    return {
        step: max(LEAST, (last[step] - first[step]) / passed)
        for step in ends
        if step in first and step in last
    }


def _counts(rest: Rest, job_id: str, ends: Mapping[str, _Ends]) -> dict[str, float]:
    """Tuples each step has emitted since the job began."""
    found: dict[str, float] = {}
    for vertex in {one.vertex for one in ends.values()}:
        steps = {step: one.metric for step, one in ends.items() if one.vertex == vertex}
        metrics = {one for one in steps.values() if one}
        if metrics:
            told = _sums(rest, f"/jobs/{job_id}/vertices/{vertex}/subtasks/metrics", metrics)
            found |= {step: told[metric] for step, metric in steps.items() if metric in told}
    return found


def _sums(rest: Rest, path: str, metrics: Set[str]) -> dict[str, float]:
    """Sums over a vertex's subtasks, of the metrics that are told."""

    def numbers(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
        told = {name: float(row["sum"]) for name, row in rows.items()}
        return {name: value for name, value in told.items() if not math.isnan(value)}

    asked = ",".join(urllib.parse.quote(name) for name in sorted(metrics))
    path = f"{path}?get={asked}&agg=sum"
    return numbers(_fetched(rest, path, lambda rows: metrics <= numbers(rows).keys()))


def _with(problem: Mapping[str, Any], rates: Mapping[str, float]) -> dict[str, Any]:
    def known(step: str) -> float:
        if step not in rates:
            raise FlinkError(f"Flink tells no figures of {step}; is it observed too early?")
        return rates[step]

    sources = [one | {"rate": known(str(one["id"]))} for one in problem["sources"]]
    emitted = {str(one["id"]): float(one["rate"]) for one in sources}
    queries = []
    for query in problem["queries"]:
        operators = []
        for one in query["operators"]:
            name, inputs = str(one["id"]), _inputs(one)
            before = [emitted[each] for each in inputs]
            # What only gathers inputs passes all of them on.
            emitted[name] = sum(before) if MADE in name else known(name)
            operators.append(one | _figures(one, before, emitted[name]))
        queries.append(query | {"operators": operators})
    return {**problem, "sources": sources, "queries": queries}


def _inputs(operator: Mapping[str, Any]) -> list[str]:
    many: Iterable[Any] = operator.get("inputs", (operator.get("input"),))
    return [str(one) for one in many]


def _figures(operator: Mapping[str, Any], before: list[float], emitted: float) -> dict[str, float]:
    if operator["kind"] == "join":
        return {"selectivity": emitted / min(before)}
    return {"output_rate": emitted} if operator["kind"] == "aggregate" else {}
