"""Real sshds with the peculiarities that people's hosts have; commands and answers are the same."""

from __future__ import annotations

import getpass
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import paramiko
import pytest
from loopback_hosts import LoopbackSshd, loopback_inventory, make_key, public, sshds
from needs import skip_or_fail

from nova_core.errors import NovaError
from nova_testbed.connection import HostError, UnreachableError
from nova_testbed.hosts import Hosts, connect
from nova_testbed.inventory import Inventory, read_inventory
from nova_testbed.probing import measure_rtt

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
