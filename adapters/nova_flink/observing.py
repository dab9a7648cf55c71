"""Measures a running job's rates for a problem, operator by operator, with Flink's metrics."""

from __future__ import annotations

import itertools
import math
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from nova_core.errors import NovaError
from nova_flink.own_jobs import parts
from nova_flink.rest import SETTLE_S, FlinkError, Rest

# `nova.flink.plugin.ProblemWriter` marks operators with it that the job does not have.
MADE = "~"
OUT = "numRecordsOut"
FIGURES = ("selectivity", "output_rate")
# A problem's rates are above 0; a rate of 0 becomes this, tuples/s.
LEAST = 0.001
# How long a job that has just begun, or a busy JobManager, may take to report metrics.
PATIENCE_S = 20.0


@dataclass(frozen=True)
class _Ends:
    """Where a step's tuples are counted.

    Attributes:
        vertex: of its last operator.
        metric: what that operator emits; empty where Flink does not count it by itself.
    """

    vertex: str
    metric: str


def observe(
    rest: Rest,
    job_id: str,
    problem: Mapping[str, Any],
    seconds: float,
    progress: Callable[[int, int], None] = lambda passed, total: None,
) -> dict[str, Any]:
    """A job's problem with the measured rates of the running job.

    Args:
        rest: of the job's cluster.
        job_id: of the job, which was submitted with ``execution.target: nova``.
        problem: as the plug-in has written it (``nova.problem-file``) when it was submitted.
        seconds: how long to measure.
        progress: called with the seconds passed and the total.

    Returns:
        The document with measured rates of sources and operators.

    Raises:
        FlinkError: for a job that did not pass the plug-in, does not run, or reports no metrics.
        NovaError: for a problem of another job.
    """
    sources = {str(one["id"]): one for one in problem.get("sources", ())}
    operators = [one for query in problem.get("queries", ()) for one in query["operators"]]
    named = {str(one["id"]) for one in operators if MADE not in str(one["id"])}
    ends = _ends(rest, job_id)
    required = set(sources) | named
    missing = sorted(required - set(ends))
    if missing:
        raise NovaError(
            f"job {job_id} has no {missing[0]}, which the problem has: is it a problem of another "
            f"job? The job has {', '.join(sorted(ends))}"
        )
    state = str(rest.job(job_id)["state"])
    if state != "RUNNING":
        raise FlinkError(f"{rest.url}: job {job_id} is {state}: only a running one can be observed")
    ends = {step: one for step, one in ends.items() if step in required}
    for step, one in ends.items():
        if not one.metric:
            raise FlinkError(
                f"{rest.url}: job {job_id}: {step}: its last operator is called like another one "
                "that is chained to it, and Flink counts only one of them: give it another name"
            )
    rates = _rates(rest, job_id, ends, seconds, progress)
    return _with(problem, rates)


def _ends(rest: Rest, job_id: str) -> dict[str, _Ends]:
    """Where each step ends: the last of its operators in a vertex."""
    held = parts(rest, job_id)
    receivers = Counter(name for part in held for name in part.inputs)
    ends = {}
    for part in held:
        called = Counter(name for _, name in part.metrics)
        last = len(part.metrics) - 1
        for number, (step, name) in enumerate(part.metrics):
            metric = f"{name}.{OUT}"
            if called[name] > 1:
                # Flink counts only one of them; but it counts what leaves the vertex, too.
                metric = OUT if number == last and receivers[part.vertex] == 1 else ""
            ends[step] = _Ends(part.vertex, metric)
    return ends


def _fetched(
    rest: Rest, path: str, enough: Callable[[Mapping[str, Mapping[str, Any]]], bool]
) -> dict[str, Mapping[str, Any]]:
    """Metrics by name, once enough are fetched, or those that are after `PATIENCE_S`.

    A request makes the JobManager fetch metrics; it answers with those fetched before.
    """
    rest.get(path)
    until = time.monotonic() + PATIENCE_S
    while True:
        time.sleep(SETTLE_S)
        rows = {str(one["id"]): one for one in rest.get(path)}
        if enough(rows) or time.monotonic() > until:
            return rows


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
    counts: dict[str, float] = {}
    for vertex in {one.vertex for one in ends.values()}:
        metrics = {step: one.metric for step, one in ends.items() if one.vertex == vertex}
        path = f"/jobs/{job_id}/vertices/{vertex}/subtasks/metrics"
        sums = _sums(rest, path, set(metrics.values()))
        counts |= {step: sums[metric] for step, metric in metrics.items() if metric in sums}
    return counts


def _sums(rest: Rest, path: str, metrics: Set[str]) -> dict[str, float]:
    """Sums over a vertex's subtasks, of the metrics that Flink reports."""

    def numbers(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
        values = {name: float(row["sum"]) for name, row in rows.items()}
        return {name: value for name, value in values.items() if not math.isnan(value)}

    requested = ",".join(urllib.parse.quote(name) for name in sorted(metrics))
    path = f"{path}?get={requested}&agg=sum"
    return numbers(_fetched(rest, path, lambda rows: metrics <= numbers(rows).keys()))


def _with(problem: Mapping[str, Any], rates: Mapping[str, float]) -> dict[str, Any]:
    def known(step: str) -> float:
        if step not in rates:
            raise FlinkError(f"Flink reports no metrics of {step}; is it observed too early?")
        return rates[step]

    sources = [one | {"rate": known(str(one["id"]))} for one in problem["sources"]]
    # As a problem has it: a rate for each source of a stream, or for each pair that a join is.
    emitted: dict[str, list[float]] = {}
    for one in sources:
        emitted.setdefault(str(one["stream"]), []).append(float(one["rate"]))
    queries = []
    for query in problem["queries"]:
        operators = []
        for one in query["operators"]:
            name, inputs = str(one["id"]), _inputs(one)
            before = [emitted[each] for each in inputs]
            # An operator that only gathers its inputs emits all of them.
            rate = sum(map(sum, before)) if MADE in name else known(name)
            figures, emitted[name] = _figures(one, before, rate)
            operators.append({k: v for k, v in one.items() if k not in FIGURES} | figures)
        queries.append(query | {"operators": operators})
    return {**problem, "sources": sources, "queries": queries}


def _inputs(operator: Mapping[str, Any]) -> list[str]:
    many: Iterable[Any] = operator.get("inputs", (operator.get("input"),))
    return [str(one) for one in many]


def _figures(
    operator: Mapping[str, Any], before: list[list[float]], rate: float
) -> tuple[dict[str, Any], list[float]]:
    """What a problem says of an operator that emits that much, and the rates that result."""
    if operator["kind"] == "join":
        pairs = [min(pair) for pair in itertools.product(*before)]
        selectivity = rate / sum(pairs)
        return {"selectivity": selectivity}, [one * selectivity for one in pairs]
    (received,) = before
    selectivity = rate / sum(received)
    # As `nova.flink.plugin.ProblemWriter` has it.
    if selectivity <= 1 and MADE not in str(operator["id"]):
        return {"kind": "aggregate", "output_rate": rate}, [rate]
    passed = [one * selectivity for one in received]
    return {"kind": "project", "selectivity": selectivity}, passed
