"""The inventory file: a YAML or JSON document."""

from __future__ import annotations

import os
import re
import warnings
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from nova_core.errors import ProblemError
from nova_core.io.syntax import read_typed
from nova_core.model.problem import Floats
from nova_core.suggestions import unknown
from nova_testbed.inventory import (
    SWITCH_CORES,
    HostSpec,
    Inventory,
    InventoryError,
    InventoryWarning,
    Link,
    Role,
    StressProfile,
)
from nova_testbed.ssh_config import Way, way_to

Value = TypeVar("Value")
Other = TypeVar("Other")

VERSION = 1
MOST_HOSTS = 1000
# Host names and addresses end up in command lines and configuration files.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# The second form is an IPv6 address, with the interface of one that is local to a link.
_ADDRESS = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9.:_-]*[A-Za-z0-9])?|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9_.-]+)?"
)
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}")
_BYTES = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?\s*")
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate("KMGT", 1)}

# A quota below 1 ms of each 20 ms is refused by the kernel.
Cores = Annotated[float, Meta(ge=0.05, le=10_000, description="cores; 0.1 is a tenth of one")]
Memory = Annotated[Annotated[int, Meta(gt=0)] | str, Meta(description="bytes, or such as 512 MiB")]
Milliseconds = Annotated[float, Meta(ge=0, le=10_000)]
Mbit = Annotated[float, Meta(gt=0, le=1e6)]
Percent = Annotated[float, Meta(ge=0, le=100)]
Port = Annotated[int, Meta(ge=1, le=65535)]


class _Struct(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class DefaultsPart(_Struct):
    """What holds for each host that says nothing else."""

    port: Port | UnsetType = UNSET
    user: str | UnsetType = UNSET
    key: Annotated[str | UnsetType, Meta(description="private key file; ~ is the home")] = UNSET
    known_hosts: str | UnsetType = UNSET
    device: str | UnsetType = UNSET
    cpu: Cores | None = None
    memory: Memory | None = None


class HostRow(_Struct):
    """A host."""

    name: str
    role: Role
    address: str | UnsetType = UNSET
    port: Port | UnsetType = UNSET
    user: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    known_hosts: str | UnsetType = UNSET
    device: str | UnsetType = UNSET
    cpu: Cores | UnsetType | None = UNSET
    memory: Memory | UnsetType | None = UNSET
    node: Annotated[str | UnsetType, Meta(description="its name in the file of latencies")] = UNSET


class LinkRow(_Struct):
    """The link of one pair of hosts; what it leaves out is as for all pairs."""

    between: tuple[str, str]
    rtt_ms: Milliseconds | UnsetType = UNSET
    jitter_ms: Milliseconds | UnsetType = UNSET
    bandwidth_mbit: Mbit | UnsetType | None = UNSET
    loss_percent: Percent | UnsetType = UNSET


class GeneratePart(_Struct):
    """Latencies of a synthetic internet (`nova_testbed.internet`)."""

    seed: Annotated[int, Meta(ge=0)]
    continents: list[
        Literal["africa", "asia", "europe", "north-america", "oceania", "south-america"]
    ] = []


class SamplePart(_Struct):
    """A draw of nodes from the file of latencies, one per host."""

    seed: Annotated[int, Meta(ge=0)]


class NetworkPart(_Struct):
    """The links: what holds for all pairs, where latencies come from, exceptions."""

    rtt_ms: Milliseconds = 0.0
    jitter_ms: Milliseconds = 0.0
    bandwidth_mbit: Mbit | None = None
    loss_percent: Percent = 0.0
    generate: GeneratePart | UnsetType = UNSET
    file: Annotated[str | UnsetType, Meta(description="matrix of measured RTTs, ms")] = UNSET
    sample: SamplePart | UnsetType = UNSET
    links: list[LinkRow] = []


class StressPart(_Struct):
    """Artificial load, on hosts of the given roles and on the given hosts."""

    roles: list[Role] = []
    hosts: list[str] = []
    cpu_percent: Annotated[float, Meta(ge=0, le=100)] = 100.0
    memory_percent: Annotated[float, Meta(ge=0, le=95)] = 80.0


class InventoryDocument(_Struct):
    """Hosts and the links between them."""

    inventory: Annotated[Literal[1], Meta(description="version of this format")]
    name: str
    hosts: list[HostRow]
    virtual: bool = False
    defaults: DefaultsPart = msgspec.field(default_factory=DefaultsPart)
    network: NetworkPart = msgspec.field(default_factory=NetworkPart)
    stress: StressPart = msgspec.field(default_factory=StressPart)


def read_inventory_document(path: Path) -> Inventory:
    """Read and check an inventory document.

    Raises:
        InventoryError: naming the file, the field, the value and what would be accepted.

    Warns:
        InventoryWarning: when virtual hosts ask for more than this machine has.
    """
    document = read_typed(path, InventoryDocument, "inventory", VERSION, InventoryError)
    inventory = _Reader(document, path).inventory()
    if inventory.virtual:
        _warn_of_too_much(inventory, path)
    return inventory


class _Reader:
    """Builds an inventory from a document and checks each part."""

    def __init__(self, document: InventoryDocument, path: Path) -> None:
        self.document = document
        self.path = path
        self.names = [row.name for row in document.hosts]

    def error(self, text: str) -> InventoryError:
        return InventoryError(f"{self.path}: {text}")

    def matched(self, pattern: re.Pattern[str], text: str, place: str, accepted: str) -> str:
        if not pattern.fullmatch(text):
            raise self.error(f"{place}: {text!r} is not accepted; {accepted} is expected")
        return text

    def inventory(self) -> Inventory:
        document = self.document
        self.matched(_NAME, document.name, "name", "lower-case letters, digits and hyphens")
        if not document.hosts:
            raise self.error("hosts: empty; at least one host is needed")
        if len(document.hosts) > MOST_HOSTS:
            raise self.error(
                f"hosts: {len(document.hosts):,}; {MOST_HOSTS:,} are accepted at most, as each "
                "pair has a link"
            )
        hosts = tuple(self.host(i, row) for i, row in enumerate(document.hosts))
        self.refuse_twice("name", self.names)
        if not document.virtual:
            self.refuse_twice("address", [_sshd(host) for host in hosts])
        sinks = [host.name for host in hosts if host.role == "sink"]
        if len(sinks) != 1:
            raise self.error(
                f"hosts: {len(sinks)} have the role sink{': ' * bool(sinks)}{', '.join(sinks)}; "
                "exactly one, the coordinator and sink, is expected"
            )
        return Inventory(document.name, hosts, self.links(), document.virtual, self.stress())

    # --- hosts ----------------------------------------------------------------------------------

    def host(self, i: int, row: HostRow) -> HostSpec:
        place = f"hosts[{i}]"
        self.matched(_NAME, row.name, f"{place}.name", "lower-case letters, digits and hyphens")
        place = f"{place} ({row.name})"
        defaults, virtual = self.document.defaults, self.document.virtual
        if virtual:
            self.refuse_real_fields(row, place)
            address = ""
        elif row.address is UNSET:
            raise self.error(
                f"{place}: field 'address' is missing; a host that is not virtual needs one"
            )
        else:
            accepted = "a host name or an IP address"
            address = self.matched(_ADDRESS, row.address, f"{place}.address", accepted)
        way = Way("") if virtual else way_to(address)
        user = _or(row.user, _or(defaults.user, way.user or "root"))
        device = _or(row.device, _or(defaults.device, None))
        if device is not None:
            self.matched(_DEVICE, device, f"{place}.device", "the name of a network interface")
        return HostSpec(
            name=row.name,
            role=row.role,
            address=way.address,
            port=_or(row.port, _or(defaults.port, way.port or 22)),
            user=self.matched(_USER, user, f"{place}.user", "a user name"),
            key_file=self.file(_or(row.key, defaults.key), f"{place}.key") or way.key_file,
            known_hosts=self.file(
                _or(row.known_hosts, defaults.known_hosts), f"{place}.known_hosts"
            )
            or way.known_hosts,
            proxy=way.proxy,
            device=device,
            cpu=_or(row.cpu, defaults.cpu),
            memory=self.memory(_or(row.memory, defaults.memory), f"{place}.memory"),
        )

    def refuse_real_fields(self, row: HostRow, place: str) -> None:
        for name in ("address", "port", "user", "key", "known_hosts", "device"):
            if getattr(row, name) is not UNSET:
                raise self.error(
                    f"{place}.{name}: {getattr(row, name)!r} is not accepted; a virtual host gets "
                    "its address, user and key from the rack"
                )

    def file(self, text: str | UnsetType, place: str) -> Path | None:
        if text is UNSET:
            return None
        path = Path(text).expanduser()
        path = path if path.is_absolute() else self.path.parent / path
        if not path.is_file():
            raise self.error(f"{place}: {text!r}: no such file ({path})")
        return path

    def memory(self, value: int | str | None, place: str) -> int | None:
        if not isinstance(value, str):
            return value
        match = _BYTES.fullmatch(value)
        size = int(float(match[1]) * _UNITS[match[2] or ""]) if match else 0
        if size <= 0:
            raise self.error(
                f"{place}: {value!r} is not accepted; bytes such as 536870912 or 512 MiB are "
                "expected"
            )
        return size

    def refuse_twice(self, what: str, values: list[str]) -> None:
        for i, value in enumerate(values):
            if value in values[:i]:
                first = values.index(value)
                raise self.error(
                    f"hosts[{i}].{what}: {value!r} is also the {what} of hosts[{first}]; each host "
                    "needs its own"
                )

    # --- links ----------------------------------------------------------------------------------

    def links(self) -> dict[tuple[str, str], Link]:
        part = self.document.network
        rtt = self.rtt()
        links = {}
        for i, j in combinations(range(len(self.names)), 2):
            rtt_ms = float(rtt[i, j])
            jitter = min(part.jitter_ms, rtt_ms / 2)
            pair = (self.names[i], self.names[j])
            links[pair] = Link(rtt_ms, jitter, part.bandwidth_mbit, part.loss_percent)
        seen: set[tuple[str, str]] = set()
        for k, row in enumerate(part.links):
            place = f"network.links[{k}]"
            pair = self.pair(row, place)
            if pair in seen:
                raise self.error(f"{place}.between: {pair[0]!r} and {pair[1]!r} are given twice")
            seen.add(pair)
            links[pair] = self.link(row, links[pair], place)
        return links

    def pair(self, row: LinkRow, place: str) -> tuple[str, str]:
        for name in row.between:
            if name not in self.names:
                raise self.error(f"{place}.between: {unknown('host', name, self.names)}")
        a, b = row.between
        if a == b:
            raise self.error(f"{place}.between: {a!r} twice; two different hosts are expected")
        return (a, b) if self.names.index(a) < self.names.index(b) else (b, a)

    def link(self, row: LinkRow, base: Link, place: str) -> Link:
        rtt = _or(row.rtt_ms, base.rtt_ms)
        if row.jitter_ms is not UNSET and row.jitter_ms > rtt / 2:
            raise self.error(
                f"{place}.jitter_ms: {row.jitter_ms:g} is not accepted; at most half of the RTT of "
                f"{rtt:g} ms, the delay of one direction, is expected"
            )
        jitter = _or(row.jitter_ms, min(base.jitter_ms, rtt / 2))
        bandwidth = _or(row.bandwidth_mbit, base.bandwidth_mbit)
        return Link(rtt, jitter, bandwidth, _or(row.loss_percent, base.loss_percent))

    def rtt(self) -> Floats:
        """(n, n) ms, before the exceptions of single pairs."""
        part, n = self.document.network, len(self.names)
        generate, file, sample = part.generate, part.file, part.sample
        if generate is not UNSET and file is not UNSET:
            raise self.error("network: both 'generate' and 'file' are given; one is expected")
        if (generate is not UNSET or file is not UNSET) and part.rtt_ms:
            raise self.error(
                f"network.rtt_ms: {part.rtt_ms:g} is not accepted together with 'generate' or "
                "'file', which give each pair its own"
            )
        for i, row in enumerate(self.document.hosts):
            if row.node is not UNSET and (file is UNSET or sample is not UNSET):
                raise self.error(
                    f"hosts[{i}] ({row.name}).node: {row.node!r} is accepted only with "
                    "'network.file' and without 'network.sample'"
                )
        if generate is not UNSET:
            from nova_testbed.internet import SyntheticInternet

            return SyntheticInternet(n, generate.seed, tuple(generate.continents)).matrix()
        if file is not UNSET:
            return self.measured(file, None if sample is UNSET else sample.seed)
        if sample is not UNSET:
            raise self.error("network.sample: accepted only with 'network.file'")
        return np.where(np.eye(n, dtype=bool), 0.0, part.rtt_ms)

    def measured(self, file: str, seed: int | None) -> Floats:
        """Rows and columns of a file of latencies, by the hosts' names or drawn with a seed."""
        from nova_core.io.latencies import mended, read_latency

        path = Path(file).expanduser()
        path = path if path.is_absolute() else self.path.parent / path
        try:
            ids, latency = read_latency(path)
            if seed is None:
                nodes = [_or(row.node, row.name) for row in self.document.hosts]
            else:
                nodes = self.drawn(path, ids, latency, seed)
            if len(set(nodes)) < len(nodes):
                twice = next(name for i, name in enumerate(nodes) if name in nodes[:i])
                raise self.error(f"hosts: two of them have node {twice!r}; each needs its own")
            keep = [i for i, name in enumerate(ids) if name in set(nodes)]
            ids, latency = [ids[i] for i in keep], latency[np.ix_(keep, keep)]
            return mended(ids, latency, np.array(nodes), str(path))
        except ProblemError as cause:
            raise self.error(f"network.file: {cause}") from None

    def drawn(self, path: Path, ids: list[str], latency: Floats, seed: int) -> list[str]:
        """Names of nodes, one per host; each pair of them was measured."""
        known = np.isfinite(latency) | np.isfinite(latency.T)
        chosen: list[int] = []
        for i in np.random.default_rng(seed).permutation(len(ids)).tolist():
            if len(chosen) < len(self.names) and known[i, chosen].all():
                chosen.append(i)
        if len(chosen) < len(self.names):
            raise self.error(
                f"network.sample: {path} has {len(chosen)} nodes with latencies to one another; "
                f"{len(self.names)} hosts are to get one each"
            )
        return [ids[i] for i in chosen]

    # --- stress ---------------------------------------------------------------------------------

    def stress(self) -> StressProfile:
        part = self.document.stress
        for i, name in enumerate(part.hosts):
            if name not in self.names:
                raise self.error(f"stress.hosts[{i}]: {unknown('host', name, self.names)}")
        hosts = tuple(
            row.name
            for row in self.document.hosts
            if row.role in part.roles or row.name in part.hosts
        )
        return StressProfile(hosts, part.cpu_percent, part.memory_percent)


def _sshd(host: HostSpec) -> str:
    """What tells the sshd of a host from others."""
    way = "" if host.proxy is None else f" through {host.proxy}"
    return f"{host.address}:{host.port}{way}"


def _or(value: Value | UnsetType, default: Other) -> Value | Other:
    return default if isinstance(value, UnsetType) else value


def _warn_of_too_much(inventory: Inventory, path: Path) -> None:
    """Warn when the limits of virtual hosts exceed this machine."""
    cores = len(os.sched_getaffinity(0))
    requested = sum(host.cpu or 0.0 for host in inventory.hosts)
    if requested > cores - SWITCH_CORES:
        warnings.warn(
            f"{path}: the hosts' CPU limits sum to {requested:g} cores; this machine has {cores}, "
            f"of which the switch and the controller take up to {SWITCH_CORES:g}: under full load "
            "hosts get less than their limit",
            InventoryWarning,
            stacklevel=3,
        )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    promised = sum(host.memory or 0 for host in inventory.hosts)
    if promised > memory:
        warnings.warn(
            f"{path}: the hosts' memory limits sum to {promised / 2**30:.1f} GiB; this machine has "
            f"{memory / 2**30:.1f} GiB",
            InventoryWarning,
            stacklevel=3,
        )
