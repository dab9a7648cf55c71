"""The tables of a prepared directory, and how those of homes and readings are made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nova_workloads.logical_streams import STREAMS
from nova_workloads.sensor_archive.cleaning import CODES, FILE, REASONS, judged
from nova_workloads.sensor_archive.files import TYPES, ArchiveFile
from nova_workloads.sensor_archive.sensors import distance
from nova_workloads.sensor_archive.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from nova_workloads.sensor_archive.cleaning import Cleaning
    from nova_workloads.sensor_archive.regions import Regions

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
        """A table as the last run left it."""
        return self._reader(schema).parquet(self.store.path(table))

    def staged(self, table: str, schema: str | None = None) -> DataFrame:
        """A table as this run has made it."""
        return self._reader(schema).parquet(self.store.staged(table))

    def all_days(self, table: str, schema: str, changed_days: Sequence[str]) -> DataFrame:
        """A table that grows day by day, as it will be, without old rows of changed days."""
        from pyspark.sql import functions as F  # noqa: N812 (its usual name)

        rows = self.spark.createDataFrame([], schema)
        if self.store.has(table):
            rows = self.read(table, schema)
            if changed_days:
                rows = rows.where(~F.col("day").cast("string").isin(list(changed_days)))
        if self.store.exists(self.store.staged(table)):
            rows = rows.unionByName(self.staged(table, schema))
        return rows


def find_homes(
    tables: Tables,
    cleaning: Cleaning,
    regions: Regions,
    new: Sequence[ArchiveFile],
    tell: Callable[[str], None],
) -> None:
    """Stage the home of every sensor that is new: where its first good reading was made."""
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    known: set[int] = set()
    if tables.store.has("homes"):
        known.update(tables.read("homes", HOMES).select("sensor").toArrow()["sensor"].to_pylist())
    todo: dict[int, list[ArchiveFile]] = defaultdict(list)
    for file in sorted(new, key=lambda file: (file.day, file.path), reverse=True):
        if file.sensor is not None and file.sensor not in known:
            todo[file.sensor].append(file)
    # A mixed file may have any sensor's first reading.
    batch = [file for file in new if file.sensor is None]
    types = F.array(*map(F.lit, TYPES))
    step = 0
    while batch or todo:
        batch += [files.pop() for files in todo.values()]
        tell("homes of new sensors")
        first = (
            judged(tables.spark, batch, cleaning)
            .where("code = 0")
            .groupBy("sensor")
            .agg(
                F.min_by(
                    F.struct("lat", "lon", "place", "type"), F.struct("timestamp", "stream")
                ).alias("at")
            )
            .select(
                "sensor",
                F.get(types, "at.type").alias("type"),
                F.col("at.lat").alias("home_lat"),
                F.col("at.lon").alias("home_lon"),
                F.col("at.place").alias("home_place"),
            )
        )
        homes = regions.assign(tables.spark, first)
        homes = homes.withColumn("region", F.coalesce("home_place", "region"))
        place = f"found-homes/step={step:06}"
        homes.coalesce(1).write.parquet(tables.store.staged(place))
        located = tables.staged(place, HOMES).select("sensor").toArrow()["sensor"].to_pylist()
        # If a sensor's first file has no good reading, the next one may.
        todo = {
            sensor: files for sensor, files in todo.items() if files and sensor not in set(located)
        }
        batch, step = [], step + 1


def all_homes(tables: Tables) -> DataFrame:
    """Homes of all sensors: those known before, and those found by this run."""
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    homes = tables.spark.createDataFrame([], HOMES)
    if tables.store.has("homes"):
        homes = tables.read("homes", HOMES)
    if not tables.store.exists(tables.store.staged("found-homes")):
        return homes
    new_homes = tables.staged("found-homes", f"{HOMES}, step string")
    # All sensors of a mixed file were searched again; the earlier home counts.
    new_homes = new_homes.withColumn(
        "at", F.struct(*(c for c in new_homes.columns if c != "sensor"))
    )
    first = new_homes.groupBy("sensor").agg(F.min_by("at", "step").alias("at"))
    columns = [part.split()[0] for part in HOMES.split(",")]
    named = first.select("sensor", "at.*").select(*columns)
    return homes.union(named.join(homes, "sensor", "left_anti"))


def clean(tables: Tables, cleaning: Cleaning, files: Sequence[ArchiveFile]) -> None:
    """Stage readings, dropped readings, and problems of files."""
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    home = ("home_lat", "home_lon")
    away = (
        F.when(F.col("place").isNotNull(), F.col("place") != F.col("home_place"))
        .when((F.col("lat") == F.col(home[0])) & (F.col("lon") == F.col(home[1])), False)
        .otherwise(distance(*map(F.col, ("lat", "lon", *home))) > cleaning.move_distance)
    )
    code = (
        F.when(F.col("code") != 0, F.col("code"))
        .when(away, CODES["moved"])
        .when(F.col("region").isNull(), CODES["outside"])
        .otherwise(0)
    )
    is_file = F.col("code") == FILE
    reasons = F.array(F.lit(None).cast("string"), *map(F.lit, REASONS))
    streams = F.array(*map(F.lit, STREAMS))
    rows = (
        judged(tables.spark, files, cleaning)
        .join(F.broadcast(all_homes(tables).drop("type")), "sensor", "left")
        .withColumn("code", code)
        .select(
            F.when(is_file, "seen")
            .otherwise(F.when(F.col("code") == 0, "readings").otherwise("dropped"))
            .alias("table"),
            "day",
            F.coalesce(F.get(streams, "stream"), F.lit("none")).alias("stream"),
            "sensor",
            F.when(is_file, F.col("place")).otherwise(F.col("region")).alias("region"),
            "timestamp",
            "value",
            F.when(is_file, F.col("note"))
            .otherwise(F.get(reasons, F.greatest("code", F.lit(0))))
            .alias("reason"),
        )
    )
    rows.write.partitionBy("table", "day", "stream").parquet(tables.store.staged("rows"))
    for table in ("readings", "dropped"):
        tables.store.rename_staged(f"rows/table={table}", table)
