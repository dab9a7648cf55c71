"""Cutting an operator that no node takes whole, along one input: by keys, into shares, into parts.

Each run of partitions is as long as the node that takes it allows. Joins are cut as grids where
they have no keys; that is a search of its own (`nova_core.placement.kernels.cut`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from nova_core.model import key_ranges
from nova_core.model.problem import Floats
from nova_core.model.queries import Join

# Ranges of fewer keys have too different shares.
KEYS_PER_RANGE = 50
ROUNDING = 1 + 1e-12


class Hosts(Protocol):
    """Nodes that take pieces of an operator."""

    def take(self, required: float) -> int:
        """The best node with so much room, tuples/s, or -1."""

    def room(self, node: int) -> float:
        """What a node has free, tuples/s."""

    def most_room(self) -> float:
        """What the node with most room has free, tuples/s."""

    def charge(self, node: int, required: float) -> None:
        """Take room of a node, tuples/s; below 0 to give it back."""


class Run(NamedTuple):
    """A piece: partitions of the left input, one after the other.

    Attributes:
        begin: the first.
        end: one past the last.
        node: where it runs, -1 if no node takes it.
        required: what it takes of a node, tuples/s.
    """

    begin: int
    end: int
    node: int
    required: float


class Cut(NamedTuple):
    """An operator in pieces along its left input.

    Attributes:
        left: rates of the left input's partitions, tuples/s.
        right: of the right input's single one.
        runs: the pieces.
        join: what is cut by its keys, or None.
        root: what combines the pieces' results, without partitions; None where nothing has to.
    """

    left: Floats
    right: Floats
    runs: list[Run]
    join: Join | None = None
    root: Run | None = None

    @property
    def missing(self) -> float:
        """Tuples/s of the pieces that no node takes."""
        pieces = self.runs if self.root is None else [*self.runs, self.root]
        return math.fsum(one.required for one in pieces if one.node < 0)


def by_key(hosts: Hosts, join: Join, left: float, right: float, limit: float) -> Cut | None:
    """Cut a join into ranges of its keys; None where it has too few, or one is too large.

    Args:
        hosts: where pieces may run; charged.
        join: with its keys.
        left: rate of its left input, tuples/s.
        right: of its right one.
        limit: what an instance may receive, tuples/s.
    """
    room = min(limit, hosts.most_room())
    most = join.keys // KEYS_PER_RANGE
    if room <= 0 or most < max(2, needed := math.ceil((left + right) / room)):
        return None
    count = min(most, max(key_ranges.KEY_RANGES, needed))
    rates = key_ranges.cut(join, left, right, count)
    tuples = key_ranges.required(join, left, right, rates, comparing=0)
    if max(tuples(one, one + 1) for one in range(len(rates))) > room:
        return None
    found = runs(hosts, len(rates), key_ranges.required(join, left, right, rates), limit)
    if found[-1].node < 0:
        # Where room is short for the needs of frequent keys, only tuples count.
        for one in found[:-1]:
            hosts.charge(one.node, -one.required)
        found = runs(hosts, len(rates), tuples, limit)
    return Cut(rates, np.array([right]), found, join)


def into_shares(hosts: Hosts, required: float, parts: int, sigma: float, limit: float) -> Cut:
    """Cut a projection, or an aggregate of several groups, into equal shares.

    Args:
        hosts: where pieces may run; charged.
        required: tuples/s of its input.
        parts: how many shares there may be.
        sigma: share of the input that a share may have, if that is more than 1 tuple/s.
        limit: what an instance may receive, tuples/s.
    """
    most = min(max(1.0, sigma * required), limit)
    count = max(1, min(parts, math.ceil(required / most)))
    rates = np.full(count, required / count)
    return Cut(rates, np.zeros(1), _runs_of(hosts, rates, limit))


def into_parts(hosts: Hosts, inputs: Floats, most: float, limit: float) -> Cut:
    """Aggregate ranges of the inputs, and combine the results.

    Args:
        hosts: where pieces may run; charged.
        inputs: tuples/s of each.
        most: tuples/s that a part emits at most.
        limit: what an instance may receive, tuples/s.
    """
    found = _runs_of(hosts, inputs, limit)
    arriving = sum(min(float(inputs[one.begin : one.end].sum()), most) for one in found)
    node = hosts.take(arriving) if arriving <= limit else -1
    if node >= 0:
        hosts.charge(node, arriving)
    return Cut(inputs, np.zeros(1), found, root=Run(0, 0, node, arriving))


def _runs_of(hosts: Hosts, rates: Floats, limit: float) -> list[Run]:
    """Runs of partitions whose requirement is their rate, tuples/s."""
    reached = np.concatenate(([0.0], np.cumsum(rates))).tolist()
    return runs(hosts, len(rates), lambda a, b: reached[b] - reached[a], limit)


def runs(
    hosts: Hosts, count: int, required: Callable[[int, int], float], limit: float
) -> list[Run]:
    """Runs of an input's partitions, each as long as its node allows.

    Args:
        hosts: where they may run; charged.
        count: of the partitions.
        required: tuples/s that a run needs, by its begin and end, which grows with it.
        limit: of a run, tuples/s.
    """
    found: list[Run] = []
    begin = 0
    while begin < count:
        end, node = count, hosts.take(required(begin, begin + 1))
        if node >= 0:
            room = min(hosts.room(node), limit) * ROUNDING
            longer = range(begin + 2, count + 1)
            end = begin + 1 + bisect_right(longer, room, key=partial(required, begin))
            hosts.charge(node, required(begin, end))
        found.append(Run(begin, end, node, required(begin, end)))
        begin = end
    return found
