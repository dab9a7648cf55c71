"""Instances of a plan of queries as rows of the tables that kernels place: one per instance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.state.changed import KEPT
from nova_core.placement.kernels.state.tables import FIRST_SOURCE, HOST, SINK, Kept, Legs, Operators


class InstanceRows(NamedTuple):
    """What is placed, and the trees that it forms.

    Attributes:
        operators: a row for each instance, whole where it runs.
        legs: of instances, to others and to nodes of sources and sinks.
        kept: room to record all instances.
        some: instances by tree, producers before consumers.
        first: (t + 1,) where each tree begins.
    """

    operators: Operators
    legs: Legs
    kept: Kept
    some: Ints
    first: Ints

    @property
    def host(self) -> Ints:
        """(k,) node that each instance runs on, -1 for none; changed as kernels move it."""
        return self.operators.row[:, HOST]


def instance_rows(plan: Plan, weight: Floats, point: Floats) -> InstanceRows:
    """Rows of a plan's instances.

    Args:
        plan: instances that have no node yet are on -1.
        weight: (l,) what each ms of its links counts.
        point: (k, d) virtual positions of instances, ms.
    """
    links, node, many = plan.links, plan.instances.node, len(plan.instances)
    producer, consumer = links.producer, links.consumer
    start, stop = plan.ends
    # A leg for each end of a link that is an instance, of each instance its inputs first.
    takes, sends = np.flatnonzero(consumer >= 0), np.flatnonzero(producer >= 0)
    whose = np.concatenate([consumer[takes], producer[sends]])
    end = np.concatenate([start[takes], stop[sends]])
    other = np.concatenate(
        [
            np.where(producer >= 0, producer, FIRST_SOURCE)[takes],
            np.where(consumer >= 0, consumer, SINK)[sends],
        ]
    )
    order = np.argsort(whose, kind="stable")
    other, link = other[order], np.concatenate([takes, sends])[order]
    at = np.searchsorted(whose[order], np.arange(many + 1))
    row = np.full((many, 8), -1)
    row[:, 0], row[:, 1] = at[:-1], np.bincount(consumer[takes], minlength=many)
    row[:, 2], row[:, 3] = np.diff(at), 0
    row[whose[order][other >= 0], 3] = 1
    row[:, 4], row[:, 5] = plan.instances.pair, node
    rate = np.zeros((many, 3))
    rate[:, 0] = np.bincount(consumer[takes], links.rate[takes], many)
    some, first = _trees(producer, consumer, many)
    legs = Legs(end[order].astype(np.int32), other.astype(np.int32), weight[link])
    return InstanceRows(
        Operators(row, rate, np.ascontiguousarray(point), np.full((many, 2), -1)),
        legs,
        Kept(np.empty((many, KEPT), np.int64), np.empty_like(point), np.zeros(2, np.int64)),
        some,
        first,
    )


def _trees(producer: Ints, consumer: Ints, many: int) -> tuple[Ints, Ints]:
    """Instances by tree, producers before consumers; and where trees begin.

    An instance's first consumer is its parent; to others it is linked as if they were sinks.
    """
    between = np.flatnonzero((producer >= 0) & (consumer >= 0))[::-1]
    parent = np.full(many, -1)
    parent[producer[between]] = consumer[between]  # of several, the first is written last
    root, depth = np.arange(many), np.zeros(many, np.int64)
    while (climbs := np.flatnonzero(parent[root] >= 0)).size:
        root[climbs] = parent[root[climbs]]
        depth[climbs] += 1
    _, least, tree = np.unique(root, return_index=True, return_inverse=True)
    some = np.lexsort((-depth, least[tree]))
    sizes = np.bincount(tree)[np.argsort(least)]
    return some, np.concatenate([[0], np.cumsum(sizes)])
