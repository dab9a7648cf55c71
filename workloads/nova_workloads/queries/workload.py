"""Whole queries over readings as a workload: filters, aggregates, joins of many streams."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec
import numpy as np

from nova_core.errors import NovaError
from nova_engines.sources import READINGS
from nova_workloads.base import Traffic, Workload
from nova_workloads.comparison import total
from nova_workloads.queries.readings import connection, load, span_ms
from nova_workloads.queries.reference import expected
from nova_workloads.queries.replayed import ReplayedReadings

if TYPE_CHECKING:
    import pyarrow as pa

    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_engines.results import QueryRows
    from nova_engines.sources import Sources
    from nova_workloads.comparison import Comparison

# Readings travel with the job.
MOST_BYTES = 8 << 20
# Length of a replay without end, s.
ENDLESS_S = 60.0
SINK = "sink"


class QueryWorkload(Workload, frozen=True, kw_only=True):
    """Queries with columns over readings (docs/queries.md); values, rates and keys are theirs.

    The readings are replayed from the first again when they are used up. An experiment's rate is
    that of the source with the most readings; the others are in proportion. Recorded rates are the
    default, and others replay faster or slower: windows are of event time, so they last less or
    more. Problems then have the replay's rates of sources, but the recorded ones of aggregates.

    Attributes:
        file: of the queries: a problem document with ``streams``, ``sources`` and ``queries``, and
            neither nodes nor latencies. Sources without ``node`` are dealt to the inventory's
            sources in turn; ``rate``, selectivities and groups are estimated from the readings, and
            all results go to the inventory's sink.
        readings: directory of a file per source or stream.
    """

    source: ClassVar[str] = READINGS

    file: str
    readings: str

    def at(self, base: Path) -> Self:
        """With both paths relative to a directory."""
        return msgspec.structs.replace(
            self,
            file=str(base / Path(self.file).expanduser()),
            readings=str(base / Path(self.readings).expanduser()),
        )

    def windows_ms(self) -> list[int]:
        """The queries' longest window; they have their own."""
        return [self._prepared().window_ms]

    def rates(self) -> list[float]:
        """The recorded rate."""
        return [float(f"{self._prepared().rate:.6g}")]

    def check(self, windows_ms: Sequence[int]) -> None:
        """Whether queries and readings can be read, and fit each other."""
        own = self._prepared().window_ms
        if list(windows_ms) != [own]:
            raise NovaError(
                f"windows_ms: {list(windows_ms)}: queries have windows of their own, up to {own} "
                "ms; leave it out"
            )

    def problem(self, hosts: Sequence[str], sink: str, traffic: Traffic) -> dict[str, Any]:
        """Streams, sources and queries, with what the readings say of them."""
        prepared = self._prepared()
        if not hosts:
            raise NovaError("workload: no host has the role source")
        document, faster = prepared.document, traffic.rate / prepared.rate
        nodes = iter(prepared.nodes)
        sources = []
        for number, row in enumerate(document["sources"]):
            node = next(nodes) or hosts[number % len(hosts)]
            sources.append(row | {"node": node, "rate": float(f"{row['rate'] * faster:.6g}")})
        return {
            "streams": document["streams"],
            "sources": sources,
            "queries": [one | {"sink": sink} for one in document["queries"]],
        }

    def streams(self, problem: Problem, traffic: Traffic, seed: int) -> QueryStreams:
        """The readings."""
        prepared = self._prepared()
        faster = traffic.rate / prepared.rate
        return QueryStreams(problem, Path(self.readings), faster, prepared.results_per_s * faster)

    def _prepared(self) -> _Prepared:
        return _prepare(Path(self.file), Path(self.readings))


@dataclass(frozen=True)
class _Prepared:
    """Queries, with estimates from the readings.

    Attributes:
        document: of a problem.
        nodes: of its sources; None where the file names none.
        rate: of the source with the most readings, tuples/s.
        window_ms: the longest.
        results_per_s: of all queries.
    """

    document: Mapping[str, Any]
    nodes: list[str | None]
    rate: float
    window_ms: int
    results_per_s: float


@lru_cache(maxsize=4)
def _prepare(file: Path, readings: Path) -> _Prepared:
    from nova_core.io.binding import bind
    from nova_core.io.files import read_problem
    from nova_core.io.problem_writing import problem_document
    from nova_core.io.syntax import dump, parse
    from nova_workloads.queries.estimate import estimated

    if not file.is_file():
        raise NovaError(f"workload.file: {file}: there is no such file")
    content = parse(file, NovaError)
    if not isinstance(content, dict) or not {"streams", "sources", "queries"} <= content.keys():
        raise NovaError(f"{file}: expected a mapping with streams, sources and queries")
    if extra := content.keys() & {"nodes", "latency", "tables", "query"}:
        raise NovaError(f"{file}: {min(extra)}: hosts are the inventory's; leave it out")
    try:
        nodes = [row.get("node") for row in content["sources"]]
        alone = dict(content) | {
            "nova": 1,
            "nodes": [{"id": SINK, "position": [0, 0], "capacity": "unlimited", "worker": True}],
            "sources": [{"rate": 1} | row | {"node": SINK} for row in content["sources"]],
            "queries": [row | {"sink": SINK} for row in content["queries"]],
        }
    except (TypeError, AttributeError):
        raise NovaError(f"{file}: sources and queries: expected lists of mappings") from None
    with tempfile.TemporaryDirectory(prefix="nova-queries-") as directory:
        # It has the name of the file, as errors name it.
        written = Path(directory) / file.name
        written.write_text(dump(alone, file.suffix), "utf-8")
        try:
            problem = read_problem(written)
        except NovaError as error:
            raise NovaError(str(error).replace(str(written), str(file))) from None
    database = connection()
    load(database, problem, readings)
    problem, _ = estimated(problem, database)
    windows = [
        one.window.size_ms
        for query in problem.queries
        for one in bind(query, problem).values()
        if one.window is not None
    ]
    rows = sum(len(expected(database, problem, query)) for query in problem.queries)
    return _Prepared(
        problem_document(problem),
        nodes,
        float(problem.sources.rate.max()),
        max(windows, default=1000),
        rows / (span_ms(database, problem) / 1000),
    )


@dataclass(eq=False)
class QueryStreams:
    """See `nova_workloads.base.Streams`; results are `nova_engines.results.QueryRows`.

    Attributes:
        problem: with the queries.
        folder: of the readings.
        speed: ms of event time per ms.
        expected_rate: results/s of all queries.
        match: queries say themselves what they join.
    """

    problem: Problem
    folder: Path
    speed: float
    expected_rate: float
    match: None = None
    _replays: dict[float, tuple[ReplayedReadings, tempfile.TemporaryDirectory[str]]] = field(
        default_factory=dict
    )

    def _replayed(self, seconds: float) -> ReplayedReadings:
        """The readings of so many seconds."""
        if seconds not in self._replays:
            directory = tempfile.TemporaryDirectory(prefix="nova-readings-")
            length_ms = round(seconds * 1000 * self.speed)
            where = Path(directory.name)
            replayed = ReplayedReadings(self.problem, self.folder, where, self.speed, length_ms)
            size = sum(Path(file).stat().st_size for file in replayed.files.values())
            if size > MOST_BYTES:
                raise NovaError(
                    f"readings of {seconds:g} s are {size / 2**20:.0f} MiB; they travel with the "
                    f"job: {MOST_BYTES >> 20} MiB at most. Take a lower rate, or measure for less "
                    "time"
                )
            self._replays[seconds] = replayed, directory
        return self._replays[seconds][0]

    def sources(
        self,
        start_ms: int,
        seconds: float | None,
        *,
        watermark_ms: int = 10,
        buffer_timeout_ms: int = 100,
    ) -> Sources:
        """Files of the readings."""
        replayed = self._replayed(ENDLESS_S if seconds is None else seconds)
        return replayed.from_time(start_ms, watermark_ms, buffer_timeout_ms)

    def compare(
        self, plan: Plan, sources: Sources, records: QueryRows, *, finished: bool
    ) -> Comparison:
        """Results of all queries compared with DuckDB's for the same readings."""
        # Those that last equally long are the same.
        replays = (one for one, _ in self._replays.values())
        replayed = next(one for one in replays if one.last_ms == sources.last_ms)
        return total(replayed.compare(records, finished=finished), finished=finished)

    def samples(
        self, plan: Plan, sources: Sources, records: QueryRows, measured_us: tuple[int, int]
    ) -> pa.Table:
        """Results; left is the oldest reading of each, right the newest."""
        import pyarrow as pa

        columns: dict[str, Any] = {
            "query": np.repeat(list(records.of_query), list(map(len, records.of_query.values()))),
            "arrive_us": records["arrive_us"],
        }
        for side, which in (("left", "oldest"), ("right", "newest")):
            due = np.floor(sources.due_us(records[f"{which}_ms"])).astype(np.int64)
            columns[f"{side}_due_us"] = sources.start_ms * 1000 + due
            columns[f"{side}_emit_us"] = records[f"{which}_us"]
        due = columns["right_due_us"]
        columns["measured"] = (due >= measured_us[0]) & (due < measured_us[1])
        return pa.table({name: pa.array(values) for name, values in columns.items()})

    def tuples_per_s(self, samples: pa.Table, measured_us: tuple[int, int]) -> float:
        """Readings of all sources."""
        return float(self.problem.sources.rate.sum())

    def delivered(self, plan: Plan, records: QueryRows, inside: Any) -> None:
        """Which instance delivered a result is not known."""
