"""Attacks on virtual racks: from other users of the machine, and from the hosts on the machine."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from needs import skip_or_fail

from nova_testbed.connection import HostError
from nova_testbed.hosts import Hosts, connect
from nova_testbed.inventory import HostSpec, Inventory
from nova_testbed.rack import RackWarning, VirtualRack, leftovers, missing, network
from nova_testbed.rack.state import Names

NOBODY = 65534
MAKER = 4242
# Of sshd, Flink, Storm, ZooKeeper, Spark and Kafka.
PORTS = (22, 6123, 6124, 8081, 6627, 6628, 2181, 7077, 8080, 4040, 9092)
# Listens on all addresses of a host, at the ports named, by TCP and at the first also by UDP.
LISTEN = """
import socket, sys, threading, time
ports = [int(word) for word in sys.argv[1:]]
kept = [socket.create_server(("", port)) for port in ports]
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); datagrams.bind(("", ports[0]))
print("ready", flush=True)
while True:
    datagrams.sendto(b"heard", datagrams.recvfrom(100)[1])
"""


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    reason = "these tests of virtual racks need root" if os.geteuid() else missing()
    if reason:
        skip_or_fail(str(reason))
    if subprocess.run(["nft", "list", "tables"], capture_output=True).returncode:
        skip_or_fail("there is no packet filter; apt-get install nftables")


def inventory(name: str) -> Inventory:
    hosts = (HostSpec("a", "sink"), HostSpec("b"))
    return Inventory(f"{name}-{os.getpid()}", hosts, {}, virtual=True)


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualRack]:
    """Brought up by somebody who is not root, through sudo."""
    made = VirtualRack(inventory("besieged"), tmp_path_factory.mktemp("racks") / "besieged")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUDO_UID", str(MAKER))
        patch.setenv("SUDO_GID", str(MAKER))
        made.up()
    yield made
    made.down()


@pytest.fixture(scope="module")
def hosts(rack: VirtualRack) -> Iterator[Hosts]:
    with connect(rack.reachable()) as connected:
        yield connected


@pytest.fixture(scope="module")
def names(rack: VirtualRack) -> Names:
    number = rack.status().number
    assert number is not None
    return Names(number)


@pytest.fixture(scope="module")
def listening(hosts: Hosts) -> None:
    """On all ports of host a but sshd's, which is listened on as it is."""
    script = f"exec python3 -c '{LISTEN}' {' '.join(map(str, PORTS[1:]))}"
    job = hosts["a"].start(script, name="listener")
    hosts["a"].run("until ss -Hltn | grep -q :9092; do sleep 0.1; done")
    assert job.alive()


def as_user(user: int, work: Callable[[], object]) -> str:
    """What a function returns in a process of another user's."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.write(writer, str(work()).encode())
        except BaseException:
            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        told = answer.read()
    os.waitpid(child, 0)
    return told


def reached(address: str, device: str = "") -> list[str]:
    """Which ports of an address can be connected to, and whether a datagram is answered."""
    found = []
    for port in PORTS:
        with socket.socket() as tcp:
            tcp.settimeout(1)
            if device:
                tcp.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
            if tcp.connect_ex((address, port)) == 0:
                found.append(f"tcp {port}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.settimeout(1)
        if device:
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
        try:
            udp.sendto(b"?", (address, PORTS[1]))
            udp.recv(100)
            found.append("udp")
        except OSError:
            pass
    return found


ALL = [f"tcp {port}" for port in PORTS]


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("by_device", [False, True], ids=["routed", "by device"])
def test_only_root_and_who_brought_it_up_reach_its_ports(names: Names, by_device: bool) -> None:
    device = names.bridge if by_device else ""
    data, management = names.data(0), names.management(0)
    for user in (NOBODY, names.user, 1):
        assert as_user(user, lambda: reached(data, device)) == "[]"
        assert as_user(user, lambda: reached(management, device)) == "[]"
    for user in (0, MAKER):
        assert as_user(user, lambda: reached(data)) == str(ALL)


def test_other_users_can_neither_read_its_keys_nor_its_disks(rack: VirtualRack) -> None:
    def readable() -> list[str]:
        return [str(path) for path in (rack.state.key_file, rack.state.path / "disks") if _r(path)]

    assert as_user(NOBODY, readable) == "[]"


def _r(path: Path) -> bool:
    return os.access(path, os.R_OK)


def test_rules_that_are_flushed_are_noticed_and_up_makes_them_again(
    rack: VirtualRack, names: Names
) -> None:
    subprocess.run(["nft", "delete", "table", "ip", names.prefix], check=True)
    try:
        status = rack.status()
        assert status.state == "broken"
        assert "other users are no longer kept from it" in status.problems[0]
    finally:
        rack.up()
    assert rack.status().state == "up"
    assert network.guards(names.number) == [f"ip {names.prefix}"]


def test_without_a_packet_filter_everybody_is_warned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "GUARD", "no such thing")
    open_rack = VirtualRack(inventory("open"), tmp_path / "open")
    try:
        with pytest.warns(RackWarning, match="ANY user of this machine can reach its hosts"):
            open_rack.up()
        status = open_rack.status()
        assert status.state == "up"
        assert status.number is not None
    finally:
        open_rack.down()
    assert leftovers(status.number) == ()


def test_its_rules_go_with_it(tmp_path: Path) -> None:
    made = VirtualRack(inventory("gone"), tmp_path / "gone")
    try:
        made.up()
        number = made.status().number
        assert [str(item) for item in leftovers(number) if item.kind == "table"] == [
            f"table ip novarack{number}"
        ]
    finally:
        made.down()
    assert leftovers(number) == ()


# --- from a host ---------------------------------------------------------------------------------


def test_programs_on_a_host_have_no_rights(hosts: Hosts, names: Names) -> None:
    told = dict(
        line.split(":", 1) for line in hosts["a"].run("cat /proc/self/status").stdout.splitlines()
    )
    assert told["Uid"].split() == told["Gid"].split() == [str(names.user)] * 4
    assert told["Groups"].split() == []
    assert told["NoNewPrivs"].strip() == "1"
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(told[capabilities], 16) == 0
    # Nor has anything else there.
    users = hosts["a"].run("stat -c %u /proc/[0-9]* 2>/dev/null", check=False).stdout.split()
    assert set(users) == {str(names.user)}
    with pytest.raises(HostError, match=r"^a: nobody is root on a virtual host$"):
        hosts["a"].run("id", root=True)


DEVICES = "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"


def test_a_host_has_devices_of_its_own(hosts: Hosts) -> None:
    host = hosts["a"]
    assert host.run("ls -A /dev").stdout.split() == DEVICES.split()
    assert host.run("find /dev -type b -o -type c -name 'vd*'").stdout == ""
    assert host.run("echo kept >/dev/null; head -c 3 /dev/zero | wc -c").stdout.strip() == "3"
    assert host.run("echo x >/dev/shm/mine && cat /dev/shm/mine").stdout == "x\n"
    # A terminal, and what only shows where there is one.
    assert host.run("script -qec 'tty' /dev/null").stdout.startswith("/dev/pts/")
    assert host.run("echo x >/dev/full", check=False).returncode


@pytest.mark.parametrize(
    "command",
    [
        "mknod /tmp/disk b 254 0",
        "mount -t tmpfs none /mnt",
        "unshare --user --map-root-user sh -c 'mount -o remount,rw / && echo >/etc/hosts'",
        "chroot / true",
        "nsenter --mount --target=1 true",
        "hostname other",
        "ip link set data0 down",
        "[ -w /proc/sys/net/ipv4/ip_forward ]",
        # Whoever can write there becomes root of the machine. Looked at only.
        "[ -w /proc/sys/kernel/core_pattern ]",
        "echo x >/etc/hosts",
        "cat /etc/shadow",
        "ls /root",
        # Everybody may open that one; only root's writing has an effect.
        "find /proc/sys /sys -writable ! -type l 2>/dev/null | grep -v /ns_last_pid",
    ],
)
def test_a_host_is_no_way_to_the_machine(hosts: Hosts, command: str) -> None:
    assert hosts["a"].run(command, check=False).returncode != 0


def test_a_host_sees_no_block_device_of_the_machine(hosts: Hosts) -> None:
    blocks = [path for path in Path("/dev").iterdir() if stat.S_ISBLK(path.stat().st_mode)]
    if not blocks:
        pytest.skip("this machine has no block device to try")
    for path in blocks:
        assert hosts["a"].run(f"head -c 1 {path}", check=False).returncode != 0


def test_what_only_root_may_read_here_stays_here(hosts: Hosts) -> None:
    secret = Path("/root/.nova-test-secret")
    secret.write_text("mine")
    try:
        secret.chmod(0o644)
        assert hosts["a"].run(f"cat {secret}", check=False).returncode != 0
    finally:
        secret.unlink()


def test_hosts_cannot_connect_to_the_machine(hosts: Hosts, names: Names) -> None:
    attempt = (
        "import socket, sys\n"
        "with socket.socket(socket.AF_INET, getattr(socket, sys.argv[3])) as s:\n"
        "    s.settimeout(1); s.connect((sys.argv[1], int(sys.argv[2]))); s.send(b'x')\n"
    )
    with (
        socket.create_server((names.controller, 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        udp.bind((names.controller, 0))
        tcp.settimeout(0.1)
        udp.settimeout(0.1)
        for server, kind in ((tcp, "SOCK_STREAM"), (udp, "SOCK_DGRAM")):
            port = server.getsockname()[1]
            hosts["a"].run(
                f'python3 -c "{attempt}" {names.controller} {port} {kind}', check=False, timeout=20
            )
        with pytest.raises(TimeoutError):
            tcp.accept()
        with pytest.raises(TimeoutError):
            udp.recv(10)
