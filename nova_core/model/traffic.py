"""Traffic between nodes under a plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Ints


@dataclass(frozen=True, eq=False)
class Hops:
    """Traffic that crosses from one node to another, a row per hop of a leg of an instance.

    Attributes:
        source: (h,) node index the tuples leave.
        target: (h,) node index they enter; never the source itself.
        rate: (h,) tuples/s.
    """

    source: Ints
    target: Ints
    rate: Floats

    def per_node_pair(self, count: int) -> Hops:
        """The same traffic with one row per directed node pair, sorted by source, then target.

        Args:
            count: nodes of the topology.
        """
        first = self.source.astype(np.int64) * count
        key, row = np.unique(first + self.target, return_inverse=True)
        rate = np.bincount(row, self.rate, minlength=len(key)).astype(np.float64)
        return Hops(key // count, key % count, rate)


def hops(plan: Plan) -> Hops:
    """Every hop of every flow that leaves its node; one that ends where it begins has none."""
    (source, target), rate = plan.ends, plan.sent
    if plan.routes is not None:
        offset, node = plan.routes.offset, plan.routes.node
        leg = np.repeat(np.arange(len(rate)), np.diff(offset))
        inside = leg[:-1] == leg[1:]
        source, target, rate = node[:-1][inside], node[1:][inside], rate[leg[:-1][inside]]
    crossing = source != target
    return Hops(source[crossing], target[crossing], rate[crossing])
