"""WhiteWater's moves: what a swap means, what may be swapped, and what a neighbour is worth."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from whitewater_constraints import shared_query

from nova_research.whitewater.kernels import neighbours, throughput, walks
from nova_research.whitewater.kernels.columns import Given, State
from nova_research.whitewater.query import Network, ProfiledOperator, ProfiledQuery
from nova_research.whitewater.random_queries import SMALL, QueryShape, random_query
from nova_research.whitewater.search import random_nodes
from nova_research.whitewater.tables import given_columns, inputs_of, state_columns

SHAPES = (SMALL, QueryShape((1, 4), 12, 4, 3))
Row = frozenset[tuple[str, int]]
FEW = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))


def built(query: ProfiledQuery, network: Network, seed: int) -> tuple[Given, State]:
    given = given_columns(query, network)
    state = state_columns(given, query.inputs, random_nodes(query, seed))
    throughput.refresh(given, state)
    return given, state


def moves(given: Given, state: State) -> Iterator[np.ndarray]:
    """All moves from a configuration."""
    for o in range(len(given.kind)):
        for host in given.host[given.offset[o] : given.offset[o + 1]]:
            if host != state.node[o]:
                yield np.array([neighbours.PHYSICAL, o, host, -1])
        for i in range(2):
            j = neighbours.swap_slot(given, state, o, i)
            if j >= 0:
                yield np.array([neighbours.LOGICAL, o, i, j])


def walked(given: Given, state: State, steps: int, random: np.random.Generator) -> None:
    """Go some random steps."""
    move = np.zeros(4, np.int64)
    swaps = np.zeros((2 * len(given.kind), 3), np.int64)
    for _ in range(steps):
        count = walks.list_swaps(given, state, swaps)
        if walks.random_move(given, state, 0.4, random.random(3), swaps, count, move):
            neighbours.apply(state, move)
            throughput.refresh(given, state)


def result(
    query: ProfiledQuery,
    inputs: Sequence[tuple[int, ...]],
    tables: dict[int, list[Row]],
    operator: int,
) -> list[Row]:
    """What a plan gives on tables of rows, evaluated as relational algebra has it."""
    one = query[operator]
    if one.kind == "source":
        return tables[operator]
    below = [result(query, inputs, tables, child) for child in inputs[operator]]
    if one.kind == "filter":
        return [row for row in below[0] if dict(row)[one.columns[0]] % 3 != 0]
    if one.kind == "project":
        return [frozenset(cell for cell in row if cell[0] in one.columns) for row in below[0]]
    return [
        left | right
        for left, right in itertools.product(*below)
        if (cells := dict(left | right))[one.columns[0]] == cells[one.columns[1]]
    ]


@FEW
@given(seed=st.integers(0, 10**6), shape=st.sampled_from(SHAPES), steps=st.integers(1, 12))
def test_no_move_changes_what_a_query_means(seed: int, shape: QueryShape, steps: int) -> None:
    query, network = random_query(shape, seed)
    random = np.random.default_rng(seed)
    tables = {
        number: [
            frozenset((column, int(random.integers(4))) for column in one.columns) for _ in range(5)
        ]
        for number, one in enumerate(query.operators)
        if one.kind == "source"
    }
    given, state = built(query, network, seed)
    wanted = result(query, query.inputs, tables, len(query) - 1)
    walked(given, state, steps, random)
    inputs = inputs_of(state.child)
    roots = np.flatnonzero(state.parent < 0)
    assert len(roots) == 1
    found = result(query, inputs, tables, int(roots[0]))
    assert sorted(map(sorted, found)) == sorted(map(sorted, wanted))
    hosts = zip(query.operators, state.node.tolist(), strict=True)
    assert all(node in one.hosts for one, node in hosts)


@FEW
@given(seed=st.integers(0, 10**6), shape=st.sampled_from(SHAPES), steps=st.integers(0, 8))
def test_a_neighbours_value_is_that_from_scratch(seed: int, shape: QueryShape, steps: int) -> None:
    query, network = random_query(shape, seed)
    given, state = built(query, network, seed)
    walked(given, state, steps, np.random.default_rng(seed))
    before = [column.copy() for column in (state.child, state.parent, state.node)]
    value = throughput.refresh(given, state)
    for move in moves(given, state):
        told = neighbours.trial(given, state, move, -np.inf)
        # What is of no interest is told as such; what is, exactly.
        assert neighbours.trial(given, state, move, told + 1e-3 * abs(told)) == -np.inf
        assert neighbours.trial(given, state, move, told - 1e-3 * abs(told)) == pytest.approx(told)
        assert all(
            np.array_equal(*pair)
            for pair in zip(before, (state.child, state.parent, state.node), strict=True)
        )
        inputs, nodes = inputs_of(state.child), state.node.copy()
        other = state_columns(given, inputs, nodes)
        other.child[:], other.parent[:] = state.child, state.parent
        neighbours.apply(other, move)
        assert told == pytest.approx(throughput.refresh(given, other), rel=1e-9)
    assert throughput.refresh(given, state) == value


@FEW
@given(seed=st.integers(0, 10**6), shape=st.sampled_from(SHAPES))
def test_settled_moves_come_to_what_a_configuration_is_from_scratch(
    seed: int, shape: QueryShape
) -> None:
    query, network = random_query(shape, seed)
    given, state = built(query, network, seed)
    random = np.random.default_rng(seed)
    for _ in range(12):
        every = list(moves(given, state))
        if not every:
            return
        move = every[random.integers(len(every))]
        noted, _ = neighbours.attempt(given, state, move)
        value = neighbours.settle(given, state, move, noted)
        other = state_columns(given, inputs_of(state.child), state.node)
        other.child[:], other.parent[:] = state.child, state.parent
        assert value == pytest.approx(throughput.refresh(given, other), rel=1e-9)
        assert state.load == pytest.approx(other.load, rel=1e-9, abs=1e-6)
        assert state.arrival == pytest.approx(other.arrival)


@FEW
@given(seed=st.integers(0, 10**6))
def test_moves_in_queries_that_are_no_trees(seed: int) -> None:
    query, network = shared_query(seed)
    given, state = built(query, network, seed)
    random = np.random.default_rng(seed)
    for _ in range(12):
        every = [move for move in moves(given, state) if move[0] == neighbours.PHYSICAL]
        for move in every:
            told = neighbours.trial(given, state, move, -np.inf)
            other = state_columns(given, query.inputs, state.node)
            neighbours.apply(other, move)
            assert told == pytest.approx(throughput.refresh(given, other), rel=1e-9)
        move = every[random.integers(len(every))]
        noted, _ = neighbours.attempt(given, state, move)
        assert noted <= len(state.touched)
        neighbours.settle(given, state, move, noted)
        other = state_columns(given, query.inputs, state.node)
        throughput.refresh(given, other)
        assert state.load == pytest.approx(other.load, rel=1e-9, abs=1e-6)


@FEW
@given(seed=st.integers(0, 10**6))
def test_a_swap_can_be_taken_back(seed: int) -> None:
    query, network = random_query(SHAPES[1], seed)
    given, state = built(query, network, seed)
    for move in moves(given, state):
        if move[0] != neighbours.LOGICAL:
            continue
        _, top, i, j = move.tolist()
        child, parent, bottom = state.child.copy(), state.parent.copy(), int(state.child[top, i])
        neighbours.rotate(state, top, i, j)
        assert (state.parent[top], state.parent[bottom]) == (bottom, parent[top])
        neighbours.rotate(state, bottom, j, i)
        assert np.array_equal(state.child, child)
        assert np.array_equal(state.parent, parent)


# --- Table 6 --------------------------------------------------------------------------------------


def swappable(*operators: ProfiledOperator) -> bool:
    """Whether the last of some operators may be swapped with one it receives from."""
    sources = [
        ProfiledOperator(name, "source", rate=1.0, columns=(f"{name}1", f"{name}2", f"{name}3"))
        for name in "abc"
    ]
    query = ProfiledQuery([*sources, *operators])
    given, state = built(query, Network(np.ones(1)), 0)
    return any(neighbours.swap_slot(given, state, len(query) - 1, i) >= 0 for i in range(2))


def filters(reads: str, *inputs: int) -> ProfiledOperator:
    return ProfiledOperator(f"filter {inputs}", "filter", inputs, columns=(reads,))


def project(keeps: str, *inputs: int) -> ProfiledOperator:
    return ProfiledOperator(f"project {inputs}", "project", inputs, columns=tuple(keeps.split()))


def joins(compares: str, *inputs: int) -> ProfiledOperator:
    return ProfiledOperator(
        f"join {inputs}", "join", inputs, window=1.0, columns=tuple(compares.split())
    )


@pytest.mark.parametrize(
    ("operators", "may"),
    [
        ((filters("a1", 0), filters("a2", 3)), True),
        ((project("a1 a2", 0), filters("a1", 3)), True),
        ((filters("a1", 0), project("a1 a2", 3)), True),
        ((filters("a3", 0), project("a1 a2", 3)), False),
        ((project("a1 a2", 0), project("a1", 3)), True),
        ((project("a1", 0), project("a1", 3)), True),
        ((joins("a1 b1", 0, 1), filters("b2", 3)), True),
        ((joins("a1 b1", 0, 1), project("a1 a2 b1 b2 b3", 3)), True),
        # It would drop columns of both sides, or one that the join compares.
        ((joins("a1 b1", 0, 1), project("a1 a2 b1 b2", 3)), False),
        ((joins("a1 b1", 0, 1), project("a2 a3 b1 b2 b3", 3)), False),
        ((filters("a1", 0), joins("a1 b1", 3, 1)), False),
        ((project("a1 a2", 0), joins("a1 b1", 3, 1)), False),
        ((joins("a1 b1", 0, 1), joins("a2 c1", 3, 2)), True),
        ((joins("a1 b1", 0, 1), joins("c1 b2", 2, 3)), True),
    ],
)
def test_what_may_be_swapped(operators: tuple[ProfiledOperator, ...], may: bool) -> None:
    assert swappable(*operators) == may


def test_a_join_takes_along_the_side_it_compares() -> None:
    sources = [ProfiledOperator(n, "source", rate=1.0, columns=(f"{n}1",)) for n in "abc"]
    query = ProfiledQuery([*sources, joins("a1 b1", 0, 1), joins("b1 c1", 3, 2)])
    given, state = built(query, Network(np.ones(1)), 0)
    neighbours.rotate(state, 4, 0, neighbours.swap_slot(given, state, 4, 0))
    assert inputs_of(state.child) == ((), (), (), (0, 4), (1, 2))
