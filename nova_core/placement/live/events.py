"""Events of a placed problem, as documents: one JSON object each."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from nova_core.errors import ProblemError
from nova_core.io.problem_document import Name, NodeRow, NonNegative, SourceRow
from nova_core.io.validation import UNUSABLE
from nova_core.model.queries import Positive, Query
from nova_core.model.requirements import Asks
from nova_core.suggestions import suggestion

LeftSource = Annotated[Name, Meta(description="a source of the operator's left stream")]
RightSource = Annotated[Name, Meta(description="a source of its right stream")]
Rate = Annotated[float, Meta(gt=0, description="tuples/s")]
Capacity = Annotated[
    Annotated[float, Meta(ge=0)] | Literal["unlimited"], Meta(description="tuples/s")
]


class _Event(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, tag_field="event"):
    """Base of all events.

    Attributes:
        overload: whether nodes may be overloaded when nothing else is left; None leaves it to the
            policy.
    """

    overload: Annotated[
        bool | UnsetType,
        Meta(description="overload nodes near by rather than refuse the event"),
    ] = UNSET


class AddWorker(_Event, tag="add-worker"):
    """A node joins. It is used from then on, but nothing moves to it yet.

    Either its position is given, or what it has measured to some nodes, which puts it where these
    fit best, in time that does not depend on the size of the topology (paper, section 3.5). Of
    several measurements to a node, a low percentile of the last ones counts
    (`nova_core.costspace.PercentileFilter`).
    """

    node: NodeRow
    latency: Annotated[
        dict[Name, NonNegative | Annotated[list[NonNegative], Meta(min_length=1)]] | UnsetType,
        Meta(
            description="one-way ms to nodes that are there, in place of a position; names to "
            "numbers, or to lists of measurements in order of time"
        ),
    ] = UNSET


class RemoveWorker(_Event, tag="remove-worker"):
    """A node that has neither sources nor a sink leaves; what it hosts moves."""

    node: Name


class FailNode(_Event, tag="fail-node"):
    """A node and its sources are gone; what it hosted starts elsewhere."""

    node: Name


class JoinWith(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename={"other": "with"}):
    """A pair that a new source makes with one that is there."""

    operator: Name
    other: Annotated[Name, Meta(description="the source on the other side")]
    output_rate: Rate


class AddSource(_Event, tag="add-source"):
    """A source starts on a node that is there, with its joins; whole queries join by streams."""

    source: SourceRow
    joins: list[JoinWith] | UnsetType = UNSET


class RemoveSource(_Event, tag="remove-source"):
    """A source ends, and its joins with it."""

    source: Name


class ChangeRate(_Event, tag="change-rate"):
    """A source sends more or fewer tuples; what reads it emits in proportion."""

    source: Name
    rate: Rate


class ChangeCapacity(_Event, tag="change-capacity"):
    """A node can receive more or fewer tuples."""

    node: Name
    capacity: Capacity


class MoveNode(_Event, tag="move-node"):
    """A node's place in the cost space changes."""

    node: Name
    position: Annotated[list[float], Meta(description="cost-space coordinates, ms")]
    height: Annotated[
        NonNegative | UnsetType, Meta(description="ms of the access link, where nodes have any")
    ] = UNSET


class MoveSink(_Event, tag="move-sink"):
    """The result of an operator of pairs, or of a whole query, goes to another node."""

    operator: Annotated[Name, Meta(description="the operator of pairs, or the query")]
    node: Name


class ChangeLink(_Event, tag="change-link", rename={"source_node": "from", "target_node": "to"}):
    """The bandwidth budget of a directed link between two nodes changes."""

    source_node: Name
    target_node: Name
    budget: Capacity


class NewPair(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A pair of sources that are there, which an operator joins from now on."""

    left: LeftSource
    right: RightSource
    output_rate: Rate


class NewOperator(Asks, frozen=True):
    """A join of two logical streams, with the node that consumes its results: a whole query."""

    id: Name
    left: Annotated[Name, Meta(description="logical stream on the left")]
    right: Annotated[Name, Meta(description="logical stream on the right")]
    sink: Annotated[Name, Meta(description="the node that consumes the result")]


class AddOperator(_Event, tag="add-operator"):
    """A query starts: an operator with the pairs it joins."""

    operator: NewOperator
    pairs: Annotated[list[NewPair], Meta(min_length=1)]


class RemoveOperator(_Event, tag="remove-operator"):
    """A query ends: an operator, and all its joins with it."""

    operator: Name


class AddPair(_Event, tag="add-pair"):
    """An operator joins two more sources that are there."""

    operator: Name
    left: LeftSource
    right: RightSource
    output_rate: Rate


class RemovePair(_Event, tag="remove-pair"):
    """An operator no longer joins two sources, which stay."""

    operator: Name
    left: LeftSource
    right: RightSource


class AddQuery(_Event, tag="add-query"):
    """A whole query starts."""

    query: Query


class RemoveQuery(_Event, tag="remove-query"):
    """A whole query ends; what it shares with others stays."""

    query: Name


class ChangeSelectivity(_Event, tag="change-selectivity"):
    """An operator of a whole query emits more or fewer tuples of what it receives."""

    query: Name
    operator: Name
    selectivity: Positive


class Pin(_Event, tag="pin"):
    """An operator's instances stay where they are as long as their node lives, or no longer."""

    operator: Annotated[Name, Meta(description="of pairs; query/operator of a whole query")]
    pinned: bool = True


class Rebalance(_Event, tag="rebalance"):
    """Improve the whole placement by a limited number of moves."""

    moves: Annotated[int, Meta(ge=1)]


_Single = (
    AddWorker
    | RemoveWorker
    | FailNode
    | AddSource
    | RemoveSource
    | AddPair
    | RemovePair
    | AddOperator
    | RemoveOperator
    | AddQuery
    | RemoveQuery
    | ChangeSelectivity
    | ChangeRate
    | ChangeCapacity
    | MoveNode
    | MoveSink
    | ChangeLink
    | Pin
    | Rebalance
)


class Batch(_Event, tag="batch"):
    """Several events as one: all take effect or none, and one delta tells what changes."""

    events: list[_Single]


Event = _Single | Batch
KINDS: dict[str, type[Event]] = {str(kind.__struct_config__.tag): kind for kind in Event.__args__}


def parse_event(text: str | bytes, where: str = "event") -> Event:
    """An event from its JSON text.

    Args:
        text: one JSON object.
        where: the place errors name, e.g. a file and line.

    Raises:
        ProblemError: naming the place, the field and what would be accepted.
    """
    try:
        raw: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
        raise ProblemError(f"{where}: no JSON: {cause}") from None
    return convert_event(raw, where)


def convert_event(raw: Any, where: str = "event") -> Event:
    """An event from plain values, as `parse_event`."""
    if not isinstance(raw, dict):
        raise ProblemError(f"{where}: an event is an object with a field 'event', not {raw!r:.60}")
    name = raw.get("event")
    if not isinstance(name, str) or name not in KINDS:
        accepted = suggestion(str(name), list(KINDS))
        raise ProblemError(f"{where}: event: {name!r} is none; {accepted}")
    if name == "batch" and isinstance(raw.get("events"), list):
        for row, each in enumerate(raw["events"]):
            inner = convert_event(each, f"{where}: events[{row}]")
            if isinstance(inner, Batch):
                raise ProblemError(f"{where}: events[{row}]: a batch holds no other batch")
    try:
        event = msgspec.convert(raw, KINDS[name])
    except msgspec.ValidationError as cause:
        raise ProblemError(f"{where}: {name}: {cause}") from None
    if isinstance(event, AddWorker):
        _check_text(event.node, f"{where}: {name}: node")
    elif isinstance(event, AddSource):
        _check_text(event.source, f"{where}: {name}: source")
    elif isinstance(event, AddOperator):
        _check_text(event.operator, f"{where}: {name}: operator")
    elif isinstance(event, AddQuery):
        _check_text(event.query, f"{where}: {name}: query")
    return event


def _check_text(row: msgspec.Struct, where: str) -> None:
    """Refuse texts that no problem may hold: a journal could not read them back."""
    for field, value in msgspec.structs.asdict(row).items():
        if isinstance(value, msgspec.Struct):
            _check_text(value, f"{where}: {field}")
        if isinstance(value, dict):
            value = [*value, *value.values()]
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, msgspec.Struct):
                _check_text(text, f"{where}: {field}")
            if isinstance(text, str) and UNUSABLE.search(text):
                raise ProblemError(f"{where}: {field}: {text!r} has control characters")


def finite(value: float | str, what: str) -> float:
    """A number, ``unlimited`` as infinity.

    Raises:
        ProblemError: for one that is negative or not a number.
    """
    number = math.inf if value == "unlimited" else float(value)
    if not number >= 0:
        raise ProblemError(f"{what}: {value!r} is no number of tuples/s, 0 or more")
    return number
