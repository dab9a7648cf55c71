"""An engine's processes on this machine's loopback: for tests, for people without hosts.

Every node has an address of its own in 127/8, so that nodes are configured as real hosts are.
"""

from __future__ import annotations

import random
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from nova_core.errors import NovaError

STOP_S = 15.0
# Below what Linux hands out for outgoing connections.
PORTS = range(20000, 32000)
# Longest tail of a log that an error quotes.
QUOTED = 200


def loopback() -> str:
    """The first three numbers of addresses that no other cluster is likely to use."""
    return f"127.{random.randrange(1, 255)}.{random.randrange(256)}"


def free_ports(count: int) -> int:
    """The first of ``count`` ports in a row that nothing on this machine listens on.

    Raises:
        NovaError: when there are none.
    """
    first_ones = range(PORTS.start, PORTS.stop - count, count)
    for first in random.sample(first_ones, len(first_ones)):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for port, one in enumerate(sockets, first):
                one.bind(("", port))
            return first
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise NovaError(
        f"no {count} ports in a row are free between {PORTS.start} and {PORTS.stop} on this machine"
    )


class LocalProcesses:
    """Processes that live as long as a ``with`` block.

    Attributes:
        processes: running ones by name.
        logs: of each, files it writes to; an error quotes the first that holds anything.
        stop_timeout_s: until processes that do not end are killed.
    """

    def __init__(self, stop_timeout_s: float = STOP_S) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: dict[str, tuple[Path, ...]] = {}
        self.stop_timeout_s = stop_timeout_s

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until all processes have found each other.

        Raises:
            NovaError: when one ends at once or is not ready in time; nothing is left running then.
        """
        try:
            self.launch()
        except BaseException:
            self.stop()
            raise

    def launch(self) -> None:
        """Do what `start` does, without cleaning up."""
        raise NotImplementedError

    def run(self, name: str, command: str, log: Path, *more_logs: Path) -> None:
        """Start one process.

        Args:
            name: what `processes` calls it.
            command: a shell command.
            log: receives its output.
            more_logs: other files that it writes to.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        self.logs[name] = log, *more_logs
        with log.open("wb") as out:
            # A session of its own: Ctrl-C must reach only the cluster's user, who then stops it.
            self.processes[name] = subprocess.Popen(
                ["/bin/sh", "-c", command],
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def check(self, failure: type[NovaError] = NovaError) -> None:
        """Check that all run.

        Raises:
            NovaError: of the given type, with the last output of a process that has ended.
        """
        for name, process in self.processes.items():
            if process.poll() is not None:
                last = self.last_words(name)
                raise failure(f"{name} ended with code {process.returncode}: {last}")

    def last_words(self, name: str) -> str:
        """The last output of a process, in a line."""
        for path in self.logs[name]:
            text = path.read_text(errors="replace").strip() if path.is_file() else ""
            if text:
                return f"{text[-QUOTED:].strip()} ({path})"
        return f"it wrote nothing to {self.logs[name][0]}"

    def kill(self, name: str) -> None:
        """End one process without warning, as a crash would."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """End all processes."""
        self.end(list(self.processes))

    def end(self, names: Iterable[str]) -> None:
        """End some processes, those that were started last first."""
        ending = [self.processes.pop(name) for name in names if name in self.processes]
        for process in reversed(ending):
            process.terminate()
        until = time.monotonic() + self.stop_timeout_s
        for process in ending:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
