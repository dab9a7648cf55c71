"""What every host does, whether ordinary, virtual or real."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from nova_testbed.connection import HostError
from nova_testbed.host import CommandError, Host, HostTimeoutError
from nova_testbed.hosts import Hosts, connect
from nova_testbed.inventory import Inventory, InventoryError


@pytest.fixture
def host(connected: Hosts) -> Host:
    return next(iter(connected))


# --- run -----------------------------------------------------------------------------------------


def test_run_returns_what_a_command_prints(host: Host) -> None:
    done = host.run("echo out; echo err >&2; exit 3", check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 3)
    assert done.host == host.name and done.seconds > 0


def test_a_failure_is_an_error_that_names_the_host(host: Host) -> None:
    with pytest.raises(
        CommandError, match=rf"{host.name}: `cat /no/such` ended with 1: .*/no/such"
    ):
        host.run("cat /no/such")


def test_stdin_and_much_output_at_once(host: Host) -> None:
    data = bytes(range(32, 127)) * 50_000
    assert host.run("cat", stdin=data).stdout.encode() == data
    # A command that leaves its input unread is no fault.
    assert host.run("true", stdin=data).returncode == 0


def test_what_is_run_is_one_command_whatever_it_holds(host: Host) -> None:
    assert host.run("echo \"a'b\" '$HOME' # comment").stdout == "a'b $HOME\n"
    assert host.run("cat <<X\none\nX").stdout == "one\n"


def test_a_signal_shows_in_the_return_code(host: Host) -> None:
    assert host.run("sh -c 'kill -9 $$'", check=False).returncode == 137


def test_a_timeout_stops_everything_the_command_started(host: Host) -> None:
    command = "sleep 987.1 & setsid sleep 987.2 & sh -c 'sleep 987.3; true'"
    with pytest.raises(HostTimeoutError, match=rf"{host.name}: `sleep .* took over 0\.5 s"):
        host.run(command, timeout=0.5)
    assert "sleep 987" not in host.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout.replace(
        "cat /proc", ""
    )


def test_something_left_in_the_background_does_not_hold_a_command_up(host: Host) -> None:
    begin = time.monotonic()
    assert host.run("sleep 5.5 & echo $!").stdout.strip().isdigit()
    assert time.monotonic() - begin < 4


def test_commands_from_many_threads_share_a_connection(host: Host) -> None:
    transport = host.connection.open()
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda i=i: answers.append(host.run(f"echo {i}").stdout.strip()))
        for i in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers, key=int) == [str(i) for i in range(20)]
    assert host.connection.open() is transport


def test_root_is_root(host: Host) -> None:
    if host.spec.rootless or (not host.is_root and "sudo" not in host.programs):
        with pytest.raises(HostError, match="root"):
            host.run("id -u", root=True)
    else:
        assert host.run("id -u", root=True).stdout == "0\n"


# --- many at once --------------------------------------------------------------------------------


def test_many_hosts_at_the_same_time(connected: Hosts, inventory: Inventory) -> None:
    begin = time.monotonic()
    answers = connected.run("sleep 0.5; echo done")
    assert list(answers) == [spec.name for spec in inventory.hosts]
    assert {result.stdout for result in answers.values()} == {"done\n"}
    assert time.monotonic() - begin < 0.5 * len(inventory.hosts) + 1


def test_an_error_on_several_hosts_names_them_all(connected: Hosts) -> None:
    first, *others = [host.name for host in connected]
    with pytest.raises(HostError, match=f"{first}: .*and {len(others)} more: {', '.join(others)}"):
        connected.run("false")


def test_unknown_hosts(connected: Hosts, inventory: Inventory) -> None:
    with pytest.raises(InventoryError, match="unknown host 'nobody'"):
        connected["nobody"]
    with pytest.raises(InventoryError, match="unknown host 'nobody'"):
        connect(inventory, ["nobody"])


# --- in the background ---------------------------------------------------------------------------


def test_a_job_ends_with_all_it_started(host: Host) -> None:
    command = "echo begun; sleep 876.1 & setsid sleep 876.2 & (sleep 876.3 &) ; sleep 876.4; true"
    job = host.start(command)
    other = host.start("sleep 654.1")
    deadline = time.monotonic() + 10
    while len(job.processes()) < 6 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert job.pid in job.processes()
    assert job.output() == "begun\n"
    job.stop()
    assert not job.alive()
    assert other.alive()
    other.stop()
    assert "sleep 876" not in host.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout


def test_a_job_that_will_not_end_is_killed(host: Host) -> None:
    job = host.start("trap '' TERM; echo ready; while :; do sleep 0.1; done")
    deadline = time.monotonic() + 10
    while "ready" not in job.output() and time.monotonic() < deadline:
        time.sleep(0.05)
    begin = time.monotonic()
    job.stop(grace=0.3)
    assert time.monotonic() - begin < 5
    assert not job.alive()


def test_exit_status_of_a_job(host: Host) -> None:
    assert host.start("sleep 0.2; exit 7").wait() == 7
    killed = host.start("sleep 543.1")
    killed.stop(grace=0.1)
    assert killed.wait() == -1
    with pytest.raises(HostTimeoutError):
        host.start("sleep 543.2").wait(timeout=0.3)


def test_stopping_twice_and_late_hurts_nobody(host: Host) -> None:
    job = host.start("true")
    assert job.wait() == 0
    job.stop()
    job.stop()


def test_a_kept_job_outlives_its_client_and_is_found_again(inventory: Inventory) -> None:
    name = inventory.hosts[0].name
    with connect(inventory, [name]) as hosts:
        ended = hosts[name].start("sleep 432.1", name="ending")
        kept = hosts[name].start("sleep 432.2", name="keeper", keep=True)
    with connect(inventory, [name]) as hosts:
        assert [job.pid for job in hosts[name].jobs("keeper")] == [kept.pid]
        assert ended.pid not in [job.pid for job in hosts[name].jobs()]
        (again,) = hosts[name].jobs("keeper")
        again.stop()
        again.discard()
        assert hosts[name].jobs("keeper") == []


def test_jobs_end_when_the_block_fails(inventory: Inventory) -> None:
    name = inventory.hosts[0].name
    with pytest.raises(ZeroDivisionError), connect(inventory, [name]) as hosts:
        job = hosts[name].start("sleep 321.1", name="orphan")
        print(1 // 0)
    with connect(inventory, [name]) as hosts:
        # A zombie, until the host's init has reaped it, is an ended process.
        state = hosts[name].run(f"cat /proc/{job.pid}/status || true").stdout
        assert "State:" not in state or "State:\tZ" in state


def test_jobs_are_reaped(host: Host) -> None:
    job = host.start("sleep 0.1")
    job.wait()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if host.run(f"[ -e /proc/{job.pid} ]", check=False).returncode:
            return
        time.sleep(0.1)
    pytest.fail("the job is still there as a zombie")


# --- files ---------------------------------------------------------------------------------------


@pytest.fixture
def place(host: Host) -> str:
    return host.run("mktemp -d").stdout.strip()


@pytest.mark.parametrize("size", [10, 3 << 20], ids=["tar", "rsync"])
def test_files_there_and_back(host: Host, place: str, tmp_path: Path, size: int) -> None:
    local = tmp_path / "a file"
    local.write_bytes(bytes(range(256)) * (size // 256) + b"end")
    local.chmod(0o750)
    host.put(local, f"{place}/new/it's here")
    host.put(local, f"{place}/new/it's here")
    assert host.run(f"ls -A {place}/new").stdout == "it's here\n"
    assert host.run(f"stat -c %a {place}/new/*").stdout == "750\n"
    host.get(f"{place}/new/it's here", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == local.read_bytes()


@pytest.mark.parametrize("size", [10, 3 << 20], ids=["tar", "rsync"])
def test_directories_there_and_back(host: Host, place: str, tmp_path: Path, size: int) -> None:
    local = tmp_path / "d"
    (local / "sub").mkdir(parents=True)
    (local / "sub" / "b").write_bytes(b"x" * size)
    (local / "link").symlink_to("sub/b")
    host.put(local, f"{place}/d")
    host.run(f"echo more >{place}/d/other")
    host.put(local, f"{place}/d")
    host.get(f"{place}/d", tmp_path / "back")
    assert sorted(p.name for p in (tmp_path / "back").rglob("*")) == ["b", "link", "other", "sub"]
    assert (tmp_path / "back" / "sub" / "b").read_bytes() == b"x" * size
    assert (tmp_path / "back" / "link").readlink() == Path("sub/b")
    assert host.run(f"ls -A {place}").stdout == "d\n"


def test_missing_files(host: Host, place: str, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no such file or directory here"):
        host.put(tmp_path / "none", f"{place}/x")
    with pytest.raises(HostError, match="no such file or directory there"):
        host.get(f"{place}/none", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    (tmp_path / "x").write_text("x")
    with pytest.raises(HostError, match="is a directory there"):
        host.put(tmp_path / "x", place)


def test_to_many_hosts(connected: Hosts, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("everywhere")
    connected.put(tmp_path / "x", "/tmp/nova-put-test")
    assert {r.stdout for r in connected.run("cat /tmp/nova-put-test").values()} == {"everywhere"}
    connected.run("rm -f /tmp/nova-put-test")
