"""NebulaStream's operator assignment, bottom-up and top-down, followed step by step."""

from __future__ import annotations

import numpy as np
import pytest
from nes_example import (
    FILTER_6,
    FILTER_7,
    QUERY,
    SINK,
    SOURCE_6,
    SOURCE_7,
    STREAM_A,
    TOPOLOGY,
    UNION,
    offering,
)
from problem_families import FAMILIES

from nova_core.errors import InfeasibleError
from nova_core.model.verify import verify
from nova_core.strategies import create
from nova_research.nebulastream.hierarchy import Hierarchy, select_paths
from nova_research.nebulastream.placing import Resources, bottom_up, top_down
from nova_research.operators import Operator, OperatorGraph

# The ways of both sources share 4, 1 and the sink.
PATHS = select_paths(TOPOLOGY, STREAM_A)


def up(**room: float) -> list[int]:
    return bottom_up(PATHS, QUERY, offering(**room))


def down(**room: float) -> list[int]:
    return top_down(PATHS, QUERY, offering(**room))


# --- bottom-up ------------------------------------------------------------------------------------


def test_operators_stay_on_the_node_of_their_input_while_there_is_room() -> None:
    nodes = up(n6=9, n7=9, n4=9, n1=9, n0=9)
    # The union goes to the first node both filters' nodes can reach, not to one of them.
    assert nodes == [6, 6, 7, 7, 4, 0]


def test_without_room_the_next_parent_with_room_takes_the_operator() -> None:
    nodes = up(n6=1, n7=1, n4=0, n1=2, n0=2)
    # Both filters pass 4, which is full, and so does the union with its inputs on 1.
    assert nodes == [6, 1, 7, 1, 0, 0]


def test_the_candidate_for_several_inputs_is_where_their_ways_meet() -> None:
    # The filter of 7 moved up to 4; its input there and 6 meet at 4, which is full then.
    nodes = up(n6=2, n7=1, n4=1, n1=1, n0=1)
    assert nodes == [6, 6, 7, 4, 1, 0]


def test_an_operator_with_several_inputs_waits_for_the_other_source() -> None:
    """Source 7 takes the last room on its own node before the union of 6 asks for it."""
    line = Hierarchy(0, {7: [0], 6: [7]})
    nodes = bottom_up(line, QUERY, offering(n6=2, n7=2, n0=2))
    # Had the union come before source 7 and its filter, it would run on 7.
    assert nodes == [6, 6, 7, 7, 0, 0]


def test_what_is_first_in_the_plan_is_served_first() -> None:
    # Both filters want 4, which has room for one.
    assert up(n6=1, n7=1, n4=1, n1=2, n0=1)[FILTER_6] == 4
    assert up(n6=1, n7=1, n4=1, n1=2, n0=1)[FILTER_7] == 1


@pytest.mark.parametrize(
    ("room", "operator"),
    [
        ({"n7": 9, "n4": 9, "n0": 9}, "source on 6"),
        ({"n6": 9, "n4": 9, "n0": 9}, "source on 7"),
        ({"n6": 9, "n7": 9, "n4": 9}, "the sink"),
    ],
)
def test_a_pinned_operator_without_room_fails_the_placement(
    room: dict[str, float], operator: str
) -> None:
    told = rf"query placement fails: {operator} takes 1, but on the node it is pinned to"
    for assign in (up, down):
        with pytest.raises(InfeasibleError, match=told) as failed:
            assign(**room)
        assert failed.value.missing == 1


def test_no_node_up_to_the_sink_with_room_fails_the_placement() -> None:
    with pytest.raises(InfeasibleError, match="filter of 7 takes 1, but on its way to the sink"):
        up(n6=2, n7=1, n4=0, n1=0, n0=0.5)
    # Room on a node that is not on the way does not help.
    with pytest.raises(InfeasibleError):
        up(n6=2, n7=1, n5=9, n2=9, n3=9, n0=0.5)


# --- top-down -------------------------------------------------------------------------------------


def test_operators_stay_on_the_node_of_their_consumer_while_there_is_room() -> None:
    assert down(n6=9, n7=9, n4=9, n1=9, n0=9) == [6, 0, 7, 0, 0, 0]


def test_without_room_the_next_child_with_room_takes_the_operator() -> None:
    # The sink fills its node; the union goes to 1, the first filter to 4 and the other one to 7.
    assert down(n6=1, n7=2, n4=1, n1=1, n0=1) == [6, 4, 7, 7, 1, 0]


def test_a_child_must_be_on_the_ways_of_all_sources_below() -> None:
    # 6 and 7 have room, but the union needs tuples of both.
    with pytest.raises(InfeasibleError, match="union takes 1, but on its way to the sink"):
        down(n6=9, n7=9, n4=0, n1=0, n0=1)


def test_what_took_the_room_of_a_pinned_source_fails_the_placement() -> None:
    # The union fills 4, so the filter goes on down to 6, where its source then lacks room.
    with pytest.raises(InfeasibleError, match="source on 6 takes 1, but on the node it is pinned"):
        down(n6=1, n7=9, n4=1, n1=0, n0=1)


def test_both_directions_meet_where_only_one_node_has_room() -> None:
    room = {"n6": 2, "n7": 2, "n4": 0, "n1": 1, "n0": 1}
    assert up(**room) == down(**room) == [6, 6, 7, 7, 1, 0]


def test_an_operator_with_several_consumers_waits_for_all_of_them() -> None:
    shared = OperatorGraph(
        [
            Operator("source", "source", node=6, need=1.0),
            Operator("filter", "filter", (0,), need=1.0),
            Operator("left", "filter", (1,), need=1.0),
            Operator("right", "filter", (1,), need=1.0),
            Operator("sink", "sink", (2, 3), node=0, need=1.0),
        ]
    )
    line = Hierarchy(0, {6: [4], 4: [1], 1: [0]})
    # The sink's node takes one of both consumers, the next takes the other; the filter must lead
    # to both, so it cannot run at the sink although there is room for it later.
    assert top_down(line, shared, offering(n6=1, n4=9, n1=1, n0=2)) == [6, 4, 0, 1, 0]
    assert bottom_up(line, shared, offering(n6=2, n4=1, n1=9, n0=2)) == [6, 6, 4, 1, 0]


def test_only_nodes_that_may_host_take_what_is_not_pinned() -> None:
    resources = Resources([9.0] * 9, lambda operator, node: (operator, node) != (UNION, 4))
    assert bottom_up(PATHS, QUERY, resources)[UNION] == 1
    resources = Resources([9.0] * 9, lambda operator, node: node == 4)
    nodes = top_down(PATHS, QUERY, resources)
    assert [nodes[n] for n in (FILTER_6, FILTER_7, UNION)] == [4, 4, 4]
    assert [nodes[n] for n in (SOURCE_6, SOURCE_7, SINK)] == [6, 7, 0]


# --- as strategies --------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["nes-bottom-up", "nes-top-down"])
@pytest.mark.parametrize("family", ["roomy", "many to many", "requirements", "few hosts"])
def test_joins_never_take_more_than_a_node_has(strategy: str, family: str) -> None:
    for seed in range(4):
        problem = FAMILIES[family](seed)
        try:
            plan = create(strategy).place(problem)
        except InfeasibleError as failed:
            assert failed.missing > 0
            continue
        taken = plan.load - plan.relay_load
        assert (taken <= problem.nodes.capacity * (1 + 1e-9)).all()
        report = verify(plan)
        assert not report.counts["requirement"]
        sinks = set(problem.joins.sink.tolist())
        hosts = set(plan.instances.node.tolist())
        assert all(problem.nodes.worker[host] for host in hosts - sinks)


@pytest.mark.parametrize("strategy", ["nes-bottom-up", "nes-top-down"])
def test_a_crowded_problem_fails_with_what_is_lacking(strategy: str) -> None:
    problem = FAMILIES["crowded"](1)
    with pytest.raises(InfeasibleError, match=r"query placement fails: join/.* takes") as failed:
        create(strategy).place(problem)
    need = problem.required_capacity
    assert 0 < failed.value.missing <= need.max()


def test_bottom_up_is_nearer_to_sources_and_top_down_nearer_to_the_sink() -> None:
    problem = FAMILIES["unlimited"](5)
    sink = np.full(len(problem.matrix), problem.joins.sink[0])
    up_node = create("nes-bottom-up").place(problem).instances.node
    down_node = create("nes-top-down").place(problem).instances.node
    assert (problem.distance(down_node, sink) == 0).all()
    assert problem.distance(up_node, sink).mean() > 0
