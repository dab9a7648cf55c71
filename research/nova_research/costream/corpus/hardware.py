"""Random hosts and links, as nodes of a problem and as limits of a virtual rack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core.errors import NovaError
from nova_research.costream.corpus.ranges import RACK, Ranges
from nova_testbed.inventory import Inventory, Link

if TYPE_CHECKING:
    from nova_testbed.rack import VirtualRack

CROWDED = 1.25
"""Shares of a crowded machine are drawn with a weight of one over them to this power."""
TUPLES_PER_CORE = 20_000
"""A host's capacity C_a per core, tuples/s: the order of magnitude of Flink's operators."""
# How often sources are on weak hosts and the sink is on a strong one, as in edge and cloud.
EDGE_TO_CLOUD = 0.8
MIB = 1 << 20


@dataclass(frozen=True)
class HostLimits:
    """Limits of a host.

    Attributes:
        name: of the host.
        cpu: cores.
        memory: bytes.
        latency_ms: outgoing, one way.
        mbit: Mbit/s of its access.
    """

    name: str
    cpu: float
    memory: int
    latency_ms: float
    mbit: float


@dataclass(frozen=True)
class Hardware:
    """Hosts reserved for one query.

    Attributes:
        hosts: in the order of the inventory.
    """

    hosts: tuple[HostLimits, ...]

    def cpu(self) -> dict[str, float]:
        """Cores by host."""
        return {host.name: host.cpu for host in self.hosts}

    def links(self) -> dict[tuple[str, str], Link]:
        """Links of all pairs: round trip over both ends, bandwidth of the slower end."""
        return {
            (a.name, b.name): Link(a.latency_ms + b.latency_ms, 0.0, min(a.mbit, b.mbit))
            for i, a in enumerate(self.hosts)
            for b in self.hosts[i + 1 :]
        }

    def document(self) -> dict[str, Any]:
        """Nodes and latencies of a problem document."""
        from nova_testbed.inventory import HostSpec
        from nova_testbed.topology import hosts_document

        specs = tuple(HostSpec(one.name, cpu=one.cpu, memory=one.memory) for one in self.hosts)
        links = self.links()
        return hosts_document(
            Inventory("corpus", specs, links),
            {one.name: TUPLES_PER_CORE * one.cpu for one in self.hosts},
            ((a, b, link.rtt_ms) for (a, b), link in links.items()),
        )


def random_memory(
    rng: np.random.Generator, names: Sequence[str], ranges: Ranges = RACK
) -> dict[str, int]:
    """Bytes of memory of each host."""
    return {name: int(rng.choice(ranges.memory_mib)) * MIB for name in names}


def random_hardware(
    rng: np.random.Generator, memory: Mapping[str, int], ranges: Ranges = RACK
) -> Hardware:
    """Random CPU shares and links for hosts with this memory."""
    weights = np.array(ranges.cpu, np.float64) ** (-CROWDED if ranges.crowded else 0.0)
    return Hardware(
        tuple(
            HostLimits(
                name,
                cpu=float(rng.choice(ranges.cpu, p=weights / weights.sum())),
                memory=size,
                latency_ms=float(rng.choice(ranges.latency_ms)),
                mbit=float(rng.choice(ranges.mbit)),
            )
            for name, size in memory.items()
        )
    )


def random_ends(
    rng: np.random.Generator, hardware: Hardware, sources: int, *, edge: bool = False
) -> tuple[list[str], str]:
    """Hosts of the sources, and that of the sink.

    Args:
        rng: random generator.
        hardware: of all hosts.
        sources: how many.
        edge: whether all sources are on the weakest third of the hosts, by CPU and memory: data
            then has everywhere to go by Costream's rules.
    """
    by_cpu = [one.name for one in sorted(hardware.hosts, key=lambda one: one.cpu)]
    half = max(1, len(by_cpu) // 2)
    weak, strong = by_cpu, by_cpu
    if edge:
        memory = {one.name: one.memory for one in hardware.hosts}
        by_memory = sorted(by_cpu, key=memory.__getitem__)
        by_both = sorted(by_cpu, key=lambda name: by_cpu.index(name) + by_memory.index(name))
        weak, strong = by_both[: max(1, len(by_both) // 3)], by_both[-half:]
    elif rng.random() < EDGE_TO_CLOUD:
        weak, strong = by_cpu[: len(by_cpu) - 1] or by_cpu, by_cpu[-half:]
    return [str(rng.choice(weak)) for _ in range(sources)], str(rng.choice(strong))


def groups_of(inventory: Inventory, size: int) -> list[list[str]]:
    """Disjoint groups of hosts, for a query each; none has the sink's host, the coordinator.

    Raises:
        NovaError: for too few hosts, or hosts that are not virtual.
    """
    names = [host.name for host in inventory.hosts if host.role != "sink"]
    if not inventory.virtual:
        raise NovaError(f"inventory {inventory.name}: limits can be changed of virtual hosts only")
    if len(names) < size:
        raise NovaError(
            f"inventory {inventory.name}: {len(names)} hosts beside the coordinator; a query takes "
            f"{size}"
        )
    return [names[i : i + size] for i in range(0, len(names) - size + 1, size)]


def with_memory(inventory: Inventory, memory: Mapping[str, int]) -> Inventory:
    """The inventory with other memory of some hosts."""
    hosts = (replace(host, memory=memory.get(host.name, host.memory)) for host in inventory.hosts)
    return replace(inventory, hosts=tuple(hosts))


class RackLimits:
    """Limits and links of a virtual rack, changed from query to query.

    Attributes:
        inventory: whose limits are restored at the end.
    """

    def __init__(self, inventory: Inventory, rack: VirtualRack) -> None:
        from nova_harness.experiment.limits import Limits

        self.inventory, self._rack = inventory, rack
        self._generous = Limits(inventory).generous

    def lift(self, busy: set[str]) -> None:
        """Let these hosts share the machine with the coordinator's; the others keep their limits.

        Raises:
            RackError: where the rack is not up.
        """
        cores = self._generous(busy | {one.name for one in self.inventory.with_role("sink")})
        self._rack.set_limits(cpu=cores)

    def impose(self, cpu: Mapping[str, float]) -> None:
        """Limit the cores of hosts.

        Raises:
            RackError: where the rack is not up.
        """
        self._rack.set_limits(cpu=cpu)

    def connect(self, links: Mapping[tuple[str, str], Link]) -> None:
        """Apply links.

        Raises:
            RackError: where the rack is not up.
        """
        self._rack.set_links(links)

    @contextmanager
    def changed(self, memory: Mapping[str, int]) -> Iterator[None]:
        """Change hosts' memory inside the block; afterwards, restore all limits and links."""
        hosts = self.inventory.hosts
        try:
            self._rack.set_limits(memory=memory)
            yield
        finally:
            self._rack.set_limits(
                cpu={host.name: host.cpu for host in hosts},
                memory={host.name: host.memory for host in hosts},
            )
            self._rack.set_links({(a.name, b.name): link for a, b, link in self.inventory.pairs()})
