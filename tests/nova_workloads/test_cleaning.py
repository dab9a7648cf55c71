"""Why readings are dropped: every reason, their precedence, without Spark."""

from __future__ import annotations

from datetime import date
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workloads.logical_streams import STREAMS
from nova_workloads.sensor_archive.cleaning import CODES, REASONS, Cleaning, clean
from nova_workloads.sensor_archive.files import SCHEMAS, ArchiveFile
from nova_workloads.sensor_archive.parse import parse

DAY = date(2025, 1, 1)
NAMES = {code: reason for reason, code in CODES.items()} | {0: "kept"}


def judged(kind: str, *files: list[str], sensor: int | None = 7) -> dict[str, list[str]]:
    """The reason of every reading, per stream."""
    described = [ArchiveFile("", 0, 0, DAY, kind, sensor) for _ in files]
    lines = parse(kind, ["".join(f"{line}\n" for line in file).encode() for file in files])
    readings, _ = clean(kind, described, lines, Cleaning())
    return {STREAMS[r.stream]: [NAMES[int(code)] for code in r.code] for r in readings}


def bme280(
    time: str = "00:00:00",
    pressure: str = "95000",
    temperature: str = "3",
    humidity: str = "80",
    *,
    sensor: str = "7",
    kind: str = "BME280",
    lat: str = "48.5",
    day: str = "2025-01-01",
) -> str:
    return f"{sensor};{kind};1;{lat};11;{day}T{time};{pressure};;;{temperature};{humidity}"


@pytest.mark.parametrize(
    ("line", "pressure", "humidity"),
    [
        (bme280(), "kept", "kept"),
        (bme280() + ";1", "malformed", "malformed"),
        (bme280(sensor="8"), "malformed", "malformed"),
        (bme280(sensor="x"), "malformed", "malformed"),
        (bme280(kind="DHT22"), "malformed", "malformed"),
        (bme280(lat="91"), "malformed", "malformed"),
        (bme280(lat="nan"), "malformed", "malformed"),
        (bme280("midnight"), "malformed", "malformed"),
        (bme280(pressure=""), "missing", "kept"),
        (bme280(humidity=" "), "kept", "missing"),
        (bme280(pressure="nan"), "not_a_number", "kept"),
        (bme280(humidity="unavailable"), "kept", "not_a_number"),
        (bme280(humidity="inf"), "kept", "not_a_number"),
        (bme280(humidity="damp"), "kept", "not_a_number"),
        (bme280(pressure="29999.99"), "impossible_pressure", "kept"),
        (bme280(pressure="110000.01"), "impossible_pressure", "kept"),
        (bme280(pressure="110000"), "kept", "kept"),
        (bme280(humidity="100.5"), "kept", "impossible_humidity"),
        (bme280(humidity="-0.5"), "kept", "impossible_humidity"),
        (bme280(temperature="-142.36"), "impossible_temperature", "impossible_temperature"),
        (bme280(temperature="85.01"), "impossible_temperature", "impossible_temperature"),
        (bme280(temperature=""), "kept", "kept"),
        (bme280(temperature="nan"), "kept", "kept"),
        (bme280(day="1970-01-01"), "clock_jump", "clock_jump"),
        (bme280(day="2025-01-02"), "clock_jump", "clock_jump"),
        (bme280("23:59:59.999999"), "kept", "kept"),
    ],
)
def test_what_a_line_says_against_itself(line: str, pressure: str, humidity: str) -> None:
    assert judged("bme280", [line]) == {"pressure": [pressure], "humidity": [humidity]}


def test_the_first_reason_counts() -> None:
    faults = {"pressure": "", "temperature": "999", "humidity": "999", "day": "1970-01-01"}
    assert judged("bme280", [bme280(**faults)]) == {
        "pressure": ["missing"],
        "humidity": ["impossible_humidity"],
    }
    assert judged("bme280", [bme280(**faults, sensor="8")])["pressure"] == ["malformed"]
    assert list(REASONS) == sorted(REASONS, key=lambda reason: CODES[reason])


def test_each_sensor_type_has_its_streams_and_limits() -> None:
    hot = "7;DHT22;1;48.5;11;2025-01-01T00:00:00;82;50"
    assert judged("dht22", [hot]) == {"humidity": ["impossible_temperature"]}
    low = "7;BMP280;1;48.5;11;2025-01-01T00:00:00;101325;;;-40"
    assert judged("bmp280", [low]) == {"pressure": ["kept"]}


def test_sequence_files_have_no_clock_and_a_bmp280_gives_its_temperature() -> None:
    lines = ["7,a,1,13.75", "7,a,2,-142.36", "7,a,2,13.7", "7,a,99999999999,13.7", "8,a,3,13.7"]
    expected = ["kept", "impossible_temperature", "kept", "kept", "malformed"]
    assert judged("bmp280-sequence", lines) == {"pressure": expected}
    assert judged("dht22-sequence", ["7,a,1,101"]) == {"humidity": ["impossible_humidity"]}


def test_mixed_files_have_many_sensors_and_types() -> None:
    lines = [
        bme280(sensor="1"),
        bme280(sensor="2", kind="DHT22", pressure=""),
        bme280(sensor="1"),
        bme280(sensor="3", kind="BMP280", humidity=""),
        bme280(sensor="4", kind="SDS011"),
        bme280(sensor="2", kind="DHT22", pressure="", humidity=""),
    ]
    assert judged("mixed", lines, sensor=None) == {
        "pressure": ["kept", "duplicate", "kept"],
        "humidity": ["kept", "kept", "duplicate", "missing"],
    }


def test_duplicates_are_per_stream_and_file() -> None:
    first = [bme280("00:00:01", pressure=""), bme280("00:00:01"), bme280("00:00:01")]
    assert judged("bme280", first, [bme280("00:00:01")]) == {
        "pressure": ["missing", "kept", "duplicate", "kept"],
        "humidity": ["kept", "duplicate", "duplicate", "kept"],
    }


def test_a_block_written_twice_is_all_duplicates() -> None:
    block = [bme280(f"00:{minute:02}:00") for minute in range(5)]
    assert judged("bme280", block * 2)["pressure"] == ["kept"] * 5 + ["duplicate"] * 5


@pytest.mark.parametrize(
    ("minutes", "wrong"),
    [
        ([0, 1, 2, 30, 31, 3, 4, 5], {3, 4}),  # ahead for two readings
        ([10, 11, 12, 1, 2, 13, 14], {3, 4}),  # behind for two readings
        ([0, 1, 3, 2, 4], {3}),  # two lines swapped: the later one
        ([5, 0, 1, 2, 3, 4], {0}),
        ([1, 2, 3, 4, 5, 0], {5}),
    ],
)
def test_a_clock_set_within_the_day(minutes: list[int], wrong: set[int]) -> None:
    lines = [bme280(f"00:{minute:02}:00") for minute in minutes]
    found = judged("bme280", lines)["humidity"]
    assert {i for i, reason in enumerate(found) if reason == "out_of_order"} == wrong
    assert set(found) == {"kept", "out_of_order"}


@given(st.lists(st.lists(st.integers(0, 59), max_size=30), min_size=1, max_size=5))
def test_what_is_left_of_a_file_is_in_order_of_time(files: list[list[int]]) -> None:
    texts = [[bme280(f"00:{minute:02}:00") for minute in minutes] for minutes in files]
    reasons = iter(judged("bme280", *texts)["pressure"])
    for minutes in files:
        found = [(minute, next(reasons)) for minute in minutes]
        left = [minute for minute, reason in found if reason == "kept"]
        assert all(one < other for one, other in pairwise(left))
        distinct = {minute for minute, reason in found if reason != "duplicate"}
        assert distinct == set(minutes)
        assert len(distinct) == sum(reason != "duplicate" for _, reason in found)
        # Never more than one of the two ways would drop.
        times = list(dict.fromkeys(minutes))
        behind = sum(t < max(times[:i]) for i, t in enumerate(times) if i)
        ahead = sum(t > min(times[i + 1 :]) for i, t in enumerate(times[:-1]))
        assert len(times) - len(left) == min(behind, ahead)


def test_schemas_are_the_documented_ones() -> None:
    assert ";".join(SCHEMAS["bmp280"].columns) == (
        "sensor_id;sensor_type;location;lat;lon;timestamp;"
        "pressure;altitude;pressure_sealevel;temperature"
    )
    assert np.all([SCHEMAS[kind].streams for kind in ("bmp280", "dht22")])
