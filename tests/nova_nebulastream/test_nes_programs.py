"""The programs that run on hosts, beside NebulaStream's workers: for sources, and for results."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from ports import free_port

from nova_engines import results
from nova_engines.sources import Pace
from nova_nebulastream import result_collector, source_server

ADDRESS = "127.0.0.1"


@contextmanager
def running(module: Any, configuration: Any, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    file = directory / "configuration.json"
    file.write_text(json.dumps(configuration))
    process = subprocess.Popen([sys.executable, "-I", module.__file__, str(file)])
    try:
        until = time.monotonic() + 20
        while not (directory / "ready").exists():
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.wait()


async def received(port: int, late_s: float) -> bytes:
    await asyncio.sleep(late_s)
    reader, writer = await asyncio.open_connection(ADDRESS, port)
    data = await reader.read()
    writer.close()
    return data


def test_every_connection_gets_every_tuple(tmp_path: Path) -> None:
    """When it is due, and at once what was due before."""
    values = [1.5, -0.1, 1e300]
    (tmp_path / "values").write_bytes(struct.pack("<3d", *values))
    start_ms, port = round(1000 * time.time()) + 300, free_port()
    pace = Pace.of(500.0, ((0.2, 0.4, 2.0),))
    told = {
        "address": ADDRESS,
        "start_ms": start_ms,
        "clock": [0, 0, 1.0],
        "sources": [
            {
                "port": port,
                "file": str(tmp_path / "values"),
                "readers": 3,
                "pace": pace.numbers,
                "count": 300,
            }
        ],
    }

    async def all_of_them() -> list[bytes]:
        return await asyncio.gather(*(received(port, late) for late in (0, 0.1, 0.6)))

    with running(source_server, told, tmp_path):
        found = asyncio.run(all_of_them())
        ended = time.time()
    due = [1000 * start_ms + pace.due(k) for k in range(300)]
    expected = "".join(
        f"{us // 1000},{k},{us},{values[k % 3]!r}\n" for k, us in enumerate(due)
    ).encode()
    assert found == [expected] * 3
    assert ended >= due[-1] / 1e6


def test_readings_are_lines(tmp_path: Path) -> None:
    rows = [(1000, "é a", 5, 0.1), (1010, "b", -7, 2.0)]
    data = b"".join(
        struct.pack("<qi", time_ms, len(text.encode()))
        + text.encode()
        + struct.pack("<qd", whole, real)
        for time_ms, text, whole, real in rows
    )
    (tmp_path / "readings").write_bytes(data)
    port = free_port()
    told = {
        "address": ADDRESS,
        "start_ms": 0,
        "clock": [1000, 0, 0],
        "sources": [
            {
                "port": port,
                "file": str(tmp_path / "readings"),
                "readers": 1,
                "types": ["text", "int", "float"],
                "numbered": True,
                "hashed": False,
            }
        ],
    }
    with running(source_server, told, tmp_path):
        found = asyncio.run(received(port, 0)).decode()
    assert found == "1000,0,é a,5,0.1\n1010,1,b,-7,2.0\n"


def collector(tmp_path: Path, sinks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"clock": [1000, 50_000, 0.5], "sinks": sinks}


def test_results_of_pairs_become_records(tmp_path: Path) -> None:
    """From several queries; lines may be cut anywhere."""
    pipes = [
        {"path": str(tmp_path / "pipes" / str(k)), "instance": k, "left": 2, "right": k}
        for k in range(2)
    ]
    file = tmp_path / "results"
    sink = {"file": str(file), "fields": results.PAIR, "types": [], "pipes": pipes}
    with running(result_collector, collector(tmp_path, [sink]), tmp_path) as process:
        begun = time.time_ns() // 1000
        first, second = (os.open(str(pipe["path"]), os.O_WRONLY) for pipe in pipes)
        os.write(first, b"1000,4,1000100,500000,0.0,7,10")
        time.sleep(0.1)
        assert len(results.read(file)) == 0
        os.write(first, b"00200,-1500000,0.0\n1000,5,1000300,2000000,0,8,1000400,3000000,0\n")
        os.write(second, b"2000,1,9,1000000,0.0,2,10,100000,0.5\n")
        os.close(first)
        os.close(second)
        assert process.wait(10) == 0
    found = results.read(file, results.PAIR)
    assert found.loss(finished=True) is None and found.announced == 3
    records = np.sort(found.records, order=["instance", "left_sequence"])
    assert records["instance"].tolist() == [0, 0, 1]
    assert records["right_emit_us"].tolist() == [1000200, 1000400, 10]
    assert records["left_value"].tolist() == [0.5, 2.0, 1.0]
    assert records["right_value"].tolist() == [-1.5, 3.0, 0.1000005]
    assert set(records["left_source"].tolist()) == {2}
    assert (records["arrive_us"] >= begun).all()


def test_rows_keep_their_texts_and_ages(tmp_path: Path) -> None:
    pipe = {"path": str(tmp_path / "pipe")}
    file = tmp_path / "results"
    types = ("text", "int", "float")
    fields = results.row_fields(("a", "b", "c"), types)
    sink = {"file": str(file), "fields": fields, "types": types, "pipes": [pipe]}
    with running(result_collector, collector(tmp_path, [sink]), tmp_path) as process:
        with Path(pipe["path"]).open("wb") as out:
            out.write(
                b'1999,"x, ""y""",-3,250000,0.0,1100,1500,1000,1200\n'
                b'1999,"x, ""y""",4,-1,-0.5,1,2,1,2\n'
            )
        assert process.wait(10) == 0
    found = results.read(file, fields)
    assert found.rows() == [(1999, 'x, "y"', -3, 0.25), (1999, 'x, "y"', 4, -1.5e-6)]
    assert found["oldest_ms"].tolist() == [1000, 1] and found["newest_ms"].tolist() == [1500, 2]
    # Event time began at 1000 ms, and passes half as fast.
    assert found["newest_us"][0] == 51_000_000 and found["oldest_us"][0] == 50_000_000


def test_a_text_that_would_be_two_fields_is_refused_at_the_start(tmp_path: Path) -> None:
    """Also one that comes late."""
    data = b"".join(
        struct.pack("<qi", 1000 + k, len(text)) + text for k, text in enumerate((b"a", b"b,c"))
    )
    (tmp_path / "readings").write_bytes(data)
    source = {"port": free_port(), "file": str(tmp_path / "readings"), "readers": 1}
    source |= {"types": ["text"], "numbered": False, "hashed": False}
    told = {"address": ADDRESS, "start_ms": 0, "clock": [0, 0, 1.0], "sources": [source]}
    (tmp_path / "configuration.json").write_text(json.dumps(told))
    command = [sys.executable, "-I", source_server.__file__, str(tmp_path / "configuration.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert "text 'b,c': has a comma, a quote or a line end" in done.stderr
    assert not (tmp_path / "ready").exists()
