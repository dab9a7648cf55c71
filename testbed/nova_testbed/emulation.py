"""The links of an inventory, emulated on real hosts with tc/netem over SSH."""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from nova_core.programs import PROGRAMS
from nova_testbed import netem
from nova_testbed.connection import HostError
from nova_testbed.host import Host
from nova_testbed.hosts import Hosts
from nova_testbed.inventory import Link

BASE_PINGS = 10


def emulate(hosts: Hosts, progress: Callable[[str], None] | None = None) -> None:
    """Put all links of the inventory in force; they replace earlier ones.

    The network's own round trips are measured first; only the difference is added.

    Args:
        hosts: all hosts of the inventory, connected.
        progress: called with the name of each host whose links are in force.

    Raises:
        HostError: when a host cannot emulate its links; then no host does.
    """
    requested = {(a.name, b.name): link for a, b, link in hosts.inventory.pairs() if link != Link()}
    stop_emulating(hosts)
    if not requested:
        return
    from nova_testbed.probing import measure_rtt

    features = {"htb", "u32"}
    if any(replace(link, bandwidth_mbit=None) != Link() for link in requested.values()):
        features.add("netem")
    hosts.map(lambda host: _refuse_without(host, features))
    base: dict[tuple[str, str], float] = {}
    delayed = [pair for pair, link in requested.items() if link.rtt_ms]
    for rtt in measure_rtt(hosts, delayed, count=BASE_PINGS):
        if math.isnan(rtt.median_ms):
            raise HostError(rtt.source, f"gets no answer from {rtt.target}; is a firewall between?")
        base[rtt.source, rtt.target] = base[rtt.target, rtt.source] = rtt.median_ms
    addresses = {host.name: _address(host) for host in hosts}

    def one(host: Host) -> None:
        peers = [
            netem.Peer.of(
                addresses[other.name],
                hosts.inventory.link(host.name, other.name),
                base.get((host.name, other.name), 0.0),
            )
            for other in hosts
            if other is not host and hosts.inventory.link(host.name, other.name) != Link()
        ]
        if peers:
            with _named(host):
                netem.apply(runner(host), _device(host), peers)

    try:
        hosts.map(one, progress=progress)
    except BaseException:
        stop_emulating(hosts)
        raise


def stop_emulating(hosts: Hosts) -> list[str]:
    """Remove the links that `emulate` has put in force, and nothing else.

    Returns:
        The hosts that had such links.

    Raises:
        HostError: when a host refuses, does not say, or still has some.
    """
    wanted = hosts.inventory.has_links
    return [name for name, was in hosts.map(lambda host: unlink(host, wanted)).items() if was]


def unlink(host: Host, wanted: bool) -> bool:
    """Remove the links of one host; whether there were any. Arguments and errors as of `links`."""
    devices = links(host, wanted)
    with _named(host):
        for device in devices:
            netem.remove(runner(host), device)
    if devices and (left := links(host, wanted)):
        raise HostError(host.name, f"{', '.join(left)}: links are still in force")
    return bool(devices)


def links(host: Host, wanted: bool) -> list[str]:
    """Network devices of a host on which links of `emulate` are in force.

    Args:
        host: which is asked.
        wanted: whether it may have had links: only then does it matter that it cannot tell.

    Raises:
        HostError: when the host does not say.
    """
    result = host.undisturbed().run("tc qdisc show", check=False)
    if result.returncode == 127 and not wanted:
        return []  # only tc puts links in force
    if result.returncode:
        why = result.last_words
        raise HostError(host.name, f"whether links are in force cannot be told: {why}")
    return re.findall(rf"^qdisc htb {netem.HANDLE}: dev (\S+) root", result.stdout, re.MULTILINE)


@contextmanager
def _named(host: Host) -> Iterator[None]:
    """Errors inside name the host."""
    try:
        yield
    except netem.NetemError as error:
        raise HostError(host.name, str(error)) from None


def runner(host: Host) -> netem.Run:
    """A function that runs commands of `netem` on a host."""

    def run(command: str) -> tuple[int, str]:
        result = host.undisturbed().run(command, check=False)
        return result.returncode, result.stdout + result.stderr

    return run


def _device(host: Host) -> str:
    return host.spec.device or netem.default_device(runner(host))


def _refuse_without(host: Host, features: set[str]) -> None:
    with _named(host):
        lacking = features - netem.supported(runner(host))
    if lacking:
        raise HostError(
            host.name,
            f"cannot emulate its links: its kernel or iproute2 lacks {', '.join(sorted(lacking))}; "
            f"as root: {PROGRAMS['tc'].on_debian}, modprobe -a sch_netem sch_htb cls_u32",
        )


def _address(host: Host) -> str:
    """The host's IPv4 address, which filters need."""
    try:
        return socket.gethostbyname(host.spec.address)
    except OSError as error:
        raise HostError(
            host.name,
            f"address {host.spec.address!r} has no IPv4 address, as emulated links need: {error}",
        ) from None
