"""Tuples as text, as a replay sends them, one a line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nova_core.errors import NovaError
from nova_core.model.partitioner import partition_of

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Floats
    from nova_workloads.schedule import Tuples
    from nova_workloads.streams import Stream

FORMATS = ("csv", "json")
COLUMNS = ("sensor", "region", "stream", "sequence", "time_ms", "value")
PARTITION, EMITTED = "partition", "emit_us"
# Between the partitions of a source that several joins use.
BETWEEN = "|"


class TupleText:
    """Writes tuples of some streams as lines that lack only the time of sending.

    That time comes last, so that a batch is one join of its lines. CSV has the columns sensor,
    region, stream, sequence, time_ms, value, then partition where a plan is given, and emit_us (us
    since the epoch); JSON has the same names.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        form: str,
        partitions: Mapping[str, list[Floats]] | None = None,
    ) -> None:
        """Prepare.

        Args:
            streams: those the tuples' indices mean.
            form: one of `FORMATS`.
            partitions: per stream name, the rates of the partitions of its input in each join
                (`partitions_of`); None leaves the column out.
        """
        self.form = form
        self._streams = streams
        self._partitions = partitions
        if form == "json":
            self._head = [
                json.dumps({"sensor": s.sensor, "region": s.region, "stream": s.stream})[:-1]
                for s in streams
            ]
        else:
            self._head = [_csv_row((s.sensor, s.region, s.stream)) for s in streams]

    @property
    def header(self) -> str:
        """The first line of a CSV file; JSON has none."""
        if self.form == "json":
            return ""
        extra = () if self._partitions is None else (PARTITION,)
        return ",".join((*COLUMNS, *extra, EMITTED)) + "\n"

    def lines(self, block: Tuples) -> list[str]:
        """A line per tuple, without the time of sending."""
        head = self._head
        columns = (
            block.stream.tolist(),
            block.sequence.tolist(),
            block.time_ms.tolist(),
            block.value.tolist(),
        )
        if self._partitions is None:
            if self.form == "json":
                return [
                    f'{head[s]}, "sequence": {q}, "time_ms": {t}, "value": {v}, "emit_us": '
                    for s, q, t, v in zip(*columns, strict=True)
                ]
            return [f"{head[s]},{q},{t},{v}," for s, q, t, v in zip(*columns, strict=True)]
        parts = self._partition_texts(block)
        if self.form == "json":
            return [
                f'{head[s]}, "sequence": {q}, "time_ms": {t}, "value": {v}, '
                f'"partition": "{p}", "emit_us": '
                for s, q, t, v, p in zip(*columns, parts, strict=True)
            ]
        return [
            f"{head[s]},{q},{t},{v},{p}," for s, q, t, v, p in zip(*columns, parts, strict=True)
        ]

    def stamped(self, lines: list[str], emit_us: int) -> bytes:
        """Lines completed with the time of sending."""
        end = f"{emit_us}}}\n" if self.form == "json" else f"{emit_us}\n"
        return (end.join(lines) + end).encode()

    def _partition_texts(self, block: Tuples) -> list[str]:
        assert self._partitions is not None
        texts = np.empty(len(block), object)
        order = np.argsort(block.stream, kind="stable")
        ends = np.flatnonzero(np.diff(block.stream[order], append=-1)) + 1
        for rows in np.split(order, ends[:-1]):
            inputs = self._partitions[self._streams[block.stream[rows[0]]].name]
            numbers = [partition_of(block.sequence[rows], rates).tolist() for rates in inputs]
            texts[rows] = [BETWEEN.join(map(str, each)) for each in zip(*numbers, strict=True)]
        return list(texts)


def _csv_row(values: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(values)
    return text.getvalue()


def partitions_of(plan: Plan, streams: Sequence[Stream]) -> dict[str, list[Floats]]:
    """The rates of each stream's partitions in every join it takes part in, by stream name.

    A stream is the source of the problem that has its name (``sensor-stream``) or, failing that,
    its sensor's. Joins are those of the problem's matrix, in its order; a tuple has a partition in
    each of them.

    Raises:
        NovaError: for a stream that is no source of the problem, or is in no join.
    """
    problem = plan.problem
    index = {str(name): i for i, name in enumerate(problem.sources.ids)}
    rows: dict[int, list[tuple[int, int]]] = {}
    for side, column in enumerate((problem.matrix.left, problem.matrix.right)):
        for pair, source in enumerate(column.tolist()):
            rows.setdefault(source, []).append((pair, side))
    by_stream = {}
    for stream in streams:
        source = index.get(stream.name, index.get(stream.sensor))
        if source is None:
            raise NovaError(
                f"sensor {stream.sensor!r} ({stream.stream}): no source of problem "
                f"{problem.name!r} is called {stream.name!r} or {stream.sensor!r}"
            )
        if source not in rows:
            raise NovaError(f"source {str(problem.sources.ids[source])!r}: in no join of the plan")
        by_stream[stream.name] = [
            plan.partitions.rates(pair, side) for pair, side in sorted(rows[source])
        ]
    return by_stream
