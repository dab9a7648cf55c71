"""What tests do to virtual hosts as root of this machine; on a host nobody is root."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from nova_testbed.host import Host
from nova_testbed.rack.network import NETNS
from nova_testbed.rack.processes import in_namespaces
from nova_testbed.rack.state import Names


def run_as_root(host: Host, command: str) -> bool:
    """Run a command of this machine's root that sees a host's files; whether it worked."""
    own = Path("/proc/self/ns/mnt").readlink()
    pid = next(pid for pid in _inside(host) if _mounts_of(pid) not in (None, own))
    enter = ["nsenter", "--mount", f"--target={pid}", "sh", "-c", command]
    return subprocess.run(enter).returncode == 0


def stop_ssh(host: Host) -> None:
    """Stop a host's sshd and those of its sessions as SIGSTOP does, and leave them so."""
    for pid in _inside(host):
        with suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/comm").read_text().startswith("sshd"):
                os.kill(pid, signal.SIGSTOP)


def _inside(host: Host) -> Collection[int]:
    number = int(host.spec.address.split(".")[2])
    return in_namespaces([NETNS / Names(number).namespace(host.name)])


def _mounts_of(pid: int) -> Path | None:
    """A process's mount namespace; None of one that has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/ns/mnt").readlink()
    except FileNotFoundError:
        return None
