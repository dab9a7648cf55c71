"""Results of queries, as engines' sinks write them (`nova.engines.query.RowFile`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nova_core.errors import NovaError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Span(NamedTuple):
    """The oldest and the newest of the readings that a result is made of.

    Attributes:
        oldest_ms: its event time.
        oldest_us: when it was emitted, us since the epoch.
        newest_ms: see oldest_ms.
        newest_us: see oldest_us.
    """

    oldest_ms: int
    oldest_us: int
    newest_ms: int
    newest_us: int


@dataclass(frozen=True)
class QueryResults:
    """What a sink received, in order.

    Attributes:
        rows: event time in ms, then the columns.
        spans: of the readings of each.
        arrive_us: when each arrived.
        complete: whether the sink said that no more will come.
    """

    rows: list[tuple[int | float | str, ...]]
    spans: list[Span]
    arrive_us: list[int]
    complete: bool


@dataclass(frozen=True)
class QueryRows:
    """What all sinks of a job received; its columns are those of the queries, one after the other.

    Attributes:
        of_query: by the query's id.
    """

    of_query: dict[str, QueryResults]

    def __len__(self) -> int:
        return sum(len(one.rows) for one in self.of_query.values())

    def __getitem__(self, column: str) -> NDArray[Any]:
        """``arrive_us``, or one of `Span`."""
        import numpy as np

        if column == "arrive_us":
            parts = [np.array(one.arrive_us, np.int64) for one in self.of_query.values()]
            return np.concatenate(parts)
        field = Span._fields.index(column)
        spans = [np.array(one.spans, np.int64).reshape(-1, 4) for one in self.of_query.values()]
        return np.concatenate(spans)[:, field]

    @property
    def complete(self) -> bool:
        """Whether every sink said that no more will come."""
        return all(one.complete for one in self.of_query.values())


def read_rows(path: Path) -> QueryResults:
    """Results of one sink.

    Raises:
        NovaError: where the file cannot be read, or lacks what the sink says it has written.
    """
    rows, spans, arrive_us = [], [], []
    try:
        # Before the rows: the sink may end in between.
        end = path.with_name(f"{path.name}.end")
        announced = end.read_text().strip() if end.is_file() else ""
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break  # being written
                try:
                    time_ms, a, b, c, d, arrive, *fields = json.loads(line)
                except (TypeError, ValueError, RecursionError) as error:
                    raise NovaError(f"{path}: line {number}: no result: {error}") from error
                rows.append((time_ms, *fields))
                spans.append(Span(a, b, c, d))
                arrive_us.append(arrive)
    except OSError as error:
        raise NovaError(f"{path}: {error.strerror}") from error
    complete = announced.isdecimal()
    if complete and int(announced) != len(rows):
        raise NovaError(f"{path}: {len(rows)} results: expected {announced}")
    return QueryResults(rows, spans, arrive_us, complete)
