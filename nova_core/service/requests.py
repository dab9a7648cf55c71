"""Reading requests: bodies of limited size, documents, versions and numbers."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from nova_core.errors import PlanError, ProblemError
from nova_core.io.assembly import Assembly
from nova_core.io.problem_document import VERSION, ProblemDocument
from nova_core.io.syntax import convert, parse_bytes, typed
from nova_core.model.problem import Problem
from nova_core.service.openapi import JSON
from nova_core.service.refusals import RefusedError
from nova_core.service.settings import SMALL

T = TypeVar("T")

YAML = "application/yaml"
# Large bodies received at the same time, on disk; others wait.
LARGE_AT_ONCE = 32
# Seconds that receiving one may take, and seconds in which a part of so many bytes has to come.
SECONDS = 300
PART_SECONDS, PART_BYTES = 10, 2**18
# Seconds after which it is noticed that a client has left.
TICK = 0.5


class Receiver:
    """Receives the bodies of requests: small ones in memory, few large ones at a time on disk."""

    def __init__(self, directory: Path, limit: int) -> None:
        """Prepare.

        Args:
            directory: where large bodies wait.
            limit: bytes that a body may have.
        """
        self._directory = directory
        self._limit = limit
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def small(self, request: Request, most: int) -> bytes:
        """A body of at most so many bytes, JSON, in memory.

        Raises:
            RefusedError: when it is larger, or of another content type.
        """
        require_kind(request, JSON)
        chunks = [chunk async for chunk in _chunks(request, min(most, self._limit))]
        return b"".join(chunks)

    @asynccontextmanager
    async def any(self, request: Request, *kinds: str) -> AsyncIterator[tuple[IO[bytes], int]]:
        """A body of any size, and that size.

        Args:
            request: the request.
            kinds: accepted content types.

        Raises:
            RefusedError: when it is too large, of another content type, or takes too long.
        """
        require_kind(request, *kinds)
        async with AsyncExitStack() as stack:
            spool = tempfile.SpooledTemporaryFile(SMALL, dir=str(self._directory))  # noqa: SIM115
            file = stack.enter_context(spool)
            now = asyncio.get_running_loop().time
            size, part, end, late = 0, 0, 0.0, asyncio.timeout(PART_SECONDS)
            try:
                async with late:
                    async for chunk in _chunks(request, self._limit):
                        if size <= SMALL < size + len(chunk):
                            # A slow client must not block others, neither for ever nor for long.
                            late.reschedule(None)
                            await stack.enter_async_context(self._large)
                            end = now() + SECONDS
                            late.reschedule(now() + PART_SECONDS)
                        size += len(chunk)
                        if end and size >= part + PART_BYTES:
                            part = size
                            late.reschedule(min(end, now() + PART_SECONDS))
                        if size <= SMALL:
                            file.write(chunk)
                        else:
                            # A slow disk would delay all requests.
                            await asyncio.to_thread(file.write, chunk)
            except TimeoutError:
                raise RefusedError(
                    408,
                    f"the body comes too slowly: {PART_BYTES >> 10} KiB in {PART_SECONDS} s, and "
                    f"all of it in {SECONDS} s, are expected",
                ) from None
            yield file, size


async def until_left(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of work for a client; it is ended when the client has left.

    Raises:
        ClientDisconnect: when the client has left.
    """
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait({task}, timeout=TICK))[0]:
            if await request.is_disconnected():
                raise ClientDisconnect
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


def require_kind(request: Request, *kinds: str) -> None:
    """Refuse other content types.

    A content type is required so that web pages cannot send requests unnoticed.

    Raises:
        RefusedError: naming the accepted ones.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in kinds:
        accepted = " or ".join(kinds)
        raise RefusedError(415, f"content-type: {kind or 'none'}; {accepted} is expected")


async def _chunks(request: Request, limit: int) -> AsyncIterator[bytes]:
    too_large = RefusedError(413, f"the body has more than {limit:,} bytes")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise too_large
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise too_large
        yield chunk


def problem_of(content: bytes, content_type: str) -> Problem:
    """An uploaded problem.

    Raises:
        ProblemError: naming the field, the value and what would be accepted.
    """
    path = Path("problem.yaml" if YAML in content_type.lower() else "problem.json")
    raw = parse_bytes(content, path, ProblemError)
    document = typed(raw, path, ProblemDocument, "nova", VERSION, ProblemError)
    for part, name in ((document, "tables"), (document.latency, "latency.file")):
        # The names would refer to files of this machine.
        if getattr(part, name.rpartition(".")[2], None):
            raise ProblemError(f"{path}: {name}: an uploaded problem names no files; send them in")
    return Assembly(document, path).problem()


def document_of(content: bytes, kind: type[T], what: str) -> T:
    """A JSON body as a document of ours.

    Raises:
        PlanError: naming the field, the value and what would be accepted.
    """
    path = Path(f"{what}.json")
    raw = parse_bytes(content, path, PlanError)
    if not isinstance(raw, dict):
        raise PlanError(f"{path}: an object is expected")
    return convert(raw, path, kind, PlanError)


def parameters_of(values: Mapping[str, str], kind: type[T]) -> T:
    """Parameters in a query or in headers; others are left alone.

    Raises:
        RefusedError: naming the parameter, its value and what would be accepted.
    """
    try:
        return msgspec.convert(dict(values), kind, strict=False)
    except msgspec.ValidationError as error:
        reason, _, name = str(error).removesuffix("`").partition(" - at `$.")
        raise RefusedError(400, f"{name}: {values.get(name)!r:.60}: {reason}") from None
