"""Into which pieces operators are cut, and where these run: what a plan decides, as columns.

An operator has its inputs cut into partitions. Every left partition meets every right one in
exactly one *instance*: a rectangle of the operator's partition grid that runs on one node. Two
paper replicas that merge on a node are simply one larger rectangle. An operator with one input has
a single right partition, of no rate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nova_core.model.arrays import Bools, Floats, Ints
from nova_core.model.expansion import AS_WRITTEN, Rewriting, graph_of
from nova_core.model.problem import Problem


@dataclass(frozen=True, eq=False)
class Partitions:
    """How both inputs of every operator are cut.

    Row ``2 * pair`` of ``offset`` starts the left input's partitions, row ``2 * pair + 1`` the
    right one's. A tuple finds its partition from its sequence number and the rates as weights
    (`nova_core.model.partitioner`).

    Joins of queries may be cut by key instead (`nova_core.model.key_ranges`). The left input's
    partitions are ranges of keys then, and the right input has a single partition, of which each
    range takes the tuples of its keys.

    Attributes:
        offset: (2p + 1,) start of each input's run in ``rate``.
        rate: rate of each partition, tuples/s; each input's run sums to the input's rate.
        by_key: (p,) operators that are cut by key; None where none is.
    """

    offset: Ints
    rate: Floats
    by_key: Bools | None = None

    @classmethod
    def whole(cls, problem: Problem, rewriting: Rewriting = AS_WRITTEN) -> Partitions:
        """Every input of a problem's pairs, or of its queries' operators, in one piece."""
        if problem.queries:
            return cls.uncut(graph_of(problem, rewriting).input_rate)
        rate = np.empty(2 * len(problem.matrix))
        rate[0::2], rate[1::2] = problem.left_rate, problem.right_rate
        return cls.uncut(rate)

    @classmethod
    def uncut(cls, rate: Floats) -> Partitions:
        """Inputs of these rates ((2p,), tuples/s), each in one piece."""
        return cls(np.arange(len(rate) + 1, dtype=np.int64), rate)

    def with_cuts(self, cuts: Mapping[int, Floats], by_key: Collection[int] = ()) -> Partitions:
        """The same, none of it cut by key, with other partitions of some inputs.

        Args:
            cuts: input (``2 * operator + side``) to the rates of its partitions.
            by_key: operators that are cut by key.
        """
        if not cuts:
            return self
        count = self.count.copy()
        count[list(cuts)] = [len(rates) for rates in cuts.values()]
        offset = np.concatenate(([0], np.cumsum(count)))
        unchanged = np.ones(len(count), bool)
        unchanged[list(cuts)] = False
        rate = np.empty(int(offset[-1]))
        rate[np.repeat(unchanged, count)] = self.rate[np.repeat(unchanged, self.count)]
        for each, rates in cuts.items():
            rate[offset[each] : offset[each + 1]] = rates
        keyed = None
        if by_key:
            keyed = np.zeros(len(count) // 2, bool)
            keyed[list(by_key)] = True
        return Partitions(offset, rate, keyed)

    @cached_property
    def count(self) -> Ints:
        """(2p,) partitions of each input: left at ``2 * pair``, right at ``2 * pair + 1``."""
        return np.diff(self.offset)

    @property
    def cut_operators(self) -> Ints:
        """Operators of which an input is cut."""
        cut = (self.count[0::2] > 1) | (self.count[1::2] > 1)
        return np.flatnonzero(cut if self.by_key is None else cut | self.by_key)

    def rates(self, pair: int, side: int) -> Floats:
        """Rates of one input's partitions; ``side`` is 0 for left, 1 for right."""
        return self.rate[self.offset[2 * pair + side] : self.offset[2 * pair + side + 1]]

    def range_rate(self, begin: Ints, end: Ints) -> Floats:
        """(k,) sums of ``rate[begin:end]``, tuples/s; an empty range sums to 0.

        Summed range by range: differences of one running sum over a million partitions would carry
        its rounding, some 1e-8 tuples/s, into every range.
        """
        if len(begin) == 0:
            return np.empty(0)
        bounds = np.stack([begin, end], axis=1).ravel()
        sums = np.add.reduceat(np.append(self.rate, 0.0), bounds)[::2]
        return np.where(end > begin, sums, 0.0)


@dataclass(frozen=True, eq=False)
class Instances:
    """Operator instances, one row each, ordered by operator.

    Attributes:
        pair: (k,) the operator: a row of `Graph.bodies`, which are the rows of a join matrix.
        node: (k,) where it runs.
        left_begin: (k,) first left partition it receives.
        left_end: (k,) one past the last left partition.
        right_begin: (k,) first right partition.
        right_end: (k,) one past the last right partition.
        feeds: (k,) row of the instance of the same operator that combines its results, or -1; None
            where no instance has one. What combines others may take no partition itself.
    """

    pair: Ints
    node: Ints
    left_begin: Ints
    left_end: Ints
    right_begin: Ints
    right_end: Ints
    feeds: Ints | None = None

    @classmethod
    def whole(cls, node: Ints) -> Instances:
        """One uncut instance per pair on the given nodes ((p,))."""
        count = len(node)
        zero, one = np.zeros(count, np.int64), np.ones(count, np.int64)
        return cls(
            np.arange(count, dtype=np.int64), np.asarray(node, np.int64), zero, one, zero, one
        )

    def __len__(self) -> int:
        return len(self.pair)

    @cached_property
    def replicas(self) -> Ints:
        """(k,) paper replicas merged in each instance: left times right partitions."""
        return (self.left_end - self.left_begin) * (self.right_end - self.right_begin)
