"""Small files on connected hosts: orders to sources, and notes of sinks."""

from __future__ import annotations

import math
import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from nova_engines.source_orders import POLL_S

if TYPE_CHECKING:
    from nova_testbed.hosts import Hosts

# Of one file. A slower host counts as silent.
TIMEOUT_S = 10.0


class HostFiles:
    """See `nova_engines.source_orders.Files`.

    Args:
        hosts: connected; nodes are called like hosts.
    """

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts

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
        file, part, answer = (shlex.quote(path + suffix) for suffix in ("", ".part", ".answer"))
        parent = shlex.quote(str(PurePosixPath(path).parent))
        command = (
            f"mkdir -p {parent} && cat >{part} && mv {part} {file} && n=0 && "
            f"while [ $n -lt {math.ceil(timeout_s / POLL_S)} ]; do "
            f"a=; [ -e {answer} ] && read -r a <{answer}; "
            f'case "$a" in "{number} "*) echo "$a"; exit 0;; esac; '
            f"sleep {POLL_S}; n=$((n+1)); done"
        )
        told = self.hosts[node].run(command, stdin=text.encode(), timeout=timeout_s + TIMEOUT_S)
        return told.stdout.split() or None
