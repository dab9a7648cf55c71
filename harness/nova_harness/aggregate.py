"""Samples of many runs, aggregated by a Spark job.

The same figures as `nova_harness.report.groups.distributions` computes in one process, for more
samples than fit in memory: percentiles are exact (Spark's ``percentile``, which interpolates
linearly between neighbours), not sketches. Latencies are whole microseconds, so Spark only keeps
how often each occurs in a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from nova_core.errors import NovaError
from nova_harness.report.groups import LEVELS, Distribution, Group, Key, Latency

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from nova_harness.results.run_folder import CellFolder


def distributions(
    spark: SparkSession, cells: Mapping[Key, Sequence[tuple[Path, CellFolder]]]
) -> dict[Key, Distribution]:
    """Pooled latencies of each group.

    Args:
        spark: its executors have to see the sample files under the same paths.
        cells: result of `nova_harness.report.groups.finished_cells`.
    """
    from pyspark.sql import functions as f

    keys = list(cells)
    by_key: dict[Key, Distribution] = dict.fromkeys(keys, (0, None, None))
    group = {
        str(cell.samples.resolve()): number
        for number, key in enumerate(keys)
        for _, cell in cells[key]
    }
    if not group:
        return by_key
    # Hadoop takes plain names here, and returns percent-encoded ones below.
    samples = spark.read.parquet(*(f"file://{path}" for path in group))
    files = _numbered(spark, samples, group)
    latencies = (
        samples.where("measured")
        .select(
            f.col("_metadata.file_path").alias("file"),
            (f.col("arrive_us") - f.greatest("left_due_us", "right_due_us")).alias("due"),
            (f.col("arrive_us") - f.greatest("left_emit_us", "right_emit_us")).alias("emit"),
        )
        .join(f.broadcast(files), "file")
    )
    levels = f.array(*(f.lit(level) for level in LEVELS))
    rows = (
        latencies.groupBy("group")
        .agg(
            f.count("*").alias("results"),
            *(f.avg(name).alias(f"{name}_mean") for name in ("due", "emit")),
            *(f.percentile(name, levels).alias(f"{name}_levels") for name in ("due", "emit")),
        )
        .collect()
    )
    for row in rows:
        due, emit = (
            Latency(
                mean=row[f"{name}_mean"] / 1000,
                levels=[value / 1000 for value in row[f"{name}_levels"]],
            )
            for name in ("due", "emit")
        )
        by_key[keys[row["group"]]] = row["results"], due, emit
    return by_key


def _numbered(spark: SparkSession, samples: DataFrame, group: Mapping[str, int]) -> DataFrame:
    """The group of each file, by the file's name as Spark writes it."""
    rows = []
    for row in samples.select("_metadata.file_path").distinct().collect():
        path = unquote(urlsplit(row[0]).path)
        if path not in group:
            raise NovaError(f"{path}: read by Spark under an unknown name")
        rows.append((row[0], group[path]))
    return spark.createDataFrame(rows, "file string, group int")


def write_aggregate(groups: Sequence[Group], directory: Path) -> list[Path]:
    """Write groups as ``aggregate.json`` and ``aggregate.parquet``, one row per group.

    Both hold, by group, the latencies (ms) at the shares of results listed in the JSON's
    ``levels``.
    """
    import msgspec
    import pyarrow as pa
    import pyarrow.parquet as pq

    from nova_core.io.safe_files import atomic_write, write_text

    rows: list[dict[str, Any]] = [msgspec.to_builtins(group) for group in groups]
    document = {"levels": LEVELS, "groups": rows}
    text = msgspec.json.format(msgspec.json.encode(document), indent=1).decode()
    as_json, as_parquet = directory / "aggregate.json", directory / "aggregate.parquet"
    write_text(as_json, text + "\n")
    flat = [{**row.pop("setting"), **row} for row in rows]
    with atomic_write(as_parquet) as file:
        pq.write_table(pa.Table.from_pylist(flat), file, compression="zstd")
    return [as_json, as_parquet]
