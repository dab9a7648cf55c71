"""Candidate placements keep Costream's three rules, and plans of them hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learned_problems import candidates, plan_at, two_streams

from nova_core.errors import InfeasibleError
from nova_core.model.verify import verify
from nova_research.costream.learned.candidates import BINS, Candidates, Enumerator
from nova_workloads.topology import generate


def chains(found: Candidates) -> list[list[int]]:
    """Every way from a source to a sink, as columns of the placements."""
    graph = found.graph
    column = {int(one): row for row, one in enumerate(found.operators.tolist())}
    ways = []

    def follow(one: int, behind: list[int]) -> None:
        way = [column[one], *behind]
        if not graph[one].inputs:
            ways.append(way)
        for above in graph[one].inputs:
            follow(above, way)

    for one in column:
        if graph[one].kind == "sink":
            follow(one, [])
    return ways


def keeps_rules(found: Candidates, high: np.ndarray, low: np.ndarray) -> None:
    graph = found.graph
    kinds = [graph[one].kind for one in found.operators.tolist()]
    for row in range(len(found)):
        nodes = found.nodes(row)
        for way in chains(found):
            passed: list[int] = []
            strength = 0
            for place in way:
                node = int(nodes[place])
                if kinds[place] != "sink":
                    if "bins" in found.rules and kinds[place] != "source":
                        assert high[node] >= strength, "data goes to a weaker host"
                    strength = max(strength, int(low[node]))
                if "return" in found.rules and (not passed or node != passed[-1]):
                    before = passed
                    if kinds[place] == "sink":
                        # A sink beside a source is no return.
                        before = [
                            one for one, at in zip(passed, way, strict=False)
                            if kinds[at] != "source"
                        ]  # fmt: skip
                    assert node not in before, "data returns to a host that it left"
                passed.append(node)


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000))
def test_the_three_rules(seed: int) -> None:
    problem = two_streams()
    found = candidates(problem, 60, seed)
    assert 20 < len(found) <= 60
    low, high = Enumerator(problem).categories
    keeps_rules(found, high, low)
    # Co-location: some share hosts, some do not.
    shared = [len(set(found.nodes(row).tolist())) for row in range(len(found))]
    assert min(shared) < max(shared)


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_placements_differ_and_hold(seed: int) -> None:
    problem = two_streams()
    found = candidates(problem, 40, seed)
    assert len({tuple(row) for row in found.place.tolist()}) == len(found)
    again = candidates(problem, 40, seed)
    assert (again.place == found.place).all() and (again.hosts == found.hosts).all()
    for row in range(0, len(found), 9):
        report = verify(plan_at(found, row))
        assert report.ok, report.summary()


def test_pairs_of_a_join_are_placed_too() -> None:
    problem = generate(60, seed=2)
    problem = problem.with_capacity(np.full(60, np.inf))
    found = candidates(problem, 5, 0)
    assert len(found)
    plan = plan_at(found, 0)
    assert len(plan.instances) == len(problem.matrix)
    assert verify(plan).ok


def test_bins_reach_into_each_other() -> None:
    low, high = Enumerator(generate(200, seed=1)).categories
    assert set(low.tolist()) == set(high.tolist()) == set(range(BINS))
    assert (low <= high).all() and 0 < (low < high).mean() < 0.5


def test_rules_give_way_where_none_can_be_kept() -> None:
    problem = two_streams()
    assert problem.nodes.cpu is not None
    # The only host is weaker than the sources'.
    worker = np.arange(9) == 3
    cpu = np.where(worker, 0.01, problem.nodes.cpu)
    cpu[:2] = 16
    memory = np.where(worker, 1e6, np.where(cpu == 16, 1e12, 1e9))
    nodes = replace(problem.nodes, worker=worker, cpu=cpu, memory=memory)
    found = candidates(replace(problem, nodes=nodes), 10, 0)
    assert found.rules == ("return",)
    assert len(found) == 1


def test_nobody_to_host_is_refused() -> None:
    problem = two_streams()
    nodes = replace(problem.nodes, worker=np.zeros(9, bool))
    with pytest.raises(InfeasibleError, match="no node of two streams may host operators"):
        candidates(replace(problem, nodes=nodes), 10, 0)
