from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.errors import NovaError
from nova_core.io.latencies import read_latency, symmetrized
from nova_core.model.problem import Floats
from nova_testbed.cities import CITIES, CONTINENTS
from nova_testbed.internet import CHUNK, SyntheticInternet


def triangles(rtt: Floats) -> tuple[float, float]:
    """Share of triangles that violate the inequality, and by what factor in the median."""
    draw = np.random.default_rng(0)
    i, j, k = (draw.integers(0, len(rtt), 300_000) for _ in range(3))
    apart = (i != j) & (j != k) & (i != k)
    sides = np.stack([rtt[i, j], rtt[j, k], rtt[i, k]])[:, apart]
    longest = sides.max(0)
    ratio = longest / (sides.sum(0) - longest)
    return float((ratio > 1).mean()), float(np.median(ratio[ratio > 1]))


def quantiles(rtt: Floats) -> Floats:
    return np.asarray(np.percentile(rtt[np.triu_indices(len(rtt), 1)], [5, 25, 50, 75, 95]))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 60), st.integers(0, 2**32))
def test_latencies_are_a_symmetric_matrix_made_pair_by_pair(nodes: int, seed: int) -> None:
    internet = SyntheticInternet(nodes, seed)
    rtt = internet.matrix()
    assert rtt.shape == (nodes, nodes)
    assert (rtt == rtt.T).all() and not rtt.diagonal().any()
    assert (rtt[~np.eye(nodes, dtype=bool)] > 0).all()
    assert np.isfinite(rtt).all()
    a, b = np.random.default_rng(seed).integers(0, nodes, (2, 7, 3))
    assert (internet.rtt(a, b) == rtt[a, b]).all()
    assert (SyntheticInternet(nodes, seed).matrix() == rtt).all()


def test_another_seed_is_another_internet() -> None:
    assert (SyntheticInternet(50, 1).matrix() != SyntheticInternet(50, 2).matrix()).any()


def test_many_hosts_in_several_chunks() -> None:
    internet = SyntheticInternet(1_000_000, 3)
    a = np.random.default_rng(1).integers(0, len(internet), (CHUNK + 10, 3))
    rtt = internet.rtt(np.arange(len(a))[:, None], a)
    assert rtt.shape == a.shape
    picked = [0, CHUNK // 3, CHUNK - 1, CHUNK, len(a) - 1]
    assert (rtt[picked] == internet.rtt(np.array(picked)[:, None], a[picked])).all()
    assert internet.rtt(5, 7).shape == ()


def test_hosts_of_a_city_are_near_and_nothing_outruns_light() -> None:
    internet = SyntheticInternet(800, 1)
    rtt = internet.matrix()
    same = internet.city[:, None] == internet.city[None, :]
    np.fill_diagonal(same, False)
    assert np.median(rtt[same]) < 6 < np.median(rtt[~same])
    cities = {city.name: i for i, city in enumerate(CITIES)}
    london = internet.city == cities["London"]
    sydney = internet.city == cities["Sydney"]
    # 17 000 km at two thirds of the speed of light, there and back.
    assert rtt[np.ix_(london, sydney)].min() > 170


def test_continents_can_be_chosen() -> None:
    internet = SyntheticInternet(200, 1, ("africa", "oceania"))
    found = {CITIES[city].continent for city in internet.city}
    assert found == {"africa", "oceania"}
    assert {city.continent for city in CITIES} == set(CONTINENTS)


def test_bad_arguments_of_the_internet() -> None:
    with pytest.raises(NovaError, match="nodes: 0 is not accepted"):
        SyntheticInternet(0, 1)
    with pytest.raises(NovaError, match="unknown 'mars'; accepted are africa"):
        SyntheticInternet(5, 1, ("mars",))


@pytest.mark.data
def test_it_resembles_what_was_measured(shared_data: Path) -> None:
    path = shared_data / "latency" / "ripe-atlas-418.csv.gz"
    ids, measured = read_latency(path)
    measured = symmetrized(measured, ids, str(path))
    made = [SyntheticInternet(len(ids), seed).matrix() for seed in range(3)]
    ratio = np.mean([quantiles(rtt) for rtt in made], axis=0) / quantiles(measured)
    assert (abs(ratio - 1) < 0.25).all(), ratio
    share, factor = triangles(measured)
    shares, factors = zip(*(triangles(rtt) for rtt in made), strict=True)
    assert abs(np.mean(shares) - share) < 0.05, (shares, share)
    assert abs(np.mean(factors) - factor) < 0.05, (factors, factor)
