"""The Sensor.Community pipeline: from an archive to readings, sensors and a join matrix.

One pass over the new files cleans them (in Arrow batches, in parallel); everything after it, and
everything about sensors and regions, is Spark on its Parquet. Before it, the earliest file of every
new sensor is read to locate its home.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from nova_core.errors import NovaError
from nova_workloads.sensor_archive import quality
from nova_workloads.sensor_archive.cleaning import Cleaning
from nova_workloads.sensor_archive.files import ArchiveFile, list_files
from nova_workloads.sensor_archive.regions import Grid, Regions
from nova_workloads.sensor_archive.sensors import activity, join_matrix, sensors
from nova_workloads.sensor_archive.store import Store
from nova_workloads.sensor_archive.tables import (
    ACTIVITY,
    FILES,
    HOMES,
    READINGS,
    SENSORS,
    Tables,
    all_homes,
    clean,
    find_homes,
)

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import SparkSession

SECONDS_PER_DAY = 86_400


@dataclass(frozen=True)
class Preparation:
    """Parameters of the preparation.

    Attributes:
        regions: how positions become regions.
        cleaning: limits of clean readings.
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
        """Settings that all runs on a directory must share."""
        return {
            "regions": self.regions.describe(),
            "cleaning": {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in asdict(self.cleaning).items()
            },
            "window": self.window,
        }


FORMAT = 2


def prepare(
    spark: SparkSession,
    places: Sequence[str],
    output: str,
    preparation: Preparation,
    step: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Read new files of an archive, clean them, and update the tables in a directory.

    Args:
        spark: a session.
        places: see `nova_workloads.sensor_archive.files.list_files`.
        output: a directory: new, or one that earlier runs prepared with the same settings.
        preparation: how.
        step: called with the name of every step that begins.

    Returns:
        the quality report, which is also written to ``report.json``.

    Raises:
        NovaError: for places without files, other settings, a bad file when they are to fail, or
            when nothing is left.
    """
    store = Store(spark, output)
    try:
        return _Run(spark, store, store.open(), preparation, step).run(places)
    finally:
        store.close()


class _Run:
    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        manifest: dict[str, Any] | None,
        preparation: Preparation,
        step: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._store = store
        self._tables = Tables(spark, store)
        self._manifest = manifest
        self._preparation = preparation
        self._step = step
        self._began = time.monotonic()

    def run(self, places: Sequence[str]) -> dict[str, Any]:
        self._check_settings()
        self._step("listing files")
        listed, others = list_files(self._spark, places)
        files = [file for file in listed if self._in_range(file)]
        if not files:
            raise NovaError(f"{', '.join(places)}: no file of the days asked for")
        new, changed_days, twins = self._new(files)
        if not new and not self._stale_join():
            # Nothing changes: the last run's report still holds.
            report = self._store.report()
            report["files"] |= {"found": len(files), "new": 0, "new_bytes": 0}
            report["files"]["passed_over"] = others
            report["files"]["days_read_again"] = []
            return report | {"seconds": self._seconds()}
        if new:
            good = [file for file in new if file.path not in twins]
            if good:
                how = self._preparation
                find_homes(self._tables, how.cleaning, how.regions, good, self._step)
                self._step("cleaning readings")
                clean(self._tables, how.cleaning, good)
            self._record_files(new, twins)
        self._step("sensors and join matrix")
        self._derive(changed_days)
        self._step("report")
        report = quality.report(self._tables, new, files, changed_days)
        report["files"]["passed_over"] = others
        report["seconds"] = self._seconds()
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

    # --- plan of the run ----------------------------------------------------------------------

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

    def _in_range(self, file: ArchiveFile) -> bool:
        first, last = self._preparation.first_day, self._preparation.last_day
        return (first is None or file.day >= first) and (last is None or file.day <= last)

    def _new(self, files: list[ArchiveFile]) -> tuple[list[ArchiveFile], list[str], dict[str, str]]:
        """Files to read; days read again, as a file has changed; files that repeat another."""
        known: dict[str, tuple[int, int]] = {}
        if self._store.has("files"):
            table = self._tables.read("files").select("path", "bytes", "modified").toArrow()
            rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
            known = {path: (size, modified) for path, size, modified in rows}
        changed = {
            file.day
            for file in files
            if file.path in known and known[file.path] != (file.bytes, file.modified)
        }
        new = [file for file in files if file.path not in known or file.day in changed]
        # One sensor has one file a day; a second one would have all its readings twice.
        path_of: dict[tuple[Any, ...], str] = {}
        twins: dict[str, str] = {}
        fresh = {file.path for file in new}
        for file in sorted(files, key=lambda file: (file.path in fresh, file.path)):
            if file.sensor is not None:
                first = path_of.setdefault((file.day, file.kind, file.sensor), file.path)
                if first != file.path and file.path in fresh:
                    twins[file.path] = f"same sensor and day as {first}"
        return new, sorted(day.isoformat() for day in changed), twins

    # --- Spark --------------------------------------------------------------------------------

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
            rows = self._tables.staged("rows/table=seen", "region string, reason string")
            seen = rows.select(F.col("region").alias("path"), "reason")
        files = (
            self._spark.createDataFrame(listed)
            .join(seen, "path", "left")
            .withColumn("problem", F.coalesce("twin", "reason"))
            .drop("twin", "reason")
        )
        files.coalesce(1).write.partitionBy("day").parquet(self._store.staged("files"))
        if self._preparation.on_bad_file == "fail":
            bad = self._tables.staged("files", FILES).where("problem is not null")
            first = bad.orderBy("path").limit(1).collect()
            if first:
                more = bad.count() - 1
                others = f" (and {more} more)" if more else ""
                raise NovaError(f"{first[0]['path']}: {first[0]['problem']}{others}")

    def _derive(self, changed_days: Sequence[str]) -> None:
        """Stage activity, counts, sensors and the join matrix."""
        from pyspark.sql import functions as F  # noqa: N812 (its usual name)

        if self._store.exists(self._store.staged("readings")):
            frame = activity(self._tables.staged("readings", READINGS), self._preparation.window)
            frame.coalesce(1).write.partitionBy("day").parquet(self._store.staged("activity"))
        counts = []
        for table in ("readings", "dropped"):
            if self._store.exists(self._store.staged(table)):
                rows = self._tables.staged(table, READINGS)
                counts.append(
                    rows.groupBy("day", "stream", "reason").agg(F.count("*").alias("readings"))
                )
        if counts:
            both = counts[0].union(counts[-1]) if len(counts) > 1 else counts[0]
            both.coalesce(1).write.partitionBy("day").parquet(self._store.staged("quality"))
        active = self._tables.all_days("activity", ACTIVITY, changed_days)
        all_homes(self._tables).coalesce(1).write.parquet(self._store.staged("homes"))
        frame = sensors(active, self._tables.staged("homes", HOMES)).orderBy(
            "stream", "region", "sensor"
        )
        frame.coalesce(1).write.partitionBy("stream").parquet(self._store.staged("sensors"))
        if not self._store.holds_files(self._store.staged("sensors")):
            counted = quality.counted(self._tables, changed_days)
            raise NovaError(f"no reading is left: {quality.summary(counted)}")
        pairs = join_matrix(self._tables.staged("sensors", SENSORS), self._preparation.max_distance)
        pairs.repartitionByRange("region").sortWithinPartitions(
            "region", "left", "right"
        ).write.parquet(self._store.staged("join_matrix"))
