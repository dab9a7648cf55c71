"""The Sensor.Community pipeline: days, changes, places to read from, ends by force, DuckDB."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import date
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow.dataset as ds
import pytest
from oracles import duckdb_pipeline
from oracles.pipeline_benchmark import differences
from small_spark import OPTIONS

from nova_core.errors import NovaError
from nova_workloads.sensor_archive.pipeline import Preparation, prepare
from nova_workloads.sensor_archive.regions import Grid, read_regions
from nova_workloads.synth import write_archive
from nova_workloads.synth_settings import Faults, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.e2e

NOVA = str(Path(sys.executable).parent / "nova")
HEADER = "sensor_id;sensor_type;location;lat;lon;timestamp;temperature;humidity"
TABLES = ("readings", "dropped", "sensors", "join_matrix", "activity", "homes", "quality")


def rows(place: Path, table: str) -> list[dict[str, Any]]:
    if not (place / table).is_dir():
        return []
    found = ds.dataset(place / table, format="parquet", partitioning="hive").to_table()
    return sorted(found.to_pylist(), key=lambda row: json.dumps(row, default=str, sort_keys=True))


def dht22(place: Path, day: str, sensor: int, times: dict[str, str], at: str = "48.5;11.5") -> Path:
    """A file of one sensor: humidity by time of the day."""
    path = place / day / f"{day}_dht22_sensor_{sensor}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{sensor};DHT22;1;{at};{day}T{t};20;{value}" for t, value in times.items()]
    path.write_text("\n".join([HEADER, *lines, ""]))
    return path


def bmp280(place: Path, day: str, sensor: int, at: str = "48.5;11.5") -> Path:
    path = place / day / f"{day}_bmp280_sensor_{sensor}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    header = (
        f"{HEADER.rpartition(';temperature')[0]};pressure;altitude;pressure_sealevel;temperature"
    )
    line = f"{sensor};BMP280;1;{at};{day}T12:00:00;95000;;;20"
    path.write_text(f"{header}\n{line}\n")
    return path


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """An archive of two sensors that join."""
    place = tmp_path / "archive"
    dht22(place, "2025-01-01", 1, {"10:00:00": "50", "10:02:30": "51"})
    bmp280(place, "2025-01-01", 2)
    return place


# --- the same as DuckDB ---------------------------------------------------------------------------


@pytest.mark.parametrize("mixed", [False, True])
def test_every_row_is_what_duckdb_computes(
    spark: SparkSession, tmp_path: Path, mixed: bool
) -> None:
    faults = Faults(moved=0.1, clock_jumps=0.05, bad_files=0.0 if mixed else 0.05)
    settings = Settings(sensors=60, days=4, interval=300, seed=3, faults=faults, mixed=mixed)
    write_archive(tmp_path / "archive", settings)
    # Clocks that were set within the day, which synthetic archives do not have.
    files = sorted((tmp_path / "archive").rglob("*.csv"))
    for number, path in enumerate(files[:40:2] if not mixed else []):
        lines = path.read_text(errors="replace").splitlines(keepends=True)
        if len(lines) > 100 and lines[0].startswith("sensor_id"):
            cut = 20 + number
            run = lines[cut : cut + 5]
            del lines[cut : cut + 5]
            at = cut + 30 if number % 2 else 1
            path.write_text("".join([*lines[:at], *run, *lines[at:]]))
    report = prepare(spark, [str(tmp_path / "archive")], str(tmp_path / "spark"), Preparation())
    assert mixed or report["readings"]["dropped"]["out_of_order"] > 50
    duckdb_pipeline.prepare(tmp_path / "archive", tmp_path / "duckdb")
    found = differences(tmp_path / "spark", tmp_path / "duckdb")
    assert {table: counts[1:] for table, counts in found.items()} == dict.fromkeys(found, (0, 0))
    assert all(counts[0] > 0 for counts in found.values())


@pytest.mark.data
def test_the_papers_sensors_are_what_pandas_computes(
    spark: SparkSession, shared_data: Path, tmp_path: Path
) -> None:
    files = sorted((shared_data / "sensors").glob("*.csv.gz"))
    report = prepare(spark, [str(f) for f in files], str(tmp_path / "out"), Preparation())
    frames = []
    for file in files:
        frame = pd.read_csv(file, names=["sensor", "region", "sequence", "value"])
        frames.append(frame.assign(stream="pressure" if "bmp280" in file.name else "humidity"))
    table = pd.concat(frames)
    low = table["stream"].map({"pressure": -40, "humidity": 0})
    high = table["stream"].map({"pressure": 85, "humidity": 100})
    good = table[table["value"].between(low, high)]
    assert report["readings"]["in"] == len(table)
    assert report["readings"]["out"] == len(good)
    assert sum(report["readings"]["dropped"].values()) == len(table) - len(good)
    assert report["readings"]["dropped"]["impossible_temperature"] == 15_807

    made = ds.dataset(tmp_path / "out" / "readings", format="parquet", partitioning="hive")
    found = made.to_table(columns=["sensor", "region", "timestamp", "value", "stream"]).to_pandas()
    found["sequence"] = found["timestamp"].dt.as_unit("ms").astype("int64")
    columns = ["stream", "sensor", "sequence", "region", "value"]
    expected = good.assign(region=good["region"].astype(str))[columns]
    pd.testing.assert_frame_equal(
        found[columns].astype({"stream": str}).sort_values(columns).reset_index(drop=True),
        expected.sort_values(columns).reset_index(drop=True),
        check_dtype=False,
    )
    sensors = {row["sensor"]: row for row in rows(tmp_path / "out", "sensors")}
    for sensor, own in good.groupby("sensor"):
        counts = own.groupby(own["sequence"] // 1000).size()
        assert sensors[sensor]["rate_median"] == counts.median()
        assert sensors[sensor]["rate_peak"] == counts.max()
    pairs = {
        (row["region"], row["left"], row["right"]) for row in rows(tmp_path / "out", "join_matrix")
    }
    assert pairs == {
        ("16693", "29791-pressure", "65817-humidity"),
        ("50712", "64394-pressure", "76099-humidity"),
    }


# --- day by day, and what changes -----------------------------------------------------------------


def test_day_by_day_gives_what_all_at_once_gives(spark: SparkSession, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    faults = Faults(missing=0.02, clock_jumps=0.1, moved=0.3, bad_files=0.1, absent=0.05)
    write_archive(archive, Settings(sensors=12, days=3, interval=600, seed=5, faults=faults))
    whole, output = tmp_path / "whole", tmp_path / "by-day"
    prepare(spark, [str(archive)], str(whole), Preparation())
    for day in (1, 2):
        only = Preparation(last_day=date(2025, 1, day))
        report = prepare(spark, [str(archive)], str(output), only)
        assert report["days"]["last"] == f"2025-01-0{day}"
    report = prepare(spark, [str(archive)], str(output), Preparation())
    assert report["files"]["new"] == len(list((archive / "2025-01-03").iterdir()))
    for table in (*TABLES, "files"):
        assert rows(output, table) == rows(whole, table), table

    before = {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.is_file()}
    again = prepare(spark, [str(archive)], str(output), Preparation())
    assert again["files"]["new"] == 0
    assert again["readings"] == report["readings"]
    after = {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.is_file()}
    assert after == before
    with pytest.raises(NovaError, match=r"prepared with window 3600, not 60; give another"):
        prepare(spark, [str(archive)], str(output), Preparation(window=60))


def test_a_file_that_changed_is_read_again_with_its_day(
    spark: SparkSession, pair: Path, tmp_path: Path
) -> None:
    dht22(pair, "2025-01-02", 1, {"10:00:00": "60"})
    output = tmp_path / "out"
    prepare(spark, [str(pair)], str(output), Preparation())
    dht22(pair, "2025-01-01", 1, {"10:00:00": "50", "10:02:30": "51", "10:05:00": "52"})
    report = prepare(spark, [str(pair)], str(output), Preparation())
    assert report["files"]["days_read_again"] == ["2025-01-01"]
    assert report["files"]["new"] == 2
    assert report["readings"]["in"] == 5
    prepare(spark, [str(pair)], str(tmp_path / "anew"), Preparation())
    for table in TABLES:
        assert rows(output, table) == rows(tmp_path / "anew", table), table


def test_one_sensor_has_one_file_a_day(spark: SparkSession, pair: Path, tmp_path: Path) -> None:
    file = next(pair.rglob("*_dht22_sensor_1.csv"))
    twin = file.with_name(f"{file.name}.gz")
    twin.write_bytes(gzip.compress(file.read_bytes()))
    output = str(tmp_path / "out")
    report = prepare(spark, [str(pair)], output, Preparation())
    assert report["files"]["problems"] == {str(twin): f"same sensor and day as {file}"}
    assert report["readings"]["in"] == 3
    late = pair / "again" / file.name
    late.parent.mkdir()
    shutil.copy(file, late)
    report = prepare(spark, [str(pair)], output, Preparation())
    assert report["files"]["problems"][str(late)] == f"same sensor and day as {file}"
    assert report["readings"]["in"] == 3


def test_a_sensor_that_moves_back_is_home_again(spark: SparkSession, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    for day, at in (("01", "48.5;11.5"), ("02", "50.0;11.5"), ("03", "48.505;11.5")):
        dht22(archive, f"2025-01-{day}", 1, {"10:00:00": "50", "10:05:00": "51"}, at)
    bmp280(archive, "2025-01-01", 2)
    report = prepare(spark, [str(archive)], str(tmp_path / "out"), Preparation())
    assert report["readings"]["dropped"]["moved"] == 2
    assert [row["day"] for row in rows(tmp_path / "out", "dropped")] == ["2025-01-02"] * 2
    spans = next(r for r in rows(tmp_path / "out", "sensors") if r["sensor"] == 1)["spans"]
    assert [span["start"].day for span in spans] == [1, 3]


def test_nothing_is_left(spark: SparkSession, tmp_path: Path) -> None:
    dht22(tmp_path / "archive", "2025-01-01", 1, {"10:00:00": "", "10:05:00": "nan"})
    message = "no reading is left: 2 in, 1 missing, 1 not_a_number dropped"
    with pytest.raises(NovaError, match=message):
        prepare(spark, [str(tmp_path / "archive")], str(tmp_path / "out"), Preparation())
    assert list((tmp_path / "out").iterdir()) == []


# --- regions and distances ------------------------------------------------------------------------


def test_regions_of_a_file_and_a_longest_distance(spark: SparkSession, tmp_path: Path) -> None:
    archive, day = tmp_path / "archive", "2025-01-01"
    places = {1: "48.5;11.5", 2: "48.4;11.4", 3: "48.9;11.9", 4: "48.25;11.25", 5: "50;8"}
    for sensor, at in places.items():
        dht22(archive, day, sensor, {"10:00:00": "50"}, at)
    bmp280(archive, day, 9, "48.5;11.51")
    square = [[11, 48], [12, 48], [12, 49], [11, 49], [11, 48]]
    hole = [[11.2, 48.2], [11.3, 48.2], [11.3, 48.3], [11.2, 48.3], [11.2, 48.2]]
    triangle = [[11.1, 48.1], [11.9, 48.1], [11.5, 50], [11.1, 48.1]]
    features = [
        ("south", {"type": "Polygon", "coordinates": [square, hole]}),
        ("whole", {"type": "MultiPolygon", "coordinates": [[triangle]]}),
    ]
    (tmp_path / "regions.geojson").write_text(
        json.dumps(
            {
                "type": "FeatureCollection",
                "features": [
                    {"type": "Feature", "properties": {"label": name}, "geometry": shape}
                    for name, shape in features
                ],
            }
        )
    )
    regions = read_regions(tmp_path / "regions.geojson", "label")
    preparation = Preparation(regions=regions, max_distance=10)
    output = tmp_path / "out"
    report = prepare(spark, [str(archive)], str(output), preparation)
    assert {row["sensor"]: row["region"] for row in rows(output, "sensors")} == {
        1: "south",
        2: "south",
        3: "south",
        4: "whole",  # in the hole of the first, and in the second
        9: "south",
    }
    assert report["readings"]["dropped"]["outside"] == 1
    near = rows(output, "join_matrix")
    assert [(row["left"], row["right"]) for row in near] == [("9-pressure", "1-humidity")]
    assert near[0]["distance"] == pytest.approx(0.7368, abs=1e-3)
    wide = prepare(spark, [str(archive)], str(output), Preparation(regions=regions))
    assert wide["pairs"] == 3
    assert wide["files"]["new"] == 0


def test_cells_of_a_grid(spark: SparkSession, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    places = {1: "48.5;11.5", 2: "48.74;11.5", 3: "-0.1;-0.1"}
    for sensor, at in places.items():
        dht22(archive, "2025-01-01", sensor, {"10:00:00": "50"}, at)
    prepare(spark, [str(archive)], str(tmp_path / "out"), Preparation(regions=Grid(0.25)))
    assert [
        row["region"] for row in sorted(rows(tmp_path / "out", "sensors"), key=lambda r: r["id"])
    ] == [
        "48.50_11.50",
        "48.50_11.50",
        "-0.25_-0.25",
    ]


# --- where files are ------------------------------------------------------------------------------


@pytest.fixture
def server(pair: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(pair))) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()


def test_files_of_a_mirror(spark: SparkSession, pair: Path, server: str, tmp_path: Path) -> None:
    names = [str(path.relative_to(pair)) for path in pair.rglob("*.csv")]
    gone = "2025-01-01/2025-01-01_dht22_sensor_77.csv"
    (pair / "list.txt").write_text("".join(f"{server}/{name}\n" for name in [*names, gone]))
    (tmp_path / "list.txt").write_text((pair / "list.txt").read_text())
    prepare(spark, [str(pair)], str(tmp_path / "here"), Preparation())
    for number, place in enumerate((f"{server}/list.txt", str(tmp_path / "list.txt"))):
        output = tmp_path / f"there-{number}"
        report = prepare(spark, [place], str(output), Preparation())
        assert report["files"]["problems"] == {
            f"{server}/{gone}": "cannot be read: HTTP Error 404: File not found"
        }
        for table in TABLES:
            assert rows(output, table) == rows(tmp_path / "here", table), table


def test_files_only_spark_can_reach(spark: SparkSession, pair: Path, tmp_path: Path) -> None:
    """Any Hadoop file system will do; this one is of this machine, under another name."""
    context: Any = spark.sparkContext
    configuration = context._jsc.hadoopConfiguration()
    configuration.set("fs.viewfs.mounttable.t.link./archive", f"file://{pair}")
    prepare(spark, [str(pair)], str(tmp_path / "here"), Preparation())
    report = prepare(spark, ["viewfs://t/archive"], str(tmp_path / "there"), Preparation())
    assert report["files"]["new"] == 2
    for table in TABLES:
        assert rows(tmp_path / "there", table) == rows(tmp_path / "here", table), table


# --- ends by force --------------------------------------------------------------------------------


STAGED_S = 300  # Spark takes its time to start on a busy machine


def start(archive: Path, output: Path) -> subprocess.Popen[str]:
    arguments = [NOVA, "workload", "prepare", str(archive), "-o", str(output)]
    options = ["--master", "local[2]", "--memory", "1g", *OPTIONS]
    temporary = output.with_name("temporary")
    temporary.mkdir(exist_ok=True)
    return subprocess.Popen(
        [*arguments, *options],
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until_staged(process: subprocess.Popen[str], output: Path) -> None:
    """Wait until it has begun to write."""
    begin = time.monotonic()
    while time.monotonic() < begin + STAGED_S:
        if any(output.glob(".staging-*/*")):
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"nothing was staged within {STAGED_S} s: {process.communicate()}")


def test_an_interrupted_or_killed_run_leaves_nothing_half(tmp_path: Path) -> None:
    archive, output = tmp_path / "archive", tmp_path / "out"
    write_archive(archive, Settings(sensors=40, days=2, seed=1))
    temporary = tmp_path / "temporary"
    interrupted = start(archive, output)
    until_staged(interrupted, output)
    # Java's are there, too.
    assert list(temporary.rglob("blockmgr-*"))
    interrupted.send_signal(signal.SIGINT)
    _, said = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 130, said
    assert said.strip().endswith("nova: error: interrupted")
    assert "Traceback" not in said
    assert list(output.iterdir()) == []
    assert list(temporary.iterdir()) == []

    killed = start(archive, output)
    until_staged(killed, output)
    killed.kill()
    killed.communicate()
    left = {path.name.partition("-")[0] for path in output.iterdir()}
    assert left <= {".staging", "_lock.json"}

    completed = start(archive, output)
    _, said = completed.communicate(timeout=600)
    assert completed.returncode == 0, said
    names = {path.name for path in output.iterdir()}
    assert list(temporary.iterdir()) == []
    assert names == {*TABLES, "files", "manifest.json", "report.json"}


def test_a_commit_that_was_broken_off_is_finished_by_the_next_run(
    spark: SparkSession, pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nova_workloads.sensor_archive.store import Store

    output, whole = tmp_path / "out", tmp_path / "whole"
    prepare(spark, [str(pair)], str(whole), Preparation())
    moved = []
    move = Store._move

    def breaks(self: Store, path: str, to: str) -> None:
        moved.append(to)
        if len(moved) == broken:
            raise KeyboardInterrupt
        move(self, path, to)

    steps = 0
    # Each takes seconds; `breaks` reads which it is.
    for broken in range(1, 60, 3):  # noqa: B007
        moved.clear()
        shutil.rmtree(output, ignore_errors=True)
        with monkeypatch.context() as patch:
            patch.setattr(Store, "_move", breaks)
            try:
                prepare(spark, [str(pair)], str(output), Preparation())
            except KeyboardInterrupt:
                pass
            else:
                break
        if not (output / "_commit.json").exists():
            assert list(output.iterdir()) == []  # before the commit: as if it had not been
            continue
        steps += 1
        if steps % 2 == 0:
            continue
        report = prepare(spark, [str(pair)], str(output), Preparation())
        assert report["files"]["new"] == 0
        for table in TABLES:
            assert rows(output, table) == rows(whole, table), table
    assert steps >= 3
    assert len(moved) > 8  # of the run that was not broken off


def test_two_runs_at_once(spark: SparkSession, pair: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    holder = {"host": os.uname().nodename, "process": os.getppid()}
    (output / "_lock.json").write_text(json.dumps(holder))
    with pytest.raises(NovaError, match=rf"process {os.getppid()} on .* is at work here"):
        prepare(spark, [str(pair)], str(output), Preparation())
    holder["process"] = 2**22 + 1  # above any process id: its run has died
    (output / "_lock.json").write_text(json.dumps(holder))
    assert prepare(spark, [str(pair)], str(output), Preparation())["readings"]["out"] == 3


def test_sequence_files(spark: SparkSession, tmp_path: Path) -> None:
    """Of the shape the paper's own data has: one second, 1 kHz."""
    text = "".join(f"29791,north,{n},{13 + n % 7}\n" for n in range(1, 1001))
    with gzip.open(tmp_path / "bmp280_29791_regionnorth.csv.gz", "wt") as file:
        file.write(text.replace("north,5,18", "north,5,-142.36"))
    humid = "".join(f"65817,north,{n},{50 + n % 9}.5\n" for n in range(1, 2001))
    (tmp_path / "dht22_65817_regionnorth.csv").write_text(humid)
    report = prepare(spark, [str(tmp_path)], str(tmp_path / "out"), Preparation())
    assert report["readings"]["dropped"]["impossible_temperature"] == 1
    assert report["readings"]["out"] == 2999
    sensors = {row["stream"]: row for row in rows(tmp_path / "out", "sensors")}
    assert sensors["humidity"]["rate_peak"] == 1000.0
    assert sensors["pressure"]["region"] == "north"
    assert sensors["pressure"]["lat"] is None
    assert [row["left"] for row in rows(tmp_path / "out", "join_matrix")] == ["29791-pressure"]
