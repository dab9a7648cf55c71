"""Results of queries as a sink's file would have them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nova_engines.results import COLUMN_TYPES, LENGTH, ROW, ResultRecords, Texts, dtype, row_fields

KINDS: dict[type, str] = {int: "int", float: "float", str: "text"}


def result_rows(
    rows: Sequence[tuple[Any, ...]],
    spans: Sequence[tuple[int, int, int, int]],
    arrive_us: Sequence[int],
    *,
    types: Sequence[str] | None = None,
) -> ResultRecords:
    """Results whose sink has said that no more will come.

    Args:
        rows: event time, then the columns.
        spans: event time and emission of the oldest and the newest reading of each.
        arrive_us: when each arrived.
        types: of the columns; those of the first row's values where not given.
    """
    if types is None:
        types = [KINDS[type(one)] for one in rows[0][1:]] if rows else []
    fields = row_fields([f"made.c{number}" for number, _ in enumerate(types)], types)
    records = np.zeros(len(rows), dtype(fields))
    texts = bytearray()

    def written(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        begin, text = len(texts), value.encode()
        texts.extend(LENGTH.pack(len(text)) + text)
        return begin

    for record, row, span, arrive in zip(records, rows, spans, arrive_us, strict=True):
        record["time_ms"], record["arrive_us"], record["instance"] = row[0], arrive, -1
        for (name, _), value in zip(fields[len(ROW) - len(span) :], (*span, *row[1:]), strict=True):
            record[name] = written(value)
    names = frozenset(name for name, kind in fields if kind == COLUMN_TYPES["text"])
    beside = Texts(Path("made.texts"), bytes(texts), names)
    return ResultRecords(records, announced=len(records), texts=beside if names else None)
