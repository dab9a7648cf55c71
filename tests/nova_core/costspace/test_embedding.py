from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core import workers
from nova_core.costspace import (
    CostSpace,
    DisconnectedError,
    aligned,
    embed,
    errors,
    pairs_of,
    sample_pairs,
    solver,
    vivaldi,
)
from nova_core.errors import ProblemError, ProblemWarning
from nova_core.io.latencies import read_latency
from nova_core.model.problem import Ints, PairLatencies

SEEDS = st.integers(0, 10_000)


def euclidean(nodes: int, dimensions: int, seed: int, height: bool = False) -> CostSpace:
    random = np.random.default_rng(seed)
    position = random.normal(scale=50, size=(nodes, dimensions))
    return CostSpace(position, random.exponential(5, nodes) if height else None)


def some_pairs(nodes: int, seed: int = 0) -> PairLatencies:
    return sample_pairs(euclidean(nodes, 2, seed).matrix(), 12, seed=seed)


def permuted(pairs: PairLatencies, order: Ints) -> PairLatencies:
    """The same pairs with node i called order[i], listed in another order, some turned round."""
    random = np.random.default_rng(len(pairs))
    shuffle = random.permutation(len(pairs))
    source, target = order[pairs.source][shuffle], order[pairs.target][shuffle]
    turn = random.random(len(pairs)) < 0.5
    return PairLatencies(
        np.where(turn, target, source), np.where(turn, source, target), pairs.latency[shuffle]
    )


@settings(max_examples=10, deadline=None)
@given(SEEDS, st.sampled_from([2, 3, 5]), st.integers(40, 80))
def test_euclidean_points_are_recovered(seed: int, dimensions: int, nodes: int) -> None:
    truth = euclidean(nodes, dimensions, seed)
    found = embed(sample_pairs(truth.matrix(), 25, seed=seed), nodes, dimensions=dimensions)
    assert np.abs(aligned(found, truth).position - truth.position).max() < 0.05
    assert np.abs(found.matrix() - truth.matrix()).max() < 0.05
    assert found.error is not None
    assert found.error.max() < 1e-3


@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_heights_are_recovered(seed: int) -> None:
    truth = euclidean(80, 2, seed, height=True)
    found = embed(pairs_of(truth.matrix()), 80, height=True)
    assert found.height is not None
    # Far out, a height and the distance to everyone else are nearly the same thing.
    assert np.quantile(np.abs(found.matrix() - truth.matrix()), 0.95) < 0.1
    assert np.median(np.abs(found.height - truth.height)) < 0.1


@pytest.mark.parametrize("method", ["smacof", "classical", "solver"])
def test_dense_methods_recover_points(method: str) -> None:
    truth = euclidean(50, 2, 1)
    found = embed(truth.matrix(), method=method)
    assert np.abs(found.matrix() - truth.matrix()).max() < 0.05


def test_smacof_takes_missing_pairs() -> None:
    latency = euclidean(50, 2, 1).matrix()
    latency[0, 1:20] = latency[1:20, 0] = np.nan
    report = errors(embed(latency, method="smacof"), latency)
    assert report.median_relative < 0.05


@pytest.mark.parametrize("height", [False, True])
def test_vivaldi_comes_close(height: bool) -> None:
    truth = euclidean(100, 2, 3, height)
    found = embed(sample_pairs(truth.matrix(), 20), 100, height=height, method="vivaldi")
    assert errors(found, truth.matrix()).median_relative < 0.1


@settings(max_examples=10, deadline=None)
@given(SEEDS, st.booleans(), st.sampled_from(["solver", "vivaldi"]))
def test_names_of_nodes_do_not_matter(seed: int, height: bool, method: str) -> None:
    random = np.random.default_rng(seed)
    latency = euclidean(60, 2, seed).matrix() * random.lognormal(0, 0.3, (60, 60))
    pairs = sample_pairs(latency, 10, seed=seed)
    order = random.permutation(60)
    one = embed(pairs, 60, height=height, method=method, seed=seed)
    other = embed(permuted(pairs, order), 60, height=height, method=method, seed=seed)
    assert np.array_equal(other.position[order], one.position) or (
        np.abs(other.matrix()[np.ix_(order, order)] - one.matrix()).max() < 1e-3
    )


def test_names_do_not_matter_where_latencies_are_alike() -> None:
    """Whole milliseconds: nodes have equal latencies and are told apart by their neighbours'."""
    pairs = some_pairs(200)
    pairs = PairLatencies(pairs.source, pairs.target, np.round(pairs.latency / 40) * 40)
    order = np.random.default_rng(5).permutation(200)
    one, other = embed(pairs, 200), embed(permuted(pairs, order), 200)
    assert np.abs(other.matrix()[np.ix_(order, order)] - one.matrix()).max() < 1e-3


@pytest.mark.parametrize("method", ["solver", "vivaldi"])
def test_one_seed_gives_one_space_on_any_number_of_threads(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What many nodes get, for few.
    for module in (workers, vivaldi):
        monkeypatch.setattr(module, "PARALLEL_NODES", 100)
    few = replace(solver.TUNING, dense_nodes=100, many_nodes=100)
    monkeypatch.setattr(solver, "TUNING", few)
    random = np.random.default_rng(0)
    nodes = 1200
    truth = euclidean(nodes, 2, 0)
    source = np.repeat(np.arange(nodes), 10)
    target = (source + random.integers(1, nodes, len(source))) % nodes
    pairs = PairLatencies(source, target, truth.distance(source, target))
    spaces = [embed(pairs, nodes, method=method, seed=4, threads=threads) for threads in (1, 3)]
    assert np.array_equal(spaces[0].position, spaces[1].position)
    assert errors(spaces[0], pairs).median_relative < (0.01 if method == "solver" else 0.2)


def test_seeds_differ_and_repeat() -> None:
    pairs = some_pairs(60)
    noise = np.random.default_rng(0).lognormal(0, 0.4, len(pairs))
    noisy = PairLatencies(pairs.source, pairs.target, pairs.latency * noise)
    first, again, other = (embed(noisy, 60, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first.position, again.position)
    assert not np.array_equal(first.position, other.position)


@settings(max_examples=25, deadline=None)
@given(
    SEEDS,
    st.booleans(),
    st.sampled_from(["solver", "vivaldi"]),
    st.sampled_from(["zero", "alike", "wild", "missing", "huge", "tiny"]),
)
def test_never_nan(seed: int, height: bool, method: str, kind: str) -> None:
    random = np.random.default_rng(seed)
    latency = 100 * random.random((12, 12))
    match kind:
        case "zero":
            latency[random.random((12, 12)) < 0.7] = 0.0
        case "alike":
            latency[:] = random.choice([0.0, 1.0, 50.0])
        case "wild":
            latency *= 10 ** random.uniform(-5, 5, (12, 12))
        case "missing":
            latency[random.random((12, 12)) < 0.3] = np.nan
        case "huge":
            latency *= 1e7
        case "tiny":
            latency *= 1e-7
    space = embed(latency, height=height, method=method)
    assert np.isfinite(space.position).all()
    assert np.isfinite(space.matrix()).all()
    if height:
        assert space.height is not None
        assert (space.height >= 0).all()


def test_directions_are_averaged() -> None:
    both = PairLatencies(np.array([0, 1]), np.array([1, 0]), np.array([10.0, 30.0]))
    assert 10 <= embed(both, 2).distance(0, 1) <= 30
    assert pairs_of(np.array([[0, 10.0], [30.0, 0]])).latency.tolist() == [20.0]
    assert pairs_of(np.array([[0, np.nan], [30.0, 0]])).latency.tolist() == [30.0]


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("dimensions", [1, 2, 5])
def test_few_nodes(nodes: int, dimensions: int) -> None:
    latency = 10.0 * (1 - np.eye(nodes))
    space = embed(latency, dimensions=dimensions)
    assert space.position.shape == (nodes, dimensions)
    if nodes <= 2 or dimensions > 1:
        assert np.allclose(space.matrix(), latency, atol=0.05)


def test_unconnected_nodes_are_named() -> None:
    pairs = PairLatencies(np.array([0, 1, 4, 5, 6]), np.array([1, 2, 5, 6, 7]), np.full(5, 10.0))
    with pytest.raises(DisconnectedError) as caught:
        embed(pairs, 8)
    assert "3 unconnected groups" in str(caught.value)
    assert "4 nodes (4, 5, 6, 7); 3 nodes (0, 1, 2); node 3" in str(caught.value)
    assert caught.value.component.tolist() == [1, 1, 1, 2, 0, 0, 0, 0]
    assert "\n" not in str(caught.value)


def test_long_chains_are_connected() -> None:
    """Each row's first neighbours do not connect these; all of them do."""
    nodes = 40
    hubs = PairLatencies(
        np.concatenate([np.repeat(np.arange(4), 16), np.arange(3)]),
        np.concatenate([*(4 + 9 * i + np.arange(16) % 9 for i in range(4)), [1, 2, 3]]),
        np.full(67, 10.0),
    )
    assert len(embed(hubs, nodes)) == nodes


@pytest.mark.parametrize(
    ("latency", "says"),
    [(-1.0, "-1.0 ms"), (np.inf, "inf ms"), (1e12, "1000000000000.0 ms")],
)
def test_absurd_latencies_are_refused(latency: float, says: str) -> None:
    pairs = PairLatencies(np.array([0, 1]), np.array([1, 2]), np.array([1.0, latency]))
    with pytest.raises(ProblemError, match="nodes 1 and 2") as caught:
        embed(pairs, 3)
    assert says in str(caught.value)
    matrix = np.array([[0, latency], [1.0, 0]])
    with pytest.raises(ProblemError, match="nodes 0 to 1") as caught:
        embed(matrix)
    assert says in str(caught.value)


def test_missing_pairs_and_selves_are_left_out() -> None:
    pairs = PairLatencies(
        np.array([0, 0, 1, 2]), np.array([1, 2, 2, 2]), np.array([3.0, 4.0, np.nan, 9.0])
    )
    with pytest.warns(ProblemWarning, match="1 of 4 latencies are missing"):
        space = embed(pairs, 3)
    assert space.distance(0, 1) == pytest.approx(3, abs=0.01)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dimensions": 0}, "dimensions: 0"),
        ({"dimensions": 11}, "dimensions: 11"),
        ({"method": "magic"}, "expected one of solver, vivaldi"),
        ({"seed": -1}, "seed: -1"),
        ({"start": euclidean(5, 2, 0)}, "start: a space of 5 nodes"),
        ({"start": euclidean(60, 2, 0), "height": True}, "expected 60 nodes in 2-d with heights"),
    ],
)
def test_options_that_cannot_be(options: dict[str, object], says: str) -> None:
    with pytest.raises(ProblemError) as caught:
        embed(some_pairs(60), 60, **options)
    assert says in str(caught.value)


def test_other_input_that_cannot_be() -> None:
    with pytest.raises(ProblemError, match="no heights"):
        embed(np.zeros((3, 3)), method="smacof", height=True)
    with pytest.raises(ProblemError, match="expected one of solver, vivaldi, smacof"):
        embed(np.zeros((3, 3)), method="magic")
    with pytest.raises(ProblemError, match="square"):
        embed(np.zeros((3, 2)))
    with pytest.raises(ProblemError, match="node 9; expected 0 to 2"):
        embed(PairLatencies(np.array([0]), np.array([9]), np.ones(1)), 3)
    with pytest.raises(ProblemError, match="1 sources, 2 targets"):
        embed(PairLatencies(np.array([0]), np.array([1, 2]), np.ones(2)), 3)
    with pytest.raises(ProblemError, match="nodes: 0"):
        embed(PairLatencies(np.empty(0, int), np.empty(0, int), np.empty(0)), 0)


def test_a_start_is_kept_to() -> None:
    truth = euclidean(100, 2, 2)
    latency = truth.matrix()
    pairs = sample_pairs(latency * np.random.default_rng(0).lognormal(0, 0.1, latency.shape), 20)
    first = embed(pairs, 100)
    again = embed(pairs, 100, start=first)
    assert np.abs(again.position - first.position).max() < 5
    turned = CostSpace(first.position[:, ::-1] + 1000.0)
    kept = embed(pairs, 100, start=turned)
    assert np.abs(kept.position - turned.position).max() < 5


def test_progress_reaches_its_end() -> None:
    calls: list[tuple[int, int]] = []
    embed(some_pairs(60), 60, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1] == len(calls)
    assert [done for done, _ in calls] == list(range(1, len(calls) + 1))


def test_more_nodes_than_a_dense_start_takes() -> None:
    latency = euclidean(2100, 2, 0, height=True).matrix()
    space = embed(sample_pairs(latency, 16), 2100, height=True)
    assert errors(space, latency).median_relative < 0.01


@pytest.mark.data
@pytest.mark.parametrize(
    ("neighbours", "height", "mae", "relative"),
    [
        (32, False, 18.5, 0.115),
        (32, True, 15.2, 0.075),
        (20, False, 20.5, 0.125),
        (20, True, 16.0, 0.085),
    ],
)
def test_ripe_atlas(
    shared_data: Path, neighbours: int, height: bool, mae: float, relative: float
) -> None:
    _, latency = read_latency(shared_data / "latency" / "ripe-atlas-418.csv.gz")
    pairs = sample_pairs(latency, neighbours, seed=7)
    report = errors(embed(pairs, len(latency), height=height, seed=7), latency)
    assert report.mae <= mae
    assert report.median_relative <= relative
