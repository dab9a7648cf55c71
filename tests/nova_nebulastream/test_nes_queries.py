from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from nes_plans import moved, nes_plan
from nes_queries import forward_plan

from nova_core.errors import NovaError
from nova_core.model import Plan
from nova_engines.documents import from_json, to_json
from nova_engines.flow import AGGREGATE, JOIN, RELAY, SOURCE, Match
from nova_engines.flow_of_plan import flow_of
from nova_nebulastream.queries import Query, queries

MATCH = Match(1000, 10, 2)


def of_pairs(plan: Plan) -> list[Query]:
    return queries(flow_of(plan, MATCH))


@pytest.mark.parametrize("routes", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_every_join_is_a_query_with_the_ways_of_its_data(seed: int, routes: bool) -> None:
    plan = nes_plan(seed, routes=routes)
    flow = flow_of(plan, MATCH)
    found = queries(flow)
    assert [one.result for one in found if one.sink] != []
    joins = {one.name: one for one in flow.joins}
    for query in found:
        (join,) = (one for one in query.top.walk() if one.kind == JOIN)
        assert query.placed == (joins[join.name].node,)
        assert {one.source for one in query.inputs} == {
            one.source for one in flow.of_kind(SOURCE) if one.name in below(query)
        }
        # From every source to the sink there is a way over the query's links.
        for one in query.inputs:
            reached, links = {one.node}, set(query.links)
            while more := {b for a, b in links if a in reached} - reached:
                reached |= more
            assert query.top.node in reached
        relays = {one.name for one in flow.of_kind(RELAY)}
        passed = {name for step in query.top.walk() for kind, name, _ in step.passes}
        assert routes or not relays & passed
    assert {join for query in found for join in below(query) if join in joins} == set(joins)


def below(query: Query) -> set[str]:
    return {step.name for step in query.top.walk()}


def test_the_text_of_a_pair() -> None:
    plan = moved(nes_plan(0), 5)
    whole = next(one for one in of_pairs(plan) if "18446" not in one.sql)
    assert re.sub(r"\d{19,}", "N", whole.sql).startswith(
        "SELECT start AS window_start, S_0 AS left_sequence, E_0 AS left_emitted, "
        "V_0 AS left_value, S_1 AS right_sequence, E_1 AS right_emitted, V_1 AS right_value "
        "FROM (SELECT * FROM (SELECT T_0, S_0, E_0, V_0, (S_0 % UINT64(10)) AS K_0 "
    )
    assert "(((S_0 % UINT64(10)) % UINT64(2)) = UINT64(0))" in whole.sql
    assert " ON K_0 = K_1\n WINDOW TUMBLING (T_0, T_1, SIZE 1000 MS))" in whole.sql
    assert whole.sql.endswith(f" INTO {whole.name};\n")


def test_data_that_comes_back_is_refused() -> None:
    """A source beside the sink and a join elsewhere: the topology would have a cycle."""
    plan = nes_plan(0)
    problem = replace(plan.problem, joins=replace(plan.problem.joins, sink=np.array([0])))
    plan = moved(replace(plan, problem=problem), 5)
    with pytest.raises(NovaError, match=r"climate/p/1\*select#0: data would go around \(.*n 5.*\)"):
        of_pairs(plan)
    assert of_pairs(moved(plan, 0))


@pytest.mark.parametrize("seed", range(12))
def test_whole_queries_have_every_operator_of_the_flow(seed: int, tmp_path: Path) -> None:
    flow = flow_of(forward_plan(seed, tmp_path))
    try:
        found = queries(flow, exact=True)
    except NovaError as error:
        # What the docs name.
        assert any(why in str(error) for why in ("tuples and partial results", "so many pieces"))
        return
    assert from_json(to_json(tuple(found)), tuple[Query, ...], "queries") == tuple(found)
    assert [one.sink for one in found] == [one.name for one in flow.sinks]
    nodes = flow.placement
    for query in found:
        for step in query.top.walk():
            assert not step.name or nodes[step.name] == step.node
            for kind, name, node in step.passes:
                assert kind == "select" or nodes[name] == node
        kinds = [one.kind for one in query.top.walk() if one.kind in (JOIN, AGGREGATE)]
        assert len(query.placed) == len(kinds)
        # No field has two meanings: every stream has a number of its own.
        made = [name for one in query.inputs for name, _ in one.fields]
        assert len(made) == len(set(made))
        assert query.sql.count("(") == query.sql.count(")")
