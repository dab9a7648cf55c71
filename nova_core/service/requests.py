"""Reading requests: bodies of limited size, documents, versions and numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

from fastapi import Request

from nova_core.errors import NovaError, PlanError, ProblemError
from nova_core.model.assembly import Assembly
from nova_core.model.document import VERSION, ProblemDocument
from nova_core.model.problem import Problem
from nova_core.model.syntax import convert, parse_bytes, typed
from nova_core.service.openapi import JSON

T = TypeVar("T")

YAML = "application/yaml"
_TAG = re.compile(r'"?([0-9]{1,15})"?')


class RefusedError(NovaError):
    """A request that gets an HTTP status of its own.

    Attributes:
        status: that status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def body_of(request: Request, limit: int, *others: str) -> bytes:
    """The body of a request.

    A content type is asked for so that pages in a browser cannot send requests unasked.

    Args:
        request: the request.
        limit: bytes it may have.
        others: content types that will do besides JSON.

    Raises:
        RefusedError: when it is larger, or of another content type.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON and kind not in others:
        wanted = " or ".join((JSON, *others))
        raise RefusedError(415, f"content-type: {kind or 'none'}; {wanted} is expected")
    too_large = RefusedError(413, f"the body has more than {limit:,} bytes")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise too_large
        chunks.append(chunk)
    return b"".join(chunks)


def problem_of(content: bytes, content_type: str) -> Problem:
    """An uploaded problem.

    Raises:
        ProblemError: naming the field, the value and what would be accepted.
    """
    path = Path("problem.yaml" if YAML in content_type.lower() else "problem.json")
    raw = parse_bytes(content, path, ProblemError)
    document = typed(raw, path, ProblemDocument, "nova", VERSION, ProblemError)
    for part, name in ((document, "tables"), (document.latency, "latency.file")):
        # They would be files of this machine.
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


def expected_version(request: Request) -> int | None:
    """The version in If-Match; None for any.

    Raises:
        RefusedError: when it is no version.
    """
    tag = request.headers.get("if-match")
    if tag is None or tag == "*":
        return None
    found = _TAG.fullmatch(tag.strip())
    if found is None:
        raise RefusedError(400, f'If-Match: {tag!r:.60} is no version such as "42"')
    return int(found[1])


def number_of(text: str | None, what: str, default: int, most: int = 10**15) -> int:
    """A number in a query or a header.

    Raises:
        RefusedError: when it is none.
    """
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 17 and int(text) <= most):
        raise RefusedError(400, f"{what}: {text!r:.60} is no number from 0 to {most}")
    return int(text)


__all__ = [
    "YAML",
    "RefusedError",
    "body_of",
    "document_of",
    "expected_version",
    "number_of",
    "problem_of",
]
