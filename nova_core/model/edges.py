"""The data flows of a plan: source node, target node, rate and latency."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Ints

LEGS = ("left", "right", "result")


@dataclass(frozen=True, eq=False)
class Edges:
    """Flows between sources, instances and sinks, one row each, by instance, then by leg.

    Instances of one pair on one node share their flows: a partition is sent to a node once, and
    their results go to the sink together. They stay apart only where their multi-hop routes differ.

    Attributes:
        instance: (e,) the instance at the join's end; of several that share the flow, the first.
        leg: (e,) 0 left input, 1 right input, 2 result (`LEGS`).
        source: (e,) node index the flow leaves.
        target: (e,) node index it enters; equal to ``source`` where nothing crosses the network.
        rate: (e,) tuples/s.
        latency: (e,) estimated latency, ms, along the route.
        bandwidth: (e,) bytes/s, NaN where the size of a tuple is not known; a result holds a tuple
            of either side.
        offset: (e + 1,) start of each flow's runs in ``begin`` and ``end``; a result has none.
        begin: first partition of each run of partitions the flow carries.
        end: one past its last.
    """

    instance: Ints
    leg: Ints
    source: Ints
    target: Ints
    rate: Floats
    latency: Floats
    bandwidth: Floats
    offset: Ints
    begin: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.instance)


def edges(plan: Plan) -> Edges:
    """The flows of a plan."""
    p, i, count = plan.problem, plan.instances, len(plan.instances)
    rates = [*plan.received, plan.output_rate]
    keys, sums, runs = [], [], []
    for leg in range(3):
        shared = _shared_with(plan, leg)
        carries = np.ones(count, bool)
        if leg < 2:
            begin, end = plan.new_range(leg)
            carries = end > begin
            runs.append((3 * shared[carries] + leg, begin[carries], end[carries]))
        # Only flows with tuples: all inputs of an instance may be on its node already.
        used = np.zeros(count, bool)
        used[shared[carries]] = True
        instance = np.flatnonzero(used)
        total = np.bincount(shared, rates[leg], minlength=count).astype(np.float64)
        sums.append(total[instance])
        keys.append(3 * instance + leg)
    key = np.concatenate(keys)
    order = np.argsort(key)
    key, rate = key[order], np.concatenate(sums)[order]
    instance, leg_of = key // 3, key % 3
    pair, node = i.pair[instance], i.node[instance]
    outer = p.pair_ends[pair, leg_of]
    is_result = leg_of == 2
    return Edges(
        instance=instance,
        leg=leg_of,
        source=np.where(is_result, node, outer),
        target=np.where(is_result, outer, node),
        rate=rate,
        latency=plan.leg_latency[instance, leg_of],
        bandwidth=rate * _tuple_bytes(plan, pair, leg_of),
        **_runs(key, *(np.concatenate(column) for column in zip(*runs, strict=True))),
    )


def _shared_with(plan: Plan, leg: int) -> Ints:
    """(k,) the first instance of the same pair, node and route of a leg: usually itself."""
    i, mates = plan.instances, plan.node_mates
    first = np.arange(len(i))
    if len(mates) == 0:
        return first
    if plan.routes is None:
        starts = (np.diff(i.pair[mates]) != 0) | (np.diff(i.node[mates]) != 0)
        group = np.concatenate(([0], np.cumsum(starts)))
        first[mates] = mates[np.searchsorted(group, group)]
        return first
    offset, node = plan.routes.offset, plan.routes.node
    seen: dict[tuple[int, int, bytes], int] = {}
    for k in mates.tolist():
        route = node[offset[3 * k + leg] : offset[3 * k + leg + 1]].tobytes()
        first[k] = seen.setdefault((int(i.pair[k]), int(i.node[k]), route), k)
    return first


def _tuple_bytes(plan: Plan, pair: Ints, leg: Ints) -> Floats:
    size = plan.problem.sources.tuple_bytes
    if size is None:
        return np.full(len(pair), np.nan)
    left, right = size[plan.problem.matrix.left], size[plan.problem.matrix.right]
    return np.where(leg == 0, left[pair], np.where(leg == 1, right[pair], (left + right)[pair]))


def _runs(key: Ints, flow: Ints, begin: Ints, end: Ints) -> dict[str, Ints]:
    """Adjoining ranges of one flow as one run."""
    order = np.lexsort((begin, flow))
    flow, begin, end = flow[order], begin[order], end[order]
    joined = (np.diff(flow) == 0) & (begin[1:] == end[:-1])
    starts = np.concatenate(([True], ~joined))[: len(flow)]
    ends = np.append(~joined, True)[: len(flow)]
    offset = np.searchsorted(flow[starts], np.append(key, np.iinfo(np.int64).max))
    return {"offset": offset, "begin": begin[starts], "end": end[ends]}
