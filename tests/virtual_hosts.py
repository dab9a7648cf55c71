"""What tests do to virtual hosts as root of this machine; on a host nobody is root."""

from __future__ import annotations

import subprocess
from pathlib import Path

from nova_testbed.host import Host
from nova_testbed.rack.network import NETNS
from nova_testbed.rack.processes import in_namespaces
from nova_testbed.rack.state import Names


def run_as_root(host: Host, command: str) -> bool:
    """Run a command of this machine's root that sees a host's files; whether it worked."""
    number = int(host.spec.address.split(".")[2])
    inside = in_namespaces([NETNS / Names(number).namespace(host.name)])
    own = Path("/proc/self/ns/mnt").readlink()
    pid = next(pid for pid in inside if _mounts_of(pid) not in (None, own))
    enter = ["nsenter", "--mount", f"--target={pid}", "sh", "-c", command]
    return subprocess.run(enter).returncode == 0


def _mounts_of(pid: int) -> Path | None:
    """A process's mount namespace; None of one that has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/ns/mnt").readlink()
    except FileNotFoundError:
        return None
