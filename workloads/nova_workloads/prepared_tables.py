"""The tables of a prepared directory: their columns, as they were and as a run makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nova_workloads.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

HOMES = (
    "sensor bigint, type string, home_lat double, home_lon double, home_place string, region string"
)
FILES = "path string, bytes bigint, modified bigint, problem string, day date"
READINGS = (
    "sensor bigint, region string, timestamp timestamp, value double, reason string, day date, "
    "stream string"
)
ACTIVITY = (
    "stream string, sensor bigint, seconds int, window bigint, readings bigint, first timestamp, "
    "last timestamp, day date"
)
QUALITY = "stream string, reason string, readings bigint, day date"
SENSORS = (
    "id string, sensor bigint, type string, region string, lat double, lon double, "
    "readings bigint, rate_median double, rate_peak double, tuple_bytes double, first timestamp, "
    "last timestamp, spans array<struct<start: timestamp, end: timestamp>>, stream string"
)


class Tables:
    """A directory's tables, in Spark.

    Args:
        spark: a session.
        store: the directory, open.
    """

    def __init__(self, spark: SparkSession, store: Store) -> None:
        self.spark, self.store = spark, store

    def _reader(self, schema: str | None) -> DataFrameReader:
        return self.spark.read.schema(schema) if schema else self.spark.read

    def read(self, table: str, schema: str | None = None) -> DataFrame:
        """As the last run left it."""
        return self._reader(schema).parquet(self.store.path(table))

    def staged(self, table: str, schema: str | None = None) -> DataFrame:
        """As this run has made it."""
        return self._reader(schema).parquet(self.store.staged(table))

    def all_days(self, table: str, schema: str, changed_days: Sequence[str]) -> DataFrame:
        """A table that grows day by day, as it will be; what it had of changed days is left out."""
        from pyspark.sql import functions as F  # noqa: N812 (its usual name)

        rows = self.spark.createDataFrame([], schema)
        if self.store.has(table):
            rows = self.read(table, schema)
            if changed_days:
                rows = rows.where(~F.col("day").cast("string").isin(list(changed_days)))
        if self.store.exists(self.store.staged(table)):
            rows = rows.unionByName(self.staged(table, schema))
        return rows
