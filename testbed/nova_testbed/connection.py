"""One SSH connection to one host, with errors that say what to do about them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import logging
import socket
import threading
import time
from pathlib import Path

import paramiko

from nova_core.errors import NovaError
from nova_testbed.inventory import HostSpec

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


class _UnknownHostKeyError(Exception):
    pass


class _StrictPolicy(paramiko.MissingHostKeyPolicy):
    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
        raise _UnknownHostKeyError(f"{key.get_name()} SHA256:{digest}")


class Connection:
    """A connection that opens on first use, and again after it was lost.

    Its sessions may be opened from several threads.
    """

    def __init__(self, spec: HostSpec) -> None:
        self.spec = spec
        self.sessions = threading.BoundedSemaphore(SESSIONS)
        self._lock = threading.Lock()
        self._client: paramiko.SSHClient | None = None

    def open(self) -> paramiko.Transport:
        """The live transport.

        Raises:
            HostError: when it cannot be opened, with the reason and the remedy.
        """
        with self._lock:
            transport = self._client.get_transport() if self._client is not None else None
            if transport is None or not transport.is_active():
                self._close()
                self._client = _connected(self.spec)
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


def known_hosts_file(spec: HostSpec) -> Path:
    """The file that must contain the host's key."""
    return spec.known_hosts or Path("~/.ssh/known_hosts").expanduser()


def _where(spec: HostSpec) -> str:
    return f"{spec.address} port {spec.port}"


def _connected(spec: HostSpec) -> paramiko.SSHClient:
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(_StrictPolicy())
    known = known_hosts_file(spec)
    if known.is_file():
        client.load_host_keys(str(known))
    try:
        client.connect(
            spec.address,
            port=spec.port,
            username=spec.user,
            key_filename=str(spec.key_file) if spec.key_file else None,
            allow_agent=spec.key_file is None,
            look_for_keys=spec.key_file is None,
            sock=_socket(spec),
            banner_timeout=CONNECT_SECONDS,
            auth_timeout=CONNECT_SECONDS,
            timeout=CONNECT_SECONDS,
        )
    except BaseException as error:
        client.close()
        why = _why(spec, error)
        if why is None:
            raise
        raise UnreachableError(spec.name, why) from None
    return client


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
    if isinstance(error, _UnknownHostKeyError):
        scan = f"ssh-keyscan -p {spec.port} {spec.address} >> {known_hosts_file(spec)}"
        return (
            f"its host key ({error}) is not in {known_hosts_file(spec)}; compare it with what "
            f"`ssh-keygen -lf` shows on the host, then: {scan}"
        )
    if isinstance(error, paramiko.BadHostKeyException):
        return (
            f"{where} shows another host key than {known_hosts_file(spec)} has: a new "
            f"installation, or someone else; if it is to be trusted: ssh-keygen -R "
            f"'[{spec.address}]:{spec.port}' and add the new key"
        )
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
