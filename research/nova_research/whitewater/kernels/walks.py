"""Walks through configurations: the best neighbour, annealing, and every placement of a plan."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nova_research.whitewater.kernels.columns import Floats, Given, Ints, State, compiled
from nova_research.whitewater.kernels.neighbours import (
    LOGICAL,
    PHYSICAL,
    apply,
    attempt,
    attempted,
    revert,
    settle,
    swap_slot,
    trial,
)
from nova_research.whitewater.kernels.throughput import refresh

# A gain below this is rounding.
GAIN = 1e-9


class Tabu(NamedTuple):
    """Moves that are tabu.

    Attributes:
        host: (h,) iteration until which each of ``given.host`` is.
        swap: (o, o) iteration until which each swap is, or (1, 1) without swaps.
    """

    host: Ints
    swap: Ints


class Kinds(NamedTuple):
    """Which moves are looked at.

    Attributes:
        physical: those of an operator to another node.
        logical: swaps of operators.
    """

    physical: bool
    logical: bool


@compiled
def write(move: Ints, kind: int, first: int, second: int, third: int) -> None:
    """Set the four numbers of a move."""
    move[0], move[1], move[2], move[3] = kind, first, second, third


@compiled
def copy(source: Ints, target: Ints) -> None:
    """Copy a column; compiles much faster than assigning to a slice."""
    for place in range(len(source)):
        target[place] = source[place]


@compiled
def keep(state: State, best: tuple[Ints, Ints]) -> None:
    """Copy what makes a configuration: child and node."""
    for o in range(len(state.node)):
        for i in range(state.child.shape[1]):
            best[0][o, i] = state.child[o, i]
        best[1][o] = state.node[o]


@compiled
def restore(state: State, best: tuple[Ints, Ints]) -> None:
    """Go back to what `keep` copied."""
    for o in range(len(state.node)):
        state.parent[o] = -1
    for o in range(len(state.node)):
        state.node[o] = best[1][o]
        for i in range(state.child.shape[1]):
            child = best[0][o, i]
            state.child[o, i] = child
            if child >= 0:
                state.parent[child] = o


@compiled
def best_neighbour(
    given: Given,
    state: State,
    kinds: Kinds,
    first: int,
    now: int,
    tabu: Tabu,
    aspiration: float,
    move: Ints,
) -> tuple[float, int]:
    """Examine the whole neighbourhood (section 5.3); the best move that is not tabu.

    Args:
        given: query and network.
        state: a refreshed configuration; the same again in the end.
        kinds: of the moves to look at.
        first: operator to begin with; of equal neighbours the first one seen is taken.
        now: iteration.
        tabu: moves that are tabu.
        aspiration: a tabu neighbour better than this is taken all the same.
        move: (4,) where the move goes.

    Returns:
        Its value, -inf if there is none, and how many neighbours were evaluated.
    """
    barred_host, barred_swap = tabu.host, tabu.swap
    count = len(given.kind)
    tried = np.zeros(4, np.int64)
    best, evaluated = -np.inf, 0
    for step in range(count):
        o = (first + step) % count
        if kinds.physical:
            for place in range(given.offset[o], given.offset[o + 1]):
                if given.host[place] == state.node[o]:
                    continue
                floor = max(best, aspiration) if barred_host[place] > now else best
                write(tried, PHYSICAL, o, given.host[place], -1)
                value = trial(given, state, tried, floor)
                evaluated += 1
                if value > floor:
                    best = value
                    copy(tried, move)
        if kinds.logical:
            for i in range(2):
                j = swap_slot(given, state, o, i)
                if j < 0:
                    continue
                bottom = state.child[o, i]
                barred = barred_swap[min(o, bottom), max(o, bottom)] > now
                floor = max(best, aspiration) if barred else best
                write(tried, LOGICAL, o, i, j)
                value = trial(given, state, tried, floor)
                evaluated += 1
                if value > floor:
                    best = value
                    copy(tried, move)
    return best, evaluated


@compiled
def make(given: Given, state: State, move: Ints, until: int, tabu: Tabu) -> float:
    """Make a move, and let undoing it be tabu until an iteration; the new value."""
    o = move[1]
    if move[0] == PHYSICAL:
        for place in range(given.offset[o], given.offset[o + 1]):
            if given.host[place] == state.node[o]:
                tabu.host[place] = until
    else:
        bottom = state.child[o, move[2]]
        tabu.swap[min(o, bottom), max(o, bottom)] = until
    apply(state, move)
    return refresh(given, state)


@compiled
def climb(
    given: Given,
    state: State,
    kinds: Kinds,
    first: Ints,
    now: int,
    length: int,
    improving: bool,
    tabu: Tabu,
    values: Floats,
    best: tuple[Ints, Ints],
) -> tuple[int, int]:
    """Make the best move that is not tabu, again and again (sections 5.1.1 and 5.1.2).

    Args:
        given: query and network.
        state: a refreshed configuration; where the walk ends, in the end.
        kinds: of the moves to make.
        first: (k,) operator to begin each look around with; as many moves are made.
        now: number of the first iteration.
        length: iterations for which a move must not be undone, unless that leads to a new best.
        improving: stop when no neighbour is better.
        tabu: moves that are tabu; changed.
        values: (2,) value of the configuration, and of the best one seen.
        best: child and node of the best one seen.

    Returns:
        Iterations made, fewer than k where nothing else was left, and neighbours evaluated.
    """
    move = np.zeros(4, np.int64)
    evaluated = 0
    for step in range(len(first)):
        value, looked = best_neighbour(
            given, state, kinds, first[step], now + step, tabu, values[1], move
        )
        evaluated += looked
        if value == -np.inf or (improving and not value > values[0] + GAIN * abs(values[0])):
            return step, evaluated
        until = now + step + 1 + length
        values[0] = make(given, state, move, until, tabu)
        if values[0] > values[1]:
            values[1] = values[0]
            keep(state, best)
    return len(first), evaluated


@compiled
def list_swaps(given: Given, state: State, swaps: Ints) -> int:
    """Write all valid swaps as rows of ``swaps`` (2 o, 3): top, i and j; how many there are."""
    found = 0
    for o in range(len(given.kind)):
        for i in range(2):
            j = swap_slot(given, state, o, i)
            if j >= 0:
                swaps[found, 0], swaps[found, 1], swaps[found, 2] = o, i, j
                found += 1
    return found


@compiled
def random_move(
    given: Given, state: State, alpha: float, draws: Floats, swaps: Ints, count: int, move: Ints
) -> bool:
    """m(C, alpha): a physical move with probability alpha, else a swap, each chosen at random.

    Args:
        given: query and network.
        state: a configuration.
        alpha: 0 makes swaps only, 1 physical moves only. In between, where one kind is not
            possible, it is the other.
        draws: (3,) uniform random numbers in [0, 1).
        swaps: (s, 3) swaps as `list_swaps` has them.
        count: how many there are.
        move: (4,) where the move goes.

    Returns:
        Whether there is one.
    """
    movable = len(given.movable)
    if count > 0 and alpha < 1.0 and (draws[0] >= alpha or movable == 0):
        row = int(draws[1] * count)
        write(move, LOGICAL, swaps[row, 0], swaps[row, 1], swaps[row, 2])
        return True
    if alpha == 0.0 or movable == 0:
        return False
    o = given.movable[int(draws[1] * movable)]
    begin, end = given.offset[o], given.offset[o + 1]
    place = begin + int(draws[2] * (end - begin - 1))
    # The last takes the place of the one it is at.
    if given.host[place] == state.node[o]:
        place = end - 1
    write(move, PHYSICAL, o, given.host[place], -1)
    return True


@compiled
def anneal(
    given: Given,
    state: State,
    alpha: float,
    temperatures: Floats,
    draws: Floats,
    best: tuple[Ints, Ints],
) -> tuple[float, int]:
    """Simulated annealing: random moves, worse ones ever more seldom (section 5.1.4).

    A neighbour with value v' is taken instead of v with probability exp((v' - v) / (t v)). Every
    temperature begins with the best configuration seen.

    Args:
        given: query and network.
        state: a refreshed configuration; the best one seen in the end.
        alpha: probability of a physical move.
        temperatures: (steps,) t of each step, relative to the value.
        draws: (steps, 4) uniform random numbers in [0, 1).
        best: arrays for child and node of the best configuration seen.

    Returns:
        Its value, and how many neighbours were evaluated.
    """
    value = refresh(given, state)
    highest = value
    keep(state, best)
    move = np.zeros(4, np.int64)
    swaps = np.zeros((2 * len(given.kind), 3), np.int64)
    count = list_swaps(given, state, swaps) if alpha < 1.0 else 0
    evaluated = 0
    for step in range(len(temperatures)):
        if step > 0 and temperatures[step] != temperatures[step - 1]:
            restore(state, best)
            # From scratch, which sheds rounding errors.
            value = highest = refresh(given, state)
            count = list_swaps(given, state, swaps) if alpha < 1.0 else 0
        if not random_move(given, state, alpha, draws[step], swaps, count, move):
            break
        # The random number is drawn first: then it is known what is good enough.
        floor = value
        if 0.0 < value < np.inf:
            floor = value * (1.0 + temperatures[step] * np.log(1.0 - draws[step, 3]))
        evaluated += 1
        noted, before = attempt(given, state, move)
        if attempted(given, state, move, noted, floor) < floor:
            revert(given, state, move, before)
            continue
        value = settle(given, state, move, noted)
        if move[0] == LOGICAL:
            count = list_swaps(given, state, swaps)
        if value > highest:
            highest = value
            keep(state, best)
    restore(state, best)
    return refresh(given, state), evaluated


@compiled
def best_placement(given: Given, state: State, node: Ints) -> tuple[float, int]:
    """Try every node for every operator, with the order of operators as it is.

    Args:
        given: query and network.
        state: a configuration; changed.
        node: (o,) where the best nodes go.

    Returns:
        The best value, and how many placements there are.
    """
    place = given.offset[given.movable].copy()
    for m in range(len(place)):
        state.node[given.movable[m]] = given.host[place[m]]
    best, evaluated = -np.inf, 0
    while True:
        value = refresh(given, state)
        evaluated += 1
        if value > best or evaluated == 1:
            best = value
            copy(state.node, node)
        m = 0
        while m < len(place):
            o = given.movable[m]
            place[m] += 1
            if place[m] < given.offset[o + 1]:
                state.node[o] = given.host[place[m]]
                break
            place[m] = given.offset[o]
            state.node[o] = given.host[place[m]]
            m += 1
        if m == len(place):
            return best, evaluated


@compiled
def fingerprint(parent: Ints, node: Ints) -> int:
    """A number that tells configurations of one query apart (FNV-1a of what feeds what, where)."""
    found = np.uint64(14695981039346656037)
    for o in range(len(parent)):
        for part in (parent[o] + 1, node[o]):
            found = (found ^ np.uint64(part)) * np.uint64(1099511628211)
    return int(found >> np.uint64(1))
