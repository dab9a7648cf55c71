"""A join that runs in pieces: its partitions, its rectangles and what each node receives of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import NamedTuple

import numpy as np

from nova_core.placement.kernels.merge import merge_rectangles


class Piece(NamedTuple):
    """A rectangle of a pair's grid on a node."""

    node: int
    left: int
    left_end: int
    right: int
    right_end: int

    @property
    def shape(self) -> tuple[int, int]:
        """Partitions of either input."""
        return self.left_end - self.left, self.right_end - self.right

    @property
    def cells(self) -> int:
        """Pairs of partitions it joins."""
        return self.shape[0] * self.shape[1]

    def split(self, side: int, at: int) -> tuple[Piece, Piece]:
        """Two pieces: one with the first ``at`` partitions of an input, and the other."""
        if side == 0:
            return self._replace(left_end=self.left + at), self._replace(left=self.left + at)
        return self._replace(right_end=self.right + at), self._replace(right=self.right + at)


class Share(NamedTuple):
    """What a node receives and emits for a pair, tuples/s."""

    left: float
    right: float
    output: float

    @property
    def size(self) -> float:
        """What the node is charged."""
        return self.left + self.right


@dataclass(frozen=True)
class Pieces:
    """A pair that is cut.

    Attributes:
        left: rates of the left input's partitions, tuples/s.
        right: of the right input's.
        pieces: ordered by left, then right partition; together they are the whole grid.
    """

    left: tuple[float, ...]
    right: tuple[float, ...]
    pieces: tuple[Piece, ...]

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """Where it runs, each node once, in ascending order."""
        return tuple(sorted({piece.node for piece in self.pieces}))

    def shares(self, left: float, right: float, output: float) -> dict[int, Share]:
        """What each node receives, every distinct partition once.

        Args:
            left: rate of the left source, tuples/s.
            right: of the right one.
            output: what the whole join emits.
        """
        shares = {}
        for node in self.nodes:
            mine = [piece for piece in self.pieces if piece.node == node]
            shares[node] = Share(
                distinct_rate(self.left, [(p.left, p.left_end) for p in mine], left),
                distinct_rate(self.right, [(p.right, p.right_end) for p in mine], right),
                fsum(
                    output
                    * (part_rate(self.left, p.left, p.left_end, left) / left)
                    * (part_rate(self.right, p.right, p.right_end, right) / right)
                    for p in mine
                ),
            )
        return shares


def part_rate(rates: Sequence[float], begin: int, end: int, whole: float) -> float:
    """Rate of partitions begin..end; of all partitions exactly the source's rate."""
    if begin == 0 and end == len(rates):
        return whole
    return fsum(rates[begin:end])


def piece_size(cut: Pieces, piece: Piece, whole: Share) -> float:
    """What a host is charged for a piece of a join, tuples/s."""
    return part_rate(cut.left, piece.left, piece.left_end, whole.left) + part_rate(
        cut.right, piece.right, piece.right_end, whole.right
    )


def piece_share(cut: Pieces, piece: Piece, whole: Share) -> Share:
    """What the host of a piece of a join receives and emits."""
    left = part_rate(cut.left, piece.left, piece.left_end, whole.left)
    right = part_rate(cut.right, piece.right, piece.right_end, whole.right)
    return Share(left, right, whole.output * (left / whole.left) * (right / whole.right))


def distinct_rate(rates: Sequence[float], ranges: Sequence[tuple[int, int]], whole: float) -> float:
    """Rate of the partitions that occur in any of some ranges."""
    if len(ranges) == 1:
        return part_rate(rates, *ranges[0], whole)
    distinct = {number for begin, end in ranges for number in range(begin, end)}
    if len(distinct) == len(rates):
        return whole
    return fsum(rates[number] for number in sorted(distinct))


def merged(cut: Pieces, pieces: Sequence[Piece], whole: Share, largest: float) -> Pieces:
    """A cut whose pieces on one node are merged where they form a rectangle together.

    Args:
        cut: its partitions.
        pieces: all of them.
        whole: what the host of the whole join would receive.
        largest: what an instance may receive, tuples/s.
    """
    ordered = sorted(pieces, key=_order)
    table = np.array(ordered, np.int64)
    keep = np.empty(len(table), bool)
    merge_rectangles(
        np.zeros(len(table), np.int64),
        table[:, 0].copy(),
        rectangle := table[:, 1:].copy(),
        np.array([[whole.left, whole.right]]),
        np.array([max(cut.left[0], cut.right[0])]),  # p_max: one of them is cut
        np.array([[len(cut.left), len(cut.right)]]),
        largest,
        keep,
    )
    rest = np.column_stack([table[:, 0], rectangle])[keep].tolist()
    return Pieces(cut.left, cut.right, tuple(sorted((Piece(*row) for row in rest), key=_order)))


def _order(piece: Piece) -> tuple[int, int]:
    return piece.left, piece.right
