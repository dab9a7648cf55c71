"""Check whether a corpus is fit for learning: balance, ranges, noise, leakage."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
import numpy as np

from nova_research.costream.learned.network import CLASSES, REGRESSIONS
from nova_research.costream.training.evaluate import q_errors
from nova_research.costream.training.traces import STRUCTURES, read_traces

if TYPE_CHECKING:
    from rich.table import Table

LEAST_SHARE, MOST_SHARE = 0.1, 0.9
"""A class with a smaller or greater share teaches little."""
MIB = 1 << 20


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """Traces of one structure, or of all.

    Attributes:
        traces: how many.
        queries: of how many queries.
        success: share with results.
        back_pressure: share with back-pressure.
        failing: share that failed or had back-pressure.
    """

    traces: int
    queries: int
    success: float
    back_pressure: float
    failing: float


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """How much two runs of one plan differ.

    Attributes:
        pairs: pairs of runs that both have a value.
        q50: median q-error, the greater value over the smaller; None for classes.
        q95: its 95th percentile.
        agree: for classes, share of pairs with equal values.
    """

    pairs: int
    q50: float | None = None
    q95: float | None = None
    agree: float | None = None


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Least, median and greatest value."""

    least: float
    median: float
    greatest: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Findings about a corpus.

    Attributes:
        files: number of traces by path.
        balance: by structure, and of ``all``.
        origins: traces by origin and engine.
        ranges: of rates, windows, hosts, links and labels.
        noise: by label.
        problems: why it is unfit, as text; empty for a fit corpus.
    """

    files: dict[str, int]
    balance: dict[str, Balance]
    origins: dict[str, int]
    ranges: dict[str, Range]
    noise: dict[str, Noise]
    problems: list[str]


def check_corpus(paths: Sequence[Path]) -> Report:
    """Look through a corpus.

    Args:
        paths: files and directories of traces; several are splits of one corpus, so no query may be
            in two of them.

    Raises:
        NovaError: naming the file that holds no traces.
    """
    # A path may not be valid UTF-8; the report is UTF-8.
    splits = {click.format_filename(path): read_traces([path]).to_pylist() for path in paths}
    rows = [row for split in splits.values() for row in split]
    documents = [_documents(row) for row in rows]
    balance = {name: _balance([row for row in rows if row["structure"] == name]) for name in
               dict.fromkeys([*STRUCTURES, *(row["structure"] for row in rows)])}  # fmt: skip
    balance = {name: one for name, one in balance.items() if one.traces} | {"all": _balance(rows)}
    return Report(
        files={name: len(split) for name, split in splits.items()},
        balance=balance,
        origins=dict(Counter(f"{r['origin']}, {r['engine']} {r['engine_version']}" for r in rows)),
        ranges=_ranges(rows, documents),
        noise=_noise(rows),
        problems=[
            *(one for one in documents if isinstance(one, str)),
            *_leaks(splits),
            *_doubtful(rows),
            *_one_sided(balance["all"]),
        ],
    )


def _balance(rows: Sequence[Mapping[str, Any]]) -> Balance:
    def share(of: Sequence[bool]) -> float:
        return sum(of) / len(of) if of else 0.0

    return Balance(
        traces=len(rows),
        queries=len({row["query"] for row in rows}),
        success=share([row["success"] for row in rows]),
        back_pressure=share([row["back_pressure"] for row in rows]),
        failing=share([not row["success"] or row["back_pressure"] for row in rows]),
    )


def _one_sided(balance: Balance) -> Iterator[str]:
    if not balance.traces:
        yield "there are no traces"
        return
    for name in CLASSES:
        share = getattr(balance, name)
        if not LEAST_SHARE <= share <= MOST_SHARE:
            yield f"{name} is true of {share:.0%} of the traces: one class is nearly missing"


def _leaks(splits: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Queries in two splits, duplicate ids, and one plan in traces that are no repetitions."""
    home: dict[str, str] = {}
    ids, plans = set[str](), dict[tuple[str | None, ...], str]()
    for name, rows in splits.items():
        shared = sorted(
            {row["query"] for row in rows if home.setdefault(row["query"], name) != name}
        )
        if shared:
            other = home[shared[0]]
            yield f"{len(shared)} queries are in {other} and in {name}, such as {shared[0]}"
        for row in rows:
            if row["id"] in ids:
                yield f"trace {row['id']} occurs twice"
            ids.add(row["id"])
            if row["repeat_of"] is not None:
                continue
            key = (row["problem"], row["plan"], row["measured_query"])
            if plans.setdefault(key, row["id"]) != row["id"]:
                yield f"traces {plans[key]} and {row['id']} are of one plan, but no repetition"


def _doubtful(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Labels that contradict each other."""
    for row in rows:
        positive = all(0 < (row[name] or 0) < math.inf for name in REGRESSIONS)
        if row["success"] != positive or row["success"] != (row["results"] > 0):
            yield (
                f"trace {row['id']}: success is {row['success']}, but it has {row['results']} "
                "results and its other labels do not match"
            )
        elif row["success"] and row["processing_latency_ms"] > row["e2e_latency_ms"] + 1:
            yield f"trace {row['id']}: its processing latency is greater than end to end"


def _noise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Noise]:
    known = {row["id"]: row for row in rows}
    pairs = [(known[row["repeat_of"]], row) for row in rows if row["repeat_of"] in known]
    noise = {}
    for name in REGRESSIONS:
        values = [(a[name], b[name]) for a, b in pairs if a[name] and b[name]]
        if values:
            errors = q_errors(name, *np.array(values, np.float64).T)
            q50, q95 = np.quantile(errors, [0.5, 0.95]).tolist()
            noise[name] = Noise(pairs=len(values), q50=q50, q95=q95)
    if pairs:
        for name in CLASSES:
            same = [a[name] == b[name] for a, b in pairs]
            noise[name] = Noise(pairs=len(pairs), agree=sum(same) / len(same))
    return noise


class _Node(msgspec.Struct):
    cpu: float | None = None
    memory: float | None = None


class _Source(msgspec.Struct):
    node: str
    rate: float


class _Stream(msgspec.Struct):
    columns: dict[str, str]


class _Query(msgspec.Struct):
    sink: str


class _Pair(msgspec.Struct):
    ms: float
    mbit: float | None = None


class _Latency(msgspec.Struct):
    pairs: list[_Pair] = []


class _Problem(msgspec.Struct):
    nodes: list[_Node]
    sources: list[_Source]
    streams: list[_Stream] = []
    queries: list[_Query] = []
    latency: _Latency = msgspec.field(default_factory=_Latency)


class _Instance(msgspec.Struct):
    node: str


class _Plan(msgspec.Struct):
    instances: list[_Instance]


def _documents(row: Mapping[str, Any]) -> tuple[_Problem, _Plan] | str:
    """The parts of a trace's problem and plan that ranges use, or an error text."""
    try:
        return (
            msgspec.json.decode(row["problem"], type=_Problem),
            msgspec.json.decode(row["plan"], type=_Plan),
        )
    except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors
        return f"trace {row['id']}: problem or plan: {error}"


def _ranges(
    rows: Sequence[Mapping[str, Any]], documents: Sequence[tuple[_Problem, _Plan] | str]
) -> dict[str, Range]:
    values: dict[str, list[float]] = {}

    def add(name: str, more: Sequence[Any]) -> None:
        values.setdefault(name, []).extend(float(one) for one in more if one is not None)

    for row, document in zip(rows, documents, strict=True):
        if not isinstance(document, str):
            problem, plan = document
            add("event rate (tuples/s)", [one.rate for one in problem.sources])
            add("columns", [len(one.columns) for one in problem.streams])
            add("CPU (cores)", [one.cpu for one in problem.nodes])
            memory = [one.memory for one in problem.nodes]
            add("memory (MiB)", [None if one is None else one / MIB for one in memory])
            add("latency (ms)", [one.ms for one in problem.latency.pairs])
            add("bandwidth (Mbit/s)", [one.mbit for one in problem.latency.pairs])
            add("hosts in use", [len(_hosts_in_use(problem, plan))])
        add("window (s)", [row["window_s"]])
        add("throughput (results/s)", [row["throughput"] or None])
        add("end-to-end latency (ms)", [row["e2e_latency_ms"]])
        add("processing latency (ms)", [row["processing_latency_ms"]])
        add("idle share of the machine", [row["idle"]])
    return {
        name: Range(least=min(of), median=float(np.median(of)), greatest=max(of))
        for name, of in values.items()
        if of
    }


def _hosts_in_use(problem: _Problem, plan: _Plan) -> set[str]:
    ends = {one.node for one in problem.sources} | {one.sink for one in problem.queries}
    return ends | {one.node for one in plan.instances}


def tables(report: Report) -> list[Table]:
    """The report as tables."""
    from nova_core import console

    def per_cent(share: float | None) -> str:
        return "-" if share is None else f"{share:.0%}"

    balance = console.table(
        "traces",
        ["structure", ">traces", ">queries", ">success", ">back-pressure", ">either fails"],
        [
            (
                name,
                f"{one.traces:,}",
                f"{one.queries:,}",
                per_cent(one.success),
                per_cent(one.back_pressure),
                per_cent(one.failing),
            )
            for name, one in report.balance.items()
        ],
    )
    noise = console.table(
        "two runs of one plan",
        ["label", ">pairs", ">q-error Q50", ">Q95", ">same"],
        [
            (
                name,
                f"{one.pairs:,}",
                "-" if one.q50 is None else f"{one.q50:.2f}",
                "-" if one.q95 is None else f"{one.q95:.2f}",
                per_cent(one.agree),
            )
            for name, one in report.noise.items()
        ],
    )
    ranges = console.table(
        "ranges",
        ["", ">least", ">median", ">greatest"],
        [
            (name, *(f"{value:.4g}" for value in (one.least, one.median, one.greatest)))
            for name, one in report.ranges.items()
        ],
    )
    return [balance, noise, ranges] if report.noise else [balance, ranges]
