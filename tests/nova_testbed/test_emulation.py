"""Links on hosts that are not ours to make, over SSH.

In place of real ones: an sshd of root's in the network of each virtual host, on whose own nobody is
root.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from loopback_hosts import rack_inventory, sshds
from needs import need_namespaces

from nova_testbed import netem
from nova_testbed.connection import HostError
from nova_testbed.emulation import emulate, links, stop_emulating
from nova_testbed.hosts import Hosts, connect
from nova_testbed.inventory import Inventory, Link
from nova_testbed.probing import choose_pairs, measure_rtt
from nova_testbed.rack import VirtualRack
from nova_testbed.rack.network import DATA_DEVICE
from nova_testbed.rack.processes import local_run
from nova_testbed.rack.state import Names

pytestmark = pytest.mark.e2e
NAMES = ["one", "two", "three"]


@pytest.fixture(scope="module")
def up() -> Iterator[Inventory]:
    """Hosts without delays of their own, whose network device is left to the emulation."""
    need_namespaces()
    rack = VirtualRack(replace(rack_inventory("novanet"), links={}), emulation="switch")
    try:
        virtual = rack.up()
        number = rack.status().number
        assert number is not None
        places = [(Names(number).namespace(host.name), host.address) for host in virtual.hosts]
        with sshds(*NAMES, places=places) as running:
            hosts = tuple(replace(sshd.spec(), device=DATA_DEVICE) for sshd in running)
            yield replace(virtual, hosts=hosts, virtual=False)
    finally:
        rack.down()


def emulating(hosts: Hosts) -> list[str]:
    return [name for name, devices in hosts.map(lambda host: links(host, True)).items() if devices]


def connected(up: Inventory, *links: Link) -> Hosts:
    pairs = [("one", "two"), ("one", "three"), ("two", "three")]
    return connect(replace(up, links=dict(zip(pairs, links, strict=False))))


def test_links_are_put_in_force_replaced_and_removed(up: Inventory) -> None:
    with connected(up, Link(bandwidth_mbit=5), Link(bandwidth_mbit=7)) as hosts:
        emulate(hosts)
        assert emulating(hosts) == NAMES
        classes = {n: r.stdout for n, r in hosts.run("tc class show dev data0").items()}
        assert "rate 5Mbit" in classes["one"] and "rate 7Mbit" in classes["one"]
        assert "rate 5Mbit" in classes["two"] and "rate 7Mbit" not in classes["two"]
        assert "rate 5Mbit" not in classes["three"] and "rate 7Mbit" in classes["three"]
    with connected(up, Link(bandwidth_mbit=9)) as hosts:
        emulate(hosts)
        # What is asked of nobody is put on nobody.
        assert emulating(hosts) == ["one", "two"]
        assert "rate 5Mbit" not in hosts["one"].run("tc class show dev data0").stdout
        assert stop_emulating(hosts) == ["one", "two"]
        assert stop_emulating(hosts) == emulating(hosts) == []
        assert "htb" not in hosts["one"].run("tc qdisc show").stdout


def test_an_inventory_without_links_removes_them(up: Inventory) -> None:
    with connected(up, Link(bandwidth_mbit=5)) as hosts:
        emulate(hosts)
    with connected(up) as hosts:
        emulate(hosts)
        assert emulating(hosts) == []


def test_bandwidth_is_limited_over_ssh(up: Inventory) -> None:
    receive = (
        'python3 -c \'import socket,time; s=socket.create_server(("",5001)); c=s.accept()[0]\n'
    )
    receive += "b=time.time(); n=0\nwhile d:=c.recv(65536): n+=len(d)\n"
    receive += "print(8e-6*n/(time.time()-b))'"
    send = 'python3 -c \'import socket; s=socket.create_connection(("{}",5001)); '
    send += "s.sendall(bytes(1_500_000))'"
    with connected(up, Link(bandwidth_mbit=8)) as hosts:
        emulate(hosts)
        job = hosts["two"].start(receive)
        hosts["two"].run("until ss -ltn | grep -q :5001; do sleep 0.1; done")
        hosts["one"].run(send.format(hosts["two"].spec.address))
        job.wait()
        assert 5 < float(job.output()) < 12
        stop_emulating(hosts)


def test_what_others_have_put_there_is_refused_and_stays(up: Inventory) -> None:
    with connected(up, Link(bandwidth_mbit=5)) as hosts:
        hosts["two"].run("tc qdisc add dev data0 root handle 77: htb")
        try:
            with pytest.raises(HostError, match=r"^two: .*has another discipline"):
                emulate(hosts)
            assert emulating(hosts) == []
            assert "htb 77:" in hosts["two"].run("tc qdisc show dev data0").stdout
        finally:
            hosts["two"].run("tc qdisc del dev data0 root")


def test_a_device_that_is_not_there(up: Inventory) -> None:
    faulty = replace(up, hosts=(replace(up.hosts[0], device="none0"), *up.hosts[1:]))
    with connected(faulty, Link(bandwidth_mbit=5)) as hosts:
        with pytest.raises(HostError, match=r"^one: none0: "):
            emulate(hosts)
        assert emulating(hosts) == []


def test_delays_are_as_asked_or_refused(up: Inventory) -> None:
    with connected(up, Link(20), Link(60), Link(5)) as hosts:
        if len(netem.supported(local_run)) < 3:
            with pytest.raises(HostError, match=r"cannot emulate its links: .* lacks netem"):
                emulate(hosts)
            assert emulating(hosts) == []
            return
        emulate(hosts)
        found = measure_rtt(hosts, choose_pairs(hosts.inventory))
        assert all(abs(rtt.median_ms - rtt.asked_ms) < 3 for rtt in found)
        stop_emulating(hosts)
