"""The networks of a rack: one for management, undelayed, and one for data among the hosts.

Management: a bridge on this machine, whose ports (one a host) are isolated from each other. Data: a
device per host that leads to the switch, or to a bridge in a namespace of its own where netem
delays packets. The controller reaches a host's data address through the management network, so
that every host has one address for everybody.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from nova_testbed import netem
from nova_testbed.rack.state import (
    MOST_RACKS,
    PREFIX,
    ROUTE_PROTOCOL,
    Names,
    RackError,
    RackRecord,
    pattern_of,
)

NETNS = Path("/run/netns")
DEVICES = Path("/sys/class/net")
DATA_DEVICE = "data0"
# Packets the kernel keeps for a switch that is late; the default of 500 is soon full.
TUN_QUEUE = 10_000
LINE_MBIT = 40_000.0

# Rejected, not dropped, so that other users' programs fail at once. Hosts only answer this machine;
# they open no connections to it. The priority puts these rules before all others, so that no other
# rule can accept a packet first.
GUARD = """
table ip {table} {{ }}
delete table ip {table}
table ip {table} {{
    chain out {{
        type filter hook output priority -400; policy accept;
        ip daddr {{ {networks} }} meta skuid != {{ {users} }} reject with icmp admin-prohibited
    }}
    chain in {{
        type filter hook input priority -400; policy accept;
        iifname "{bridge}" meta l4proto != {{ tcp, icmp }} drop
        iifname "{bridge}" tcp flags & (fin | syn | rst | ack) == syn drop
    }}
    chain through {{
        type filter hook forward priority -400; policy accept;
        ip daddr {{ {networks} }} drop
        iifname "{bridge}" drop
    }}
}}
"""

Network = ipaddress.IPv4Network


def _run(command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program of this machine's that reads a text."""
    return subprocess.run(command, input=text, text=True, capture_output=True, check=False)


def ip(lines: Sequence[str], namespace: str | None = None) -> None:
    """Run `ip` commands at once.

    Raises:
        RackError: with the command that failed and why.
    """
    command = ["ip", *(["-n", namespace] if namespace else []), "-batch", "-"]
    try:
        result = _run(command, "\n".join(lines) + "\n")
    except OSError as error:
        raise RackError(f"ip: {error.strerror}; install iproute2") from error
    if result.returncode:
        failed = re.search(r"Command failed -:(\d+)", result.stderr)
        which = f" {lines[int(failed[1]) - 1]}" if failed else ""
        why = result.stderr.strip().splitlines()[0] if result.stderr.strip() else "failed"
        raise RackError(f"ip{which}: {why}")


def networks_in_use() -> Iterator[tuple[Network, str]]:
    """Each route of this machine but the default ones, with its description."""
    result = _run(["ip", "-j", "-4", "route", "show", "table", "all"])
    for route in json.loads(result.stdout or "[]"):
        if route["dst"] != "default":
            device = route.get("dev", route.get("type", ""))
            yield Network(route["dst"], strict=False), f"route to {route['dst']} ({device})"


def claim(state_directory: Path) -> Names:
    """Take a free number by making its bridge, which only one process can.

    Args:
        state_directory: stored as the bridge's alias, where a cleanup finds it.

    Raises:
        RackError: when none is free, or bridges cannot be made.
    """
    taken = list(networks_in_use())
    blocking = ""
    for number in range(MOST_RACKS):
        names = Names(number)
        candidates = [Network(names.management_network), Network(names.data_network)]
        blocked = [text for network, text in taken if any(network.overlaps(w) for w in candidates)]
        # Namespaces may be those of a rack in another network namespace with the same files.
        parts = [names.bridge] if (DEVICES / names.bridge).exists() else namespaces(number)
        if blocked or parts:
            blocking = blocked[0] if blocked else parts[0]
            continue
        try:
            ip([f"link add {names.bridge} type bridge"])
        except RackError:
            if (DEVICES / names.bridge).exists():  # somebody else was quicker
                continue
            raise
        ip([f"link set {names.bridge} alias {state_directory}"])
        return names
    raise RackError(
        "no addresses are free for a rack: 198.18.N.0/24 and 198.19.N.0/24 are taken for every N, "
        f"the last by {blocking}"
    )


def create(record: RackRecord) -> None:
    """Make the namespaces, devices, addresses and routes of a rack; what exists stays.

    Raises:
        RackError: where the kernel refuses.
    """
    names = record.names
    proto = f"proto {ROUTE_PROTOCOL}"
    existing = set(namespaces(names.number))
    fresh = [
        (index, host.name)
        for index, host in enumerate(record.hosts)
        if names.namespace(host.name) not in existing
    ]
    lines = [
        f"addr replace {names.controller}/24 dev {names.bridge}",
        f"link set {names.bridge}{_no_ipv6()} up",
    ]
    # Packets to the rack never leave the machine, even when the rack is broken.
    lines += [
        f"route replace unreachable {network} metric 9999 {proto}"
        for network in (names.management_network, names.data_network)
    ]
    for index, host in fresh:
        port = names.port(index)
        lines += [
            f"netns add {names.namespace(host)}",
            f"link add {port} type veth peer name mgmt0 netns {names.namespace(host)}",
            f"link set {port}{_no_ipv6()} master {names.bridge} up",
        ]
    ip(lines)
    # Packets from the hosts are for this machine and are not forwarded.
    Path(f"/proc/sys/net/ipv4/conf/{names.bridge}/forwarding").write_text("0")
    _isolate([names.port(index) for index, _ in fresh])
    for index, host in fresh:
        _configure(names, index, host)
        if record.emulation == "switch":
            _add_data_device(names, index, host, f"tuntap add dev {DATA_DEVICE} mode tun")
    ip(
        [
            f"route replace {names.data(index)}/32 via {names.management(index)} {proto}"
            for index in range(len(record.hosts))
        ]
    )
    if record.emulation == "netem":
        _create_fabric(record)
        for shaped in record.hosts:
            shape(record, shaped.name)


def guard(names: Names, users: set[int]) -> str:
    """Let only some users of this machine reach a rack's hosts, and no host the machine.

    Returns:
        The reason of a failure; empty on success.
    """
    text = GUARD.format(
        table=names.prefix,
        bridge=names.bridge,
        networks=f"{names.management_network}, {names.data_network}",
        users=", ".join(map(str, sorted(users))),
    )
    try:
        result = _run(["nft", "-f", "-"], text)
    except OSError as error:
        return f"nft: {error.strerror}; install nftables"
    if result.returncode:
        return f"nft: {(result.stderr.strip() or 'refused').splitlines()[0]}"
    return ""


def guards(number: int | None = None) -> list[str]:
    """Tables of the packet filter of a rack, or of all racks.

    Raises:
        RackError: when they cannot be asked for.
    """
    try:
        result = _run(["nft", "list", "tables", "ip"])
    except OSError as error:
        raise RackError(f"nft: {error.strerror}; install nftables") from None
    if result.returncode:
        raise RackError(f"nft: {(result.stderr.strip() or 'refused').splitlines()[0]}")
    return re.findall(rf"^table (ip {PREFIX}{pattern_of(number)})$", result.stdout, re.MULTILINE)


@cache
def _no_ipv6() -> str:
    """Option that stops IPv6 addresses of a device; empty without IPv6, where it is an error."""
    return " addrgenmode none" if Path("/proc/sys/net/ipv6").exists() else ""


def _isolate(ports: list[str]) -> None:
    text = "".join(f"link set dev {port} isolated on\n" for port in ports)
    result = _run(["bridge", "-batch", "-"], text)
    if result.returncode:
        raise RackError(f"bridge: isolated ports are refused: {result.stderr.strip()}")


def _configure(names: Names, index: int, host: str) -> None:
    ip(
        [
            "link set lo up",
            f"addr add {names.management(index)}/24 dev mgmt0",
            f"link set mgmt0{_no_ipv6()} up",
        ],
        names.namespace(host),
    )


def _add_data_device(names: Names, index: int, host: str, command: str) -> None:
    ip(
        [
            command,
            f"addr add {names.data(index)}/24 dev {DATA_DEVICE}",
            f"link set {DATA_DEVICE}{_no_ipv6()} txqueuelen {TUN_QUEUE} up",
        ],
        names.namespace(host),
    )


def _create_fabric(record: RackRecord) -> None:
    """In place of TUN devices: veths to a bridge that nothing else is connected to."""
    names = record.names
    if names.fabric not in namespaces(names.number):
        ip([f"netns add {names.fabric}"])
        ip(["link add fabric type bridge", f"link set fabric{_no_ipv6()} up"], names.fabric)
    present = _devices(names.fabric)
    for index, host in enumerate(record.hosts):
        port = f"port{index}"
        if port in present:
            continue
        command = f"link add {DATA_DEVICE} type veth peer name {port} netns {names.fabric}"
        _add_data_device(names, index, host.name, command)
        ip([f"link set {port}{_no_ipv6()} master fabric up"], names.fabric)


def _devices(namespace: str) -> set[str]:
    result = _run(["ip", "-n", namespace, "-j", "link"])
    return {device["ifname"] for device in json.loads(result.stdout or "[]")}


def shape(record: RackRecord, host: str) -> None:
    """Let netem delay what a host sends, as the links in force say.

    Raises:
        RackError: where the kernel refuses.
    """
    names, own = record.names, record.index(host)
    peers = []
    for i, j, link in record.pairs():
        if own in (i, j):
            peers.append(netem.Peer.of(names.data(j if own == i else i), link))
    script = netem.apply_script(DATA_DEVICE, peers, LINE_MBIT)
    command = ["ip", "netns", "exec", names.namespace(host), "sh", "-c", script]
    result = _run(command)
    if result.returncode:
        raise RackError(f"host {host}: links are refused: {result.stderr.strip().splitlines()[0]}")


def namespaces(number: int | None = None) -> list[str]:
    """Network namespaces of a rack, or of all racks."""
    pattern = re.compile(rf"{PREFIX}{pattern_of(number)}[-:].*")
    try:
        return sorted(path.name for path in NETNS.iterdir() if pattern.fullmatch(path.name))
    except FileNotFoundError:
        return []


def devices(number: int | None = None) -> list[str]:
    """Network devices of a rack, or of all racks, outside of its namespaces."""
    pattern = re.compile(rf"{PREFIX}{pattern_of(number)}(br|m\d+)")
    return sorted(path.name for path in DEVICES.iterdir() if pattern.fullmatch(path.name))


def routes(number: int | None = None) -> list[str]:
    """Routes of a rack, or of all racks, as `ip route del` takes them."""
    result = _run(["ip", "-4", "route", "show", "proto", str(ROUTE_PROTOCOL)])
    # Without the flags at a line's end: `ip route del` refuses "linkdown", and a batch ends there.
    pattern = re.compile(
        rf"(unreachable )?198\.1[89]\.{pattern_of(number)}\.\d+(/\d+)?( via [\d.]+)?( dev \S+)?"
    )
    return [match[0] for line in result.stdout.splitlines() if (match := pattern.match(line))]


def state_directory_of(number: int) -> Path | None:
    """The state directory noted at a rack's bridge."""
    with contextlib.suppress(OSError):
        alias = (DEVICES / Names(number).bridge / "ifalias").read_text().strip()
        if alias:
            return Path(alias)
    return None


def claimed_by(state_directory: Path) -> list[int]:
    """Numbers of the racks that note a state directory at their bridge."""
    numbers = [int(name[len(PREFIX) : -2]) for name in devices() if name.endswith("br")]
    return [number for number in numbers if state_directory_of(number) == state_directory]


def remove(number: int) -> None:
    """Remove the namespaces, devices, routes and guard of a rack; missing ones are no error.

    Its bridge stays, see `release`.
    """
    lines = [f"netns del {name}" for name in namespaces(number)]
    lines += [f"route del {route}" for route in routes(number)]
    # Ports are removed with their namespace, but only some time after it.
    bridge = Names(number).bridge
    lines += [f"link del {device}" for device in devices(number) if device != bridge]
    _run(["ip", "-force", "-batch", "-"], "\n".join(lines) + "\n")
    with contextlib.suppress(RackError):  # the caller asks once more
        for table in guards(number):
            _run(["nft", "delete", "table", *table.split()])


def release(number: int) -> bool:
    """Remove the bridge of a rack, from when on another may have its number; False if it stays."""
    bridge = Names(number).bridge
    _run(["ip", "-force", "-batch", "-"], f"link del {bridge}\n")
    return not (DEVICES / bridge).exists()
