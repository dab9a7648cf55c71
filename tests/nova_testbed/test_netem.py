from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from needs import skip_or_fail

from nova_testbed import netem
from nova_testbed.inventory import HostSpec, Inventory, Link
from nova_testbed.netem import NetemError, Peer
from nova_testbed.rack.processes import local_run

INVENTORY = Inventory(
    "lab",
    (
        HostSpec("a", address="10.0.0.1"),
        HostSpec("b", address="10.0.0.2"),
        HostSpec("c", address="10.0.0.3"),
    ),
    {("a", "b"): Link(20.0, 1.0, 50.0, 0.1), ("b", "c"): Link(5.0)},
)


def peers(host: str, base_rtt_ms: float = 0.0) -> list[Peer]:
    """What the inventory asks of a host's links."""
    return [
        Peer.of(other.address, INVENTORY.link(host, other.name), base_rtt_ms)
        for other in INVENTORY.hosts
        if other.name != host
    ]


def test_exactly_what_the_inventory_asks_for() -> None:
    assert netem.commands("eth0", peers("b", 0.4)) == [
        "qdisc add dev eth0 root handle 4e6f: htb default fffe",
        "class add dev eth0 parent 4e6f: classid 4e6f:fffe htb rate 1000mbit quantum 60000",
        "class add dev eth0 parent 4e6f: classid 4e6f:1 htb rate 50mbit ceil 50mbit quantum 60000",
        "qdisc add dev eth0 parent 4e6f:1 handle 101: netem limit 50000 delay 9.800ms 1.000ms "
        "loss random 0.1%",
        "filter add dev eth0 parent 4e6f: protocol ip prio 1 u32 match ip dst 10.0.0.1/32 "
        "flowid 4e6f:1",
        "class add dev eth0 parent 4e6f: classid 4e6f:2 htb rate 1000mbit ceil 1000mbit "
        "quantum 60000",
        "qdisc add dev eth0 parent 4e6f:2 handle 102: netem limit 50000 delay 2.300ms",
        "filter add dev eth0 parent 4e6f: protocol ip prio 1 u32 match ip dst 10.0.0.3/32 "
        "flowid 4e6f:2",
    ]


def test_what_is_there_already_is_not_added() -> None:
    assert Peer.of("10.0.0.9", Link(0.3), base_rtt_ms=0.4).netem == ""
    assert Peer.of("10.0.0.9", Link(loss_percent=2.0)).netem == " loss random 2%"


def test_numbers_of_many_peers_are_hexadecimal() -> None:
    lines = netem.commands("eth0", [Peer(f"10.0.0.{i}", 1.0) for i in range(1, 17)])
    assert lines[-1].endswith("flowid 4e6f:10")
    assert any(" handle 110: " in line for line in lines)


@pytest.fixture
def namespace_run() -> netem.Run:
    """Runs each script in a new network namespace with a veth `d0`; needs root."""
    if os.geteuid() or not shutil.which("tc") or local_run("unshare --net true")[0]:
        skip_or_fail("traffic control needs root, namespaces and iproute2")

    def run(script: str) -> tuple[int, str]:
        start = "ip link add d0 type veth peer name d1; ip link set d0 up; ip link set d1 up\n"
        done = subprocess.run(
            ["unshare", "--net", "sh", "-c", start + script],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return done.returncode, done.stdout

    return run


PEERS = [Peer("10.0.0.2", 0.0, bandwidth_mbit=10.0), Peer("10.0.0.3", 0.0)]
SHOW = "tc qdisc show dev d0; tc class show dev d0; tc filter show dev d0\n"


def test_links_are_put_in_force_again_and_again_and_removed(namespace_run: netem.Run) -> None:
    script = netem.apply_script("d0", PEERS)
    status, output = namespace_run(f"set -e; {script}{script}{SHOW}")
    assert status == 0, output
    assert output.count("htb 4e6f: ") == 1
    assert output.count("class htb 4e6f:") == 3
    assert "rate 10Mbit ceil 10Mbit" in output
    assert "match 0a000002/ffffffff at 16" in output

    status, output = namespace_run(f"set -e; {script}{netem.remove_script('d0') * 2}{SHOW}")
    assert status == 0, output
    assert "htb" not in output


def test_a_discipline_of_somebody_elses_is_left_alone(namespace_run: netem.Run) -> None:
    foreign = "tc qdisc add dev d0 root handle 7: tbf rate 1mbit burst 10k latency 50ms\n"
    status, output = namespace_run(foreign + netem.apply_script("d0", PEERS))
    assert status == 1
    assert "d0 has another discipline: qdisc tbf 7:" in output
    status, output = namespace_run(f"{foreign}{netem.remove_script('d0')}{SHOW}")
    assert status == 0
    assert "tbf 7:" in output


def test_links_that_are_refused_leave_nothing(namespace_run: netem.Run) -> None:
    wrong = [*PEERS, Peer("10.0.0.256", 0.0)]
    status, output = namespace_run(f"{netem.apply_script('d0', wrong)}")
    assert status == 1
    status, output = namespace_run(f"({netem.apply_script('d0', wrong)})\n{SHOW}")
    assert "htb" not in output.split("Command failed")[1]


def test_delays_where_the_kernel_has_netem(namespace_run: netem.Run) -> None:
    """Where it has not, tc must have understood the command all the same."""
    script = netem.apply_script("d0", peers("b"))
    status, output = namespace_run(script + SHOW)
    if len(netem.supported(local_run)) == 3:
        assert status == 0, output
        assert "delay 10ms  1ms loss 0.1%" in output
    else:
        assert status == 1
        assert "Specified qdisc kind is unknown" in output
        assert "What is" not in output


def test_reports_of_a_host_become_errors_of_one_line() -> None:
    def run(_: str) -> tuple[int, str]:
        return 1, "\nRTNETLINK answers: Operation not permitted\nCommand failed -:1\n"

    with pytest.raises(NetemError, match="eth0: links are refused: RTNETLINK answers: Operation"):
        netem.apply(run, "eth0", PEERS)
    with pytest.raises(NetemError, match="eth0: links are not removed"):
        netem.remove(run, "eth0")
    with pytest.raises(NetemError, match="name the network device in the inventory"):
        netem.default_device(run)


def test_default_device() -> None:
    line = "default via 192.0.2.1 dev eth0 proto dhcp src 192.0.2.2 metric 100 \n"
    assert netem.default_device(lambda _: (0, line)) == "eth0"
