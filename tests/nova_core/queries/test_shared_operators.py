"""What queries have in common is placed once, and every query has its results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from query_cases import asking, random_queries, topology

from nova_core.errors import InfeasibleError, PlanError
from nova_core.explain import Explainer, find
from nova_core.io.files import read_plan, read_problem, write_plan
from nova_core.io.syntax import dump
from nova_core.model.expansion import Rewriting, graph_of
from nova_core.model.graph import Graph
from nova_core.model.objectives import link_weights
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.model.verify import verify
from nova_core.placement.queries.virtual import virtual_positions
from nova_core.strategies import place

SOME = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NEAR = {"kind": "join", "id": "near", "inputs": ["t0", "t1"], "match": "key", "selectivity": 0.5}
SUM = {"kind": "aggregate", "id": "sum", "input": "near", "by": "key", "window": 1}
STREAMS = {f"t{number}" for number in range(4)}
SHARED, APART = Rewriting(True, True, True), Rewriting(True, True)


def two(one: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"id": "one", "sink": "n0", "operators": list(one)},
        {"id": "two", "sink": "n1", "operators": list(other)},
    ]


def test_a_common_part_is_placed_and_charged_once(tmp_path: Path) -> None:
    problem = topology(3)
    rates = problem.sources.rate[:4].reshape(2, 2)  # of a stream and key
    needed = rates.sum(axis=0) + 0.5 * rates.min(axis=0)
    # A node for each key's join and sum, and no other.
    capacity = np.zeros(len(problem.nodes))
    capacity[[4, 5]] = needed
    problem = asking(problem.with_capacity(capacity), two([NEAR], [NEAR, SUM]))
    with pytest.raises(InfeasibleError):
        place(problem, share_operators=False)
    plan = place(problem)
    assert plan.operator_names().tolist() == [
        "one/near(s0*s2)", "one/near(s1*s3)", "two/sum(k0)", "two/sum(k1)"
    ]  # fmt: skip
    assert sorted(plan.load[[4, 5]]) == pytest.approx(sorted(needed))
    assert verify(plan).ok
    assert plan.query_latency() == pytest.approx(walked(plan))
    for place_of in (tmp_path / "plan.json", tmp_path / "tables"):
        write_plan(plan, place_of)
        assert read_plan(place_of, problem).same_as(plan)
    document = json.loads((tmp_path / "plan.json").read_text())
    ends = [(one["to"], one["sink"]) for one in document["edges"] if "sink" in one]
    assert sorted(ends) == [("n0", "one"), ("n0", "one"), ("n1", "two"), ("n1", "two")]
    # Without the field, nothing is shared, and the plan lacks operators.
    del document["rewriting"]["share_operators"]
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(PlanError) as caught:
        read_plan(tmp_path / "plan.json", problem)
    assert "\n" not in str(caught.value)


def walked(plan: Plan) -> list[float]:
    """Latency of each query of a plan of whole operators, from its sink up, one by one."""
    graph, problem = plan.graph, plan.problem
    node = graph.node.copy()
    node[graph.bodies] = plan.instances.node
    node = node[graph.root]

    def latency(number: int) -> float:
        return max(
            (
                latency(above) + float(problem.distance(node[[above]], node[[number]])[0])
                for above in graph.inputs(number).tolist()
            ),
            default=0.0,
        )

    sinks = {one.query: n for n, one in enumerate(graph) if one.kind == "sink"}
    return [latency(sinks[query]) for query in range(len(problem.queries))]


@pytest.mark.parametrize("seed", range(6))
def test_sharing_never_costs_what_is_made_least(seed: int) -> None:
    """A source's tuples may be at each sink sooner by ways of their own."""
    problem = random_queries(seed)
    plans = [place(problem, objective="source-latency", share_operators=s) for s in (True, False)]
    shared, apart = (plan.objective_value("source-latency") for plan in plans)
    assert shared <= apart * (1 + 1e-9)
    assert verify(plans[0]).honest


HOT = {"kind": "filter", "id": "hot", "input": "t0", "selectivity": 0.5}
WIDE = {"kind": "project", "id": "wide", "input": "t0", "selectivity": 3}
ALL = {"kind": "aggregate", "id": "all", "input": "t0", "output_rate": 4.0}


@pytest.mark.parametrize(
    ("operator", "changes", "same"),
    [
        (HOT, {}, True),
        (HOT, {"selectivity": 0.25}, False),
        (HOT, {"id": "warm"}, False),
        (HOT, {"input": "t1"}, False),
        (WIDE, {}, True),
        (WIDE, {"id": "long"}, False),
        (WIDE, {"selectivity": 2}, False),
        (NEAR, {}, True),
        (NEAR, {"id": "close"}, False),
        (NEAR, {"selectivity": 0.25}, False),
        (NEAR, {"inputs": ["t1", "t0"]}, False),
        (NEAR, {"window": 2}, False),
        (NEAR, {"keys": 7}, False),
        (ALL, {}, True),
        (ALL, {"id": "every"}, False),
        (ALL, {"output_rate": 3.0}, False),
        (ALL, {"groups": 2}, False),
        (ALL, {"decomposable": True}, False),
    ],
)
def test_only_what_is_alike_is_one(
    operator: dict[str, Any], changes: dict[str, Any], same: bool
) -> None:
    problem = asking(topology(1), two([operator], [operator | changes]))
    shared, apart = (graph_of(problem, rewriting) for rewriting in (SHARED, APART))
    own = sum(one.query == 1 for one in apart) - 1  # without the sink
    assert len(apart) - len(shared) == (own if same else 0)
    as_written = graph_of(problem)
    assert len(as_written) == len(graph_of(problem, Rewriting(False, False, False)))


def test_what_emits_at_another_rate_is_another() -> None:
    """A join behind a filter that has moved is estimated by the input before that filter."""
    problem = topology(1)
    rate = np.where(problem.sources.stream == "t0", 60.0, 10.0)
    problem = replace(problem, sources=replace(problem.sources, rate=rate))
    moved = HOT | {"input": "near", "reads": "t0"}
    problem = asking(problem, two([HOT, NEAR | {"inputs": ["hot", "t1"]}], [NEAR, moved]))
    graph = graph_of(problem, SHARED)
    filters = [one.id for one in graph if one.kind == "filter"]
    assert filters == ["one/hot(s0)", "one/hot(s1)"]
    joins = {one.id: one.rate for one in graph if one.kind == "join"}
    assert joins == {
        "one/near(s0*s2)": 5, "one/near(s1*s3)": 5, "two/near(s0*s2)": 2.5, "two/near(s1*s3)": 2.5
    }  # fmt: skip


COLUMNS = """
nova: 1
name: columns
nodes:
  - {id: n0, position: [0, 0], capacity: 500}
  - {id: n1, position: [50, 0], capacity: 500}
sources:
  - {id: a, node: n0, stream: heat, rate: 30}
  - {id: b, node: n1, stream: strain, rate: 20}
streams:
  - {id: heat, columns: {x: int, y: float}}
  - {id: strain, columns: {x: int, z: float}}
"""
WARM = {"kind": "filter", "id": "warm", "input": "heat", "where": "y > 3", "selectivity": 0.5}
BOTH = {
    "kind": "join",
    "id": "both",
    "inputs": ["heat", "strain"],
    "on": "heat.x = strain.x",
    "window": 1,
}
LATE = {"kind": "filter", "id": "late", "input": "both", "where": "heat.y > 3", "reads": "heat"} | {
    "selectivity": 0.5
}
HALF = {"kind": "project", "id": "half", "input": "heat", "columns": {"v": "y / 2", "w": "x"}}
MEAN = {
    "kind": "aggregate",
    "id": "mean",
    "input": "heat",
    "window": 1,
    "compute": {"m": "mean(y)"},
}
ABOVE = {"kind": "join", "id": "above", "inputs": ["mean", "w"], "on": "m < y", "window": 1}


@pytest.mark.parametrize(
    ("one", "other", "saved"),
    [
        ([WARM], [WARM | {"id": "w", "where": "heat.y > 3"}], 1),
        ([WARM], [WARM | {"where": "y > 4"}], 0),
        ([WARM], [WARM | {"selectivity": 0.4}], 0),
        # A filter that moves to its source is the one that stands there.
        ([WARM], [BOTH, LATE], 1),
        ([BOTH], [BOTH | {"id": "pairs"}], 1),
        ([BOTH], [BOTH | {"on": "heat.x < strain.x"}], 0),
        ([BOTH], [BOTH | {"window": 2}], 0),
        ([BOTH], [BOTH | {"hot": [{"values": [1], "left": 0.1, "right": 0.1}], "keys": 9}], 0),
        ([HALF], [HALF], 1),
        # Readers know the columns by this name, and results have them in this order.
        ([HALF], [HALF | {"id": "scaled"}], 0),
        ([HALF], [HALF | {"columns": {"w": "x", "v": "y / 2"}}], 0),
        ([MEAN], [MEAN], 1),
        ([MEAN], [MEAN | {"compute": {"m": "max(y)"}}], 0),
        ([MEAN], [MEAN | {"slide": 0.5}], 0),
        # Everything behind what differs differs.
        ([WARM, BOTH | {"inputs": ["warm", "strain"]}], [BOTH], 0),
        # One query may say the same thing twice.
        ([BOTH], [WARM, WARM | {"id": "w"}, MEAN | {"input": "warm"}, ABOVE], 1),
    ],
)
def test_an_expression_says_what_an_operator_does(
    tmp_path: Path, one: list[dict[str, Any]], other: list[dict[str, Any]], saved: int
) -> None:
    queries = dump({"queries": two(one, other)}, ".yaml")
    (tmp_path / "problem.yaml").write_text(COLUMNS + queries)
    problem = read_problem(tmp_path / "problem.yaml")
    assert len(graph_of(problem, APART)) - len(graph_of(problem, SHARED)) == saved
    plan = place(problem)
    assert verify(plan).ok and plan.query_latency() == pytest.approx(walked(plan))


# --- any queries ----------------------------------------------------------------------------------


@st.composite
def queries_with_common_parts(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Queries that begin alike, or whose operators are of so few kinds that some are alike."""
    common = longer(draw, [], 3)
    queries = []
    for number in range(draw(st.integers(2, 4))):
        begin = common[: draw(st.integers(0, len(common)))]
        queries.append(
            {"id": f"q{number}", "sink": f"n{number}", "operators": longer(draw, begin, 2)}
        )
    return queries


def longer(draw: st.DrawFn, begin: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """A chain of operators with 0 to `most` more, and at least one."""
    operators = list(begin)
    for row in range(len(begin), len(begin) + draw(st.integers(0 if begin else 1, most))):
        last = operators[-1]["id"] if operators else "t0"
        read = {last, *(name for one in operators for name in one.get("inputs", []))}
        selectivity = draw(st.sampled_from([0.25, 0.5]))
        kind = draw(st.sampled_from(["filter", "project", "aggregate", "join", "join"]))
        # What was made of several keys has none.
        keyed = all("all" not in (one.get("match"), one.get("by")) for one in operators)
        keys = "key" if keyed and draw(st.booleans()) else "all"
        one: dict[str, Any] = {"id": f"{kind}-{row}", "kind": kind, "input": last}
        if kind == "join" and (free := sorted(STREAMS - read)):
            del one["input"]
            one |= {"inputs": [last, draw(st.sampled_from(free))]}
            one |= {"selectivity": selectivity, "match": keys}
        elif kind == "aggregate":
            one |= {"by": keys, "window": 1, "groups": draw(st.sampled_from([1, 9]))}
            one |= {"decomposable": draw(st.booleans())}
        elif kind == "project":
            one |= {"selectivity": 8 * selectivity}
        else:
            one |= {"kind": "filter", "selectivity": selectivity}
            if draw(st.booleans()):
                one |= {"reads": "t0"}
        operators.append(one)
    return operators


def signatures(graph: Graph, problem: Problem) -> list[Any]:
    """What each operator emits, spelled out from its sources on."""
    known: list[Any] = []
    for one in graph:
        if not one.logical:
            own: Any = (one.id, one.query)
        else:
            named = {of.id: of for of in problem.queries[one.query].operators}
            fields = msgspec.to_builtins(named[one.logical])
            own = {k: v for k, v in fields.items() if k not in ("input", "inputs", "reads")}
        known.append(repr((one.kind, own, one.rate, one.partial, [known[n] for n in one.inputs])))
    return known


@SOME
@given(
    queries=queries_with_common_parts(),
    seed=st.integers(0, 1000),
    objective=st.sampled_from(["latency", "network-usage", "source-latency"]),
)
def test_sharing_saves_and_changes_no_query(
    tmp_path: Path, queries: list[dict[str, Any]], seed: int, objective: str
) -> None:
    problem = asking(topology(seed, 10), queries)
    plan = place(problem, objective=objective)
    assert verify(plan).ok and (plan.replica_count == 1).all()
    assert plan.query_latency() == pytest.approx(walked(plan))
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json", problem).same_as(plan)
    if not plan.rewriting.share_operators:
        # With this objective, what is shared may cost more.
        assert objective == "source-latency"
        return

    shared = plan.graph
    apart = graph_of(problem, plan.rewriting._replace(share_operators=False))
    emits, emit_apart = signatures(shared, problem), signatures(apart, problem)
    assert sorted(emits) == sorted(set(emit_apart))
    node_of = dict(zip(np.array(emits)[shared.bodies].tolist(), plan.instances.node, strict=True))
    hosts = np.array([node_of[emit_apart[one]] for one in apart.bodies], np.int64)
    as_apart = replace(
        plan,
        rewriting=plan.rewriting._replace(share_operators=False),
        partitions=Partitions.uncut(apart.input_rate),
        instances=Instances.whole(hosts),
        virtual_position=None,
    )
    assert (plan.load <= as_apart.load + 1e-9).all()
    for name in ("network-usage", "latency"):
        assert plan.objective_value(name) <= as_apart.objective_value(name) * (1 + 1e-12)
    if len(emits) < len(emit_apart) and len(apart.bodies) > len(shared.bodies):
        assert plan.load.sum() < as_apart.load.sum()
    assert plan.query_latency() == pytest.approx(as_apart.query_latency())


@SOME
@given(
    queries=queries_with_common_parts(),
    seed=st.integers(0, 1000),
    mean=st.sampled_from([20.0, 60.0, 200.0]),
)
def test_what_is_shared_can_be_cut(
    tmp_path: Path, queries: list[dict[str, Any]], seed: int, mean: float
) -> None:
    capacity = np.floor(np.random.default_rng(seed).exponential(size=10) * mean) + 1
    problem = asking(topology(seed, 10, capacity), queries)
    try:
        plan = place(problem)
    except InfeasibleError:
        return
    assert verify(plan).ok
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json", problem).same_as(plan)
    # Every query receives what it emits in all, whoever shares it.
    graph, links = plan.graph, plan.links
    out = links.consumer < 0
    query = graph.query[graph.links.consumer[links.logical[out]]]
    arrives = np.bincount(query, links.rate[out], graph.queries)
    for number, one in enumerate(graph):
        if one.kind == "sink":
            expected = sum(graph.rate[n] for n in one.inputs)
            assert arrives[graph.query[number]] == pytest.approx(expected)


# --- who reads it ---------------------------------------------------------------------------------


def test_what_a_query_shares_is_explained_with_it() -> None:
    problem = asking(topology(3), two([NEAR], [NEAR, SUM]))
    plan = place(problem)
    names = plan.operator_names().tolist()
    of_two = {names[row] for row in find(plan, "two")}
    assert of_two == {"one/near(s0*s2)", "one/near(s1*s3)", "two/sum(k0)", "two/sum(k1)"}
    assert "two/sum(k0)" not in {names[row] for row in find(plan, "one")}
    shared = Explainer(plan).operator(names.index("one/near(s0*s2)"))
    assert shared.queries == pytest.approx(
        dict(zip(["one", "two"], plan.query_latency().tolist(), strict=True))
    )
    assert {one.name for one in shared.outputs} == {"one/sink", "two/sum(k0)"}


def test_many_queries_may_share_an_operator() -> None:
    """Each of them pulls at it, but not at each other."""
    other = {"kind": "join", "id": "j", "inputs": ["near", "t2"]}
    last = {"kind": "join", "id": "k", "inputs": ["j", "t3"]}
    queries = [
        {
            "id": f"q{n}",
            "sink": f"n{n % 40}",
            "operators": [NEAR, other | {"selectivity": 0.1 + n / 1000}, last],
        }
        for n in range(400)
    ]
    problem = asking(topology(2, 40), queries)
    graph = graph_of(problem, SHARED)
    assert len(graph.bodies) == 2 + 4 * 400
    weight = link_weights(graph, "network-usage")
    # A hundredth of a second; with all of them in one dense matrix, minutes.
    found = virtual_positions(graph, problem.nodes.position, weight)
    assert -1e-12 <= found.gap < 1e-4
