"""Results of queries, as engines' sinks write them (`nova.engines.query.RowFile`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class QueryResults:
    """What a sink received, in order.

    Attributes:
        rows: event time in ms, then the columns.
        emit_us: when the last reading that each is made of was emitted, us since the epoch.
        arrive_us: when each arrived.
        complete: whether the sink said that no more will come.
    """

    rows: list[tuple[int | float | str, ...]]
    emit_us: list[int]
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
        """``emit_us`` or ``arrive_us``."""
        import numpy as np

        parts = [np.array(getattr(one, column), np.int64) for one in self.of_query.values()]
        return np.concatenate(parts)

    @property
    def complete(self) -> bool:
        """Whether every sink said that no more will come."""
        return all(one.complete for one in self.of_query.values())


def read_rows(path: Path) -> QueryResults:
    """Results of one sink.

    Raises:
        NovaError: where the file cannot be read, or lacks what the sink says it has written.
    """
    rows, emit_us, arrive_us = [], [], []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    break  # being written
                try:
                    time_ms, emit, arrive, *fields = json.loads(line)
                except ValueError as error:
                    raise NovaError(f"{path}: line {number}: no result: {error}") from error
                rows.append((time_ms, *fields))
                emit_us.append(emit)
                arrive_us.append(arrive)
        end = path.with_name(f"{path.name}.end")
        complete = end.is_file()
        if complete and int(end.read_text()) != len(rows):
            raise NovaError(f"{path}: {len(rows)} results: expected {end.read_text().strip()}")
    except OSError as error:
        raise NovaError(f"{path}: {error.strerror}") from error
    return QueryResults(rows, emit_us, arrive_us, complete)
