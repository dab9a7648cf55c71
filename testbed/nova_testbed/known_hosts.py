"""The keys that a known_hosts file has of a host; see sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"."""

from __future__ import annotations

import fnmatch
import hmac
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry


@dataclass(frozen=True)
class KnownKeys:
    """What a file says of one host.

    Attributes:
        accepted: its keys, in the order of the file.
        revoked: keys that must never be accepted.
        authorities: whether the file has authorities that sign its keys, which are not supported.
    """

    accepted: list[paramiko.PKey] = field(default_factory=list)
    revoked: list[paramiko.PKey] = field(default_factory=list)
    authorities: bool = False


def host_name(address: str, port: int) -> str:
    """What known_hosts files call the sshd at an address and a port."""
    return address if port == 22 else f"[{address}]:{port}"


def known_keys(file: Path, address: str, port: int) -> KnownKeys:
    """The keys of a host; lines that cannot be read, and those of other hosts, do not count.

    Raises:
        OSError: when the file cannot be read; one that does not exist is empty.
    """
    name = host_name(address, port)
    found, authorities = KnownKeys(), False
    for marker, entry in _entries(file):
        if not _names(entry.hostnames, name):
            continue
        if marker == "@cert-authority":
            authorities = True
        else:
            (found.revoked if marker == "@revoked" else found.accepted).append(entry.key)
    return KnownKeys(found.accepted, found.revoked, authorities)


def _entries(file: Path) -> Iterator[tuple[str, HostKeyEntry]]:
    try:
        text = file.read_text(encoding="utf-8-sig", errors="replace")
    except FileNotFoundError:
        return
    for line in text.splitlines():
        words = line.split(None, 1)
        if not words or words[0].startswith("#"):
            continue
        marker = words[0] if words[0].startswith("@") else ""
        try:
            entry = HostKeyEntry.from_line(words[-1] if marker else line.strip())
        except Exception:  # paramiko raises many kinds for a line that is not one
            continue
        if entry is not None and entry.key is not None:
            yield marker, entry


def _names(patterns: list[str], name: str) -> bool:
    matches = False
    for pattern in patterns:
        if pattern.startswith("|1|"):
            matches |= hmac.compare_digest(_hashed(name, pattern), pattern)
        elif fnmatch.fnmatchcase(name, _glob(pattern.removeprefix("!")).lower()):
            if pattern.startswith("!"):
                return False
            matches = True
    return matches


def _hashed(name: str, pattern: str) -> str:
    try:
        return paramiko.HostKeys.hash_host(name, pattern)
    except Exception:  # a damaged salt
        return ""


def _glob(pattern: str) -> str:
    """A pattern of OpenSSH, where brackets stand for themselves, as one of fnmatch."""
    return pattern.replace("[", "[[]")
