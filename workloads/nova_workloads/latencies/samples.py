"""Round-trip times as samples in Spark: results of RIPE Atlas, and matrices.

A sample is one round-trip time from one node to another. A value that is no sample has one reason,
the first of `REASONS` that applies.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nova_core.errors import NovaError
from nova_core.io.latencies import parse_matrix
from nova_core.io.packed import PackedError, check_packed, unpacked

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

REASONS = {
    "malformed": "no JSON object, or without probe, target or time; no number in a matrix",
    "not_ping": "the result of another kind of measurement",
    "no_reply": "the target did not answer; the matrix has no value",
    "impossible": "a round-trip time that is not above 0, or longer than any the network has",
    "self": "from a node to itself",
}
LONGEST = 60_000.0  # ms; a probe gives up long before
FIRST_LINE = 100
JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")

# As documented for firmware 4460 and later; `addr`, `name` and `srcaddr` are what earlier ones say.
_RESULT = """
    type string, prb_id bigint, timestamp bigint, `from` string, src_addr string, dst_addr string,
    dst_name string, min double, avg double, sent int, rcvd int,
    result array<struct<rtt: double, x: string, error: string, dup: int>>,
    addr string, name string, srcaddr string, mode string, fw int, line string
"""
# Addresses that many hosts have: private, shared, link-local and loopback ones.
_PRIVATE = (
    r"^(10\.|127\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.|169\.254\.|"
    r"100\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7])\.|f[cde]|::1$)"
)


def is_json(path: str) -> bool:
    """Whether the name is that of a file of results."""
    return path.removesuffix(".gz").endswith(JSON_SUFFIXES)


def list_files(places: Iterable[Path]) -> list[str]:
    """Results (``.json``, ``.jsonl``, ``.ndjson``) and matrices (``.csv``), also ``.gz``, by name.

    Raises:
        NovaError: for a place that does not exist or has no such file.
    """
    files: list[str] = []
    for place in places:
        if not place.exists():
            raise NovaError(f"{place}: no such file or directory")
        inside = sorted(place.rglob("*")) if place.is_dir() else [place]
        named = [
            str(path.absolute())
            for path in inside
            if path.is_file()
            and not path.name.startswith((".", "_"))
            and (is_json(path.name) or path.name.removesuffix(".gz").endswith(".csv"))
        ]
        if not named:
            raise NovaError(
                f"{place}: no latencies; .json or .jsonl files of RIPE Atlas results or .csv "
                "matrices are expected, also .gz"
            )
        files += named
    return list(dict.fromkeys(files))


def unreadable(spark: SparkSession, files: Sequence[str]) -> dict[str, str]:
    """What is wrong with the compression of files, by name; every worker reads its part."""
    packed = [file for file in files if file.endswith(".gz")]
    empty = {file: "empty" for file in files if Path(file).stat().st_size == 0}
    if not packed:
        return empty
    paths = spark.createDataFrame([(file,) for file in packed], "path string")
    tasks = min(len(packed), 4 * spark.sparkContext.defaultParallelism)
    checked = paths.repartition(tasks).mapInArrow(_check_gzip, "path string, problem string")
    bad = checked.where("problem is not null").collect()
    return {row["path"]: row["problem"] for row in bad} | empty


def _check_gzip(batches: Iterable[object]) -> Iterator[object]:
    import pyarrow as pa

    for batch in batches:
        assert isinstance(batch, pa.RecordBatch)
        paths = batch.column(0).to_pylist()
        problems: list[str | None] = []
        for path in paths:
            try:
                check_packed(Path(path))
                problems.append(None)
            except PackedError as error:
                problems.append(str(error))
            except OSError as error:
                problems.append(f"cannot be read: {error.strerror or error}")
        yield pa.RecordBatch.from_arrays(
            [pa.array(paths), pa.array(problems, pa.string())], ["path", "problem"]
        )


def atlas_samples(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    """Samples of RIPE Atlas' ping results, one JSON object a line, or arrays of them.

    A probe is named by its number. A target that is a probe itself, as in the mesh of anchors, is
    identified by the address that probe measures from; another one is named by its address.

    Returns:
        ``source``, ``target``, ``time``, ``latency`` (ms), ``reason`` and ``file``.
    """
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    reader = spark.read.schema(_RESULT).option("columnNameOfCorruptRecord", "line")
    # Results with line breaks inside, as the interface prints them for people.
    whole = [file for file in files if _is_one_value(Path(file))]
    parts = [
        reader.option("multiLine", multi).json([f"file://{_escaped(file)}" for file in some])
        for multi, some in ((False, [f for f in files if f not in whole]), (True, whole))
        if some
    ]
    read = reduce(
        lambda one, other: one.union(other),
        (part.select("*", _path(F.col("_metadata.file_path")).alias("file")) for part in parts),
    )
    target = F.coalesce("dst_addr", "addr", "dst_name", "name")
    replies = F.transform(
        F.filter("result", lambda reply: reply["rtt"].isNotNull() & reply["dup"].isNull()),
        lambda reply: reply["rtt"],
    )
    least = F.coalesce(F.array_min(replies), F.when(F.col("min") >= 0, F.col("min")))
    measured = read.select(
        "file",
        "prb_id",
        F.col("timestamp").cast("double").alias("time"),
        target.alias("address"),
        F.array_distinct(F.array("from", F.coalesce("src_addr", "srcaddr"))).alias("own"),
        least.alias("latency"),
        F.coalesce(F.col("type"), F.when(F.col("fw") < 4460, "ping")).alias("type"),
        F.col("line"),
    )
    addresses = (
        measured.select("prb_id", F.explode("own").alias("address"))
        .where(F.col("address").isNotNull() & ~F.lower("address").rlike(_PRIVATE))
        .groupBy("address")
        .agg(F.min("prb_id").alias("probe"), F.max("prb_id").alias("other"))
        # Probes behind one address cannot be told apart by it.
        .where(F.col("probe") == F.col("other"))
        .select("address", "probe")
    )
    named = measured.join(addresses, "address", "left")
    source = F.col("prb_id").cast("string")
    other = F.coalesce(F.col("probe").cast("string"), F.col("address"))
    incomplete = source.isNull() | other.isNull() | F.col("time").isNull()
    reason = (
        F.when(F.col("line").isNotNull() | F.col("type").isNull(), F.lit("malformed"))
        .when(F.col("type") != "ping", "not_ping")
        .when(incomplete, "malformed")
        .when(F.col("latency").isNull(), "no_reply")
        .when(_impossible(), "impossible")
        .when(source == other, "self")
    )
    return named.select(
        source.alias("source"),
        other.alias("target"),
        "time",
        "latency",
        reason.alias("reason"),
        "file",
    )


def _is_one_value(path: Path) -> bool:
    """Whether a file's first line is no JSON by itself, but its beginning is."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        line = file.readline(FIRST_LINE).strip()
    return line in (b"[", b"{", b"[{")


def matrix_samples(spark: SparkSession, files: Sequence[str]) -> tuple[DataFrame, dict[str, str]]:
    """Samples of matrices, read as `nova_core.io.latencies.parse_matrix` does; ms.

    Matrices are rounds of measurement, in the order given.

    Returns:
        the columns of `atlas_samples`, and what is wrong with files that are no matrices.
    """
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    rounds = spark.createDataFrame(list(enumerate(files)), "round int, path string")
    cells = rounds.repartition(len(files)).mapInArrow(
        _cells, "source string, target string, time double, latency double, file string, bad string"
    )
    cells = cells.cache()
    bad = cells.where("bad is not null").select("file", "bad").collect()
    reason = (
        F.when(F.col("source") == F.col("target"), F.lit("self"))
        .when(F.isnan("latency"), "no_reply")
        .when(_impossible(), "impossible")
    )
    samples = cells.where("bad is null").select(
        "source", "target", "time", "latency", reason.alias("reason"), "file"
    )
    return samples, {row["file"]: row["bad"] for row in bad}


def _cells(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The cells of matrices; one row with what is wrong of a file that is none."""
    import pyarrow as pa

    for batch in batches:
        for number, path in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            bad = None
            names: list[str] = []
            values = np.empty((0, 0))
            try:
                content = Path(path).read_bytes()
                text = (unpacked(content) if path.endswith(".gz") else content).decode("utf-8-sig")
                names, values = parse_matrix(text)
                if len(set(names)) < len(names):
                    bad = "a name is there twice"
            except (OSError, ValueError) as error:
                bad = getattr(error, "strerror", None) or str(error)
            n = len(names)
            source = [name for name in names for _ in range(n)]
            target, latency = names * n, values.ravel()
            if bad is not None:
                source, target, latency = [""], [""], np.array([np.nan])
            count = len(latency)
            yield pa.RecordBatch.from_arrays(
                [
                    *(pa.array(ends, pa.string()) for ends in (source, target)),
                    pa.array(np.full(count, float(number))),
                    pa.array(latency),
                    *(pa.array([text] * count, pa.string()) for text in (path, bad)),
                ],
                ["source", "target", "time", "latency", "file", "bad"],
            )


def _impossible() -> Column:
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    return ~((F.col("latency") > 0) & (F.col("latency") <= LONGEST))


def _escaped(path: str) -> str:
    # A brace or a star in a name would be a pattern to Hadoop.
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def _path(address: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    decoded = F.url_decode(F.replace(address, F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(decoded, "^file:/+", "/")
