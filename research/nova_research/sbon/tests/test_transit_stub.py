"""Transit-stub networks: the text's sizes, routes that are routes, one seed one network."""

from __future__ import annotations

import numpy as np
import pytest

from nova_core.errors import ProblemError
from nova_research.sbon.transit_stub import TransitStubParameters, transit_stub

SMALL = TransitStubParameters(transit_domains=3, transit_nodes=3, stubs=2, stub_nodes=4)


def test_the_texts_network() -> None:
    made = transit_stub(0)
    assert len(made) == 1550
    assert made.transit.sum() == 50
    assert np.bincount(made.region).tolist() == [155] * 10
    assert made.latency.max() == pytest.approx(878.0)
    assert (made.latency == made.latency.T).all()
    assert (np.diag(made.latency) == 0).all()
    assert (made.latency + np.eye(1550) > 0).all()


@pytest.mark.parametrize("seed", range(2))
def test_routes_lead_there_and_latencies_are_theirs(seed: int) -> None:
    made = transit_stub(seed, SMALL)
    again = transit_stub(seed, SMALL)
    for name in ("latency", "towards", "hops", "position"):
        np.testing.assert_array_equal(getattr(made, name), getattr(again, name))
    count = len(made)
    stub = np.where(made.transit, -1, (np.arange(count) - 9) // 4)
    for target in range(count):
        for start in range(count):
            way = [start]
            while way[-1] != target:
                way.append(int(made.towards[target, way[-1]]))
                assert len(way) <= count
            length = np.linalg.norm(np.diff(made.position[way], axis=0), axis=1).sum()
            assert made.latency[start, target] == pytest.approx(length, rel=1e-9)
            assert made.hops[target, start] == len(way) - 1
            # Traffic stays in its domain, and passes through no stub.
            inner = set(stub[way].tolist()) - {-1}
            assert inner <= {stub[start], stub[target]} - {-1}
            if stub[start] == stub[target] >= 0:
                assert (stub[way] == stub[start]).all()
            elif made.transit[start] and made.transit[target]:
                regions = made.region[way].tolist()
                if regions[0] == regions[-1]:
                    assert set(regions) == {regions[0]}


def test_policy_routes_are_not_always_the_fastest() -> None:
    made = transit_stub(1, TransitStubParameters(stubs=0))
    core = made.latency
    through = (core[:, :, None] + core[None, :, :]).min(axis=1)
    assert 0.02 < (through < core - 1e-9).mean() < 0.9


def test_other_seeds_are_other_networks() -> None:
    assert (transit_stub(0, SMALL).latency != transit_stub(1, SMALL).latency).any()


def test_the_smallest() -> None:
    one = transit_stub(
        0, TransitStubParameters(transit_domains=1, transit_nodes=1, stubs=0, stub_nodes=1)
    )
    assert one.latency.tolist() == [[0.0]]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"transit_domains": 0}, "transit_domains is 0; expected a whole number >= 1"),
        ({"stub_nodes": 1.5}, "stub_nodes is 1.5; expected a whole number"),
        ({"stubs": -1}, "stubs is -1; expected a whole number >= 0"),
        ({"diameter": float("nan")}, "diameter is nan; expected more than 0"),
        ({"core_links": 1.5}, "core_links is 1.5; expected a share up to 1"),
    ],
)
def test_bad_parameters_are_refused(wrong: dict, said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        TransitStubParameters(**wrong)


def test_too_few_links_are_refused() -> None:
    with pytest.raises(ProblemError, match=r"stub_links is 0.001; 10 nodes .* fall apart"):
        transit_stub(0, TransitStubParameters(stub_links=0.001))
    with pytest.raises(ProblemError, match="seed -1"):
        transit_stub(-1)
