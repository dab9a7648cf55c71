"""What clients send and get besides problems, plans, events and deltas."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from nova_core.io.plan_document import PlanDocument
from nova_core.io.problem_document import Name
from nova_core.placement.live import Policy

PlacementName = Annotated[
    str,
    Meta(
        # In Python, $ alone also matches before the end of a last line.
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$(?!\n)",
        description="letters, digits, - and _, at most 64",
    ),
]


Explanation = Annotated[dict[str, Any], Meta(description="as `nova explain --json` prints it")]


class _Struct(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class PlaceRequest(_Struct):
    """How to place a problem."""

    strategy: Annotated[Name, Meta(description="`nova compare` lists what is installed")] = "nova"
    parameters: Annotated[dict[str, Any], Meta(description="of the strategy")] = {}


class PlacementRequest(PlaceRequest, kw_only=True):
    """A live placement to begin: of a given plan, or of one that is made for it."""

    name: PlacementName
    problem: Annotated[Name, Meta(description="id of an uploaded problem")]
    plan: PlanDocument | UnsetType = UNSET
    policy: Policy = Policy()


Version = Annotated[int, Meta(ge=0, le=10**15, description="a version")]


class DeltaQuery(msgspec.Struct):
    """Which deltas are answered."""

    after: Version = 0
    limit: Annotated[int, Meta(ge=1, le=10_000, description="the most deltas")] = 1000


class StreamQuery(msgspec.Struct):
    """Where a stream of deltas begins; else now."""

    after: Version | UnsetType = UNSET


class StreamHeaders(msgspec.Struct, rename="kebab"):
    """The version that clients of event streams send by themselves; it goes before the query's."""

    last_event_id: Version | UnsetType = UNSET


class EventHeaders(msgspec.Struct, rename="kebab"):
    """Which version an event is meant for, quoted; * is any."""

    if_match: Annotated[
        str, Meta(pattern=r'^(\*|"?[0-9]{1,15}"?)$(?!\n)', description="a version")
    ] = "*"


class ExplainQuery(msgspec.Struct):
    """What is explained; else the operators farthest off."""

    join: Annotated[str, Meta(description="as --join of `nova explain`")] | UnsetType = UNSET
    node: Annotated[str, Meta(description="a node")] | UnsetType = UNSET


class ProblemSummary(_Struct):
    """An uploaded problem in a few figures."""

    id: Annotated[str, Meta(description="digest of all a placement depends on")]
    name: str
    nodes: int
    sources: int
    operators: int
    pairs: int


class PlacementSummary(_Struct):
    """A live placement in a few figures."""

    name: str
    version: Annotated[int, Meta(description="events so far; a batch is one")]
    oldest: Annotated[int, Meta(description="deltas after this version are kept")]
    streams: Annotated[int, Meta(description="clients that follow")]
    loaded: Annotated[bool, Meta(description="in memory; else it is read when it is used")]
    failed: Annotated[
        str | None, Meta(description="why the last event was not written; none if it was")
    ]


class ProblemList(_Struct):
    """Ids of what was uploaded."""

    problems: list[str]


class PlacementList(_Struct):
    """What is placed."""

    placements: list[PlacementSummary]


class DeltaList(_Struct):
    """Deltas in order, and the version that the last of them leads to."""

    version: int
    # They are passed on as they were written.
    deltas: list[
        Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/PlanDelta"})]
    ]


class Health(_Struct):
    """Whether all is well."""

    status: Annotated[str, Meta(description="ok, or failing when a placement does")]
    version: Annotated[str, Meta(description="of Nova")]
    problems: int
    placements: int
    failing: Annotated[list[str], Meta(description="placements whose journal cannot be written")]
    damaged: Annotated[list[str], Meta(description="placements that cannot be read")]


class Refusal(_Struct, omit_defaults=True):
    """Why a request is refused, in one line."""

    error: str
    missing: Annotated[float | UnsetType, Meta(description="tuples/s that do not fit anywhere")] = (
        UNSET
    )
