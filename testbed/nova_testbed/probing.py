"""Measures hosts: round-trip times between them, their clocks, their capacity."""

from __future__ import annotations

import json
import os
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nova_core.programs import PROGRAMS
from nova_testbed import tools
from nova_testbed.connection import HostError
from nova_testbed.host import CommandError, Host
from nova_testbed.hosts import Hosts
from nova_testbed.inventory import SWITCH_CORES, Inventory, InventoryError
from nova_testbed.jobs import BackgroundJob
from nova_testbed.tools.operators import OPERATORS

# Of each host; low enough for hosts with a twentieth of a core.
PINGS_PER_SECOND = 50.0
# A link is kept when its measured median is this near to the requested RTT.
TOLERANCE_MS = 1.0
TOLERANCE_SHARE = 0.02
START_SECONDS = 30.0
# A clock with a greater offset is not synchronised.
MOST_OFFSET_MS = 500.0
SYNCHRONISE = "synchronise both, with chrony for example"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class PairRtt:
    """Round trips between two hosts.

    Attributes:
        source: the host that sends.
        target: the host that answers.
        asked_ms: round-trip time in the inventory.
        sent: packets sent by UDP.
        udp_ms: times of answered packets, sorted, without the time they waited at the hosts.
        tcp_ms: times of messages on a TCP connection, sorted.
    """

    source: str
    target: str
    asked_ms: float
    sent: int
    udp_ms: tuple[float, ...]
    tcp_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        """Median by UDP, or by TCP where no UDP packet came back; NaN without any."""
        times = self.udp_ms or self.tcp_ms
        return statistics.median(times) if times else float("nan")

    @property
    def lost_percent(self) -> float:
        """Share of packets that did not come back."""
        return 100.0 * (1 - len(self.udp_ms) / self.sent)

    @property
    def kept(self) -> bool:
        """Whether the median is within 1 ms and 2 % of the requested RTT."""
        return abs(self.median_ms - self.asked_ms) <= TOLERANCE_MS + TOLERANCE_SHARE * self.asked_ms


@dataclass(frozen=True)
class Capacity:
    """The capacity of a host for an operator.

    Attributes:
        host: its name.
        operator: name of the operator class.
        tuples_per_second: C_a (paper, section 2.2).
        cores: CPU it got for that.
    """

    host: str
    operator: str
    tuples_per_second: float
    cores: float


@dataclass(frozen=True)
class ClockOffset:
    """How far a host's clock is ahead of this machine's.

    Attributes:
        host: its name.
        offset_ms: positive when it is ahead.
        error_ms: bound on the error of ``offset_ms``.
    """

    host: str
    offset_ms: float
    error_ms: float

    @property
    def fault(self) -> str:
        """What is wrong with the clock; empty for one that is synchronised."""
        if abs(self.offset_ms) - self.error_ms <= MOST_OFFSET_MS:
            return ""
        way = "ahead of" if self.offset_ms > 0 else "behind"
        return (
            f"its clock is {abs(self.offset_ms) / 1000:.1f} s {way} this machine's; {SYNCHRONISE}"
        )


def choose_pairs(
    inventory: Inventory, neighbours: int | None = None, seed: int = 0
) -> list[tuple[str, str]]:
    """Pairs of hosts to measure, each once.

    Args:
        inventory: of the test bed.
        neighbours: how many others, drawn at random, each host is measured with at least; None
            for all.
        seed: of the draw.

    Raises:
        InventoryError: for fewer than one neighbour.
    """
    names = [host.name for host in inventory.hosts]
    n = len(names)
    if neighbours is not None and neighbours < 1:
        raise InventoryError(f"neighbours: {neighbours} is not accepted; at least 1 is expected")
    rng = np.random.default_rng(seed)
    chosen: set[tuple[int, int]] = set()
    for i in range(n):
        others = rng.permutation([j for j in range(n) if j != i])
        for j in others[:neighbours].tolist():
            chosen.add((min(i, j), max(i, j)))
    # Senders alternate, so that the work is spread evenly.
    return [
        (names[i], names[j]) if (i + j) % 2 else (names[j], names[i]) for i, j in sorted(chosen)
    ]


def measure_rtt(
    hosts: Hosts,
    pairs: Sequence[tuple[str, str]],
    *,
    count: int = 20,
    progress: Progress | None = None,
) -> list[PairRtt]:
    """Measure round trips between pairs of hosts, all at the same time.

    Args:
        hosts: connected.
        pairs: the host that sends and the host that answers.
        count: packets per pair; half as many messages on a TCP connection follow.
        progress: called with the name of each host that has measured all its pairs.

    Returns:
        One per pair, in their order.

    Raises:
        HostError: when a host cannot measure.
    """
    token = secrets.token_hex(4)
    asking: dict[str, list[str]] = {}
    for a, b in pairs:
        asking.setdefault(a, []).append(b)
    answering = list(dict.fromkeys(b for _, b in pairs))
    command = tools.command("echo", "serve", token)
    servers = hosts.map(lambda host: host.start(command, name="echo"), answering)
    try:
        ports = hosts.map(lambda host: _port(servers[host.name]), answering)

        def ask(host: Host) -> dict[str, dict[str, list[float]]]:
            peers = asking[host.name]
            targets = [[name, hosts[name].spec.address, ports[name]] for name in peers]
            longest = max(hosts.inventory.link(host.name, name).rtt_ms for name in peers)
            expected = count * (len(peers) / PINGS_PER_SECOND + longest / 1000)
            ping = tools.command("echo", "ping", token, str(count), str(PINGS_PER_SECOND))
            timeout = 60 + 5 * expected
            text = _python(host, ping, timeout=timeout, stdin=json.dumps(targets).encode())
            answer: dict[str, dict[str, list[float]]] = json.loads(text)
            return answer

        answers = hosts.map(ask, list(asking), progress=progress)
    finally:
        hosts.map(lambda host: servers[host.name].end(), answering)
    return [
        PairRtt(
            a,
            b,
            hosts.inventory.link(a, b).rtt_ms,
            count,
            tuple(sorted(answers[a][b]["udp"])),
            tuple(sorted(answers[a][b]["tcp"])),
        )
        for a, b in pairs
    ]


def _port(server: BackgroundJob) -> int:
    deadline = time.monotonic() + START_SECONDS
    while True:
        text = server.output()
        if text.endswith("\n") and text.strip().isdigit():
            return int(text)
        if time.monotonic() > deadline or not server.alive():
            words = server.last_words()
            raise HostError(server.host.name, f"the echo server does not start: {words}")
        time.sleep(0.1)


def measure_capacity(
    hosts: Hosts, operator: str, *, seconds: float = 1.5, progress: Progress | None = None
) -> list[Capacity]:
    """Measure how many tuples/s each host can take of an operator, within its limits.

    The operators are small Python loops: their figures compare hosts. An engine achieves that
    times a factor of its own.

    Args:
        hosts: connected.
        operator: ``window-join`` or ``filter``.
        seconds: how long on each host.
        progress: called with the name of each finished host.

    Raises:
        InventoryError: for an unknown operator.
        HostError: when a host cannot measure.
    """
    from nova_core.suggestions import unknown

    if operator not in OPERATORS:
        raise InventoryError(unknown("operator", operator, OPERATORS))
    command = tools.command("operators", operator, str(seconds))

    def one(host: Host) -> Capacity:
        answer = json.loads(_python(host, command, timeout=60 + 20 * seconds))
        took = answer["seconds"]
        rate, cores = answer["tuples"] / took, answer["cpu_seconds"] / took
        return Capacity(host.name, operator, rate, cores)

    return list(hosts.map(one, at_once=_at_once(hosts), progress=progress).values())


def _at_once(hosts: Hosts) -> int:
    """On how many hosts to measure at a time, so that they do not take each other's CPU."""
    if not hosts.inventory.virtual:
        return len(hosts)
    cores = len(os.sched_getaffinity(0))
    most = max(cores if host.spec.cpu is None else host.spec.cpu for host in hosts)
    return max(1, int((cores - SWITCH_CORES) / most))


def clock_offsets(hosts: Hosts, *, count: int = 30) -> list[ClockOffset]:
    """How far each host's clock is off this machine's.

    The sample with the shortest round trip counts; over SSH that suffices to check that clocks are
    synchronised, not to correct them below a millisecond.

    Args:
        hosts: connected.
        count: samples per host.

    Raises:
        HostError: when a host cannot tell the time.
    """
    return list(hosts.map(lambda host: clock_offset(host, count), at_once=4).values())


def refuse_clocks(hosts: Hosts) -> None:
    """Refuse hosts whose clocks differ from this machine's.

    Sources emit by their own clocks: windows would wait for the slow clock, and latencies would be
    off by its offset.

    Raises:
        HostError: naming the host, and by how much.
    """
    for offset in clock_offsets(hosts, count=5):
        if offset.fault:
            raise HostError(offset.host, offset.fault)


def clock_offset(host: Host, count: int = 5) -> ClockOffset:
    """How far one host's clock is off; arguments and errors as of `clock_offsets`."""
    samples: list[tuple[int, float]] = []
    answered = threading.Event()
    answer: list[tuple[int, bytes]] = []

    def came(data: bytes) -> None:
        answer.append((time.time_ns(), data))
        answered.set()

    def ask(write: Callable[[bytes], None]) -> None:
        for _ in range(count):
            answered.clear()
            begin = time.time_ns()
            write(b"\n")
            if not answered.wait(START_SECONDS):
                return
            end, data = answer[-1]
            samples.append((end - begin, int(data) - (begin + end) / 2))

    code, errors, _ = host.stream(tools.command("clock"), ask, came, START_SECONDS * 2)
    if code or not samples:
        words = errors.decode(errors="replace").strip() or f"python3 ended with {code}"
        raise HostError(host.name, f"the clock cannot be read: {words.splitlines()[-1]}")
    rtt, offset = min(samples)
    return ClockOffset(host.name, offset / 1e6, rtt / 2e6)


def _python(host: Host, command: str, *, timeout: float, stdin: bytes = b"") -> str:
    try:
        return host.run(command, timeout=timeout, stdin=stdin).stdout
    except CommandError as error:
        why = error.result.last_words
        if error.result.returncode == 127:
            why = f"python3 is missing; {PROGRAMS['python3'].on_debian}"
        raise HostError(host.name, f"cannot measure: {why}") from None
