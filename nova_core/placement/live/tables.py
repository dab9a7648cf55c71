"""Growing tables of a live placement: nodes, sources, joins, operators, and references to them.

Rows never move, so that indices stay valid; removed rows are marked, and skipped when a problem or
a plan is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nova_core.model.graph import Graph
from nova_core.model.objectives import link_weights
from nova_core.model.problem import Bools, Floats, Ints, Nodes, Problem, Strings
from nova_core.model.requirements import (
    FACTS,
    MET,
    NOTHING,
    Asks,
    NodeFacts,
    in_column,
    known_of,
    requirements_of,
)
from nova_core.placement.kernels import residents
from nova_core.placement.kernels.state import changed
from nova_core.placement.kernels.state.tables import (
    CHANGED,
    FIRST_SOURCE,
    HOST,
    LOGICAL,
    MOVED,
    SINK,
    Kept,
    Narrow,
)

# Value of `OperatorRows.host` for an unplaced operator, and for one that runs in pieces.
NOWHERE, IN_PIECES = -1, -2
# A key with more rows than this becomes a dict when the incidence is made, not when it changes.
_MANY = 256


@dataclass
class _Rows:
    """Columns with spare rows at the end.

    Attributes:
        used: rows in use.
        alive: False for removed rows.
    """

    used: int
    alive: Bools

    def next(self) -> int:
        """One more row in use."""
        row = self.used
        if row == len(self.alive):
            self.reserve(1)
        self.used = row + 1
        return row

    def reserve(self, extra: int) -> bool:
        """Make room for further rows; returns whether columns were replaced."""
        needed, size = self.used + extra, len(self.alive)
        if needed <= size:
            return False
        columns = [f.name for f in fields(self) if isinstance(getattr(self, f.name), np.ndarray)]
        for name in columns:
            old: NDArray[np.generic] = getattr(self, name)
            grown = np.zeros((max(needed, size + size // 2 + 64), *old.shape[1:]), old.dtype)
            grown[:size] = old
            setattr(self, name, grown)
        return True


@dataclass
class NodeRows(_Rows):
    """Nodes.

    Attributes:
        ids: names.
        position: (n, d) ms.
        extra: (n, 2) height and penalty, ms.
        capacity: (n,) tuples/s.
        free: (n,) free capacity, tuples/s; below 0 on overloaded nodes.
        worker: (n,) may host.
        first: (n,) the first pair that runs whole there, or -1, see
            `nova_core.placement.kernels.residents`.
        pieces: (n,) how many pairs run there in pieces.
        given: the problem's, which come first: their facts do not change.
        facts: what documents said of nodes that were added.
    """

    ids: list[str]
    position: Floats
    extra: Floats
    capacity: Floats
    free: Floats
    worker: Bools
    first: Ints
    pieces: Ints
    given: Nodes
    facts: list[NodeFacts]

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Rows of a problem's nodes, nothing placed."""
        n, count = problem.nodes, len(problem.nodes)
        return cls(
            used=count,
            ids=n.ids.tolist(),
            position=np.array(n.position),
            extra=np.stack([_filled(n.height, count, 0.0), _filled(n.penalty, count, 0.0)], axis=1),
            capacity=np.array(n.capacity),
            free=np.array(n.capacity),
            worker=np.array(n.worker),
            first=np.full(count, -1),
            pieces=np.zeros(count, np.int64),
            given=n,
            facts=[],
            alive=np.ones(count, bool),
        )

    def known(self, node: int) -> dict[str, str | float]:
        """What is known of a node that operators may ask for."""
        added = node - len(self.given)
        if added < 0:
            return known_of(self.given, node)
        return {name: in_column(self.facts[added], name) for name in MET}

    def column(self, name: str, rows: Ints) -> Strings | Floats | None:
        """A fact of some nodes, in ascending order; None if none has it, and none given had."""
        column, first = getattr(self.given, name), len(self.given)
        added = rows[rows >= first] - first
        more = [in_column(self.facts[row], name) for row in added.tolist()]
        if column is None and set(map(str, more)) <= {str(FACTS[name])}:
            return None
        before = rows[: len(rows) - len(added)]
        known = np.full(len(before), FACTS[name]) if column is None else column[before]
        return np.concatenate([known, np.array(more, type(FACTS[name]))])


@dataclass
class SourceRows(_Rows):
    """Sources.

    Attributes:
        ids: names.
        node: (s,) node index.
        stream: logical streams.
        rate: (s,) tuples/s.
        tuple_bytes: (s,) bytes, NaN if unknown.
        key: regions or keys.
    """

    ids: list[str]
    node: Ints
    stream: list[str]
    rate: Floats
    tuple_bytes: Floats
    key: list[str]

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Rows of a problem's sources."""
        s, count = problem.sources, len(problem.sources)
        return cls(
            used=count,
            ids=s.ids.tolist(),
            node=np.array(s.node),
            stream=s.stream.tolist(),
            rate=np.array(s.rate),
            tuple_bytes=_filled(s.tuple_bytes, count, np.nan),
            key=[""] * count if s.key is None else s.key.tolist(),
            alive=np.ones(count, bool),
        )


@dataclass
class JoinRows:
    """Operators, in lists: there are few.

    Attributes:
        ids: names.
        left: logical streams on the left.
        right: logical streams on the right.
        sink: nodes that consume the results.
        asks: what they ask of their hosts.
        requirement: number of the requirement, counted from 1; 0 for none.
        alive: False for removed operators.
    """

    ids: list[str]
    left: list[str]
    right: list[str]
    sink: list[int]
    asks: list[Asks]
    requirement: list[int]
    alive: list[bool]

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Rows of a problem's operators."""
        j, count = problem.joins, len(problem.joins)
        return cls(
            ids=j.ids.tolist(),
            left=j.left.tolist(),
            right=j.right.tolist(),
            sink=j.sink.tolist(),
            asks=list(j.asks or [NOTHING] * count),
            requirement=(requirements_of(problem.join_rules(), problem.nodes)[1] + 1).tolist(),
            alive=[True] * count,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def columns(self) -> tuple[list[Any], ...]:
        """All columns, in the order of the attributes."""
        return tuple(getattr(self, f.name) for f in fields(self))

    def append(self, *values: Any) -> None:
        """One more operator."""
        for column, value in zip(self.columns(), values, strict=True):
            column.append(value)

    def pop(self) -> None:
        """The opposite of `append`."""
        for column in self.columns():
            column.pop()


@dataclass
class OperatorRows(_Rows):
    """What is placed: pairs of the join matrix, or operators of queries.

    Attributes:
        row: (o, 8) whole numbers, see `nova_core.placement.kernels.state.tables.Operators`.
        rate: (o, 3) tuples/s of the left and the right input and of the output.
        point: (o, d) virtual position, ms.
        chain: (o, 2) neighbours on the host, see `nova_core.placement.kernels.residents`.
    """

    row: Ints
    rate: Floats
    point: Floats
    chain: Ints

    @property
    def host(self) -> Ints:
        """(o,) node a whole operator runs on, `NOWHERE` or `IN_PIECES`."""
        return self.row[:, HOST]

    @property
    def logical(self) -> Ints:
        """(o,) join of a pair, or the first query of an operator."""
        return self.row[:, LOGICAL]

    @property
    def moved(self) -> Ints:
        """(o,) version at which it last moved."""
        return self.row[:, MOVED]

    @classmethod
    def of(cls, graph: Graph, point: Floats, legs: LegRows, first: Ints) -> Self:
        """Rows of a graph's operators, none placed.

        Args:
            graph: what is placed.
            point: (o, d) virtual positions, ms.
            legs: of `LegRows.of`.
            first: (o + 1,) where each operator's legs begin.
        """
        bodies = graph.bodies
        count = len(bodies)
        inputs = np.bincount(graph.body_of[graph.links.consumer] + 1, minlength=count + 1)[1:]
        linked = np.zeros(count, np.int64)
        if len(graph.inner):
            whose = np.repeat(np.arange(count), np.diff(first))
            linked[whose[legs.other[: legs.used] >= 0]] = 1
        none = np.full(count, NOWHERE)
        columns = [first[:-1], inputs, np.diff(first), linked, graph.query[bodies]]
        rate = np.empty((count, 3))
        rate[:, :2] = graph.input_rate.reshape(-1, 2)
        rate[:, 2] = graph.rate[bodies]
        return cls(
            used=count,
            row=np.stack([*columns, none, none, none], axis=1),
            rate=rate,
            point=np.array(point),
            chain=np.full((count, 2), -1),
            alive=np.ones(count, bool),
        )


def _leg_order(graph: Graph, whose: Ints, link: Ints, receives: Bools) -> Ints:
    """Legs by operator: inputs, then operators that read it by their names, then sinks.

    `QueryDemand.links` has the same order, so that sums are the same to the last bit.
    """
    consumer, side = graph.links.consumer[link], graph.links.side[link]
    rank = np.empty(len(graph.bodies), np.int64)
    rank[np.argsort(graph.names, kind="stable")] = np.arange(len(rank))
    to_sink = graph.body_of[consumer] < 0
    reader = np.where(to_sink, graph.query[consumer], rank[graph.body_of[consumer]])
    reader[receives] = 0
    return np.lexsort((side, reader, to_sink & ~receives, ~receives, whose))


@dataclass
class LegRows(_Rows):
    """What operators are linked with, see `nova_core.placement.kernels.state.tables.Legs`.

    Attributes:
        end: (l,) node at the other end, or -1 for none.
        other: (l,) what is there: an operator, a sink or a source.
        weight: (l,) what each ms of it counts.
    """

    end: Narrow
    other: Narrow
    weight: Floats

    @classmethod
    def of(cls, graph: Graph, objective: str) -> tuple[Self, Ints]:
        """Legs of a graph's operators, of each its inputs first; and (o + 1,) where they begin.

        Nothing is placed yet, so legs to other operators end nowhere.
        """
        first, link = graph.at_body
        producer, consumer, _, _ = graph.links
        receives = graph.body_of[consumer[link]] >= 0
        if len(graph.inner):
            # Producers have these links, too.
            whose = np.repeat(np.arange(len(graph.bodies)), np.diff(first))
            whose = np.append(whose, graph.body_of[producer[graph.inner]])
            link = np.append(link, graph.inner)
            receives = np.append(receives, np.zeros(len(graph.inner), bool))
            order = _leg_order(graph, whose, link, receives)
            link, receives = link[order], receives[order]
            first = np.searchsorted(whose[order], np.arange(len(graph.bodies) + 1))
        far = np.where(receives, producer[link], consumer[link])
        other = graph.body_of[far]
        fixed = other < 0
        other[fixed] = np.where(receives, FIRST_SOURCE - graph.source[far], SINK)[fixed]
        legs = cls(
            used=len(link),
            end=np.where(fixed, graph.node[far], NOWHERE).astype(np.int32),
            other=other.astype(np.int32),
            weight=link_weights(graph, objective)[link],
            alive=np.ones(len(link), bool),
        )
        return legs, first


def _filled(column: Floats | None, count: int, missing: float) -> Floats:
    return np.full(count, missing) if column is None else np.array(column)


class Incidence:
    """A table of rows by key: compact as built, a dict per key that has changed since.

    Changes of a key are buffered until its rows are read: in a large table, looking up its old rows
    waits for memory.
    """

    def __init__(self, keys: Ints, rows: Ints) -> None:
        """Index rows.

        Args:
            keys: (k,) key of each entry.
            rows: (k,) row of each entry; no entry occurs twice.
        """
        order = np.argsort(keys, kind="stable")
        self._rows = rows[order]
        self._offset = np.searchsorted(keys[order], np.arange(int(keys.max(initial=-1)) + 2))
        self._changed: dict[int, dict[int, None]] = {}
        # Whether each row is gained or lost, by key.
        self._pending: dict[int, dict[int, bool]] = {}
        for key in np.flatnonzero(np.diff(self._offset) > _MANY).tolist():
            self._own(key)

    def of(self, key: int) -> Collection[int]:
        """Rows of a key; valid until rows change."""
        own = self._changed.get(key)
        if own is not None:
            return own
        return self._own(key) if key in self._pending else self._base(key)

    def add(self, key: int, row: int) -> None:
        """Add a row to a key."""
        own = self._changed.get(key)
        if own is not None:
            own[row] = None
        else:
            self._differ(key, row, True)

    def discard(self, key: int, row: int) -> None:
        """Remove a row from a key."""
        own = self._changed.get(key)
        if own is not None:
            del own[row]
        else:
            self._differ(key, row, False)

    def _differ(self, key: int, row: int, gained: bool) -> None:
        pending = self._pending.get(key)
        if pending is None:
            self._pending[key] = {row: gained}
        elif pending.pop(row, gained) is gained:
            pending[row] = gained

    def _own(self, key: int) -> dict[int, None]:
        own = self._changed[key] = dict.fromkeys(self._base(key))
        for row, gained in self._pending.pop(key, {}).items():
            if gained:
                own[row] = None
            else:
                del own[row]
        return own

    def _base(self, key: int) -> list[int]:
        offset = self._offset
        if not 0 <= key < len(offset) - 1:
            return []
        rows: list[int] = self._rows[offset.item(key) : offset.item(key + 1)].tolist()
        return rows


class Residents:
    """Operators by their nodes: whole ones in linked lists of the kernels, others in dicts.

    Kernels add and remove those that run whole; `add` and `discard` are for those in pieces.
    """

    def __init__(self, nodes: NodeRows, operators: OperatorRows, node: Ints, whole: Ints) -> None:
        """Take over operators that run whole.

        Args:
            nodes: the nodes.
            operators: the operators.
            node: (k,) where they run.
            whole: (k,) those operators.
        """
        self._nodes = nodes
        self._operators = operators
        self._in_pieces: dict[int, dict[int, None]] = {}
        residents.enter_all(nodes.first, operators.chain, node, whole)

    def of(self, node: int) -> list[int]:
        """Operators that run on a node."""
        found = list(self._in_pieces.get(node, ()))
        chain = self._operators.chain
        one = self._nodes.first.item(node)
        while one >= 0:
            found.append(one)
            one = chain.item(one, residents.AFTER)
        return found

    def any_on(self, node: int) -> bool:
        """Whether an operator runs on a node."""
        return self._nodes.first.item(node) >= 0 or self._nodes.pieces.item(node) > 0

    def add(self, node: int, operator: int) -> None:
        """Add an operator that runs on a node with some of its pieces."""
        self._in_pieces.setdefault(node, {})[operator] = None
        self._nodes.pieces[node] += 1

    def discard(self, node: int, operator: int) -> None:
        """The opposite of `add`."""
        del self._in_pieces[node][operator]
        self._nodes.pieces[node] -= 1

    def enter(self, node: int, operator: int) -> None:
        """Add an operator that runs whole on a node; capacities do not change."""
        residents.enter(self._nodes.first, self._operators.chain, node, operator)

    def leave(self, node: int, operator: int) -> None:
        """The opposite of `enter`."""
        residents.leave(self._nodes.first, self._operators.chain, node, operator)


class ChangedOperators:
    """Operators as they were before the first change of an event; kernels record them, too.

    Attributes:
        kept: what was recorded; other arrays once there was no more room.
    """

    def __init__(self, operators: OperatorRows) -> None:
        """Start empty.

        Args:
            operators: the table; its rows say which event changed them last.
        """
        self._operators = operators
        self.kept = Kept(
            np.empty((0, changed.KEPT), np.int64),
            np.empty((0, operators.point.shape[1])),
            np.zeros(2, np.int64),
        )
        self._one = np.empty(1, np.int64)

    def __len__(self) -> int:
        return self.kept.counts.item(changed.USED)

    def __contains__(self, operator: int) -> bool:
        return self._operators.row.item(operator, CHANGED) == self.kept.counts.item(changed.EVENT)

    def reserve(self, more: int) -> Kept:
        """The arrays that kernels record operators in, with room for more."""
        kept = self.kept
        used = kept.counts.item(changed.USED)
        if used + more > len(kept.row):
            spare = 2 * (used + more) - used
            row, point, counts = kept
            self.kept = Kept(
                np.concatenate([row[:used], np.empty((spare, row.shape[1]), np.int64)]),
                np.concatenate([point[:used], np.empty((spare, point.shape[1]))]),
                counts,
            )
        return self.kept

    def keep(self, some: Ints) -> None:
        """Record operators before they change, all at once to wait for memory only once."""
        table = self._operators
        changed.keep(table.row, table.point, *self.reserve(len(some)), some)

    def keep_one(self, operator: int) -> None:
        """Record an operator before it changes, without a new array."""
        if operator not in self:
            self._one[0] = operator
            self.keep(self._one)

    def changes(self, version: int) -> Iterable[tuple[list[int], list[list[float]]]]:
        """The changes of the event, see `kernels.state.changed.changes`."""
        many, table = len(self), self._operators
        if not many:
            return []
        row, point = np.empty((many, 4), np.int64), np.empty((many, 2, table.point.shape[1]))
        found = changed.changes(
            table.row, table.point, *self.kept, table.alive, IN_PIECES, version, row, point
        )
        return zip(row[:found].tolist(), point[:found].tolist(), strict=True)

    def put_back(self) -> None:
        """Restore virtual positions and versions of moves, but not hosts."""
        changed.put_back(self._operators.row, self._operators.point, *self.kept)

    def clear(self) -> None:
        """Forget the event's changes."""
        self.kept.counts[changed.USED] = 0
        self.kept.counts[changed.EVENT] += 1
