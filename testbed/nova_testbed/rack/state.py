"""The state of a rack on disk, and the names by which its parts are found again.

The number of a rack determines its names and addresses; the process that creates its bridge owns
the number.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from nova_core.errors import NovaError
from nova_testbed.inventory import Inventory, Link

Emulation = Literal["switch", "netem"]

# Ranges for tests of network equipment (RFC 2544): no local network uses them.
MANAGEMENT_RANGE = "198.18"
DATA_RANGE = "198.19"
MOST_RACKS = 256
MOST_HOSTS = 250
# User ids of hosts; nothing else uses this range (systemd, UIDS-GIDS).
FIRST_USER = 1_900_000_000
FIRST_HOST = 2
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
PREFIX = "novarack"
# Marks routes, in `ip route show proto 186`.
ROUTE_PROTOCOL = 186
# Processes of a rack carry it in their environment: NUMBER:PART, a part being a host or the switch.
MARK = "NOVA_RACK"
SWITCH_PART = "switch:"
LOCK_SECONDS = 60.0


# All that may be in a state directory, besides temporary files, whose names start with a dot.
FILES = {
    *("rack.json", "id_ed25519", "id_ed25519.pub", "known_hosts", "switch.conf", "switch.log"),
    *("switch.socket", "logs", "disks", "kept"),
}


class RackError(NovaError):
    """A virtual rack that cannot be brought up, changed or removed."""


class RackWarning(UserWarning):
    """A rack that works, but less exactly than it could."""


@dataclass(frozen=True)
class Names:
    """The names of a rack's parts.

    Attributes:
        number: of the rack, unique on the machine.
    """

    number: int

    @property
    def prefix(self) -> str:
        """Prefix of cgroups, network devices and the table of the packet filter."""
        return f"{PREFIX}{self.number}"

    @property
    def bridge(self) -> str:
        """The device of the management network; its alias is the state directory."""
        return f"{self.prefix}br"

    @property
    def management_network(self) -> str:
        """The network of controller and hosts, without delays."""
        return f"{MANAGEMENT_RANGE}.{self.number}.0/24"

    @property
    def data_network(self) -> str:
        """The network among hosts, with delays."""
        return f"{DATA_RANGE}.{self.number}.0/24"

    @property
    def controller(self) -> str:
        """The controller's address."""
        return f"{MANAGEMENT_RANGE}.{self.number}.1"

    @property
    def fabric(self) -> str:
        """The namespace that joins the data network where netem delays it."""
        return f"{self.prefix}:fabric"

    @property
    def user(self) -> int:
        """The user and group id of all that runs on its hosts."""
        return FIRST_USER + self.number

    def namespace(self, host: str) -> str:
        """The namespace of a host's network."""
        return f"{self.prefix}-{host}"

    def port(self, index: int) -> str:
        """The bridge's side of a host's management device."""
        return f"{self.prefix}m{index}"

    def management(self, index: int) -> str:
        """A host's address in the management network."""
        return f"{MANAGEMENT_RANGE}.{self.number}.{index + FIRST_HOST}"

    def data(self, index: int) -> str:
        """A host's address in the data network, which all programs use."""
        return f"{DATA_RANGE}.{self.number}.{index + FIRST_HOST}"


def pattern_of(number: int | None) -> str:
    """A regular expression for the number of a rack; None is any."""
    return r"\d+" if number is None else str(number)


class HostRecord(msgspec.Struct, frozen=True):
    """A host of a rack and its limits in force (cores, bytes; None is unlimited)."""

    name: str
    cpu: float | None
    memory: int | None


class RackRecord(msgspec.Struct, frozen=True):
    """A rack and its current state.

    Attributes:
        name: of the inventory.
        number: see `Names`.
        emulation: what delays packets.
        disks: directory with one directory per host, outside of the state directory where that
            cannot hold the upper layer of an overlay.
        complete: False until all of it has come up.
        guarded: whether a packet filter keeps this machine's other users from it.
        hosts: in the order of the inventory.
        links: in force; pairs that are not named have ``Link()``.
    """

    name: str
    number: int
    emulation: Emulation
    disks: str
    complete: bool
    hosts: tuple[HostRecord, ...]
    links: tuple[tuple[str, str, Link], ...]
    guarded: bool = False

    @property
    def names(self) -> Names:
        """The names of its parts."""
        return Names(self.number)

    def index(self, host: str) -> int:
        """A host's position.

        Raises:
            RackError: for an unknown name.
        """
        for index, record in enumerate(self.hosts):
            if record.name == host:
                return index
        known = ", ".join(record.name for record in self.hosts)
        raise RackError(f"rack {self.name}: no host {host!r}; there are {known}")

    def pairs(self) -> Iterator[tuple[int, int, Link]]:
        """Each unordered pair of hosts once, with its link in force."""
        links = {(a, b): link for a, b, link in self.links}
        for i, a in enumerate(self.hosts):
            for j in range(i + 1, len(self.hosts)):
                yield i, j, links.get((a.name, self.hosts[j].name), Link())

    def with_link(self, a: str, b: str, link: Link) -> RackRecord:
        """The same rack with another link between two hosts.

        Raises:
            RackError: for an unknown name, or one host named twice.
        """
        i, j = sorted((self.index(a), self.index(b)))
        if i == j:
            raise RackError(f"rack {self.name}: a link needs two hosts, not {a} twice")
        first, second = self.hosts[i].name, self.hosts[j].name
        rest = tuple(entry for entry in self.links if entry[:2] != (first, second))
        return msgspec.structs.replace(self, links=(*rest, (first, second, link)))

    def with_host(self, host: HostRecord) -> RackRecord:
        """The same rack with other limits for a host."""
        hosts = tuple(host if known.name == host.name else known for known in self.hosts)
        return msgspec.structs.replace(self, hosts=hosts)


def record_of(inventory: Inventory, number: int, emulation: Emulation, disks: Path) -> RackRecord:
    """The record of a rack that is not created yet.

    Raises:
        RackError: for an inventory that a rack cannot implement.
    """
    if not inventory.virtual:
        raise RackError(
            f"inventory {inventory.name}: its hosts are real; a rack needs one that is virtual"
        )
    if not 1 <= len(inventory.hosts) <= MOST_HOSTS:
        raise RackError(
            f"inventory {inventory.name}: {len(inventory.hosts)} hosts; a virtual rack has 1 to "
            f"{MOST_HOSTS}"
        )
    for host in inventory.hosts:
        if not NAME.fullmatch(host.name):
            raise RackError(
                f"inventory {inventory.name}: host {host.name!r}; the name of a virtual host is "
                "made of letters, digits and hyphens inside, at most 63"
            )
    return RackRecord(
        name=inventory.name,
        number=number,
        emulation=emulation,
        disks=str(disks),
        complete=False,
        hosts=tuple(HostRecord(host.name, host.cpu, host.memory) for host in inventory.hosts),
        links=tuple((a, b, link) for (a, b), link in inventory.links.items()),
    )


class StateDirectory:
    """The directory of one rack: its record, keys, configuration and logs; mode 700."""

    def __init__(self, path: Path) -> None:
        # These separate options of an overlay mount, or words of the mount command.
        if re.search(r"[\s,:\\]", str(path)) or len(str(path)) > 200:
            raise RackError(
                f"state directory {path}: at most 200 characters, without spaces , : and \\"
            )
        self.path = path
        self.record_file = path / "rack.json"
        self.key_file = path / "id_ed25519"
        self.known_hosts = path / "known_hosts"
        self.switch_config = path / "switch.conf"
        self.switch_log = path / "switch.log"
        self.logs = path / "logs"

    def create(self) -> None:
        """Make it, and the directories above it.

        Raises:
            RackError: where that is refused.
        """
        make_directory(self.path)
        self.path.chmod(0o700)
        make_directory(self.logs)

    def read(self) -> RackRecord | None:
        """The record; None where there is none.

        Raises:
            RackError: for a record that cannot be read.
        """
        try:
            return msgspec.json.decode(self.record_file.read_bytes(), type=RackRecord)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            raise RackError(
                f"{self.record_file}: {error}; remove this rack with `nova testbed clean`"
            ) from error

    def write(self, record: RackRecord) -> None:
        """Replace the record."""
        replace(self.record_file, msgspec.json.format(msgspec.json.encode(record)))
        give_to_user(self.record_file)

    def is_ours(self) -> bool:
        """Whether it contains only a rack's state; it may be empty or missing."""
        if not self.path.exists():
            return True
        return all(
            entry.name in FILES or entry.name.startswith(".") for entry in self.path.iterdir()
        )

    def remove(self) -> None:
        """Remove a rack's files, and the directory unless it contains others."""
        if not self.path.exists():
            return
        for entry in self.path.iterdir():
            if entry.name in FILES or entry.name.startswith("."):
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def log_of(self, host: str) -> Path:
        """The log of a host's start and of its sshd."""
        return self.logs / f"{host}.log"


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock the racks of a directory against other commands.

    Raises:
        RackError: when another command keeps the lock for a minute.
    """
    make_directory(directory)
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise RackError(
                        f"another command has been at work on the racks in {directory} for "
                        f"{LOCK_SECONDS:.0f} s; try again when it is done"
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory, and those above it, unless it exists.

    Raises:
        RackError: where that is refused.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RackError(f"state directory {path}: {error.strerror}") from error


def replace(file: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Write a file under a temporary name, then rename it."""
    data = content.encode() if isinstance(content, str) else content
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
    temporary.replace(file)


def give_to_user(path: Path) -> None:
    """Make the user who called sudo the owner of a file or directory."""
    user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if os.geteuid() == 0 and user and group and path.exists():
        os.chown(path, int(user), int(group))


def user_id() -> int:
    """The user who brings racks up: the caller of sudo, or the current user."""
    return int(os.environ.get("SUDO_UID") or os.getuid())


def nova_home() -> Path:
    """Where engines are installed, per user."""
    base = os.environ.get("NOVA_HOME")
    return Path(base).expanduser() if base else Path.home() / ".local" / "share" / "nova"


def default_state_root() -> Path:
    """Where racks keep their state directories, per user."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "nova" / "racks"
