"""Cells whose hosts were disturbed: results over time, and the recovery from each disturbance.

Each result counts once, at its first arrival: an engine that restarts a job may repeat some.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nova_core.model.problem import Floats, Ints
    from nova_harness.results.run_folder import CellFolder
    from nova_harness.results.schema import CellEvent

# Disturbances that begin within this time count as one.
TOGETHER_S = 1.0
# A join has stopped if it delivers nothing for longer than this, and for longer than so many of its
# windows: results of a window come together.
SILENT_S, SILENT_WINDOWS = 1.0, 2
# Latency is normal if it exceeds the one before by at most this share, for this many seconds.
NEAR, STEADY_S = 0.2, 5
# Seconds compared before the first disturbance; time to settle after the last one, s.
BEFORE_S, SETTLE_S = 10, 20.0
LATE_MS = 1000.0
# Kinds of events in a controller's log: it has noticed a disturbance ...
NOTICED = ("noticed", "failed", "refused", "waiting")
# ... or replaced the plan.
REPLACED = ("handed-over", "recovered")
COLUMNS = ("left_due_us", "right_due_us", "arrive_us", "measured")
# What a result of a pair is told by.
PAIR = ("pair", "left_sequence", "right_sequence")


@dataclass(frozen=True)
class Recovery:
    """Effect of one disturbance; times in s from its begin.

    Attributes:
        text: what happened.
        at_s: when, from the begin of the measured time.
        noticed_s: until the controller noticed; None where there is none, or it did not.
        results_s: until all joins delivered again; None if none stopped, infinity if one did not
            deliver before the next disturbance or the end.
        normal_s: until the median latency was near the one before the first disturbance; infinity
            if it was not before the next disturbance or the end.
        worst_ms: longest latency of a result due before the next disturbance or the end.
    """

    text: str
    at_s: float
    noticed_s: float | None
    results_s: float | None
    normal_s: float
    worst_ms: float


@dataclass(frozen=True, eq=False)
class Course:
    """A disturbed cell, second by second of its measured time.

    Attributes:
        cell: its folder.
        per_s: (t,) results that arrived in each second.
        p50_ms: (t,) median latency of the results due in each second; NaN where none came.
        p99_ms: (t,) their 99th percentile.
        recoveries: of each disturbance.
        late: results that took longer than `LATE_MS`.
        before_ms: median and 99.99th percentile of latency of results that had arrived before the
            first disturbance.
        settled_ms: the same of results due `SETTLE_S` after the begin of the last one, or later.
    """

    cell: CellFolder
    per_s: Ints
    p50_ms: Floats
    p99_ms: Floats
    recoveries: list[Recovery]
    late: int
    before_ms: tuple[float, float]
    settled_ms: tuple[float, float]

    @property
    def events(self) -> list[tuple[float, CellEvent]]:
        """Events with their times, s from the begin of the measured time."""
        facts = self.cell.facts
        assert facts.measured_us is not None
        begin = facts.measured_us[0] / 1e6
        return [(event.at - begin, event) for event in facts.events]


@dataclass(frozen=True, eq=False)
class _Results:
    """Results of the measured time, of pairs each once; (k,) arrays.

    Attributes:
        group: number of the pair or the query.
        due_s: when the later tuple was due, from the begin of the measured time.
        arrive_s: when it arrived.
    """

    group: Ints
    due_s: Floats
    arrive_s: Floats

    @property
    def latency_ms(self) -> Floats:
        return 1000 * (self.arrive_s - self.due_s)

    @classmethod
    def of(cls, cell: CellFolder, begin_us: int) -> _Results:
        queries = cell.of_queries
        c = cell.columns(*COLUMNS, *(("query",) if queries else PAIR))
        if queries:
            _, group = np.unique(c["query"], return_inverse=True)
            chosen = np.flatnonzero(c["measured"])
        else:
            group, order = (
                c["pair"],
                np.lexsort((c["arrive_us"], *(c[name] for name in PAIR[::-1]))),
            )
            key = np.stack([c[name][order] for name in PAIR])
            again = np.concatenate(([False], (key[:, 1:] == key[:, :-1]).all(axis=0)))
            chosen = order[~again & c["measured"][order]]
        due = np.maximum(c["left_due_us"], c["right_due_us"])[chosen]
        return cls(
            group[chosen],
            (due - begin_us) / 1e6,
            (c["arrive_us"][chosen] - begin_us) / 1e6,
        )


def course_of(cell: CellFolder) -> Course | None:
    """The course of a finished cell whose hosts were disturbed; None of others.

    Raises:
        RunError: when its samples cannot be read.
    """
    facts = cell.facts
    if not cell.done or facts.measured_us is None:
        return None
    begin_us, end_us = facts.measured_us
    length_s = (end_us - begin_us) / 1e6
    events = [(event.at - begin_us / 1e6, event) for event in facts.events]
    disturbed = [(at, event.text) for at, event in events if event.kind == "disturbed"]
    if not disturbed:
        return None
    results = _Results.of(cell, begin_us)
    seconds = math.ceil(length_s)
    p50, p99 = _by_second(results, seconds)
    together = _together(disturbed)
    first, last = together[0][0], together[-1][0]
    before = p50[max(0, int(first) - BEFORE_S) : max(1, int(first))]
    silent_s = max(SILENT_S, SILENT_WINDOWS * facts.window_ms / 1000)
    usual = float(np.nanmedian(before)) if np.isfinite(before).any() else math.nan
    ends = [at for at, _ in together[1:]] + [length_s]
    recoveries = []
    for (at, text), end in zip(together, ends, strict=True):
        seen = [t - at for t, event in events if event.kind in NOTICED and at <= t < end]
        mine = (results.due_s >= at) & (results.due_s < end)
        recoveries.append(
            Recovery(
                text,
                at,
                min(seen, default=None),
                _silence_ended(results, at, end, silent_s),
                _normal_after(p50, usual, at, end),
                float(results.latency_ms[mine].max(initial=0)),
            )
        )
    arrived = results.arrive_s[(results.arrive_s >= 0) & (results.arrive_s < seconds)]
    return Course(
        cell,
        np.bincount(arrived.astype(np.int64), minlength=seconds),
        p50,
        p99,
        recoveries,
        int((results.latency_ms > LATE_MS).sum()),
        _levels(results.latency_ms[results.arrive_s < first]),
        _levels(results.latency_ms[results.due_s >= last + SETTLE_S]),
    )


def _together(disturbed: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Merge disturbances that begin together; each has the time of its first."""
    grouped: list[tuple[float, str]] = []
    for at, text in sorted(disturbed):
        if grouped and at - grouped[-1][0] < TOGETHER_S:
            grouped[-1] = (grouped[-1][0], f"{grouped[-1][1]}; {text}")
        else:
            grouped.append((at, text))
    return grouped


def _by_second(results: _Results, seconds: int) -> tuple[Floats, Floats]:
    """(seconds,) median and 99th percentile of latency, ms, by when results were due."""
    order = np.argsort(results.due_s, kind="stable")
    latency = results.latency_ms[order]
    bounds = np.searchsorted(results.due_s[order], np.arange(seconds + 1))
    levels = np.full((2, seconds), np.nan)
    for second in range(seconds):
        part = latency[bounds[second] : bounds[second + 1]]
        if len(part):
            levels[:, second] = np.quantile(part, [0.5, 0.99])
    return levels[0], levels[1]


def _levels(latency_ms: Floats) -> tuple[float, float]:
    """Median and 99.99th percentile; NaN for no results."""
    if not len(latency_ms):
        return math.nan, math.nan
    middle, high = np.quantile(latency_ms, [0.5, 0.9999]).tolist()
    return middle, high


def _silence_ended(results: _Results, at_s: float, end_s: float, silent_s: float) -> float | None:
    """When the last of the joins, or queries, that stopped delivered again, s after its begin."""
    latest: float | None = None
    for group in np.unique(results.group).tolist():
        arrive = np.sort(results.arrive_s[results.group == group])
        inside = arrive[(arrive > at_s) & (arrive < end_s)]
        moments = np.concatenate(([at_s], inside, [end_s]))
        gaps = np.diff(moments)
        if gaps.max() > silent_s:
            after = int(gaps.argmax())
            again = math.inf if after == len(inside) else float(inside[after]) - at_s
            latest = again if latest is None else max(latest, again)
    return latest


def _normal_after(p50_ms: Floats, usual_ms: float, at_s: float, end_s: float) -> float:
    """When the median latency was near ``usual_ms`` again, s after the begin of a time."""
    begin = int(at_s)
    near = p50_ms[begin : math.ceil(end_s)] <= (1 + NEAR) * usual_ms
    steady = min(STEADY_S, len(near))
    for second in range(len(near) - steady + 1):
        if near[second : second + steady].all():
            # Results due before the disturbance may be slow, too.
            return max(0.0, begin + second - at_s) if second else 0.0
    return math.inf
