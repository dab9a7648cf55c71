"""Running a command in a child of this process: an interpreter that has imported everything.

A fork takes milliseconds where an interpreter takes a second. The child ends as an interpreter
does: `SystemExit` goes up through the whole stack, so nothing below `main` may catch it or hold a
context open.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

# A hang: so much time of the processor, or so much time at all on a machine that is busy otherwise.
CPU_SECONDS = 20
WALL_SECONDS = 90.0
# What a command may take beyond what this process has mapped already.
MEMORY = 2 << 30
FILE_SIZE = 256 << 20


@dataclass(frozen=True)
class Limits:
    """What a child may use."""

    cpu_s: int | None = CPU_SECONDS
    wall_s: float = WALL_SECONDS
    memory: int = MEMORY


SLOW = Limits(None, 240.0, 16 << 30)


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes:
        code: exit code; minus the signal that ended it.
        hang: whether it was ended for the time it took.
        stdout: what it wrote.
        stderr: what it wrote there.
        seconds: how long it took.
        peak: bytes that it, or one of its children, had in memory.
    """

    code: int
    hang: bool
    stdout: bytes
    stderr: str
    seconds: float
    peak: int


@dataclass
class Child:
    """A command that runs."""

    pid: int
    begin: float
    files: tuple[Path, Path]
    limits: Limits
    late: bool = False

    def ended(self) -> Ended | None:
        """How it ended; None while it runs."""
        pid, status, used = os.wait4(self.pid, os.WNOHANG)
        seconds = time.monotonic() - self.begin
        if pid == 0:
            if seconds > self.limits.wall_s and not self.late:
                self.late = True
                os.killpg(self.pid, signal.SIGKILL)
            return None
        code = os.waitstatus_to_exitcode(status)
        hang = self.late or code == -signal.SIGXCPU
        stdout, stderr = (path.read_bytes()[: 1 << 24] for path in self.files)
        text = stderr.decode("utf-8", "replace")
        return Ended(code, hang, stdout, text, seconds, used.ru_maxrss << 10)


def begin(run: Callable[[], object], folder: Path, limits: Limits, name: str = "run") -> Child:
    """Run a function in a child, in that folder; the child never returns from here.

    Args:
        run: ends with SystemExit, whatever else it raises is a traceback.
        folder: the working directory.
        limits: what it may use.
        name: of the files that hold what it writes.
    """
    files = (
        folder.with_name(f"{folder.name}.{name}.out"),
        folder.with_name(f"{folder.name}.{name}.err"),
    )
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Child(pid, time.monotonic(), files, limits)
    _settle(folder, files, limits)
    run()
    raise SystemExit(0)


def _settle(folder: Path, files: tuple[Path, Path], limits: Limits) -> None:
    os.setsid()
    os.chdir(folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(files, 1):
        os.dup2(os.open(path, flags), number)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + limits.memory,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limits.cpu_s is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 2))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    os.environ.pop("NOVA_INVENTORY", None)


def nova(arguments: Sequence[str]) -> Callable[[], object]:
    """The command line with these arguments, as the console script runs it."""

    def run() -> None:
        from nova_core.cli import main

        sys.argv = ["nova", *arguments]
        main()

    return run


def fresh(arguments: Sequence[str]) -> Callable[[], object]:
    """The same in an interpreter of its own, as people start it."""

    def run() -> None:
        code = "from nova_core.cli import main; main()"
        os.execv(sys.executable, [sys.executable, "-c", code, *arguments])

    return run


def guarded(function: Callable[[Path], int], folder: Path) -> Callable[[], object]:
    """A function that answers as a command does."""

    def run() -> None:
        from nova_core.cli import _guarded

        raise SystemExit(_guarded(lambda: function(folder)))

    return run
