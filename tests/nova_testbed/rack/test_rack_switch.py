from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from nova_core.programs import Program
from nova_testbed.inventory import HostSpec, Inventory, Link
from nova_testbed.rack import switch
from nova_testbed.rack.state import RackError, StateDirectory, record_of


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


def test_the_switch_is_built_once(tmp_path: Path) -> None:
    program = switch.build(tmp_path)
    made = program.stat().st_mtime_ns
    assert switch.build(tmp_path) == program
    assert program.stat().st_mtime_ns == made
    assert list(tmp_path.iterdir()) == [program]


def test_source_compiles_without_warnings(tmp_path: Path) -> None:
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(tmp_path / "switch")]
    done = subprocess.run([*command, str(switch.SOURCE)], text=True, capture_output=True)
    assert done.stderr == ""


def test_without_a_compiler_that_works_there_is_no_switch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Program, "path", None)
    with pytest.raises(RackError, match=r"cc: not found; `.*gcc.*` \(for the switch"):
        switch.build(tmp_path / "cache")
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho no assembler >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(Program, "path", str(broken))
    with pytest.raises(RackError, match="the switch cannot be compiled: no assembler"):
        switch.build(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    "line",
    ["link 0 1", "link 0 one 1 1 1 1 1", "host 0 somewhere", "queue 3", "host 0 ns 300.1.1.1"],
)
def test_bad_configurations_are_refused(tmp_path: Path, line: str) -> None:
    config = tmp_path / "switch.conf"
    config.write_text(f"# a comment\n\n{line}\n")
    command = [str(switch.build()), str(config), str(tmp_path / "socket"), "0"]
    done = subprocess.run(command, text=True, capture_output=True, timeout=20)
    assert done.returncode == 1
    assert done.stderr.strip() == f"{config}:3: neither a host nor a link: {line}"


def test_it_says_what_is_missing(tmp_path: Path) -> None:
    command = [str(switch.build()), str(tmp_path / "none"), str(tmp_path / "socket"), "0"]
    done = subprocess.run(command, text=True, capture_output=True, timeout=20)
    assert done.returncode == 1
    assert done.stderr.strip() == f"{tmp_path / 'none'}: No such file or directory"


def test_no_switch_no_statistics(tmp_path: Path) -> None:
    assert switch.statistics(StateDirectory(tmp_path)) is None
    assert switch.statistics(StateDirectory(tmp_path / "none")) is None
