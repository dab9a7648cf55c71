"""What an interrupted run leaves of temporary files: nothing, at the latest after the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from nova_core.io.safe_files import atomic_write, write_text
from nova_core.scratch import beside

WAITS = """
import signal, sys, tempfile, time
from nova_core import cli
sys.argv = ["nova"]
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup, it is ignored

def waits():
    kept = tempfile.mkdtemp(prefix="made-by-anybody-")
    open(kept + "/file", "w").close()
    print(kept, flush=True)
    time.sleep(60)

cli.cli = lambda: sys.exit(cli._guarded(waits))
cli.main()
"""


def run(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """A run of `nova` in the middle of its work."""
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS],
        env=os.environ | {"TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_leaves_no_temporary_files(tmp_path: Path, end: signal.Signals) -> None:
    process, made = run(tmp_path)
    assert (made / "file").exists() and made.is_relative_to(tmp_path)
    process.send_signal(end)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 128 + end, said
    assert list(tmp_path.iterdir()) == []


def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    killed, left = run(tmp_path)
    alive, used = run(tmp_path)
    killed.kill()
    killed.communicate()
    assert left.exists()
    # Of another program, or another user's idea.
    (tmp_path / "nova-run-file.tmp").symlink_to(tmp_path)
    (tmp_path / "nova-running").mkdir()
    other, _ = run(tmp_path)
    assert not left.parent.exists()
    assert used.exists()
    for process in (alive, other):
        process.terminate()
        process.communicate()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["nova-run-file.tmp", "nova-running"]


ENDS = """
import multiprocessing, os, sys, tempfile
from pathlib import Path
from nova_core.scratch import run_folder

def nothing(): pass

if __name__ == "__main__":
    run_folder()
    first = Path(tempfile.gettempdir())
    child = os.fork()
    if not child:
        run_folder()
        sys.exit(0 if Path(tempfile.gettempdir()).parent == first else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert list(first.iterdir()) == []
    # Such a process has temporary files until the very end.
    process = multiprocessing.get_context("forkserver").Process(target=nothing)
    process.start()
    process.join()
    assert process.exitcode == 0 and list(first.glob("pymp-*"))
"""


def test_children_leave_the_folder_and_it_goes_last(tmp_path: Path) -> None:
    program = tmp_path / "ends.py"
    program.write_text(ENDS)
    place = Path(tempfile.mkdtemp())  # names of sockets must be short
    done = subprocess.run(
        [sys.executable, program],
        env=os.environ | {"TMPDIR": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    place.rmdir()  # it is empty


WRITES = """
import sys, time
from pathlib import Path
from nova_core.io.safe_files import atomic_write
from nova_core.scratch import beside
target = Path(sys.argv[1])
with beside(target) as folder, atomic_write(target) as file:
    (folder / "part").touch()
    file.write(b"half")
    print("in the middle", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_was_writing_goes_with_the_next_writing(tmp_path: Path) -> None:
    target = tmp_path / "plan [1].json"
    processes = []
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITES, target], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None and process.stdout.readline()
        processes.append(process)
    processes[0].kill()
    processes[0].communicate()
    assert len(list(tmp_path.iterdir())) == 4
    write_text(target, "whole")
    # The other one is still at it.
    assert len(list(tmp_path.iterdir())) == 3
    processes[1].kill()
    processes[1].communicate()
    with beside(target) as folder:
        assert sorted(tmp_path.iterdir()) == sorted([target, folder])
    assert target.read_text() == "whole"


def test_writing_at_once_fails_nobody(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom nova_core.io.safe_files import write_text\n"
        "for i in range(300): write_text(sys.argv[1], sys.argv[2])"
    )
    target = tmp_path / "x.json"
    running = [
        subprocess.Popen([sys.executable, "-c", code, target, str(i)], stderr=subprocess.PIPE)
        for i in range(3)
    ]
    assert [(p.communicate()[1], p.returncode) for p in running] == [(b"", 0)] * 3
    assert list(tmp_path.iterdir()) == [target]


def test_no_place_for_temporary_files_stops_no_command(tmp_path: Path) -> None:
    begun = time.monotonic()
    with atomic_write(tmp_path / "x") as file:
        file.write(b"1")
    done = subprocess.run(
        [sys.executable, "-c", "from nova_core.cli import main; main()", "--version"],
        env=os.environ | {"TMPDIR": "/proc"},
        cwd="/proc",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begun < 60
