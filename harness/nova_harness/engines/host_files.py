"""Small files on connected hosts: orders to sources, and what sinks have noted."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nova_testbed.hosts import Hosts

# Of one file. A host that takes longer does not answer.
TIMEOUT_S = 10.0


class HostFiles:
    """See `nova_engines.source_orders.Files`.

    Args:
        hosts: connected; nodes are called like hosts.
    """

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts

    def write(self, node: str, path: str, text: str) -> None:
        """Put a file there, whole or not at all.

        Raises:
            HostError: naming the host.
        """
        file, part = shlex.quote(path), shlex.quote(f"{path}.part")
        parent = shlex.quote(str(PurePosixPath(path).parent))
        command = f"mkdir -p {parent} && cat >{part} && mv {part} {file}"
        self.hosts[node].run(command, stdin=text.encode(), timeout=TIMEOUT_S)

    def read(self, node: str, path: str) -> str | None:
        """What a file holds; None where it is not there.

        Raises:
            HostError: naming the host.
        """
        file = shlex.quote(path)
        # A file may be replaced between two looks, but not be half there.
        command = f"if [ -e {file} ]; then cat {file}; else exit 3; fi"
        answer = self.hosts[node].run(command, check=False, timeout=TIMEOUT_S)
        return answer.stdout if answer.returncode == 0 else None
