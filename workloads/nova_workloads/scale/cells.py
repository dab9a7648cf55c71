"""The rounds of placement in Spark: nodes and joins meet in cells, and the last few on the driver.

Every function here works on frames of the columns in `nova_workloads.scale.part`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from nova_workloads.scale.coarse import Coarse
from nova_workloads.scale.part import INSTANCE, Query, place_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = ("placed", "waiting", "room")


def hosts_of(nodes: DataFrame, query: Query) -> DataFrame:
    """Nodes that may host, as parts have them (`nova_core.placement.assignment.host_nodes`)."""
    least = (F.col("capacity") > 0) & (F.col("capacity") >= query.parameters.c_min)
    return nodes.where(F.col("worker") & least).drop("worker")


def meets(query: Query, row: int) -> Any:
    """Whether a node has what a join requires (`nova_core.model.requirements`), as a column."""
    met = F.lit(True)
    tags = [tag for tag in query.tags[row].split(",") if tag]
    if tags and "tags" in query.extras:
        own = F.split("tags", ",")
        for tag in tags:
            met = met & F.array_contains(own, tag)
    if query.memory[row] > 0 and "memory" in query.extras:
        met = met & (F.col("memory") >= float(query.memory[row])) & ~F.isnan("memory")
    known = (not tags or "tags" in query.extras) and (
        not query.memory[row] > 0 or "memory" in query.extras
    )
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


def schema_of(query: Query) -> str:
    """Spark's type of what a cell returns: rows of three kinds."""
    node, join = query.schemas
    types = zip(KINDS, (INSTANCE, join, node), strict=True)
    structs = (f"{kind} struct<{columns}>" for kind, columns in types)
    return ", ".join(("kind string", *structs))


def place_cells(
    spark: SparkSession,
    nodes: DataFrame,
    joins: DataFrame,
    coarse: Coarse,
    query: Query,
    seed: int,
    cut: bool,
    place: Path,
) -> None:
    """One round: every cell places the joins drawn to it on its nodes.

    Args:
        spark: a session.
        nodes: that may host.
        joins: to be placed.
        coarse: where each belongs.
        query: what is the same in every cell.
        seed: of draws.
        cut: whether joins that fit nowhere whole are cut.
        place: a directory that is made: a table of rows of `KINDS`.
    """
    shared = spark.sparkContext.broadcast((coarse, query, seed, cut))
    node, join = query.schemas
    placed = (
        nodes.mapInArrow(_with_cell(shared, False), f"{node}, cell int")
        .groupBy("cell")
        .cogroup(joins.mapInArrow(_with_cell(shared, True), f"{join}, cell int").groupBy("cell"))
        .applyInArrow(_placer(shared, arrow_schema(spark, schema_of(query))), schema_of(query))
    )
    placed.write.partitionBy("kind").parquet(str(place))


def place_here(nodes: Any, joins: Any, query: Query, place: Path) -> int:
    """Place joins on this machine, where cuts and overload are allowed; how much overloads.

    Args:
        nodes: that may host, an Arrow table.
        joins: to be placed, likewise.
        query: what is the same everywhere.
        place: a directory that is made, as by `place_cells`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    *tables, spread = place_tables(nodes, joins, query, cut=True, spread=True)
    for kind, table in zip(KINDS, tables, strict=True):
        if len(table):
            (place / f"kind={kind}").mkdir(parents=True)
            struct = table.to_struct_array()
            pq.write_table(pa.table({kind: struct}), place / f"kind={kind}" / "part-0.parquet")
    return spread


def read_kind(spark: SparkSession, places: list[Path], kind: str, query: Query) -> DataFrame:
    """Rows of one kind that rounds wrote."""
    columns = schema_of(query).partition(", ")[2]
    found = [str(one / f"kind={kind}") for one in places if (one / f"kind={kind}").is_dir()]
    if not found:
        return spark.createDataFrame([], columns).select(f"{kind}.*")
    return spark.read.schema(columns).parquet(*found).select(f"{kind}.*")


def arrow_schema(spark: SparkSession, schema: str) -> Any:
    """Arrow's form of a type that Spark's words give."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(spark.createDataFrame([], schema).schema)


def _with_cell(shared: Any, are_joins: bool) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def add_cells(batches: Iterator[Any]) -> Iterator[Any]:
        import numpy as np
        import pyarrow as pa

        from nova_workloads.scale.part import rows_of_lists

        coarse, query, seed, _ = shared.value
        for batch in batches:
            if not len(batch):
                continue
            if are_joins:
                cell = coarse.draw(batch, query, seed)
            else:
                cell = coarse.cells.find(rows_of_lists(batch, "position"))
            yield batch.append_column("cell", pa.array(cell.astype(np.int32)))

    return add_cells


def _placer(shared: Any, schema: Any) -> Callable[[Any, Any], Any]:
    def place_cell(nodes: Any, joins: Any) -> Any:
        import pyarrow as pa

        _, query, _, cut = shared.value
        nodes, joins = nodes.drop_columns("cell"), joins.drop_columns("cell")
        tables = [schema.field("placed").type, joins, nodes]
        if len(nodes) and len(joins):
            tables = list(place_tables(nodes, joins, query, cut)[:3])
        whole = []
        for kind, table in zip(KINDS, tables, strict=True):
            if isinstance(table, pa.DataType) or not len(table):
                continue
            columns = [
                pa.nulls(len(table), schema.field(other).type)
                if other != kind
                else table.to_struct_array().cast(schema.field(kind).type)
                for other in KINDS
            ]
            kinds = pa.repeat(pa.scalar(kind, pa.string()), len(table))
            columns = [pa.chunked_array([c]) if isinstance(c, pa.Array) else c for c in columns]
            whole.append(pa.table([kinds, *columns], names=["kind", *KINDS]))
        return pa.concat_tables(whole).cast(schema) if whole else schema.empty_table()

    return place_cell
