"""Before any request: is it meant for us, and does it know the token; after it: metrics."""

from __future__ import annotations

import hmac
import time

import msgspec
from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nova_core.service.documents import Refusal
from nova_core.service.metrics import Metrics

# Told to anyone: load balancers and supervisors ask.
OPEN = ("/health",)
_STREAM = "/placements/{name}/deltas/stream"


class Gate:
    """Refuses requests without the token, or under a foreign name, and counts all."""

    def __init__(
        self, app: ASGIApp, *, token: str | None, hosts: frozenset[str] | None, metrics: Metrics
    ) -> None:
        """Guard an application.

        Args:
            app: the application.
            token: what clients must present as bearer; None for none.
            hosts: names clients may call the service by; None for any. A page in a browser that
                had its own name resolved to this machine would call it by that.
            metrics: where requests are counted.
        """
        self._app = app
        self._token = None if token is None else f"Bearer {token}".encode()
        self._hosts = hosts
        self._metrics = metrics
        # Finding them by label takes longer than counting.
        self._known: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def _figures(self, route: str, status: int) -> tuple[Counter, Histogram]:
        found = self._known.get((route, status))
        if found is None:
            m = self._metrics
            found = (m.requests.labels(route, status), m.seconds.labels(route))
            self._known[route, status] = found
        return found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 500

        async def counting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        refusal = self._refusal(scope)
        try:
            if refusal is None:
                await self._app(scope, receive, counting)
            else:
                await _refuse(counting, *refusal)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            count, seconds = self._figures(route, status)
            count.inc()
            if route != _STREAM:
                seconds.observe(time.perf_counter() - begin)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        host = given = b""
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"authorization":
                given = value
        if self._hosts is not None and _name(host) not in self._hosts:
            return 421, "host: this service is called by the name of this machine only"
        if self._token is None or scope["path"] in OPEN:
            return None
        if not hmac.compare_digest(given, self._token):
            said = "is not the right one" if given else "is missing"
            return 401, f"authorization: the bearer token {said}"
        return None


def _name(host: bytes) -> str:
    """A Host header without its port."""
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        return text.partition("]")[0].removeprefix("[")
    return text.partition(":")[0]


async def _refuse(send: Send, status: int, reason: str) -> None:
    headers = [(b"content-type", b"application/json")]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(Refusal(error=reason))})


__all__ = ["Gate"]
