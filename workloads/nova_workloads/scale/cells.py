"""The rounds of placement in Spark: nodes and joins meet in cells, and the last few on the driver.

Every function here works on frames of the columns in `nova_workloads.scale.part`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from nova_core.errors import NovaError, ProblemError
from nova_core.io.safe_files import atomic_write
from nova_core.model.requirements import Rule
from nova_workloads.scale.coarse import DRAWN, NOWHERE, Coarse
from nova_workloads.scale.part import INSTANCE, Query, place_tables, rows_of_lists
from nova_workloads.scale.tables import arrow_schema, count_rows, of_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = ("placed", "waiting", "room")
# Facts of a round, and their types in Spark.
FACTS = {"instances": "long", "waiting": "long", "missing": "double", "room": "long"}


def hosts_of(nodes: DataFrame, query: Query) -> DataFrame:
    """Nodes that may host, as parts have them (`nova_core.placement.assignment.host_nodes`)."""
    least = (F.col("capacity") > 0) & (F.col("capacity") >= query.parameters.c_min)
    return nodes.where(F.col("worker") & least).drop("worker")


def meets(query: Query, row: int) -> Any:
    """Whether a node has what a join requires (`nova_core.model.requirements`), as a column.

    Raises:
        ProblemError: for what only one machine knows.
    """
    met, rule = F.lit(True), query.rules[row]
    tags, memory = sorted(rule.tags), rule.memory
    if rule != Rule(rule.tags, memory):
        raise ProblemError(
            f"join {query.names[row]!r}: needs a node {rule}; with nova scale, only tags and "
            "memory can be required"
        )
    if tags and "tags" in query.extras:
        own = F.split("tags", ",")
        for tag in tags:
            met = met & F.array_contains(own, tag)
    if memory > 0 and "memory" in query.extras:
        met = met & (F.col("memory") >= memory) & ~F.isnan("memory")
    known = (not tags or "tags" in query.extras) and (memory == 0 or "memory" in query.extras)
    return met if known else F.lit(False)


def meets_any(query: Query, rows: list[int]) -> Any:
    """Whether a node has what some of the joins require."""
    met = F.lit(False)
    for number in np.unique(query.requirement[rows]):
        met = met | meets(query, int(np.argmax(query.requirement == number)))
    return met


def in_sample(key: str, share: float, seed: int) -> Any:
    """Whether the hash of a row's number falls into a share of all: the same on any cluster."""
    return F.xxhash64(F.lit(seed), key) < int((share - 0.5) * 2**64)


def sample(frame: DataFrame, key: str, share: float, seed: int) -> DataFrame:
    """The rows in a sample."""
    return frame if share >= 1 else frame.where(in_sample(key, share, seed))


def schemas_of(query: Query) -> dict[str, str]:
    """Spark's types of the rows of each kind that a cell writes."""
    node, join = query.schemas
    return dict(zip(KINDS, (INSTANCE, join, node), strict=True))


def arrow_schemas(query: Query) -> list[Any]:
    """Arrow's forms of them."""
    return [arrow_schema(schema) for schema in schemas_of(query).values()]


def place_cells(
    spark: SparkSession,
    nodes: DataFrame,
    joins: DataFrame,
    coarse: Coarse,
    query: Query,
    seed: int,
    cut: bool,
    place: Path,
) -> dict[str, Any]:
    """One round: every cell places the joins drawn to it on its nodes, and writes the results.

    Args:
        spark: a session.
        nodes: that may host.
        joins: to be placed.
        coarse: assigns nodes and joins to cells.
        query: what is the same in every cell.
        seed: of draws.
        cut: whether joins that fit nowhere whole are cut.
        place: a directory that is made: a table for each of `KINDS`.

    Returns:
        how many rows of each kind there are, and what those waiting need, tuples/s.
    """
    shared = spark.sparkContext.broadcast((coarse, query, seed, cut))
    of_node = of_batches(_cell_of_nodes(shared), "int")("position")
    of_join = of_batches(_cell_of_joins(shared), "int")(*DRAWN)
    groups = nodes.withColumn("cell", of_node).groupBy("cell")
    for kind in KINDS:
        (place / kind).mkdir(parents=True)
    facts = groups.cogroup(joins.withColumn("cell", of_join).groupBy("cell")).applyInArrow(
        _placer(shared, arrow_schemas(query), place),
        ", ".join(f"{name} {kind}" for name, kind in FACTS.items()),
    )
    summed = facts.agg(*(F.sum(name).alias(name) for name in FACTS)).first()
    assert summed is not None
    totals = {name: summed[name] or 0 for name in FACTS}
    for kind, name in zip(KINDS, ("instances", "waiting", "room"), strict=True):
        if count_rows(place / kind) != totals[name]:
            raise NovaError(
                f"{place / kind}: files of workers are missing; the driver and all workers "
                "must see the same files"
            )
    return totals


def place_here(nodes: Any, joins: Any, query: Query, place: Path) -> dict[str, Any]:
    """Place joins on this machine, where cuts and overload are allowed.

    Args:
        nodes: that may host, an Arrow table.
        joins: to be placed, likewise.
        query: what is the same everywhere.
        place: a directory that is made, as by `place_cells`.

    Returns:
        as `place_cells`, and how many pieces overload nodes.
    """
    *tables, spread = place_tables(nodes, joins, query, cut=True, spread=True)
    for kind in KINDS:
        (place / kind).mkdir(parents=True)
    return _write_part(tables, arrow_schemas(query), place, 0) | {"spread": spread}


def _write_part(
    tables: Sequence[Any], schemas: Sequence[Any], place: Path, number: int
) -> dict[str, Any]:
    """Write the results of a part, and sum them up.

    A task that Spark repeats writes the same files again.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for kind, table, schema in zip(KINDS, tables, schemas, strict=True):
        if len(table):
            with atomic_write(place / kind / f"part-{number:06d}.parquet") as file:
                pq.write_table(table.cast(schema), file, compression="zstd")
    placed, waiting, room = tables
    need = pc.add(waiting.column("left_rate"), waiting.column("right_rate"))
    numbers = (len(placed), len(waiting), pc.sum(need).as_py() or 0.0, len(room))
    return dict(zip(FACTS, numbers, strict=True))


def read_kind(spark: SparkSession, places: list[Path], kind: str, query: Query) -> DataFrame:
    """Rows of one kind that rounds wrote."""
    return spark.read.schema(schemas_of(query)[kind]).parquet(*(str(one / kind) for one in places))


def _cell_of_nodes(shared: Any) -> Callable[[Any], Any]:
    def find(batch: Any) -> Any:
        import pyarrow as pa

        cell = shared.value[0].cells.find(rows_of_lists(batch, "position"))
        return pa.array(cell.astype(np.int32))

    return find


def _cell_of_joins(shared: Any) -> Callable[[Any], Any]:
    def draw(batch: Any) -> Any:
        import pyarrow as pa

        coarse, query, seed, _ = shared.value
        return pa.array(coarse.draw(batch, query, seed).astype(np.int32))

    return draw


def _placer(shared: Any, schemas: Sequence[Any], place: Path) -> Callable[[Any, Any, Any], Any]:
    def place_cell(key: Any, nodes: Any, joins: Any) -> Any:
        import pyarrow as pa

        _, query, _, cut = shared.value
        nodes, joins = nodes.drop_columns("cell"), joins.drop_columns("cell")
        tables: Sequence[Any] = [schemas[0].empty_table(), joins, nodes]
        if len(nodes) and len(joins):
            tables = place_tables(nodes, joins, query, cut)[:3]
        facts = _write_part(tables, schemas, place, NOWHERE + key[0].as_py())
        return pa.table({name: [value] for name, value in facts.items()})

    return place_cell
