"""What this machine can do of what a virtual rack needs, and what would help where it cannot."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from importlib.util import find_spec

import nova_testbed.rack.cgroups as cgroups
from nova_core import programs
from nova_testbed import netem
from nova_testbed.rack.privileges import is_root, sudo_works
from nova_testbed.rack.processes import local_run

# Each line is tried as root, in namespaces that go with it, and prints its name if it works.
_TRIALS = r"""
exec 2>/dev/null
unshare --net --uts --mount --pid --ipc --fork true && echo namespaces
unshare --net sh -c 'ip link add b0 type bridge && ip link add v0 type veth peer name v1 &&
ip link set v0 master b0 && bridge link set dev v0 isolated on' && echo bridge
[ -c /dev/net/tun ] && unshare --net ip tuntap add dev t0 mode tun && echo tun
unshare --mount sh -c 'mount -t tmpfs tmpfs /mnt && mkdir /mnt/upper /mnt/work /mnt/root &&
mount -t overlay probe -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root' &&
echo overlay
if [ -n "$0" ]; then echo 0 >"$0"; fi
chrt -f 50 true && echo realtime
true
"""
UNTRIED = "not tried, for want of root"
# What the name of a capability begins with that is a program.
PROGRAM = "program "
_CONTAINER = "in a container, start it with --privileged"


@dataclass(frozen=True)
class Capability:
    """One thing a rack needs or profits from.

    Attributes:
        name: what it is.
        ok: whether it is here.
        needed: whether there is no rack without it; else it is done less well, or otherwise.
        detail: what was found, or what is done without it.
        remedy: what would help where it is missing; a command where one will do.
    """

    name: str
    ok: bool
    needed: bool
    detail: str = ""
    remedy: str = ""


def capabilities() -> tuple[Capability, ...]:
    """Try everything that a virtual rack needs; leaves nothing behind."""
    root = is_root()
    sudo = not root and sudo_works()
    detail = {(True, False): "", (False, True): "through sudo"}.get(
        (root, sudo), "neither root nor sudo without a password"
    )
    found = [
        Capability("root", root or sudo, True, detail, "run as root, or `sudo -v` first"),
    ]
    worked = _worked(sudo) if root or sudo else set()
    untried = "" if root or sudo else UNTRIED
    for name, needed, without, remedy in (
        ("namespaces", True, "the kernel refuses them", _CONTAINER),
        ("bridge", True, "no bridge or veth devices", "modprobe -a bridge veth"),
        ("tun", True, "no /dev/net/tun", "modprobe tun"),
        ("overlay", True, "no overlay file system", "modprobe overlay"),
        ("realtime", False, "other programs will show in the delays", _CONTAINER),
    ):
        ok = name in worked
        found.append(Capability(name, ok, needed, "" if ok else untried or without, remedy))
    found += _limits()
    has = netem.supported(local_run) if root else worked & {"htb", "u32", "netem"}
    found.append(
        Capability(
            "netem",
            len(has) == 3,
            False,
            "" if len(has) == 3 else untried or "a switch in user space delays packets instead",
            "modprobe -a sch_netem sch_htb cls_u32",
        )
    )
    found += _programs()
    return tuple(found)


def missing(found: tuple[Capability, ...] | None = None) -> str | None:
    """One line that says why there can be no rack here and what would help; None if there can."""
    wanting = [item for item in found or capabilities() if item.needed and not item.ok]
    wanting = [item for item in wanting if item.detail != UNTRIED]
    if not wanting:
        return None
    install = install_command(found)
    texts = [f"{item.name} ({item.detail})" for item in wanting]
    remedies = [item.remedy for item in wanting if not item.name.startswith(PROGRAM)]
    if install:
        remedies.append(install)
    return f"no virtual rack here: {', '.join(texts)}; {'; '.join(dict.fromkeys(remedies))}"


def install_command(found: tuple[Capability, ...] | None = None, optional: bool = False) -> str:
    """The one command that installs the programs that are missing; empty if none is."""
    names = [
        item.name.removeprefix(PROGRAM)
        for item in found or capabilities()
        if item.name.startswith(PROGRAM) and not item.ok and (item.needed or optional)
    ]
    return programs.install_command(programs.PROGRAMS[name] for name in names)


def _worked(sudo: bool) -> set[str]:
    groups = cgroups.detect()
    # Kernels with RT_GROUP_SCHED refuse real-time priority in other cgroups than the root.
    procs = ""
    if isinstance(groups, cgroups.CgroupsV1) and "cpu" in groups.mounts:
        procs = str(groups.mounts["cpu"] / "cgroup.procs")
    command = ["sudo", "-n"] if sudo else []
    done = subprocess.run([*command, "sh", "-c", _TRIALS, procs], text=True, capture_output=True)
    found = set(done.stdout.split())
    if sudo:
        found |= netem.supported(local_run)
    return found


def _limits() -> list[Capability]:
    groups = cgroups.detect()
    have = groups.controllers() if groups is not None else set()
    version = f"cgroup v{groups.version}" if groups is not None else ""
    return [
        Capability(
            f"{name} limits",
            name in have,
            False,
            version if name in have else f"no cgroup controller for {name}: no such limits",
            remedy,
        )
        for name, remedy in (
            ("cpu", _CONTAINER),
            (
                "memory",
                "on a Raspberry Pi: add cgroup_enable=memory cgroup_memory=1 to "
                "/boot/firmware/cmdline.txt and reboot",
            ),
        )
    ]


def _programs() -> list[Capability]:
    found = []
    without = {
        "nft": "any user of this machine can reach the hosts",
        "tc": "no netem",
    }
    for name in (*programs.RACK, *programs.RACK_PROFITS):
        program = programs.PROGRAMS[name]
        path = program.path
        detail = path or without.get(name, "not installed")
        install = programs.install_command([program])
        needed = name in programs.RACK
        found.append(Capability(PROGRAM + name, path is not None, needed, detail, install))
    library = find_spec("cryptography") is not None
    found.append(
        Capability(
            "cryptography",
            library,
            True,
            "" if library else "the Python package is not installed",
            "pip install 'nova-placement[testbed]'",
        )
    )
    return found
