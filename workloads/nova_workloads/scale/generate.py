"""Synthetic problems of any size (`nova_workloads.topology`), written block by block by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core.errors import NovaError, ProblemError
from nova_core.io.directories import new_directory
from nova_core.io.safe_files import write_text
from nova_core.io.syntax import dump
from nova_workloads import topology
from nova_workloads.scale.embed import MOST_LANDMARKS
from nova_workloads.scale.tables import BLOCK, name_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Purposes of random numbers, as part of their seed.
_PLACES, _NODES, _SOURCES, _PAIRS, _LATENCIES = range(5)
# Of latencies: mean height of nodes, ms, and the deviation of the logarithm.
HEIGHT, NOISE = 2.0, 0.1
# Deviations of a sink's input that its capacity allows for, in roots of its joins, tuples/s.
_SLACK = 100.0


@dataclass(frozen=True)
class Shape:
    """A synthetic problem: `topology.generate`, and several sinks.

    Nodes are sinks, then sources, then workers; positions are independent of this order. Source k
    of the left stream is joined with source k of the right one.

    Attributes:
        nodes: how many.
        sinks: how many of them consume results; joins take turns.
        clusters: Gaussian clusters the nodes lie in.
        source_clusters: clusters that sources lie in, the first of those; None for all.
        heterogeneity: of capacities, 0 to 1.
        dimensions: of the cost space.
        rate_min: least source rate, a whole number of tuples/s.
        rate_max: greatest source rate.
        landmarks: nodes that all others measure; then nodes have no positions, but a table of
            latencies: distances, both ends' heights and some noise. None for positions.
        measured: landmarks that each node measures.
        seed: one seed gives one problem on any cluster.
    """

    nodes: int
    sinks: int = 1
    clusters: int = 10
    source_clusters: int | None = None
    heterogeneity: float = 0.0
    dimensions: int = 2
    rate_min: int = 1
    rate_max: int = 75
    landmarks: int | None = None
    measured: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        topology.check(
            self.nodes, self.heterogeneity, self.seed, self.dimensions, self.clusters,
            self.rate_min, self.rate_max,
        )  # fmt: skip
        if not 1 <= self.sinks <= self.joins:
            raise ProblemError(f"generate: sinks {self.sinks}; expected 1 to {self.joins}")
        most = min(self.nodes, MOST_LANDMARKS)
        if self.landmarks is not None and not self.dimensions + 2 <= self.landmarks <= most:
            raise ProblemError(
                f"generate: landmarks {self.landmarks}; expected {self.dimensions + 2} to {most}"
            )
        if not self.dimensions + 2 <= self.measured <= (self.landmarks or self.measured):
            raise ProblemError(
                f"generate: measured {self.measured}; expected {self.dimensions + 2} to the number "
                "of landmarks"
            )
        if not 1 <= (self.source_clusters or 1) <= self.clusters:
            raise ProblemError(
                f"generate: source_clusters {self.source_clusters}; expected 1 to {self.clusters}"
            )

    @property
    def joins(self) -> int:
        """Pairs of sources."""
        return max(1, round((self.nodes - 1) * topology.SOURCE_SHARE / 2))

    def operator(self, join: Any) -> Any:
        """Which operator a pair, or each of some, belongs to."""
        return join % self.sinks


def generate(spark: SparkSession, shape: Shape, output: Path) -> dict[str, Any]:
    """Write a problem as a directory of tables, each a directory of Parquet files.

    Args:
        spark: a session.
        shape: what to write.
        output: the directory; it appears whole.

    Returns:
        figures of it.

    Raises:
        NovaError: when the output exists already, or cannot be written.
    """
    if output.exists():
        raise NovaError(f"{output}: already there; remove it, or give another name")
    if shape.nodes < shape.sinks + 2 * shape.joins + 1:
        raise ProblemError(f"generate: {shape.sinks} sinks leave no worker of {shape.nodes} nodes")
    tables = {
        "nodes": (shape.nodes, _nodes, _node_schema(shape)),
        "sources": (
            2 * shape.joins,
            _sources,
            "id string, node string, stream string, rate double",
        ),
        "matrix": (
            shape.joins,
            _pairs,
            "join string, left string, right string, output_rate double",
        ),
    }
    if shape.landmarks is not None:
        latencies = "from string, to string, ms double"
        tables["latency_pairs"] = (shape.nodes, _latencies, latencies)
    names = operator_names(shape)
    with new_directory(output) as place:
        for table, (rows, make, schema) in tables.items():
            blocks = -(-rows // BLOCK)
            frame = spark.range(0, blocks, 1, blocks).mapInArrow(_maker(make, shape, rows), schema)
            frame.write.parquet(str(place / table))
            name_parts(place / table)
        operators = [
            {"id": name, "kind": "join", "left": "left", "right": "right", "sink": f"n{row}"}
            | {"match": "matrix"}
            for row, name in enumerate(names)
        ]
        header = {
            "nova": 1,
            "name": f"synthetic-{shape.nodes}-h{shape.heterogeneity:g}-s{shape.seed}",
            "query": {"operators": operators},
            "tables": {name: name for name in tables},
        }
        write_text(place / "problem.yaml", dump(header, ".yaml"))
    return {"output": str(output), "pairs": shape.joins, **asdict(shape)}


def operator_names(shape: Shape) -> list[str]:
    """Names of the joins of logical streams, one per sink."""
    return ["join"] if shape.sinks == 1 else [f"join{row}" for row in range(shape.sinks)]


def _node_schema(shape: Shape) -> str:
    from nova_core.io.columnar import position_columns

    known = [] if shape.landmarks is not None else position_columns(shape.dimensions)
    axes = "".join(f"{axis} double, " for axis in known)
    return f"id string, {axes}capacity double, worker boolean"


def _maker(
    make: Callable[[Shape, int, Any, Any], Any], shape: Shape, rows: int
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def blocks(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for block in batch.column(0).to_pylist():
                row = np.arange(block * BLOCK, min((block + 1) * BLOCK, rows))
                columns = make(shape, block, row, pa)
                yield pa.RecordBatch.from_pydict(columns)

    return blocks


def _names(prefix: str, row: Any, pa: Any) -> Any:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(prefix, pa.array(row).cast(pa.string()), "")


def _positions(shape: Shape, block: int, row: Any) -> tuple[Any, Any, Any]:
    """Positions of a block's nodes, which of them are sources, and the generator for the rest."""
    places = np.random.default_rng([shape.seed, _PLACES])
    centre, spread = topology.draw_clusters(places, shape.dimensions, shape.clusters)
    random = np.random.default_rng([shape.seed, _NODES, block])
    position = topology.draw_positions(random, centre, spread, len(row))
    sends = (row >= shape.sinks) & (row < shape.sinks + 2 * shape.joins)
    if shape.source_clusters is not None:
        some = slice(shape.source_clusters)
        near = topology.draw_positions(random, centre[some], spread[some], len(row))
        position = np.where(sends[:, None], near, position)
    return position, sends, random


def _nodes(shape: Shape, block: int, row: Any, pa: Any) -> dict[str, Any]:
    from nova_core.io.columnar import position_columns

    position, sends, random = _positions(shape, block, row)
    greatest = np.where(sends, topology.SOURCE_CAPACITY, topology.WORKER_CAPACITY).astype(float)
    capacity = topology.draw_capacities(random, greatest, shape.heterogeneity)
    sink = row < shape.sinks
    joins = shape.joins // shape.sinks + 1
    most = topology.SINK_HEADROOM * topology.OUTPUT_RATE * joins + _SLACK * np.sqrt(joins)
    capacity[sink] = np.ceil(most)
    axes = dict(zip(position_columns(shape.dimensions), position.T.copy(), strict=True))
    if shape.landmarks is not None:
        axes = {}
    return {"id": _names("n", row, pa), **axes, "capacity": capacity, "worker": ~sink}


def _latencies(shape: Shape, block: int, row: Any, pa: Any) -> dict[str, Any]:
    """Latencies that the nodes of a block have measured; all landmarks have measured each other."""
    assert shape.landmarks is not None
    first = np.arange(min(BLOCK, shape.nodes))
    landmarks = _positions(shape, 0, first)[0][: shape.landmarks]
    here = _positions(shape, block, row)[0]
    random = np.random.default_rng([shape.seed, _LATENCIES, block])
    height = np.random.default_rng([shape.seed, _LATENCIES]).exponential(HEIGHT, shape.landmarks)
    own = random.exponential(HEIGHT, len(row))
    # Distinct landmarks: every so many, from a random one on.
    step = shape.landmarks // shape.measured
    begin = random.integers(0, shape.landmarks, len(row))
    chosen = (begin[:, None] + step * np.arange(shape.measured)) % shape.landmarks
    node = np.repeat(np.arange(len(row)), shape.measured)
    to = chosen.ravel()
    if block == 0:
        one, other = np.triu_indices(shape.landmarks, 1)
        others = row[node] >= shape.landmarks
        node = np.concatenate([other, node[others]])
        to = np.concatenate([one, to[others]])
        own[: shape.landmarks] = height[: len(own)]
    ms = np.linalg.norm(here[node] - landmarks[to], axis=1) + own[node] + height[to]
    ms *= random.lognormal(0.0, NOISE, len(ms))
    return {"from": _names("n", row[node], pa), "to": _names("n", to, pa), "ms": ms}


def _sources(shape: Shape, block: int, row: Any, pa: Any) -> dict[str, Any]:
    random = np.random.default_rng([shape.seed, _SOURCES, block])
    rate = random.integers(shape.rate_min, shape.rate_max, len(row), endpoint=True)
    right = pa.array((row >= shape.joins).astype(np.int32))
    return {
        "id": _names("s", row, pa),
        "node": _names("n", row + shape.sinks, pa),
        "stream": pa.array(["left", "right"]).take(right),
        "rate": rate.astype(np.float64),
    }


def _pairs(shape: Shape, block: int, row: Any, pa: Any) -> dict[str, Any]:
    random = np.random.default_rng([shape.seed, _PAIRS, block])
    names = pa.array(operator_names(shape))
    return {
        "join": names.take(pa.array(shape.operator(row))),
        "left": _names("s", row, pa),
        "right": _names("s", row + shape.joins, pa),
        "output_rate": topology.draw_output_rates(random, len(row)),
    }
