"""Check which requirements of a virtual rack this machine meets, and name remedies."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from importlib.util import find_spec

import nova_testbed.rack.cgroups as cgroups
from nova_core import extras, programs
from nova_testbed import netem
from nova_testbed.rack.privileges import is_root, sudo_works
from nova_testbed.rack.processes import local_run

# Each line is tried as root, in temporary namespaces, and prints its name if it works.
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
UNTRIED = "not tried without root"
# Prefix of the names of capabilities that are programs.
PROGRAM = "program "
_CONTAINER = "in a container, start it with --privileged"


@dataclass(frozen=True)
class Capability:
    """A capability that a rack needs or profits from.

    Attributes:
        name: what it is.
        ok: whether it is present.
        needed: whether a rack is impossible without it, not only worse or different.
        detail: what was detected, or the effect of its absence.
        remedy: how to get it where it is missing; a command where one suffices.
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
    items = [
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
        items.append(Capability(name, ok, needed, "" if ok else untried or without, remedy))
    items += _limits()
    has = _disciplines() if root else worked & {"htb", "u32", "netem"}
    items.append(
        Capability(
            "netem",
            len(has) == 3,
            False,
            "" if len(has) == 3 else untried or "a switch in user space delays packets instead",
            "modprobe -a sch_netem sch_htb cls_u32",
        )
    )
    items += _programs()
    return tuple(items)


def missing(checked: tuple[Capability, ...] | None = None) -> str | None:
    """One line with the reasons why no rack is possible here and the remedies; None if one is."""
    items = checked or capabilities()
    wanting = [one for one in items if one.needed and not one.ok and one.detail != UNTRIED]
    if not wanting:
        return None
    install = install_command(items)
    texts = [f"{item.name} ({item.detail})" for item in wanting]
    remedies = [item.remedy for item in wanting if not item.name.startswith(PROGRAM)]
    if install:
        remedies.append(install)
    return f"no virtual rack here: {', '.join(texts)}; {'; '.join(dict.fromkeys(remedies))}"


def install_command(checked: tuple[Capability, ...], optional: bool = False) -> str:
    """The command that installs the missing programs; empty if none is missing."""
    names = [
        item.name.removeprefix(PROGRAM)
        for item in checked
        if item.name.startswith(PROGRAM) and not item.ok and (item.needed or optional)
    ]
    return programs.install_command(programs.PROGRAMS[name] for name in names)


def _worked(sudo: bool) -> set[str]:
    procs = str(cgroups.realtime_group() or "")
    command = ["sudo", "-n"] if sudo else []
    result = subprocess.run([*command, "sh", "-c", _TRIALS, procs], text=True, capture_output=True)
    names = set(result.stdout.split())
    if sudo:
        names |= _disciplines()
    return names


def _disciplines() -> set[str]:
    """What the kernel has to delay packets; where it cannot be tried, another finding says why."""
    try:
        return netem.supported(local_run)
    except netem.NetemError:
        return set()


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
    items = []
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
        items.append(Capability(PROGRAM + name, path is not None, needed, detail, install))
    library = find_spec("cryptography") is not None
    items.append(
        Capability(
            "cryptography",
            library,
            True,
            "" if library else "the Python package is not installed",
            extras.install_command("testbed"),
        )
    )
    return items
