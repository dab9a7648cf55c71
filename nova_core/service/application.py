"""The web application: access control, answers, and refusals in one line."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
from prometheus_client import Counter, Histogram
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nova_core.errors import InfeasibleError, NovaError
from nova_core.service.documents import Refusal
from nova_core.service.endpoints import Endpoint, Endpoints
from nova_core.service.metrics import Metrics
from nova_core.service.openapi import JSON, describe
from nova_core.service.operations import Operations
from nova_core.service.refusals import status_of
from nova_core.service.store import Store

# Answered to anyone: load balancers and supervisors ask.
OPEN = ("/health",)
_STREAM = Operations.operations()["stream"].path


def application(
    store: Store, hosts: frozenset[str] | None = None, others: Sequence[Endpoints] = ()
) -> Starlette:
    """The application that serves a store, and closes it when it ends.

    Args:
        store: what it serves.
        hosts: names clients may call the service by; None for any. A web page whose own name
            resolves to this machine (DNS rebinding) would use another one.
        others: operations of other packages; they are closed as well.
    """
    token = store.settings.token

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        unloading = asyncio.create_task(store.unload_idle())
        yield
        unloading.cancel()
        for other in others:
            await other.close()
        await store.close()

    served = [Operations(store), *others]
    described = {name: one for each in served for name, one in each.operations().items()}
    description = msgspec.json.encode(describe(described, token is not None))

    async def openapi(_: Request) -> Response:
        return Response(description, media_type=JSON)

    app = Starlette(
        routes=[*(r for each in served for r in each.routes()), Route("/openapi.json", openapi)],
        middleware=[Middleware(Gate, token=token, hosts=hosts, metrics=store.metrics)],
        exception_handlers={
            NovaError: _refused,
            HTTPException: _unknown,
            ClientDisconnect: _left,
            OSError: _no_room,
            MemoryError: _no_room,
            Exception: _broken,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app


class Gate:
    """Refuses requests without the token, or under a foreign name, and counts all."""

    def __init__(
        self, app: ASGIApp, *, token: str | None, hosts: frozenset[str] | None, metrics: Metrics
    ) -> None:
        """Guard an application; see `application`."""
        self._app = app
        self._token = None if token is None else f"Bearer {token}".encode()
        self._hosts = hosts
        self._metrics = metrics
        # A lookup by label takes longer than counting.
        self._counters: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

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

        try:
            await (self._refusal(scope) or self._app)(scope, receive, counting)
        finally:
            endpoint = scope.get("endpoint")
            self._count(
                endpoint.path if isinstance(endpoint, Endpoint) else "other",
                status,
                time.perf_counter() - begin,
            )

    def _count(self, path: str, status: int, seconds: float) -> None:
        counters = self._counters.get((path, status))
        if counters is None:
            m = self._metrics
            counters = (m.requests.labels(path, status), m.seconds.labels(path))
            self._counters[path, status] = counters
        counters[0].inc()
        if path != _STREAM:
            counters[1].observe(seconds)

    def _refusal(self, scope: Scope) -> Response | None:
        host = token = b""
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"authorization":
                token = value
        if self._hosts is not None and _name(host) not in self._hosts:
            return _refusal(421, "host: this service is called by the name of this machine only")
        if self._token is None or scope["path"] in OPEN:
            return None
        if hmac.compare_digest(token, self._token):
            return None
        what = "is not the right one" if token else "is missing"
        refusal = _refusal(401, f"authorization: the bearer token {what}")
        refusal.headers["WWW-Authenticate"] = "Bearer"
        return refusal


def _name(host: bytes) -> str:
    """A Host header without its port."""
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        return text.partition("]")[0].removeprefix("[")
    return text.partition(":")[0]


def _refusal(status: int, text: str, missing: float | None = None) -> Response:
    refusal = Refusal(
        error=" ".join(text.split()), missing=msgspec.UNSET if missing is None else missing
    )
    return Response(msgspec.json.encode(refusal), status, media_type=JSON)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, NovaError)
    missing = error.missing if isinstance(error, InfeasibleError) else None
    return _refusal(status_of(error), str(error), missing)


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refusal(error.status_code, f"{request.method} {request.url.path}: {error.detail}")


async def _left(_: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody is there to read it


async def _no_room(_: Request, error: Exception) -> Response:
    return _refusal(503, f"out of memory or disk: {error}")


async def _broken(_: Request, error: Exception) -> Response:
    return _refusal(500, f"a fault of the service, which its log tells: {type(error).__name__}")
