"""Positions of any number of nodes from latencies to landmarks (paper, section 3.5).

The few landmarks, which have measured each other, are embedded as on one machine. Every other node
is then located alone: a linear fit of its distances, then the robust fit of the cost space
(`nova_core.costspace.kernels.place`), without randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from nova_core.costspace.embedding import embed as embed_landmarks
from nova_core.costspace.embedding import packed
from nova_core.errors import NovaError, ProblemError
from nova_core.io.columnar import POSITION_KINDS, position_columns
from nova_core.io.directories import new_directory
from nova_core.io.problem_document import ProblemDocument
from nova_core.io.safe_files import write_text
from nova_core.io.syntax import dump
from nova_core.model.problem import Floats, Ints, PairLatencies
from nova_workloads.scale.stages import Stages, beside
from nova_workloads.scale.tables import (
    Problem,
    link_table,
    small_table,
    spread_rows,
    write_in_order,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

MOST_LANDMARKS = 1000
# Steps of the robust fit.
STEPS = 16
# Measurements that one fit of many nodes takes; each needs some hundred bytes meanwhile.
MOST_FITTED = 200_000


@dataclass(frozen=True, eq=False)
class Landmarks:
    """Nodes that others have measured.

    Attributes:
        index: name to row of ``state``.
        state: (l, d) positions, ms, or (l, d + 1) with heights last.
        dimensions: d.
        floor: mean latency between them, ms.
        scale: median of it.
    """

    index: dict[str, int]
    state: NDArray[np.float32]
    dimensions: int
    floor: float
    scale: float

    def locate(self, start: Ints, landmark: Ints, latency: Floats) -> NDArray[np.float32]:
        """(k, d) or (k, d + 1) states of nodes.

        Args:
            start: (k + 1,) first measurement of each node.
            landmark: for each measurement, a row of ``state``.
            latency: for each, ms.
        """
        from nova_core.costspace.kernels import place
        from nova_core.costspace.kernels.graph import Entries

        own = self._fit(start, landmark, latency)
        entries = Entries(start, landmark.astype(np.int32), latency.astype(np.float32))
        place.place(
            0, len(own), entries, self.state, own, self.dimensions,
            place.Effort(0, STEPS, settle=True), self.floor, self.scale, 0,
        )  # fmt: skip
        return own

    def _fit(self, start: Ints, landmark: Ints, latency: Floats) -> NDArray[np.float32]:
        """States from |x|^2 - l^2 = 2 p x - 2 h l + c, which is linear in p, h and c.

        Here x and l are a landmark's position and the latency to it less its height, and p and h
        the node's position and height.
        """
        d, high = self.dimensions, self.state.shape[1] > self.dimensions
        x = self.state[landmark, :d].astype(np.float64)
        apart = latency - self.state[landmark, d] if high else latency.astype(np.float64)
        columns = [2 * x, np.ones((len(x), 1))]
        if high:
            columns.append(-2 * apart[:, None])
        rows = np.concatenate(columns, axis=1)
        right = (x**2).sum(axis=1) - apart**2
        # Far landmarks would outweigh near ones by the square.
        weight = 1 / (apart**2 + self.floor**2 / 100)
        matrix = np.add.reduceat(
            weight[:, None, None] * rows[:, :, None] * rows[:, None, :], start[:-1]
        )
        vector = np.add.reduceat((weight * right)[:, None] * rows, start[:-1])
        width = matrix.shape[1]
        trace = np.trace(matrix, axis1=1, axis2=2)[:, None, None]
        solved = np.linalg.solve(matrix + 1e-9 * trace * np.eye(width), vector[..., None])[..., 0]
        middle = np.add.reduceat(x, start[:-1]) / np.diff(start)[:, None]
        own = np.where(np.isfinite(solved[:, :d]), solved[:, :d], middle)
        # A fit may diverge where landmarks are nearly on a line.
        reach = 3 * np.abs(self.state[:, :d]).max()
        own = np.where(np.abs(own) <= reach, own, middle)
        if high:
            height = np.nan_to_num(solved[:, d + 1])
            own = np.column_stack([own, np.clip(height, 0.0, self.floor)])
        return np.ascontiguousarray(own, np.float32)


def open_measured(place: Path, output: Path) -> tuple[Problem, ProblemDocument]:
    """A problem whose nodes have latencies in place of positions.

    Raises:
        NovaError: for a problem without latencies, or when the output exists already.
    """
    from msgspec import UNSET, structs

    if output.exists():
        raise NovaError(f"{output}: already there; remove it, or give another name")
    problem = Problem.open(place, measured=True)
    tables = problem.header.tables
    if tables is UNSET or tables.latency_pairs is UNSET:
        raise ProblemError(f"{problem.path}: tables.latency_pairs: none; there is nothing to embed")
    if any(name in POSITION_KINDS for name in problem.columns("nodes")):
        raise ProblemError(f"{problem.path}: nodes have positions already")
    # All tables of the output lie in its directory, unlike those of the input.
    names = {"nodes": "nodes", "latency_pairs": UNSET}
    for table in ("sources", "matrix"):
        source = problem.path.parent / getattr(tables, table)
        names[table] = table if source.is_dir() else f"{table}.parquet"
    return problem, structs.replace(problem.header, tables=structs.replace(tables, **names))


def embed(
    spark: SparkSession,
    problem: Problem,
    header: ProblemDocument,
    output: Path,
    dimensions: int,
    height: bool,
    seed: int,
    step: Callable[[str], None],
) -> dict[str, Any]:
    """Write a problem with positions; a run is resumed as in `nova_workloads.scale.plan`.

    Args:
        spark: a session.
        problem: what `open_measured` returned, with the header of the output.
        header: of the output.
        output: a directory that does not exist yet.
        dimensions: of the cost space.
        height: whether nodes get heights.
        seed: of the landmarks' embedding.
        step: called with the name of every stage that begins.

    Returns:
        figures: nodes, landmarks, mean absolute error, ms.

    Raises:
        ProblemError: for latencies to too many nodes, or nodes without enough of them.
    """
    settings = {
        "files": problem.fingerprint(),
        "dimensions": dimensions,
        "height": height,
        "seed": seed,
    }
    spread_rows(spark, problem.count("nodes"))
    pairs = problem.latencies(spark)
    axes = position_columns(dimensions)
    with Stages(beside(output, "stages"), settings, step) as stages:

        def find(place: Path) -> dict[str, Any]:
            names, state, latency = _landmarks(problem, pairs, dimensions, height, seed)
            np.savez(place / "landmarks.npz", names=names, state=state, latency=latency)
            return {"landmarks": len(names)}

        facts = stages.once("landmarks", find)
        with np.load(stages.path("landmarks") / "landmarks.npz") as arrays:
            index = {str(name): row for row, name in enumerate(arrays["names"])}
            latency = arrays["latency"]
            known = Landmarks(
                index, arrays["state"], dimensions, float(latency.mean()), float(np.median(latency))
            )

        def write(place: Path) -> dict[str, Any]:
            return _write_nodes(spark, problem, pairs, known, axes, place / "rows")

        facts |= stages.once("nodes", write)
        with new_directory(output) as place:
            link_table(stages.path("nodes") / "rows", place / "nodes")
            for table in ("sources", "matrix"):
                source = problem.path.parent / getattr(problem.header.tables, table)
                link_table(source, place / getattr(header.tables, table))
            import msgspec

            write_text(place / "problem.yaml", dump(msgspec.to_builtins(header), ".yaml"))
        stages.remove()
    return facts


def _landmarks(
    problem: Problem, pairs: DataFrame, dimensions: int, height: bool, seed: int
) -> tuple[list[str], NDArray[np.float32], Floats]:
    """Names, states and latencies of the nodes at the pairs' ends ``to``."""
    names = [row["to"] for row in pairs.select("to").distinct().limit(MOST_LANDMARKS + 1).collect()]
    if len(names) > MOST_LANDMARKS:
        raise ProblemError(
            f"{problem.path}: latency_pairs: more than {MOST_LANDMARKS} different nodes in column "
            "'to'; this column is for the landmarks that all nodes have measured"
        )
    names.sort()
    index = {name: row for row, name in enumerate(names)}
    among = pairs.where(F.col("from").isin(names)).select("from", "to", "ms").collect()
    rows = sorted((index[row["from"]], index[row["to"]], row["ms"]) for row in among)
    if len(rows) < len(names):
        raise ProblemError(
            f"{problem.path}: latency_pairs: {len(names)} landmarks (column 'to') have measured "
            f"each other {len(rows)} times; they need latencies among themselves"
        )
    ends, latency = np.array([row[:2] for row in rows]), np.array([row[2] for row in rows])
    measured = PairLatencies(ends[:, 0], ends[:, 1], latency)
    space = embed_landmarks(
        measured, nodes=len(names), dimensions=dimensions, height=height, seed=seed
    )
    return names, packed(space), latency


def _write_nodes(
    spark: SparkSession,
    problem: Problem,
    pairs: DataFrame,
    known: Landmarks,
    axes: list[str],
    place: Path,
) -> dict[str, Any]:
    shared = spark.sparkContext.broadcast(known)
    high = known.state.shape[1] > known.dimensions
    columns = [*axes, *(["height"] if high else [])]
    schema = "id string, " + ", ".join(f"{name} double" for name in [*columns, "off", "measured"])
    lists = pairs.groupBy(F.col("from").alias("id")).agg(
        F.sort_array(F.collect_list(F.struct("to", "ms"))).alias("all")
    )
    located = lists.select("id", F.col("all.to").alias("to"), F.col("all.ms").alias("ms"))
    own = located.mapInArrow(_locate(shared, columns), schema)
    # Landmarks keep their positions.
    states = known.state.astype(float).tolist()
    rows = [(name, *states[row], 0.0, 0.0) for name, row in known.index.items()]
    fixed = small_table(spark, rows, schema)
    others = own.join(F.broadcast(fixed.select("id")), "id", "left_anti").union(fixed)
    nodes = problem.table(spark, "nodes")
    unchanged = [name for name in nodes.columns if name not in ("row", *columns)]
    joined = nodes.join(others.hint("shuffle_hash"), "id")
    count = problem.count("nodes")
    chosen = joined.select("row", *unchanged, *columns, "off", "measured")
    write_in_order(chosen, "row", count, place)
    written = spark.read.parquet(str(place))
    facts = written.agg(F.count("*").alias("n"), F.sum("off"), F.sum("measured")).first()
    assert facts is not None
    if facts["n"] < count:
        lost = nodes.join(others, "id", "left_anti").orderBy("row").first()
        assert lost is not None
        raise ProblemError(
            f"{problem.path}: latency_pairs: node {lost['id']!r} has measured fewer than "
            f"{known.state.shape[1] + 1} landmarks, too few for a position"
        )
    _drop_columns(place, ("row", "off", "measured"))
    return {"nodes": facts["n"], "pairs": int(facts[2]), "mae": facts[1] / max(facts[2], 1)}


def _drop_columns(place: Path, names: tuple[str, ...]) -> None:
    """Rewrite a table's parts one by one without some columns."""
    import pyarrow.parquet as pq

    for file in place.glob("*.parquet"):
        table = pq.read_table(file)
        pq.write_table(table.drop_columns(list(names)), file, compression="zstd")


def _locate(shared: Any, columns: list[str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def parts(batches: Iterator[Any], least: int) -> Iterator[Any]:
        """Rows with enough measurements, in batches that fit in memory."""
        import pyarrow as pa

        for batch in batches:
            lengths = batch.column("to").value_lengths().to_numpy(zero_copy_only=False)
            enough = lengths >= least
            if not enough.any():
                continue
            batch, total = batch.filter(pa.array(enough)), np.cumsum(lengths[enough])
            full = np.flatnonzero(np.diff(total // MOST_FITTED)) + 1
            for begin, end in pairwise([0, *full.tolist(), len(batch)]):
                yield batch.slice(begin, end - begin)

    def locate(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        known = shared.value
        least = known.state.shape[1] + 1
        for batch in parts(batches, least):
            names = batch.column("to").flatten().dictionary_encode()
            rows = np.array([known.index[name] for name in names.dictionary.to_pylist()])
            landmark = rows[names.indices.to_numpy()]
            latency = batch.column("ms").flatten().to_numpy(zero_copy_only=False)
            lengths = batch.column("to").value_lengths().to_numpy(zero_copy_only=False)
            start = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
            own = known.locate(start, landmark, latency)
            d = known.dimensions
            landmark_state = known.state[landmark]
            node = np.repeat(np.arange(len(own)), np.diff(start))
            estimate = np.linalg.norm(landmark_state[:, :d] - own[node, :d], axis=1)
            if own.shape[1] > d:
                estimate += landmark_state[:, d] + own[node, d]
            off = np.add.reduceat(np.abs(estimate - latency), start[:-1])
            arrays = [batch.column("id"), *(pa.array(c.astype(np.float64)) for c in own.T)]
            arrays += [pa.array(off), pa.array(np.diff(start).astype(np.float64))]
            yield pa.RecordBatch.from_arrays(arrays, ["id", *columns, "off", "measured"])

    return locate
