from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from nova_core.cli import cli
from nova_core.errors import NovaError
from nova_workloads.streams import read_streams

START = 1_735_689_600_000


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["workload", "replay", *arguments])


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_reads_prepared_readings(tmp_path: Path) -> None:
    times = np.array([3000, 1000, 2000, 1000], "datetime64[ms]")
    table = pa.table(
        {
            "sensor": pa.array([7, 7, 8, 8]),
            "region": ["x", "x", "y", "y"],
            "stream": ["pressure", "pressure", "humidity", "humidity"],
            "time": times.astype("datetime64[us]"),
            "value": [3.0, 1.0, 20.0, 10.0],
            "day": ["2025-01-01", "2025-01-02", "2025-01-01", "2025-01-01"],
        }
    )
    pq.write_to_dataset(table, tmp_path / "readings", partition_cols=["day"])
    found = read_streams([tmp_path])
    assert [(s.sensor, s.region, s.stream) for s in found] == [
        ("8", "y", "humidity"), ("7", "x", "pressure")
    ]  # fmt: skip
    assert found[1].time.tolist() == [1000, 3000] and found[1].value.tolist() == [1.0, 3.0]
    assert [s.sensor for s in read_streams([tmp_path / "readings"], sensors=["7"])] == ["7"]
    assert [s.sensor for s in read_streams([tmp_path / "readings"], regions=["y"])] == ["8"]


@pytest.mark.data
def test_reads_the_shared_sensor_files(shared_data: Path) -> None:
    paths = sorted((shared_data / "sensors").glob("*.csv.gz"))
    found = read_streams(paths)
    assert [(s.sensor, s.stream, s.region, len(s)) for s in found] == [
        ("65817", "humidity", "16693", 83_934),
        ("76099", "humidity", "50712", 150_680),
        ("29791", "pressure", "16693", 71_954),
        ("64394", "pressure", "50712", 84_456),
    ]
    assert found[2].value[:3].tolist() == [13.75, 13.74, 13.74]
    assert found[2].time[:3].tolist() == [1, 2, 3]


def test_what_was_replayed_can_be_replayed(tmp_path: Path) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv.gz"
    arguments = ["--synthetic", "4", "--rate", "500", "--count", "40", "--unpaced"]
    assert run(*arguments, "--start", str(START), "--to", str(first)).exit_code == 0
    with gzip.open(second, "wb") as file:
        file.write(first.read_bytes())
    again = tmp_path / "again.csv"
    assert run(str(second), "--unpaced", "--to", str(again)).exit_code == 0
    wanted = [{**row, "emit_us": ""} for row in rows_of(first.read_text())]
    got = [{**row, "emit_us": ""} for row in rows_of(again.read_text())]

    def key(row: dict[str, str]) -> tuple[str, int]:
        return row["sensor"], int(row["sequence"])

    assert sorted(got, key=key) == sorted(wanted, key=key)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bmp280_1.csv", "a,b,1\n", "3 columns; expected sensor, region, sequence, value"),
        ("bmp280_1.csv", "a,b,x,1\n", "bmp280_1.csv: "),
        ("bmp280_1.csv", "a,b,1,nan\n", "1 rows have no value"),
        ("other.csv", "a,b,1,2\n", "say which stream it is with --stream"),
        ("t.csv", "sensor,region,time_ms,value\na,b,1,2\n", "no column 'stream'"),
        (
            "t.csv",
            "stream,sensor,region,sequence,time_ms,value\n" + "pressure,a,b,7,1,2\n" * 2,
            "sensor a: two tuples of sequence number 7; a result must say which one it means",
        ),
        ("t.txt", "", "expected a .csv, .csv.gz or .parquet file"),
        ("t.csv.gz", "no gzip", "t.csv.gz: cannot be read"),
        ("t.parquet", "no parquet", "cannot be read as Parquet"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    done = run(str(path), "--rate", "10")
    assert done.exit_code == 2
    assert message in done.stderr and str(path) in done.stderr


def test_bad_readings(tmp_path: Path) -> None:
    columns = {"sensor": ["a"], "region": ["r"], "stream": ["pressure"], "value": [1.0]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(NovaError, match="no column 'time'"):
        read_streams([tmp_path / "a.parquet"])
    pq.write_table(pa.table(columns | {"time": [1]}), tmp_path / "b.parquet")
    with pytest.raises(NovaError, match="'time' is int64; expected timestamps"):
        read_streams([tmp_path / "b.parquet"])
    times = pa.array([1], pa.timestamp("us"))
    pq.write_table(pa.table(columns | {"time": times}), tmp_path / "c.parquet")
    with pytest.raises(NovaError, match="no readings of b"):
        read_streams([tmp_path / "c.parquet"], sensors=["b"])
    with pytest.raises(NovaError, match="give each sensor once"):
        read_streams([tmp_path / "c.parquet", tmp_path / "c.parquet"])


@pytest.mark.parametrize(
    ("name", "values"),
    [("region", [{"a": 1}]), ("sensor", [[1]]), ("value", ["warm"]), ("value", [{"a": 1}])],
)
def test_columns_of_other_types_are_refused(
    tmp_path: Path, name: str, values: list[object]
) -> None:
    columns = {
        "sensor": ["a"],
        "region": ["r"],
        "stream": ["pressure"],
        "time": pa.array([1], pa.timestamp("ms")),
        "value": [1.5],
    }
    path = tmp_path / "readings.parquet"
    pq.write_table(pa.table(columns | {name: values}), path)
    with pytest.raises(NovaError, match=f"column '{name}'"):
        read_streams([path])
