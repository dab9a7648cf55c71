"""Growing tables of a live placement: nodes, sources, operators and pairs, and references to them.

Rows never move, so that indices stay valid; removed rows are marked, and skipped when a problem or
a plan is written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nova_core.model.problem import Bools, Floats, Ints, Problem
from nova_core.model.requirements import requirements_of, rules_of
from nova_core.placement.kernels import residents
from nova_core.placement.kernels.live import changed
from nova_core.placement.kernels.live.tables import (
    CHANGED,
    HOST,
    LEFT,
    LEFT_NODE,
    MOVED,
    RIGHT,
    SINK,
    Kept,
)

# Value of `PairRows.host` for an unplaced pair, and for one that runs in pieces.
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
        memory: (n,) bytes, NaN if unknown.
        cost: (n,) money, NaN if unknown.
        cpu: (n,) cores, NaN if unknown.
        tags: comma-separated labels.
        host: network addresses.
    """

    ids: list[str]
    position: Floats
    extra: Floats
    capacity: Floats
    free: Floats
    worker: Bools
    first: Ints
    pieces: Ints
    memory: Floats
    cost: Floats
    cpu: Floats
    tags: list[str]
    host: list[str]

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
            memory=_filled(n.memory, count, np.nan),
            cost=_filled(n.cost, count, np.nan),
            cpu=_filled(n.cpu, count, np.nan),
            tags=[""] * count if n.tags is None else n.tags.tolist(),
            host=[""] * count if n.host is None else n.host.tolist(),
            alive=np.ones(count, bool),
        )


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
        tags: comma-separated labels that hosts must have.
        memory: bytes that hosts must have, NaN for any amount.
        requirement: number of the requirement, counted from 1; 0 for none.
        alive: False for removed operators.
    """

    ids: list[str]
    left: list[str]
    right: list[str]
    sink: list[int]
    tags: list[str]
    memory: list[float]
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
            tags=[""] * count if j.tags is None else j.tags.tolist(),
            memory=_filled(j.memory, count, np.nan).tolist(),
            requirement=(requirements_of(rules_of(problem), problem.nodes)[1] + 1).tolist(),
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
class PairRows(_Rows):
    """Pairs of the join matrix.

    Attributes:
        row: (p, 8) whole numbers, see `nova_core.placement.kernels.live.tables`: left and right
            source, their nodes and the sink, the node a whole join runs on (`NOWHERE` or
            `IN_PIECES`), the version at which it last moved, and the event that changed it last.
        join: (p,) logical join.
        output: (p,) tuples/s.
        point: (p, d) virtual position, ms.
        chain: (p, 2) neighbours on the host, see `nova_core.placement.kernels.residents`.
    """

    row: Ints
    join: Ints
    output: Floats
    point: Floats
    chain: Ints

    @property
    def left(self) -> Ints:
        """(p,) left source."""
        return self.row[:, LEFT]

    @property
    def right(self) -> Ints:
        """(p,) right source."""
        return self.row[:, RIGHT]

    @property
    def ends(self) -> Ints:
        """(p, 3) nodes of the left source, the right source and the sink."""
        return self.row[:, LEFT_NODE : SINK + 1]

    @property
    def host(self) -> Ints:
        """(p,) node a whole join runs on, `NOWHERE` or `IN_PIECES`."""
        return self.row[:, HOST]

    @property
    def moved(self) -> Ints:
        """(p,) version at which it last moved."""
        return self.row[:, MOVED]

    @classmethod
    def of(cls, problem: Problem, point: Floats) -> Self:
        """Rows of a problem's pairs, none placed."""
        m, count = problem.matrix, len(problem.matrix)
        ends = problem.left_node, problem.right_node, problem.sink_node
        none = np.full(count, NOWHERE)
        return cls(
            used=count,
            row=np.stack([m.left, m.right, *ends, none, none, none], axis=1),
            join=np.array(m.join),
            output=np.array(m.output_rate),
            point=np.array(point),
            chain=np.full((count, 2), -1),
            alive=np.ones(count, bool),
        )


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
    """Pairs by the nodes they run on: whole ones in linked lists of the kernels, others in dicts.

    Kernels add and remove pairs that run whole; `add` and `discard` are for those in pieces.
    """

    def __init__(self, nodes: NodeRows, pairs: PairRows, node: Ints, pair: Ints) -> None:
        """Take over pairs that run whole.

        Args:
            nodes: the nodes.
            pairs: the pairs.
            node: (k,) where they run.
            pair: (k,) those pairs.
        """
        self._nodes = nodes
        self._pairs = pairs
        self._in_pieces: dict[int, dict[int, None]] = {}
        residents.enter_all(nodes.first, pairs.chain, node, pair)

    def of(self, node: int) -> list[int]:
        """Pairs that run on a node."""
        pairs = list(self._in_pieces.get(node, ()))
        chain = self._pairs.chain
        pair = self._nodes.first.item(node)
        while pair >= 0:
            pairs.append(pair)
            pair = chain.item(pair, residents.AFTER)
        return pairs

    def any_on(self, node: int) -> bool:
        """Whether a pair runs on a node."""
        return self._nodes.first.item(node) >= 0 or self._nodes.pieces.item(node) > 0

    def add(self, node: int, pair: int) -> None:
        """Add a pair that runs on a node with some of its pieces."""
        self._in_pieces.setdefault(node, {})[pair] = None
        self._nodes.pieces[node] += 1

    def discard(self, node: int, pair: int) -> None:
        """The opposite of `add`."""
        del self._in_pieces[node][pair]
        self._nodes.pieces[node] -= 1

    def enter(self, node: int, pair: int) -> None:
        """Add a pair that runs whole on a node; capacities do not change."""
        residents.enter(self._nodes.first, self._pairs.chain, node, pair)

    def leave(self, node: int, pair: int) -> None:
        """The opposite of `enter`."""
        residents.leave(self._nodes.first, self._pairs.chain, node, pair)


class ChangedPairs:
    """Pairs as they were before the first change of an event; kernels record them, too."""

    def __init__(self, pairs: PairRows) -> None:
        """Start empty.

        Args:
            pairs: the pairs; their rows say which event changed them last.
        """
        self._pairs = pairs
        self._kept = Kept(
            np.empty((0, changed.KEPT), np.int64),
            np.empty((0, pairs.point.shape[1])),
            np.zeros(2, np.int64),
        )
        self._one = np.empty(1, np.int64)

    def __len__(self) -> int:
        return self._kept.counts.item(changed.USED)

    def __contains__(self, pair: int) -> bool:
        return self._pairs.row.item(pair, CHANGED) == self._kept.counts.item(changed.EVENT)

    def reserve(self, more: int) -> Kept:
        """The arrays that kernels record pairs in, with room for more."""
        kept = self._kept
        used = kept.counts.item(changed.USED)
        if used + more > len(kept.row):
            spare = 2 * (used + more) - used
            row, point, counts = kept
            self._kept = Kept(
                np.concatenate([row[:used], np.empty((spare, row.shape[1]), np.int64)]),
                np.concatenate([point[:used], np.empty((spare, point.shape[1]))]),
                counts,
            )
        return self._kept

    def keep(self, pairs: Ints) -> None:
        """Record pairs before they change, all at once to wait for memory only once."""
        table = self._pairs
        changed.keep(table.row, table.point, *self.reserve(len(pairs)), pairs)

    def keep_one(self, pair: int) -> None:
        """Record a pair before it changes, without a new array."""
        if pair not in self:
            self._one[0] = pair
            self.keep(self._one)

    def add(self, pair: int) -> None:
        """Record a new pair, which did not exist before."""
        row, _, counts = self.reserve(1)
        used = len(self)
        self._pairs.row[pair, CHANGED] = counts[changed.EVENT]
        row[used, changed.PAIR], row[used, changed.OLD_HOST] = pair, changed.ABSENT
        counts[changed.USED] = used + 1

    def changes(self, version: int) -> tuple[Ints, Floats]:
        """The changes of the event, see `kernels.live.changed.changes`."""
        table = self._pairs
        changes: tuple[Ints, Floats] = changed.changes(
            table.row, table.point, *self._kept, table.alive, IN_PIECES, version
        )
        return changes

    def put_back(self) -> None:
        """Restore sinks, virtual positions and versions of moves, but not hosts."""
        changed.put_back(self._pairs.row, self._pairs.point, *self._kept)

    def clear(self) -> None:
        """Forget the event's changes."""
        self._kept.counts[changed.USED] = 0
        self._kept.counts[changed.EVENT] += 1
