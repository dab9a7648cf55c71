"""The Sensor.Community pipeline on small archives, in one Spark session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from nova_core.errors import NovaError
from nova_workloads.commands.prepare import _show
from nova_workloads.sensor_archive.pipeline import Preparation, prepare
from nova_workloads.streams import read_streams
from nova_workloads.synth import write_archive
from nova_workloads.synth_settings import Faults, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = 12


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Three days of twelve sensors with all faults, and what they are.

    Of no sensor that moves are all files before the move bad: then nobody could tell.
    """
    place = tmp_path_factory.mktemp("archive") / "archive"
    faults = Faults(missing=0.02, clock_jumps=0.1, moved=0.3, bad_files=0.15, absent=0)
    settings = Settings(sensors=12, days=3, interval=600, seed=SEED, faults=faults, compress=True)
    return place, write_archive(place, settings)


@pytest.fixture(scope="module")
def prepared(
    spark: SparkSession,
    archive: tuple[Path, dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, dict[str, Any]]:
    output = tmp_path_factory.mktemp("prepared") / "all"
    return output, prepare(spark, [str(archive[0])], str(output), Preparation())


def rows(place: Path, table: str) -> list[dict[str, Any]]:
    found = ds.dataset(place / table, format="parquet", partitioning="hive").to_table()
    listed = found.to_pylist()
    return sorted(listed, key=lambda row: json.dumps(row, default=str, sort_keys=True))


def test_every_fault_is_counted_under_its_reason(
    archive: tuple[Path, dict[str, Any]], prepared: tuple[Path, dict[str, Any]]
) -> None:
    truth, report = archive[1], prepared[1]
    faults = truth["faults"]

    def both(counts: dict[str, int]) -> int:
        return counts["pressure"] + counts["humidity"]

    assert report["readings"]["dropped"] == {
        "malformed": 0,
        "missing": both(faults["missing"]),
        "not_a_number": both(faults["not_a_number"]),
        "impossible_pressure": faults["impossible"]["pressure"],
        "impossible_humidity": faults["impossible"]["humidity"],
        "impossible_temperature": both(truth["beside_impossible_temperature"]),
        "clock_jump": both(faults["clock_jump"]),
        "duplicate": both(faults["duplicate"]),
        "out_of_order": 0,
        "moved": both(truth["moved"]),
        "outside": 0,
    }
    assert all(report["readings"]["dropped"][name] for name in ("missing", "clock_jump", "moved"))
    counts = report["readings"]
    assert counts["in"] == both(truth["rows"])
    assert counts["in"] == counts["out"] + sum(counts["dropped"].values())
    bad = {path.removeprefix(f"{archive[0]}/") for path in report["files"]["problems"]}
    assert bad == {entry["file"] for entry in truth["bad_files"]}
    assert report["files"]["refused"] == len(bad) > 3


def test_tables(prepared: tuple[Path, dict[str, Any]]) -> None:
    output, report = prepared
    readings, sensors = rows(output, "readings"), rows(output, "sensors")
    assert len(readings) == report["readings"]["out"]
    assert {row["reason"] for row in readings} == {None}
    assert len(rows(output, "dropped")) == sum(report["readings"]["dropped"].values())
    by_id = {row["id"]: row for row in sensors}
    assert len(by_id) == report["sensors"]["pressure"] + report["sensors"]["humidity"]
    for row in sensors:
        own = [r for r in readings if (r["sensor"], r["stream"]) == (row["sensor"], row["stream"])]
        assert row["readings"] == len(own)
        assert {r["region"] for r in own} == {row["region"]}
        times = [r["timestamp"] for r in own]
        assert (row["first"], row["last"]) == (min(times), max(times))
        inside = [any(s["start"] <= t <= s["end"] for s in row["spans"]) for t in times]
        assert all(inside)
        hours: dict[Any, int] = {}
        for time in times:
            hour = time.replace(minute=0, second=0, microsecond=0)
            hours[hour] = hours.get(hour, 0) + 1
        assert row["rate_peak"] == max(hours.values()) / 3600
        assert row["tuple_bytes"] == 24 + len(row["region"])
    pairs = {(row["left"], row["right"]) for row in rows(output, "join_matrix")}
    assert pairs == {
        (one, other)
        for one, left in by_id.items()
        for other, right in by_id.items()
        if (left["stream"], right["stream"]) == ("pressure", "humidity")
        and left["region"] == right["region"]
    }
    assert len(pairs) == report["pairs"] > 0


def test_replay_reads_it(prepared: tuple[Path, dict[str, Any]]) -> None:
    streams = read_streams([prepared[0]])
    assert sum(len(stream) for stream in streams) == prepared[1]["readings"]["out"]


def test_a_bad_file_can_end_the_run(
    spark: SparkSession, archive: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    first = min(entry["file"] for entry in archive[1]["bad_files"])
    with pytest.raises(NovaError, match=rf"{first}: .* \(and \d+ more\)"):
        prepare(spark, [str(archive[0])], str(tmp_path / "out"), Preparation(on_bad_file="fail"))
    assert list((tmp_path / "out").iterdir()) == []


def test_archives_as_people_have_them(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every file is read, or counted with its reason; a copy doubles nothing."""
    place = "sensor_id;sensor_type;location;lat;lon;timestamp"
    pressure = f"{place};pressure;altitude;pressure_sealevel;temperature"
    humidity = "temperature;humidity"
    columns = {
        "bmp180": (pressure, "97800;;;12.5"),
        "bmp280": (pressure, "97800;;;12.5"),
        "bme680": (f"{pressure};humidity", "97800;;;12.5;55"),
        "BME280": (f"{pressure};humidity", "97800;;;12.5;55"),
        "htu21d": (f"{place};{humidity}", "12.5;55"),
        "sht31": (f"{place};{humidity}", "12.5;55"),
        "sds011": (f"{place};P1;P2", "4.2;2.1"),
    }
    archive = tmp_path / "archive"
    archive.mkdir()
    for sensor, (kind, (header, values)) in enumerate(columns.items()):
        line = f"{sensor};{kind.upper()};7;48.1;11.5;2025-03-01T00:00:07;{values}"
        (archive / f"2025-03-01_{kind}_sensor_{sensor}.csv").write_text(
            f"\ufeff{header}\n{line}\n", encoding="utf-8"
        )
    original = archive / "2025-03-01_bmp280_sensor_1.csv"
    copy = archive / "2025-03-01_bmp280_sensor_1 (1).csv"
    copy.write_bytes(original.read_bytes())
    (archive / "2025-02_bme280.zip").write_bytes(b"PK")
    report = prepare(spark, [str(archive)], str(tmp_path / "out"), Preparation())
    files = report["files"]
    assert files["found"] == 7
    assert files["problems"] == {str(original): f"same sensor and day as {copy}"}
    assert {Path(path).name: why.split(";")[0] for path, why in files["passed_over"].items()} == {
        "2025-03-01_sds011_sensor_6.csv": "of type sds011, which has neither pressure nor "
        "humidity, or is not known",
        "2025-02_bme280.zip": "packed in a way that is not read",
    }
    assert {name: one["out"] for name, one in report["readings"]["streams"].items()} == {
        "pressure": 4,
        "humidity": 4,
    }
    _show(report)
    assert "sds011_sensor_6.csv: passed over: of type sds011" in capsys.readouterr().err
    again = prepare(spark, [str(archive)], str(tmp_path / "out"), Preparation())
    assert again["files"]["passed_over"] == files["passed_over"]


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (["none"], "none: no such file or directory"),
        (["."], r"no file of an archive; names are YYYY-MM-DD_<type>_sensor_<id>.csv"),
    ],
)
def test_places_without_files(
    spark: SparkSession, tmp_path: Path, places: list[str], message: str
) -> None:
    with pytest.raises(NovaError, match=message):
        prepare(spark, [str(tmp_path / p) for p in places], str(tmp_path / "o"), Preparation())


def test_another_directory_is_not_touched(
    spark: SparkSession, archive: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(NovaError, match=r"holds letter.txt and no manifest.json; give another"):
        prepare(spark, [str(archive[0])], str(tmp_path), Preparation())
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
