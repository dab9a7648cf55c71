"""Results of a plan that ran: Costream's labels, and what operators received and emitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nova_engines.flow import CUT, SELECT, SINK, SOURCE
from nova_research.costream.training.traces import BEHIND, Labels

if TYPE_CHECKING:
    from nova_engines.flow import Flow, Operator
    from nova_engines.results import ResultRecords
    from nova_engines.sources import Sources
    from nova_harness.results.schema import OperatorCounts


def labels(
    results: ResultRecords | None,
    sources: Sources,
    measured_us: tuple[int, int],
    behind_s: float | None,
    *,
    failed: bool,
) -> Labels:
    """The labels of a run, by the paper's Definitions 1 to 5.

    Args:
        results: what the query's sink received; None for nothing.
        sources: of its readings.
        measured_us: begin and end of the measured time, us since the epoch.
        behind_s: how far the slowest source was behind when it ended, s; None where unknown.
        failed: whether the query ended with an error. Its sources then emit no more, which is
            back-pressure.
    """
    begin, end = measured_us
    seconds = (end - begin) / 1e6
    late = failed or (behind_s is not None and behind_s >= BEHIND * seconds)
    if results is None or not len(results):
        return Labels(False, late, 0.0, None, None, 0, behind_s)
    arrive = results["arrive_us"]
    inside = (arrive >= begin) & (arrive < end)
    count = int(inside.sum())
    if not count:
        return Labels(False, late, 0.0, None, None, 0, behind_s)
    due = sources.start_ms * 1000 + sources.due_us(results["oldest_ms"])
    return Labels(
        True,
        late,
        count / seconds,
        float(np.median((arrive - due)[inside])) / 1000,
        float(np.median((arrive - results["oldest_us"])[inside])) / 1000,
        count,
        behind_s,
    )


def operator_counts(
    flow: Flow,
    counts: Sequence[OperatorCounts],
    arrived: Mapping[str, int],
    emitted: Mapping[str, int],
) -> dict[str, dict[str, float | None]]:
    """Tuples that operators of a problem's graph received and emitted in a whole run.

    An engine counts a chain of operators as one; the counts inside are given where they follow from
    others.

    Args:
        flow: what ran, every operator in one piece.
        counts: by the engine.
        arrived: results, by query.
        emitted: by source, where all readings were emitted.
    """
    from nova_flink.verification import operators_in

    by_name = {one.name: one for one in flow.operators}
    steps = [one for one in flow.operators if one.kind not in (CUT, SELECT)]
    received: dict[str, float | None] = {one.name: None for one in steps}
    sent: dict[str, float | None] = dict(received)
    for vertex in counts:
        held = [name for name in operators_in(vertex.name, by_name) if name in received]
        if held and by_name[held[0]].kind != SOURCE:
            received[held[0]] = vertex.records_in
        if held and by_name[held[-1]].kind != SINK:
            sent[held[-1]] = vertex.records_out
    for one in steps:
        if one.kind == SINK:
            received[one.name] = arrived[one.query]
        elif one.source in emitted:
            sent[one.name] = emitted[one.source]
    for one in steps:
        above = [_step_above(name, by_name) for name in (*one.inputs, *one.right)]
        if len(above) == 1:
            # All that is emitted has one consumer.
            both = (sent[above[0]], received[one.name])
            known = both[0] if both[1] is None else both[1]
            sent[above[0]] = received[one.name] = known
    return {
        _id(one): {"records_in": received[one.name], "records_out": sent[one.name]}
        for one in steps
        if (received[one.name], sent[one.name]) != (None, None)
    }


def _step_above(name: str, by_name: Mapping[str, Operator]) -> str:
    """The operator that emits this output, before any cuts."""
    while by_name[name].kind in (CUT, SELECT):
        (name,) = by_name[name].inputs
    return name


def _id(one: Operator) -> str:
    """The operator's id in the problem's graph."""
    if one.kind == SOURCE:
        return one.source
    if one.kind == SINK:
        return f"{one.query}/sink"
    name = one.name.removeprefix(f"{one.kind} ").partition("@")[0]
    return name.rpartition("#")[0] or name


def cpu_times(text: str) -> tuple[float, float]:
    """Idle and total time in ticks of all cores, by /proc/stat."""
    fields = [float(one) for one in text.split("\n", 1)[0].split()[1:]]
    # Niced processes give way, so they count as idle. User time includes guests' time.
    return fields[1] + fields[3] + fields[4], sum(fields[:8])


def idle_share(before: str, after: str) -> float:
    """Share of the time between two readings of /proc/stat that cores were idle."""
    (idle, all_), (later, all_later) = cpu_times(before), cpu_times(after)
    return (later - idle) / (all_later - all_) if all_later > all_ else 1.0


def failing_share(traces: Mapping[str, Sequence[bool]]) -> float | None:
    """Share of traces without success or with back-pressure; None without traces."""
    good, late = traces["success"], traces["back_pressure"]
    return float(np.mean(~np.array(good) | np.array(late))) if len(good) else None
