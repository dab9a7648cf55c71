"""Readings that a job of queries replays, and the results expected from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_workloads.queries.readings import (
    bounds_ms,
    connection,
    forget,
    load,
    repeat,
    write_encoded,
)
from nova_workloads.queries.reference import ResultRow, compare, expected

if TYPE_CHECKING:
    from nova_core.model.problem import Problem
    from nova_core.model.queries import Query
    from nova_engines.results import QueryRows
    from nova_engines.sources import Sources
    from nova_workloads.comparison import Comparison


class ReplayedReadings:
    """Readings of a problem's sources, encoded for an engine.

    Args:
        problem: has streams with columns.
        folder: of the readings, as ``nova query reference`` reads them.
        directory: of the encoded ones, which must exist until the job is submitted.
        speed: ms of event time per ms; 0 emits everything as fast as it is taken.
        length_ms: event time to replay, from the first reading again where they end; None replays
            them once.

    Attributes:
        files: the encoded readings of each source.
        last_ms: event time of the last reading of all.

    Raises:
        NovaError: for a problem without streams, and for readings that are missing or wrong.
    """

    def __init__(
        self,
        problem: Problem,
        folder: Path,
        directory: Path,
        speed: float,
        length_ms: int | None = None,
    ) -> None:
        if not problem.streams:
            raise NovaError("problem: streams are missing: give the columns of every stream")
        self._problem, self._speed = problem, speed
        self._database: Any = connection()
        load(self._database, problem, folder)
        if length_ms is not None:
            repeat(self._database, problem, length_ms)
        self._first_ms, self.last_ms = bounds_ms(self._database, problem)
        self.files = write_encoded(self._database, problem, directory)

    def from_time(
        self, start_ms: int, watermark_ms: int = 10, buffer_timeout_ms: int = 100
    ) -> Sources:
        """The readings, the first of which is emitted at that time, ms since the epoch."""
        from nova_engines.sources import READINGS, Source, Sources

        sources = self._problem.sources
        streams = dict(zip(sources.ids.tolist(), sources.stream.tolist(), strict=True))
        return Sources(
            tuple(
                Source(one, stream=streams[one], kind=READINGS, path=file)
                for one, file in self.files.items()
            ),
            start_ms,
            first_ms=self._first_ms,
            last_ms=self.last_ms,
            speed=self._speed,
            watermark_ms=watermark_ms,
            buffer_timeout_ms=buffer_timeout_ms,
        )

    def end(self, ends_ms: Mapping[str, int]) -> None:
        """Expect results of readings before these event times alone, ms, by source."""
        for source, end_ms in ends_ms.items():
            forget(self._database, self._problem, source, end_ms)

    def expected(self, query: Query) -> list[ResultRow]:
        """The results of a query over the readings, by DuckDB."""
        return expected(self._database, self._problem, query)

    def compare(self, rows: QueryRows, *, finished: bool = True) -> dict[str, Comparison]:
        """Delivered results of a job compared with the expected ones, by query."""
        return {
            query.id: compare(
                self.expected(query), rows.of_query[query.id].rows(), finished=finished
            )
            for query in self._problem.queries
        }
