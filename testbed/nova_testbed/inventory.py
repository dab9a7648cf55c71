"""The inventory: hosts, their limits, and the links between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from nova_core.errors import NovaError
from nova_core.model.problem import Floats

Role = Literal["sink", "source", "worker"]
ROLES: tuple[Role, ...] = get_args(Role)
# Cores that the switch of a virtual rack uses at eight sources of 1 kHz, plus some for the
# controller.
SWITCH_CORES = 0.5


class InventoryError(NovaError):
    """An inventory that cannot be used."""


class InventoryWarning(UserWarning):
    """A usable inventory whose requests cannot all be met."""


@dataclass(frozen=True)
class Link:
    """The link of a pair of hosts, the same in both directions.

    Attributes:
        rtt_ms: round-trip time; half of it each way. 0 adds nothing.
        jitter_ms: each direction's delay varies by this much either way.
        bandwidth_mbit: Mbit/s of each direction; None is unlimited.
        loss_percent: share of packets lost in each direction.
    """

    rtt_ms: float = 0.0
    jitter_ms: float = 0.0
    bandwidth_mbit: float | None = None
    loss_percent: float = 0.0


@dataclass(frozen=True)
class HostSpec:
    """One host.

    Attributes:
        name: unique; also its host name in a virtual rack.
        role: ``sink`` (also the coordinator), ``source`` or ``worker``.
        address: what SSH connects to; empty for a virtual host that is not up.
        port: of its sshd.
        user: who logs in.
        key_file: private key; None uses the SSH agent and the user's own keys.
        known_hosts: file with its host key; None is the user's own ``~/.ssh/known_hosts``.
        proxy: command whose stdin and stdout lead to its sshd, as ``ProxyJump`` in the user's
            ``~/.ssh/config`` asks for; None connects directly.
        device: network interface whose traffic is delayed; None is the one of the default route.
        cpu: cores it may use; None is unlimited.
        memory: bytes it may use; None is unlimited.
        rootless: whether nobody is root there, as on virtual hosts.
    """

    name: str
    role: Role = "worker"
    address: str = ""
    port: int = 22
    user: str = "root"
    key_file: Path | None = None
    known_hosts: Path | None = None
    proxy: str | None = None
    device: str | None = None
    cpu: float | None = None
    memory: int | None = None
    rootless: bool = False


@dataclass(frozen=True)
class StressProfile:
    """Artificial load (paper, section 4.1: full CPU and 80 % memory on the sources).

    Attributes:
        hosts: names of the hosts under load.
        cpu_percent: of each host's CPU.
        memory_percent: of each host's memory.
    """

    hosts: tuple[str, ...] = ()
    cpu_percent: float = 100.0
    memory_percent: float = 80.0


@dataclass(frozen=True)
class Inventory:
    """The hosts of a test bed and the links between them.

    Attributes:
        name: of the test bed, and of its virtual rack.
        hosts: in the order of the file.
        links: per pair of names, in the order of ``hosts``; pairs without one have ``Link()``.
        virtual: whether the hosts are made on this machine (`nova_testbed.rack`).
        stress: the load `nova testbed stress` makes.
    """

    name: str
    hosts: tuple[HostSpec, ...]
    links: Mapping[tuple[str, str], Link] = field(default_factory=dict)
    virtual: bool = False
    stress: StressProfile = field(default_factory=StressProfile)

    @cached_property
    def has_links(self) -> bool:
        """Whether any pair of hosts has a link that differs from their own network."""
        return any(link != Link() for _, _, link in self.pairs())

    @cached_property
    def _index(self) -> dict[str, int]:
        return {host.name: i for i, host in enumerate(self.hosts)}

    def index(self, name: str) -> int:
        """A host's position in ``hosts``.

        Raises:
            InventoryError: for an unknown name.
        """
        from nova_core.suggestions import unknown

        if name not in self._index:
            raise InventoryError(f"inventory {self.name}: {unknown('host', name, self._index)}")
        return self._index[name]

    def host(self, name: str) -> HostSpec:
        """The host of that name.

        Raises:
            InventoryError: for an unknown name.
        """
        return self.hosts[self.index(name)]

    def with_role(self, role: Role) -> tuple[HostSpec, ...]:
        """The hosts of a role."""
        return tuple(host for host in self.hosts if host.role == role)

    def link(self, a: str, b: str) -> Link:
        """The link of two hosts; their order does not matter.

        Raises:
            InventoryError: for an unknown name.
        """
        pair = (a, b) if self.index(a) < self.index(b) else (b, a)
        return self.links.get(pair, Link())

    def pairs(self) -> Iterator[tuple[HostSpec, HostSpec, Link]]:
        """Each unordered pair of hosts once, with its link."""
        for a, b in combinations(self.hosts, 2):
            yield a, b, self.link(a.name, b.name)

    def rtt(self) -> Floats:
        """(n, n) requested round-trip times, ms, in the order of ``hosts``."""
        matrix = np.zeros((len(self.hosts), len(self.hosts)))
        for (a, b), link in self.links.items():
            i, j = self.index(a), self.index(b)
            matrix[i, j] = matrix[j, i] = link.rtt_ms
        return matrix


def read_inventory(path_or_name: str | Path) -> Inventory:
    """Read an inventory and check it.

    Args:
        path_or_name: a ``.yaml`` or ``.json`` file, or the name of one that comes with Nova.

    Raises:
        InventoryError: naming the file, the field, the value and what would be accepted.

    Warns:
        InventoryWarning: when virtual hosts ask for more than this machine has.
    """
    from nova_testbed.inventory_document import read_inventory_document

    return read_inventory_document(_find(path_or_name))


def example_inventory() -> Path:
    """An inventory of Raspberry Pis to copy and change."""
    return Path(__file__).parent / "inventories" / "raspberry-pi.example.yaml"


def shipped_inventories() -> dict[str, Path]:
    """Inventories that come with Nova, by name."""
    directory = Path(__file__).parent / "inventories"
    inventories = {path.stem: path for path in sorted(directory.glob("*.yaml"))}
    # Examples are to be copied and changed.
    return {name: path for name, path in inventories.items() if not name.endswith(".example")}


def _find(path_or_name: str | Path) -> Path:
    text = str(path_or_name)
    shipped = shipped_inventories()
    if text in shipped and not Path(text).is_file():
        return shipped[text]
    path = Path(path_or_name)
    if not path.exists() and "/" not in text and not path.suffix:
        raise InventoryError(
            f"inventory {text!r}: no such file, nor one that comes with Nova; those are "
            + ", ".join(shipped)
        )
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        raise InventoryError(f"{path}: an inventory is a .yaml or .json file")
    return path
