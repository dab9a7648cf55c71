"""Connections of clients that do not send a request, or do not do so in time."""

from __future__ import annotations

import asyncio
import resource
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Seconds for a request line and its headers.
HEADER_SECONDS = 10.0
# Connections that wait for headers at the same time; a new one replaces the oldest.
MOST_WAITING = 512
# Files that the service may have open: connections, placements, bodies.
OPEN_FILES = 8192


class Connection(HttpToolsProtocol):
    """A connection that is closed when a request's headers take too long.

    uvicorn waits for ever: a few hundred connections that send nothing would close the service to
    everyone.
    """

    # In the order in which they began to wait.
    _waiting: ClassVar[dict[Connection, asyncio.TimerHandle]] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._wait()

    def on_message_begin(self) -> None:
        """A request begins, the first or a later one."""
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        """A request's headers are there."""
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self in self._waiting:
            return
        if len(self._waiting) >= MOST_WAITING:
            oldest = next(iter(self._waiting))
            oldest._stop_waiting()
            oldest.transport.abort()
        self._waiting[self] = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        timer = self._waiting.pop(self, None)
        if timer is not None:
            timer.cancel()


def allow_connections() -> None:
    """Let this process have as many files open as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
