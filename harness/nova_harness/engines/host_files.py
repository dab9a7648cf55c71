"""Small files on connected hosts: orders to sources, and notes of sinks."""

from __future__ import annotations

import math
import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from nova_engines.source_orders import POLL_S, Files

if TYPE_CHECKING:
    from nova_testbed.hosts import Hosts

# Of one file. A slower host counts as silent.
TIMEOUT_S = 10.0


class HostFiles(Files):
    """See `nova_engines.source_orders.Files`.

    Args:
        hosts: connected; nodes are called like hosts.
    """

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts

    def write(self, node: str, path: str, text: str) -> None:
        """Write a file on a host atomically.

        Raises:
            HostError: naming the host.
        """
        self.hosts[node].run(_write(path), stdin=text.encode(), timeout=TIMEOUT_S)

    def read(self, node: str, path: str) -> str | None:
        """Content of a file; None where it does not exist.

        Raises:
            HostError: naming the host.
        """
        file = shlex.quote(path)
        # A file may be replaced at any time, but is never incomplete.
        command = f"if [ -e {file} ]; then cat {file}; else exit 3; fi"
        answer = self.hosts[node].run(command, check=False, timeout=TIMEOUT_S)
        return answer.stdout if answer.returncode == 0 else None

    def ask(
        self, node: str, path: str, text: str, number: int, timeout_s: float
    ) -> list[str] | None:
        """See `Files.ask`; one command does all, because each one costs a busy host much."""
        file = shlex.quote(f"{path}.answer")
        command = (
            f"{_write(path)} && n=0 && while [ $n -lt {math.ceil(timeout_s / POLL_S)} ]; do "
            f"a=; [ -e {file} ] && read -r a <{file}; "
            f'case "$a" in "{number} "*) echo "$a"; exit 0;; esac; '
            f"sleep {POLL_S}; n=$((n+1)); done"
        )
        answer = self.hosts[node].run(command, stdin=text.encode(), timeout=timeout_s + TIMEOUT_S)
        return answer.stdout.split() or None


def _write(path: str) -> str:
    """A command that writes its input to a file."""
    file, part = shlex.quote(path), shlex.quote(f"{path}.part")
    parent = shlex.quote(str(PurePosixPath(path).parent))
    return f"mkdir -p {parent} && cat >{part} && mv {part} {file}"
