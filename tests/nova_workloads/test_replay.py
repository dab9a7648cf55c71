from __future__ import annotations

import csv
import gzip
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.cli import cli
from nova_core.errors import NovaError
from nova_core.model.files import read_problem, write_plan
from nova_core.model.partitioner import partition_of
from nova_core.strategies.base import place
from nova_workloads.commands import replay as command
from nova_workloads.debs import Debs
from nova_workloads.outputs import SocketOutput, StreamOutput, Target
from nova_workloads.pacing import Clock, Lateness
from nova_workloads.replay import SPLITS, Lane, Progress, Replay
from nova_workloads.schedule import Schedule, all_tuples, origin_of
from nova_workloads.streams import Stream, read_streams, synthetic
from nova_workloads.tuple_text import FORMATS, TupleText, partitions_of

HOST = "127.0.0.1"
START = 1_735_689_600_000


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["workload", "replay", *arguments])


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def stream(times: list[int], name: str = "a", **others: Any) -> Stream:
    values = np.arange(len(times), dtype=np.float64)
    return Stream(name, "r", "pressure", np.array(times, np.int64), values, **others)


# --- schedules ----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    rate=st.floats(0.01, 1e6),
    count=st.integers(1, 3000),
    sensors=st.integers(1, 5),
    start=st.integers(0, 2**41),
)
def test_rates_never_drift(rate: float, count: int, sensors: int, start: int) -> None:
    """The k-th tuple is due at k / rate, however many came before it."""
    streams = [stream([0, 1, 2], str(i)) for i in range(sensors)]
    found = all_tuples(Schedule(rate=rate, count=count, start_ms=start), streams)
    assert len(found) == count * sensors
    assert (np.diff(found.due) >= 0).all()
    for index in range(sensors):
        mine = found.stream == index
        assert found.sequence[mine].tolist() == list(range(count))
        exact = found.sequence[mine] / rate * 1e6
        assert np.abs(found.due[mine] - exact).max() <= 1 + 1e-9 * exact.max()
        assert (found.time_ms[mine] == start + found.due[mine] // 1000).all()
        assert (found.value[mine] == found.sequence[mine] % 3).all()


def test_one_kilohertz_is_a_tuple_per_millisecond() -> None:
    found = all_tuples(Schedule(rate=1000, duration=2.0), synthetic(8))
    assert len(found) == 16_000
    assert (found.due == found.sequence * 1000).all()
    assert (found.time_ms == found.sequence).all()


def test_values_are_used_once_unless_told_otherwise() -> None:
    streams = [stream([0, 1, 2]), stream([0, 1, 2, 3, 4], "b")]
    found = all_tuples(Schedule(rate=10), streams)
    assert np.bincount(found.stream).tolist() == [3, 5]
    found = all_tuples(Schedule(rate=10, duration=0.75), streams)
    assert np.bincount(found.stream).tolist() == [8, 8]
    endless = Schedule(rate=10, endless=True).tuples(streams, 0)
    assert sum(len(next(endless)) for _ in range(100)) > 100_000


def test_recorded_times_are_kept_and_scaled() -> None:
    streams = [stream([1000, 1500, 4000]), stream([900, 1500], "b")]
    found = all_tuples(Schedule(speed=2.0), streams)
    assert found.time_ms.tolist() == [900, 1000, 1500, 1500, 4000]
    assert found.stream.tolist() == [1, 0, 0, 1, 0]
    assert found.due.tolist() == [0, 50_000, 300_000, 300_000, 1_550_000]
    assert found.sequence.tolist() == [0, 0, 1, 1, 2]
    found = all_tuples(Schedule(speed=2.0, start_ms=10, duration=0.3, count=2), streams)
    assert found.time_ms.tolist() == [10, 110]
    with_numbers = [stream([5, 6], sequence=np.array([41, 42]))]
    assert all_tuples(Schedule(), with_numbers).sequence.tolist() == [41, 42]


def test_synthetic_sensors_pair_up_in_regions() -> None:
    found = synthetic(10, regions=4, seed=3)
    assert [s.sensor for s in found[:4]] == ["pressure-1", "humidity-1", "pressure-2", "humidity-2"]
    assert [s.region for s in found] == [f"region-{n}" for n in (1, 1, 2, 2, 3, 3, 4, 4, 1, 1)]
    again = synthetic(2, seed=3)
    assert (again[0].value == found[0].value).all()
    assert (synthetic(2, seed=4)[0].value != found[0].value).any()
    assert all(0 <= s.value.min() <= s.value.max() <= 100 for s in found if s.stream == "humidity")


def test_thousands_of_sensors_share_a_schedule() -> None:
    streams = synthetic(5000)
    found = all_tuples(Schedule(rate=10, count=3), streams)
    assert len(found) == 15_000 and (np.diff(found.due) >= 0).all()
    assert (np.bincount(found.stream) == 3).all()
    for row in (0, 4999, 7777, 14_999):
        assert found.value[row] == streams[found.stream[row]].value[found.sequence[row]]
    partitions = {s.name: [np.ones(1 + i % 3)] for i, s in enumerate(streams)}
    block = next(Schedule(rate=10, count=3).tuples(streams, 0))
    lines = TupleText(streams, "csv", partitions).lines(block)
    for row in range(0, len(block), 37):
        rates = partitions[streams[block.stream[row]].name][0]
        expected = partition_of(block.sequence[row : row + 1], rates)[0]
        assert lines[row].split(",")[-2] == str(expected)


# --- reading ------------------------------------------------------------------------------------


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


# --- text and partitions ------------------------------------------------------------------------


def test_lines_are_csv_and_json(tmp_path: Path) -> None:
    streams = [Stream('a,"b"', "r", "pressure", np.array([5]), np.array([1.5]))]
    block = all_tuples(Schedule(), streams)
    text = TupleText(streams, "csv")
    sent = text.header.encode() + text.stamped(text.lines(block), 99)
    assert rows_of(sent.decode()) == [
        {"sensor": 'a,"b"', "region": "r", "stream": "pressure", "sequence": "0", "time_ms": "5",
         "value": "1.5", "emit_us": "99"}
    ]  # fmt: skip
    text = TupleText(streams, "json", {'a,"b"-pressure': [np.array([1.0])]})
    assert json.loads(text.stamped(text.lines(block), 99)) == {
        "sensor": 'a,"b"', "region": "r", "stream": "pressure", "sequence": 0, "time_ms": 5,
        "value": 1.5, "partition": "0", "emit_us": 99,
    }  # fmt: skip
    assert text.header == ""


def test_partitions_are_those_of_the_plan(tmp_path: Path) -> None:
    problem_path, plan_path = tmp_path / "problem.yaml", tmp_path / "plan.json"
    # Fog nodes too small for a whole join: both inputs are cut.
    problem_path.write_text(Debs().text().replace("capacity: 2500", "capacity: 1300"))
    problem = read_problem(problem_path)
    plan = place(problem, on_full="spread")
    write_plan(plan, plan_path)
    assert plan.partitions.count.max() > 1
    out = tmp_path / "out.csv"
    done = run(
        "--synthetic", "8", "--rate", "1000", "--count", "3000", "--unpaced", "--to", str(out),
        "--plan", str(plan_path), "--problem", str(problem_path),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = rows_of(out.read_text())
    for pair in range(4):
        for side, name in enumerate(("pressure", "humidity")):
            mine = [r for r in rows if r["sensor"] == f"{name}-{pair + 1}"]
            rates = plan.partitions.rates(pair, side)
            expected = partition_of(np.arange(3000), rates)
            assert [int(r["partition"]) for r in mine] == expected.tolist()
            share = np.bincount(expected, minlength=len(rates)) / 3000
            np.testing.assert_allclose(share, rates / rates.sum(), atol=0.002)
    with pytest.raises(NovaError, match=r"no source of problem .* is called 'pressure-5-pressure'"):
        partitions_of(plan, synthetic(10))


def test_a_source_in_two_joins_has_a_partition_in_each(tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    text = Debs(regions=1, nodes=6).text().replace("capacity: 1200", "capacity: 2400")
    extra = "- {id: humidity-2, node: fog-1, stream: humidity, rate: 1000, key: region-1}\nquery:"
    path.write_text(text.replace("query:", extra))
    plan = place(read_problem(path))
    streams = [s for s in synthetic(4, regions=1) if s.sensor != "pressure-2"]
    found = partitions_of(plan, streams)
    assert {name: len(rates) for name, rates in found.items()} == {
        "pressure-1-pressure": 2, "humidity-1-humidity": 1, "humidity-2-humidity": 1
    }  # fmt: skip
    rates = [np.array([1.0, 3.0]), np.array([1.0, 1.0, 1.0])]
    lines = TupleText(streams[:1], "csv", {"pressure-1-pressure": rates}).lines(
        all_tuples(Schedule(rate=1.0, count=5), streams[:1])
    )
    wanted = zip(*(partition_of(np.arange(5), r).tolist() for r in rates), strict=True)
    assert [line.split(",")[6] for line in lines] == [f"{a}|{b}" for a, b in wanted]


# --- pacing -------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=200), st.floats(0.01, 1))
def test_lateness_is_a_close_upper_bound(values: list[float], q: float) -> None:
    late = Lateness()
    for value in values:
        late.add(value)
    true = float(np.quantile(values, q, method="inverted_cdf"))
    assert true * (1 - 1e-9) <= late.quantile(q) <= (true + 1) * 2 ** (1 / 16)
    assert late.greatest == max(values)
    both = Lateness()
    both.merge(late)
    both.merge(late)
    assert both.quantile(q) == late.quantile(q)
    late.add(-5.0)
    assert late.counts[0] >= 1


def test_clock_sleeps_to_its_ticks() -> None:
    clock = Clock(tick_ms=20)
    for due in (5_000, 30_000, 61_000):
        clock.sleep_until(due)
        tick = -(-due // 20_000) * 20_000
        assert clock.now() >= tick
    before = clock.now()
    clock.sleep_until(before - 1e6)
    clock.sleep_until(before + 60e6, at_most=0.01)
    assert before < clock.now() < before + 30e6
    ahead = Clock(1.0, int(time.time() * 1000) + 5_000)
    assert -5.1e6 < ahead.now() < -4e6


# --- outputs ------------------------------------------------------------------------------------


def test_one_seed_gives_one_stream(tmp_path: Path) -> None:
    texts = []
    for name, seed in (("a.csv", "1"), ("b.csv", "1"), ("c.csv", "2")):
        done = run(
            "--synthetic", "3", "--rate", "2000", "--count", "100", "--start",
            "2025-01-01T00:00:00", "--seed", seed, "--unpaced", "--to", str(tmp_path / name),
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        lines = (tmp_path / name).read_text().splitlines()
        texts.append([line.rpartition(",")[0] for line in lines])
    assert texts[0] == texts[1] != texts[2]
    value = synthetic(1, seed=1)[0].value[0]
    assert texts[0][1] == f"pressure-1,region-1,pressure,0,{START},{value}"


def test_paced_emission_reports_rate_and_cpu(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    done = run(
        "--synthetic", "4", "--rate", "500", "--duration", "1", "--start", "0", "--to", str(out),
        "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    total = summary["total"]
    assert total["tuples"] == 2000 and total["asked"] == 2000
    # All were sent, so the rate is at most what was asked; how close is measured, not tested.
    assert 0 < total["achieved"] <= 2000 + 1e-6
    assert 0 < summary["cpu_share"] < 1 and not summary["interrupted"]
    sent = np.array([int(row["emit_us"]) for row in rows_of(out.read_text())])
    due = np.repeat(np.arange(500) * 2000, 4)
    late = sent - sent[0] - due  # than the first one was
    assert late.min() >= -1000 * total["late_max_ms"] - 1000, "a tuple was sent before it was due"
    assert np.ptp(late) <= 1000 * total["late_max_ms"] + 20_000


def test_stdout_carries_tuples_and_stderr_the_account() -> None:
    done = run("--synthetic", "2", "--rate", "1000", "--count", "5")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert len(lines) == 10
    start = int(lines[0].split(",")[4])
    assert start % 1000 == 0, "starts with a full second"
    assert "10 tuples in" in done.stderr and "of one core" in done.stderr
    assert f"event time starts at {start}" in done.stderr


def test_split_files_have_names_of_their_own(tmp_path: Path) -> None:
    for split, count in (("none", 1), ("sensor", 8), ("stream", 2), ("region", 4)):
        directory = tmp_path / split
        directory.mkdir()
        done = run(
            "--synthetic", "8", "--rate", "1000", "--count", "10", "--unpaced", "--split", split,
            "--to", str(directory / "t.csv"),
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        files = sorted(directory.iterdir())
        assert len(files) == count
        assert sum(len(rows_of(path.read_text())) for path in files) == 80
    assert (tmp_path / "region" / "t-region-3.csv").exists()


class Reader(threading.Thread):
    """Takes everything that comes, as slowly as told."""

    def __init__(self, connection: socket.socket | None = None, port: int = 0, pause: float = 0):
        super().__init__(daemon=True)
        self.connection, self.port, self.pause = connection, port, pause
        self.data = b""
        self.start()

    def run(self) -> None:
        end = time.monotonic() + 10
        while self.connection is None:
            try:
                self.connection = socket.create_connection((HOST, self.port))
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.02)
        with self.connection as connection:
            while got := connection.recv(1 << 16):
                self.data += got
                time.sleep(self.pause)


@contextmanager
def listening(count: int) -> Iterator[tuple[int, list[Reader]]]:
    """Readers on ports that follow each other; the first port."""
    for port in range(20_000 + os.getpid() % 20_000, 60_000, count):
        try:
            listeners = [socket.create_server((HOST, port + i)) for i in range(count)]
            break
        except OSError:
            continue
    readers: list[Reader] = []

    def accept() -> None:
        readers.extend(Reader(listener.accept()[0]) for listener in listeners)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield port, readers
    thread.join(5)
    for reader in readers:
        reader.join(5)
    for listener in listeners:
        listener.close()


def test_tcp_client_with_a_port_per_sensor() -> None:
    with listening(4) as (port, readers):
        done = run(
            "--synthetic", "4", "--rate", "1000", "--count", "200", "--split", "sensor",
            "--format", "json", "--to", f"tcp://{HOST}:{port}", "--json",
        )  # fmt: skip
    assert done.exit_code == 0, done.output
    got = [[json.loads(line) for line in reader.data.splitlines()] for reader in readers]
    assert [rows[0]["sensor"] for rows in got] == [
        "pressure-1", "humidity-1", "pressure-2", "humidity-2"
    ]  # fmt: skip
    assert all([row["sequence"] for row in rows] == list(range(200)) for rows in got)
    parts = json.loads(done.stdout)["parts"]
    assert [part["to"] for part in parts] == [f"{HOST}:{port + i}" for i in range(4)]


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def test_tcp_server_waits_for_its_reader() -> None:
    port = free_port()
    reader = Reader(port=port)
    done = run(
        "--synthetic",
        "2",
        "--rate",
        "1000",
        "--count",
        "100",
        "--to",
        f"tcp-listen://{HOST}:{port}",
    )
    reader.join(5)
    assert done.exit_code == 0, done.output
    assert reader.data.count(b"\n") == 200
    assert f"waiting for readers on {HOST}, port {port}" in done.stderr


def connected() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection with small buffers."""
    with socket.create_server((HOST, 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 13)
        ours = socket.create_connection(server.getsockname())
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 13)
        return ours, server.accept()[0]


def test_a_slow_reader_holds_up_its_own_sensors_only() -> None:
    (ours, theirs), (quick, quick_end) = connected(), connected()
    slow_reader, quick_reader = Reader(theirs, pause=0.08), Reader(quick_end)
    schedule = Schedule(rate=10_000, count=6_000)
    streams = synthetic(2)
    lanes = [
        Lane("slow", streams[:1], SocketOutput("slow one", ours), TupleText(streams[:1], "csv")),
        Lane("quick", streams[1:], SocketOutput("quick one", quick), TupleText(streams[1:], "csv")),
    ]
    told: list[Progress] = []
    summary = Replay(lanes, schedule, report=told.append).run()
    slow_reader.join(10)
    quick_reader.join(10)
    slow, fast = summary.parts
    assert summary.error is None
    assert slow.tuples == fast.tuples == 6_000 == slow_reader.data.count(b"\n")
    assert slow.blocked_seconds > 0.5 > fast.blocked_seconds
    assert slow.achieved < 0.8 * fast.achieved
    assert slow.late_max_ms > 300
    assert any(p.waiting == ["slow one"] and p.lag > 0.1 for p in told)
    # The moment of sending is that of the batch, not of the schedule.
    stamps = [int(line.rsplit(b",", 1)[1]) for line in slow_reader.data.splitlines()]
    assert stamps[-1] - stamps[0] > 0.9e6


def test_targets() -> None:
    assert Target.parse("tcp://localhost:9000") == Target("tcp", host="localhost", port=9000)
    assert Target.parse("kafka://h:1/a.b-c").topic == "a.b-c"
    assert Target.parse("-").kind == "stdout" and Target.parse("x/y.csv").path == Path("x/y.csv")


def test_a_reader_that_leaves_ends_the_replay_with_its_account() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]

        def leave() -> None:
            connection, _ = server.accept()
            connection.recv(1000)
            connection.close()

        threading.Thread(target=leave, daemon=True).start()
        done = run("--synthetic", "2", "--rate", "5000", "--to", f"tcp://{HOST}:{port}")
    assert done.exit_code == 2
    assert "the reader has left" in done.stderr and "of one core" in done.stderr


def test_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    streams = synthetic(1)
    output = StreamOutput(tmp_path / "out.csv")
    with Path("/dev/full").open("wb", buffering=0) as full:
        output._file = full
        lane = Lane("", streams, output, TupleText(streams, "csv"))
        summary = Replay([lane], Schedule(rate=1000, count=100)).run()
    assert summary.error is not None and "No space left on device" in summary.error
    assert list(tmp_path.iterdir()) == []


def test_a_reader_of_standard_output_may_leave() -> None:
    arguments = "workload replay --synthetic 2 --rate 2000"
    code = f"from nova_core.cli import main; import sys; sys.argv[1:] = {arguments.split()}; main()"
    done = subprocess.run(
        ["bash", "-c", '"$0" -c "$1" | head -2; exit ${PIPESTATUS[0]}', sys.executable, code],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 141 and done.stderr == ""
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_with_the_account(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "out.csv"
    arguments = ["workload", "replay", "--synthetic", "2", "--rate", "1000", "--to", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-c", "from nova_core.cli import main; main()", *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 20
    while not any(path.stat().st_size > 20_000 for path in tmp_path.glob(".out*")):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.05)
    assert not out.exists()
    process.send_signal(number)
    answer, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    summary = json.loads(answer)
    assert summary["interrupted"]
    rows = rows_of(out.read_text())
    assert len(rows) == summary["total"]["tuples"] > 0
    assert [row["sequence"] for row in rows[-2:]] == [str(len(rows) // 2 - 1)] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give files or --synthetic N"),
        (["--synthetic", "2", "x.csv", "--rate", "1"], "give files or --synthetic N"),
        (["--synthetic", "2"], "--synthetic: give --rate"),
        (["--synthetic", "2", "--rate", "0"], "0.0 is not in the range"),
        (["--synthetic", "2", "--rate", "1", "--speed", "2"], "--rate and --speed"),
        (["--synthetic", "2", "--rate", "1", "--start", "soon"], "--start soon: expected an ISO"),
        (["--synthetic", "2", "--rate", "1", "--to", "tcp://h"], "--to tcp://h: expected"),
        (["--synthetic", "2", "--rate", "1", "--to", "tcp://h:99999"], "ort out of range"),
        (["--synthetic", "2", "--rate", "1", "--to", "udp://h:1"], "--to udp://h:1: expected"),
        (["--synthetic", "2", "--rate", "1", "--to", "kafka://h:1"], "--to kafka://h:1: expected"),
        (["--synthetic", "2", "--rate", "1", "--split", "sensor"], "standard output is one stream"),
        (["--synthetic", "2", "--rate", "1", "--json"], "standard output carries the tuples"),
        (["--synthetic", "2", "--rate", "1", "--plan", "p.json"], "--plan and --problem"),
        (["--synthetic", "2", "--rate", "1", "--sensor", "x"], "none of the 2 sensors is left"),
        (["none.csv", "--rate", "1"], "none.csv: there is no such file"),
        (["--synthetic", "2", "--rate", "1", "--to", "no/such/dir.csv"], "dir.csv: cannot be writ"),
        (
            ["--synthetic", "2", "--rate", "1", "--wait", "0", "--to", "tcp://127.0.0.1:1"],
            "tcp://127.0.0.1:1: cannot connect",
        ),
        (
            ["--synthetic", "2", "--rate", "1", "--wait", "0.1", "--to", "kafka://127.0.0.1:1/t"],
            "kafka://127.0.0.1:1: cannot connect",
        ),
        (
            ["--synthetic", "2", "--rate", "1", "--wait", "0.1", "--to", "tcp-listen://127.0.0.1:0"],
            "no reader came within 0.1 s",
        ),
    ],
)  # fmt: skip
def test_bad_arguments(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert "Traceback" not in done.output


def test_choices_of_the_command_are_the_real_ones() -> None:
    assert command.FORMATS == FORMATS and command.SPLITS == SPLITS
    assert origin_of(synthetic(2)) == 0
