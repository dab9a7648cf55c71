"""Queries, networks and configurations as the columns kernels work on, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nova_core.model.problem import Floats, Ints
from nova_research.whitewater.kernels import columns
from nova_research.whitewater.kernels.columns import Given, State
from nova_research.whitewater.query import (
    Inputs,
    Network,
    ProfiledOperator,
    ProfiledQuery,
    bottom_up,
)

KINDS = {
    "source": columns.SOURCE,
    "filter": columns.FILTER,
    "project": columns.PROJECT,
    "join": columns.JOIN,
    "sink": columns.SINK,
    "aggregate": columns.AGGREGATE,
}


def given_columns(query: ProfiledQuery, network: Network) -> Given:
    """The columns that no move changes.

    Raises:
        ProblemError: when an operator may run on an unknown node.
    """
    network.require_hosts(query)
    operators = query.operators
    names = [c for one in operators if one.kind == "source" for c in one.columns]
    bit = {name: 1 << number for number, name in enumerate(names)}
    keys = np.zeros((len(query), 2), np.int64)
    for number, one in enumerate(operators):
        if one.kind == "join" and one.columns:
            keys[number] = [bit[name] for name in one.columns]
    hosts = [one.hosts for one in operators]
    taken = np.ones((len(query), _most_inputs(query.inputs)))
    readers: list[list[int]] = [[] for _ in operators]
    for number, one in enumerate(operators):
        taken[number, : len(one.takes)] = one.takes
        for producer in one.inputs:
            if number not in readers[producer]:
                readers[producer].append(number)
    more = [each[:-1] for each in readers]
    budgeted = np.flatnonzero(np.isfinite(network.links.budget))
    link = network.links.source[budgeted] * len(network) + network.links.target[budgeted]
    sort = np.argsort(link)
    processor, memory, limit = _resources(network)
    timed = np.isfinite(query.latency_limit) and network.latency is not None
    return Given(
        kind=np.array([KINDS[one.kind] for one in operators], np.int64),
        factor=np.array([_factor(one) for one in operators]),
        taken=taken,
        reader_at=np.cumsum([0, *map(len, more)]).astype(np.int64),
        reader=np.array([reader for each in more for reader in each], np.int64),
        cost=np.array([float(one.cost) for one in operators]),
        fixed_memory=np.array([_fixed_memory(query, one) for one in operators]),
        window_memory=np.array([one.window * query.tuple_bytes for one in operators]),
        columns=np.array([sum(bit[name] for name in set(one.columns)) for one in operators]),
        keys=keys,
        movable=np.array([o for o, nodes in enumerate(hosts) if len(nodes) > 1], np.int64),
        offset=np.cumsum([0, *map(len, hosts)]).astype(np.int64),
        host=np.array([node for nodes in hosts for node in nodes], np.int64),
        speed=np.asarray(network.speed, np.float64),
        processor=processor,
        memory=memory,
        link=link[sort].astype(np.int64),
        link_resource=len(limit) + np.arange(len(link)),
        limit=np.concatenate([limit, network.links.budget[budgeted][sort]]),
        tuple_bytes=float(query.tuple_bytes),
        latency=np.asarray(network.latency, np.float64)
        if timed
        else np.zeros((len(network), len(network)) if np.isfinite(query.latency_limit) else (1, 1)),
        latency_limit=float(query.latency_limit),
    )


def _resources(network: Network) -> tuple[Ints, Ints, Floats]:
    """Processors and memories that have a limit: (n,) and (n,) numbers, -1 for none; limits."""
    numbers: list[Ints] = []
    limits: list[Floats] = []
    used = 0
    for values in (network.speed, network.memory):
        resource = np.full(len(network), -1)
        if values is not None:
            limited = np.flatnonzero(np.isfinite(values))
            resource[limited] = used + np.arange(len(limited))
            limits.append(np.asarray(values, np.float64)[limited])
            used += len(limited)
        numbers.append(resource)
    return numbers[0], numbers[1], np.concatenate(limits)


def _factor(one: ProfiledOperator) -> float:
    """What the product of input rates is multiplied by to give the output rate (Table 3)."""
    if one.kind in ("source", "aggregate"):
        return float(one.rate)
    if one.kind == "join":
        return 2.0 * one.window * one.selectivity
    return float(one.selectivity) if one.kind == "filter" else 1.0


def _fixed_memory(query: ProfiledQuery, one: ProfiledOperator) -> float:
    if one.kind == "join":
        return 2.0 * query.hash_bytes
    return float(query.tuple_bytes) if one.kind in ("filter", "project") else 0.0


def _most_inputs(inputs: Inputs) -> int:
    """Of any operator; two at least."""
    return max(2, *map(len, inputs))


def state_columns(given: Given, inputs: Inputs, nodes: Sequence[int] | Ints) -> State:
    """A configuration; `kernels.throughput.refresh` fills in what follows from it."""
    count, resources = len(given.kind), len(given.limit)
    width = _most_inputs(inputs)
    child, parent = np.full((count, width), -1), np.full(count, -1)
    for o, producers in enumerate(inputs):
        child[o, : len(producers)] = producers
        parent[list(producers)] = o
    sources = np.zeros(count, np.int64)
    for o in bottom_up(inputs):
        sources[o] = given.kind[o] == columns.SOURCE
        if given.kind[o] != columns.AGGREGATE:
            sources[o] += sources[list(inputs[o])].sum()
    degrees = int(sources.max()) + 1
    # A move changes two processors, two memories, and links to and from its operators before and
    # after: those of three in a swap, of one with all its inputs and readers otherwise.
    readers = 1 + int(np.diff(given.reader_at).max())
    touched = 4 + 2 * max(3, width + readers)
    return State(
        child=child,
        parent=parent,
        waiting=np.zeros(count, np.int64),
        node=np.array(nodes, np.int64),
        coefficient=np.zeros(count),
        degree=np.zeros(count, np.int64),
        output=np.zeros(count, np.int64),
        arrival=np.zeros(count),
        order=np.zeros(count, np.int64),
        load=np.zeros((resources, degrees)),
        solved=np.full((resources, degrees), np.nan),
        most=np.zeros(resources),
        ranked=np.zeros(touched + 1, np.int64),
        touched=np.zeros(touched, np.int64),
        change=np.zeros((touched, degrees)),
        row=np.zeros(degrees),
    )


def inputs_of(child: Ints) -> tuple[tuple[int, ...], ...]:
    """What every operator receives from."""
    return tuple(tuple(one for one in row if one >= 0) for row in child.tolist())
