"""An operator that runs in pieces: its partitions, its rectangles and what each node receives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import NamedTuple

import numpy as np

from nova_core.model.key_ranges import KeyRanges
from nova_core.model.queries import Join
from nova_core.placement.kernels.merge import merge_rectangles


class Piece(NamedTuple):
    """A rectangle of an operator's grid on a node; without a left partition, it combines others."""

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

    @property
    def combines(self) -> bool:
        """Whether it combines the results of the other pieces."""
        return self.left == self.left_end

    def split(self, side: int, at: int) -> tuple[Piece, Piece]:
        """Two pieces: one with the first ``at`` partitions of an input, and the other."""
        if side == 0:
            return self._replace(left_end=self.left + at), self._replace(left=self.left + at)
        return self._replace(right_end=self.right + at), self._replace(right=self.right + at)


class Share(NamedTuple):
    """What a node receives and emits for an operator, tuples/s."""

    left: float
    right: float
    output: float

    @property
    def size(self) -> float:
        """What the node is charged."""
        return self.left + self.right


@dataclass(frozen=True)
class Pieces:
    """An operator that is cut.

    Attributes:
        left: rates of the left input's partitions, tuples/s.
        right: of the right input's; an operator with one input has one, of no rate.
        pieces: ordered by left, then right partition; together they are the whole grid, besides
            one that may combine them.
        join: what is joined, where it is cut by its keys.
    """

    left: tuple[float, ...]
    right: tuple[float, ...]
    pieces: tuple[Piece, ...]
    join: Join | None = None

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """Where it runs, each node once, in ascending order."""
        return tuple(sorted({piece.node for piece in self.pieces}))

    @cached_property
    def combined(self) -> bool:
        """Whether the pieces' results are combined."""
        return any(piece.combines for piece in self.pieces)

    @cached_property
    def _ranges(self) -> KeyRanges | None:
        return None if self.join is None else KeyRanges.of(self.join, np.array(self.left))

    def share(self, piece: Piece, whole: Share) -> Share:
        """What the host of a piece receives and emits.

        Args:
            piece: one of this operator.
            whole: of the whole operator.
        """
        left = part_rate(self.left, piece.left, piece.left_end, whole.left)
        if self.join is None and not self.combined:
            right = part_rate(self.right, piece.right, piece.right_end, whole.right)
            output = whole.output * _of(left, whole.left) * _of(right, whole.right)
            return Share(left, right, output)
        if self._ranges is None:
            if not piece.combines:
                return Share(left, 0.0, min(left, whole.output))
            parts = [self.share(one, whole).output for one in self.pieces if not one.combines]
            return Share(fsum(parts), 0.0, whole.output)
        bounds = np.array([piece.left]), np.array([piece.left_end])
        ((received,), (emitted,)) = self._ranges.shares(*bounds)
        return Share(left, whole.right * float(received), whole.output * float(emitted))

    def shares(self, whole: Share) -> dict[int, Share]:
        """What each node receives, every distinct partition once.

        Args:
            whole: what the host of the whole operator would receive.
        """
        shares = {}
        left, right, output = whole
        for node in self.nodes:
            mine = [piece for piece in self.pieces if piece.node == node]
            if self.combined or self.join is not None:
                shares[node] = Share(
                    *map(fsum, zip(*(self.share(p, whole) for p in mine), strict=True))
                )
                continue
            shares[node] = Share(
                distinct_rate(self.left, [(p.left, p.left_end) for p in mine], left),
                distinct_rate(self.right, [(p.right, p.right_end) for p in mine], right),
                fsum(
                    output
                    * _of(part_rate(self.left, p.left, p.left_end, left), left)
                    * _of(part_rate(self.right, p.right, p.right_end, right), right)
                    for p in mine
                ),
            )
        return shares

    def weights(
        self, piece: Piece, whole: Share, sides: Sequence[int], by_rate: bool
    ) -> list[float]:
        """Shares of the weights of an operator's legs that a piece has.

        Args:
            piece: one of this operator.
            whole: of the whole operator.
            sides: of each leg the number of the input, -1 for an output.
            by_rate: whether weights are rates; else they count replicas.
        """
        if self.combined:
            if piece.combines:
                return [1.0 if side < 0 else 0.0 for side in sides]
            return [1.0 if piece.left <= side < piece.left_end else 0.0 for side in sides]
        if by_rate or self.join is not None:
            share = self.share(piece, whole)
            left, right = _of(share.left, whole.left), _of(share.right, whole.right)
            of_side = {0: left, 1: right, -1: _of(share.output, whole.output)}
            return [of_side.get(side, left) for side in sides]
        return [self.share_of_cells(piece)] * len(sides)

    def share_of_cells(self, piece: Piece) -> float:
        """The share of all pairs of partitions that a piece joins."""
        return piece.cells / (len(self.left) * len(self.right))


def _of(part: float, whole: float) -> float:
    """The share of a rate; what has no rate is there as a whole."""
    return part / whole if whole else 1.0


def part_rate(rates: Sequence[float], begin: int, end: int, whole: float) -> float:
    """Rate of partitions begin..end; of all partitions exactly the source's rate."""
    if begin == 0 and end == len(rates):
        return whole
    return fsum(rates[begin:end])


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
