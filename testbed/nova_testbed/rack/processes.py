"""Processes of racks: started to outlive us, found again by their marks, and ended.

They are known by what they are part of, never by the name of a program.
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


def spawn(
    command: Sequence[str], number: int, part: str, *, log: Path, directory: Path | None = None
) -> None:
    """Start a process of a rack in a session of its own, as nobody's child.

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
    """Processes that carry the mark of a rack, by part; of all racks by NUMBER:PART for None."""
    found: dict[str, set[int]] = {}
    wanted = f"{MARK}=" if number is None else f"{MARK}={number}:"
    prefix = wanted.encode()
    for pid in _pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if prefix not in environment:
            continue
        for entry in environment.split(b"\0"):
            if entry.startswith(prefix):
                found.setdefault(entry[len(prefix) :].decode(errors="replace"), set()).add(pid)
    return found


def in_namespaces(files: Iterable[Path]) -> set[int]:
    """Processes in any of these network namespaces (files below ``/run/netns``)."""
    inodes = set()
    for file in files:
        try:
            inodes.add(file.stat().st_ino)
        except OSError:
            continue
    found: set[int] = set()
    if not inodes:
        return found
    for pid in _pids():
        try:
            inside = Path(f"/proc/{pid}/ns/net").stat().st_ino in inodes
        except OSError:
            continue
        if inside:
            found.add(pid)
    return found


def end_processes(find: Callable[[], set[int]]) -> int:
    """Kill processes until none is found; the number killed.

    Raises:
        RackError: when some do not end.
    """
    ended: set[int] = set()
    end = time.monotonic() + END_SECONDS
    while found := find() - {os.getpid()}:
        if time.monotonic() > end:
            raise RackError(f"processes do not end: {', '.join(map(str, sorted(found)))}")
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            ended.add(pid)
        time.sleep(0.005)
    return len(ended)


def local_run(command: str) -> tuple[int, str]:
    """Run a shell command on this machine: its exit status and what it has printed."""
    done = subprocess.run(
        ["sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return done.returncode, done.stdout


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
