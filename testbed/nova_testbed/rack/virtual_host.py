"""One host of a rack: its disk, and the process that becomes it."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from nova_core.errors import NovaError
from nova_testbed.rack.keys import make_key
from nova_testbed.rack.network import NETNS
from nova_testbed.rack.processes import last_message, marked, spawn
from nova_testbed.rack.state import RackError, RackRecord, StateDirectory, nova_home

HOSTINIT = Path(__file__).with_name("hostinit.sh")
SSH_DIRECTORY = "etc/ssh/nova"
# The only user of a host.
USER = "nova"
HOME = "var/lib/nova-host"
# Kinds of file systems whose mounts hosts see too, each through an overlay of its own.
SHOWN_TYPES = {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "overlay", "9p", "virtiofs"}
SHOWN_TYPES |= {"nfs", "nfs4", "bcachefs"}
HIDDEN_MOUNTS = (
    *("/proc", "/sys", "/dev", "/run", "/tmp", "/boot", "/snap", "/mnt", "/media"),
    *("/var/lib/docker", "/var/lib/containers", "/var/lib/kubelet", "/var/lib/lxcfs"),
)
START_SECONDS = 20.0
OVERLAY_PROBE = """mkdir "$0/upper" "$0/work" "$0/root" &&
mount -t overlay probe -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" "$0/root" &&
touch "$0/root/probe" """


def hidden_and_shown(needed: Iterable[Path] | None = None) -> tuple[list[str], list[str]]:
    """Directories that hosts do not see, and those among them that they must see.

    Args:
        needed: directories that hosts must see; by default those with programs of experiments.

    Returns:
        Directories that hosts see empty: root's home, and parents of needed directories that not
        everybody may enter. And the needed directories that hosts would not see otherwise.
    """
    if needed is None:
        packages = Path(inspect.getfile(NovaError)).parents[1]
        needed = (Path(sys.prefix), Path(sys.base_prefix), packages, nova_home())
    hidden = {Path("/root")}
    directories = [path.resolve() for path in needed if path.is_dir()]
    for path in directories:
        closed = (above for above in reversed(path.parents) if not above.stat().st_mode & 0o001)
        hidden.update([*closed][:1])
    unseen = {Path(own) for own in HIDDEN_MOUNTS} | hidden
    shown = {path for path in directories if any(path.is_relative_to(top) for top in unseen)}
    shown = {path for path in shown if shown.isdisjoint(path.parents)}
    return sorted(map(str, hidden)), sorted(map(str, shown))


def make_disk_directory(state: StateDirectory, rack: str) -> Path:
    """Make a directory for the hosts' disks, on a file system that can take them.

    Args:
        state: the first choice.
        rack: prefix of the names of the rack's parts.

    Raises:
        RackError: where there is none.
    """
    tried = []
    for parent in (state.path, Path("/var/tmp"), Path("/dev/shm")):
        directory = parent / ("disks" if parent == state.path else rack)
        if parent.is_dir() and holds_upper_layers(parent):
            try:
                # Everybody may write to the second and third choice: it must not exist.
                directory.mkdir(mode=0o700)
            except OSError as error:
                raise RackError(f"{directory}: cannot be made: {error.strerror}") from error
            return directory
        tried.append(str(parent))
    raise RackError(
        f"none of {', '.join(tried)} can hold the upper layer of an overlay: give a state "
        "directory on ext4, xfs, btrfs or tmpfs (in a container: on a volume)"
    )


def holds_upper_layers(directory: Path) -> bool:
    """Whether hosts' disks may lie in a directory; tried in a mount namespace of its own."""
    probe = directory / f".probe{os.getpid()}"
    try:
        probe.mkdir()
        command = ["unshare", "--mount", "sh", "-c", OVERLAY_PROBE, str(probe)]
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False
    finally:
        shutil.rmtree(probe, ignore_errors=True)


def make_disk(record: RackRecord, state: StateDirectory, host: str, login_key: str) -> str:
    """Make a host's upper layer with what differs from this machine; one that exists stays.

    Returns:
        The host's public key.
    """
    disk = Path(record.disks) / host
    key_file = disk / "upper" / SSH_DIRECTORY / "host_key"
    if key_file.exists():
        return make_key(key_file, host)
    for name in ("upper", "work", "root", "tmp"):
        (disk / name).mkdir(parents=True, exist_ok=True)
    (disk / "tmp").chmod(0o1777)
    for number, point in enumerate(shown_mounts(str(state.path))):
        more = disk / "more" / str(number)
        for name in ("upper", "work"):
            (more / name).mkdir(parents=True, exist_ok=True)
        _like(Path(point), more / "upper")
    upper = disk / "upper"
    ssh = _directory(upper, SSH_DIRECTORY)
    names, own = record.names, record.index(host)
    home = _directory(upper, HOME)
    home.chmod(0o700)
    os.chown(home, names.user, names.user)
    _directory(upper, "etc")
    known = "".join(f"{names.data(i)} {other.name}\n" for i, other in enumerate(record.hosts))
    ids = f"{USER}:x:{names.user}:{names.user}"
    for file, text, mode in (
        ("etc/hosts", f"127.0.0.1 localhost\n{known}", 0o644),
        ("etc/hostname", f"{host}\n", 0o644),
        ("etc/passwd", _with(Path("/etc/passwd"), f"{ids}::/{HOME}:{_shell()}"), 0o644),
        ("etc/group", _with(Path("/etc/group"), f"{USER}:x:{names.user}:"), 0o644),
        (f"{SSH_DIRECTORY}/authorized_keys", f"{login_key}\n", 0o644),
        (f"{SSH_DIRECTORY}/sshd_config", sshd_config(names.data(own), sshd_version()), 0o644),
    ):
        (upper / file).write_text(text)
        (upper / file).chmod(mode)
    key = make_key(ssh / "host_key", host)
    os.chown(ssh / "host_key", names.user, names.user)
    return key


def start(record: RackRecord, state: StateDirectory, host: str, groups: list[Path]) -> None:
    """Start a host's first process.

    Args:
        record: whose namespaces exist.
        state: its directory.
        host: its name.
        groups: control groups it joins.

    Raises:
        RackError: where it cannot be started.
    """
    names = record.names
    procs = " ".join(str(group / "cgroup.procs") for group in groups)
    command = ["nsenter", f"--net={NETNS / names.namespace(host)}"]
    command += ["unshare", "--uts", "--mount", "--pid", "--ipc", "--fork", "--kill-child"]
    command += ["sh", str(HOSTINIT), host, str(Path(record.disks) / host), str(names.user), procs]
    hidden, shown = hidden_and_shown()
    command += [*shown_mounts(str(state.path)), "--hide", *hidden, "--show", *shown]
    log = state.log_of(host)
    log.unlink(missing_ok=True)
    spawn(command, record.number, host, log=log)


def wait_for_ssh(record: RackRecord, state: StateDirectory, host: str) -> None:
    """Wait until a host's sshd answers.

    Raises:
        RackError: when it does not, with the last line of the host's log.
    """
    address = record.names.data(record.index(host))
    end = time.monotonic() + START_SECONDS
    look = time.monotonic() + 0.1
    while True:
        try:
            with socket.create_connection((address, 22), timeout=1) as connection:
                if connection.recv(4) == b"SSH-":
                    return
        except OSError:
            pass
        time.sleep(0.01)
        if time.monotonic() < look:
            continue
        look = time.monotonic() + 0.2
        ended = host not in marked(record.number)
        if ended or look > end:
            message = last_message(state.log_of(host))
            what = "ends at once" if ended else f"does not answer within {START_SECONDS:.0f} s"
            raise RackError(f"host {host} {what}: {message}")


def sshd_config(address: str, version: tuple[int, int]) -> str:
    """Configuration of a host's sshd: keys only, one user only, its own address only."""
    lines = [
        "Port 22",
        f"ListenAddress {address}",
        f"HostKey /{SSH_DIRECTORY}/host_key",
        f"AuthorizedKeysFile /{SSH_DIRECTORY}/authorized_keys",
        f"AllowUsers {USER}",
        "PubkeyAuthentication yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        # PAM may move a session to another control group.
        "UsePAM no",
        "UseDNS no",
        "StrictModes no",
        # Harnesses open many connections and channels at once.
        "MaxStartups 200",
        "MaxSessions 200",
        "PidFile none",
        "PrintMotd no",
        "Subsystem sftp internal-sftp",
    ]
    if version >= (9, 8):
        lines.append("PerSourcePenalties no")
    return "\n".join(lines) + "\n"


@cache
def sshd_version() -> tuple[int, int]:
    """Version of OpenSSH on this machine; (0, 0) if unknown."""
    try:
        result = subprocess.run(["ssh", "-V"], text=True, capture_output=True)
    except OSError:
        return 0, 0
    match = re.search(r"OpenSSH_(\d+)\.(\d+)", result.stderr)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def shown_mounts(state_directory: str) -> list[str]:
    """Mount points besides ``/`` whose file systems hosts see, too.

    Args:
        state_directory: mount points below it are not shown.
    """
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point, kind = before.split()[4], after.split()[0]
        hidden = any(
            point == top or point.startswith(f"{top}/") for top in (*HIDDEN_MOUNTS, state_directory)
        )
        # Mount options separate paths by these; mountinfo escapes blanks with a backslash.
        if kind in SHOWN_TYPES and point != "/" and not hidden and not set(point) & set("\\,: "):
            points.append(point)
    return sorted(point for point in set(points) if Path(point).is_dir())


def _directory(upper: Path, path: str) -> Path:
    """Make a directory of the upper layer; those above it look as they do on this machine."""
    current = upper
    _like(Path("/"), upper)
    for part in Path(path).parts:
        current = current / part
        if not current.exists():
            current.mkdir()
            _like(Path("/") / current.relative_to(upper), current)
    return current


def _like(model: Path, directory: Path) -> None:
    if model.is_dir():
        status = model.stat()
        directory.chmod(stat.S_IMODE(status.st_mode))
        os.chown(directory, status.st_uid, status.st_gid)
    else:
        directory.chmod(0o755)


def _with(file: Path, account: str) -> str:
    """A file of accounts with one more, which replaces one of the same name."""
    name = account.partition(":")[0]
    lines = [line for line in file.read_text().splitlines() if line.partition(":")[0] != name]
    return "\n".join([*lines, account]) + "\n"


def _shell() -> str:
    return "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
