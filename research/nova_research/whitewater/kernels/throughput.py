"""What a configuration is worth: the greatest factor x of the profile that all resources allow."""

from __future__ import annotations

import numpy as np

from nova_research.whitewater.kernels.columns import (
    AGGREGATE,
    PROJECT,
    SOURCE,
    Floats,
    Given,
    Ints,
    State,
    compiled,
    inlined,
)

PRECISION = 1e-13


@inlined
def derive(given: Given, state: State, o: int) -> None:
    """Output rate and columns of an operator from those of its inputs (Table 3)."""
    coefficient, degree, output = given.factor[o], 0, np.int64(0)
    if given.kind[o] == SOURCE:
        degree, output = 1, given.columns[o]
    for i in range(state.child.shape[1]):
        child = state.child[o, i]
        if child >= 0:
            coefficient *= state.coefficient[child] * given.taken[o, i]
            degree += state.degree[child]
            output |= state.output[child]
    if given.kind[o] == PROJECT:
        output &= given.columns[o]
    if given.kind[o] == AGGREGATE:
        coefficient, degree = given.factor[o], 0
    state.coefficient[o], state.degree[o], state.output[o] = coefficient, degree, output


@inlined
def arrive(given: Given, state: State, o: int, changed: int, at: float) -> float:
    """When an operator has processed the latest of its inputs, ms (section 4.4).

    Args:
        given: query and network.
        state: a configuration.
        o: the operator.
        changed: an input whose arrival is ``at`` instead of what the state says; -1 for none.
        at: ms.
    """
    node, cost = state.node[o], given.cost[o]
    latest = 0.0
    for i in range(state.child.shape[1]):
        child = state.child[o, i]
        if child >= 0:
            arrival = at if child == changed else state.arrival[child]
            latest = max(latest, arrival + given.latency[state.node[child], node])
    if cost == 0.0:
        return latest
    return latest + 1000.0 * cost / given.speed[node] if given.speed[node] > 0.0 else np.inf


@compiled
def link_of(link: Ints, link_resource: Ints, nodes: int, a: int, b: int) -> int:
    """The resource that a link between two nodes is; -1 for one without a budget."""
    if a == b or len(link) == 0:
        return -1
    # Bisection by hand compiles ten times as fast as numpy's.
    key = a * nodes + b
    low, high = 0, len(link) - 1
    while low < high:
        middle = (low + high) // 2
        if link[middle] < key:
            low = middle + 1
        else:
            high = middle
    return int(link_resource[low]) if link[low] == key else -1


@compiled
def solve(row: Floats, limit: float) -> float:
    """The greatest x at which a polynomial without negative coefficients stays within a limit.

    Newton's method from above, where each step comes nearer and none goes too far.

    Returns:
        x; inf where nothing grows; minus the relative excess where 0 is too much already.
    """
    room = limit - row[0]
    if room < 0.0:
        return float(room / max(limit, 1.0))
    x, terms = np.inf, 0
    for k in range(1, len(row)):
        if row[k] > 0.0:
            x = min(x, (room / row[k]) ** (1.0 / k))
            terms += 1
    if terms < 2 or x == 0.0:
        return float(x)
    for _ in range(200):
        value, slope = 0.0, 0.0
        for k in range(len(row) - 1, 0, -1):
            slope = slope * x + k * row[k]
            value = value * x + row[k]
        excess = value * x - room
        if excess <= PRECISION * room:
            break
        x -= excess / slope
    return float(x)


@inlined
def charge_operator(given: Given, state: State, o: int) -> None:
    """Add an operator's work and memory to its node's (Tables 3 and 4)."""
    processor = given.processor[state.node[o]]
    memory = given.memory[state.node[o]]
    if memory >= 0:
        state.load[memory, 0] += given.fixed_memory[o]
    for i in range(state.child.shape[1]):
        child = state.child[o, i]
        if child >= 0:
            rate, degree = state.coefficient[child] * given.taken[o, i], state.degree[child]
            if processor >= 0:
                state.load[processor, degree] += given.cost[o] * rate
            if memory >= 0:
                state.load[memory, degree] += given.window_memory[o] * rate


@compiled
def refresh(given: Given, state: State) -> float:
    """Everything that follows from a configuration, from scratch; its value.

    Returns:
        Q^p (Definition 2), or, where no rate at all is possible, minus a measure of how far from it
        the configuration is.
    """
    count = len(given.kind)
    # Roots first, each operator before its inputs; read backwards it is the other way round.
    filled = 0
    for o in range(count):
        state.waiting[o] = 0
        if state.parent[o] < 0:
            state.order[filled] = o
            filled += 1
    for o in range(count):
        for i in range(state.child.shape[1]):
            if state.child[o, i] >= 0:
                state.waiting[state.child[o, i]] += 1
    done = 0
    while done < filled:
        for i in range(state.child.shape[1]):
            child = state.child[state.order[done], i]
            if child >= 0:
                state.waiting[child] -= 1
                if state.waiting[child] == 0:
                    state.order[filled] = child
                    filled += 1
        done += 1
    state.load.fill(0.0)
    timed = given.latency_limit < np.inf
    latest = 0.0
    for place in range(count - 1, -1, -1):
        o = state.order[place]
        derive(given, state, o)
        charge_operator(given, state, o)
        for i in range(state.child.shape[1]):
            child = state.child[o, i]
            if child >= 0:
                link = link_of(
                    given.link, given.link_resource, len(given.speed), state.node[child],
                    state.node[o],
                )  # fmt: skip
                if link >= 0:
                    state.load[link, state.degree[child]] += (
                        given.tuple_bytes * state.coefficient[child] * given.taken[o, i]
                    )
        if timed:
            state.arrival[o] = arrive(given, state, o, -1, 0.0)
            latest = max(latest, state.arrival[o])
    for resource in range(len(given.limit)):
        # A move changes few of them.
        changed = False
        for k in range(state.load.shape[1]):
            if state.load[resource, k] != state.solved[resource, k]:
                changed = True
                state.solved[resource, k] = state.load[resource, k]
        if changed:
            state.most[resource] = solve(state.load[resource], given.limit[resource])
    rank(state)
    value = np.inf if state.ranked[0] < 0 else state.most[state.ranked[0]]
    if timed:
        value = min(value, late(latest, given.latency_limit))
    return float(value)


@compiled
def rank(state: State) -> None:
    """Find the tightest resources, in order."""
    ranked = state.ranked
    ranked.fill(-1)
    for resource in range(len(state.most)):
        most = state.most[resource]
        place = len(ranked)
        while place > 0 and (ranked[place - 1] < 0 or state.most[ranked[place - 1]] > most):
            place -= 1
            if place < len(ranked) - 1:
                ranked[place + 1] = ranked[place]
        if place < len(ranked):
            ranked[place] = resource


@compiled
def late(latest: float, limit: float) -> float:
    """What latency allows: anything within its limit, else minus the relative excess."""
    return np.inf if latest <= limit * (1.0 + 1e-12) else -(latest / limit - 1.0)
