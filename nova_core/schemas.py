"""The JSON Schemas of the documents, generated from the types that read them."""

from __future__ import annotations

from typing import Any

NAMES = ("problem", "plan", "event", "plan-delta")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of a document; ``name`` is one of `NAMES`."""
    import msgspec

    from nova_core.io.plan_document import PlanDocument
    from nova_core.io.problem_document import ProblemDocument
    from nova_core.model.plan_delta import PlanDelta
    from nova_core.placement.live.events import Event

    kinds: dict[str, Any] = {
        "problem": ProblemDocument,
        "plan": PlanDocument,
        "event": Event,
        "plan-delta": PlanDelta,
    }
    title = f"Nova {name.replace('-', ' ')}"
    schema = {"$schema": _DIALECT, "title": title, **msgspec.json.schema(kinds[name])}
    if name == "problem":
        schema["oneOf"] = [{"required": ["query"]}, {"required": ["queries"]}]
    return schema
