from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nova_testbed.inventory import HostSpec, Inventory, Link
from nova_testbed.rack import switch
from nova_testbed.rack.state import StateDirectory, record_of

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))),
    reason="there is no C compiler: apt-get install gcc libc6-dev",
)


def test_configuration() -> None:
    hosts = (HostSpec("a"), HostSpec("b"), HostSpec("c"))
    links = {("a", "b"): Link(20.5, 1.5, 50.0, 0.25)}
    record = record_of(Inventory("some", hosts, links, True), 7, "switch", Path("/"))
    assert switch.config_text(record).splitlines() == [
        "host 0 novarack7-a 198.19.7.2",
        "host 1 novarack7-b 198.19.7.3",
        "host 2 novarack7-c 198.19.7.4",
        "link 0 1 10250.000 50000000 312500 1500.000 2500",
        "link 1 0 10250.000 50000000 312500 1500.000 2500",
        "link 0 2 0.000 0 0 0.000 0",
        "link 2 0 0.000 0 0 0.000 0",
        "link 1 2 0.000 0 0 0.000 0",
        "link 2 1 0.000 0 0 0.000 0",
    ]


def test_queues_hold_50_ms_but_some_packets_at_least() -> None:
    assert switch.queue_bytes(100.0) == 625_000
    assert switch.queue_bytes(0.1) == 30_000


@needs_compiler
def test_the_c_switch_is_built_once(tmp_path: Path) -> None:
    program = switch.build(tmp_path)
    assert program is not None
    made = program.stat().st_mtime_ns
    assert switch.build(tmp_path) == program
    assert program.stat().st_mtime_ns == made
    assert list(tmp_path.iterdir()) == [program]


@needs_compiler
def test_source_compiles_without_warnings(tmp_path: Path) -> None:
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(tmp_path / "switch")]
    done = subprocess.run([*command, str(switch.SOURCE)], text=True, capture_output=True)
    assert done.stderr == ""


def test_without_a_compiler_that_works_there_is_no_c_switch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert switch.build(tmp_path / "cache") is None
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert switch.build(tmp_path / "cache") is None
    assert list((tmp_path / "cache").iterdir()) == []


def programs(tmp_path: Path) -> list[list[str]]:
    built = switch.build(tmp_path / "cache")
    return [*([[str(built)]] if built else []), [sys.executable, "-I", str(switch.PYTHON_SWITCH)]]


@pytest.mark.parametrize(
    "line",
    ["link 0 1", "link 0 one 1 1 1 1 1", "host 0 somewhere", "queue 3", "host 0 ns 300.1.1.1"],
)
def test_both_switches_refuse_the_same_configurations(tmp_path: Path, line: str) -> None:
    config = tmp_path / "switch.conf"
    config.write_text(f"# a comment\n\n{line}\n")
    for program in programs(tmp_path):
        command = [*program, str(config), str(tmp_path / "socket"), "0"]
        done = subprocess.run(command, text=True, capture_output=True, timeout=20)
        assert done.returncode == 1
        assert done.stderr.strip() == f"{config}:3: neither a host nor a link: {line}"


def test_both_switches_say_what_is_missing(tmp_path: Path) -> None:
    for program in programs(tmp_path):
        command = [*program, str(tmp_path / "none"), str(tmp_path / "socket"), "0"]
        done = subprocess.run(command, text=True, capture_output=True, timeout=20)
        assert done.returncode == 1
        assert done.stderr.strip() == f"{tmp_path / 'none'}: No such file or directory"


def test_no_switch_no_statistics(tmp_path: Path) -> None:
    assert switch.statistics(StateDirectory(tmp_path)) is None
    assert switch.statistics(StateDirectory(tmp_path / "none")) is None
