"""Operations as methods: their descriptions and routes, also of other packages.

Those join through the entry points ``nova.services``; an entry point is a `Load`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from nova_core.errors import NovaError
from nova_core.service.openapi import JSON, Operation

GROUP = "nova.services"
Work = Callable[[Any, Request], Awaitable[Response]]


@dataclass(frozen=True)
class Described:
    """A method that answers an operation."""

    operation: Operation
    work: Work


def operation(
    where: str, answer: Any, refusals: tuple[int, ...] = (), **more: Any
) -> Callable[[Work], Described]:
    """Have a method of `Endpoints` answer what is described: method and path, then `Operation`."""
    method, _, path = where.partition(" ")

    def describe(work: Work) -> Described:
        summary = " ".join((work.__doc__ or "").split()).rstrip(".")
        return Described(Operation(method, path, summary, answer, refusals, **more), work)

    return describe


class Endpoint:
    """Answers one operation with the request itself: nothing to be resolved or closed after."""

    def __init__(self, endpoints: Endpoints, described: Described) -> None:
        self._endpoints = endpoints
        self._work = described.work
        self.path = described.operation.path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        response = await self._work(self._endpoints, Request(scope, receive, send))
        await response(scope, receive, send)


class Endpoints:
    """Operations of the service: the methods with an `operation`.

    The busiest come first: a route is found by trying one after the other.
    """

    @classmethod
    def _described(cls) -> dict[str, Described]:
        return {name: one for name, one in vars(cls).items() if isinstance(one, Described)}

    @classmethod
    def operations(cls) -> dict[str, Operation]:
        """What clients can ask for, by name."""
        return {name: one.operation for name, one in cls._described().items()}

    def routes(self) -> list[BaseRoute]:
        """A route for each."""
        routes: list[BaseRoute] = []
        for name, described in self._described().items():
            route = Route(described.operation.path, Endpoint(self, described), name=name)
            # No HEAD for GET: a stream has no end.
            route.methods = {described.operation.method}
            routes.append(route)
        return routes

    async def close(self) -> None:
        """End what they have begun; the service ends."""


# Takes the file of an option of `nova serve`, and the service's directory.
Load = Callable[[Path, Path], Endpoints]


def load(name: str) -> Load:
    """Operations of another package.

    Args:
        name: of their entry point, and of the option of `nova serve` that takes their file.

    Raises:
        NovaError: when no such package is installed.
    """
    for entry in entry_points(group=GROUP, name=name):
        loaded: Load = entry.load()
        return loaded
    raise NovaError(f"--{name}: no installed package has the entry point {name!r} of {GROUP}")


def respond(content: Any, status: int = 200, version: int | None = None) -> Response:
    """A document of ours, or its text, as an answer; with the version as its tag."""
    headers = None if version is None else {"ETag": f'"{version}"'}
    text = content if isinstance(content, bytes) else msgspec.json.encode(content)
    return Response(text, status, headers, JSON)
