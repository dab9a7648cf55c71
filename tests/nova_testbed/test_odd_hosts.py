"""Real sshds with the peculiarities that people's hosts have; commands and answers are the same."""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import paramiko
import pytest
from click.testing import CliRunner, Result
from loopback_hosts import LoopbackSshd, loopback_inventory, make_key, public, sshds
from needs import skip_or_fail

from nova_core.cli import cli
from nova_core.errors import NovaError
from nova_testbed.checks import Finding, check_host
from nova_testbed.connection import HostError, UnreachableError
from nova_testbed.emulation import stop_emulating
from nova_testbed.host import CommandError, NoRootError
from nova_testbed.hosts import Hosts, connect
from nova_testbed.inventory import Inventory, read_inventory
from nova_testbed.probing import measure_rtt, refuse_clocks

LOGIN_SHELLS = {
    "prints": "echo welcome; echo beware >&2; exec /bin/bash -c",
    "prints without an end of line": "printf welcome; exec /bin/bash -c",
    "fish": "exec fish -c",
    "tcsh": "exec tcsh -f -c",
    "dash": "exec dash -c",
}
# Shells read these each in a way of its own.
HARD = [
    r"printf '%s\n' 'a\b'",
    r"""printf '%s\n' "it's" 'wow!' '$HOME' "a\\b" '(a)' '[b]*' '~' '^c' ';' '&&' '{d,e}' '%f'""",
    "printf '%s\\n' 'two\nlines'",
    "x=1; if [ $x = 1 ]; then echo yes; fi",
]


@contextmanager
def host_with(settings: str) -> Iterator[Hosts]:
    with sshds("one", settings=settings) as running, connect(loopback_inventory(running)) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def ordinary() -> Iterator[Hosts]:
    with host_with("") as hosts:
        yield hosts


@pytest.fixture(scope="module", params=LOGIN_SHELLS)
def odd(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """A host with an odd login shell, as sshd calls it."""
    command = LOGIN_SHELLS[request.param]
    shell = command.rpartition("exec ")[2].split()[0]
    if shutil.which(shell) is None:
        skip_or_fail(f"there is no {shell}; apt-get install {shell}")
    with host_with(f'\nForceCommand {command} "$SSH_ORIGINAL_COMMAND"') as hosts:
        yield hosts


@pytest.mark.parametrize("command", HARD)
def test_commands_arrive_byte_for_byte(odd: Hosts, ordinary: Hosts, command: str) -> None:
    here, there = (hosts["one"].run(command) for hosts in (odd, ordinary))
    assert (here.stdout, here.stderr) == (there.stdout, there.stderr)


def test_answers_are_those_of_the_command_alone(odd: Hosts) -> None:
    host = odd["one"]
    result = host.run("cat; echo bad >&2; exit 3", stdin=b"\0 in\nput\xff", check=False)
    assert result.returncode == 3
    assert result.stdout == "\0 in\nput�"
    assert result.stderr == "bad\n"
    job = host.start("sleep 60", name="job")
    assert [found.job for found in host.jobs("job")] == [job.job]
    job.end()
    assert host.jobs("job") == []


def test_files_arrive_as_they_are(odd: Hosts, tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000
    (tmp_path / "a").write_bytes(data)
    odd["one"].put(tmp_path / "a", str(tmp_path / "there"))
    odd["one"].get(str(tmp_path / "there"), tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == data


def test_a_login_shell_that_runs_nothing_is_told() -> None:
    settings = "\nForceCommand echo This account is currently not available. >&2; exit 1"
    with (
        host_with(settings) as hosts,
        pytest.raises(HostError, match=r"one: the login shell .* runs no commands .This account"),
    ):
        hosts["one"].run("true")


def test_programs_of_root_are_found() -> None:
    with host_with(" PATH=/usr/local/bin:/usr/bin:/bin") as hosts:
        assert hosts["one"].run("command -v sshd").stdout == "/usr/sbin/sshd\n"
        assert "tc" in hosts["one"].programs


# --- known_hosts ----------------------------------------------------------------------------------


@pytest.fixture
def host() -> Iterator[LoopbackSshd]:
    with sshds("one") as running:
        yield running[0]


def answer(host: LoopbackSshd, known: str | bytes, **changes: Any) -> str:
    """What a host says, with the known_hosts given."""
    host.known_hosts.write_bytes(known if isinstance(known, bytes) else known.encode())
    inventory = loopback_inventory([host])
    inventory = replace(inventory, hosts=(replace(inventory.hosts[0], **changes),))
    with connect(inventory) as hosts:
        return hosts["one"].run("echo hello").stdout


def a_key(tmp_path: Path, name: str = "key", kind: str = "ed25519") -> str:
    return public(make_key(tmp_path / name, kind))


OTHERS = {
    "an authority": b"@cert-authority *.example.com %s",
    "a revoked key": b"@revoked other.example.com %s",
    "not a key": b"other.example.com ssh-ed25519 AAAA!!!not-base64",
    "no key at all": b"other.example.com",
    "not UTF-8": b"\xff\xfe\x00 ssh-rsa \x80\n\x00\x00",
    "an unknown kind": b"other.example.com ssh-future AAAAC3NzaC1lZDI1NTE5AAAA",
    "a damaged hash": b"|1|!!!|??? ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA",
    "a BOM": b"\xef\xbb\xbf# hosts",
}


@pytest.mark.parametrize("line", OTHERS.values(), ids=OTHERS)
def test_lines_of_other_hosts_do_not_matter(
    host: LoopbackSshd, line: bytes, tmp_path: Path
) -> None:
    line = line.replace(b"%s", a_key(tmp_path).encode().strip())
    own = host.known_hosts.read_bytes()
    assert answer(host, line + b"\n" + own) == "hello\n"


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_an_old_key_beside_the_new_one_is_no_attack(
    host: LoopbackSshd, kind: str, tmp_path: Path
) -> None:
    own = host.known_hosts.read_text()
    old = f"{own.split()[0]} {a_key(tmp_path, kind=kind)}"
    assert answer(host, old + own) == "hello\n"


def test_the_kind_of_key_that_is_known_is_asked_for(tmp_path: Path) -> None:
    other = make_key(tmp_path / "other", "rsa")
    with sshds("one", settings=f"\nHostKey {other}") as running:
        name = running[0].known_hosts.read_text().split()[0]
        assert answer(running[0], f"{name} {public(other)}") == "hello\n"


def test_a_known_pattern_or_hash_is_the_host(host: LoopbackSshd) -> None:
    name, key = host.known_hosts.read_text().split(None, 1)
    assert answer(host, f"[127.0.0.*]:{host.port} {key}") == "hello\n"
    assert answer(host, f"{paramiko.HostKeys.hash_host(name)} {key}") == "hello\n"
    with pytest.raises(UnreachableError, match="is not in"):
        answer(host, f"[127.0.0.*]:{host.port},!{name} {key}")


def test_another_key_is_told_with_what_to_do(host: LoopbackSshd, tmp_path: Path) -> None:
    name, key = host.known_hosts.read_text().split(None, 1)
    with pytest.raises(UnreachableError, match="another host key") as told:
        answer(host, f"{name} {a_key(tmp_path)}")
    file = host.known_hosts
    command = re.search("(ssh-keygen -R .*), then (ssh-keyscan .*)", str(told.value))
    assert command is not None
    assert command[1] == f"ssh-keygen -R '{name}' -f {file}"
    # What it says works.
    for line in command.groups():
        subprocess.run(line, shell=True, check=True, capture_output=True)
    assert answer(host, file.read_bytes()) == "hello\n"
    with pytest.raises(UnreachableError, match="@revoked"):
        answer(host, f"{name} {key}@revoked {name} {key}")
    with pytest.raises(UnreachableError, match="does not read its @cert-authority lines"):
        answer(host, f"@cert-authority {name} {key}")


# --- ~/.ssh/config --------------------------------------------------------------------------------


def home_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir(exist_ok=True)
    (tmp_path / ".ssh" / "config").write_text(config)


def inventory_of(tmp_path: Path, address: str) -> Inventory:
    file = tmp_path / "inventory.yaml"
    file.write_text(
        f"inventory: 1\nname: own\nhosts:\n- {{name: one, role: sink, address: '{address}'}}\n"
    )
    return read_inventory(str(file))


def test_an_alias_is_what_ssh_takes_it_for(
    host: LoopbackSshd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = (
        f"Host pi\n HostName 127.0.0.1\n Port {host.port}\n IdentityFile {host.key}\n"
        f" UserKnownHostsFile {host.known_hosts}\n"
    )
    home_with(monkeypatch, tmp_path, config)
    inventory = inventory_of(tmp_path, "pi")
    assert inventory.hosts[0].address == "127.0.0.1"
    with connect(inventory) as hosts:
        assert hosts["one"].run("echo hello").stdout == "hello\n"


def test_a_jump_host_is_gone_through(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with sshds("one", "two") as (host, gate):
        keys = "".join(
            f"Host {name}\n HostName 127.0.0.1\n Port {each.port}\n IdentityFile {each.key}\n"
            f" UserKnownHostsFile {each.known_hosts}\n User {getpass.getuser()}\n"
            for name, each in (("gate", gate), ("far", host))
        )
        home_with(monkeypatch, tmp_path, f"{keys} ProxyJump gate\n")
        (tmp_path / "data").write_bytes(bytes(1 << 21))
        with connect(inventory_of(tmp_path, "far")) as hosts:
            assert "ssh" in hosts["one"].run("ps -o comm= -p $PPID").stdout
            # rsync goes the same way.
            hosts["one"].put(tmp_path / "data", str(tmp_path / "there"))
            assert (tmp_path / "there").stat().st_size == 1 << 21
        gate.stop()
        with (
            pytest.raises(UnreachableError, match=r"through `.*gate`"),
            connect(inventory_of(tmp_path, "far")),
        ):
            pass


def test_what_an_inventory_says_counts_and_a_bad_file_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home_with(monkeypatch, tmp_path, "Host *\n Port 2022\n User somebody\n")
    assert inventory_of(tmp_path, "10.0.0.1").hosts[0].user == "somebody"
    file = tmp_path / "inventory.yaml"
    file.write_text(file.read_text() + "defaults: {port: 22, user: other}\n")
    spec = read_inventory(str(file)).hosts[0]
    assert (spec.port, spec.user) == (22, "other")
    home_with(monkeypatch, tmp_path, "Host *\n Prot 2022\n")
    with pytest.raises(NovaError, match=r"\.ssh/config: OpenSSH refuses it: .*prot"):
        read_inventory(str(file))


def test_an_ipv6_address_is_reached() -> None:
    with sshds("one", places=[("", "::1")]) as running:
        with connect(loopback_inventory(running)) as hosts:
            assert hosts["one"].run("echo hello").stdout == "hello\n"
            rtts = measure_rtt(hosts, [("one", "one")], count=5)
        assert len(rtts[0].udp_ms) == 5
        assert len(rtts[0].tcp_ms) == 3


@pytest.mark.parametrize("address", ["::1", "2001:db8::7", "fe80::1%eth0", "::ffff:10.0.0.1"])
def test_ipv6_addresses_are_accepted(address: str, tmp_path: Path) -> None:
    assert inventory_of(tmp_path, address).hosts[0].address == address


# --- questions that fail --------------------------------------------------------------------------


def bin_with(tmp_path: Path, **programs: str) -> str:
    """Setting of a PATH that begins with shell scripts."""
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    return f" PATH={tmp_path}:/usr/local/bin:/usr/bin:/bin"


def inventory_file(tmp_path: Path, host: LoopbackSshd, other: LoopbackSshd) -> Path:
    """An inventory with a link, as `nova testbed` reads it."""
    document = {
        "inventory": 1,
        "name": "odd",
        "hosts": [
            {
                "name": each.name,
                "role": role,
                "address": each.address,
                "port": each.port,
                "user": getpass.getuser(),
                "key": str(each.key),
                "known_hosts": str(each.known_hosts),
                "device": "lo",
            }
            for each, role in ((host, "sink"), (other, "worker"))
        ],
        "network": {"rtt_ms": 10},
    }
    file = tmp_path / "odd.yaml"
    file.write_text(json.dumps(document))
    return file


def nova(*arguments: object) -> Result:
    """Run ``nova`` as from the shell, with its exit codes."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("tc", "why"),
    [("echo rtnetlink is gone >&2; exit 2", "rtnetlink is gone"), ("exit 127", "no output")],
)
def test_links_that_cannot_be_asked_for_are_not_none(tc: str, why: str, tmp_path: Path) -> None:
    with sshds("one", "two", settings=bin_with(tmp_path, tc=tc)) as (one, two):
        file = inventory_file(tmp_path, one, two)
        shown = nova("testbed", "status", "-i", file, "--json")
        assert shown.exit_code == 1
        answer = json.loads(shown.stdout)
        assert answer["state"] == "broken"
        assert [row["links"] for row in answer["hosts"]] == ["unknown"] * 2
        assert f"one: whether links are in force cannot be told: {why}" in answer["problems"]
        for command in ("down", "clean"):
            done = nova("testbed", command, "-i", file)
            assert done.exit_code == 2
            assert isinstance(done.exception, NovaError | SystemExit)


def test_links_that_stay_are_told(tmp_path: Path) -> None:
    # tc says that it removed the discipline, and it is still there.
    tc = "[ $1 = qdisc ] && [ $2 = show ] && echo qdisc htb 4e6f: dev lo root refcnt 2; exit 0"
    with (
        sshds("one", settings=bin_with(tmp_path, tc=tc)) as running,
        connect(loopback_inventory(running)) as hosts,
        pytest.raises(HostError, match="one: lo: links are still in force"),
    ):
        stop_emulating(hosts)


@pytest.fixture
def as_nobody() -> str:
    """How sshd calls a shell of a user who is not root."""
    if os.geteuid() or shutil.which("setpriv") is None:
        skip_or_fail("a user who is not root needs root, and setpriv")
    drop = "env TMPDIR=/tmp setpriv --reuid 65534 --regid 65534 --clear-groups"
    return f'\nForceCommand exec {drop} /bin/sh -c "$SSH_ORIGINAL_COMMAND"'


def test_only_sudo_itself_is_a_missing_right(as_nobody: str) -> None:
    # Another user has to enter it; those of this run are its own.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        check_rights(Path(directory), as_nobody)


def check_rights(tmp_path: Path, as_nobody: str) -> None:
    refuse = bin_with(tmp_path, sudo="echo sudo: a password is required >&2; exit 1")
    with host_with(refuse + as_nobody) as hosts:
        host = hosts["one"]
        with pytest.raises(NoRootError, match=r"a password is required.; log in as root"):
            host.run("true", root=True)
        assert host.jobs() == []
    grant = bin_with(tmp_path, sudo='[ "$1" = -n ] && shift; exec "$@"')
    with host_with(grant + as_nobody) as hosts:
        host = hosts["one"]
        with pytest.raises(CommandError, match="ended with 3: sudo: is a word") as told:
            host.run("echo sudo: is a word >&2; exit 3", root=True)
        assert not isinstance(told.value, NoRootError)


# --- what `check` says ----------------------------------------------------------------------------


def finding(hosts: Hosts, name: str) -> Finding:
    found = [one for one in check_host(hosts["one"], hosts.inventory) if one.name == name]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("version_2", "table", "ok"),
    [
        (None, "memory\t4\t51\t1", True),
        (None, "memory\t0\t51\t0", False),
        ("cpuset cpu io memory pids", "memory\t0\t51\t1", True),
        ("cpuset cpu io memory pids", "memory\t0\t51\t0", False),
        ("cpuset cpu io pids", "memory\t0\t51\t0", False),
        ("cpuset cpu io pids", "cpu\t0\t51\t1", False),
        ("cpuset cpu io memory pids", "cpu\t0\t51\t1", True),
    ],
)
def test_memory_limits(version_2: str | None, table: str, ok: bool, tmp_path: Path) -> None:
    """The kernel's words, by a `cat` that has them."""
    first = "exit 1" if version_2 is None else f"echo {version_2}; exit 0"
    words = f"#subsys_name\thierarchy\tnum_cgroups\tenabled\n{table}"
    cat = f"case $1 in *controllers) {first} ;; /proc/cgroups) printf '%s\\n' '{words}' ;; esac"
    cat += '\nexec /bin/cat "$@"'
    cat = cat.replace(";; esac", "; exit 0 ;; esac")
    with host_with(bin_with(tmp_path, cat=cat)) as hosts:
        assert finding(hosts, "memory limits").ok == ok


@pytest.mark.parametrize(
    ("vcgencmd", "detail"),
    [
        ("echo throttled=0x0", ""),
        ("echo throttled=0x50005", "now: under-voltage, throttled; since its start: under-voltage"),
        ("echo throttled=0x80000", "since its start: too hot"),
        ("echo VCHI initialization failed; exit 255", "does not say: VCHI initialization failed"),
    ],
)
def test_a_slow_raspberry_pi_is_told(vcgencmd: str, detail: str, tmp_path: Path) -> None:
    with host_with(bin_with(tmp_path, vcgencmd=vcgencmd)) as hosts:
        found = finding(hosts, "full speed")
        assert detail in found.detail
        assert found.ok == (not detail)


# A python3 whose clock is three years behind.
BEHIND = f"""#!{sys.executable}
import sys, time
real = time.time_ns
time.time_ns = lambda: real() - 94_608_000 * 10**9
at = sys.argv.index("-c")
source, sys.argv = sys.argv[at + 1], sys.argv[at + 1 :]
exec(compile(source, "tool", "exec"), {{"__name__": "__main__"}})
"""


def test_a_clock_that_is_off_is_told_and_refused(tmp_path: Path) -> None:
    settings = bin_with(tmp_path, python3="")
    (tmp_path / "python3").write_text(BEHIND)
    with sshds("one", "two", settings=settings) as (one, two):
        file = inventory_file(tmp_path, one, two)
        with connect(read_inventory(str(file))) as hosts:
            found = finding(hosts, "clock")
            assert not found.ok
            assert "9460800" in found.detail
            with pytest.raises(HostError, match=r"its clock is 9460800.* s behind this machine's"):
                refuse_clocks(hosts)
        shown = nova("testbed", "measure", "-i", file, "--clocks", "--count", "2")
        assert shown.exit_code == 0
        assert "one: its clock is 9460800" in " ".join(shown.stderr.split())


def test_a_directory_of_jobs_that_others_made_holds_none(host: LoopbackSshd) -> None:
    squatted = host.temporary / f"nova-testbed-{os.geteuid()}"
    with connect(loopback_inventory([host])) as hosts:
        assert hosts["one"].jobs() == []
        squatted.symlink_to("/")
        assert hosts["one"].jobs() == []
        with pytest.raises(HostError, match="belongs to someone else"):
            hosts["one"].start("true")
