"""A problem's digest from its files, batch by batch: the same as `Problem.digest` in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from nova_core.errors import ProblemError
from nova_core.io.columnar import part_files
from nova_core.io.safe_files import UNLIMITED
from nova_core.model.problem import Joins, Links, PairLatencies, hash_array, hash_column, hash_table
from nova_workloads.scale.part import rows_of_lists
from nova_workloads.scale.tables import Problem, facts_of

# Placeholders of missing values.
NUMBERS = {"memory": np.nan, "cost": np.nan, "height": np.nan, "penalty": 0.0}
NUMBERS |= {"tuple_bytes": np.nan, "cpu": np.nan}


def digest_of(problem: Problem, joins: Joins, sources: Path, pairs: Path) -> str:
    """The digest of a problem.

    Args:
        problem: the problem.
        joins: its joins of logical streams.
        sources: the stage of sources (`nova_workloads.scale.anchors`).
        pairs: the stage of pairs.
    """
    h = hashlib.blake2b(digest_size=16)
    nodes = _Table("Nodes", h, problem.files("nodes"), problem.count("nodes"))
    nodes.text("ids", "id")
    nodes.position(problem.axes)
    nodes.numbers("capacity", "capacity", "<f8")
    nodes.worker()
    for name in ("memory", "cost"):
        nodes.numbers(name, name, "<f8")
    for name in ("tags", "host"):
        nodes.text(name, name)
    for name in ("height", "penalty", "cpu"):
        nodes.numbers(name, name, "<f8")
    nodes.text("zone", "zone", needed=False)
    original = _Table("Sources", h, problem.files("sources"), problem.count("sources"))
    located = _Table("Sources", h, part_files(sources, ProblemError), original.count)
    original.text("ids", "id")
    located.numbers("node", "home", "<i8")
    original.text("stream", "stream")
    for name in ("rate", "tuple_bytes"):
        original.numbers(name, name, "<f8")
    original.text("key", "key")
    hash_table(h, joins)
    matrix = _Table("JoinMatrix", h, part_files(pairs, ProblemError), problem.count("matrix"))
    matrix.numbers("join", "join", "<i8")
    for side, name in enumerate(("left", "right")):
        matrix.numbers(name, "sources", "<i8", side)
    matrix.numbers("output_rate", "output_rate", "<f8")
    hash_table(h, Links.none())
    h.update(b"metrics:();")
    for name in ("latency", *(f"measured.{one.name}" for one in fields(PairLatencies))):
        hash_array(h, name, None)
    return h.hexdigest()


class _Table:
    """A table in files, whose columns go into a digest one after the other."""

    def __init__(self, name: str, h: hashlib.blake2b, files: Sequence[Path], count: int) -> None:
        self.name = name
        self.count = count
        self._h = h
        self._files = files
        self._columns = set(facts_of(files[0])[1].names)

    def _batches(self, *columns: str) -> Iterator[Any]:
        import pyarrow.parquet as pq

        for file in self._files:
            yield from pq.ParquetFile(file).iter_batches(columns=list(columns))

    def _hash(self, field: str, kind: str | None, chunks: Any, *more: int) -> None:
        data = () if kind is None else chunks
        hash_column(self._h, f"{self.name}.{field}", kind, (self.count, *more), data)

    def text(self, field: str, column: str, *, needed: bool = True) -> None:
        """A column of text; one that is not needed adds nothing where it is missing."""
        if not needed and column not in self._columns:
            return
        self._hash(field, "U" if column in self._columns else None, self._texts(column))

    def _texts(self, column: str) -> Iterator[bytes]:
        import pyarrow as pa
        import pyarrow.compute as pc

        first = True
        for batch in self._batches(column):
            values = pc.fill_null(batch.column(0).cast(pa.string()), "")
            whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
            text = pc.binary_join(whole, "\0")[0].as_py().encode()
            yield text if first else b"\0" + text
            first = False

    def numbers(self, field: str, column: str, kind: str, item: int | None = None) -> None:
        """A column of numbers, or one item of each list of a column."""
        known = column in self._columns
        self._hash(field, kind if known else None, self._numbers(column, kind, item))

    def _numbers(self, column: str, kind: str, item: int | None) -> Iterator[bytes]:
        for batch in self._batches(column):
            if item is not None:
                values = rows_of_lists(batch, column)[:, item]
            else:
                values = _floats(batch.column(0), NUMBERS.get(column))
            yield np.ascontiguousarray(values, kind).tobytes()

    def position(self, axes: list[str]) -> None:
        """Coordinates, a row after the other."""
        rows = (
            np.stack([_floats(batch.column(axis), None) for axis in axes], axis=1)
            for batch in self._batches(*axes)
        )
        self._hash("position", "<f8", (row.astype("<f8").tobytes() for row in rows), len(axes))

    def worker(self) -> None:
        """Whether each node may host joins; by default it may."""
        self._hash("worker", "|b1", self._workers())

    def _workers(self) -> Iterator[bytes]:
        if "worker" not in self._columns:
            yield np.ones(self.count, np.bool_).tobytes()
            return
        for batch in self._batches("worker"):
            may = batch.column("worker").fill_null(True)
            yield np.asarray(may.to_numpy(zero_copy_only=False), np.bool_).tobytes()


def _floats(column: Any, missing: float | None) -> Any:
    import pyarrow as pa

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        texts = column.to_pylist()  # capacities, of which some are unlimited
        return np.array([np.inf if t.strip() == UNLIMITED else float(t) for t in texts])
    if pa.types.is_integer(column.type) and missing is None:
        return column.to_numpy(zero_copy_only=False)
    filled = column.cast(pa.float64())
    filled = filled if missing is None else filled.fill_null(missing)
    return filled.to_numpy(zero_copy_only=False)
