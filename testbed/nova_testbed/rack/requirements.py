"""What this machine can do of what a virtual rack needs, and what would help where it cannot."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from nova_testbed import netem
from nova_testbed.rack import cgroups
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
_CONTAINER = "in a container, start it with --privileged"
# Packages with a program, for Debian's apt, Fedora's dnf and Arch's pacman.
_PACKAGES: dict[str, tuple[str, str, str]] = {
    "sshd": ("openssh-server", "openssh-server", "openssh"),
    "ssh": ("openssh-client", "openssh-clients", "openssh"),
    "ip": ("iproute2", "iproute", "iproute2"),
    "tc": ("iproute2", "iproute-tc", "iproute2"),
    "bridge": ("iproute2", "iproute", "iproute2"),
    "unshare": ("util-linux", "util-linux", "util-linux"),
    "nsenter": ("util-linux", "util-linux", "util-linux"),
    "setpriv": ("util-linux", "util-linux", "util-linux"),
    "cc": ("gcc libc6-dev", "gcc", "gcc"),
}
_MANAGERS = (
    ("apt-get", "apt-get install -y --no-install-recommends"),
    ("dnf", "dnf install -y"),
    ("pacman", "pacman -S --noconfirm"),
)


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
    remedies = [item.remedy for item in wanting if not item.name.startswith("program")]
    if install:
        remedies.append(install)
    return f"no virtual rack here: {', '.join(texts)}; {'; '.join(dict.fromkeys(remedies))}"


def install_command(found: tuple[Capability, ...] | None = None, optional: bool = False) -> str:
    """The one command that installs the programs that are missing; empty if none is."""
    return package_command(packages(found, optional))


def packages(
    found: tuple[Capability, ...] | None = None, optional: bool = False
) -> list[tuple[str, str, str]]:
    """Packages of the programs that are missing, named for apt, dnf and pacman."""
    return [
        _PACKAGES[item.name.removeprefix("program ")]
        for item in found or capabilities()
        if item.name.startswith("program") and not item.ok and (item.needed or optional)
    ]


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
    without = {"cc": "the switch will be the slower one, in Python", "tc": "no netem"}
    for name in _PACKAGES:
        path = _which(name)
        detail = path or without.get(name, "not installed")
        needed = name not in without
        found.append(
            Capability(f"program {name}", path is not None, needed, detail, _install([name]))
        )
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


def _which(name: str) -> str | None:
    # A user's PATH may lack the directories of programs for root.
    names = ("cc", "gcc", "clang") if name == "cc" else (name,)
    for candidate in names:
        path = shutil.which(candidate) or shutil.which(candidate, path="/usr/sbin:/sbin")
        if path:
            return path
    return None


def _install(names: list[str]) -> str:
    return package_command([_PACKAGES[name] for name in names])


def package_command(wanted: list[tuple[str, str, str]]) -> str:
    """The one command that installs packages; empty for none.

    Args:
        wanted: their names for Debian's apt, Fedora's dnf and Arch's pacman.
    """
    column, command = _manager()
    packages = dict.fromkeys(names[column] for names in wanted)
    if not packages:
        return ""
    prefix = "" if is_root() else "sudo "
    return f"{prefix}{command} {' '.join(packages)}"


@cache
def _manager() -> tuple[int, str]:
    for column, (program, command) in enumerate(_MANAGERS):
        if shutil.which(program):
            return column, command
    return 0, "install with your package manager:"
