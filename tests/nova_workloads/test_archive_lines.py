"""Opening, checking and parsing archive files, without Spark."""

from __future__ import annotations

import gzip
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workloads.sensor_archive.files import SCHEMAS, TYPES, content_of, described
from nova_workloads.sensor_archive.parse import (
    BadFileError,
    Lines,
    _parse_by_value,
    body_of,
    parse,
    read_content,
)

HEADER = ";".join(SCHEMAS["bme280"].columns).encode() + b"\n"
LINE = "7;BME280;3;48.5;11.25;2025-01-01T00:02:13;95000.25;;96000.5;3.5;81.25"


@pytest.mark.parametrize(
    ("name", "day", "kind", "sensor"),
    [
        ("2025-01-02_bmp280_sensor_29791.csv", date(2025, 1, 2), "bmp280", 29791),
        ("2025-01-02_dht22_sensor_5_indoor.csv.gz", date(2025, 1, 2), "dht22", 5),
        ("2025-01-02_mixed_001.csv", date(2025, 1, 2), "mixed", None),
        ("bmp280_29791_region16693.csv.gz", date(1970, 1, 1), "bmp280-sequence", 29791),
        ("2025-01-02_BME280_sensor_119.csv", date(2025, 1, 2), "bme280", 119),
        ("2025-01-02_bme280_sensor_114 (1).csv", date(2025, 1, 2), "bme280", 114),
        ("2025-01-02_bme280_sensor_114_indoor - Copy.csv.gz", date(2025, 1, 2), "bme280", 114),
        ("2025-01-02_bmp180_sensor_103.csv", date(2025, 1, 2), "bmp180", 103),
        ("2025-01-02_bme680_sensor_106.csv", date(2025, 1, 2), "bme680", 106),
        ("2025-01-02_htu21d_sensor_104.csv", date(2025, 1, 2), "htu21d", 104),
        ("2025-01-02_sht31_sensor_105.csv", date(2025, 1, 2), "sht31", 105),
    ],
)
def test_names_say_what_files_hold(name: str, day: date, kind: str, sensor: int | None) -> None:
    file = described(f"/some/where/{name}", 1, 2)
    assert file is not None
    assert (file.day, file.kind, file.sensor) == (day, kind, sensor)


@pytest.mark.parametrize(
    "name",
    ["2025-01-02_sds011_sensor_5.csv", "2025-13-02_dht22_sensor_5.csv", "truth.json", "dht22.csv"],
)
def test_other_names_are_none_of_an_archive(name: str) -> None:
    assert described(f"/some/where/{name}", 1, 2) is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "empty"),
        ("a.csv", b" \n \n", "empty"),
        ("a.csv", b"<html>\n", "not the columns of a bme280 file, but begins <html>"),
        ("a.csv", bytes(range(256)), "is binary"),
        ("a.csv", b"sensor_id;sensor_type\n1;2\n", "begins sensor_id;sensor_type"),
        ("a.csv", HEADER + LINE.encode() + b"\n7;BME", "cut off: it ends within a line"),
        ("a.csv.gz", HEADER, "not gzip"),
        ("a.csv.gz", gzip.compress(HEADER * 99)[:-9], "cut off"),
    ],
)
def test_files_that_are_not_what_they_claim(name: str, content: bytes, message: str) -> None:
    with pytest.raises(BadFileError, match=message):
        body_of(name, content, "bme280")


def test_a_sequence_file_of_another_kind() -> None:
    with pytest.raises(BadFileError, match="not sensor_id,region,sequence,value, but begins 1;2"):
        body_of("dht22_1.csv", b"1;2;3;4\n", "dht22-sequence")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match="cannot be read: No such file"):
        read_content(str(tmp_path / "none.csv"))


def test_a_file_by_its_path_and_its_address(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"1;2")
    assert content_of(str(tmp_path / "a.csv")) == content_of(f"file://{tmp_path}/a.csv") == b"1;2"


@pytest.mark.parametrize("begin", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line(begin: str, end: str) -> None:
    content = begin + HEADER.decode().replace("\n", end) + LINE + end
    body = body_of("a.csv.gz", gzip.compress(content.encode()), "bme280")
    lines = parse("bme280", [body])
    assert lines.whole.tolist() == [True]
    assert lines.sensor.tolist() == [7]
    assert [TYPES[index] for index in lines.type] == ["bme280"]
    assert lines.time.tolist() == [1_735_689_733_000_000]
    assert (lines.lat[0], lines.lon[0], lines.temperature[0]) == (48.5, 11.25, 3.5)
    assert lines.values.tolist() == [[95000.25, 81.25]]


def test_lines_are_numbered_within_their_files() -> None:
    body = f"{LINE}\n{LINE}\n".encode()
    torn = f"{LINE}\n7;BME280;3\n{LINE}\n".encode()
    odd = f"{LINE}\n{LINE.replace('3.5', 'warm')}\n".encode()
    lines = parse("bme280", [body, b"", torn, odd])
    assert lines.file.tolist() == [0, 0, 2, 2, 2, 3, 3]
    assert lines.line.tolist() == [1, 2, 1, 2, 3, 1, 2]
    assert lines.whole.tolist() == [True, True, True, False, True, True, True]
    assert np.isnan(lines.temperature).tolist() == [False, False, False, True, False, False, True]


def test_sequence_files() -> None:
    lines = parse("dht22-sequence", [b"9,north,1,57.5\n9,north,2,nan\n9,north,3,\n"])
    assert lines.region.tolist() == ["north"] * 3
    assert lines.time.tolist() == [1, 2, 3]
    assert lines.values[0, 0] == 57.5
    assert np.isnan(lines.values[1:, 0]).all()
    assert lines.empty[:, 0].tolist() == [False, False, True]


numbers = st.one_of(
    st.sampled_from(
        ["", "nan", "NaN", "unavailable", " 5", "1e3", "1_0", "five", "-142.36", "inf"]
    ),
    st.floats(-1e6, 1e6).map(str),
)
times = st.one_of(
    st.sampled_from(["", "yesterday", "2025-01-01", "2025-01-01T24:00:00", "1970-01-01T00:00:00"]),
    st.datetimes().map(lambda moment: moment.isoformat(timespec="seconds")),
)
rows = st.tuples(
    st.sampled_from(["7", "8", "", "x", "-1"]),
    st.sampled_from(["BME280", "bme280", "DHT22", ""]),
    st.just("3"),
    numbers,
    numbers,
    times,
    *[numbers] * 5,
).map(";".join)
texts = st.lists(st.one_of(rows, st.sampled_from(["", "7;BME280", LINE])), max_size=8)


@given(st.lists(texts, min_size=1, max_size=4))
def test_fast_and_careful_parsing_agree(files: list[list[str]]) -> None:
    bodies = ["".join(f"{line}\n" for line in lines).encode() for lines in files]
    schema = SCHEMAS["bme280"]
    careful = [_parse_by_value(schema, body, index) for index, body in enumerate(bodies)]
    expected, found = Lines.joined(careful), parse("bme280", bodies)
    for name in ("file", "line", "whole", "sensor", "type", "time", "empty"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name
    for name in ("lat", "lon", "temperature", "values"):
        finite = np.isfinite(getattr(expected, name))
        assert (np.isfinite(getattr(found, name)) == finite).all(), name
        assert (getattr(found, name)[finite] == getattr(expected, name)[finite]).all(), name


BOMB = """
import gzip, io, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
from nova_workloads.sensor_archive.parse import BadFileError, body_of, parse
content = io.BytesIO()
with gzip.GzipFile(fileobj=content, mode="wb") as file:
    file.write({header!r})
    for _ in range({mib}):
        file.write({line!r} * (2**20 // {length}))
try:
    parse("bme280", [body_of("a.csv.gz", content.getvalue(), "bme280")])
except BadFileError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize(
    ("mib", "line", "message"),
    [(300, b"\n", "that unpack to"), (15, b"\n", "most lines have fewer than 11 fields")],
)
def test_small_files_do_not_unpack_to_large_ones(mib: int, line: bytes, message: str) -> None:
    text = BOMB.format(header=HEADER, mib=mib, line=line, length=len(line))
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert message in run.stderr
    assert run.stderr.count("\n") == 1
