"""A problem's directory of Parquet tables in Spark: rows in the order of its files, checked.

The format is that of `nova_core.io.problem_document`: a header and a table each of nodes,
sources and pairs. All paths must be visible to the driver and every worker: on a local disk, or a
file system that all of them mount.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import UNSET
from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from nova_core.errors import NovaError, ProblemError
from nova_core.io.columnar import (
    AXES,
    POSITION_KINDS,
    check_known,
    known_columns,
    open_parquet,
    part_files,
    position_columns,
)
from nova_core.io.files import document_in
from nova_core.io.packed import PackedError
from nova_core.io.problem_document import ROWS, VERSION, OperatorRow, ProblemDocument
from nova_core.io.safe_files import UNLIMITED
from nova_core.io.syntax import read_typed
from nova_core.io.validation import UNUSABLE
from nova_core.model.problem import GREATEST_LATENCY
from nova_core.model.requirements import bad_labels, parts_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TABLES = ("nodes", "sources", "matrix")
OPTIONAL = {"nodes": ("height", "penalty", "memory", "tags")}
# Rows of a file of a table that is written in order.
BLOCK = 250_000
# Rows that a task of Spark's joins by a table in memory, at most.
ROWS_OF_TASK = 200_000


@dataclass(frozen=True, eq=False)
class Problem:
    """A problem whose rows stay in files.

    Attributes:
        path: its header.
        header: what is in it.
    """

    path: Path
    header: ProblemDocument

    @classmethod
    def open(cls, place: Path, measured: bool = False) -> Problem:
        """Read the header of a directory, and refuse what cannot be placed from tables.

        Args:
            place: the directory, or its header.
            measured: whether there may be a table of measured latencies.

        Raises:
            ProblemError: naming the missing or the excess part.
        """
        path = document_in(place, "problem", ProblemError) if place.is_dir() else place
        header = read_typed(path, ProblemDocument, "nova", VERSION, ProblemError)
        if header.queries is not UNSET:
            raise ProblemError(f"{path}: queries: whole queries are placed on one machine only")
        if header.tables is UNSET or any(getattr(header.tables, t) is UNSET for t in TABLES):
            raise ProblemError(
                f"{path}: tables of nodes, sources and matrix are needed, as Parquet; "
                "`nova scale generate` writes such a problem"
            )
        zoned = header.query is not UNSET and any(
            one.zones is not UNSET for one in header.query.operators
        )
        if zoned or header.streams is not UNSET:
            raise ProblemError(f"{path}: zones: problems with zones fit one machine only")
        for name in ("links", "latency", "metrics"):
            in_header = getattr(header, name) is not UNSET
            if in_header or getattr(header.tables, name, UNSET) is not UNSET:
                raise ProblemError(f"{path}: {name}: problems with {name} fit one machine only")
        if header.tables.latency_pairs is not UNSET and not measured:
            raise ProblemError(f"{path}: latency_pairs: embed them first, with nova scale embed")
        return cls(path, header)

    @property
    def name(self) -> str:
        """What people call it."""
        return self.header.name

    @cached_property
    def operators(self) -> list[OperatorRow]:
        """The joins of logical streams.

        Raises:
            ProblemError: for joins whose pairs would have to be computed.
        """
        query = self.header.query
        rows = [] if query is UNSET else query.operators
        if not rows:
            raise ProblemError(f"{self.path}: query.operators: none; at least one join is needed")
        for row in rows:
            if row.match not in (UNSET, "matrix"):
                raise ProblemError(
                    f"{self.path}: query.operators: match of {row.id!r}: {row.match}, but every "
                    "pair must be in the table matrix here"
                )
            for part, said in parts_of(row).items():
                for field, why in bad_labels(said):
                    place = f"query.operators: {part}.{field} of {row.id!r}"
                    raise ProblemError(f"{self.path}: {place}: {why}")
        return rows

    def files(self, table: str) -> list[Path]:
        """The files of a table, in the order of their rows.

        Raises:
            ProblemError: when there is none, or one is no Parquet.
        """
        return parquet_files(self.path.parent / getattr(self.header.tables, table), ProblemError)

    @cached_property
    def rows(self) -> dict[str, list[int]]:
        """Rows of every file of every table.

        Raises:
            ProblemError: for a column that a table does not have.
        """
        found: dict[str, list[int]] = {}
        for table in TABLES:
            kinds, found[table] = known_columns(ROWS[table]), []
            for file in self.files(table):
                count, schema = facts_of(file)
                check_known(file, schema.names, kinds, ProblemError)
                found[table].append(count)
        return found

    def count(self, table: str) -> int:
        """Rows of a table."""
        return sum(self.rows[table])

    def fingerprint(self) -> dict[str, Any]:
        """Detects changed files without reading them."""
        tables = [*TABLES]
        if self.header.tables is not UNSET and self.header.tables.latency_pairs is not UNSET:
            tables.append("latency_pairs")
        return fingerprint([self.path, *(file for table in tables for file in self.files(table))])

    # --- in Spark ---------------------------------------------------------------------------------

    def files_of(self, spark: SparkSession, name: str) -> DataFrame:
        """A table as it is."""
        return read_files(spark, self.files(name))

    def table(self, spark: SparkSession, name: str) -> DataFrame:
        """A table with ``row``, the number of each row from 0."""
        files, frame = self.files(name), self.files_of(spark, name)
        if len(files) == 1:
            return frame.withColumn("row", F.col("_metadata.row_index"))
        first = np.concatenate(([0], np.cumsum(self.rows[name])))[:-1].tolist()
        begins = small_table(
            spark, zip((file.name for file in files), first, strict=True), "file string, first long"
        )
        numbered = frame.withColumn("file", F.col("_metadata.file_name")).withColumn(
            "index", F.col("_metadata.row_index")
        )
        return (
            numbered.join(F.broadcast(begins), "file")
            .withColumn("row", F.col("first") + F.col("index"))
            .drop("file", "first", "index")
        )

    def columns(self, table: str) -> dict[str, Any]:
        """Names and Arrow types of a table's columns."""
        schema = facts_of(self.files(table)[0])[1]
        return {name: schema.field(name).type for name in schema.names}

    @cached_property
    def axes(self) -> list[str]:
        """Columns of coordinates, in their order.

        Raises:
            ProblemError: when nodes have none.
        """
        names = [name for name in self.columns("nodes") if name in POSITION_KINDS]
        if not names:
            raise ProblemError(
                f"{self.path.parent}: nodes have no positions (x, y, …, in ms); work them out from "
                "measured latencies with nova scale embed"
            )
        expected = AXES if names[0] in AXES else position_columns(max(4, len(names)))
        if sorted(names) != sorted(expected[: len(names)]):
            raise ProblemError(
                f"{self.path.parent}: nodes: columns {', '.join(names)}; expected "
                f"{', '.join(expected[: len(names)])}"
            )
        return list(expected[: len(names)])

    @cached_property
    def extras(self) -> list[str]:
        """Optional columns of nodes that placement looks at."""
        return [name for name in OPTIONAL["nodes"] if name in self.columns("nodes")]

    def nodes(self, spark: SparkSession) -> DataFrame:
        """row, id, position, capacity, worker and the optional columns; names are not checked."""
        frame = self.table(spark, "nodes")
        worker: Column = F.lit(True)
        if "worker" in self.columns("nodes"):
            worker = F.coalesce(F.col("worker"), worker)
        capacity = F.col("capacity")
        if dict(frame.dtypes)["capacity"] == "string":
            unlimited = F.trim(capacity) == UNLIMITED
            capacity = F.when(unlimited, F.lit(float("inf"))).otherwise(capacity.try_cast("double"))
        position = F.array(*(F.col(axis).cast("double") for axis in self.axes))
        fills = {"tags": F.lit(""), "penalty": F.lit(0.0)}
        more = [
            F.coalesce(F.col(name), fills.get(name, F.lit(float("nan")))).alias(name)
            for name in self.extras
        ]
        return frame.select(
            "row",
            "id",
            position.alias("position"),
            capacity.cast("double").alias("capacity"),
            worker.alias("worker"),
            *more,
        )

    def sources(self, spark: SparkSession) -> DataFrame:
        """row, id, node, stream and rate."""
        frame = self.table(spark, "sources")
        return frame.select("row", "id", "node", "stream", frame.rate.cast("double"))

    def latencies(self, spark: SparkSession) -> DataFrame:
        """from, to and ms: latencies that nodes have measured.

        Raises:
            ProblemError: for an invalid latency.
        """
        frame = self.files_of(spark, "latency_pairs")
        frame = frame.select("from", "to", F.col("ms").cast("double"))
        good = F.coalesce(F.col("ms").between(0, GREATEST_LATENCY), F.lit(False))
        bad = frame.where(~good | F.col("from").isNull() | F.col("to").isNull()).first()
        if bad is not None:
            raise ProblemError(
                f"{self.path.parent}: latency_pairs: {bad['from']} to {bad['to']}: {bad['ms']} ms; "
                f"two names and 0 to {GREATEST_LATENCY:g} ms are expected"
            )
        return frame

    def pairs(self, spark: SparkSession) -> DataFrame:
        """row, join, left, right and output_rate, null where the pair has none of its own."""
        frame = self.table(spark, "matrix")
        rate = F.lit(None)
        if "output_rate" in frame.columns:
            rate = F.col("output_rate")
        return frame.select(
            "row", "join", "left", "right", rate.cast("double").alias("output_rate")
        )


def parquet_files(table: Path, error: type[NovaError]) -> list[Path]:
    """The files of a table, in the order of their rows.

    Raises:
        NovaError: of the given class, when there is none, or it is no Parquet.
    """
    if table.is_dir():
        return part_files(table, error)
    if table.suffix != ".parquet" or not table.is_file():
        raise error(f"{table}: a .parquet file or a directory of such files is needed")
    return [table]


def read_files(
    spark: SparkSession, files: Sequence[Path], error: type[NovaError] = ProblemError
) -> DataFrame:
    """Rows of Parquet files with the columns of the first, except types that Spark lacks.

    Spark alone would take columns from its own metadata in a footer, which pyarrow keeps when it
    adds or changes columns.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructType

    schema = StructType()
    for field in facts_of(files[0], error)[1]:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_unsigned_integer(kind):
            kind = pa.decimal128(20) if kind == pa.uint64() else pa.int64()
        with suppress(PySparkException):
            schema.add(field.name, from_arrow_type(kind))
    return spark.read.schema(schema).parquet(*map(os.fspath, files))


def fingerprint(files: Sequence[Path]) -> dict[str, list[int]]:
    """Detects changed files without reading them: size, and time of change, ns."""
    return {
        os.fspath(path.absolute()): [path.stat().st_size, path.stat().st_mtime_ns] for path in files
    }


def bad_name(column: str) -> Column:
    """Whether a text is no name."""
    # Java knows no halves of surrogate pairs in UTF-8 text.
    pattern = UNUSABLE.pattern.replace(r"\ud800-\udfff", "")
    text = F.col(column)
    return text.isNull() | (text == "") | text.rlike(pattern)


def facts_of(file: Path, error: type[NovaError] = ProblemError) -> tuple[int, pa.Schema]:
    """Rows and columns of a file of Parquet.

    Raises:
        NovaError: of the given class, for one that cannot be read.
    """
    try:
        with open_parquet(file) as table:
            return int(table.metadata.num_rows), table.schema_arrow
    except (PackedError, pa.ArrowException, OSError) as cause:
        raise error(f"{file}: no readable table: {str(cause)[:200]}") from None


def small_table(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: str) -> DataFrame:
    """A table of a few rows as part of query plans, so that no task has to make it."""
    arrow = arrow_schema(schema)
    columns = list(zip(*rows, strict=True)) or [()] * len(arrow)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, arrow.types, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=arrow), schema)


def arrow_schema(schema: str) -> Any:
    """Arrow's form of a schema in Spark's words."""
    return pa.schema(list(arrow_type(schema)))


def arrow_type(kind: str) -> Any:
    """Arrow's form of a type in Spark's words."""
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import DataType

    return to_arrow_type(DataType.fromDDL(kind))


def count_rows(place: Path) -> int:
    """Rows of a table that a stage wrote."""
    return sum(facts_of(file)[0] for file in place.glob("*.parquet"))


def spread_rows(spark: SparkSession, rows: int) -> None:
    """Set Spark's number of shuffle tasks so that the rows of each fit in memory."""
    name = "spark.sql.shuffle.partitions"
    spark.conf.set(name, str(max(int(str(spark.conf.get(name))), rows // ROWS_OF_TASK)))


def of_batches(function: Callable[[Any], Any], kind: str) -> Callable[..., Column]:
    """A function of columns in Spark, whose rows come in batches; no other columns are moved.

    Args:
        function: makes an Arrow array of an Arrow batch with at least one row.
        kind: Spark's type of its result.
    """
    from pyspark.sql.pandas.functions import arrow_udf

    empty = pa.array([], arrow_type(kind))

    # Spark infers the kind of function from these types.
    def of_rows(rows: pa.Array) -> pa.Array:
        return function(pa.RecordBatch.from_struct_array(rows)) if len(rows) else empty

    # PySpark warns of a third argument, which its own type hints require.
    udf = arrow_udf(of_rows, kind)  # type: ignore[call-overload]
    return lambda *columns: udf(F.struct(*columns))


# --- writing --------------------------------------------------------------------------------------


def write_in_order(
    frame: DataFrame,
    key: str,
    numbers: int,
    place: Path,
    then: Sequence[str] = (),
    drop: bool = False,
) -> None:
    """Write a table in blocks of rows by a number, so that the same rows make the same files.

    Args:
        frame: what to write.
        key: the column with the number, from 0.
        numbers: how many there are; the greatest is one less.
        place: a directory that is made: a table of parts.
        then: columns that order rows with the same number.
        drop: whether the number itself is left out.
    """
    columns = [name for name in frame.columns if not (drop and name == key)]
    blocks = max(1, -(-numbers // BLOCK))
    # One task writes one block: sorted by a single number it needs no comparisons.
    ordered = frame.repartitionById(blocks, (F.col(key) / BLOCK).cast("int"))
    ordered = ordered.sortWithinPartitions(key, *then)
    ordered.select(*columns).write.parquet(os.fspath(place))
    name_parts(place)


def link_table(source: Path, target: Path) -> None:
    """The same files under another name, without a copy where that is possible."""

    def link(one: str, other: str) -> None:
        try:
            os.link(one, other)
        except OSError:
            shutil.copyfile(one, other)

    if source.is_dir():
        shutil.copytree(source, target, copy_function=link)
    else:
        link(os.fspath(source), os.fspath(target))


def name_parts(place: Path) -> None:
    """Name the files that Spark wrote part-000000.parquet and on, in the order of their rows.

    They were written one per partition, which Spark numbers.
    """
    for number, file in enumerate(sorted(place.glob("part-*.parquet"))):
        file.rename(place / f"part-{number:06d}.parquet")
    for other in place.iterdir():
        if other.is_dir():
            shutil.rmtree(other)
        elif other.suffix != ".parquet" or other.name.startswith("."):
            other.unlink()
