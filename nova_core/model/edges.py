"""The data flows of a plan: source node, target node, rate and latency."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova_core.model.arrays import Floats, Ints
from nova_core.model.plan import Plan


@dataclass(frozen=True, eq=False)
class Edges:
    """Flows between sources, instances and sinks, one row each, in the order of `Plan.links`.

    Instances of one operator on one node share their flows: a partition is sent to a node once, and
    their results go on together. They stay apart only where their multi-hop routes differ.

    Attributes:
        link: (e,) row of `Plan.links`; of several that share the flow, the first.
        source: (e,) node index the flow leaves.
        target: (e,) node index it enters; equal to ``source`` where nothing crosses the network.
        rate: (e,) tuples/s.
        latency: (e,) estimated latency, ms, along the route.
        bandwidth: (e,) bytes/s, NaN where the size of a tuple is not known.
        offset: (e + 1,) start of each flow's runs in ``begin`` and ``end``; what goes to a sink, or
            to what combines parts, has none.
        begin: first partition of each run of partitions the flow carries.
        end: one past its last.
    """

    link: Ints
    source: Ints
    target: Ints
    rate: Floats
    latency: Floats
    bandwidth: Floats
    offset: Ints
    begin: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.link)


def edges(plan: Plan) -> Edges:
    """The flows of a plan."""
    links, first = plan.links, _shared(plan)
    into = (links.consumer >= 0) & (links.logical >= 0)
    begin, end = _ranges(plan)
    # Only flows with tuples: all inputs of an instance may be on its node already.
    carries = ~into | (end > begin)
    used = np.zeros(len(first), bool)
    used[first[carries]] = True
    link = np.flatnonzero(used)
    rate = np.bincount(first, plan.sent, len(first)).astype(np.float64)[link]
    size = plan.graph.tuple_bytes(plan.problem.sources.tuple_bytes)
    carried = np.append(plan.graph.carried, -1)[links.logical[link]]
    start, stop = plan.ends
    runs = np.flatnonzero(carries & into)
    return Edges(
        link=link,
        source=start[link],
        target=stop[link],
        rate=rate,
        latency=plan.link_latency()[link],
        bandwidth=rate * np.append(size, np.nan)[carried],
        **_joined(link, first[runs], begin[runs], end[runs]),
    )


def _ranges(plan: Plan) -> tuple[Ints, Ints]:
    """((l,), (l,)) partitions that each link brings to its consumer's node."""
    links, sides = plan.links, (plan.new_range(0), plan.new_range(1))
    # What is cut by key takes the same ranges of both inputs.
    as_left = (links.side == 0) | np.append(plan.by_key, False)[np.maximum(links.consumer, -1)]
    begin, end = (
        np.where(
            as_left, *(np.append(side[bound], 0)[np.maximum(links.consumer, -1)] for side in sides)
        )
        for bound in (0, 1)
    )
    return begin, end


def _shared(plan: Plan) -> Ints:
    """(l,) the first link that shares the flow of each: usually itself."""
    links, i, mates = plan.links, plan.instances, plan.node_mates
    first = np.arange(len(links.rate))
    if len(mates) == 0:
        return first
    starts = (np.diff(i.pair[mates]) != 0) | (np.diff(i.node[mates]) != 0)
    group = np.concatenate(([0], np.cumsum(starts)))
    alike = np.arange(len(i))
    alike[mates] = mates[np.searchsorted(group, group)]
    ends = np.stack([links.producer, links.consumer])
    rows = np.flatnonzero(np.isin(ends, mates).any(axis=0))
    ends = np.where(ends >= 0, alike[np.maximum(ends, 0)], ends)[:, rows]
    route = np.zeros(len(rows), np.int64)
    if plan.routes is not None:
        offset, node, number = plan.routes.offset, plan.routes.node, dict[bytes, int]()
        for place, row in enumerate(rows.tolist()):
            way = node[offset[row] : offset[row + 1]].tobytes()
            route[place] = number.setdefault(way, len(number))
    keys = np.stack([*ends, links.logical[rows], route])
    _, index, inverse = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    first[rows] = rows[index[inverse.ravel()]]
    return first


def _joined(link: Ints, flow: Ints, begin: Ints, end: Ints) -> dict[str, Ints]:
    """Adjoining ranges of one flow as one run."""
    order = np.lexsort((begin, flow))
    flow, begin, end = flow[order], begin[order], end[order]
    joined = (np.diff(flow) == 0) & (begin[1:] == end[:-1])
    starts = np.concatenate(([True], ~joined))[: len(flow)]
    ends = np.append(~joined, True)[: len(flow)]
    offset = np.searchsorted(flow[starts], np.append(link, np.iinfo(np.int64).max))
    return {"offset": offset, "begin": begin[starts], "end": end[ends]}
