"""The latency pipeline: from round-trip times, measured again and again, to one latency per pair.

Each direction's latency is the 20th percentile of its last 10 samples (SBON, section 3.1.1): load
and queues make single samples late, never early. A pair's latency is the mean of its directions.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nova_core.errors import NovaError
from nova_workloads.latencies.samples import (
    REASONS,
    atlas_samples,
    is_json,
    list_files,
    matrix_samples,
    unreadable,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW_NEIGHBOURS = 20  # that Vivaldi measures (Nova paper: m = 20)
OUTLIER = 3.0  # times the filtered latency
ASYMMETRIC = 1.5  # one direction over the other


@dataclass(frozen=True)
class Filter:
    """How samples become a latency.

    Attributes:
        window: how many of a direction's last samples count.
        percentile: which of them it is, by nearest rank; above 0, at most 100.
        on_bad_file: ``skip`` a file that is not what its name claims, or ``fail``.
    """

    window: int = 10
    percentile: float = 20.0
    on_bad_file: Literal["skip", "fail"] = "skip"

    def __post_init__(self) -> None:
        if self.window < 1:
            raise NovaError(f"window of {self.window} samples: expected 1 or more")
        if not 0 < self.percentile <= 100:
            raise NovaError(f"percentile {self.percentile:g}: expected above 0, at most 100")


def filter_latencies(
    spark: SparkSession,
    places: Sequence[Path],
    output: Path,
    settings: Filter,
    step: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Write one row per pair of nodes: ``source``, ``target``, ``rtt`` (ms) and its support.

    Args:
        spark: a session.
        places: files and directories, see `nova_workloads.latencies.samples.list_files`.
        output: a Parquet file; `nova topology embed` reads it.
        settings: the filter.
        step: called with the name of every step that begins.

    Returns:
        the report: files, samples, outliers, asymmetry and coverage.

    Raises:
        NovaError: for bad files when they are to fail, or when no sample is left.
    """
    began = time.monotonic()
    if output.suffix != ".parquet":
        raise NovaError(f"{output}: the pairs are written as .parquet, not {output.suffix!r}")

    step("listing files")
    files = list_files(places)
    staging = output.absolute().parent / f".{output.name}.{uuid.uuid4().hex[:12]}"
    try:
        step("reading samples")
        bad = unreadable(spark, files)
        good = [file for file in files if file not in bad]
        bad |= _stage_samples(spark, good, staging) if good else {}
        if len(bad) == len(files):
            raise NovaError(_first(bad))
        if bad and settings.on_bad_file == "fail":
            raise NovaError(_first(bad))
        samples = spark.read.parquet(str(staging / "samples"))
        step("filtering")
        directions = _directions(samples.where("reason is null"), settings)
        directions.write.parquet(str(staging / "directions"))
        directions = spark.read.parquet(str(staging / "directions"))
        step("pairs")
        pairs = _pairs(directions).orderBy("source", "target").coalesce(1)
        pairs.withColumnRenamed("latency", "rtt").write.parquet(str(staging / "pairs"))
        pairs = spark.read.parquet(str(staging / "pairs")).withColumnRenamed("rtt", "latency")
        step("report")
        report = {
            "output": str(output),
            "files": {"read": len(files) - len(bad), "refused": len(bad), "problems": bad},
            **_report(samples, directions, pairs),
        }
        if not report["pairs"]["count"]:
            dropped = ", ".join(f"{n} {r}" for r, n in report["samples"]["dropped"].items() if n)
            raise NovaError(f"no sample is left: {report['samples']['in']} in, {dropped or '-'}")
        next((staging / "pairs").glob("part-*.parquet")).replace(output)
        report["seconds"] = round(time.monotonic() - began, 3)
        return report
    except OSError as error:
        raise NovaError(f"{output}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _first(bad: dict[str, str]) -> str:
    """What is wrong with the first of bad files."""
    first = min(bad)
    return f"{first}: {bad[first]}{f' (and {len(bad) - 1} more)' if len(bad) > 1 else ''}"


def _stage_samples(spark: SparkSession, files: Sequence[str], staging: Path) -> dict[str, str]:
    """Write all samples; return what is wrong with files that have none."""
    from functools import reduce

    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    results = [file for file in files if is_json(file)]
    matrices = [file for file in files if not is_json(file)]
    bad: dict[str, str] = {}
    parts: list[DataFrame] = []
    if results:
        parts.append(atlas_samples(spark, results))
    if matrices:
        samples, bad = matrix_samples(spark, matrices)
        parts.append(samples)
    place = str(staging / "samples")
    reduce(lambda one, other: one.union(other), parts).write.parquet(place)
    staged = spark.read.parquet(place)
    # A file without any ping result is not one of RIPE Atlas' pings.
    useful = staged.groupBy("file").agg(
        F.count_if(~F.coalesce(F.col("reason").isin("malformed", "not_ping"), F.lit(False))).alias(
            "pings"
        ),
        F.count("*").alias("lines"),
    )
    lines = {row["file"]: (row["pings"], row["lines"]) for row in useful.collect()}
    for file in results:
        pings, count = lines.get(file, (0, 0))
        if not pings:
            bad[file] = f"no ping result of RIPE Atlas in {count} lines"
    if bad:
        left = staged.where(~F.col("file").isin(list(bad)))
        left.write.parquet(str(staging / "left"))
        shutil.rmtree(place)
        (staging / "left").rename(place)
    return bad


def _directions(samples: DataFrame, settings: Filter) -> DataFrame:
    """One row per direction: its filtered latency, how many samples it has, how many are late."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    newest = Window.partitionBy("source", "target").orderBy(F.desc("time"), F.desc("latency"))
    recent = F.sort_array(F.collect_list(F.when(F.col("age") <= settings.window, F.col("latency"))))
    rank = F.greatest(F.ceil(F.size("recent") * (settings.percentile / 100)), F.lit(1)).cast("int")
    return (
        samples.withColumn("age", F.row_number().over(newest))
        .groupBy("source", "target")
        .agg(recent.alias("recent"), F.collect_list("latency").alias("all"))
        .withColumn("latency", F.element_at("recent", rank))
        .select(
            "source",
            "target",
            "latency",
            F.size("all").alias("samples"),
            F.size(F.filter("all", lambda x: x > F.col("latency") * OUTLIER)).alias("outliers"),
        )
    )


def _pairs(directions: DataFrame) -> DataFrame:
    """One row per pair, in the order of names."""
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    ends = directions.select(
        F.least("source", "target").alias("source"),
        F.greatest("source", "target").alias("target"),
        "latency",
        "samples",
    )
    return ends.groupBy("source", "target").agg(
        F.avg("latency").alias("latency"),
        F.count("*").cast("int").alias("directions"),
        F.sum("samples").alias("samples"),
        (F.max("latency") / F.min("latency")).alias("asymmetry"),
    )


def _report(samples: DataFrame, directions: DataFrame, pairs: DataFrame) -> dict[str, Any]:
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    reasons = {row["reason"]: row["count"] for row in samples.groupBy("reason").count().collect()}
    sums = directions.agg(
        F.count("*").alias("count"),
        F.coalesce(F.sum("outliers"), F.lit(0)).alias("outliers"),
        F.count_if(F.col("outliers") > 0).alias("with_outliers"),
        F.median("samples").alias("samples_median"),
    ).collect()[0]
    both = F.col("directions") == 2
    sides = pairs.agg(
        F.count("*").alias("count"),
        F.count_if(both).alias("both"),
        F.median(F.when(both, F.col("asymmetry"))).alias("median"),
        F.max(F.when(both, F.col("asymmetry"))).alias("most"),
        F.count_if(both & (F.col("asymmetry") > ASYMMETRIC)).alias("uneven"),
        F.min("latency").alias("least"),
        F.median("latency").alias("middle"),
        F.max("latency").alias("greatest"),
    ).collect()[0]
    ends = pairs.select(F.explode(F.array("source", "target")).alias("node"))
    degrees = (
        ends.groupBy("node")
        .count()
        .agg(
            F.count("*").alias("nodes"),
            F.min("count").alias("least"),
            F.median("count").alias("median"),
            F.count_if(F.col("count") < FEW_NEIGHBOURS).alias("few"),
        )
        .collect()[0]
    )
    nodes = degrees["nodes"]
    possible = nodes * (nodes - 1) // 2
    return {
        "samples": {
            "in": sum(reasons.values()),
            "out": reasons.get(None, 0),
            "dropped": {reason: reasons.get(reason, 0) for reason in REASONS},
        },
        "directions": {
            "count": sums["count"],
            "samples_median": sums["samples_median"],
            "with_outliers": sums["with_outliers"],
        },
        "outliers": {"over": OUTLIER, "samples": sums["outliers"]},
        "pairs": {
            "count": sides["count"],
            "both_directions": sides["both"],
            "asymmetry_median": sides["median"],
            "asymmetry_max": sides["most"],
            "asymmetric": sides["uneven"],
            "latency_min": sides["least"],
            "latency_median": sides["middle"],
            "latency_max": sides["greatest"],
        },
        "coverage": {
            "nodes": nodes,
            "pairs_possible": possible,
            "share": sides["count"] / possible if possible else 0.0,
            "neighbours_min": degrees["least"],
            "neighbours_median": degrees["median"],
            "nodes_with_few_neighbours": degrees["few"],
            "few": FEW_NEIGHBOURS,
        },
    }
