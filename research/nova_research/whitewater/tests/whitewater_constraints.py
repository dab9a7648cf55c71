"""The constraints of section 4, as the text has them: what a configuration needs at given rates.

What the kernels that searches use must agree with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nova_core.model import Links
from nova_research.whitewater.query import (
    Inputs,
    Network,
    ProfiledOperator,
    ProfiledQuery,
    bottom_up,
)

TOLERANCE = 1e-9


@dataclass(frozen=True)
class Need:
    """What one resource, or latency, is asked for.

    Attributes:
        constraint: ``processing``, ``memory``, ``bandwidth`` or ``latency``.
        where: node, ``from->to``, or the root operator of the path.
        amount: instructions/s, bytes, bytes/s or ms.
        limit: what there is.
    """

    constraint: str
    where: str
    amount: float
    limit: float

    @property
    def kept(self) -> bool:
        """Whether it is within its limit, up to rounding."""
        return self.amount <= self.limit * (1 + TOLERANCE)


def output_rates(query: ProfiledQuery, inputs: Inputs, scale: float = 1.0) -> list[float]:
    """Tuples/s of every operator's output (Table 3) with inputs at ``scale`` times the profile."""
    rates = [0.0] * len(query)
    for number in bottom_up(inputs):
        one = query[number]
        received = taken(query, number, inputs, rates)
        if one.kind == "source":
            rates[number] = one.rate * scale
        elif one.kind == "aggregate":
            rates[number] = one.rate
        elif one.kind == "filter":
            rates[number] = received[0] * one.selectivity
        elif one.kind == "join":
            rates[number] = 2 * one.window * received[0] * received[1] * one.selectivity
        else:
            rates[number] = received[0]
    return rates


def taken(
    query: ProfiledQuery, operator: int, inputs: Inputs, rates: Sequence[float]
) -> list[float]:
    """Tuples/s that an operator receives by each input."""
    shares = query[operator].takes or (1.0,) * len(inputs[operator])
    return [rates[child] * share for child, share in zip(inputs[operator], shares, strict=True)]


def shared_query(seed: int) -> tuple[ProfiledQuery, Network]:
    """An aggregate of three sources and a join of two, each read by several, on five nodes.

    Not the text's: trees have one reader each, and no aggregates.
    """
    random = np.random.default_rng(seed)
    anywhere = (0, 1, 2, 3)
    sources = [
        ProfiledOperator(f"in{i}", "source", hosts=(int(random.integers(5)),), rate=rate)
        for i, rate in enumerate(random.uniform(1, 20, 5).tolist())
    ]
    query = ProfiledQuery(
        [
            *sources,
            ProfiledOperator("sum", "aggregate", (0, 1, 2), anywhere, rate=6.0, cost=1.0),
            ProfiledOperator("ab", "join", (3, 4), anywhere, 1.0, 0.02, 1.0, 1.0),
            ProfiledOperator(
                "both", "join", (5, 6), anywhere, 1.0, 0.1, 1.0, 1.0, takes=(0.5, 1.0)
            ),
            # Reads one twice, once through a filter.
            ProfiledOperator("self", "join", (6, 6), anywhere, 1.0, 0.05, 1.0, 1.0, takes=(1, 0.3)),
            ProfiledOperator("end", "sink", (7,), (4,)),
            ProfiledOperator("other end", "sink", (8,), (4,)),
            ProfiledOperator("third end", "sink", (5,), (4,), takes=(0.25,)),
        ]
    )
    pairs = np.array([(a, b) for a in range(5) for b in range(5) if a != b])
    budget = np.where(random.random(len(pairs)) < 0.5, np.inf, random.uniform(5, 60, len(pairs)))
    links = Links(pairs[:, 0], pairs[:, 1], budget)
    return query, Network(random.uniform(20, 120, 5), links=links)


def memory_need(query: ProfiledQuery, operator: int, received: Sequence[float]) -> float:
    """Bytes of an operator that receives so many tuples/s (Table 4)."""
    one = query[operator]
    if one.kind == "join":
        return sum(one.window * rate * query.tuple_bytes + query.hash_bytes for rate in received)
    return query.tuple_bytes if one.kind in ("filter", "project") else 0.0


def processing_time(cost: float, speed: float) -> float:
    """How many ms a node of some instructions/s takes for a tuple of some instructions."""
    if cost == 0:
        return 0.0
    return 1000 * cost / speed if speed > 0 else math.inf


def needs(
    query: ProfiledQuery, network: Network, inputs: Inputs, nodes: Sequence[int], scale: float
) -> list[Need]:
    """Everything section 4 limits, when inputs come at ``scale`` times the profile."""
    rates = output_rates(query, inputs, scale)
    work = np.zeros(len(network))
    memory = np.zeros(len(network))
    traffic: dict[tuple[int, int], float] = {}
    arrival = [0.0] * len(query)
    for number in bottom_up(inputs):
        one, node = query[number], nodes[number]
        received = taken(query, number, inputs, rates)
        work[node] += one.cost * sum(received)
        memory[node] += memory_need(query, number, received)
        for child, rate in zip(inputs[number], received, strict=True):
            start = nodes[child]
            hop = 0.0 if network.latency is None else float(network.latency[start, node])
            arrival[number] = max(arrival[number], arrival[child] + hop)
            if start != node:
                sent = rate * query.tuple_bytes
                traffic[start, node] = traffic.get((start, node), 0.0) + sent
        arrival[number] += processing_time(one.cost, float(network.speed[node]))
    found = []
    for node in range(len(network)):
        found.append(Need("processing", str(node), work[node], float(network.speed[node])))
        if network.memory is not None:
            found.append(Need("memory", str(node), memory[node], float(network.memory[node])))
    links = network.links
    for a, b, budget in zip(links.source, links.target, links.budget, strict=True):
        sent = traffic.get((int(a), int(b)), 0.0)
        found.append(Need("bandwidth", f"{a}->{b}", sent, float(budget)))
    below = {child for children in inputs for child in children}
    roots = [o for o in range(len(query)) if o not in below]
    limit = query.latency_limit
    return [*found, *(Need("latency", query[o].id, arrival[o], limit) for o in roots)]
