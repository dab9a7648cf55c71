"""One-step moves (section 5.3), and what they are worth without evaluating everything again.

A move is four numbers: ``(PHYSICAL, operator, node, -1)`` or ``(LOGICAL, top, i, j)``, which swaps
``top`` with its input ``i``, an operator whose own input ``j`` becomes top's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova_research.whitewater.kernels.columns import (
    FILTER,
    JOIN,
    PROJECT,
    SINK,
    SOURCE,
    Floats,
    Given,
    Ints,
    State,
    compiled,
    inlined,
)
from nova_research.whitewater.kernels.throughput import (
    arrive,
    derive,
    late,
    link_of,
    rank,
    refresh,
    solve,
)

PHYSICAL, LOGICAL = 0, 1
# What is left of a coefficient after subtracting all of it.
RESIDUE = 1e-13
# Numba compiles a kernel once more for every argument that is a literal.
ZERO: Any = np.int64(0)


@inlined
def swap_slot(given: Given, state: State, top: int, i: int) -> int:
    """Which input of top's input i becomes top's when they swap (Table 6); -1 if they must not.

    A filter or project goes to the side of a join that has its columns; a project only where it
    drops nothing of the other side and nothing the join compares.
    """
    bottom = state.child[top, i]
    if bottom < 0:
        return -1
    upper, lower = given.kind[top], given.kind[bottom]
    if upper == SINK or lower == SOURCE:
        return -1
    mine, its = given.columns[top], given.columns[bottom]
    if lower == JOIN:
        for j in range(2):
            side = state.output[state.child[bottom, j]]
            other = state.output[state.child[bottom, 1 - j]]
            if upper == FILTER:
                fits = mine & ~side == 0
            elif upper == PROJECT:
                keys = given.keys[bottom, 0] | given.keys[bottom, 1]
                fits = (other | keys & side) & ~mine == 0
            else:
                fits = (given.keys[top, 0] | given.keys[top, 1]) & side != 0
            if fits:
                return j
        return -1
    if upper == JOIN:
        return -1
    if lower == FILTER:
        return 0 if upper == FILTER or its & ~mine == 0 else -1
    return 0 if mine & ~its == 0 else -1


@compiled
def rotate(state: State, top: int, i: int, j: int) -> None:
    """Swap top with its input i, whose input j becomes top's; the same with j, i undoes it."""
    bottom, above = state.child[top, i], state.parent[top]
    below = state.child[bottom, j]
    if above >= 0:
        state.child[above, 0 if state.child[above, 0] == top else 1] = bottom
    state.child[bottom, j], state.child[top, i] = top, below
    state.parent[bottom], state.parent[top], state.parent[below] = above, bottom, top


@compiled
def apply(state: State, move: Ints) -> None:
    """Make a move; what follows from it is left to `throughput.refresh`."""
    if move[0] == PHYSICAL:
        state.node[move[1]] = move[2]
    else:
        rotate(state, move[1], move[2], move[3])


@compiled
def charge(
    touched: Ints, change: Floats, resource: int, degree: int, amount: float, count: int
) -> int:
    """Note that a resource is charged more; resources noted so far in and out."""
    if resource < 0:
        return count
    for place in range(count):
        if touched[place] == resource:
            change[place, degree] += amount
            return count
    touched[count] = resource
    for k in range(change.shape[1]):
        change[count, k] = 0.0
    change[count, degree] = amount
    return count + 1


@compiled
def charge_work(given: Given, state: State, o: int, sign: float, count: int) -> int:
    """Note an operator's work and memory."""
    processor, memory = given.processor[state.node[o]], given.memory[state.node[o]]
    touched, change = state.touched, state.change
    count = charge(touched, change, memory, ZERO, sign * given.fixed_memory[o], count)
    for i in range(state.child.shape[1]):
        child = state.child[o, i]
        if child >= 0:
            rate, degree = sign * state.coefficient[child] * given.taken[o, i], state.degree[child]
            count = charge(touched, change, processor, degree, given.cost[o] * rate, count)
            count = charge(touched, change, memory, degree, given.window_memory[o] * rate, count)
    return count


@compiled
def charge_output(given: Given, state: State, o: int, sign: float, count: int) -> int:
    """Note what an operator sends to other nodes."""
    if state.parent[o] >= 0:
        count = charge_reader(given, state, o, state.parent[o], sign, count)
    for place in range(given.reader_at[o], given.reader_at[o + 1]):
        count = charge_reader(given, state, o, given.reader[place], sign, count)
    return count


@compiled
def charge_reader(given: Given, state: State, o: int, above: int, sign: float, count: int) -> int:
    """Note what an operator sends to one that receives its output, by whatever inputs."""
    for i in range(state.child.shape[1]):
        if state.child[above, i] == o:
            count = charge_input(given, state, above, i, sign, count)
    return count


@compiled
def charge_input(given: Given, state: State, o: int, i: int, sign: float, count: int) -> int:
    """Note what an operator receives by one input from another node."""
    child = state.child[o, i]
    link = link_of(
        given.link, given.link_resource, len(given.speed), state.node[child], state.node[o]
    )
    amount = sign * given.tuple_bytes * state.coefficient[child] * given.taken[o, i]
    return charge(state.touched, state.change, link, state.degree[child], amount, count)


@compiled
def charge_placed(given: Given, state: State, o: int, sign: float, count: int) -> int:
    """Note all that depends on where an operator runs."""
    count = charge_work(given, state, o, sign, count)
    count = charge_output(given, state, o, sign, count)
    for i in range(state.child.shape[1]):
        if state.child[o, i] >= 0:
            count = charge_input(given, state, o, i, sign, count)
    return count


@compiled
def charge_pair(
    given: Given, state: State, top: int, bottom: int, below: int, sign: float, count: int
) -> int:
    """Note all that depends on the order of two operators, one of which receives from ``below``."""
    for o in (top, bottom):
        count = charge_work(given, state, o, sign, count)
        count = charge_output(given, state, o, sign, count)
    return charge_output(given, state, below, sign, count)


@inlined
def changed_row(state: State, place: int, x: float) -> float:
    """Coefficients of a resource with its change, in ``state.row``; their polynomial at x."""
    resource, row = state.touched[place], state.row
    value = 0.0
    for k in range(len(row) - 1, -1, -1):
        row[k] = state.load[resource, k] + state.change[place, k]
        if row[k] < RESIDUE * state.load[resource, k]:
            row[k] = 0.0
        value = value * x + row[k]
    return value


@compiled
def tightest(given: Given, state: State, count: int, floor: float) -> float:
    """The least of what resources allow, with the changes noted; -inf if below the floor."""
    value = np.inf
    for place in range(len(state.ranked)):
        resource = state.ranked[place]
        if resource < 0:
            break
        alone = True
        for other in range(count):
            alone = alone and state.touched[other] != resource
        if alone:
            value = state.most[resource]
            break
    if value < floor:
        return -np.inf
    # Where the floor is too much already, nothing need be solved.
    if floor > 0.0:
        for place in range(count):
            limit = given.limit[state.touched[place]]
            if changed_row(state, place, floor) > limit * (1.0 + 1e-12):
                return -np.inf
    for place in range(count):
        limit = given.limit[state.touched[place]]
        # Nor where another resource allows less.
        if changed_row(state, place, value) <= limit and 0.0 < value < np.inf:
            continue
        value = min(value, solve(state.row, limit))
        if value < floor:
            return -np.inf
    return float(value)


@compiled
def settle(given: Given, state: State, move: Ints, count: int) -> float:
    """Take over what `attempt` noted of a move; the new value.

    Rounding errors add up until the next `throughput.refresh`.
    """
    if move[0] == LOGICAL and state.parent[state.parent[move[1]]] < 0:
        return refresh(given, state)  # state.order begins with other roots now
    for place in range(count):
        resource = state.touched[place]
        changed_row(state, place, 0.0)
        for k in range(len(state.row)):
            state.load[resource, k] = state.solved[resource, k] = state.row[k]
        state.most[resource] = solve(state.row, given.limit[resource])
    rank(state)
    value = np.inf if state.ranked[0] < 0 else state.most[state.ranked[0]]
    if given.latency_limit < np.inf:
        o = move[1]
        while o >= 0:
            state.arrival[o] = arrive(given, state, o, -1, 0.0)
            o = state.parent[o]
        latest = 0.0
        for o in state.order:
            if state.parent[o] >= 0:
                break
            latest = max(latest, state.arrival[o])
        value = min(value, late(latest, given.latency_limit))
    return float(value)


@compiled
def lateness(given: Given, state: State, o: int) -> float:
    """What latency allows once an operator, and all above it, work at another time."""
    changed, at = -1, 0.0
    while o >= 0:
        at = arrive(given, state, o, changed, at)
        changed, o = o, state.parent[o]
    for o in state.order:
        if state.parent[o] >= 0:
            break
        if o != changed:
            at = max(at, state.arrival[o])
    return late(at, given.latency_limit)


@compiled
def attempt(given: Given, state: State, move: Ints) -> tuple[int, int]:
    """Make a move, and note what it changes.

    Returns:
        Resources noted, and the node that a physical move left.
    """
    o, before = move[1], state.node[move[1]]
    if move[0] == PHYSICAL:
        count = charge_placed(given, state, o, -1.0, ZERO)
        state.node[o] = move[2]
        count = charge_placed(given, state, o, 1.0, count)
    else:
        bottom = state.child[o, move[2]]
        below = state.child[bottom, move[3]]
        count = charge_pair(given, state, o, bottom, below, -1.0, ZERO)
        rotate(state, o, move[2], move[3])
        derive(given, state, o)
        derive(given, state, bottom)
        count = charge_pair(given, state, o, bottom, below, 1.0, count)
    return count, before


@compiled
def revert(given: Given, state: State, move: Ints, before: int) -> None:
    """Undo what `attempt` made."""
    o = move[1]
    if move[0] == PHYSICAL:
        state.node[o] = before
    else:
        bottom = state.parent[o]
        rotate(state, bottom, move[3], move[2])
        derive(given, state, bottom)
        derive(given, state, o)


@compiled
def attempted(given: Given, state: State, move: Ints, count: int, floor: float) -> float:
    """Value of the configuration that `attempt` made; -inf if below the floor."""
    value = tightest(given, state, count, floor)
    if given.latency_limit < np.inf and value >= floor:
        value = min(value, lateness(given, state, move[1]))
    return value if value >= floor else -np.inf


@compiled
def trial(given: Given, state: State, move: Ints, floor: float) -> float:
    """A neighbour's value as `throughput.refresh` would find it, from the little that differs.

    Args:
        given: query and network.
        state: a refreshed configuration; the same again in the end.
        move: a valid move.
        floor: values below it are of no interest and told as -inf; -inf tells all.
    """
    count, before = attempt(given, state, move)
    value = attempted(given, state, move, count, floor)
    revert(given, state, move, before)
    return value
