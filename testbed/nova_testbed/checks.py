"""Check which requirements of the test bed the hosts meet, and name remedies."""

from __future__ import annotations

from dataclasses import dataclass

from nova_core.programs import PROGRAMS
from nova_testbed import netem
from nova_testbed.connection import HostError
from nova_testbed.emulation import runner
from nova_testbed.host import Host
from nova_testbed.hosts import Hosts
from nova_testbed.inventory import Inventory, Link

# Programs on hosts, and whether a host is unusable without them.
HOST_PROGRAMS = {
    "tar": True,
    "setsid": True,
    "python3": True,
    "rsync": False,
    "stress-ng": False,
    "chronyc": False,
}
LEAST_PYTHON = (3, 8)
LEAST_FREE = 1 << 30


@dataclass(frozen=True)
class Finding:
    """One capability of a host, present or missing.

    Attributes:
        host: its name.
        name: what it is.
        ok: whether it is present.
        needed: whether the host is unusable without it.
        detail: what was detected, or its purpose.
        remedy: how to get it.
        package: Debian package that contains it; empty where none does.
    """

    host: str
    name: str
    ok: bool
    needed: bool
    detail: str = ""
    remedy: str = ""
    package: str = ""


def check_host(host: Host, inventory: Inventory) -> list[Finding]:
    """All findings on one host; a failed connection is a finding, too."""
    try:
        host.connection.open()
    except HostError as error:
        reason = str(error).removeprefix(f"{host.name}: ")
        return [Finding(host.name, "SSH", False, True, reason)]
    findings = [Finding(host.name, "SSH", True, True, f"{host.spec.user}@{host.spec.address}")]
    for name, needed in HOST_PROGRAMS.items():
        if name == "chronyc" and inventory.virtual:
            continue  # the hosts share one clock
        ok = name in host.programs
        program = PROGRAMS[name]
        detail = "" if ok else f"for {program.purpose}"
        remedy = program.on_debian
        findings.append(Finding(host.name, name, ok, needed, detail, remedy, program.apt))
    findings += [_python(host), _disk(host)]
    if not inventory.virtual:
        findings.append(_root(host, inventory))
        if _wants_links(inventory):
            findings.append(_netem(host))
        findings.append(_memory_limits(host))
    return findings


def check_hosts(hosts: Hosts) -> list[Finding]:
    """`check_host` on all hosts at the same time."""
    by_host = hosts.map(lambda host: check_host(host, hosts.inventory))
    return [finding for findings in by_host.values() for finding in findings]


def install_command(findings: list[Finding]) -> str:
    """The command that installs missing packages, to run as root on the hosts; may be empty."""
    packages = dict.fromkeys(f.package for f in findings if not f.ok and f.package)
    return f"apt-get install -y {' '.join(packages)}" if packages else ""


def _python(host: Host) -> Finding:
    output = host.run("python3 -c 'import sys; print(*sys.version_info[:2])'", check=False)
    words = output.stdout.split()
    ok = len(words) == 2 and (int(words[0]), int(words[1])) >= LEAST_PYTHON
    version = ".".join(words) or "none"
    least = ".".join(map(str, LEAST_PYTHON))
    return Finding(host.name, f"Python {least}", ok, True, version, "install a newer python3")


def _disk(host: Host) -> Finding:
    output = host.run("df -Pk /tmp | tail -n 1").stdout.split()
    free = 1024 * int(output[3])
    ok = free >= LEAST_FREE
    return Finding(
        host.name,
        "1 GiB free",
        ok,
        False,
        "" if ok else f"{free / 2**30:.1f} GiB in /tmp",
        "free some space",
    )


def _root(host: Host, inventory: Inventory) -> Finding:
    needed = _wants_links(inventory)
    try:
        host.run("true", root=True)
    except HostError as error:
        reason = str(error).removeprefix(f"{host.name}: ")
        return Finding(host.name, "root", False, needed, reason)
    return Finding(host.name, "root", True, needed, "root" if host.is_root else "through sudo")


def _netem(host: Host) -> Finding:
    lacking = {"htb", "u32", "netem"} - netem.supported(runner(host))
    return Finding(
        host.name,
        "netem",
        not lacking,
        True,
        f"without {', '.join(sorted(lacking))}" if lacking else "",
        f"{PROGRAMS['tc'].on_debian}; modprobe -a sch_netem sch_htb cls_u32",
        "" if "tc" in host.programs else PROGRAMS["tc"].apt,
    )


def _memory_limits(host: Host) -> Finding:
    output = host.run("cat /sys/fs/cgroup/cgroup.controllers /proc/cgroups", check=False).stdout
    ok = any(
        "memory" in line.split() or (line.split()[:1] == ["memory"] and line.split()[-1] == "1")
        for line in output.splitlines()
    )
    return Finding(
        host.name,
        "memory limits",
        ok,
        False,
        "" if ok else "memory control groups are off",
        "add cgroup_enable=memory cgroup_memory=1 to /boot/firmware/cmdline.txt and reboot",
    )


def _wants_links(inventory: Inventory) -> bool:
    return any(link != Link() for _, _, link in inventory.pairs())
