"""The JSON Schemas of the documents, as published with the package."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

NAMES = ("problem", "plan", "event", "plan-delta", "queries", "query-plan")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def published(name: str) -> dict[str, Any]:
    """A schema as it lies in the package; ``name`` is one of `NAMES`."""
    text = (files(__name__) / f"{name}.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def generated(name: str) -> dict[str, Any]:
    """A schema made from the types that read the document; equal to the published one."""
    import msgspec

    from nova_core.model.document import ProblemDocument
    from nova_core.model.plan_delta import PlanDelta
    from nova_core.model.plan_document import PlanDocument
    from nova_core.placement.live.events import Event
    from nova_core.queries.document import QueryDocument
    from nova_core.queries.plan_document import QueryPlanDocument

    kinds: dict[str, Any] = {
        "problem": ProblemDocument,
        "plan": PlanDocument,
        "event": Event,
        "plan-delta": PlanDelta,
        "queries": QueryDocument,
        "query-plan": QueryPlanDocument,
    }
    title = f"Nova {name.replace('-', ' ')}"
    return {"$schema": _DIALECT, "title": title, **msgspec.json.schema(kinds[name])}


__all__ = ["NAMES", "generated", "published"]
