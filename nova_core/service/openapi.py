"""What an operation of the service is, and the OpenAPI description of all of them.

Schemas come from the types that read and write documents, so the description cannot differ from
what is accepted and answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from nova_core.service.documents import PlacementName, Refusal

JSON = "application/json"
TITLE = "Nova"
ABOUT = (
    "Places stream joins and keeps them placed: problems in, plans out; events in, deltas out. "
    "Refusals are `{error}`, one line that says what is wrong and what would be accepted."
)
_REASONS = {
    400: "not what is expected here",
    401: "no token, or a wrong one",
    404: "there is nothing of that name",
    408: "the body does not come",
    409: "it cannot take effect as things are",
    410: "no longer kept",
    412: "the placement is at another version than If-Match names",
    413: "too large",
    415: "of another content type",
    421: "not for this service",
    503: "it cannot be written, or read from disk, or the service ends",
}
# Refusals that any request may get.
_ANY = (400, 401, 421)
_PLAIN = {"schema": {"type": "string"}}
_VERSION_TAG = {"ETag": {"description": "the version, quoted", **_PLAIN}}


_NAME = {"type": "string", "minLength": 1}
_IN_PATH: dict[str, Any] = {
    "name": msgspec.json.schema(PlacementName),
    "problem_id": {**_NAME, "description": "as the upload returned it"},
}


@dataclass(frozen=True)
class Operation:
    """What clients can ask for.

    Attributes:
        method: of HTTP.
        path: with its parameters in braces.
        summary: what it does, in a line.
        answer: type of the document answered; a media type for other text; None for nothing.
        refusals: statuses of refusals besides those that any request, a path with parameters and a
            body bring with them.
        statuses: when all is well.
        body: type of the document sent; None for none.
        other_kinds: content types that the body may have besides JSON.
        query: type of the parameters in the query; None for none.
        headers: the same in headers.
        tagged: whether the version comes along.
    """

    method: str
    path: str
    summary: str
    answer: Any
    refusals: tuple[int, ...] = ()
    statuses: tuple[int, ...] = (200,)
    body: Any = None
    other_kinds: tuple[str, ...] = ()
    query: type[Any] | None = None
    headers: type[Any] | None = None
    tagged: bool = False


def describe(operations: Mapping[str, Operation], token: bool) -> dict[str, Any]:
    """The OpenAPI document.

    Args:
        operations: by a name of their own.
        token: whether clients must present one.
    """
    components: dict[str, Any] = {"schemas": {}}
    paths: dict[str, Any] = {}
    for name, operation in operations.items():
        described = {"operationId": name, **_described(operation, components["schemas"])}
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "description": ABOUT, "version": version("nova-placement")},
        "paths": paths,
        "components": components,
    }
    if token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _described(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    """One operation; the schemas it refers to are added to those there are."""

    def content(kind: Any, *others: str) -> dict[str, Any]:
        (schema,), parts = msgspec.json.schema_components(
            [kind], ref_template="#/components/schemas/{name}"
        )
        schemas.update(parts)
        return {JSON: {"schema": schema}} | dict.fromkeys(others, _PLAIN)

    in_path = {name: _IN_PATH.get(name, _NAME) for name in re.findall(r"{(\w+)}", operation.path)}
    named = (404,) if in_path else ()
    sent = () if operation.body is None else (413, 415)
    refusal, answer = content(Refusal), dict[str, Any]()
    if isinstance(operation.answer, str):
        answer["content"] = {operation.answer: _PLAIN}
    elif operation.answer is not None:
        answer["content"] = content(operation.answer)
    if operation.tagged:
        answer["headers"] = _VERSION_TAG
    described: dict[str, Any] = {
        "summary": operation.summary,
        "parameters": [
            *_parameters("path", in_path),
            *_parameters("query", _properties(operation.query)),
            *_parameters("header", _properties(operation.headers)),
        ],
        "responses": {
            **{str(s): {"description": HTTPStatus(s).phrase, **answer} for s in operation.statuses},
            **{
                str(s): {"description": _REASONS[s], "content": refusal}
                for s in sorted({*_ANY, *named, *sent, *operation.refusals})
            },
        },
    }
    if operation.body is not None:
        kinds = content(operation.body, *operation.other_kinds)
        described["requestBody"] = {"required": True, "content": kinds}
    return described


def _properties(kind: type[Any] | None) -> dict[str, Any]:
    """Schemas of the parameters that a type holds, by name."""
    if kind is None:
        return {}
    properties: dict[str, Any] = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"]
    return properties


def _parameters(place: str, schemas: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, schema in schemas.items():
        yield {"name": name, "in": place, "required": place == "path", "schema": schema}
