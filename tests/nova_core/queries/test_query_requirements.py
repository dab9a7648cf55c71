"""Operators of queries that ask for hosts with tags or memory."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from query_cases import asking, chain, document, topology

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.evaluation import evaluate
from nova_core.explain import Explainer
from nova_core.io.files import read_problem, write_problem
from nova_core.io.validation import validate_problem
from nova_core.left_out import left_out
from nova_core.model.expansion import Rewriting, graph_of
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.model.verify import verify
from nova_core.strategies import names, place

SOME = settings(max_examples=25, deadline=None)
GPU: dict[str, Any] = {"tags": ["gpu"]}
CHOICES: list[dict[str, Any] | None] = [
    None, GPU, {"tags": ["gpu", "arm64"]}, {"memory": 4e9}, {"tags": ["arm64"], "memory": 1e9}
]  # fmt: skip


def tagged(problem: Problem, seed: int) -> Problem:
    """The same problem with tags and memory; node 1 has everything."""
    rng, count = np.random.default_rng(seed), len(problem.nodes)
    gpu, arm = rng.random((2, count)) < 0.5
    gpu[1] = arm[1] = True
    tags = np.array(["", "gpu", "arm64", "gpu,arm64"])[gpu + 2 * arm]
    memory = rng.choice([np.nan, 1e9, 8e9], count)
    memory[1] = 8e9
    return replace(problem, nodes=replace(problem.nodes, tags=tags, memory=memory))


def demanding(seed: int, mean: float, requires: list[dict[str, Any] | None]) -> Problem:
    """Scarce capacity, and two queries of a chain each whose operators require something."""
    capacity = np.floor(np.random.default_rng(seed).exponential(size=10) * mean) + 1
    capacity[1] += mean
    queries = copy.deepcopy([*chain(), *chain(reads=False)])
    queries[1] |= {"id": "p", "sink": "n3"}
    for query in queries:
        for operator, asked in zip(query["operators"], requires, strict=True):
            operator.update({} if asked is None else {"requires": asked})
    return asking(tagged(topology(seed, 10, capacity), seed), queries)


def has(problem: Problem, node: int, requires: Any) -> bool:
    """Whether a node has what a document says under `requires`."""
    nodes, asked = problem.nodes, requires or {}
    assert nodes.tags is not None and nodes.memory is not None
    return set(asked.get("tags", [])) <= set(nodes.tags[node].split(",")) and not (
        asked.get("memory", 0) > 0 and not nodes.memory[node] >= asked["memory"]
    )


def assert_all_run_where_they_may(plan: Plan, requires: list[dict[str, Any] | None]) -> None:
    """Of bodies every instance, and of what runs with others the nodes of that."""
    graph, i = plan.graph, plan.instances
    asked = dict(zip(["hot", "ab", "abc", "late", "mean"], requires, strict=True))
    assert graph.logical is not None
    for number, (logical, root) in enumerate(zip(graph.logical, graph.root.tolist(), strict=True)):
        nodes = i.node[i.pair == graph.body_of[root]].tolist()
        if graph.node[root] >= 0:
            nodes = [int(graph.node[root])]
        for node in nodes if logical else ():
            assert has(plan.problem, node, asked[logical]), graph.ids[number]


@SOME
@given(
    seed=st.integers(0, 10_000),
    mean=st.sampled_from([20.0, 60.0, 300.0]),
    on_full=st.sampled_from(["expand", "spread"]),
    share=st.booleans(),
    requires=st.lists(st.sampled_from(CHOICES), min_size=5, max_size=5),
)
def test_operators_and_their_pieces_run_only_where_they_may(
    seed: int, mean: float, on_full: str, share: bool, requires: list[dict[str, Any] | None]
) -> None:
    problem = demanding(seed, mean, requires)
    try:
        plan = place(problem, on_full=on_full, share_operators=share)
    except InfeasibleError as error:
        assert on_full == "expand" and error.missing > 0
        return
    report = verify(plan)
    assert report.counts["requirement"] == 0
    assert report.ok or (on_full == "spread" and report.honest), report.violations
    assert_all_run_where_they_may(plan, requires)


def able_to_place(requires: dict[str, Any] | None = None) -> Problem:
    """Two joins and a filter; node 1 alone has a GPU, and it is far away."""
    problem = topology(4, 6)
    nodes = problem.nodes
    position = nodes.position.copy()
    position[1] = 900.0, 900.0
    tags = np.where(np.arange(6) == 1, "gpu", "")
    problem = replace(problem, nodes=replace(nodes, position=position, tags=tags))
    asked = {} if requires is None else {"requires": requires}
    return asking(
        problem,
        document(
            {"kind": "join", "id": "ab", "inputs": ["t0", "t1"], **asked},
            {"kind": "filter", "id": "some", "input": "ab", "selectivity": 0.5},
            {"kind": "join", "id": "abc", "inputs": ["some", "t2"]},
        ),
    )


def test_strategies_keep_requirements_or_say_that_they_do_not() -> None:
    for name in names():
        try:
            plan = place(able_to_place(GPU), name)
        except InfeasibleError:
            # NebulaStream looks on the ways to the sink alone.
            assert name.startswith("nes-")
            continue
        report = verify(plan)
        if "requirement" not in plan.breaks:
            assert report.counts["requirement"] == 0
            bodies = [plan.operator_name(int(row)) for row in plan.instances.pair]
            nodes = dict(zip(bodies, plan.instances.node.tolist(), strict=True))
            assert {nodes["q/ab(s0*s2)"], nodes["q/ab(s1*s3)"]} == {1}, name
        assert report.honest


def test_only_what_is_required_costs() -> None:
    cost = [
        evaluate(place(able_to_place(asked))).estimated.mean for asked in (None, {"tags": []}, GPU)
    ]
    assert cost[0] == cost[1] < cost[2]


def filters(*requires: dict[str, Any] | None, gpu: list[int]) -> Problem:
    """Filters in a row behind the sources of t0; some nodes have a GPU."""
    problem = topology(1, 6)
    tags = np.where(np.isin(np.arange(6), gpu), "gpu", "")
    problem = replace(problem, nodes=replace(problem.nodes, tags=tags))
    row = [
        {"kind": "filter", "id": f"f{n}", "input": f"f{n - 1}" if n else "t0", "selectivity": 0.5}
        | ({} if asked is None else {"requires": asked})
        for n, asked in enumerate(requires)
    ]
    return asking(problem, document(*row))


def test_a_filter_runs_with_what_it_reads_where_that_has_what_it_requires() -> None:
    sources = topology(1, 6).sources.node[:2].tolist()
    assert len(set(sources)) == 2
    everywhere = graph_of(filters(GPU, GPU, gpu=sources))
    assert len(everywhere.bodies) == 0
    # Of one source alone: what reads the other is placed, and the next filter runs with it.
    one = filters(None, GPU, GPU, {"tags": ["gpu", "big"]}, None, gpu=[sources[0], 5])
    graph = graph_of(one)
    assert [graph.ids[n] for n in graph.bodies] == ["q/f1(s1)", "q/f3(s0)", "q/f3(s1)"]
    assert graph.ids[graph.root[list(graph.ids).index("q/f2(s1)")]] == "q/f1(s1)"
    assert graph.required[graph.bodies[0]] == one.sources.rate[1] / 2
    assert verify(place(filters(GPU, None, gpu=[sources[0], 5]))).ok


def test_a_filter_that_is_placed_by_itself_can_be_cut() -> None:
    problem = filters(GPU, gpu=[])
    others = np.setdiff1d(np.arange(6), problem.sources.node[:2])
    problem = filters(GPU, gpu=others.tolist())
    rate = problem.sources.rate[:2]
    plan = place(problem.with_capacity(np.full(6, rate.max() * 0.7)))
    assert verify(plan).ok
    assert np.isin(plan.instances.node, others).all()
    (answer,) = Explainer(plan).explain(f"q/f0(s{np.argmax(rate)})")[0]
    assert "each piece takes a share of the tuples" in answer.reasons


def test_only_operators_of_equal_requirements_are_one() -> None:
    def shared(*requires: dict[str, Any] | None) -> int:
        queries = [
            {"id": f"q{n}", "sink": "n0", "operators": [
                {"kind": "join", "id": "ab", "inputs": ["t0", "t1"], "match": "key"}
                | ({} if asked is None else {"requires": asked})
            ]}
            for n, asked in enumerate(requires)
        ]  # fmt: skip
        problem = asking(tagged(topology(2), 2), queries)
        return len(graph_of(problem, Rewriting(share_operators=True)).bodies)

    assert shared(GPU, GPU) == 2  # one for each key
    assert shared(None, {"tags": []}) == 2
    assert shared({"tags": ["gpu", "arm64"]}, {"tags": ["arm64", "gpu"]}) == 2
    assert shared(GPU, None) == 4
    assert shared(GPU, {"memory": 1}) == 4


def test_what_no_node_has_is_said() -> None:
    asked = able_to_place({"tags": ["tpu"]})
    said = r"there is no worker with tag tpu, which operators that need \d+ tuples/s require"
    for on_full in ("expand", "spread"):
        with pytest.raises(InfeasibleError, match=said):
            place(asked, on_full=on_full)


def test_who_has_no_room_is_said() -> None:
    problem = able_to_place(GPU)
    capacity = np.where(np.arange(6) == 1, 1.0, 1e6)
    problem = problem.with_capacity(capacity)
    said = r"tuples/s are missing \(no node with tag gpu has room\); add capacity"
    with pytest.raises(InfeasibleError, match=said):
        place(problem)
    plan = place(problem, on_full="spread")
    assert verify(plan).honest and plan.load[1] > 1.0


def test_too_many_different_requirements_are_refused() -> None:
    queries = [
        {
            "id": f"q{n}",
            "sink": "n0",
            "operators": [
                {"kind": "join", "id": "j", "inputs": ["t0", "t1"], "requires": {"memory": n + 1}}
            ],
        }
        for n in range(64)
    ]
    problem = topology(0, 80)
    memory = np.arange(80.0)
    problem = replace(problem, nodes=replace(problem.nodes, memory=memory))
    with pytest.raises(ProblemError, match="63 different requirements; at most 62"):
        place(asking(problem, queries))


def test_explanations_say_what_a_node_lacks() -> None:
    explainer = Explainer(place(able_to_place(GPU)))
    answer = explainer.explain("ab")[0][0]
    verdicts = {one.node: one.verdict for one in answer.candidates}
    assert verdicts.pop("n1") == "chosen"
    assert set(verdicts.values()) == {"no node with tag gpu"}
    assert answer.reasons == (
        "may run on a node with tag gpu only: 1 of 6 workers",
        "the plan may break on purpose: link",
        "not cut: it runs whole on one node",
        "n1 is the cheapest of 1 workers with tag gpu",
    )
    # What may not run there would gain nothing by it.
    assert not any("/ab(" in one.operator for one in explainer.node(0).wishes)


def test_nodes_that_no_operator_may_run_on_are_not_left_out() -> None:
    problem = asking(
        able_to_place(), document({"kind": "join", "id": "ab", "inputs": ["t0", "t1"]}
                                  | {"requires": GPU})
    )  # fmt: skip
    tags = np.where(np.arange(6) % 2 == 1, "gpu", "")
    worker = np.array([True, True, True, True, False, False])
    problem = replace(problem, nodes=replace(problem.nodes, tags=tags, worker=worker))
    found = left_out(place(problem))
    assert found is not None and found.nodes == ("n5",)


def test_documents_say_what_operators_require(tmp_path: Path) -> None:
    problem = validate_problem(demanding(7, 300.0, [GPU, None, CHOICES[4], None, CHOICES[3]]))
    for name in ("p.json", "p.yaml", "tables"):
        write_problem(problem, tmp_path / name)
        again = read_problem(tmp_path / name)
        assert again.same_as(problem)
        assert graph_of(again).requirements.rules == graph_of(problem).requirements.rules


@pytest.mark.parametrize(
    ("requires", "said"),
    [
        ({"tags": ["g,u"]}, "operators[0].requires.tags of 'ab': 'g,u' is no tag"),
        ({"tags": ["a\nb"]}, "operators[0].requires.tags of 'ab': 'a\\nb' is no tag"),
        ({"memory": -1}, "requires.memory"),
        ({"tag": ["gpu"]}, "did you mean 'tags'?"),
    ],
)
def test_bad_requirements_are_refused(requires: dict[str, Any], said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        graph_of(able_to_place(requires))
    assert said in str(caught.value) and "\n" not in str(caught.value)
