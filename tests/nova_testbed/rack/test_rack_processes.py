from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_testbed.rack import RackError
from nova_testbed.rack.processes import end_processes, marked, spawn

# No rack has it, so that real ones are never touched.
NUMBER = 100_000 + os.getpid()


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    end_processes(lambda: set().union(*marked(NUMBER).values()))


def test_processes_are_found_by_their_mark_and_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    spawn(["sh", "-c", "echo said; sleep 100 & wait"], NUMBER, "a", log=log)
    spawn(["sleep", "100"], NUMBER, "b-c", log=log)
    end = time.monotonic() + 5
    while len(marked(NUMBER).get("a", ())) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    found = marked(NUMBER)
    assert {part: len(pids) for part, pids in found.items()} == {"a": 2, "b-c": 1}
    assert log.read_text() == "said\n"
    # They are nobody's children here, and have sessions of their own, if not from the first moment.
    pids = set().union(*found.values())
    while time.monotonic() < end and os.getsid(0) in map(os.getsid, pids):
        time.sleep(0.01)
    assert os.getsid(0) not in map(os.getsid, pids)
    assert marked(NUMBER + 1) == {}
    assert end_processes(lambda: marked(NUMBER).get("a", set())) == 2
    assert set(marked(NUMBER)) == {"b-c"}


def test_a_process_that_becomes_another_program_is_never_missed(tmp_path: Path) -> None:
    script = 'i=$1; [ $i -gt 0 ] && exec sh -c "$0" "$0" $((i - 1)); sleep 100'
    spawn(["sh", "-c", script, script, "400"], NUMBER, "a", log=tmp_path / "log")
    missed = sum("a" not in marked(NUMBER) for _ in range(200))
    assert missed == 0


def test_programs_that_are_not_there_are_errors(tmp_path: Path) -> None:
    done = tmp_path / "log"
    with pytest.raises(RackError, match="nonexistent: cannot be started"):
        spawn(["nonexistent"], NUMBER, "a", log=done, directory=tmp_path / "none")


def test_our_own_process_is_never_ended() -> None:
    assert end_processes(lambda: {os.getpid()}) == 0


def test_processes_that_do_not_end_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nova_testbed.rack.processes.END_SECONDS", 0.05)
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        while Path(f"/proc/{ended.pid}/stat").read_text().split()[2] != "Z":
            time.sleep(0.01)
        # A zombie takes no signal.
        with pytest.raises(RackError, match=f"processes do not end: {ended.pid}"):
            end_processes(lambda: {ended.pid})
