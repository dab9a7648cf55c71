"""Settings of `nova serve`, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MIB = 2**20
# Bytes of a body that the service receives in memory, and of a problem that it reads itself.
SMALL = 16 * 2**10


@dataclass(frozen=True)
class Settings:
    """How the service runs.

    Attributes:
        directory: what it keeps; made if missing.
        host: address or name to listen on.
        port: 0 for any that is free.
        token: what clients must present as bearer; None for none, on this machine only.
        limit: bytes that a request's body may have.
        sync: whether events wait for the disk itself (power cuts).
        idle: seconds after which a placement that nobody uses leaves the memory; None: never.
        body_memory: bytes that reading a large body may take.
        job_seconds: that reading a large body, or placing, may take.
    """

    directory: Path
    host: str = "127.0.0.1"
    port: int = 8571
    token: str | None = None
    limit: int = 64 * MIB
    sync: bool = False
    idle: float | None = 3600.0
    body_memory: int = 512 * MIB
    job_seconds: float = 120.0
