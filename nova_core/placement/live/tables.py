"""Growing tables of what a live placement knows: nodes, sources and pairs, one row each.

Rows stay where they are for good, so that indices stay valid; rows that are gone are marked, and
left out when a problem or a plan is written.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nova_core.model.problem import Bools, Floats, Ints, Problem
from nova_core.placement.kernels.live import columns
from nova_core.placement.kernels.live.columns import HOST, LEFT, LEFT_NODE, RIGHT, SINK

# Value of `PairRows.host` for a pair that has no place, and for one that runs in pieces.
NOWHERE, IN_PIECES = -1, -2
# Value of `NodeRows.hosted` for a node that runs nothing.
NOBODY = np.array([-1, 0])


@dataclass
class _Rows:
    """Columns with spare rows at the end.

    Attributes:
        used: rows in use.
        alive: whether a row is still there.
    """

    used: int
    alive: Bools

    def reserve(self, extra: int) -> bool:
        """Make room for further rows; whether columns were replaced."""
        wanted, size = self.used + extra, len(self.alive)
        if wanted <= size:
            return False
        columns = [f.name for f in fields(self) if isinstance(getattr(self, f.name), np.ndarray)]
        for name in columns:
            old: NDArray[np.generic] = getattr(self, name)
            grown = np.zeros((max(wanted, size + size // 2 + 64), *old.shape[1:]), old.dtype)
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
        free: (n,) what is left of it; below 0 where a node is overloaded.
        worker: (n,) may host.
        hosted: (n, 2) who runs there, see `nova_core.placement.kernels.live.residents`.
        memory: (n,) bytes, NaN for not known.
        cost: (n,) money, NaN for not known.
        tags: comma-separated labels.
        host: network addresses.
    """

    ids: list[str]
    position: Floats
    extra: Floats
    capacity: Floats
    free: Floats
    worker: Bools
    hosted: Ints
    memory: Floats
    cost: Floats
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
            hosted=np.tile(NOBODY, (count, 1)),
            memory=_filled(n.memory, count, np.nan),
            cost=_filled(n.cost, count, np.nan),
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
        tuple_bytes: (s,) bytes, NaN for not known.
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
class PairRows(_Rows):
    """Pairs of the join matrix.

    Attributes:
        row: (p, 8) whole numbers, see `nova_core.placement.kernels.live.columns`: left and right
            source, their nodes and the sink, the node a whole join runs on (`NOWHERE` or
            `IN_PIECES`), the version at which it last moved, and the event that touched it last.
        join: (p,) logical join.
        output: (p,) tuples/s.
        point: (p, d) virtual position, ms.
        chain: (p, 2) neighbours on the host, see `nova_core.placement.kernels.live.residents`.
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
        return self.row[:, columns.MOVED]

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
