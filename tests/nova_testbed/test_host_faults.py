"""What can go wrong with hosts, and that it is told in one line."""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from loopback_hosts import (
    LoopbackSshd,
    loopback_inventory,
    make_key,
    public,
    rack_inventory,
    sshds,
)
from needs import need_namespaces, skip_or_fail
from virtual_hosts import run_as_root

from nova_testbed import connection
from nova_testbed.connection import HostError, UnreachableError
from nova_testbed.host import Host, HostTimeoutError
from nova_testbed.hosts import Hosts, HostsWarning, connect
from nova_testbed.inventory import HostSpec, Inventory
from nova_testbed.rack import VirtualRack


@pytest.fixture
def sshd() -> Iterator[LoopbackSshd]:
    with sshds("one") as (running,):
        yield running


def error_of(spec: HostSpec) -> str:
    with pytest.raises(UnreachableError) as raised:
        connect(Inventory("faulty", (spec,)))
    text = str(raised.value)
    assert text.startswith(f"{spec.name}: ") and "\n" not in text
    return text


# --- no connection -------------------------------------------------------------------------------


def test_a_wrong_key(sshd: LoopbackSshd, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    text = error_of(replace(sshd.spec(), key_file=other))
    assert f"does not accept the key {other} for user" in text
    assert f"ssh-copy-id -i {other} -p {sshd.port} " in text


def test_a_file_that_is_no_key(sshd: LoopbackSshd, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key")
    assert "no SSH connection" in error_of(replace(sshd.spec(), key_file=tmp_path / "key"))


def test_an_unknown_host_key(sshd: LoopbackSshd, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    text = error_of(replace(sshd.spec(), known_hosts=empty))
    fingerprint = subprocess.run(
        ["ssh-keygen", "-lf", sshd.directory / "host_key.pub"], capture_output=True, text=True
    ).stdout.split()[1]
    assert fingerprint in text
    # What the error says to do, helps.
    command = text.rpartition("then: ")[2]
    subprocess.run(command, shell=True, check=True, stderr=subprocess.DEVNULL)
    spec = replace(sshd.spec(), known_hosts=empty)
    with connect(Inventory("mended", (spec,))) as hosts:
        assert hosts["one"].run("echo fine").stdout == "fine\n"


def test_a_changed_host_key(sshd: LoopbackSshd, tmp_path: Path) -> None:
    other = public(make_key(tmp_path / "other"))
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{sshd.port} {other}")
    text = error_of(replace(sshd.spec(), known_hosts=known))
    assert f"shows another host key than {known} has" in text


def test_nothing_listens(sshd: LoopbackSshd) -> None:
    sshd.stop()
    assert f"nothing listens at 127.0.0.1 port {sshd.port}" in error_of(sshd.spec())
    sshd.start()


def test_an_address_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.5)
    with contextlib.ExitStack() as stack:
        # When a listener's queue is full, connecting to it is met with silence.
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        port = listener.getsockname()[1]
        text = error_of(HostSpec("far", address="127.0.0.1", port=port))
    assert f"127.0.0.1 port {port} does not answer within 0.5 s" in text


def test_an_address_that_is_not_known() -> None:
    assert "address 'no.invalid' is not known" in error_of(HostSpec("far", address="no.invalid"))


def test_a_virtual_host_that_is_not_up() -> None:
    assert "nova testbed up" in error_of(HostSpec("one"))


def test_one_of_many_is_named_and_the_rest_is_disconnected(sshd: LoopbackSshd) -> None:
    gone = replace(sshd.spec(), name="gone", port=1)
    with pytest.raises(UnreachableError, match=r"^gone: nothing listens"):
        connect(Inventory("mixed", (sshd.spec(), gone)))
    assert descendants_of(sshd) == []


def descendants_of(sshd: LoopbackSshd) -> list[str]:
    """The sessions an sshd still serves, after a moment to end them."""
    assert sshd.process is not None
    path = Path(f"/proc/{sshd.process.pid}/task/{sshd.process.pid}/children")
    deadline = time.monotonic() + 5
    while path.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    return path.read_text().split()


# --- a connection that ends ----------------------------------------------------------------------


def test_sshd_gone_while_a_command_runs(sshd: LoopbackSshd) -> None:
    with (
        pytest.warns(HostsWarning),
        pytest.raises(UnreachableError, match=r"^one: the connection"),
        connect(loopback_inventory([sshd])) as hosts,
    ):
        hosts["one"].start("sleep 222.1")
        threading.Timer(0.3, sshd.stop).start()
        hosts["one"].run("sleep 222.2")
    sshd.start()
    with connect(loopback_inventory([sshd])) as hosts:
        (left,) = hosts["one"].jobs()
        left.end()


def test_an_sshd_that_comes_back_is_connected_to_again(sshd: LoopbackSshd) -> None:
    with connect(loopback_inventory([sshd])) as hosts:
        job = hosts["one"].start("sleep 222.3")
        sshd.stop()
        with pytest.raises(HostError):
            hosts["one"].run("true")
        sshd.start()
        assert hosts["one"].run("echo again").stdout == "again\n"
        assert job.alive()
    assert not Path(f"/proc/{job.pid}/exe").exists()


def test_more_sessions_than_sshd_admits(sshd: LoopbackSshd) -> None:
    """Ten is what an ordinary sshd admits at a time; the rest has to wait."""
    with connect(loopback_inventory([sshd])) as hosts:
        host = hosts["one"]
        threads = [
            threading.Thread(target=lambda: done.append(host.run("sleep 0.2").returncode))
            for _ in range(25)
        ]
        done: list[int] = []
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert done == [0] * 25


def test_a_host_too_busy_to_answer(sshd: LoopbackSshd, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(loopback_inventory([sshd])) as hosts:
        for seconds in ("CONNECT_SECONDS", "SESSION_SECONDS"):
            monkeypatch.setattr(connection, seconds, 0.5)
        assert sshd.process is not None
        serving = processes_below(sshd.process.pid)
        signal_all(serving, signal.SIGSTOP)
        try:
            with pytest.raises(HostError, match=r"no session within 0\.5 s; is the host too busy"):
                hosts["one"].run("true")
        finally:
            signal_all(serving, signal.SIGCONT)
        monkeypatch.undo()
        assert hosts["one"].run("echo again").stdout == "again\n"


def signal_all(processes: list[int], number: signal.Signals) -> None:
    """Also where some, of a session that has just ended, are gone."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def processes_below(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [each for child in map(int, children) for each in (child, *processes_below(child))]


# --- on the host ---------------------------------------------------------------------------------


@pytest.fixture
def full(connected: Hosts) -> Iterator[tuple[Host, str]]:
    """A host with a directory on a disk of 256 KiB."""
    host = next(iter(connected))
    place = host.run("mktemp -d").stdout.strip()

    def as_root(command: str) -> bool:
        if host.spec.rootless:
            return run_as_root(host, command)
        with contextlib.suppress(HostError):
            return host.run(command, root=True, check=False).returncode == 0
        return False

    if not as_root(f"mount -t tmpfs -o size=256k,mode=1777 tmpfs {place}"):
        skip_or_fail("a small disk cannot be mounted (no root)")
    yield host, place
    assert as_root(f"umount {place} && rmdir {place}")


@pytest.mark.parametrize("size", [600 << 10, 3 << 20], ids=["tar", "rsync"])
@pytest.mark.parametrize("directory", [False, True], ids=["file", "directory"])
def test_a_full_disk(full: tuple[Host, str], tmp_path: Path, size: int, directory: bool) -> None:
    host, place = full
    local = tmp_path / "d"
    local.mkdir()
    (local / "big").write_bytes(os.urandom(size))
    with pytest.raises(HostError) as raised:
        host.put(local if directory else local / "big", f"{place}/new")
    assert str(raised.value).startswith(f"{host.name}: put {local}")
    assert "the disk there is full" in str(raised.value)
    # Nothing that looks whole; rsync keeps what it has of a directory, to go on with.
    assert host.run(f"ls -A {place}/new/big", check=False).returncode != 0
    assert host.run(f"[ -f {place}/new ]", check=False).returncode != 0


def test_a_place_here_that_cannot_be_written(connected: Hosts, tmp_path: Path) -> None:
    host = next(iter(connected))
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match=rf"^{host.name}: get /etc/hostname to .*: "):
        host.get("/etc/hostname", tmp_path / "file" / "below")
    with pytest.raises(HostError, match=r"is a directory here; name the file in it"):
        host.get("/etc/hostname", tmp_path)


def test_a_transfer_that_takes_too_long(connected: Hosts, tmp_path: Path) -> None:
    host = next(iter(connected))
    (tmp_path / "big").write_bytes(bytes(64 << 20))
    place = host.run("mktemp -d").stdout.strip()
    with pytest.raises(HostTimeoutError, match=rf"^{host.name}: "):
        host.put(tmp_path / "big", f"{place}/big", timeout=0.02)
    assert host.run(f"ls -A {place}").stdout == ""


# --- interrupted ---------------------------------------------------------------------------------

PROGRAM = """
import sys, pickle, base64
from nova_testbed.hosts import connect
with connect(pickle.loads(base64.b64decode(sys.argv[1]))) as hosts:
    hosts.map(lambda host: host.start("sleep 111.1"))
    print("ready", flush=True)
    {work}
"""


@pytest.mark.e2e
@pytest.mark.parametrize("work", ['hosts.run("sleep 111.2")', 'hosts["one"].run("sleep 111.2")'])
def test_ctrl_c_stops_everything_on_all_hosts(work: str) -> None:
    with sshds("one", "two") as running:
        inventory = base64.b64encode(pickle.dumps(loopback_inventory(running))).decode()
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(work=work), inventory],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert "KeyboardInterrupt" in errors
        assert process.returncode == -signal.SIGINT
        assert running_commands("sleep 111.") == []


def running_commands(beginning: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if command.startswith(beginning):
            found.append(command)
    return found


def test_no_rsync_no_matter(
    connected: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = next(iter(connected))
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "rsync" else which(name))
    (tmp_path / "big").write_bytes(os.urandom(2 << 20))
    place = host.run("mktemp -d").stdout.strip()
    host.put(tmp_path / "big", f"{place}/big")
    host.get(f"{place}/big", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == (tmp_path / "big").read_bytes()


def test_leaving_a_command_that_prints_does_not_end_the_connection(sshd: LoopbackSshd) -> None:
    class LeaveError(Exception):
        pass

    def leave(data: bytes) -> None:
        raise LeaveError

    with connect(Inventory("one", (sshd.spec(),))) as hosts:
        transport = hosts["one"].connection.open()
        for _ in range(150):
            with pytest.raises(LeaveError):
                hosts["one"].stream("while :; do echo data; done", None, leave, 30)
            assert hosts["one"].connection.open() is transport


@pytest.mark.e2e
def test_a_host_killed_while_it_works() -> None:
    need_namespaces()
    rack = VirtualRack(rack_inventory("novafault"))
    try:
        with pytest.warns(HostsWarning, match="three: "), connect(rack.up()) as hosts:
            hosts["three"].start("sleep 200.1")
            other = hosts["two"].start("sleep 200.2")
            threading.Timer(0.3, lambda: rack.kill_host("three")).start()
            with pytest.raises(HostError, match=r"^three: the connection to .* was lost"):
                hosts.run("sleep 2")
            assert other.alive()
            with pytest.raises(UnreachableError, match=r"^three: "):
                hosts["three"].run("true")
            raise InterruptedError
    except InterruptedError:
        # It comes back, and its job, which ended with it, does not.
        with connect(rack.up()) as hosts:
            assert hosts["three"].run("hostname").stdout == "three\n"
            assert hosts["three"].jobs() == [] == hosts["two"].jobs()
    finally:
        rack.down()
