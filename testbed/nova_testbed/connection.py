"""One SSH connection to one host, with errors that say what to do about them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import logging
import shlex
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import paramiko

from nova_core.errors import NovaError
from nova_testbed.inventory import HostSpec
from nova_testbed.known_hosts import KnownKeys, host_name, known_keys

CONNECT_SECONDS = 15.0
# A host under artificial CPU load opens sessions slowly.
SESSION_SECONDS = 60.0
# sshd admits 10 sessions on a connection by default.
SESSIONS = 8
# A host that stops answering is noticed within about this time.
SILENCE_SECONDS = 15

# Paramiko logs what it also raises.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class HostError(NovaError):
    """An error on one host, or on the way to it.

    Attributes:
        host: its name.
    """

    def __init__(self, host: str, message: str) -> None:
        super().__init__(f"{host}: {message}")
        self.host = host


class UnreachableError(HostError):
    """The connection to a host failed or was lost."""


class _HostKeyError(Exception):
    """A host's key that is not accepted; says why."""


class _KnownPolicy(paramiko.MissingHostKeyPolicy):
    """Accepts the keys that a known_hosts file has of a host, and no others.

    Paramiko's own check refuses a file with one damaged line, and a host that has a new key beside
    its old one.
    """

    def __init__(self, spec: HostSpec, known: KnownKeys) -> None:
        self.spec = spec
        self.known = known

    def transport(self, *arguments: Any, **options: Any) -> paramiko.Transport:
        """A transport that asks for a key of a kind that is known, as the host may have several."""
        transport = paramiko.Transport(*arguments, **options)
        security = transport.get_security_options()
        kinds = [key.get_name() for key in self.known.accepted]
        if "ssh-rsa" in kinds:
            kinds += ["rsa-sha2-512", "rsa-sha2-256"]
        security.key_types = tuple(sorted(security.key_types, key=lambda kind: kind not in kinds))
        return transport

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        file, address, port = known_hosts_file(self.spec), self.spec.address, self.spec.port
        name = host_name(address, port)
        digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
        shown = f"{key.get_name()} SHA256:{digest}"
        scan = f"ssh-keyscan -p {port} {address} >> {shlex.quote(str(file))}"
        if key in self.known.revoked:
            raise _HostKeyError(f"its host key ({shown}) is marked @revoked in {file}")
        if key in self.known.accepted:
            return
        if self.known.accepted:
            raise _HostKeyError(
                f"{_where(self.spec)} shows another host key than {file} has: a new "
                f"installation, or someone else ({shown}); if it is to be trusted: ssh-keygen -R "
                f"{shlex.quote(name)} -f {shlex.quote(str(file))}, then {scan}"
            )
        signed = "; Nova does not read its @cert-authority lines" if self.known.authorities else ""
        raise _HostKeyError(
            f"its host key ({shown}) is not in {file}{signed}; compare it with what `ssh-keygen "
            f"-lf` shows on the host, then: {scan}"
        )


class Connection:
    """A connection that opens on first use, and again after it was lost.

    Its sessions may be opened from several threads.
    """

    def __init__(self, spec: HostSpec) -> None:
        self.spec = spec
        self.sessions = threading.BoundedSemaphore(SESSIONS)
        self._lock = threading.Lock()
        self._client: paramiko.SSHClient | None = None
        self._proxy: Proxy | None = None

    def open(self) -> paramiko.Transport:
        """The live transport.

        Raises:
            HostError: when it cannot be opened, with the reason and the remedy.
        """
        with self._lock:
            transport = self._client.get_transport() if self._client is not None else None
            if transport is None or not transport.is_active():
                self._close()
                self._client, self._proxy = _connected(self.spec)
                transport = self._client.get_transport()
                assert transport is not None
                transport.set_keepalive(SILENCE_SECONDS // 3)
            return transport

    def session(self) -> paramiko.Channel:
        """A new session to run a command in.

        Raises:
            HostError: when the host is out of reach, too busy, or admits no more sessions.
        """
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            transport = self.open()
            try:
                return transport.open_session(timeout=SESSION_SECONDS)
            except (paramiko.SSHException, EOFError, OSError) as error:
                if not transport.is_active():
                    raise self.lost() from None
                # A session counts until sshd has noticed that it ended.
                if time.monotonic() > deadline:
                    why = "sshd admits no more sessions; raise MaxSessions in its sshd_config"
                    if not isinstance(error, paramiko.ChannelException):
                        why = f"no session within {SESSION_SECONDS:g} s; is the host too busy?"
                    raise HostError(self.spec.name, why) from None
                time.sleep(0.05)

    def lost(self) -> UnreachableError:
        """The error for a connection that was lost during a command."""
        return UnreachableError(
            self.spec.name,
            f"the connection to {_where(self.spec)} was lost; is the host up, and its sshd "
            "running? (nova testbed status)",
        )

    def close(self) -> None:
        """End the connection; the next use opens it again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None


class Proxy:
    """The program that leads to a host where there is no direct way (ssh_config(5), ProxyCommand).

    Paramiko's own class does not notice that it has ended.

    Attributes:
        socket: leads to the host.
    """

    def __init__(self, command: str) -> None:
        self.socket, there = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed by close
        with there:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=there.fileno(),
                stdout=there.fileno(),
                stderr=self._errors,
                start_new_session=True,
            )

    def close(self) -> str:
        """End it; returns the last line it printed on stderr."""
        self.socket.close()
        self._process.terminate()
        self._process.wait()
        with self._errors as errors:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


def known_hosts_file(spec: HostSpec) -> Path:
    """The file that must contain the host's key."""
    return spec.known_hosts or Path("~/.ssh/known_hosts").expanduser()


def ssh_options(spec: HostSpec) -> list[str]:
    """Options with which OpenSSH's programs reach a host as Nova does."""
    options = ["-F", "none", "-p", str(spec.port), "-o", "StrictHostKeyChecking=yes"]
    options += ["-o", f"UserKnownHostsFile={known_hosts_file(spec)}"]
    if spec.key_file is not None:
        options += ["-i", str(spec.key_file), "-o", "IdentitiesOnly=yes"]
    return options if spec.proxy is None else [*options, "-o", f"ProxyCommand={spec.proxy}"]


def _where(spec: HostSpec) -> str:
    way = "" if spec.proxy is None else f" through `{spec.proxy}`"
    return f"{spec.address} port {spec.port}{way}"


def _connected(spec: HostSpec) -> tuple[paramiko.SSHClient, Proxy | None]:
    client = paramiko.SSHClient()
    try:
        policy = _KnownPolicy(spec, known_keys(known_hosts_file(spec), spec.address, spec.port))
    except OSError as error:
        reason = error.strerror or error
        raise UnreachableError(spec.name, f"{known_hosts_file(spec)}: {reason}") from None
    client.set_missing_host_key_policy(policy)
    proxy = None if spec.proxy is None else Proxy(spec.proxy)
    try:
        client.connect(
            spec.address,
            port=spec.port,
            username=spec.user,
            key_filename=str(spec.key_file) if spec.key_file else None,
            allow_agent=spec.key_file is None,
            look_for_keys=spec.key_file is None,
            sock=_socket(spec) if proxy is None else proxy.socket,
            transport_factory=policy.transport,
            banner_timeout=CONNECT_SECONDS,
            auth_timeout=CONNECT_SECONDS,
            timeout=CONNECT_SECONDS,
        )
    except BaseException as error:
        client.close()
        said = "" if proxy is None else proxy.close()
        why = _why(spec, error)
        if why is None:
            raise
        raise UnreachableError(spec.name, f"{why}: {said}" if said else why) from None
    return client, proxy


def _socket(spec: HostSpec) -> socket.socket:
    if not spec.address:
        raise UnreachableError(
            spec.name, "the virtual host has no address; bring the rack up: nova testbed up"
        )
    sock = socket.create_connection((spec.address, spec.port), timeout=CONNECT_SECONDS)
    # Without it each command takes 40 ms longer.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(AttributeError, OSError):  # Linux only
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_SECONDS * 1000)
    return sock


def _why(spec: HostSpec, error: BaseException) -> str | None:
    """The message for a failed connection; None for other errors."""
    where, login = _where(spec), f"-p {spec.port} {spec.user}@{spec.address}"
    key = f"key {spec.key_file}" if spec.key_file else "key of yours or of your SSH agent"
    if isinstance(error, _HostKeyError):
        return str(error)
    if isinstance(error, paramiko.PasswordRequiredException):
        return f"{key} has a passphrase; add it to the SSH agent (ssh-add) and leave out 'key'"
    if isinstance(error, paramiko.AuthenticationException):
        return (
            f"{where} does not accept the {key} for user {spec.user!r}; install it: ssh-copy-id "
            f"{f'-i {spec.key_file} ' if spec.key_file else ''}{login}"
        )
    if isinstance(error, socket.gaierror):
        return f"address {spec.address!r} is not known: {error.strerror}"
    if isinstance(error, TimeoutError):
        return (
            f"{where} does not answer within {CONNECT_SECONDS:g} s; is the address right, the "
            "host up, and no firewall between?"
        )
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens at {where}; is sshd running there?"
    if isinstance(error, OSError):
        return f"{where} cannot be reached: {error.strerror or error}"
    if isinstance(error, (paramiko.SSHException, EOFError, ValueError)):
        # ValueError: a file that is no private key.
        text = str(error) or "the connection was closed"
        return f"no SSH connection to {where}: {text}"
    return None
