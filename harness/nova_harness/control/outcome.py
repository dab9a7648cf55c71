"""Results of controlled jobs, each window's from one job, compared with the reference join."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nova_engines import results
from nova_engines.sources import KAFKA
from nova_harness.engines.deployment import fetch_results
from nova_harness.results.latencies import percentiles
from nova_workloads.joined_streams import emitted
from nova_workloads.reference import Reference, Results
from nova_workloads.schedule import Tuples
from nova_workloads.streams import Stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nova_core.model.problem import Problem
    from nova_engines.flow import Match
    from nova_engines.handover import Ledger
    from nova_engines.results import ResultRecords
    from nova_engines.sources import Source, Sources
    from nova_harness.results.schema import Percentiles
    from nova_testbed.hosts import Hosts
    from nova_workloads.comparison import Comparison

NEAR_US = 2_000_000
# Of the CSV file of results: the field that each is.
COLUMNS = {
    "left_source": "left_source",
    "left_sequence": "left_sequence",
    "right_source": "right_source",
    "right_sequence": "right_sequence",
    "window_ms": "time_ms",
    "left_value": "left_value",
    "right_value": "right_value",
    "left_emit_us": "left_emit_us",
    "right_emit_us": "right_emit_us",
    "arrive_us": "arrive_us",
}


@dataclass(frozen=True)
class Outcome:
    """Results of jobs that were handed over.

    Attributes:
        valid: results that count: for each group of joins, one part for each of its jobs.
        dropped: number of results that do not count.
        compared: with the expected results.
        latency: from the later emission to the arrival.
        silence_ms: for each job but the first of a group, the longest time without a result of
            the group within two seconds around its first one.
    """

    valid: list[list[ResultRecords]]
    dropped: int
    compared: Comparison
    latency: Percentiles
    silence_ms: list[float]


def outcome(
    ledgers: Sequence[Ledger], hosts: Hosts, problem: Problem, sources: Sources, match: Match
) -> Outcome:
    """Fetch the sinks' results, and compare them with the reference join.

    Args:
        ledgers: of each group of joins: which job's results count; all have ended.
        hosts: connected.
        problem: that was placed.
        sources: whose tuples were joined.
        match: which of them match.
    """
    came = [delivered(ledger, hosts) for ledger in ledgers]
    valid = [ledger.own(parts) for ledger, parts in zip(ledgers, came, strict=True)]
    streams = [_stream(one) for one in sources.sources]
    begin_ms = min(ledger.shares[0].begin_ms for ledger in ledgers)
    end_of = np.full(len(streams), begin_ms)
    for ledger in ledgers:
        end_of[[index for index, _ in ledger.shares[0].job.sources]] = ledger.end_ms
    end_ms = int(end_of.max())
    if KAFKA in sources.kinds:
        tuples = _sent(sources, begin_ms, end_ms)
    else:
        tuples = emitted(sources, streams, begin_ms, end_ms)
    tuples = tuples.take(tuples.time_ms < end_of[tuples.stream])
    index = [sources.index(name) for name in problem.sources.ids.tolist()]
    pairs = [
        (index[left], index[right])
        for left, right in zip(
            problem.matrix.left.tolist(), problem.matrix.right.tolist(), strict=True
        )
    ]
    reference = Reference(
        streams, tuples, match.window_ms, keys=match.keys, every=match.every, pairs=pairs
    )
    parts = [part for group in valid for part in group]
    compared = reference.compare(map(_delivered, parts))
    later = [np.maximum(part["left_emit_us"], part["right_emit_us"]) for part in parts]
    waited = [part["arrive_us"] - at for part, at in zip(parts, later, strict=True)]
    return Outcome(
        valid,
        sum(len(part) for group in came for part in group) - sum(map(len, parts)),
        compared,
        percentiles(np.concatenate(waited)),
        [gap for group in valid for gap in silence_ms(group)],
    )


def silence_ms(group: Sequence[ResultRecords]) -> list[float]:
    """The `Outcome.silence_ms` of one group, from the results that count of each of its jobs."""
    arrive = arrived_us(group)
    firsts = [int(part["arrive_us"].min()) for part in group[1:] if len(part)]
    return [longest_gap_ms(arrive, first) for first in firsts]


def arrived_us(parts: Sequence[ResultRecords]) -> NDArray[np.int64]:
    """(k,) when results arrived, us since the epoch, ascending."""
    return np.sort(np.concatenate([part["arrive_us"] for part in parts]))


def delivered(ledger: Ledger, hosts: Hosts) -> list[ResultRecords]:
    """All results of each share's job, whether they count or not."""
    return [_fetched(hosts, share.job.results) for share in ledger.shares]


def _sent(sources: Sources, begin_ms: int, end_ms: int) -> Tuples:
    """What sensors have sent to Kafka."""
    from nova_kafka.messages import read_back

    parts = []
    for number, one in enumerate(sources.sources):
        sequence, time_ms, value = read_back(one, begin_ms, end_ms)
        due_us = 1000 * (time_ms - sources.start_ms)
        parts.append((np.full(len(sequence), number), sequence, time_ms, value, due_us))
    return Tuples(*map(np.concatenate, zip(*parts, strict=True)))


def _stream(source: Source) -> Stream:
    value = np.array(source.values)
    return Stream(source.sensor, source.region, source.stream, np.arange(len(value)), value)


def write_csv(parts: Sequence[ResultRecords], sources: Sources, path: Path) -> None:
    """Write results, a row each, in the order of their arrival.

    Raises:
        UnwritableError: when the file cannot be written.
    """
    import pyarrow as pa
    from pyarrow import csv

    from nova_core.io.safe_files import atomic_write

    names = np.array([one.source for one in sources.sources])
    table = pa.table(
        {
            name: names[column] if name.endswith("_source") else column
            for name, field in COLUMNS.items()
            for column in [np.concatenate([part[field] for part in parts])]
        }
    )
    with atomic_write(path) as file:
        csv.write_csv(table.sort_by("arrive_us"), file)


def _fetched(hosts: Hosts, files: Sequence[tuple[str, str]]) -> ResultRecords:
    """Results that the sinks of a job have written."""
    parts = []
    with tempfile.TemporaryDirectory(prefix="nova-results-") as scratch:
        for number, (node, path) in enumerate(files):
            local = Path(scratch) / str(number)
            fetch_results(hosts[node], path, local)
            parts.append(results.read(local, results.PAIR))
    return results.of_pairs(parts)


def _delivered(part: ResultRecords) -> Results:
    return Results(
        part["left_source"].astype(np.int64),
        part["left_sequence"],
        part["right_source"].astype(np.int64),
        part["right_sequence"],
        part["time_ms"],
    )


def longest_gap_ms(arrive_us: NDArray[np.int64], at_us: int) -> float:
    """Longest time without a result within two seconds around a moment, ms.

    Args:
        arrive_us: (k,) when results arrived, us since the epoch, ascending.
        at_us: the moment.
    """
    begin, at, end = np.searchsorted(arrive_us, [at_us - NEAR_US, at_us, at_us + NEAR_US]).tolist()
    gaps = np.diff(arrive_us[max(0, min(begin, at - 1)) : end])
    return float(gaps.max(initial=0)) / 1000
