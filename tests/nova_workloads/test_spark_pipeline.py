"""The Sensor.Community pipeline on small archives, in one Spark session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from nova_core.errors import NovaError
from nova_workloads.sensor_archive.pipeline import Preparation, prepare
from nova_workloads.streams import read_streams
from nova_workloads.synth import Faults, Settings, write_archive

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
