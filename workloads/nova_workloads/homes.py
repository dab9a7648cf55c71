"""Where sensors are at home: where the first good reading of each was made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nova_workloads.archive import TYPES, ArchiveFile
from nova_workloads.judging import judged
from nova_workloads.prepared_tables import HOMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from nova_workloads.preparation import Preparation
    from nova_workloads.prepared_tables import Tables


def find_homes(
    tables: Tables,
    preparation: Preparation,
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
            judged(tables.spark, batch, preparation.cleaning)
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
        homes = preparation.regions.assign(tables.spark, first)
        homes = homes.withColumn("region", F.coalesce("home_place", "region"))
        place = f"found-homes/step={step:06}"
        homes.coalesce(1).write.parquet(tables.store.staged(place))
        found = tables.staged(place, HOMES).select("sensor").toArrow()["sensor"].to_pylist()
        # Of a sensor whose first file has no good reading, the next one may.
        todo = {
            sensor: files for sensor, files in todo.items() if files and sensor not in set(found)
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
    found = tables.staged("found-homes", f"{HOMES}, step string")
    # A mixed file's sensors were all looked for again; the earlier answer stands.
    found = found.withColumn("at", F.struct(*(c for c in found.columns if c != "sensor")))
    first = found.groupBy("sensor").agg(F.min_by("at", "step").alias("at"))
    columns = [part.split()[0] for part in HOMES.split(",")]
    named = first.select("sensor", "at.*").select(*columns)
    return homes.union(named.join(homes, "sensor", "left_anti"))
