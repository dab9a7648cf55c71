"""Steps of Phase III on their own: cuts, local search and chains of ejections."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import synthetic_problem

from nova_core.model.objectives import leg_weights
from nova_core.model.problem import Links, Problem
from nova_core.placement.assignment import Assigner
from nova_core.placement.geometric_median import geometric_median, pair_anchors
from nova_core.placement.kernels import cut, refine, tuning
from nova_core.placement.kernels.items import cost_on
from nova_core.placement.kernels.tuning import DEEP_EFFORT, EPSILON, UNPLACED_COST
from nova_core.placement.partitioning import maximum_partition_rate


def started(problem: Problem, sigma: float = 0.3, bandwidth: float = math.inf) -> Assigner:
    """Phase III after its first pass."""
    weights, anchors = leg_weights(problem, "latency"), pair_anchors(problem)
    state = Assigner.start(
        problem,
        anchors,
        geometric_median(anchors, weights),
        weights,
        maximum_partition_rate(problem.left_rate, problem.right_rate, sigma),
        by_rate=False,
        c_min=0.0,
        bandwidth=bandwidth,
        on_full="spread",
        refine=True,
    )
    state.assign_whole(2, None)
    return state


def kernel(state: Assigner) -> tuple[object, ...]:
    return state.tree, state.links, state.pairs, state.items, state.candidates


def total(state: Assigner) -> float:
    return float(state.items.cost[: state.items.used[0]].sum())


def check(state: Assigner) -> None:
    """Costs, free capacity, links and lists of residents are those of the items' slots."""
    items, tree, pairs = state.items, state.tree, state.pairs
    used = int(items.used[0])
    free = state.capacity.copy()
    np.subtract.at(free, items.slot[:used], items.size[:used])
    np.testing.assert_allclose(items.free, free, rtol=1e-9, atol=1e-7)
    left = dict(
        zip(zip(*_ends(state.problem), strict=True), state.problem.links.budget, strict=True)
    )
    for item in range(used):
        slot, rate = int(items.slot[item]), items.rate[item]
        expected = cost_on(tree, pairs, items, item, slot)
        assert items.cost[item] == pytest.approx(expected, rel=1e-9)
        if slot == len(tree.node):
            continue
        host, (a, b, sink) = int(tree.node[slot]), pairs.node[items.pair[item]].tolist()
        for link, sent in (((a, host), rate[0]), ((b, host), rate[1]), ((host, sink), rate[2])):
            if link in left:
                left[link] -= sent
    np.testing.assert_allclose(np.sort(list(left.values())), np.sort(state.links.free), atol=1e-6)
    assert all(room >= -1e-6 for room in left.values())
    for slot in range(len(items.first)):
        listed, item = [], int(items.first[slot])
        while item >= 0:
            listed.append(item)
            item = int(items.chain[item, 1])
        assert sorted(listed) == np.flatnonzero(items.slot[:used] == slot).tolist()
    # The pieces of each join are its whole grid, each cell once.
    for pair in range(len(pairs.rate)):
        seen = np.zeros(pairs.grid[pair], np.int64)
        for a, b, c, d in items.rectangle[:used][items.pair[:used] == pair]:
            seen[a:b, c:d] += 1
        assert (seen == 1).all()


def _ends(problem: Problem) -> tuple[list[int], list[int]]:
    return problem.links.source.tolist(), problem.links.target.tolist()


CASES = (st.integers(0, 10_000), st.floats(1.05, 3.0), st.sampled_from([0, 80]))


@settings(max_examples=40, deadline=None)
@given(*CASES)
def test_local_search_makes_best_moves_only(seed: int, headroom: float, links: int) -> None:
    state = started(synthetic_problem(seed, nodes=25, joins=15, headroom=headroom, links=links))
    state.list_candidates(12)
    check(state)
    for deep in (False, True):
        for item in range(int(state.items.used[0])):
            before = total(state)
            if deep:
                gain = refine.improve_deep(*kernel(state), item, DEEP_EFFORT)
            else:
                gain = refine.improve(*kernel(state), item)
            assert gain >= 0
            assert total(state) == pytest.approx(before - gain, rel=1e-9, abs=1e-6)
    check(state)
    assert (state.items.free >= -1e-7).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.7, 3.0), st.integers(1, 3))
def test_neither_links_with_enough_room_nor_a_ranking_change_anything(
    seed: int, headroom: float, dimensions: int
) -> None:
    """Without links, the first pass is a quicker one; a ranking serves joins that share a point."""
    problem = synthetic_problem(seed, nodes=40, joins=60, headroom=headroom, dimensions=dimensions)
    wide = Links(np.array([1]), np.array([0]), np.array([1e12]))
    without, linked = started(problem), started(replace(problem, links=wide))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "HUB_JOINS", 1)
        ranked = started(problem)
    check(without)
    for other in (linked, ranked):
        assert np.array_equal(without.items.slot, other.items.slot)
        assert np.array_equal(without.items.cost, other.items.cost)
        assert np.array_equal(without.tree.box[1:], other.tree.box[1:])


@settings(max_examples=20, deadline=None)
@given(*CASES)
def test_chains_of_ejections_gain_more_with_more_effort(
    seed: int, headroom: float, links: int
) -> None:
    problem = synthetic_problem(seed, nodes=25, joins=15, headroom=headroom, links=links)
    for item in range(len(problem.matrix)):
        gains = []
        for effort in (0, 10, 1000, DEEP_EFFORT):
            state = started(problem)
            state.list_candidates(12)
            gains.append(refine.improve_deep(*kernel(state), item, effort))
        assert gains[0] == 0
        assert gains == sorted(gains)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(1.05, 3.0))
def test_no_single_move_is_left_when_local_search_ends(seed: int, headroom: float) -> None:
    """By brute force over all items and their candidates."""
    state = started(synthetic_problem(seed, nodes=20, joins=12, headroom=headroom))
    state.list_candidates(25)
    refine.descend(*kernel(state), 100, False, False)
    items, pool = state.items, state.candidates
    left = 0.0
    for item in range(int(items.used[0])):
        for k in range(items.begin[item], items.end[item]):
            slot, cost = pool.slot[k], pool.cost[k]
            expected = cost_on(state.tree, state.pairs, items, item, slot)
            assert cost == pytest.approx(expected, rel=1e-12)
            if items.free[slot] >= items.size[item] and slot != items.slot[item]:
                left = max(left, items.cost[item] - cost)
    # It ends where a round gains less than a ten-thousandth.
    assert left <= max(EPSILON, 1e-4 * total(state))


def cheapest_two(state: Assigner, item: int) -> float:
    """Least cost of an item in two pieces on any two slots with room, by brute force."""
    items, pairs, tree = state.items, state.pairs, state.tree
    pair, best = int(items.pair[item]), math.inf
    rectangle, rate, weights = items.rectangle[item], items.rate[item], items.weights[item]
    slots = range(len(tree.node))
    free = items.free.copy()
    free[items.slot[item]] += items.size[item]
    free += 1e-9  # sums differ by their order; a slot may be full to the last bit

    def cost(slot: int, share: float) -> float:
        away = np.linalg.norm(pairs.anchors[pair] - tree.slot[slot, :-1], axis=1)
        return float((weights * share * away).sum())

    for side in (0, 1):
        begin, end = rectangle[2 * side : 2 * side + 2]
        if rate[side] < rate[1 - side] and rectangle[3 - 2 * side] - rectangle[2 - 2 * side] > 1:
            continue
        for at in range(begin + 1, end):
            first = pairs.maximum[pair] * (at - begin)
            sizes = first + rate[1 - side], rate[side] - first + rate[1 - side]
            share = (at - begin) / (end - begin)
            for one in slots:
                for two in slots:
                    fits = (
                        sizes[0] + sizes[1] <= free[one]
                        if one == two
                        else sizes[0] <= free[one] and sizes[1] <= free[two]
                    )
                    if fits:
                        best = min(best, cost(one, share) + cost(two, 1 - share))
    return best


@settings(max_examples=40, deadline=None)
@given(*CASES, st.floats(0.1, 0.5))
def test_a_cut_is_no_better_than_brute_force_and_accounted_for(
    seed: int, headroom: float, links: int, sigma: float
) -> None:
    problem = synthetic_problem(seed, nodes=12, joins=8, headroom=headroom, links=links)
    state = started(problem, sigma)
    state.list_candidates(8)
    work = cut._work_space()
    for item in range(int(state.items.used[0])):
        if state.items.slot[item] == len(state.tree.node):
            continue
        before, limit = total(state), float(state.items.cost[item])
        best = cheapest_two(state, item)
        was_cut = cut.cut_in_two(*kernel(state), item, limit, work)
        check(state)
        if was_cut:
            pieces = [item, int(state.items.used[0]) - 1]
            cost = float(state.items.cost[pieces].sum())
            assert cost >= best - 1e-9
            assert total(state) == pytest.approx(before - limit + cost)
        else:
            assert total(state) == pytest.approx(before)
    np.testing.assert_allclose(state.tree.slot[:, -1], state.items.free[:-1])


@settings(max_examples=40, deadline=None)
@given(*CASES, st.sampled_from([math.inf, 60.0]))
def test_cuts_place_what_fits_in_pieces(
    seed: int, headroom: float, links: int, bandwidth: float
) -> None:
    problem = synthetic_problem(seed, nodes=30, joins=12, headroom=headroom, links=links)
    state = started(problem, 0.2, bandwidth)
    missing = state.missing()
    state.list_candidates(8)
    state.cut_to_fit()
    check(state)
    # Halving copies the other input, so what is missing may grow, but not where nothing was cut.
    if missing == 0:
        assert state.missing() == 0
    used = int(state.items.used[0])
    placed = ~state.unplaced
    assert (state.items.size[:used][placed] <= bandwidth).all()
    assert (
        state.items.cost[:used][~placed] == UNPLACED_COST * state.items.size[:used][~placed]
    ).all()


@pytest.mark.parametrize(
    ("seed", "headroom"), [(7932, 1.1158972554601345), (1436, 1.3616941598666044)]
)
def test_local_search_goes_on_while_a_piece_has_no_room(seed: int, headroom: float) -> None:
    """The cost of an unplaced piece must not make every other gain look negligible."""
    state = started(synthetic_problem(seed, nodes=20, joins=12, headroom=headroom))
    state.list_candidates(25)
    refine.descend(*kernel(state), 100, False, False)
    items, used = state.items, int(state.items.used[0])
    nowhere = len(items.free) - 1
    unplaced = [item for item in range(used) if items.slot[item] == nowhere]
    largest = items.free[:nowhere].max()
    assert all(items.size[item] > largest for item in unplaced)
