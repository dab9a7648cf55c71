"""Hierarchies, and NebulaStream's path selection followed step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nes_example import STREAM_A, STREAM_B, TOPOLOGY
from problem_families import FAMILIES

from nova_core.errors import ProblemError
from nova_core.strategies import create
from nova_research.nebulastream.hierarchy import (
    Hierarchy,
    HierarchyParameters,
    derive_hierarchy,
    merge,
    occurrences,
    parent_weight,
    select_paths,
)
from nova_workloads.topology import generate

# --- hierarchies ----------------------------------------------------------------------------------


def test_the_sub_graph_of_a_source_is_everything_between_it_and_the_sink() -> None:
    assert TOPOLOGY.hops(6) == {6: 0, 3: 1, 4: 1, 1: 2, 2: 2, 0: 3}
    assert list(TOPOLOGY.hops(8)) == [8, 5, 2, 0]
    assert TOPOLOGY.hops(0) == {0: 0}


def test_ways_take_the_fewest_hops() -> None:
    uneven = Hierarchy(0, {1: [0], 2: [1], 3: [2, 1]})
    assert uneven.way(3, 0) == [3, 1, 0]
    assert uneven.way(3, 2) == [3, 2]
    assert uneven.way(3, 3) == [3]


def test_what_several_nodes_can_reach() -> None:
    assert TOPOLOGY.common([6, 7]) == [4, 1, 2, 0]
    assert TOPOLOGY.common([6, 4]) == [4, 1, 2, 0]
    assert TOPOLOGY.common([3, 8]) == [0]
    assert TOPOLOGY.common([7]) == [7, 4, 5, 1, 2, 0]


@settings(deadline=None, max_examples=20)
@given(
    family=st.sampled_from(sorted(FAMILIES)),
    seed=st.integers(0, 1000),
    parents=st.integers(1, 4),
    levels=st.integers(1, 6),
)
def test_derived_hierarchies(family: str, seed: int, parents: int, levels: int) -> None:
    problem = FAMILIES[family](seed)
    sink = int(problem.sink_node[0])
    found = derive_hierarchy(problem, sink, HierarchyParameters(parents, levels))
    producing = set(problem.sources.node.tolist())
    assert sink not in found.parents
    assert producing - {sink} <= set(found.parents)
    for node, above in found.parents.items():
        assert 1 <= len(set(above)) == len(above) <= parents
        assert all(p == sink or problem.nodes.worker[p] for p in above)
        # Ends at the sink in few hops, so there is no cycle.
        hops = found.hops(node)
        assert sink in hops
        assert max(hops.values()) <= levels
        assert len(found.way(node, sink)) <= levels + 1


def test_parents_are_the_nearest_relays_within() -> None:
    problem = generate(60, seed=2)
    sink = int(problem.joins.sink[0])
    found = derive_hierarchy(problem, sink, HierarchyParameters(parents=2, levels=3))
    every = np.arange(60)
    distance = problem.distance(every, np.full(60, sink))
    farthest = distance.max()
    relay = problem.nodes.worker & ~np.isin(every, problem.sources.node) & (every != sink)
    for node in set(every.tolist()) - {sink}:
        bound = next((b for b in (0.5, 0.25) if distance[node] > b * farthest), 0.0)
        inner = np.flatnonzero((relay & (distance <= bound * farthest)) | (every == sink))
        from_here = problem.distance(np.full(len(inner), node), inner)
        assert sorted(found.parents[node]) == sorted(inner[np.argsort(from_here)[:2]].tolist())


# --- path selection -------------------------------------------------------------------------------


def test_occurrences_count_the_sub_graphs_a_node_is_in() -> None:
    assert occurrences(TOPOLOGY, STREAM_A) == {0: 2, 1: 2, 2: 2, 3: 1, 4: 2, 5: 1, 6: 1, 7: 1}
    assert occurrences(TOPOLOGY, STREAM_B) == {0: 2, 1: 1, 2: 2, 4: 1, 5: 2, 7: 1, 8: 1}
    assert occurrences(TOPOLOGY, [6, 6])[3] == 2


def test_the_weight_of_a_parent_is_the_mean_occurrence_above_it() -> None:
    counts = occurrences(TOPOLOGY, STREAM_A)
    # From 3 to the sink: 3, 1, 0; from 4: 4, 1, 2, 0; from 5: 5, 2, 0.
    assert parent_weight(TOPOLOGY, counts, 3) == (1 + 2 + 2) / 3
    assert parent_weight(TOPOLOGY, counts, 4) == (2 + 2 + 2 + 2) / 4
    assert parent_weight(TOPOLOGY, counts, 5) == (1 + 2 + 2) / 3


def test_of_several_parents_the_heaviest_stays() -> None:
    # 6 prefers 4 (2) to 3 (5/3), 7 prefers 4 to 5 (5/3); 4 has two of weight 2, the first stays.
    assert select_paths(TOPOLOGY, STREAM_A).parents == {6: (4,), 4: (1,), 1: (0,), 7: (4,)}
    # 7 has 4 with (1 + 1 + 2 + 2) / 4 and 5 with (2 + 2 + 2) / 3.
    assert select_paths(TOPOLOGY, STREAM_B).parents == {7: (5,), 5: (2,), 2: (0,), 8: (5,)}


def test_sub_graphs_of_logical_sources_are_merged() -> None:
    merged = merge([select_paths(TOPOLOGY, STREAM_A), select_paths(TOPOLOGY, STREAM_B)])
    assert merged.sink == 0
    expected = {6: (4,), 7: (4, 5), 8: (5,), 4: (1,), 5: (2,), 1: (0,), 2: (0,)}
    assert merged.parents == expected


def test_a_source_at_the_sink_needs_no_path() -> None:
    assert select_paths(TOPOLOGY, [0]).parents == {}


# --- as strategies --------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["nes-bottom-up", "nes-top-down", "ifcop"])
def test_tuples_travel_along_the_hierarchy(strategy: str) -> None:
    problem = FAMILIES["roomy"](3)
    plan = create(strategy).place(problem)
    found = derive_hierarchy(problem, int(problem.joins.sink[0]), HierarchyParameters())
    assert plan.routes is not None
    for route in np.split(plan.routes.node, plan.routes.offset[1:-1]):
        for node, parent in zip(route[:-1].tolist(), route[1:].tolist(), strict=True):
            assert parent in found.parents[node]


@pytest.mark.parametrize("strategy", ["nes-bottom-up", "nes-top-down", "ifcop"])
@pytest.mark.parametrize("field", ["parents", "levels"])
def test_bad_hierarchies_are_refused(strategy: str, field: str) -> None:
    with pytest.raises(ProblemError, match=f"{field} is 0; expected a whole number >= 1"):
        create(strategy, **{field: 0})


def test_a_join_runs_at_the_first_or_last_node_both_ways_share() -> None:
    # Two sources far out, a relay between them and the sink.
    problem = FAMILIES["smallest"](0)
    position = np.array([[0.0, 0], [90, 3], [90, -3], [30, 0]])
    role = np.array([problem.joins.sink[0], *problem.sources.node])
    relay = int(np.setdiff1d(np.arange(4), role)[0])
    placed = np.empty((4, 2))
    placed[[*role, relay]] = position
    nodes = replace(problem.nodes, position=placed, capacity=np.full(4, 1e6))
    problem = replace(problem, nodes=nodes)
    worker = problem.nodes.worker.copy()
    worker[role[1:]] = False
    problem = replace(problem, nodes=replace(problem.nodes, worker=worker))
    up = create("nes-bottom-up", parents=1).place(problem)
    down = create("nes-top-down", parents=1).place(problem)
    assert up.instances.node.tolist() == [relay]
    assert down.instances.node.tolist() == [role[0]]
