"""How fast the Spark pipeline is beside DuckDB, and whether both say exactly the same.

``python -m tests.oracles.pipeline_benchmark ARCHIVE [--threads 2] [--memory 1g] [--repeat 1]``
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from nova_core import console, paths
from nova_core.errors import NovaError
from nova_core.numbers import at_least

# Both outputs in the same columns; equal when nothing of one is missing in the other.
COMPARED = {
    "readings": (
        "SELECT sensor, region, CAST(timestamp AS TIMESTAMP) AS timestamp, value, "
        "CAST(day AS DATE) AS day, stream FROM read_parquet('{spark}/readings/*/*/*.parquet')",
        "SELECT sensor, region, timestamp, value, CAST(day AS DATE) AS day, stream "
        "FROM read_parquet('{duckdb}/readings/*/*/*.parquet')",
    ),
    "quality": (
        "SELECT reason, stream, CAST(day AS DATE) AS day, "
        "CAST(sum(readings) AS BIGINT) AS readings "
        "FROM read_parquet('{spark}/quality/*/*.parquet') GROUP BY ALL",
        "SELECT reason, stream, day, readings FROM read_parquet('{duckdb}/dropped.parquet')",
    ),
    "sensors": (
        "SELECT id, sensor, type, region, lat, lon, readings, rate_median, rate_peak, tuple_bytes, "
        "stream, list_transform(spans, lambda s: {{'start': CAST(s.start AS TIMESTAMP), "
        "'end': CAST(s.end AS TIMESTAMP)}}) AS spans "
        "FROM read_parquet('{spark}/sensors/*/*.parquet', hive_partitioning = true)",
        "SELECT id, sensor, type, region, lat, lon, readings, rate_median, rate_peak, tuple_bytes, "
        "stream, spans FROM read_parquet('{duckdb}/sensors.parquet')",
    ),
    "join_matrix": (
        'SELECT region, "left", "right" FROM read_parquet(\'{spark}/join_matrix/*.parquet\')',
        'SELECT region, "left", "right" FROM read_parquet(\'{duckdb}/join_matrix.parquet\')',
    ),
}


def differences(spark: Path, duckdb: Path) -> dict[str, tuple[int, int, int]]:
    """Per table: rows of Spark's, rows that DuckDB lacks, rows that Spark lacks."""
    import duckdb as engine

    con = engine.connect()
    con.execute("SET TimeZone = 'UTC'; SET memory_limit = '8GB'")
    found = {}
    for table, queries in COMPARED.items():
        one, other = (query.format(spark=spark, duckdb=duckdb) for query in queries)
        counts = []
        for query in (one, f"{one} EXCEPT ALL {other}", f"{other} EXCEPT ALL {one}"):
            row = con.execute(f"SELECT count(*) FROM ({query})").fetchone()
            assert row is not None
            counts.append(int(row[0]))
        found[table] = (counts[0], counts[1], counts[2])
    return found


def timed(command: Sequence[str]) -> dict[str, float]:
    """Wall and CPU seconds of a command and all it starts, and its largest process in MB."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise NovaError(f"{command[0]}: {said.read().decode(errors='replace').strip()[-500:]}")
    return {"wall": wall, "cpu": used.ru_utime + used.ru_stime, "rss": used.ru_maxrss / 1024}


def measure(archive: Path, threads: int, memory: str, repeat: int) -> dict[str, Any]:
    """Prepare an archive with both, from the start of the process; the best of some runs."""
    size = sum(path.stat().st_size for path in archive.rglob("*.csv*"))
    files = sum(1 for _ in archive.rglob("*.csv*"))
    figures: dict[str, Any] = {"archive": str(archive), "bytes": size, "files": files}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="nova-pipeline-") as place:
        duckdb = spark = Path(place)
        for run in range(repeat):
            duckdb = Path(place) / f"duckdb-{run}"
            program = [sys.executable, str(Path(__file__).with_name("duckdb_pipeline.py"))]
            _keep_best(
                figures, "duckdb", timed([*program, str(archive), str(duckdb), str(threads)])
            )
        for run in range(repeat):
            spark = Path(place) / f"spark-{run}"
            options = ["--master", f"local[{threads}]", "--memory", memory, "--json"]
            nova = str(Path(sys.executable).parent / "nova")
            command = [nova, "workload", "prepare", str(archive), "-o", str(spark), *options]
            _keep_best(figures, "spark", timed(command))
        figures["differences"] = {
            name: {"rows": rows, "not_in_duckdb": more, "not_in_spark": less}
            for name, (rows, more, less) in differences(spark, duckdb).items()
        }
    for name in ("spark", "duckdb"):
        figures[name]["mb_per_s"] = size / 1e6 / figures[name]["wall"]
    figures["wall_ratio"] = figures["spark"]["wall"] / figures["duckdb"]["wall"]
    figures["cpu_ratio"] = figures["spark"]["cpu"] / figures["duckdb"]["cpu"]
    return figures | {"load_before": load, "load_after": os.getloadavg()[0], "memory": memory}


def _keep_best(figures: dict[str, Any], name: str, run: dict[str, float]) -> None:
    best = figures.get(name, run)
    figures[name] = {key: min(best[key], run[key]) for key in run}


@click.command()
@click.argument("archive", type=paths.InputPath(exists=True, file_okay=False))
@click.option("--threads", type=at_least(1), default=2, show_default=True)
@click.option("--memory", default="1g", show_default=True, help="Heap of Spark's driver.")
@click.option("--repeat", type=at_least(1), default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(archive: Path, threads: int, memory: str, repeat: int, as_json: bool) -> None:
    """Prepare ARCHIVE with Spark and with DuckDB; compare their times and their output.

    Ends with 1 when the outputs differ.
    """
    figures = measure(archive, threads, memory, repeat)
    if as_json:
        console.print_json(figures)
    else:
        _show(figures)
    wrong = [
        name for name, d in figures["differences"].items() if d["not_in_duckdb"] + d["not_in_spark"]
    ]
    raise SystemExit(1 if wrong else 0)


def _show(figures: dict[str, Any]) -> None:
    table = console.table(
        f"{figures['archive']}: {figures['bytes'] / 1e6:,.0f} MB in {figures['files']:,} files",
        ["engine", ">wall s", ">cpu s", ">MB/s", ">largest process MB"],
        caption=f"load {figures['load_before']:.1f} before, {figures['load_after']:.1f} after",
    )
    for name in ("spark", "duckdb"):
        run = figures[name]
        cells = (run["wall"], run["cpu"], run["mb_per_s"], run["rss"])
        table.add_row(name, *(console.number(cell) for cell in cells))
    table.add_row("ratio", f"{figures['wall_ratio']:.2f}", f"{figures['cpu_ratio']:.2f}", "", "")
    rows = console.table("Output", ["table", ">rows", ">only Spark", ">only DuckDB"])
    for name, found in figures["differences"].items():
        rows.add_row(
            name, *(f"{found[key]:,}" for key in ("rows", "not_in_duckdb", "not_in_spark"))
        )
    console.show(table, rows)


if __name__ == "__main__":
    main()
