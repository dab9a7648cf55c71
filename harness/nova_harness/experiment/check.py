"""Whether an engine delivered what it had to: a run held against the reference join.

A result that did not come may have been on its way when the run was ended: it is *cut off* when
its instance had not delivered anything of a later window. Anything else that is missing is *lost*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core.model.partitioner import partition_of
from nova_harness.results.schema import Check
from nova_workloads.reference import Reference, Results, pairs_of
from nova_workloads.schedule import Schedule, all_tuples
from nova_workloads.streams import HUMIDITY, PRESSURE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nova_core.model.plan import Plan
    from nova_core.model.problem import Ints
    from nova_workloads.streams import Stream

EXAMPLES = 5


def reference_of(
    problem: Any,
    streams: Sequence[Stream],
    *,
    rate: float,
    start_ms: int,
    count: int,
    window_ms: int,
    keys: int,
    every: int = 1,
) -> Reference:
    """The reference join of what the sources emit.

    Args:
        problem: whose pairs are joined.
        streams: of the problem's sources.
        rate: of each, tuples/s.
        start_ms: event time of the first tuples, ms since the epoch.
        count: tuples per source.
        window_ms: tumbling windows, ms.
        keys: sequence numbers have to be equal modulo this.
        every: and that key a multiple of this.
    """
    schedule = Schedule(rate=rate, start_ms=start_ms, count=count, endless=True)
    pairs = pairs_of(problem, streams, PRESSURE, HUMIDITY)
    tuples = all_tuples(schedule, streams)
    return Reference(streams, tuples, window_ms, keys=keys, every=every, pairs=pairs)


def instances_of(plan: Plan, pair: int, left_sequence: Ints, right_sequence: Ints) -> Ints:
    """(k,) instance of a pair that must join given tuples."""
    mine = np.flatnonzero(plan.instances.pair == pair)
    left = partition_of(left_sequence, plan.partitions.rates(pair, 0))
    right = partition_of(right_sequence, plan.partitions.rates(pair, 1))
    found = np.full(len(left), -1, np.int64)
    i = plan.instances
    for instance in mine.tolist():
        inside = (left >= i.left_begin[instance]) & (left < i.left_end[instance])
        inside &= (right >= i.right_begin[instance]) & (right < i.right_end[instance])
        found[inside] = instance
    return found


def check(plan: Plan, reference: Reference, table: Any, *, finished: bool) -> Check:
    """Compare a run's results with the reference.

    Args:
        plan: that was run.
        reference: of the run's sources.
        table: columns ``instance``, ``left_source``, ``right_source``, ``left_sequence``,
            ``right_sequence``, ``window_ms`` (arrays) of what came.
        finished: whether the job came to its end by itself; then nothing is cut off.
    """
    results = Results(
        left=table["left_source"].astype(np.int64),
        left_sequence=table["left_sequence"],
        right=table["right_source"].astype(np.int64),
        right_sequence=table["right_sequence"],
        window_ms=table["window_ms"],
    )
    number = reference.numbers(results)
    instance = table["instance"].astype(np.int64)
    examples: dict[str, list[str]] = {"lost": [], "duplicated": [], "wrong": []}
    due = np.full(reference.total, -1, np.int64)
    everything = np.arange(reference.total)
    ends = np.concatenate(([0], np.cumsum(reference.per_pair)))
    sequence = reference.tuples.sequence
    for pair in range(len(ends) - 1):
        mine = everything[ends[pair] : ends[pair + 1]]
        left, right = reference.rows(mine)
        due[mine] = instances_of(plan, pair, sequence[left], sequence[right])
    known = number >= 0
    misplaced = known & (due[np.where(known, number, 0)] != instance)
    wrong = ~known | misplaced
    for row in np.flatnonzero(wrong)[:EXAMPLES].tolist():
        examples["wrong"].append(
            f"instance {instance[row]}: {reference.streams[results.left[row]].sensor} "
            f"{results.left_sequence[row]} with {reference.streams[results.right[row]].sensor} "
            f"{results.right_sequence[row]} in window {table['window_ms'][row]}"
        )
    times = np.bincount(number[known], minlength=reference.total)
    duplicated = int((times[times > 1] - 1).sum())
    for result in np.flatnonzero(times > 1)[:EXAMPLES].tolist():
        examples["duplicated"].append(str(reference.describe(result)))
    missing = np.flatnonzero(times == 0)
    cut_off = np.zeros(len(missing), np.bool_)
    if not finished and len(missing):
        latest = np.full(len(plan.instances), -1, np.int64)
        inside = (instance >= 0) & (instance < len(latest))
        np.maximum.at(latest, instance[inside], table["window_ms"][inside])
        left, _ = reference.rows(missing)
        cut_off = reference.window_of(left) >= latest[due[missing]]
    for result in missing[~cut_off][:EXAMPLES].tolist():
        examples["lost"].append(str(reference.describe(result)))
    return Check(
        expected=reference.total,
        delivered=len(number),
        lost=int((~cut_off).sum()),
        duplicated=duplicated,
        wrong=int(wrong.sum()),
        cut_off=int(cut_off.sum()),
        finished=finished,
        examples=examples,
    )
