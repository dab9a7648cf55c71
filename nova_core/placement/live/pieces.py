"""A join that runs in pieces: its partitions, its rectangles and what each node receives of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import fsum
from typing import NamedTuple


class Piece(NamedTuple):
    """A rectangle of a pair's grid on a node."""

    node: int
    left: int
    left_end: int
    right: int
    right_end: int

    @property
    def cells(self) -> int:
        """Pairs of partitions it joins."""
        return (self.left_end - self.left) * (self.right_end - self.right)


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
        found = {}
        for node in self.nodes:
            mine = [piece for piece in self.pieces if piece.node == node]
            found[node] = Share(
                distinct_rate(self.left, [(p.left, p.left_end) for p in mine], left),
                distinct_rate(self.right, [(p.right, p.right_end) for p in mine], right),
                fsum(
                    output
                    * (part_rate(self.left, p.left, p.left_end, left) / left)
                    * (part_rate(self.right, p.right, p.right_end, right) / right)
                    for p in mine
                ),
            )
        return found


def part_rate(rates: Sequence[float], begin: int, end: int, whole: float) -> float:
    """Rate of partitions begin..end; of all of them the source's own."""
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


def merged(pieces: Sequence[Piece], allowed: Callable[[Piece], bool]) -> tuple[Piece, ...]:
    """Pieces that share a node and form an allowed rectangle together, as one; in plan order."""
    rest = sorted(pieces, key=_order)
    while True:
        for a, b in combinations(range(len(rest)), 2):
            united = _united(rest[a], rest[b])
            if united is not None and allowed(united):
                del rest[b]
                rest[a] = united
                rest.sort(key=_order)
                break
        else:
            return tuple(rest)


def _order(piece: Piece) -> tuple[int, int]:
    return piece.left, piece.right


def _united(a: Piece, b: Piece) -> Piece | None:
    """Two pieces as one rectangle, if they share a node and adjoin; a comes first in order."""
    if a.node != b.node:
        return None
    below = a.left_end == b.left and (a.right, a.right_end) == (b.right, b.right_end)
    beside = a.right_end == b.right and (a.left, a.left_end) == (b.left, b.left_end)
    return Piece(a.node, a.left, b.left_end, a.right, b.right_end) if below or beside else None
