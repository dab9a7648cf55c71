"""Check which requirements of the test bed the hosts meet, and name remedies."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nova_core.programs import PROGRAMS
from nova_testbed import netem
from nova_testbed.connection import HostError
from nova_testbed.emulation import runner
from nova_testbed.host import Host
from nova_testbed.hosts import Hosts
from nova_testbed.inventory import Inventory
from nova_testbed.probing import clock_offset

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
# Bits of `vcgencmd get_throttled`; 16 bits higher, what happened since the start.
THROTTLED = {0: "under-voltage", 1: "frequency capped", 2: "throttled", 3: "too hot"}


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
        if inventory.has_links:
            findings.append(_netem(host))
        findings += [_memory_limits(host), _clock(host), *_throttling(host)]
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
    needed = inventory.has_links
    try:
        host.run("true", root=True)
    except HostError as error:
        reason = str(error).removeprefix(f"{host.name}: ")
        return Finding(host.name, "root", False, needed, reason)
    return Finding(host.name, "root", True, needed, "root" if host.is_root else "through sudo")


def _netem(host: Host) -> Finding:
    try:
        lacking = sorted({"htb", "u32", "netem"} - netem.supported(runner(host)))
        detail = f"without {', '.join(lacking)}" if lacking else ""
    except netem.NetemError as error:
        detail = str(error)
    return Finding(
        host.name,
        "netem",
        not detail,
        True,
        detail,
        f"{PROGRAMS['tc'].on_debian}; modprobe -a sch_netem sch_htb cls_u32",
        "" if "tc" in host.programs else PROGRAMS["tc"].apt,
    )


def _memory_limits(host: Host) -> Finding:
    # The first file is there where groups are of version 2. The kernel's parameter
    # `cgroup_disable=memory`, Raspberry Pi OS's default, shows as 0 in the second one.
    question = "cat /sys/fs/cgroup/cgroup.controllers || echo version 1; cat /proc/cgroups"
    first, *table = host.run(question, check=False).stdout.splitlines() or [""]
    enabled = {words[0]: words[-1] == "1" for words in map(str.split, table) if words}
    version_2 = first != "version 1"
    ok = enabled.get("memory", version_2) and (not version_2 or "memory" in first.split())
    return Finding(
        host.name,
        "memory limits",
        ok,
        False,
        "" if ok else "memory control groups are off",
        "add cgroup_enable=memory cgroup_memory=1 to /boot/firmware/cmdline.txt and reboot",
    )


def _clock(host: Host) -> Finding:
    """Whether the clock agrees with this machine's, and keeps the time while the power is off."""
    try:
        fault, remedy = clock_offset(host).fault.partition("; ")[::2]
    except HostError as error:
        fault, remedy = str(error).removeprefix(f"{host.name}: "), ""
    if not fault and not host.run("ls /sys/class/rtc 2>/dev/null", check=False).stdout.strip():
        synchronised = host.run("timedatectl show -P NTPSynchronized 2>/dev/null", check=False)
        if synchronised.stdout.strip() == "no":
            fault = "no clock chip (RTC), and not synchronised: wrong after the next start"
            remedy = PROGRAMS["chronyc"].on_debian
    return Finding(host.name, "clock", not fault, False, fault, remedy)


def _throttling(host: Host) -> list[Finding]:
    """Whether a Raspberry Pi is slowed down; nothing of other hosts."""
    result = host.run("vcgencmd get_throttled", check=False)
    if result.returncode == 127:
        return []
    found = re.fullmatch(r"throttled=0x([0-9a-fA-F]+)", result.stdout.strip())
    if found is None:
        detail = f"vcgencmd does not say: {result.last_words}"
    else:
        bits = int(found[1], 16)
        now = [text for bit, text in THROTTLED.items() if bits >> bit & 1]
        since = [text for bit, text in THROTTLED.items() if bits >> (bit + 16) & 1]
        parts = [f"now: {', '.join(now)}"] if now else []
        parts += [f"since its start: {', '.join(since)}"] if since else []
        detail = "; ".join(parts)
    remedy = "a stronger power supply, or cooling"
    return [Finding(host.name, "full speed", not detail, False, detail, remedy)]
