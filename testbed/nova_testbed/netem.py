"""Links on real hosts: the `tc` commands that delay, limit and lose what a host sends to others.

Every host delays what it sends, by half of the round trip. Traffic to others than the inventory's
hosts (SSH, ARP, time synchronisation) is neither delayed nor limited. See tc-netem(8), tc-htb(8).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nova_core.errors import NovaError
from nova_testbed.inventory import Link

# Runs a shell command on a host; returns its exit status and its output, stderr included.
Run = Callable[[str], tuple[int, str]]

# Handle that identifies our queueing discipline. Hexadecimal, as are class numbers.
HANDLE = "4e6f"
REST = 0xFFFE
# netem drops what exceeds this number of packets under way; its default of 1000 is soon reached.
LIMIT_PACKETS = 50_000

_ROOT = 'S=; [ "$(id -u)" = 0 ] || S="sudo -n"\n'
# Runs in an anonymous namespace: no device of the host is touched.
_PROBE = (
    _ROOT
    + r"""for m in sch_netem sch_htb cls_u32; do $S modprobe -q $m 2>/dev/null; done
$S unshare -n sh -c '
ip link set lo up
tc qdisc add dev lo root handle 1: htb default fffe 2>/dev/null && echo htb
tc class add dev lo parent 1: classid 1:1 htb rate 10mbit 2>/dev/null &&
tc filter add dev lo parent 1: protocol ip prio 1 u32 match ip dst 127.0.0.9/32 flowid 1:1 \
    2>/dev/null && echo u32
tc qdisc add dev lo parent 1:1 handle 2: netem limit 1000 delay 1ms 2>/dev/null && echo netem
true'"""
)


class NetemError(NovaError):
    """Links that a host cannot emulate."""


@dataclass(frozen=True)
class Peer:
    """How packets to another host are treated.

    Attributes:
        address: IPv4 address of the other host.
        delay_ms: added to each packet.
        jitter_ms: the delay varies by this much either way; may reorder packets.
        bandwidth_mbit: Mbit/s; None is unlimited.
        loss_percent: share of packets lost.
    """

    address: str
    delay_ms: float
    jitter_ms: float = 0.0
    bandwidth_mbit: float | None = None
    loss_percent: float = 0.0

    @classmethod
    def of(cls, address: str, link: Link, base_rtt_ms: float = 0.0) -> Peer:
        """One direction of a link.

        Args:
            address: of the other host.
            link: as asked for.
            base_rtt_ms: round-trip time without emulation, which need not be added.
        """
        delay = max(0.0, link.rtt_ms - base_rtt_ms) / 2
        return cls(address, delay, link.jitter_ms, link.bandwidth_mbit, link.loss_percent)

    @property
    def netem(self) -> str:
        """Options of netem; empty where nothing is to be delayed or lost."""
        options = ""
        if self.delay_ms or self.jitter_ms:
            options += f" delay {self.delay_ms:.3f}ms"
            options += f" {self.jitter_ms:.3f}ms" if self.jitter_ms else ""
        if self.loss_percent:
            options += f" loss random {self.loss_percent:g}%"
        return options


def commands(device: str, peers: Sequence[Peer], line_mbit: float = 1000.0) -> list[str]:
    """The `tc` commands for a device that has no discipline of ours.

    Args:
        device: network interface.
        peers: one for each other host.
        line_mbit: rate of classes without limit; the device's or more.
    """
    handle = HANDLE
    line = f"{line_mbit:g}mbit"
    lines = [
        f"qdisc add dev {device} root handle {handle}: htb default {REST:x}",
        # `quantum` keeps tc from warning about large ones.
        f"class add dev {device} parent {handle}: classid {handle}:{REST:x} htb rate {line} "
        "quantum 60000",
    ]
    for number, peer in enumerate(peers, 1):
        rate = line if peer.bandwidth_mbit is None else f"{peer.bandwidth_mbit:g}mbit"
        flow = f"{handle}:{number:x}"
        lines.append(
            f"class add dev {device} parent {handle}: classid {flow} htb rate {rate} ceil {rate} "
            "quantum 60000"
        )
        if peer.netem:
            lines.append(
                f"qdisc add dev {device} parent {flow} handle {0x100 + number:x}: "
                f"netem limit {LIMIT_PACKETS}{peer.netem}"
            )
        lines.append(
            f"filter add dev {device} parent {handle}: protocol ip prio 1 u32 "
            f"match ip dst {peer.address}/32 flowid {flow}"
        )
    return lines


def remove_script(device: str) -> str:
    """A shell script that removes the discipline of `apply_script`, and no other one."""
    device = shlex.quote(device)
    return f"""{_ROOT}remove() {{
  there=$(tc qdisc show dev {device} root) || return
  case $there in *'htb {HANDLE}:'*) $S tc qdisc del dev {device} root ;; esac
}}
remove || exit
"""


def apply_script(device: str, peers: Sequence[Peer], line_mbit: float = 1000.0) -> str:
    """A shell script that puts links in force; they replace those of an earlier run.

    It fails, with a line on stderr, where the device has another program's discipline.
    """
    quoted = shlex.quote(device)
    lines = "\n".join(commands(device, peers, line_mbit))
    # Disciplines the kernel has put there itself have the handle 0.
    return f"""{remove_script(device)}other=$(tc qdisc show dev {quoted} root) || exit
other=$(echo "$other" | grep -v ' 0: ' || :)
if [ -n "$other" ]; then echo {quoted} has another discipline: $other >&2; exit 1; fi
$S tc -batch - <<'END' || {{ remove; exit 1; }}
{lines}
END
"""


def apply(run: Run, device: str, peers: Sequence[Peer], line_mbit: float = 1000.0) -> None:
    """Put links in force on a host.

    Raises:
        NetemError: with what `tc` said.
    """
    status, output = run(apply_script(device, peers, line_mbit))
    if status:
        raise NetemError(f"{device}: links are refused: {_first(output)}")


def remove(run: Run, device: str) -> None:
    """Remove the links that `apply` has put in force; there may be none.

    Raises:
        NetemError: with what `tc` said.
    """
    status, output = run(remove_script(device))
    if status:
        raise NetemError(f"{device}: links are not removed: {_first(output)}")


def default_device(run: Run) -> str:
    """The interface of a host's default route.

    Raises:
        NetemError: where there is none.
    """
    status, output = run("ip -o -4 route show default")
    words = output.split()
    if status:
        raise NetemError(
            f"the default route cannot be asked for ({_first(output)}): name the network device in "
            "the inventory"
        )
    if "dev" not in words:
        raise NetemError("no default route: name the network device in the inventory")
    return words[words.index("dev") + 1]


def supported(run: Run) -> set[str]:
    """Which of ``htb``, ``u32`` and ``netem`` a host's kernel has; all three are needed.

    Raises:
        NetemError: when it cannot be tried out, with the reason.
    """
    status, output = run(_PROBE)
    if status:
        raise NetemError(f"what its kernel can do cannot be tried out: {_first(output)}")
    return {"htb", "u32", "netem"} & set(output.split())


def _first(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[0].strip() if lines else "no reason given"
