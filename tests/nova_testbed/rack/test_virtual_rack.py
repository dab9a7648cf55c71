"""Real racks. They need root and namespaces; in CI they must run."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import stat
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from needs import skip_or_fail

from nova_testbed import netem
from nova_testbed.inventory import HostSpec, Inventory, Link
from nova_testbed.rack import (
    RackError,
    RackStatus,
    RackWarning,
    VirtualRack,
    clean,
    leftovers,
    missing,
    network,
)
from nova_testbed.rack.processes import local_run, marked

Run = Callable[..., subprocess.CompletedProcess[str]]

# All that listen print their port first.

# Sends every datagram back until none has come for 3 s.
ECHO = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("", 0)); s.settimeout(3)
print(s.getsockname()[1], flush=True)
while True:
    data, sender = s.recvfrom(2000)
    s.sendto(data, sender)
"""
# Prints round-trip times, ms, of so many datagrams one after the other; null for lost ones.
PING = """
import json, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((sys.argv[1], int(sys.argv[2])))
s.settimeout(0.1)
found = []
for number in range(int(sys.argv[3])):
    sent = time.perf_counter(); text = str(number).encode(); s.send(text)
    try:
        while s.recv(2000) != text: pass
        found.append((time.perf_counter() - sent) * 1000)
    except TimeoutError:
        found.append(None)
print(json.dumps(found))
"""
# Sends a stream back as it comes.
SERVE = """
import socket
s = socket.create_server(("", 0)); print(s.getsockname()[1], flush=True)
c, _ = s.accept()
while data := c.recv(65536): c.sendall(data)
"""
# Prints how many lines came back on one connection in so many seconds, 20 a second.
TALK = """
import socket, sys, time
c = socket.create_connection((sys.argv[1], int(sys.argv[2]))); f = c.makefile("rw"); count = 0
print("connected", flush=True)
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end or count < 10:  # a busy machine takes its time
    f.write(f"{count}\\n"); f.flush()
    assert f.readline() == f"{count}\\n"
    count += 1; time.sleep(0.05)
print(count)
"""
# Prints the rate, Mbit/s, at which so many bytes arrive.
SINK = """
import socket, time
s = socket.create_server(("", 0)); print(s.getsockname()[1], flush=True)
c, _ = s.accept(); began = time.monotonic(); size = 0
while data := c.recv(65536): size += len(data)
print(size * 8 / (time.monotonic() - began) / 1e6)
"""
PUSH = """
import socket, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2])))
c.sendall(b"x" * int(sys.argv[3])); c.close()
"""
# Whether there is a packet filter, which keeps other users from racks.
GUARDED = not subprocess.run("nft list tables", shell=True, capture_output=True).returncode
BURN = """
import time
end = time.monotonic() + 1
while time.monotonic() < end: pass
print(time.process_time())
"""


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    reason = "these tests of virtual racks need root" if os.geteuid() else missing()
    if reason:
        skip_or_fail(str(reason))


def inventory(name: str, *hosts: HostSpec, **links: Link) -> Inventory:
    """Links are named like ``a_b``."""
    pairs = {(pair[0], pair[-1]): link for pair, link in links.items()}
    return Inventory(name, hosts, pairs, virtual=True)


THREE = inventory(
    "nova-test",
    HostSpec("a", memory=128 << 20),
    HostSpec("b"),
    HostSpec("c"),
    a_b=Link(20.0),
    b_c=Link(6.0),
)


def ssh(up: Inventory, host: str, command: str, *, shared: bool = True) -> list[str]:
    """How to run a command on a host; over one connection a host, if it is to be shared."""
    spec = up.host(host)
    assert spec.key_file is not None
    options = [
        *("-i", str(spec.key_file), "-o", f"UserKnownHostsFile={spec.known_hosts}"),
        *("-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"),
        *("-o", "IdentitiesOnly=yes", "-F", "none"),
    ]
    target = f"{spec.user}@{spec.address}"
    if shared:
        socket = spec.key_file.parent / f".{spec.address}"
        options += ["-o", f"ControlPath={socket}"]
        if not socket.exists():
            # Its errors are those of the command that follows.
            subprocess.run(["ssh", *options, "-MNf", target], stderr=subprocess.DEVNULL)
    return ["ssh", *options, target, command]


# The interpreter itself: hosts have a /tmp of their own, where no virtual environment is.
PYTHON = str(Path(sys.executable).resolve())


def python(script: str, *arguments: object) -> str:
    return shlex.join([PYTHON, "-I", "-S", "-c", script, *map(str, arguments)])


def on(up: Inventory, host: str, command: str) -> str:
    """What a command prints on a host."""
    done = subprocess.run(ssh(up, host, command), text=True, capture_output=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextlib.contextmanager
def background(
    up: Inventory, host: str, command: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command on a host, and the first line it has printed."""
    process = subprocess.Popen(ssh(up, host, command), text=True, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line
        yield process, line
    finally:
        process.kill()
        process.communicate()


def ping(up: Inventory, a: str, b: str, count: int = 40) -> list[float | None]:
    """Round-trip times, ms; None for each datagram lost."""
    with background(up, b, python(ECHO)) as (_, port):
        found = json.loads(on(up, a, python(PING, up.host(b).address, port, count)))
    assert isinstance(found, list)
    return found


def best_mbit(up: Inventory, a: str, b: str, size: int) -> float:
    """Rate at which bytes arrive, Mbit/s: the highest of three, as a machine may be held up."""
    found = []
    for _ in range(3):
        with background(up, b, python(SINK)) as (sink, port):
            on(up, a, python(PUSH, up.host(b).address, port, size))
            found.append(float(sink.communicate(timeout=60)[0]))
    return max(found)


@contextlib.contextmanager
def talking(up: Inventory, a: str, b: str, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A connection between two hosts in use for some time."""
    address = up.host(b).address
    with (
        background(up, b, python(SERVE)) as (_, port),
        background(up, a, python(TALK, address, port, seconds)) as (talk, _),
    ):
        yield talk


def median(times: list[float | None]) -> float:
    return statistics.median(time for time in times if time is not None)


def status_line(status: RackStatus) -> str:
    return f"{status.state}: {', '.join(status.problems)}"


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualRack]:
    made = VirtualRack(THREE, tmp_path_factory.mktemp("racks") / "three")
    made.up()
    number = made.status().number
    yield made
    made.down()
    assert leftovers(number, [made.state.path]) == ()
    assert made.status().state == "down"


@pytest.fixture
def up(rack: VirtualRack) -> Inventory:
    """The rack as it was made, whatever the last test did to it."""
    return rack.up()


def test_hosts_are_like_machines_of_their_own(up: Inventory, tmp_path: Path) -> None:
    said = on(up, "b", "hostname; id -un; ls -A ~ /tmp; ps ax | wc -l; ulimit -c; ls -d /root")
    name, user, *rest = said.splitlines()
    assert (name, user) == ("b", "nova")
    assert int(rest[-3]) < 12
    files = "~/mine /tmp/mine /var/tmp/nova-mine"
    on(up, "b", f"for file in {files}; do echo mine >$file; done")
    assert on(up, "b", f"cat {files}").split() == ["mine"] * 3
    assert on(up, "a", f"ls {files} 2>/dev/null | wc -l") == "0"
    for path in ("/tmp/mine", "/var/tmp/nova-mine"):
        assert not Path(path).exists()
    # What is installed here is there, and names lead to other hosts.
    assert on(up, "a", "command -v sshd; getent hosts c").split()[-2:] == [up.hosts[2].address, "c"]


def test_hosts_cannot_set_the_clock(up: Inventory) -> None:
    now = on(up, "a", f"date -s @{int(time.time())} 2>&1 || true")
    assert "Operation not permitted" in now


def test_round_trips_are_as_asked_for(up: Inventory) -> None:
    """Generous: other programs run on this machine."""
    for a, b, asked in (("a", "b", 20.0), ("c", "b", 6.0), ("a", "c", 0.0)):
        found = median(ping(up, a, b))
        assert asked - 0.5 <= found <= asked + 3.0


def test_links_change_while_they_are_used(rack: VirtualRack, up: Inventory) -> None:
    with talking(up, "a", "b", 1.5) as talk:
        rack.set_link("b", "a", Link(40.0, loss_percent=5.0))
        with pytest.raises(RackError, match="no host 'd'; there are a, b, c"):
            rack.set_link("a", "d", Link())
        assert 39 < median(ping(up, "a", "b", 20)) < 46
        # The connection that was open has not been interrupted.
        assert int(talk.communicate(timeout=30)[0]) >= 10
    # `up` makes the inventory's links again.
    assert 19 < median(ping(rack.up(), "a", "b", 20)) < 25


def test_packets_are_lost_and_jitter(rack: VirtualRack, up: Inventory) -> None:
    rack.set_link("a", "c", Link(8.0, jitter_ms=3.0))
    times = [found for found in ping(up, "a", "c", 60) if found is not None]
    assert len(times) == 60
    assert min(times) < 7 < 9 < max(times)
    assert min(times) > 1.5
    rack.set_link("a", "c", Link(loss_percent=30.0))
    lost = ping(up, "a", "c", 40).count(None)
    # Each way loses 30 %: 49 % get through.
    assert 6 <= lost <= 34
    counters = rack.status().switch
    assert counters is not None
    assert counters.dropped_loss >= lost / 2


def test_bandwidth_is_limited(rack: VirtualRack, up: Inventory) -> None:
    rack.set_link("a", "c", Link(4.0, bandwidth_mbit=8.0))
    assert 6 < best_mbit(up, "a", "c", 1_500_000) < 9


def test_cpu_is_limited_while_running(rack: VirtualRack, up: Inventory) -> None:
    rack.set_limits(cpu={"c": 0.1})
    before = rack.status().hosts[2]
    share = float(on(up, "c", python(BURN)))
    after = rack.status().hosts[2]
    assert before.cpu == after.cpu == 0.1
    assert 0.05 < share < 0.13
    assert before.usage.cpu_seconds is not None
    assert after.usage.cpu_seconds is not None
    assert 0.8 * share <= after.usage.cpu_seconds - before.usage.cpu_seconds <= 2
    rack.set_limits(cpu={"c": None})
    assert float(on(up, "c", python(BURN))) > 0.2
    with pytest.raises(RackError, match=r"must be 0\.001 cores or more"):
        rack.set_limits(cpu={"c": 0.0})


def test_memory_is_limited(rack: VirtualRack, up: Inventory) -> None:
    hog = python("x = b'x' * (1 << 20)\ny = [x + b'y' for _ in range(300)]")
    assert on(up, "a", f"{hog} 2>/dev/null; echo $?") == "137"
    host = rack.status().hosts[0]
    assert host.usage.oom_kills
    assert on(up, "a", "echo alive") == "alive"
    rack.set_limits(memory={"a": None})
    on(up, "a", hog)
    # A limit below what is in use: the kernel refuses, and that is told.
    with pytest.raises(RackError, match=r"memory\.(limit_in_bytes|max): the kernel refuses"):
        rack.set_limits(memory={"a": -5})


def test_a_switch_killed_and_restarted_keeps_connections(rack: VirtualRack, up: Inventory) -> None:
    if rack.status().emulation != "switch":
        pytest.skip("the kernel has netem: there is no switch")
    with talking(up, "a", "b", 2) as talk:
        number = rack.status().number
        (pid,) = marked(number)["switch:"]
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.3)
        broken = rack.status()
        assert status_line(broken) == "broken: the switch is not running"
        with pytest.raises(RackError, match="the switch of rack nova-test does not answer"):
            rack.set_link("a", "b", Link(1.0))
        rack.restart_switch()
        assert rack.status().state == "up"
        assert int(talk.communicate(timeout=30)[0]) >= 10
    # The link that was refused is not in force.
    assert 19 < median(ping(up, "a", "b", 10)) < 25


def test_a_host_killed_is_noticed_and_comes_up_again(rack: VirtualRack, up: Inventory) -> None:
    on(up, "c", "echo kept >~/kept; setsid sleep 1000 >/dev/null 2>&1 </dev/null &")
    number = rack.status().number
    rack.kill_host("c")
    assert status_line(rack.status()) == "broken: host c is not running"
    assert "c" not in marked(number)
    done = subprocess.run(ssh(up, "c", "true"), text=True, capture_output=True, timeout=20)
    assert done.returncode == 255
    assert "Connection refused" in done.stderr
    assert on(up, "b", "echo fine") == "fine"
    again = rack.up()
    assert again == up
    assert on(again, "c", "cat ~/kept; ps ax | grep -c '[s]leep 1000' || true") == "kept\n0"
    with pytest.raises(RackError, match="no host 'd'"):
        rack.kill_host("d")


def test_an_sshd_that_ends_ends_its_host_and_up_mends_it(rack: VirtualRack, up: Inventory) -> None:
    done = subprocess.run(ssh(up, "b", "kill -TERM 1"), capture_output=True, timeout=20)
    assert done.returncode in (0, 255)
    end = time.monotonic() + 5
    while rack.status().state == "up" and time.monotonic() < end:
        time.sleep(0.05)
    assert status_line(rack.status()) == "broken: host b is not running"
    assert on(rack.up(), "b", "hostname") == "b"


def test_up_is_safe_to_repeat(rack: VirtualRack, up: Inventory) -> None:
    number = rack.status().number
    before = marked(number)
    steps: list[str] = []
    assert rack.up(lambda what, done, total: steps.append(what)) == up
    assert marked(number) == before
    assert "starting hosts" not in steps
    other = VirtualRack(inventory("nova-test", HostSpec("z")), rack.state.path)
    with pytest.raises(RackError, match="is up with other hosts"):
        other.up()


def test_management_is_isolated_and_data_goes_by_the_switch_only(up: Inventory) -> None:
    management = up.host("b").address.replace("198.19.", "198.18.")
    script = (
        "import socket\n"
        "try: socket.create_connection(('%s', 22), timeout=1); print('open')\n"
        "except OSError as error: print('closed')"
    )
    assert on(up, "a", python(script % management)) == "closed"
    assert on(up, "a", python(script % up.host("b").address)) == "open"
    # Nothing outside of the rack is to be reached.
    assert on(up, "a", "ip route show default; cat /proc/sys/net/ipv4/ip_forward") == "0"
    # sshd listens at the one address of its host and nowhere else.
    listening = on(up, "a", "ss -Hltn 2>/dev/null || cat /proc/net/tcp")
    assert f"{up.host('a').address}:22" in listening
    assert "0.0.0.0:22" not in listening


def test_keys_are_the_racks_own_and_secret(rack: VirtualRack, up: Inventory) -> None:
    key = up.hosts[0].key_file
    assert key is not None
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    command = ssh(up, "a", "true", shared=False)
    command[command.index(str(key))] = "/dev/null"
    done = subprocess.run(command, text=True, capture_output=True, timeout=20)
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr
    host_key = Path(rack.state.path, "disks", "a", "upper/etc/ssh/nova/host_key")
    if host_key.exists():
        assert stat.S_IMODE(host_key.stat().st_mode) == 0o600


def test_two_racks_side_by_side(rack: VirtualRack, up: Inventory, tmp_path: Path) -> None:
    second = VirtualRack(inventory("second", HostSpec("a"), HostSpec("b")), tmp_path / "second")
    found = second.up()
    numbers = rack.status().number, second.status().number
    assert numbers[0] != numbers[1]
    assert on(found, "a", "hostname") == "a"
    assert {spec.address for spec in found.hosts}.isdisjoint(spec.address for spec in up.hosts)
    second.down()
    second.down()  # once more is no error
    assert leftovers(numbers[1], [second.state.path]) == ()
    assert rack.status().state == "up"


def test_netem_in_place_of_the_switch(tmp_path: Path) -> None:
    """Limits need no netem; delays do, and where the kernel lacks it that is a clear error."""
    limited = inventory("shaped", HostSpec("a"), HostSpec("b"), a_b=Link(bandwidth_mbit=8.0))
    rack = VirtualRack(limited, tmp_path / "shaped", emulation="netem")
    try:
        up = rack.up()
        assert rack.status().switch is None
        assert rack.status().state == "up"
        assert 6 < best_mbit(up, "a", "b", 1_000_000) < 9
        if len(netem.supported(local_run)) == 3:
            rack.set_link("a", "b", Link(20.0))
            assert 19 < median(ping(up, "a", "b", 20)) < 25
        else:
            with pytest.raises(RackError, match="qdisc kind is unknown"):
                rack.set_link("a", "b", Link(20.0))
        number = rack.status().number
    finally:
        rack.down()
    assert leftovers(number, [rack.state.path]) == ()


def test_an_up_that_fails_leaves_nothing(tmp_path: Path) -> None:
    numbers: list[int | None] = []
    doomed = VirtualRack(
        inventory("doomed", HostSpec("a"), HostSpec("b", cpu=0.0001)), tmp_path / "doomed"
    )

    def watch(what: str, done: int, total: int) -> None:
        if what == "waiting for SSH" and done == 0:
            numbers.append(doomed.status().number)
            assert len(leftovers(numbers[0])) > 10

    with pytest.raises(RackError, match=r"CPU limit 0\.0001"):
        doomed.up(watch)
    assert numbers
    assert leftovers(numbers[0], [doomed.state.path]) == ()


UP = """
import sys
from pathlib import Path
from nova_testbed.inventory import HostSpec, Inventory
from nova_testbed.rack import VirtualRack
hosts = tuple(HostSpec(f"h{i}") for i in range(3))
rack = VirtualRack(Inventory("broken-off", hosts, {}, True), Path(sys.argv[1]))
def tell(what, done, total):
    if what == sys.argv[2]:
        print(rack.status().number, flush=True)
        sys.stdin.readline()
rack.up(tell)
"""


@contextlib.contextmanager
def stopped_at(step: str, directory: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that is bringing up a rack and has come to a step, and the rack's number."""
    with subprocess.Popen(
        [sys.executable, "-c", UP, str(directory), step],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate()[1])
        yield process, int(line)
        process.kill()


@pytest.mark.parametrize("step", ["network", "starting hosts", "waiting for SSH"])
def test_ctrl_c_during_up_leaves_nothing(step: str, tmp_path: Path) -> None:
    with stopped_at(step, tmp_path / "rack") as (process, number):
        assert leftovers(number, [tmp_path / "rack"])
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert leftovers(number, [tmp_path / "rack"]) == ()


def test_clean_removes_what_a_crashed_run_left(rack: VirtualRack, tmp_path: Path) -> None:
    root = tmp_path / "racks"
    with stopped_at("waiting for SSH", root / "broken") as (process, number):
        process.kill()
        process.wait(timeout=20)
    kinds = {item.kind for item in leftovers(number, [root / "broken"])}
    expected = {"process", "cgroup", "namespace", "device", "route", "mount", "directory"}
    expected |= {"table"} if GUARDED else set()
    assert kinds == expected
    assert network.state_directory_of(number) == root / "broken"
    # As where the namespaces have gone already: a bridge without ports, which routes tell.
    for device in network.devices(number):
        if not device.endswith("br"):
            subprocess.run(["ip", "link", "del", device], check=True)
    show = ["ip", "-4", "route", "show", "dev", f"novarack{number}br"]
    end = time.monotonic() + 10
    while "linkdown" not in subprocess.run(show, capture_output=True, text=True).stdout:
        assert time.monotonic() < end
        time.sleep(0.05)
    cleaned = clean(all_racks=False, state_root=root)
    assert leftovers(number, [root / "broken"]) == ()
    assert any(f"rack {number} ({root / 'broken'}): " in line for line in cleaned)
    assert rack.status().state == "up"


def test_clean_can_leave_what_is_up(tmp_path: Path) -> None:
    root = tmp_path / "racks"
    used = VirtualRack(inventory("used", HostSpec("a"), HostSpec("b")), root / "used")
    used.up()
    try:
        with pytest.warns(RackWarning, match=r"rack used .* is up and stays; .*clean --all"):
            left = clean(running=False, all_racks=False, state_root=root)
        assert not any(str(used.state.path) in line for line in left)
        assert used.status().state == "up"
        used.kill_host("b")
        removed = clean(running=False, all_racks=False, state_root=root)
        assert any(str(used.state.path) in line for line in removed)
        assert used.status().state == "down"
    finally:
        used.down()


def test_up_starts_afresh_after_a_crash(tmp_path: Path) -> None:
    with stopped_at("waiting for SSH", tmp_path / "rack") as (process, number):
        process.kill()
        process.wait(timeout=20)
    three = Inventory("broken-off", tuple(HostSpec(f"h{i}") for i in range(3)), {}, True)
    rack = VirtualRack(three, tmp_path / "rack")
    assert status_line(rack.status()).startswith("broken: it was never brought up completely")
    try:
        assert on(rack.up(), "h2", "hostname") == "h2"
    finally:
        rack.down()
    assert leftovers(number, [tmp_path / "rack"]) == ()


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RackError, match="has other files in it"):
        VirtualRack(THREE, tmp_path).up()
    assert (tmp_path / "thesis.tex").exists()


def test_orders_to_a_rack_that_is_down_say_so(tmp_path: Path) -> None:
    down = VirtualRack(THREE, tmp_path / "rack")
    assert status_line(down.status()) == "down: "
    for order in (
        down.reachable,
        down.restart_switch,
        lambda: down.set_link("a", "b", Link()),
        lambda: down.set_limits(cpu={"a": 1.0}),
        lambda: down.kill_host("a"),
    ):
        with pytest.raises(RackError, match="rack nova-test is not up: `nova testbed up` first"):
            order()
    down.down()


def test_after_a_reboot_only_files_are_left_and_go(tmp_path: Path) -> None:
    root = tmp_path / "racks"
    rack = VirtualRack(inventory("rebooted", HostSpec("a")), root / "rebooted")
    rack.up()
    number = rack.status().number
    kept = rack.state.record_file.read_bytes()
    rack.down()
    rack.state.create()
    rack.state.record_file.write_bytes(kept)
    assert rack.status().state == "down"
    cleaned = clean(all_racks=False, state_root=root)
    assert f"rack {number} ({rack.state.path}): files" in cleaned
    assert not rack.state.path.exists()


# As in a container that shares the machine's network: the directory $1 is empty there.
ELSEWHERE = """
mount -t tmpfs none "$1" && exec "$2" -c '
import sys; from pathlib import Path; from nova_testbed.rack import clean
print(clean(running=False, all_racks=False, state_root=Path(sys.argv[1])))' "$1"
"""


def test_clean_leaves_the_running_rack_of_another_container(tmp_path: Path) -> None:
    root = tmp_path / "racks"
    used = VirtualRack(inventory("elsewhere", HostSpec("a")), root / "elsewhere")
    used.up()
    try:
        command = ["unshare", "--mount", "sh", "-c", ELSEWHERE, "sh", str(root), sys.executable]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert str(used.state.path) not in done.stdout
        assert used.status().state == "up"
    finally:
        used.down()


# Runs in a network of its own that forwards packets: a machine with a rack, and another machine
# beside it that knows the way to the rack and tries to get in.
OUTSIDE = """
set -e
name=$1
shift
mount --rbind /sys/fs/cgroup /mnt
mount -t sysfs sysfs /sys
mount --rbind /mnt /sys/fs/cgroup
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
ip netns add "$name"
trap 'ip netns del "$name"' EXIT
ip link add in0 type veth peer name out0 netns "$name"
ip addr add 10.99.0.1/24 dev in0
ip link set in0 up
ip -n "$name" addr add 10.99.0.2/24 dev out0
ip -n "$name" link set out0 up
ip -n "$name" route add 198.18.0.0/15 via 10.99.0.1
"$@"
"""
INTRUDE = """
import json, socket, subprocess, sys
from pathlib import Path
from nova_testbed.inventory import HostSpec, Inventory
from nova_testbed.rack import VirtualRack
rack = VirtualRack(Inventory("besieged", (HostSpec("a"),), {}, True), Path(sys.argv[2]))
CONNECT = '''
import socket, sys
try: socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1.5); print("open")
except OSError as error: print("closed")
'''
def attempt(address, port, *prefix):
    command = [*prefix, sys.executable, "-I", "-S", "-c", CONNECT, address, str(port)]
    return subprocess.run(command, text=True, capture_output=True).stdout.strip()
try:
    address = rack.up().hosts[0].address
    outside = ("ip", "netns", "exec", sys.argv[1])
    listener = socket.create_server(("10.99.0.1", 0))
    print(json.dumps([
        attempt("10.99.0.1", listener.getsockname()[1], *outside),
        attempt(address, 22),
        attempt(address, 22, *outside),
        attempt(address.replace("198.19", "198.18"), 22, *outside),
    ]))
finally:
    rack.down()
"""


def test_nothing_is_reachable_from_another_machine(tmp_path: Path) -> None:
    name = f"outside{os.getpid()}"
    done = subprocess.run(
        [
            *("unshare", "--net", "--mount", "sh", "-c", OUTSIDE, "sh", name),
            *(sys.executable, "-c", INTRUDE, name, str(tmp_path / "rack")),
        ],
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    # The way between the two machines is open, and the rack is up; but not for the other machine.
    assert json.loads(done.stdout) == ["open", "open", "closed", "closed"]
