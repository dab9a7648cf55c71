"""The service's OpenAPI description: schemas come from the types that read and write documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from nova_core.model.document import ProblemDocument
from nova_core.model.plan_delta import PlanDelta
from nova_core.model.plan_document import PlanDocument
from nova_core.placement.live import Event
from nova_core.service.documents import (
    DeltaList,
    Health,
    PlacementList,
    PlacementName,
    PlacementRequest,
    PlacementSummary,
    PlaceRequest,
    ProblemList,
    ProblemSummary,
    Refusal,
)

JSON = "application/json"
_KINDS: dict[str, Any] = {
    "problem document": ProblemDocument,
    "plan document": PlanDocument,
    "event": Event,
    "delta": PlanDelta,
    "deltas": DeltaList,
    "place request": PlaceRequest,
    "placement request": PlacementRequest,
    "problem": ProblemSummary,
    "problems": ProblemList,
    "placement": PlacementSummary,
    "placements": PlacementList,
    "health": Health,
    "refusal": Refusal,
}


def _schemas() -> tuple[dict[str, Any], dict[str, Any]]:
    found, parts = msgspec.json.schema_components(
        list(_KINDS.values()), ref_template="#/components/schemas/{name}"
    )
    schemas = dict(zip(_KINDS, found, strict=True))
    # Deltas are passed on as they were written.
    parts["DeltaList"]["properties"]["deltas"]["items"] = schemas["delta"]
    return schemas, parts


_SCHEMAS, _PARTS = _schemas()
_REFUSAL = {"schema": _SCHEMAS["refusal"]}
_EXPLANATION = {"type": "object", "description": "as `nova explain --json` prints it"}

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
VERSION_TAG = {"ETag": {"description": "the version, quoted", "schema": {"type": "string"}}}


def answers(
    status: int, kind: str | None, *refusals: int, tagged: bool = False
) -> dict[int | str, dict[str, Any]]:
    """Responses of an operation.

    Args:
        status: when all is well.
        kind: of document then; None for no content.
        refusals: statuses of refusals besides those any request may get.
        tagged: whether the version comes along.
    """
    done: dict[str, Any] = {"description": "done" if kind is None else f"the {kind}"}
    if kind is not None:
        schema = _EXPLANATION if kind == "explanation" else _SCHEMAS[kind]
        done["content"] = {JSON: {"schema": schema}}
    if tagged:
        done["headers"] = VERSION_TAG
    refused: dict[int | str, dict[str, Any]] = {
        code: {"description": _REASONS[code], "content": {JSON: _REFUSAL}}
        for code in sorted({400, 401, 421, *refusals})
    }
    return {status: done, **refused}


def body(kind: str, *others: str) -> dict[str, Any]:
    """The request body of an operation, read by the types themselves."""
    content = {JSON: {"schema": _SCHEMAS[kind]}}
    content |= {other: {"schema": {"type": "string"}} for other in others}
    return {"requestBody": {"required": True, "content": content}}


def parameter(name: str, place: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter that is read by hand."""
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": description,
        "schema": dict(schema),
    }


NAME = parameter("name", "path", "of a placement", msgspec.json.schema(PlacementName))
PROBLEM_ID = parameter(
    "problem_id", "path", "as the upload has returned it", {"type": "string", "minLength": 1}
)
IF_MATCH = parameter(
    "If-Match",
    "header",
    "the version that the event is meant for, quoted",
    {"type": "string", "pattern": r'^("[0-9]{1,15}"|\*)$'},
)
AFTER = parameter(
    "after", "query", "a version", {"type": "integer", "minimum": 0, "maximum": 10**15}
)
LIMIT = parameter(
    "limit", "query", "the most deltas wanted", {"type": "integer", "minimum": 1, "maximum": 10_000}
)
LAST_EVENT_ID = parameter(
    "Last-Event-ID",
    "header",
    "the version reached, as clients of event streams send it by themselves; goes before `after`",
    {"type": "string", "pattern": "^[0-9]{1,15}$"},
)


def complete(description: dict[str, Any], token: bool) -> dict[str, Any]:
    """FastAPI's description with our schemas, and how to tell the token."""
    components = description.setdefault("components", {})
    components["schemas"] = _PARTS
    if token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        description["security"] = [{"token": []}]
    return description


__all__ = [
    "AFTER",
    "IF_MATCH",
    "JSON",
    "LAST_EVENT_ID",
    "LIMIT",
    "NAME",
    "PROBLEM_ID",
    "answers",
    "body",
    "complete",
    "parameter",
]
