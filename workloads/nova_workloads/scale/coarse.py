"""Assigns joins to cells of the cost space by Nova's own plan of a random sample.

Sums over cells would hide that many nodes are smaller than a join. A sample keeps the mix of nodes,
and Nova decides on it as it would on all: largest first, in rings around busy sinks, by
requirement. Every join of the whole then takes the cell of a similar sampled join.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nova_core.model.problem import Floats, Ints
from nova_workloads.scale.part import (
    Query,
    floats,
    ints,
    place,
    problem_and_rest,
    rows_of_lists,
)

# Number of the most similar sampled joins, of which one is drawn.
ALIKE = 4
# Ranks of required capacity, 0 to 1, count as so many standard deviations of virtual positions.
RANK_WEIGHT = 1.0
# Columns that the draw of a join's cell uses.
DRAWN = ("pair", "join", "anchors", "point", "left_rate", "right_rate")
# Groups of joins without a similar sampled join.
NOWHERE = 1024
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class Cells:
    """A k-d tree of cells: each level halves all cells of the one before.

    Attributes:
        axis: (c - 1,) coordinate that splits each inner node; the root first, level by level.
        at: (c - 1,) position of the split, ms.
    """

    axis: Ints
    at: Floats

    @classmethod
    def of(cls, points: Floats, cells: int) -> Cells:
        """Cells with about as many of the points ((k, d), ms) each; ``cells`` is a power of two."""
        axis, at = np.zeros(cells - 1, np.int64), np.zeros(cells - 1)
        groups = {0: np.arange(len(points))}
        for node in range(cells - 1):
            rows = groups.pop(node)
            if len(rows):
                axis[node] = int(np.argmax(np.ptp(points[rows], axis=0)))
                at[node] = np.median(points[rows, axis[node]])
            above = points[rows, axis[node]] >= at[node]
            groups[2 * node + 1], groups[2 * node + 2] = rows[~above], rows[above]
        return cls(axis, at)

    def find(self, points: Floats) -> Ints:
        """(k,) cells of points ((k, d), ms)."""
        node, count = np.zeros(len(points), np.int64), len(self.axis)
        rows = np.arange(len(points))
        for _ in range((count + 1).bit_length() - 1):
            node = 2 * node + 1 + (points[rows, self.axis[node]] >= self.at[node])
        return node - count


@dataclass(frozen=True, eq=False)
class Coarse:
    """The plan of a sample, as far as other joins follow it.

    Attributes:
        cells: of the cost space.
        like: (s, d + 1) virtual position and weighted rank of each sampled join with a place, ms.
        group: (s,) twice its requirement's number, plus one if its virtual position is its sink.
        cell: (s,) cell of its host.
        size: (k,) ascending required capacities of sampled joins, tuples/s, which give ranks.
        weight: ms that all ranks together count as.
    """

    cells: Cells
    like: Floats
    group: Ints
    cell: Ints
    size: Floats
    weight: float

    @classmethod
    def of(cls, nodes: Any, joins: Any, query: Query, cells: int) -> Coarse:
        """Place a sample.

        Args:
            nodes: sampled nodes that may host, as a table; capacities as the sample needs them.
            joins: sampled joins, likewise.
            query: what is the same in every part.
            cells: how many, a power of two.
        """
        nodes, joins = nodes.sort_by("row"), joins.sort_by("pair")
        problem, joins, _ = problem_and_rest(nodes, joins, query)
        points = rows_of_lists(joins, "point")
        # Joins that must be cut need a cell, too; else all of them would follow a few others.
        instances = place(problem, points, query.parameters, cut=True).assignment.instances
        placed = instances.node >= 0
        # A join in pieces counts by its first piece.
        pair, first = np.unique(instances.pair[placed], return_index=True)
        host = problem.nodes.position[instances.node[placed][first]]
        own = problem.nodes.position[: len(nodes)]
        tree = Cells.of(np.concatenate([own, host]), cells)
        size = np.sort(problem.required_capacity)
        weight = RANK_WEIGHT * float(points.std(axis=0).mean()) if len(joins) else 0.0
        like, group = _likeness(joins, query, size, weight)
        return cls(tree, like[pair], group[pair], tree.find(host), size, weight)

    def draw(self, joins: Any, query: Query, seed: int) -> Ints:
        """(p,) the cell of each join of a table; below 0 where no sampled join is similar.

        There are `NOWHERE` numbers below 0, so that no group grows with the problem. The draw of
        a join depends only on the seed and the join.
        """
        if not len(self.cells.axis):
            return np.zeros(len(joins), np.int64)
        like, group = _likeness(joins, query, self.size, self.weight)
        key = np.uint64(seed) + ints(joins, "pair").astype(np.uint64) * _GOLDEN
        key ^= key >> np.uint64(29)
        dice = (key * _GOLDEN) >> np.uint64(40)
        cell = -1 - ints(joins, "pair") % NOWHERE
        for one, (tree, cells) in self._trees.items():
            rows = np.flatnonzero(group == one)
            if len(rows):
                count = min(ALIKE, len(cells))
                _, near = tree.query(like[rows], k=count)
                chosen = (dice[rows] % np.uint64(count)).astype(np.int64)
                near = near.reshape(len(rows), count)
                cell[rows] = cells[near[np.arange(len(rows)), chosen]]
        return cell

    @cached_property
    def _trees(self) -> dict[int, tuple[Any, Ints]]:
        from scipy.spatial import cKDTree

        return {
            one: (cKDTree(self.like[self.group == one]), self.cell[self.group == one])
            for one in np.unique(self.group).tolist()
        }

    @classmethod
    def single(cls) -> Coarse:
        """One cell for all."""
        none, empty = np.empty(0, np.int64), np.empty(0)
        return cls(Cells(none, empty), np.empty((0, 1)), none, none, empty, 0.0)


def _likeness(joins: Any, query: Query, size: Floats, weight: float) -> tuple[Floats, Ints]:
    """Coordinates of each join for similarity (`Coarse.like`), and its group."""
    point = rows_of_lists(joins, "point")
    sink = rows_of_lists(joins, "anchors")[:, -point.shape[1] :]
    need = floats(joins, "left_rate") + floats(joins, "right_rate")
    rank = np.searchsorted(size, need) / max(len(size), 1)
    group = 2 * query.requirement[ints(joins, "join")] + (point == sink).all(axis=1)
    return np.column_stack([point, weight * rank]), group
