from __future__ import annotations

import csv
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

import numpy as np
import pytest
from click.testing import CliRunner, Result
from ports import free_port

from nova_core.cli import cli
from nova_workloads.commands import replay as command
from nova_workloads.outputs import SocketOutput, StreamOutput, Target
from nova_workloads.replay import SPLITS, Lane, Progress, Replay
from nova_workloads.schedule import Schedule, origin_of
from nova_workloads.streams import synthetic
from nova_workloads.tuple_text import FORMATS, TupleText

HOST = "127.0.0.1"
START = 1_735_689_600_000


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["workload", "replay", *arguments])


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


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
        (["--synthetic", "2", "--rate", "1", "--to", "tcp://[h]:1"], "--to tcp://[h]:1: 'h' does"),
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
