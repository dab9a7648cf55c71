"""Hosts to test on: an ordinary sshd on loopback, and the inventory of a small rack."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from needs import skip_or_fail

from nova_testbed.inventory import HostSpec, Inventory, Link

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


class LoopbackSshd:
    """An ordinary sshd of the current user on a free port of 127.0.0.1, with keys of its own.

    In another network namespace it has another address. ``settings`` end its sshd_config.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        namespace: str = "",
        address: str = "127.0.0.1",
        settings: str = "",
    ) -> None:
        self.name = name
        self.address = address
        self.prefix = ["nsenter", f"--net=/run/netns/{namespace}"] if namespace else []
        self.directory = directory / name
        self.directory.mkdir()
        self.key = make_key(self.directory / "key")
        host_key = make_key(self.directory / "host_key")
        (self.directory / "authorized_keys").write_text(public(self.key))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.known_hosts = self.directory / "known_hosts"
        self.known_hosts.write_text(f"[{address}]:{self.port} {public(host_key)}")
        self.temporary = self.directory / "tmp"
        self.temporary.mkdir()
        self.config = self.directory / "sshd_config"
        self.config.write_text(
            f"Port {self.port}\nListenAddress {address}\nHostKey {host_key}\n"
            f"AuthorizedKeysFile {self.directory}/authorized_keys\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\n"
            # The first keeps bash from reading the user's own .bashrc, which may take its time;
            # the other keeps loopback hosts, which are all this machine, apart.
            f"SetEnv SHLVL=1 TMPDIR={self.temporary}{settings}\n"
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        log = (self.directory / "log").open("wb")
        command = [*self.prefix, SSHD, "-D", "-e", "-f", str(self.config)]
        self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        log.close()
        deadline = time.monotonic() + 10
        while not self.listens():
            said = (self.directory / "log").read_text()
            assert self.process.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.02)

    def stop(self) -> None:
        """End the listener and the sessions it serves; nothing if that is done."""
        assert self.process is not None
        if self.process.poll() is not None:
            return
        # Stopped, it begins no session that would be missed, and hold the port a while longer.
        os.kill(self.process.pid, signal.SIGSTOP)
        deadline = time.monotonic() + 10
        while not is_stopped(self.process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        for pid in (*descendants(self.process.pid), self.process.pid):
            if command_of(pid).startswith("sshd"):
                with suppress(ProcessLookupError):  # it ended with another one
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
        while self.listens():
            assert time.monotonic() < deadline, f"something still listens on {self.port}"
            time.sleep(0.02)

    def listens(self) -> bool:
        try:
            socket.create_connection((self.address, self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def spec(self) -> HostSpec:
        return HostSpec(
            self.name,
            role="sink" if self.name == "one" else "worker",
            address=self.address,
            port=self.port,
            user=getpass.getuser(),
            key_file=self.key,
            known_hosts=self.known_hosts,
        )


def make_key(path: Path, kind: str = "ed25519") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", path], check=True)
    return path


def public(key: Path) -> str:
    return key.with_suffix(".pub").read_text()


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def is_stopped(pid: int) -> bool:
    """Whether a process that was sent SIGSTOP has come to that; one that ended has, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TZ"
    except OSError:
        return True


def descendants(pid: int) -> list[int]:
    """Processes below one, the deepest first."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    children = [int(word) for word in text.split()]
    return [one for child in children for one in (*descendants(child), child)]


@contextmanager
def sshds(
    *names: str, places: Sequence[tuple[str, str]] = (), settings: str = ""
) -> Iterator[list[LoopbackSshd]]:
    """Loopback hosts for a while, or hosts in other network namespaces, with their addresses.

    ``settings`` goes on behind ``SetEnv`` in their sshd_config: a new line begins another one.
    """
    if not Path(SSHD).exists():
        skip_or_fail("there is no sshd; apt-get install openssh-server")
    separation = Path("/run/sshd")
    made = os.geteuid() == 0 and not separation.exists()
    if made:
        separation.mkdir(mode=0o755)
    running: list[LoopbackSshd] = []
    with tempfile.TemporaryDirectory(prefix="nova-sshd-") as directory:
        try:
            for number, name in enumerate(names):
                place = places[number] if places else ("", "127.0.0.1")
                running.append(LoopbackSshd(Path(directory), name, *place, settings=settings))
            yield running
        finally:
            for sshd in running:
                sshd.stop()
            if made:
                separation.rmdir()


def loopback_inventory(running: list[LoopbackSshd]) -> Inventory:
    return Inventory("loopback", tuple(sshd.spec() for sshd in running))


def rack_inventory(name: str = "novatest") -> Inventory:
    hosts = (
        HostSpec("one", "sink", cpu=0.5, memory=1 << 29),
        HostSpec("two", "source", cpu=0.3, memory=1 << 28),
        HostSpec("three", "worker", cpu=0.1, memory=1 << 28),
    )
    links = {
        ("one", "two"): Link(10.0),
        ("one", "three"): Link(25.0, bandwidth_mbit=50.0),
        ("two", "three"): Link(40.0),
    }
    return Inventory(f"{name}-{os.getpid()}", hosts, links, virtual=True)
