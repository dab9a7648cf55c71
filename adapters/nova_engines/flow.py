"""What an engine runs: operators, each on its node, and what they receive from each other.

`nova_engines.flow_of_plan` makes a flow of a plan. Tuples have the columns of their stream, or, of
pairs, a number and a value. The engines' clients read flows where only the standard library is.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from nova_core.errors import NovaError
from nova_engines.documents import from_json, read, to_json

SOURCE, FILTER, PROJECT, CUT, SELECT, RELAY, JOIN, AGGREGATE, SINK = KINDS = (
    "source",
    "filter",
    "project",
    "cut",
    "select",
    "relay",
    "join",
    "aggregate",
    "sink",
)
PASSING = (CUT, SELECT, RELAY)
"""Kinds that pass tuples on as they are."""
PLACED = (JOIN, AGGREGATE)
"""Kinds whose nodes a plan decides; other operators are where these, their sources or sinks are."""
LEFT, RIGHT, PARTIAL = 0, 1, 2
"""Which input of its consumer a tuple is of; partial results of an aggregate are neither."""
SIDES = ("left", "right", "partial")

Program = tuple[str, ...]
"""An expression in postfix order: ``c:N`` is column N, ``i:``, ``f:`` and ``t:`` are constants."""


@dataclass(frozen=True)
class Match:
    """Which tuples of a pair of sources match: those of one tumbling window, by their numbers.

    Attributes:
        window_ms: length of the windows, which begin at its multiples since the epoch.
        keys: sequence numbers have to be equal modulo this; 1 matches all tuples of a window.
        every: the remainder has to be a multiple of this: tuples of one in so many keys match.
    """

    window_ms: int
    keys: int = 1
    every: int = 1

    def __post_init__(self) -> None:
        for name in ("window_ms", "keys", "every"):
            value = getattr(self, name)
            if not 1 <= value <= 2**31 - 1:
                raise NovaError(f"match: {name} {value}: expected 1 to {2**31 - 1}")


@dataclass(frozen=True)
class Operator:
    """One operator.

    Attributes:
        name: unique; what the engine calls it.
        node: where it runs; empty where the engine decides.
        kind: one of KINDS. A cut passes what a node gets of a stream, where that is produced; a
            select passes an instance's own part of what arrives on its node.
        inputs: names of the operators it receives from; of a join, its left input.
        right: of joins: the same of the right input.
        source: of sources: id of the problem's source whose tuples it emits.
        types: of sources and sinks: types of the columns; none of pairs, whose tuples say their
            source.
        columns: of sinks: names of the columns.
        programs: of filters and joins: the condition, or none; of projections: what they emit; of
            aggregates: what is aggregated, an empty one for ``count``.
        side: of cuts and selects: which input of the consumer passes.
        low: of cuts and selects: begin of each interval of the u in [0, 1) that passes.
        high: their ends.
        hashed: of cuts and selects: columns whose values give u; without, the tuple's number.
        hot: of cuts by key: values of frequent keys, with begin and end of each key's part of
            [0, 1). A tuple of the left input has one place in it, by its number; one of the right
            input has all of them.
        others: of cuts by key: begin of the part, up to 1, that all other keys share by their u.
        window: of joins and aggregates: length and distance, ms.
        kept: of joins and aggregates: whether the left and the right input keep their windows.
        match: of joins of pairs: keys and every, see `Match`.
        keys: of joins: columns of the left input that equal columns of the right one, in pairs.
        groups: of aggregates: columns.
        functions: of aggregates: ``count``, ``sum``, ``mean``, ``min`` or ``max`` each.
        partial: of aggregates: whether it emits partial results.
        query: of sinks: id of the query, whose results alone arrive there; none of pairs.
    """

    name: str
    node: str
    kind: str
    inputs: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    source: str = ""
    types: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    programs: tuple[Program, ...] = ()
    side: int = LEFT
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    hashed: tuple[int, ...] = ()
    hot: tuple[tuple[tuple[str, ...], float, float], ...] = ()
    others: float = 0.0
    window: tuple[int, int] = (0, 0)
    kept: tuple[bool, bool] = (False, False)
    match: tuple[int, int] = (1, 1)
    keys: tuple[tuple[int, int], ...] = ()
    groups: tuple[int, ...] = ()
    functions: tuple[str, ...] = ()
    partial: bool = False
    query: str = ""


@dataclass(frozen=True)
class Flow:
    """All operators of a plan, inputs before those that receive from them.

    Attributes:
        operators: everything that runs.
        problem: digest of the problem the plan answers.
        strategy: name of the one that made the plan.
    """

    operators: tuple[Operator, ...]
    problem: str = ""
    strategy: str = ""

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for one in self.operators:
            if one.kind not in KINDS:
                raise NovaError(
                    f"flow: {one.name!r}: kind {one.kind!r}: expected one of {', '.join(KINDS)}"
                )
            if one.name in seen:
                raise NovaError(f"flow: operator {one.name!r} is there twice")
            for name in (*one.inputs, *one.right):
                if name not in seen:
                    raise NovaError(f"flow: {one.name!r} receives from unknown {name!r}")
            seen.add(one.name)

    def of_kind(self, kind: str) -> tuple[Operator, ...]:
        """Operators of one kind, in order."""
        return tuple(one for one in self.operators if one.kind == kind)

    @cached_property
    def joins(self) -> tuple[Operator, ...]:
        """All joins; of pairs these are the plan's instances, which results name by their index."""
        return self.of_kind(JOIN)

    @cached_property
    def sinks(self) -> tuple[Operator, ...]:
        """One for every node that consumes results of pairs, or for every query."""
        return self.of_kind(SINK)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Nodes that run anything, in order of their first operator."""
        return tuple(dict.fromkeys(one.node for one in self.operators if one.node))

    @property
    def placement(self) -> dict[str, str]:
        """The node of every operator, by its name."""
        return {one.name: one.node for one in self.operators}

    @cached_property
    def has_columns(self) -> bool:
        """Whether tuples have the columns of their streams; those of pairs have none."""
        return any(one.types for one in self.of_kind(SOURCE))

    @cached_property
    def boundary_ms(self) -> int:
        """The least time, ms, at whose multiples since the epoch a window of each kind begins."""
        return math.lcm(*(ms for one in self.operators if one.window[0] for ms in one.window))

    @cached_property
    def history_ms(self) -> int:
        """How long before a boundary tuples may be that results after it are made of, ms.

        Of tumbling windows alone there are none, as all of them begin anew there.
        """
        if all(size == slide for size, slide in (one.window for one in self.operators)):
            return 0
        longest: dict[str, int] = {}
        for one in self.operators:
            inputs = [(name, one.kept[LEFT]) for name in one.inputs]
            inputs += [(name, one.kept[RIGHT]) for name in one.right]
            # What stays in its window is none of another one.
            of_inputs = (
                longest[name] + (0 if stays or self.origin(name).partial else one.window[0])
                for name, stays in inputs
            )
            longest[one.name] = max(of_inputs, default=0)
        return max(longest.values(), default=0)

    def components(self) -> list[frozenset[str]]:
        """Sources by whose tuples meet: no operator is fed by sources of two of these sets.

        Sinks of pairs do not count: they only write down what arrives.
        """
        above: dict[str, str] = {}

        def top(source: str) -> str:
            while above[source] != source:
                above[source] = source = above[above[source]]
            return source

        # Any source of an operator's.
        fed_by: dict[str, str] = {}
        for one in self.operators:
            if one.kind == SOURCE:
                above.setdefault(one.source, one.source)
                fed_by[one.name] = one.source
            elif one.kind != SINK or one.query:
                tops = [top(fed_by[name]) for name in (*one.inputs, *one.right)]
                above.update(dict.fromkeys(tops, tops[0]))
                fed_by[one.name] = tops[0]
        found: dict[str, set[str]] = {}
        for source in above:
            found.setdefault(top(source), set()).add(source)
        return [frozenset(one) for one in found.values()]

    @cached_property
    def _known(self) -> dict[str, Operator]:
        return {one.name: one for one in self.operators}

    def origin(self, name: str) -> Operator:
        """What emits the tuples that an operator passes on; itself, unless it only passes them."""
        one = self._known[name]
        while one.kind in PASSING:
            one = self._known[one.inputs[0]]
        return one

    def result_files(self, path: str) -> dict[str, str]:
        """Per sink operator, the file on its node: ``path``, numbered from the second sink on."""
        return {
            one.name: path if number == 0 else f"{path}.{number}"
            for number, one in enumerate(self.sinks)
        }

    def unpinned(self) -> Flow:
        """The same operators, pinned only where sensors and sinks require it.

        Sources, what is done to their tuples before these are sent, and sinks keep their nodes; the
        engine places others.
        """
        pinned: set[str] = set()
        for one in self.operators:
            begins = one.kind in (FILTER, PROJECT, CUT) and one.inputs[0] in pinned
            if one.kind == SOURCE or begins:
                pinned.add(one.name)
        moved = [
            one if one.name in pinned or one.kind == SINK else replace(one, node="")
            for one in self.operators
        ]
        return replace(self, operators=tuple(moved))

    def of_sources(self, names: Collection[str]) -> Flow:
        """The part that these sources feed; both sources of a join are among them, or neither."""
        kept: dict[str, Operator] = {}
        for one in self.operators:
            inputs = tuple(name for name in one.inputs if name in kept)
            right = tuple(name for name in one.right if name in kept)
            if one.source in names if one.kind == SOURCE else inputs:
                kept[one.name] = replace(one, inputs=inputs, right=right)
        return replace(self, operators=tuple(kept.values()))

    def to_json(self) -> str:
        """As JSON text."""
        return to_json(self)

    @classmethod
    def from_json(cls, text: str, where: str = "flow") -> Flow:
        """From JSON text; errors name ``where``.

        Raises:
            NovaError: naming the field and what it should hold.
        """
        return from_json(text, cls, where)

    @classmethod
    def read(cls, path: Path) -> Flow:
        """From a file of JSON; errors as of `from_json`."""
        return read(path, cls)
