"""Processes of racks: started in the background, found again by their marks, and ended.

They are identified by the rack's part they belong to, never by the name of a program.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from nova_testbed.rack.state import MARK, RackError

END_SECONDS = 5.0
EXEC_SECONDS = 1.0
PF_EXITING = 0x4
PF_KTHREAD = 0x200000


def spawn(
    command: Sequence[str], number: int, part: str, *, log: Path, directory: Path | None = None
) -> None:
    """Start a process of a rack in a session of its own, detached from this process.

    Raises:
        RackError: where it cannot be started.
    """
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        MARK: f"{number}:{part}",
    }
    with log.open("ab") as stream:
        try:
            subprocess.run(
                ["setsid", "--fork", *command],
                env=environment,
                cwd=directory or "/",
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise RackError(f"{command[0]}: cannot be started: {error}") from error


def marked(number: int | None = None) -> dict[str, set[int]]:
    """Processes with the mark of a rack, by part; for None those of all racks, by NUMBER:PART."""
    parts: dict[str, set[int]] = {}
    mark = f"{MARK}=" if number is None else f"{MARK}={number}:"
    prefix = mark.encode()
    for pid in _pids():
        environment = _environment(pid)
        if prefix not in environment:
            continue
        for entry in environment.split(b"\0"):
            if entry.startswith(prefix):
                parts.setdefault(entry[len(prefix) :].decode(errors="replace"), set()).add(pid)
    return parts


def _environment(pid: int) -> bytes:
    """The environment of a process; empty when it is ending, or a thread of the kernel's.

    During exec a process seems to have none: it is read again.
    """
    end = time.monotonic() + EXEC_SECONDS
    empty = 0
    while True:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            if environment or time.monotonic() > end:
                return environment
            # See proc_pid_stat(5); the name of the program in parentheses may hold anything.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return b""
        state, flags, env_end = fields[0], int(fields[6]), int(fields[48])
        if state in "ZX" or flags & (PF_EXITING | PF_KTHREAD):
            return b""
        if env_end == 0:
            time.sleep(0.001)
        elif (empty := empty + 1) == 3:
            # Really empty, not read just before exec replaced the program.
            return b""


def in_namespaces(files: Iterable[Path]) -> set[int]:
    """Processes in any of these network namespaces (files below ``/run/netns``)."""
    inodes = set()
    for file in files:
        try:
            inodes.add(file.stat().st_ino)
        except OSError:
            continue
    pids: set[int] = set()
    if not inodes:
        return pids
    for pid in _pids():
        try:
            inside = Path(f"/proc/{pid}/ns/net").stat().st_ino in inodes
        except OSError:
            continue
        if inside:
            pids.add(pid)
    return pids


def end_processes(find: Callable[[], set[int]]) -> int:
    """Kill processes until none is found; returns the number killed.

    Raises:
        RackError: when some do not end.
    """
    ended: set[int] = set()
    end = time.monotonic() + END_SECONDS
    while remaining := find() - {os.getpid()}:
        if time.monotonic() > end:
            raise RackError(f"processes do not end: {', '.join(map(str, sorted(remaining)))}")
        for pid in remaining:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            ended.add(pid)
        time.sleep(0.005)
    return len(ended)


def local_run(command: str) -> tuple[int, str]:
    """Run a shell command on this machine; returns its exit status and output."""
    result = subprocess.run(
        ["sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return result.returncode, result.stdout


def last_message(log: Path) -> str:
    """The last line of a process' log."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    return lines[-1].strip() if lines else "it printed nothing"


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
