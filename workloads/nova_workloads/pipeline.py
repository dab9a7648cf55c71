"""The Sensor.Community pipeline: from an archive to readings, sensors and a join matrix.

One pass over the new files cleans them (`nova_workloads.cleaning`, in Arrow batches, in parallel);
everything after it, and everything about sensors and regions, is Spark on its Parquet. Before it,
the earliest file of every new sensor is read, to know where its home is.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from nova_core.errors import NovaError
from nova_workloads.archive import STREAMS, TYPES, ArchiveFile, is_local, is_web, list_files
from nova_workloads.cleaning import CODES, REASONS, Cleaning
from nova_workloads.regions import Grid, Regions
from nova_workloads.store import Store

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame, SparkSession

    from nova_workloads.spark import Progress

FORMAT = 1
SECONDS_PER_DAY = 86_400
# Text a task cleans: small enough for many tasks, large enough for few files of results.
LEAST_TASK_BYTES = 8 * 2**20
MOST_TASK_BYTES = 48 * 2**20
TASK_ADDRESSES = 200
SHOWN_FILES = 1000
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


@dataclass(frozen=True)
class Preparation:
    """What is to be prepared, and how.

    Attributes:
        regions: how positions become regions.
        cleaning: what counts as clean.
        max_distance: km; pairs of sensors further apart do not join; None for no limit.
        window: s that rates are counted over; divides a day.
        on_bad_file: ``skip`` a file that is not what its name claims, or ``fail``.
        first_day: earlier days are left out; None for no limit.
        last_day: later days are left out; None for no limit.
    """

    regions: Regions = field(default_factory=Grid)
    cleaning: Cleaning = field(default_factory=Cleaning)
    max_distance: float | None = None
    window: int = 3600
    on_bad_file: Literal["skip", "fail"] = "skip"
    first_day: date | None = None
    last_day: date | None = None

    def __post_init__(self) -> None:
        if self.window < 1 or SECONDS_PER_DAY % self.window:
            raise NovaError(
                f"rate window of {self.window} s: expected a divisor of a day, such as 60 or 3600"
            )
        for name, value in (
            ("join distance", self.max_distance),
            ("move distance", self.cleaning.move_distance),
        ):
            if value is not None and not value >= 0:
                raise NovaError(f"{name} {value} km: expected 0 or more")
        if not self.cleaning.sequence_period > 0:
            raise NovaError(
                f"sequence period {self.cleaning.sequence_period} ms: expected more than 0"
            )

    def settings(self) -> dict[str, Any]:
        """What all runs on a directory must have in common."""
        return {
            "regions": self.regions.describe(),
            "cleaning": {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in asdict(self.cleaning).items()
            },
            "window": self.window,
        }


def prepare(
    spark: SparkSession,
    places: Sequence[str],
    output: str,
    preparation: Preparation,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Read what is new in an archive, clean it, and bring the tables in a directory up to date.

    Args:
        spark: a session.
        places: see `nova_workloads.archive.list_files`.
        output: a directory: new, or one that earlier runs prepared with the same settings.
        preparation: how.
        progress: told what is being done.

    Returns:
        the quality report, which is also written to ``report.json``.

    Raises:
        NovaError: for places without files, other settings, a bad file when they are to fail, or
            when nothing is left.
    """
    store = Store(spark, output)
    try:
        return _Run(spark, store, store.open(), preparation, progress).run(places)
    finally:
        store.close()


class _Run:
    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        manifest: dict[str, Any] | None,
        preparation: Preparation,
        progress: Progress | None,
    ) -> None:
        self._spark = spark
        self._store = store
        self._manifest = manifest
        self._preparation = preparation
        self._progress = progress
        self._began = time.monotonic()

    def _step(self, description: str) -> None:
        if self._progress is not None:
            self._progress.step(description)

    def run(self, places: Sequence[str]) -> dict[str, Any]:
        self._check_settings()
        self._step("listing files")
        files = [file for file in list_files(self._spark, places) if self._wanted(file)]
        if not files:
            raise NovaError(f"{', '.join(places)}: no file of the days asked for")
        new, changed_days, twins = self._new(files)
        if not new and not self._stale_join():
            # Nothing changes; what the last run said of the whole still holds.
            report = self._store.report()
            report["files"] |= {"found": len(files), "new": 0, "new_bytes": 0}
            report["files"]["days_read_again"] = []
            return report | {"seconds": self._seconds()}
        if new:
            good = [file for file in new if file.path not in twins]
            if good:
                self._find_homes(good)
                self._clean(good)
            self._record_files(new, twins)
        self._step("sensors and join matrix")
        self._derive(changed_days)
        report = self._report(new, files, changed_days)
        self._step("commit")
        self._store.commit(self._next_manifest(), report, changed_days)
        return report

    def _next_manifest(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "settings": self._preparation.settings(),
            "max_distance": self._preparation.max_distance,
            "runs": 1 + (self._manifest["runs"] if self._manifest else 0),
        }

    def _seconds(self) -> float:
        return round(time.monotonic() - self._began, 3)

    # --- what is to be done -------------------------------------------------------------------

    def _check_settings(self) -> None:
        if self._manifest is None:
            return
        settings, earlier = self._preparation.settings(), self._manifest["settings"]
        for name, value in settings.items():
            if earlier[name] != value:
                raise NovaError(
                    f"{self._store.root}: prepared with {name} {earlier[name]}, not {value}; give "
                    "another directory, or the same settings"
                )

    def _stale_join(self) -> bool:
        return (
            self._manifest is not None
            and self._manifest["max_distance"] != self._preparation.max_distance
        )

    def _wanted(self, file: ArchiveFile) -> bool:
        first, last = self._preparation.first_day, self._preparation.last_day
        return (first is None or file.day >= first) and (last is None or file.day <= last)

    def _new(self, files: list[ArchiveFile]) -> tuple[list[ArchiveFile], list[str], dict[str, str]]:
        """Files to read; days read again, as a file has changed; files that repeat another."""
        known: dict[str, tuple[int, int]] = {}
        if self._store.has("files"):
            table = self._read("files").select("path", "bytes", "modified").toArrow()
            rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
            known = {path: (size, modified) for path, size, modified in rows}
        changed = {
            file.day
            for file in files
            if file.path in known and known[file.path] != (file.bytes, file.modified)
        }
        new = [file for file in files if file.path not in known or file.day in changed]
        # One sensor has one file a day; a second one would have all its readings twice.
        said: dict[tuple[Any, ...], str] = {}
        twins: dict[str, str] = {}
        fresh = {file.path for file in new}
        for file in sorted(files, key=lambda file: (file.path in fresh, file.path)):
            if file.sensor is not None:
                first = said.setdefault((file.day, file.kind, file.sensor), file.path)
                if first != file.path and file.path in fresh:
                    twins[file.path] = f"same sensor and day as {first}"
        return new, sorted(day.isoformat() for day in changed), twins

    # --- Spark --------------------------------------------------------------------------------

    def _read(self, table: str, schema: str | None = None) -> DataFrame:
        reader = self._spark.read.schema(schema) if schema else self._spark.read
        return reader.parquet(self._store.path(table))

    def _staged(self, table: str, schema: str | None = None) -> DataFrame:
        reader = self._spark.read.schema(schema) if schema else self._spark.read
        return reader.parquet(self._store.staged(table))

    def _judged(self, files: Sequence[ArchiveFile]) -> DataFrame:
        """The readings of files, as `nova_workloads.cleaning_worker` judges them."""
        from functools import reduce

        import pyarrow as pa

        from nova_workloads.cleaning_worker import DDL, cleaner

        # Workers open what they can reach by themselves; of many small files, Hadoop's way of
        # opening them would take most of the time.
        near = [file for file in files if is_local(file.path) or is_web(file.path)]
        far = [file for file in files if not (is_local(file.path) or is_web(file.path))]
        parts = []
        if near:
            task = _tasks(near, self._spark.sparkContext.defaultParallelism)
            paths = pa.table(
                {"path": [file.path for file in near], "task": pa.array(task, pa.int32())}
            )
            parts.append(
                self._spark.createDataFrame(paths)
                .repartitionById(max(task) + 1, "task")
                .select("path")
            )
        if far:
            source = self._spark.read.format("binaryFile")
            parts.append(source.load([file.path for file in far]).select("path", "content"))
        clean = cleaner(self._preparation.cleaning)
        judged = [part.mapInArrow(clean, DDL) for part in parts]
        return reduce(lambda one, other: one.union(other), judged)

    def _find_homes(self, new: Sequence[ArchiveFile]) -> None:
        """Stage the home of every sensor that is new: where its first good reading was made."""
        from pyspark.sql import functions as F  # noqa: N812 (its usual name)

        known: set[int] = set()
        if self._store.has("homes"):
            known.update(
                self._read("homes", HOMES).select("sensor").toArrow()["sensor"].to_pylist()
            )
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
            self._step("homes of new sensors")
            first = (
                self._judged(batch)
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
            homes = self._preparation.regions.assign(self._spark, first)
            homes = homes.withColumn("region", F.coalesce("home_place", "region"))
            place = f"found-homes/step={step:06}"
            homes.coalesce(1).write.parquet(self._store.staged(place))
            found = self._staged(place, HOMES).select("sensor").toArrow()["sensor"].to_pylist()
            # Of a sensor whose first file has no good reading, the next one may.
            todo = {
                sensor: files
                for sensor, files in todo.items()
                if files and sensor not in set(found)
            }
            batch, step = [], step + 1

    def _homes(self) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 (its usual name)

        homes = self._spark.createDataFrame([], HOMES)
        if self._store.has("homes"):
            homes = self._read("homes", HOMES)
        if not self._store.exists(self._store.staged("found-homes")):
            return homes
        found = self._staged("found-homes", f"{HOMES}, step string")
        # A mixed file's sensors were all looked for again; the earlier answer stands.
        found = found.withColumn("at", F.struct(*(c for c in found.columns if c != "sensor")))
        first = found.groupBy("sensor").agg(F.min_by("at", "step").alias("at"))
        columns = [part.split()[0] for part in HOMES.split(",")]
        named = first.select("sensor", "at.*").select(*columns)
        return homes.union(named.join(homes, "sensor", "left_anti"))

    def _clean(self, files: Sequence[ArchiveFile]) -> None:
        """Stage readings, what was dropped, and what is wrong with files."""
        from pyspark.sql import functions as F  # noqa: N812 (its usual name)

        from nova_workloads.cleaning_worker import FILE
        from nova_workloads.sensors import distance

        self._step("cleaning readings")
        home = ("home_lat", "home_lon")
        away = (
            F.when(F.col("place").isNotNull(), F.col("place") != F.col("home_place"))
            .when((F.col("lat") == F.col(home[0])) & (F.col("lon") == F.col(home[1])), False)
            .otherwise(
                distance(*map(F.col, ("lat", "lon", *home)))
                > self._preparation.cleaning.move_distance
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
            self._judged(files)
            .join(F.broadcast(self._homes().drop("type")), "sensor", "left")
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
        rows.write.partitionBy("table", "day", "stream").parquet(self._store.staged("rows"))
        for table in ("readings", "dropped"):
            self._store.rename_staged(f"rows/table={table}", table)

    def _record_files(self, new: Sequence[ArchiveFile], twins: dict[str, str]) -> None:
        """Stage the list of files that were read, and what is wrong with them.

        Raises:
            NovaError: for a bad file, when they are to fail.
        """
        import pyarrow as pa
        from pyspark.sql import functions as F  # noqa: N812 (its usual name)

        self._step("list of files")
        listed = pa.table(
            {
                "path": [file.path for file in new],
                "day": [file.day for file in new],
                "bytes": pa.array([file.bytes for file in new], pa.int64()),
                "modified": pa.array([file.modified for file in new], pa.int64()),
                "twin": pa.array([twins.get(file.path) for file in new], pa.string()),
            }
        )
        seen = self._spark.createDataFrame([], "path string, reason string")
        if self._store.exists(self._store.staged("rows")):
            rows = self._staged("rows/table=seen", "region string, reason string")
            seen = rows.select(F.col("region").alias("path"), "reason")
        files = (
            self._spark.createDataFrame(listed)
            .join(seen, "path", "left")
            .withColumn("problem", F.coalesce("twin", "reason"))
            .drop("twin", "reason")
        )
        files.coalesce(1).write.partitionBy("day").parquet(self._store.staged("files"))
        if self._preparation.on_bad_file == "fail":
            bad = self._staged("files", FILES).where("problem is not null")
            first = bad.orderBy("path").limit(1).collect()
            if first:
                more = bad.count() - 1
                others = f" (and {more} more)" if more else ""
                raise NovaError(f"{first[0]['path']}: {first[0]['problem']}{others}")

    def _derive(self, changed_days: Sequence[str]) -> None:
        """Stage activity, counts, sensors and the join matrix."""
        from pyspark.sql import functions as F  # noqa: N812 (its usual name)

        from nova_workloads.sensors import activity, join_matrix, sensors

        if self._store.exists(self._store.staged("readings")):
            made = activity(self._staged("readings", READINGS), self._preparation.window)
            made.coalesce(1).write.partitionBy("day").parquet(self._store.staged("activity"))
        counts = []
        for table in ("readings", "dropped"):
            if self._store.exists(self._store.staged(table)):
                rows = self._staged(table, READINGS)
                counts.append(
                    rows.groupBy("day", "stream", "reason").agg(F.count("*").alias("readings"))
                )
        if counts:
            both = counts[0].union(counts[-1]) if len(counts) > 1 else counts[0]
            both.coalesce(1).write.partitionBy("day").parquet(self._store.staged("quality"))
        active = self._all_days("activity", ACTIVITY, changed_days)
        self._homes().coalesce(1).write.parquet(self._store.staged("homes"))
        made = sensors(active, self._staged("homes", HOMES)).orderBy("stream", "region", "sensor")
        made.coalesce(1).write.partitionBy("stream").parquet(self._store.staged("sensors"))
        if not self._store.holds_files(self._store.staged("sensors")):
            counted = self._counted(changed_days)
            raise NovaError(f"no reading is left: {_said(counted)}")
        pairs = join_matrix(self._staged("sensors", SENSORS), self._preparation.max_distance)
        pairs.repartitionByRange("region").sortWithinPartitions(
            "region", "left", "right"
        ).write.parquet(self._store.staged("join_matrix"))

    def _all_days(self, table: str, schema: str, changed_days: Sequence[str]) -> DataFrame:
        """A table that grows day by day, as it will be."""
        from pyspark.sql import functions as F  # noqa: N812 (its usual name)

        rows = self._spark.createDataFrame([], schema)
        if self._store.has(table):
            rows = self._read(table, schema)
            if changed_days:
                rows = rows.where(~F.col("day").cast("string").isin(list(changed_days)))
        if self._store.exists(self._store.staged(table)):
            rows = rows.unionByName(self._staged(table, schema))
        return rows

    # --- the report ---------------------------------------------------------------------------

    def _counted(self, changed_days: Sequence[str]) -> dict[str, Any]:
        counts: dict[str | None, int] = defaultdict(int)
        streams: dict[str, dict[str, int]] = {s: {"in": 0, "out": 0} for s in STREAMS}
        days: set[str] = set()
        rows = self._all_days("quality", QUALITY, changed_days)
        # A few rows per day.
        for row in rows.toArrow().to_pylist():
            counts[row["reason"]] += row["readings"]
            streams[row["stream"]]["in"] += row["readings"]
            streams[row["stream"]]["out"] += row["readings"] if row["reason"] is None else 0
            days.add(row["day"].isoformat())
        return {
            "days": {
                "first": min(days, default=None),
                "last": max(days, default=None),
                "count": len(days),
            },
            "readings": {
                "in": sum(counts.values()),
                "out": counts[None],
                "dropped": {reason: counts[reason] for reason in REASONS},
                "streams": streams,
            },
        }

    def _report(
        self, new: Sequence[ArchiveFile], files: Sequence[ArchiveFile], changed_days: Sequence[str]
    ) -> dict[str, Any]:
        from pyspark.sql import functions as F  # noqa: N812 (its usual name)

        self._step("report")
        listed = self._all_days("files", FILES, changed_days)
        refused = F.count_if(F.col("problem").isNotNull())
        total, bad = listed.agg(F.count("*"), refused).collect()[0]
        problems: dict[str, str] = {}
        if bad:
            shown = listed.where("problem is not null").orderBy("path").limit(SHOWN_FILES).collect()
            problems = {row["path"]: row["problem"] for row in shown}
        counts = [F.count_if(F.col("stream") == stream).alias(stream) for stream in STREAMS]
        regions = F.count_distinct("region").alias("regions")
        made = self._staged("sensors", SENSORS).agg(*counts, regions).collect()[0].asDict()
        return {
            "output": self._store.root,
            "files": {
                "found": len(files),
                "new": len(new),
                "new_bytes": sum(file.bytes for file in new),
                "total": total,
                "refused": bad,
                "days_read_again": list(changed_days),
                "problems": problems,
            },
            **self._counted(changed_days),
            "sensors": {stream: made[stream] for stream in STREAMS},
            "regions": made["regions"],
            "pairs": self._staged("join_matrix").count(),
            "seconds": self._seconds(),
        }


def _tasks(files: Sequence[ArchiveFile], parallelism: int) -> list[int]:
    """A task for each file, in order, so that tasks have about as much to read."""
    share = sum(file.bytes for file in files) // (4 * parallelism)
    most = min(max(share, LEAST_TASK_BYTES), MOST_TASK_BYTES)
    tasks: list[int] = []
    task = size = count = 0
    for file in files:
        full = size + file.bytes > most or (file.bytes == 0 and count >= TASK_ADDRESSES)
        if count and full:
            task, size, count = task + 1, 0, 0
        tasks.append(task)
        size, count = size + file.bytes, count + 1
    return tasks


def _said(counted: dict[str, Any]) -> str:
    readings = counted["readings"]
    dropped = ", ".join(f"{n} {reason}" for reason, n in readings["dropped"].items() if n)
    return f"{readings['in']} in, {dropped or 'none'} dropped"


__all__ = ["Preparation", "prepare"]
