"""Results of controlled jobs, each window's from one job, compared with the expected ones."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from nova_engines import results
from nova_engines.sources import KAFKA
from nova_harness.engines.deployment import fetch_results
from nova_harness.results.latencies import percentiles
from nova_workloads.comparison import total
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
    from nova_engines.source_orders import ControlledJob
    from nova_engines.sources import Source, Sources
    from nova_harness.results.schema import Percentiles
    from nova_testbed.hosts import Hosts
    from nova_workloads.comparison import Comparison
    from nova_workloads.queries.replayed import ReplayedReadings

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
        valid: results that count: for each group of operators, one part for each of its jobs.
        dropped: number of results that do not count.
        compared: with the expected results.
        latency: from the newest input's emission to the arrival.
        silence_ms: for each job but the first of a group, the longest time without a result of
            the group within two seconds around its first one.
    """

    valid: list[list[ResultRecords]]
    dropped: int
    compared: Comparison
    latency: Percentiles
    silence_ms: list[float]


class Check(Protocol):
    """Compares what jobs delivered with what they should have."""

    def __call__(
        self, parts: Sequence[ResultRecords], begin_ms: int, ends_ms: Mapping[str, int]
    ) -> Comparison:
        """The comparison.

        Args:
            parts: results that count, of each job.
            begin_ms: event time from which on there are tuples, ms.
            ends_ms: by source, event time that they are before, ms.
        """
        ...


def outcome(ledgers: Sequence[Ledger], hosts: Hosts, sources: Sources, check: Check) -> Outcome:
    """Fetch the sinks' results, and compare them with the expected ones.

    Args:
        ledgers: of each group of operators: which job's results count; all have ended.
        hosts: connected.
        sources: of the jobs.
        check: compares.
    """
    came = [delivered(ledger, hosts) for ledger in ledgers]
    valid = [ledger.own(parts) for ledger, parts in zip(ledgers, came, strict=True)]
    begin_ms = min(ledger.shares[0].begin_ms for ledger in ledgers)
    ends_ms = {
        sources.sources[index].source: ledger.end_ms or begin_ms
        for ledger in ledgers
        for index, _ in ledger.shares[0].job.sources
    }
    parts = [part for group in valid for part in group]
    waited = [part["arrive_us"] - part.emitted_us for part in parts]
    return Outcome(
        valid,
        sum(len(part) for group in came for part in group) - sum(map(len, parts)),
        check(parts, begin_ms, ends_ms),
        percentiles(np.concatenate(waited)),
        [gap for group in valid for gap in silence_ms(group)],
    )


@dataclass(frozen=True)
class PairsCheck:
    """A `Check` by the reference join.

    Attributes:
        problem: that was placed.
        sources: whose tuples were joined.
        match: which of them match.
    """

    problem: Problem
    sources: Sources
    match: Match

    def __call__(
        self, parts: Sequence[ResultRecords], begin_ms: int, ends_ms: Mapping[str, int]
    ) -> Comparison:
        """See `Check`."""
        sources, matrix = self.sources, self.problem.matrix
        streams = [_stream(one) for one in sources.sources]
        end_of = np.array([ends_ms.get(one.source, begin_ms) for one in sources.sources])
        end_ms = int(end_of.max())
        if KAFKA in sources.kinds:
            tuples = _sent(sources, begin_ms, end_ms)
        else:
            tuples = emitted(sources, streams, begin_ms, end_ms)
        tuples = tuples.take(tuples.time_ms < end_of[tuples.stream])
        index = [sources.index(name) for name in self.problem.sources.ids.tolist()]
        pairs = [
            (index[left], index[right])
            for left, right in zip(matrix.left.tolist(), matrix.right.tolist(), strict=True)
        ]
        match = self.match
        reference = Reference(
            streams, tuples, match.window_ms, keys=match.keys, every=match.every, pairs=pairs
        )
        return reference.compare(map(_delivered, parts))


@dataclass(frozen=True)
class QueriesCheck:
    """A `Check` of whole queries by DuckDB, over the readings that were replayed."""

    replayed: ReplayedReadings

    def __call__(
        self, parts: Sequence[ResultRecords], begin_ms: int, ends_ms: Mapping[str, int]
    ) -> Comparison:
        """See `Check`; readings begin before the first boundary."""
        self.replayed.end(ends_ms)
        return total(self.replayed.compare(rows_of(parts).records), finished=True)


def rows_of(parts: Sequence[ResultRecords]) -> ResultRecords:
    """Rows of queries of several jobs, as of one."""
    of_query: dict[str, list[ResultRecords]] = defaultdict(list)
    for part in parts:
        for query, rows in part.records.of_query.items():
            of_query[query].append(rows)
    merged = {query: results.joined(one) for query, one in of_query.items()}
    return results.together(results.QueryRows(merged), list(merged.values()))


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
    return [_fetched(hosts, share.job) for share in ledger.shares]


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


def _fetched(hosts: Hosts, job: ControlledJob) -> ResultRecords:
    """Results that the sinks of a job have written."""
    parts = []
    with tempfile.TemporaryDirectory(prefix="nova-results-") as scratch:
        for number, (node, path) in enumerate(job.results):
            local = Path(scratch) / str(number)
            fetch_results(hosts[node], path, local)
            parts.append(results.read(local, None if job.queries else results.PAIR))
    if not job.queries:
        return results.joined(parts)
    rows = results.QueryRows(dict(zip(job.queries, parts, strict=True)))
    return results.together(rows, parts)


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
