"""The web application: operations, refusals in one line, and a description that is true."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from msgspec import UNSET
from starlette.exceptions import HTTPException

from nova_core.errors import InfeasibleError, NovaError
from nova_core.service.documents import Refusal
from nova_core.service.gate import Gate
from nova_core.service.intake import status_of
from nova_core.service.openapi import JSON, complete
from nova_core.service.routes import add_routes
from nova_core.service.store import Store

TITLE = "Nova"
ABOUT = (
    "Places stream joins and keeps them placed: problems in, plans out; events in, deltas out. "
    "Refusals are `{error}`, one line that says what is wrong and what would be accepted."
)


def application(
    store: Store, *, limit: int, token: str | None = None, hosts: frozenset[str] | None = None
) -> FastAPI:
    """The application that serves a store, and closes it when it ends.

    Args:
        store: what it serves.
        limit: bytes that a request's body may have.
        token: what clients must present; None for none.
        hosts: names clients may call the service by; None for any.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        unloading = asyncio.create_task(store.unload_idle())
        yield
        unloading.cancel()
        await store.close()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_middleware(Gate, token=token, hosts=hosts, metrics=store.metrics)
    add_routes(app.router, store, limit)
    app.add_exception_handler(NovaError, _refused)
    app.add_exception_handler(HTTPException, _unknown)
    app.add_exception_handler(OSError, _no_room)
    app.add_exception_handler(MemoryError, _no_room)
    app.add_exception_handler(Exception, _broken)

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            described = get_openapi(
                title=TITLE,
                version=version("nova-placement"),
                description=ABOUT,
                routes=app.routes,
            )
            app.openapi_schema = complete(described, token is not None)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _refusal(status: int, text: str, missing: float | None = None) -> Response:
    refusal = Refusal(error=" ".join(text.split()), missing=UNSET if missing is None else missing)
    return Response(msgspec.json.encode(refusal), status, media_type=JSON)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, NovaError)
    missing = error.missing if isinstance(error, InfeasibleError) else None
    return _refusal(status_of(error), str(error), missing)


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refusal(error.status_code, f"{request.method} {request.url.path}: {error.detail}")


async def _no_room(_: Request, error: Exception) -> Response:
    return _refusal(503, f"out of memory or disk: {error}")


async def _broken(_: Request, error: Exception) -> Response:
    return _refusal(500, f"a fault of the service, which its log tells: {type(error).__name__}")


__all__ = ["application"]
