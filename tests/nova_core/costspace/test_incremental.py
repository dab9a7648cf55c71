from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.costspace import CostSpace, LiveCostSpace, embed, sample_pairs
from nova_core.costspace.incremental import located
from nova_core.errors import ProblemError


def world(seed: int, height: bool = True) -> CostSpace:
    random = np.random.default_rng(seed)
    position = random.normal(scale=40, size=(60, 2))
    return CostSpace(position, random.exponential(5, 60) if height else None)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_a_new_node_finds_its_place(seed: int, height: bool) -> None:
    truth = world(seed, height)
    live = LiveCostSpace(truth.take(np.arange(59)))
    neighbours = np.random.default_rng(seed).choice(59, 20, replace=False)
    latency = truth.distance(np.full(20, 59), neighbours)
    assert live.add(neighbours, latency) == 59
    assert np.abs(live.space().matrix() - truth.matrix()).max() < 0.5
    assert live.location(59).error < 0.01


def test_some_wild_measurements_do_not_move_it_far() -> None:
    truth = world(1)
    live = LiveCostSpace(truth.take(np.arange(59)))
    latency = truth.distance(np.full(20, 59), np.arange(20))
    latency[::5] *= 8
    found = live.locate(np.arange(20), latency)
    assert np.linalg.norm(found.position - truth.position[59]) < 1
    assert len(live) == 59


def test_others_stay_where_they_are() -> None:
    truth = world(2)
    live = LiveCostSpace(truth)
    before = live.space()
    for step in range(50):
        live.add([1, 2, 3, 40], [10.0 + step, 20, 30, 40])
    after = live.space()
    assert len(live) == 110
    assert np.array_equal(after.position[:60], before.position)
    assert np.isfinite(after.position).all()


def test_a_drifting_node_is_followed() -> None:
    truth = world(3)
    live = LiveCostSpace(truth)
    position = truth.position.copy()
    position[7] += [30, -10]
    now = CostSpace(position, truth.height)
    others = np.arange(20, 50)
    moved = live.update(7, others, now.distance(np.full(30, 7), others))
    assert moved == pytest.approx(np.hypot(30, 10), abs=0.5)
    assert live.location(7).position == pytest.approx(position[7], abs=0.5)
    assert live.update(7, others, now.distance(np.full(30, 7), others)) < 0.1


@pytest.mark.parametrize("height", [False, True])
def test_single_measurements_bring_a_node_home(height: bool) -> None:
    truth = world(4, height)
    position = truth.position.copy()
    position[5] += 25
    # Everyone else fits perfectly and does not give way.
    live = LiveCostSpace(CostSpace(position, truth.height, (np.arange(60) == 5) * 1.0))
    random = np.random.default_rng(0)
    start = np.linalg.norm(position[5] - truth.position[5])
    for other in random.integers(6, 60, 300).tolist():
        live.observe(5, other, float(truth.distance(5, other)))
    assert np.linalg.norm(live.location(5).position - truth.position[5]) < start / 10


def test_a_perfect_node_notices_change() -> None:
    live = LiveCostSpace(world(5))
    others = np.random.default_rng(0).integers(1, 60, 200).tolist()
    moved = sum(live.observe(0, other, 500.0) for other in others)
    assert moved > 100


def test_nodes_in_one_place_part() -> None:
    live = LiveCostSpace(CostSpace(np.zeros((2, 2)), None, np.ones(2)))
    assert live.observe(0, 1, 10.0) > 0
    assert np.isfinite(live.location(0).position).all()
    assert live.observe(0, 1, 0.0) >= 0
    assert np.isfinite(live.location(0).position).all()


def test_removed_nodes_are_gone() -> None:
    live = LiveCostSpace(world(6))
    live.remove(3)
    assert not live.present[3]
    assert live.present.sum() == 59
    for gone in (lambda: live.remove(3), lambda: live.location(3)):
        with pytest.raises(ProblemError, match="node 3 is not there"):
            gone()
    with pytest.raises(ProblemError, match="node 3 is not there"):
        live.add([3, 4], [1.0, 2.0])
    with pytest.raises(ProblemError, match="node 99 is not there"):
        live.update(99, [1], [1.0])
    assert live.add([1, 2, 4], [5.0, 5, 5]) == 60


@pytest.mark.parametrize(
    ("neighbours", "latency", "says"),
    [
        ([], [], "none"),
        ([1], [np.nan], "none"),
        ([0], [1.0], "none"),
        ([1, 2], [1.0], "2 neighbours and 1 latencies"),
        ([1], [-1.0], "to node 1: -1.0 ms"),
        ([1], [np.inf], "to node 1: inf ms"),
        ([-1], [1.0], "node -1 is not there"),
    ],
)
def test_measurements_that_cannot_be(
    neighbours: list[int], latency: list[float], says: str
) -> None:
    live = LiveCostSpace(world(7))
    with pytest.raises(ProblemError) as caught:
        live.update(0, neighbours, latency)
    assert says in str(caught.value)


def test_zeros_are_fine() -> None:
    live = LiveCostSpace(world(8))
    node = live.add([1, 2, 3], [0.0, 0.0, 0.0])
    assert np.isfinite(live.location(node).position).all()
    alone = LiveCostSpace(embed(sample_pairs(np.zeros((1, 1))), 1))
    assert alone.add([0], [5.0]) == 1
    assert alone.space().distance(0, 1) == pytest.approx(5, abs=0.05)


@given(st.data())
def test_absurd_latencies_of_a_newcomer_are_told_and_not_followed(data: st.DataObject) -> None:
    """One of 9 h put a node at ten million ms, without a word."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    count = data.draw(st.integers(5, 12))
    high = data.draw(st.booleans())
    others = rng.uniform(-100, 100, (count, 2))
    there, height = rng.uniform(-100, 100, 2), rng.uniform(1, 9, count + 1) * high
    true = np.linalg.norm(others - there, axis=1) + height[:-1] + height[-1]
    absurd = np.zeros(count, bool)
    absurd[rng.permutation(count)[: data.draw(st.integers(0, (count - 1) // 4))]] = True
    measured = np.where(absurd, 10 ** rng.uniform(5, 9, count), true)
    _, fit = located(others, height[:-1] if high else None, list(measured[:, None]))
    assert fit.absurd.tolist() == absurd.tolist()
    assert fit.measured == pytest.approx(measured)
    # Few neighbours may see a node at two places nearly alike: the estimates count, not the place.
    off = np.abs(fit.estimate - true)[~absurd].sum() / true[~absurd].sum()
    assert off < 0.5


@pytest.mark.parametrize("seed", range(50))
def test_a_newcomer_with_many_neighbours_is_where_it_belongs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    others, there = rng.uniform(-100, 100, (12, 2)), rng.uniform(-100, 100, 2)
    measured = np.linalg.norm(others - there, axis=1)
    measured[:2] = 10 ** rng.uniform(5, 9, 2)
    location, _ = located(others, None, list(measured[:, None]))
    assert np.linalg.norm(location.position - there) < 5


@given(st.integers(0, 2**32 - 1), st.floats(5001, 1e9))
def test_latencies_of_another_scale_are_told_even_where_they_fit(seed: int, away: float) -> None:
    rng = np.random.default_rng(seed)
    others = rng.uniform(0, 100, (5, 2))
    _, fit = located(others, None, [np.array([away])] * 5)
    assert fit.absurd.all()
