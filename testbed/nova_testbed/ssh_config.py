"""What the user's ``~/.ssh/config`` says of an address: aliases, ports, users, keys, jump hosts.

OpenSSH itself reads the file (``ssh -G``), so that ``Include``, ``Match`` and patterns mean what
they mean to ``ssh``. What it says only counts where an inventory says nothing.
"""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from nova_core.errors import NovaError
from nova_core.programs import PROGRAMS

SECONDS = 10.0


@dataclass(frozen=True)
class Way:
    """How a host is reached; None where the file says nothing.

    Attributes:
        address: what to connect to.
        port: of its sshd.
        user: who logs in.
        key_file: private key.
        known_hosts: file with its host key.
        proxy: command whose stdin and stdout lead to its sshd.
    """

    address: str
    port: int | None = None
    user: str | None = None
    key_file: Path | None = None
    known_hosts: Path | None = None
    proxy: str | None = None


def way_to(address: str) -> Way:
    """How ``~/.ssh/config`` reaches an address.

    Raises:
        NovaError: when OpenSSH refuses the file.
    """
    file = Path("~/.ssh/config").expanduser()
    program = PROGRAMS["ssh"].path
    if not file.is_file() or program is None:
        return Way(address)
    # The second one has the defaults alone: what differs comes from the file.
    said, defaults = (_settings(program, each, address) for each in (str(file), "none"))
    changed = {name: value for name, value in said.items() if value != defaults.get(name)}
    port = int(said["port"][0]) if "port" in changed else None
    to = changed.get("hostname", [address])[0]
    keys = [Path(key).expanduser() for key in changed.get("identityfile", [])]
    known = [Path(each).expanduser() for each in changed.get("userknownhostsfile", [""])[0].split()]
    return Way(
        to,
        port,
        changed.get("user", [None])[0],
        next((key for key in keys if key.is_file()), None),
        known[0] if known else None,
        _proxy(program, file, changed, to, port or 22),
    )


def _settings(program: str, file: str, address: str) -> dict[str, list[str]]:
    command = [program, "-G", "-F", file, "--", address]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise NovaError(f"{file}: ssh does not read it within {SECONDS:g} s") from None
    if run.returncode:
        why = (run.stderr.strip() or f"ssh -G ended with {run.returncode}").splitlines()[0]
        raise NovaError(f"{file}: OpenSSH refuses it: {why.removeprefix(f'{file}: ')}")
    settings: dict[str, list[str]] = {}
    for line in run.stdout.splitlines():
        name, _, value = line.partition(" ")
        settings.setdefault(name, []).append(value)
    return settings


def _proxy(
    program: str, file: Path, changed: dict[str, list[str]], address: str, port: int
) -> str | None:
    jumps = changed.get("proxyjump", ["none"])[0]
    if jumps != "none":
        *before, last = jumps.split(",")
        first = ["-J", ",".join(before)] if before else []
        to = f"[{address}]:{port}"
        options = ["-F", str(file), "-o", "BatchMode=yes", *first, "-W", to]
        return shlex.join([program, *options, *_jump(last)])
    command = changed.get("proxycommand", ["none"])[0]
    if command == "none":
        return None
    return command.replace("%h", address).replace("%p", str(port))


def _jump(jump: str) -> list[str]:
    """Arguments for a jump host: ``[user@]host[:port]``."""
    if jump.startswith("ssh://"):
        return [jump]
    host, colon, port = jump.rpartition(":")
    if colon and port.isdigit() and not (":" in host and not host.endswith("]")):
        user, at, name = host.rpartition("@")
        return ["-p", port, user + at + name.strip("[]")]
    return [jump]
