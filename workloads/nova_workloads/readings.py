"""From files to readings: what is clean goes to one table, the rest to another, with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nova_workloads.archive import STREAMS, ArchiveFile
from nova_workloads.cleaning import CODES, REASONS
from nova_workloads.homes import all_homes
from nova_workloads.judging import judged

if TYPE_CHECKING:
    from nova_workloads.preparation import Preparation
    from nova_workloads.prepared_tables import Tables


def clean(tables: Tables, preparation: Preparation, files: Sequence[ArchiveFile]) -> None:
    """Stage readings, what was dropped, and what is wrong with files."""
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    from nova_workloads.cleaning_worker import FILE
    from nova_workloads.sensors import distance

    home = ("home_lat", "home_lon")
    away = (
        F.when(F.col("place").isNotNull(), F.col("place") != F.col("home_place"))
        .when((F.col("lat") == F.col(home[0])) & (F.col("lon") == F.col(home[1])), False)
        .otherwise(
            distance(*map(F.col, ("lat", "lon", *home))) > preparation.cleaning.move_distance
        )
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
        judged(tables.spark, files, preparation.cleaning)
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
