from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import random_plan, workload_of

from nova_core.errors import NovaError
from nova_core.model.edges import edges
from nova_spark.flow import Flow, Input, Join, Piece, Stage, from_plan


@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 2))
@settings(max_examples=40, deadline=None)
def test_every_instance_gets_what_the_plan_gives_it(seed: int, routes: bool, sinks: int) -> None:
    plan = random_plan(seed, routes=routes, sinks=sinks)
    flow = from_plan(plan, plan.problem)
    p, i = plan.problem, plan.instances
    pieces = {piece.instance: (join, piece) for join in flow.joins for piece in join.pieces}
    assert sorted(pieces) == list(range(len(i)))
    for k, (join, piece) in pieces.items():
        pair = i.pair[k]
        assert join.stages[0].node == p.nodes.ids[i.node[k]]
        assert join.left.source == p.sources.ids[p.matrix.left[pair]]
        assert join.right.source == p.sources.ids[p.matrix.right[pair]]
        assert join.left.stages[0].node == p.nodes.ids[p.left_node[pair]]
        assert join.right.stages[0].node == p.nodes.ids[p.right_node[pair]]
        assert join.sink == f"sink {p.nodes.ids[p.sink_node[pair]]}"
        assert piece.left == (i.left_begin[k], i.left_end[k])
        assert piece.right == (i.right_begin[k], i.right_end[k])
        for side, (begin, end) in ((join.left, piece.left), (join.right, piece.right)):
            assert any(a <= begin and end <= b for a, b in side.ranges)
    assert set(flow.nodes) == {stage.node for stage in flow.stages}


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_as_much_is_sent_as_the_plan_counts(seed: int) -> None:
    plan = random_plan(seed)
    flow = from_plan(plan, plan.problem)
    sent = sum(
        sum(one.rates[begin:end])
        for join in flow.joins
        for one in (join.left, join.right)
        for begin, end in one.ranges
    )
    e = edges(plan)
    assert sent == pytest.approx(e.rate[e.leg < 2].sum())


def test_relays_are_on_the_inner_nodes_of_routes() -> None:
    plan = random_plan(7, routes=True)
    flow = from_plan(plan, plan.problem)
    assert plan.routes is not None
    nodes = plan.problem.nodes.ids
    relays = 0
    for join in flow.joins:
        for piece in join.pieces:
            for leg, part in enumerate((join.left, join.right, join)):
                row = 3 * piece.instance + leg
                begin, end = plan.routes.offset[row : row + 2].tolist()
                route = nodes[plan.routes.node[begin:end]].tolist()
                assert [stage.node for stage in part.stages] == route[: max(1, len(route) - 1)]
                relays += max(0, len(route) - 2)
    assert relays


def test_a_flow_survives_json() -> None:
    plan = random_plan(3, routes=True, sinks=2)
    flow = from_plan(plan, plan.problem)
    assert Flow.from_json(flow.to_json()) == flow
    with pytest.raises(NovaError, match="flow: unknown field 'jions'"):
        Flow.from_json('{"jions": []}')


def test_what_cannot_be_is_refused() -> None:
    plan, other = random_plan(1), random_plan(2)
    with pytest.raises(NovaError, match="problem"):
        from_plan(plan, other.problem)
    workload = workload_of(plan.problem, 0, seconds=1, window_ms=10)
    fewer = type(workload)(workload.sources[1:], 10, 0)
    with pytest.raises(NovaError, match="source 'pressure-0' is not there"):
        from_plan(plan, plan.problem, fewer)
    side = Input("a", (Stage("source a", "n"),), (1.0,), ((0, 1),))
    join = Join(side, side, (Stage("join", "n"),), (Piece(0, (0, 1), (0, 1)),), "sink n")
    with pytest.raises(NovaError, match="no sink is called 'sink n'"):
        Flow((join,), (), ("join",))
    with pytest.raises(NovaError, match="stage 'source a' is there twice"):
        Flow((join,), (Stage("sink n", "n"),), ("join",))


def test_numbers_are_plain_and_not_numpy() -> None:
    plan = random_plan(4)
    flow = from_plan(plan, plan.problem)
    piece = flow.joins[0].pieces[0]
    assert type(piece.instance) is int
    assert not isinstance(piece.left[0], np.integer)
