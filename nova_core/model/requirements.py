"""What nodes have, what operators require of them besides capacity, and who meets it (paper, 3.6).

All about a property of nodes is here: what documents say of a node (`NodeFacts`), its column in
memory (`Nodes`), what operators ask (`RequiresPart`), that as a rule (`Rule`), and what meets a
rule (`MET`). Documents, tables, live placement and all else loop over these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from nova_core.model.arrays import Bools, Floats, Ints, Strings

Name = Annotated[str, Meta(min_length=1, description="a name; digits need quotes")]
NonNegative = Annotated[float, Meta(ge=0)]


class NodeFacts(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What documents may say of a node besides where it is, and what it can receive."""

    memory: Annotated[NonNegative | UnsetType | None, Meta(description="bytes")] = UNSET
    cpu: Annotated[NonNegative | UnsetType | None, Meta(description="cores")] = UNSET
    cost: Annotated[NonNegative | UnsetType | None, Meta(description="money per time")] = UNSET
    tags: list[str] | UnsetType = UNSET
    host: Annotated[str | UnsetType | None, Meta(description="network address")] = UNSET
    zone: Annotated[
        str | UnsetType | None, Meta(description="where it is, such as a country; see `zones`")
    ] = UNSET


@dataclass(frozen=True, eq=False)
class Nodes:
    """The topology's nodes, one row per node.

    Attributes:
        ids: (n,) unique names.
        position: (n, d) cost-space coordinates, ms; distances between rows estimate latencies. The
            last ones may measure something else, see `Problem.metrics`.
        capacity: (n,) C_a, tuples/s a node can receive for joins; ``inf`` is unlimited, 0 hosts
            none.
        worker: (n,) whether the node may host joins.
        memory: (n,) bytes, or None where it is not known.
        cost: (n,) money per unit of time, or None.
        tags: (n,) comma-separated labels such as ``gpu,arm64``, or None.
        host: (n,) network addresses, or None.
        height: (n,) latency of the node's own access link, ms, which every path from or to another
            node adds to the distance (Vivaldi's height); None for none.
        penalty: (n,) what hosting on the node counts as per leg, ms: weighted metrics of single
            nodes such as load or money, which latencies do not include; None for none.
        cpu: (n,) cores, NaN where they are not known, or None.
        zone: (n,) where each is, such as a country; empty for nowhere, or None.
    """

    ids: Strings
    position: Floats
    capacity: Floats
    worker: Bools
    memory: Floats | None = None
    cost: Floats | None = None
    tags: Strings | None = None
    host: Strings | None = None
    height: Floats | None = None
    penalty: Floats | None = None
    cpu: Floats | None = None
    zone: Strings | None = None

    def __len__(self) -> int:
        return len(self.ids)


class RequiresPart(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What every host of an operator must have."""

    tags: Annotated[list[str] | UnsetType, Meta(description="labels, all of them")] = UNSET
    memory: Annotated[NonNegative | UnsetType | None, Meta(description="bytes, at least")] = UNSET


class ZonesPart(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """In which zones of nodes something may be."""

    allow: Annotated[
        Annotated[list[Name], Meta(min_length=1)] | UnsetType,
        Meta(description="in these zones alone; a node without a zone is in none"),
    ] = UNSET
    forbid: Annotated[
        Annotated[list[Name], Meta(min_length=1)] | UnsetType,
        Meta(description="in none of these zones"),
    ] = UNSET


class Asks(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What an operator asks of the nodes it runs on."""

    requires: RequiresPart | UnsetType = UNSET
    zones: Annotated[ZonesPart | UnsetType, Meta(description="where it may run")] = UNSET


PARTS: dict[str, type[msgspec.Struct]] = {"requires": RequiresPart, "zones": ZonesPart}
NOTHING = Asks()
# What a single label of a list is called.
LABELS = {"tags": "tag", "allow": "zone", "forbid": "zone"}


class Rule(NamedTuple):
    """What a node must have to run an operator.

    Attributes:
        tags: labels, all of them.
        memory: bytes, at least; 0 for any amount.
        allow: zones, one of them; None for any, or none.
        forbid: zones, none of them.
    """

    tags: frozenset[str] = frozenset()
    memory: float = 0.0
    allow: frozenset[str] | None = None
    forbid: frozenset[str] = frozenset()

    def __and__(self, other: Rule) -> Rule:
        """What meets both rules."""
        if self is ANY_NODE:
            return other
        forbid, allow = self.forbid | other.forbid, self.allow
        if allow is None or other.allow is None:
            allow = other.allow if allow is None else allow
        else:
            allow &= other.allow
        if allow is not None:
            allow, forbid = allow - forbid, frozenset()
        return Rule(self.tags | other.tags, max(self.memory, other.memory), allow, forbid)

    def __str__(self) -> str:
        """What follows "node" or "worker" in a sentence; empty for any node.

        Such as ``of zone eu or uk with tag gpu``.
        """
        where = ""
        if self.allow is not None:
            zones = " or ".join(sorted(self.allow))
            where = f"of zone {zones}" if zones else "of a zone that all its inputs may be in"
        elif self.forbid:
            where = f"outside of zone {' and '.join(sorted(self.forbid))}"
        parts = [f"tag {tag}" for tag in sorted(self.tags)]
        if self.memory > 0:
            parts.append(f"{self.memory:g} bytes of memory")
        return " ".join(filter(None, [where, f"with {' and '.join(parts)}" if parts else ""]))


ANY_NODE = Rule()


def rule_of(
    requires: RequiresPart | UnsetType = UNSET, zones: ZonesPart | UnsetType = UNSET
) -> Rule:
    """The rule of what is asked, such as by ``parts_of`` of an operator."""
    if not (requires or zones):
        return ANY_NODE
    requires, zones = requires or RequiresPart(), zones or ZonesPart()
    own = Rule(
        tags=frozenset(requires.tags or ()),
        memory=requires.memory or 0.0,
        allow=frozenset(zones.allow) if zones.allow else None,
        forbid=frozenset(zones.forbid or ()),
    )
    rule = own & ANY_NODE  # without zones that are both allowed and forbidden
    return ANY_NODE if rule == ANY_NODE else rule


# Of each property that operators ask for, whether a node's value of it, as columns have it, meets a
# rule; what is not known, NaN or no text, is not met. Numbers may be those of many nodes.
MET: dict[str, Callable[[Rule, Any], Any]] = {
    "tags": lambda rule, tags: rule.tags <= set(tags.split(",")),
    "memory": lambda rule, memory: rule.memory == 0 or memory >= rule.memory,
    "zone": lambda rule, zone: (
        (rule.allow is None or zone in rule.allow) and zone not in rule.forbid
    ),
}


# --- what follows for all of it -----------------------------------------------------------------


@cache
def _unknown(of: type[msgspec.Struct]) -> dict[str, str | float]:
    """What stands for no value in the column of each field: NaN, or no text."""
    kinds = get_type_hints(of)
    return {name: math.nan if float in get_args(kind) else "" for name, kind in kinds.items()}


FACTS = _unknown(NodeFacts)


def in_column(row: msgspec.Struct, name: str) -> Any:
    """A field of a document as columns have it: labels with commas between them."""
    value = getattr(row, name)
    if value is UNSET or value is None:
        return _unknown(type(row))[name]
    return ",".join(value) if isinstance(value, list) else value


def known_of(nodes: Nodes, node: int) -> dict[str, str | float]:
    """What `met_by` asks of a node."""
    columns = {name: getattr(nodes, name) for name in MET}
    return {
        name: FACTS[name] if column is None else column[node].item()
        for name, column in columns.items()
    }


def met_by(rule: Rule, known: Mapping[str, str | float]) -> bool:
    """Whether a node meets a rule.

    Args:
        rule: what is required.
        known: of the node, such as from `known_of`.
    """
    return all(met(rule, known[name]) for name, met in MET.items())


def met_of(rules: Sequence[Rule], columns: Mapping[str, Any], count: int) -> Bools:
    """(r, n) whether nodes meet rules; text is asked once for nodes that do not differ in it.

    Args:
        rules: what is required.
        columns: of the nodes, such as ``vars(nodes)``.
        count: how many nodes there are.
    """
    found = np.ones((len(rules), count), bool)
    for name, met in MET.items() if rules else ():
        column = columns[name]
        if column is not None and column.dtype.kind == "U":
            values, of = np.unique(column, return_inverse=True)
            for row, rule in enumerate(rules):
                found[row] &= np.array([met(rule, one) for one in values.tolist()])[of]
        else:
            for row, rule in enumerate(rules):
                found[row] &= met(rule, FACTS[name] if column is None else column)
    return found


def bad_labels(part: RequiresPart | ZonesPart | UnsetType) -> Iterator[tuple[str, str]]:
    """What is in lists of labels and is none: its field, and why not."""
    for name in () if part is UNSET else part.__struct_fields__:
        values = getattr(part, name)
        for label in values if isinstance(values, list) else ():
            if not label or "," in label or not label.isprintable():
                yield name, no_label(name, label)


def no_label(field: str, label: str) -> str:
    """Why something in a list of labels is none."""
    what = LABELS[field]
    return f"{label!r} is no {what}; a {what} is printable text with no comma"


def parts_of(asks: Any) -> dict[str, Any]:
    """What an operator asks, an `Asks` or of a whole query, by parts of its document."""
    return {part: getattr(asks, part) for part in PARTS}


def some_asked(operators: Sequence[Asks]) -> tuple[Asks, ...] | None:
    """What operators ask and no more of them, None where none asks anything."""
    asks = tuple(Asks(**parts_of(one)) for one in operators)
    return asks if any(one != NOTHING for one in asks) else None


def asked_columns(asks: Sequence[Asks]) -> dict[tuple[str, str], Strings | Floats | None]:
    """What joins ask as (q,) columns, by part and field of a document; None for what none asks."""
    columns: dict[tuple[str, str], Strings | Floats | None] = {}
    for part, kind in PARTS.items():
        nothing = kind()
        rows = [getattr(one, part) or nothing for one in asks]
        for name, unknown in _unknown(kind).items():
            said = any(getattr(row, name) is not UNSET for row in rows)
            column = [in_column(row, name) for row in rows] if said else []
            columns[part, name] = np.array(column, type(unknown)) if said else None
    return columns


@dataclass(frozen=True, eq=False)
class Requirements:
    """The distinct rules of a graph's operators, and which nodes meet them.

    Attributes:
        rules: one per requirement, none of them `ANY_NODE`.
        met: (r, n) whether each node meets each rule.
    """

    rules: tuple[Rule, ...]
    met: Bools

    def text(self, requirement: int) -> str:
        """What follows "node" in a sentence; empty for -1, no requirement."""
        return "" if requirement < 0 else str(self.rules[requirement])

    def fits(self, requirement: int | Ints, node: int | Ints) -> Bools:
        """(k,) whether nodes meet requirements, of which -1 is met by all."""
        if not self.rules:
            return np.ones(np.broadcast(requirement, node).shape, bool)
        return np.asarray(self.met[requirement, node] | (np.asarray(requirement) < 0))

    def able(self, requirements: Ints) -> Bools:
        """(n,) nodes that meet at least one of some requirements."""
        if (requirements < 0).any():
            return np.ones(self.met.shape[1], bool)
        return np.asarray(self.met[np.unique(requirements)].any(axis=0))

    def without_room(self, requirements: Ints) -> str:
        """`` (no node with tag gpu has room)``, for those of what finds none; empty for -1."""
        texts = [self.text(one) for one in np.unique(requirements[requirements >= 0]).tolist()]
        return f" ({'; '.join(f'no node {one} has room' for one in texts)})" if texts else ""


def requirements_of(rules: Sequence[Rule], nodes: Nodes) -> tuple[Requirements, Ints]:
    """The distinct rules of operators, and ((o,)) which of them each has, -1 for none.

    Args:
        rules: (o,) of operators.
        nodes: of the problem.
    """
    number = {ANY_NODE: -1}
    of = np.full(len(rules), -1)
    for row, rule in enumerate(rules):
        if rule is not ANY_NODE:  # quicker than by its value
            of[row] = number.setdefault(rule, len(number) - 1)
    del number[ANY_NODE]
    return Requirements(tuple(number), met_of(tuple(number), vars(nodes), len(nodes))), of
