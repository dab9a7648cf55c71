"""The quality report: what was read, what was dropped and why, what is left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nova_workloads.logical_streams import STREAMS
from nova_workloads.sensor_archive.cleaning import REASONS
from nova_workloads.sensor_archive.files import ArchiveFile
from nova_workloads.sensor_archive.tables import FILES, QUALITY, SENSORS

if TYPE_CHECKING:
    from nova_workloads.sensor_archive.tables import Tables

SHOWN_FILES = 1000


def counted(tables: Tables, changed_days: Sequence[str]) -> dict[str, Any]:
    """Days and readings: how many were read, were dropped and why, and are left."""
    counts: dict[str | None, int] = defaultdict(int)
    streams: dict[str, dict[str, int]] = {s: {"in": 0, "out": 0} for s in STREAMS}
    days: set[str] = set()
    rows = tables.all_days("quality", QUALITY, changed_days)
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


def report(
    tables: Tables,
    new: Sequence[ArchiveFile],
    files: Sequence[ArchiveFile],
    changed_days: Sequence[str],
) -> dict[str, Any]:
    """Figures of files and readings.

    Args:
        tables: with all results of this run.
        new: files that were read.
        files: all that were found.
        changed_days: days that were read again.
    """
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    listed = tables.all_days("files", FILES, changed_days)
    refused = F.count_if(F.col("problem").isNotNull())
    total, bad = listed.agg(F.count("*"), refused).collect()[0]
    problems: dict[str, str] = {}
    if bad:
        shown = listed.where("problem is not null").orderBy("path").limit(SHOWN_FILES).collect()
        problems = {row["path"]: row["problem"] for row in shown}
    counts = [F.count_if(F.col("stream") == stream).alias(stream) for stream in STREAMS]
    regions = F.count_distinct("region").alias("regions")
    sensor_counts = tables.staged("sensors", SENSORS).agg(*counts, regions).collect()[0].asDict()
    return {
        "output": tables.store.root,
        "files": {
            "found": len(files),
            "new": len(new),
            "new_bytes": sum(file.bytes for file in new),
            "total": total,
            "refused": bad,
            "days_read_again": list(changed_days),
            "problems": problems,
        },
        **counted(tables, changed_days),
        "sensors": {stream: sensor_counts[stream] for stream in STREAMS},
        "regions": sensor_counts["regions"],
        "pairs": tables.staged("join_matrix").count(),
    }


def summary(counts: dict[str, Any]) -> str:
    """The result of `counted`, in a line."""
    readings = counts["readings"]
    dropped = ", ".join(f"{n} {reason}" for reason, n in readings["dropped"].items() if n)
    return f"{readings['in']} in, {dropped or 'none'} dropped"
