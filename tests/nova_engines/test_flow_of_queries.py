"""Flows of random plans of whole queries: what is where, and what goes on which way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from random_queries import random_problem, random_query_plan

from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan, Routes
from nova_engines.flow import (
    AGGREGATE,
    CUT,
    FILTER,
    JOIN,
    PROJECT,
    RELAY,
    SELECT,
    SINK,
    SOURCE,
    Flow,
    Operator,
)
from nova_engines.flow_of_plan import flow_of


def placed(plan: Plan) -> list[str]:
    """Instances, and where they run."""
    return sorted(
        f"{plan.operator_name(pair)}#{number} on {plan.problem.nodes.ids[node]}"
        for pair, number, node in zip(
            plan.instances.pair.tolist(),
            plan.replica_number.tolist(),
            plan.instances.node.tolist(),
            strict=True,
        )
    )


@pytest.mark.parametrize("seed", range(1, 25))
def test_random_plans(tmp_path: Path, seed: int) -> None:
    problem = random_problem(seed, tmp_path)
    plan = random_query_plan(seed, problem)
    flow = flow_of(plan)
    assert Flow.from_json(flow.to_json()) == flow and flow.has_columns
    known = {one.name: one for one in flow.operators}
    run = [one for one in flow.operators if one.kind in (JOIN, AGGREGATE)]
    assert sorted(
        f"{one.name.removeprefix(f'{one.kind} ')} on {one.node}" for one in run
    ) == placed(plan)
    for one in flow.operators:
        above = [known[name] for name in (*one.inputs, *one.right)]
        assert bool(above) == (one.kind != SOURCE)
        if one.kind in (FILTER, PROJECT, CUT):
            # Where their input is produced, so that nothing else travels.
            assert {each.node for each in above} == {one.node}
        if one.kind == SELECT:
            assert {each.kind for each in above} == {CUT}
            assert {(each.side, each.hashed) for each in above} == {(one.side, one.hashed)}
            check_whole(one, above)
        if one.kind in (JOIN, AGGREGATE):
            # All say which input they are of.
            assert {each.kind for each in above} <= {CUT, SELECT}
            if one.kind == JOIN:
                assert {known[name].side for name in one.inputs} == {0}
                assert {known[name].side for name in one.right} == {1}
    assert [one.query for one in flow.sinks] == [query.id for query in problem.queries]
    fed = {name for one in flow.operators for name in (*one.inputs, *one.right)}
    assert {one.name for one in flow.operators} - fed == {one.name for one in flow.of_kind(SINK)}


def check_whole(select: Operator, cuts: list[Operator]) -> None:
    """What a select passes is in what arrives of each producer."""
    ((low, high),) = zip(select.low, select.high, strict=True)
    for cut in cuts:
        assert any(a <= low and high <= b for a, b in zip(cut.low, cut.high, strict=True))


def test_rows_are_relayed_like_tuples_of_pairs(tmp_path: Path) -> None:
    problem = random_problem(11, tmp_path)
    plan = random_query_plan(11, problem)
    whole = replace(
        plan,
        partitions=Partitions.uncut(plan.graph.input_rate),
        instances=Instances.whole(np.zeros(len(plan.graph.bodies), np.int64)),
    )
    start, stop = whole.ends
    ways = [[a, 2, b] for a, b in zip(start.tolist(), stop.tolist(), strict=True)]
    routes = Routes(np.arange(len(ways) + 1) * 3, np.concatenate(ways))
    direct, relayed = flow_of(whole), flow_of(replace(whole, routes=routes))
    relays = relayed.of_kind(RELAY)
    assert len(relays) == len(ways) and {one.node for one in relays} == {"n_2.x"}
    known = {one.name: one for one in relayed.operators}
    for one in direct.operators:
        now = known[one.name]
        for before, after in zip((*one.inputs, *one.right), (*now.inputs, *now.right), strict=True):
            hop = known[after]
            assert (hop.inputs[0] if hop.kind == RELAY else after) == before


def windowed(*kept: bool, first: int, slide: int, then: int) -> Flow:
    """An aggregate, relayed to a join of tumbling windows with another source."""
    return Flow(
        (
            Operator("a", "n", SOURCE, source="a", types=("int",)),
            Operator("b", "n", SOURCE, source="b", types=("int",)),
            Operator("sum", "n", AGGREGATE, ("a",), window=(first, slide)),
            Operator("way", "n", RELAY, ("sum",)),
            Operator("join", "n", JOIN, ("way",), ("b",), window=(then, then), kept=kept),
            Operator("sink", "n", SINK, ("join",), query="q"),
        )
    )


def test_how_far_windows_reach_across_boundaries() -> None:
    tumbling = windowed(False, False, first=4000, slide=4000, then=6000)
    assert (tumbling.boundary_ms, tumbling.history_ms) == (12_000, 0)
    sliding = windowed(False, False, first=4000, slide=1000, then=6000)
    assert (sliding.boundary_ms, sliding.history_ms) == (12_000, 10_000)
    # Results stay in the window that they are of.
    same = windowed(True, False, first=6000, slide=1000, then=6000)
    assert same.history_ms == 6000


def test_each_query_is_of_one_component(tmp_path: Path) -> None:
    for seed in range(1, 9):
        problem = random_problem(seed, tmp_path)
        flow = flow_of(random_query_plan(seed, problem))
        components = flow.components()
        sources = [one.source for one in flow.of_kind(SOURCE)]
        assert sorted(name for one in components for name in one) == sorted(sources)
        parts = [flow.of_sources(one) for one in components]
        # Each operator is in one part, with all of its inputs.
        operators = [one for part in parts for one in part.operators]
        assert sorted(operators, key=str) == sorted(flow.operators, key=str)
