from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nova_testbed.inventory import HostSpec, Inventory
from nova_testbed.rack import RackError, RackWarning, VirtualRack, clean
from nova_testbed.rack.state import record_of

NOVA = str(Path(sys.executable).parent / "nova")
HOLD = """
import sys
from pathlib import Path
from nova_testbed.rack.reservation import reserved
with reserved("some", Path(sys.argv[1])):
    print("reserved", flush=True)
    sys.stdin.read()
"""


def rack(path: Path) -> VirtualRack:
    return VirtualRack(Inventory("some", (HostSpec("a"),), {}, virtual=True), path)


@contextmanager
def another(state_directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Another program that has reserved a rack, until its input ends."""
    command = [sys.executable, "-c", HOLD, str(state_directory)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "reserved\n"
            yield process
        finally:
            process.kill()


def test_a_rack_is_reserved_for_one_program_until_that_ends(tmp_path: Path) -> None:
    own = rack(tmp_path / "racks" / "some")
    with another(own.state.path) as process:
        told = (
            rf"rack some is in use by process {process.pid} \(`-c \S+some`\): wait until that "
            "ends, or end it; `nova testbed down`"
        )
        with pytest.raises(RackError, match=told), own.reserved():
            pass
        with rack(tmp_path / "racks" / "other").reserved():
            pass
        process.communicate("")
    with own.reserved(), own.reserved():
        pass
    assert list((tmp_path / "racks").iterdir()) == []


def test_a_disk_that_takes_nothing_is_told_and_nothing_stays_reserved(tmp_path: Path) -> None:
    limited = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))\n" + HOLD
    )
    state_directory = tmp_path / "racks" / "some"
    ended = subprocess.run(
        [sys.executable, "-c", limited, str(state_directory)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("nova_testbed.rack.state.RackError: ") and ".some.lock: File too" in last
    assert ended.stdout == "" and list(state_directory.parent.iterdir()) == []
    with rack(state_directory).reserved():
        pass


def test_who_is_killed_holds_nothing(tmp_path: Path) -> None:
    own = rack(tmp_path / "some")
    with another(own.state.path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with own.reserved(), pytest.raises(RackError) as caught:
            _in_a_child(own)
    assert f"process {os.getpid()} " in str(caught.value)
    assert str(process.pid) not in str(caught.value)


def _in_a_child(own: VirtualRack) -> None:
    command = [sys.executable, "-c", HOLD, str(own.state.path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RackError(done.stderr.splitlines()[-1])


@pytest.mark.parametrize(
    "command", [["testbed", "up"], ["testbed", "down"], ["experiment", "run", "debs2021"]]
)
def test_commands_on_a_rack_in_use_end_at_once(command: list[str], tmp_path: Path) -> None:
    state_directory = tmp_path / "nova" / "racks" / "virtual-14"
    state_directory.parent.mkdir(parents=True)
    with another(state_directory) as process:
        done = subprocess.run(
            [NOVA, *command],
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 2
    assert f"nova: error: rack virtual-14 is in use by process {process.pid} " in done.stderr
    assert done.stdout == "" and done.stderr.count("\n") == 1
    # Nothing was made, neither hosts nor the folder of a run.
    assert [entry.name for entry in tmp_path.iterdir()] == ["nova"]
    assert not state_directory.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="what racks leave is root's to remove")
def test_clean_leaves_what_is_in_use(tmp_path: Path) -> None:
    own = rack(tmp_path / "some")
    own.state.create()
    # As after a reboot: a record, and nothing else.
    own.state.write(record_of(own.inventory, 255, "switch", own.state.path))
    with another(own.state.path), pytest.warns(RackWarning, match="some is in use by process"):
        left = clean(all_racks=False, state_root=tmp_path)
    # Of crashed racks that others left on this machine there may be lines, too.
    assert not any(str(own.state.path) in line for line in left)
    assert own.state.path.exists()
    removed = clean(all_racks=False, state_root=tmp_path)
    assert f"rack 255 ({own.state.path}): files" in removed
    assert not own.state.path.exists()
