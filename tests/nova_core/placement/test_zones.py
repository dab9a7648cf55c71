"""Zones of nodes: where tuples, and what is made of them, may be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import synthetic_problem

from nova_core.errors import InfeasibleError, ProblemError, ProblemWarning
from nova_core.explain import Explainer
from nova_core.io.files import read_problem, write_problem
from nova_core.io.problem_document import queries_of
from nova_core.io.syntax import dump
from nova_core.io.validation import validate_problem
from nova_core.model import Joins, Problem
from nova_core.model.expansion import graph_of
from nova_core.model.requirements import Asks, ZonesPart
from nova_core.model.verify import verify
from nova_core.strategies import place

SOME = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
ZONES = np.array(["eu", "us", "cn", ""])
PARTS: list[dict[str, list[str]] | None] = [
    None, {"allow": ["eu"]}, {"allow": ["eu", "us"]}, {"forbid": ["us"]}, {"forbid": ["cn", "us"]}
]  # fmt: skip
CHOICES = st.sampled_from(PARTS)
GROUPS = 4


def may_be(zone: str, *parts: dict[str, list[str]] | None) -> bool:
    """Whether a zone is in all that is allowed, and in nothing that is forbidden."""
    return all(
        part is None or (zone in part.get("allow", [zone]) and zone not in part.get("forbid", []))
        for part in parts
    )


def zones_of(streams: dict[str, dict[str, list[str]] | None]) -> dict[str, ZonesPart]:
    return {name: ZonesPart(**part) for name, part in streams.items() if part is not None}


def pinned_to(problem: Problem, *nodes: Any) -> Problem:
    """The same problem; what is pinned, and node 1, is in zone eu, other nodes anywhere."""
    zone = ZONES[np.random.default_rng(len(problem.nodes)).integers(0, 4, len(problem.nodes))]
    zone[np.concatenate([np.atleast_1d(one) for one in (*nodes, 1)])] = "eu"
    return replace(problem, nodes=replace(problem.nodes, zone=zone))


def pairs_with(seed: int, headroom: float, parts: list[dict[str, list[str]] | None]) -> Problem:
    """Four logical joins with zones of their own, over streams with zones."""
    problem = synthetic_problem(seed, nodes=40, joins=24, headroom=headroom)
    names = np.array([f"j{i}" for i in range(GROUPS)])
    asks = [Asks() if part is None else Asks(zones=ZonesPart(**part)) for part in parts[:GROUPS]]
    joins = Joins(
        names,
        np.repeat("left", GROUPS),
        np.repeat("right", GROUPS),
        np.zeros(GROUPS, np.int64),
        asks=tuple(asks) if any(parts[:GROUPS]) else None,
    )
    problem = replace(
        problem,
        joins=joins,
        matrix=replace(problem.matrix, join=np.arange(24) % GROUPS),
        zones=zones_of({"left": parts[4], "right": parts[5]}),
    )
    return validate_problem(pinned_to(problem, problem.sources.node, 0))


@SOME
@given(
    seed=st.integers(0, 10_000),
    headroom=st.sampled_from([1.2, 2.0, 6.0]),
    on_full=st.sampled_from(["expand", "spread"]),
    refine=st.booleans(),
    index=st.sampled_from(["capacity-tree", "kdtree"]),
    parts=st.lists(CHOICES, min_size=6, max_size=6),
)
def test_pairs_and_their_pieces_stay_in_their_zones(
    tmp_path: Path,
    seed: int,
    headroom: float,
    on_full: str,
    refine: bool,
    index: str,
    parts: list[dict[str, list[str]] | None],
) -> None:
    problem = pairs_with(seed, headroom, parts)
    for name in ("p.json", "p.yaml", "tables"):
        write_problem(problem, tmp_path / name)
        assert read_problem(tmp_path / name).same_as(problem)
    try:
        plan = place(problem, on_full=on_full, refine=refine, index=index)
    except InfeasibleError as error:
        assert on_full == "expand" and error.missing > 0
        return
    report = verify(plan)
    assert report.ok or (on_full == "spread" and report.honest), report.violations
    assert problem.nodes.zone is not None
    for pair, node in zip(plan.instances.pair, plan.instances.node, strict=True):
        own = parts[int(problem.matrix.join[pair])]
        assert may_be(str(problem.nodes.zone[node]), own, parts[4], parts[5])


def queries_with(seed: int, mean: float, parts: list[dict[str, list[str]] | None]) -> Problem:
    """A filter, two joins, a filter that moves, an aggregate and a filter behind it, twice."""
    rng = np.random.default_rng(seed)
    base = synthetic_problem(seed, nodes=14, joins=3, headroom=4.0)
    names = ["hot", "ab", "abc", "late", "mean", "rest"]

    def with_zones(name: str, operator: dict[str, Any]) -> dict[str, Any]:
        part = parts[names.index(name)]
        return {"id": name, **operator} | ({} if part is None else {"zones": part})

    operators = [
        with_zones("hot", {"kind": "filter", "input": "a", "selectivity": 0.5}),
        with_zones("ab", {"kind": "join", "inputs": ["hot", "b"], "match": "key"}),
        with_zones("abc", {"kind": "join", "inputs": ["ab", "c"], "match": "key"}),
        with_zones("late", {"kind": "filter", "input": "abc", "selectivity": 0.4, "reads": "b"}),
        with_zones("mean", {"kind": "aggregate", "input": "late", "window": 1, "groups": 4,
                            "decomposable": True}),
        with_zones("rest", {"kind": "filter", "input": "mean", "selectivity": 0.5}),
    ]  # fmt: skip
    sources = replace(
        base.sources,
        stream=np.repeat(["a", "b", "c"], 2),
        key=np.tile(["x", "y"], 3),
        rate=rng.integers(5, 60, 6).astype(float),
    )
    none = np.empty(0, np.int64)
    problem = replace(
        base.with_capacity(np.floor(rng.exponential(size=14) * mean) + 1),
        sources=sources,
        joins=Joins(*[np.empty(0, np.str_)] * 3, none),
        matrix=replace(base.matrix, join=none, left=none, right=none, output_rate=np.empty(0)),
        links=base.links,
        latency=None,
        queries=queries_of(
            [
                {"id": "q", "sink": "n0", "operators": operators},
                {"id": "p", "sink": "n2", "operators": operators[:3]},
            ]
        ),
        zones=zones_of({"a": parts[6], "b": parts[7], "c": parts[8]}),
    )
    return validate_problem(pinned_to(problem, sources.node, 2))


# Streams whose tuples reach each operator as it is written; `late` moves to where `b` is read.
REACH = {"hot": "a", "ab": "ab", "abc": "abc", "late": "b", "mean": "abc", "rest": ""}


@SOME
@given(
    seed=st.integers(0, 10_000),
    mean=st.sampled_from([20.0, 60.0, 300.0]),
    on_full=st.sampled_from(["expand", "spread"]),
    split=st.booleans(),
    parts=st.lists(CHOICES, min_size=9, max_size=9),
)
def test_queries_and_their_pieces_stay_in_their_zones(
    tmp_path: Path,
    seed: int,
    mean: float,
    on_full: str,
    split: bool,
    parts: list[dict[str, list[str]] | None],
) -> None:
    problem = queries_with(seed, mean, parts)
    for name in ("p.json", "p.yaml", "tables"):
        write_problem(problem, tmp_path / name)
        assert read_problem(tmp_path / name).same_as(problem)
    try:
        plan = place(problem, on_full=on_full, split_aggregates=split)
    except InfeasibleError as error:
        assert on_full == "expand" and error.missing > 0
        return
    report = verify(plan)
    assert report.ok or (on_full == "spread" and report.honest), report.violations
    graph, i = plan.graph, plan.instances
    assert graph.logical is not None and problem.nodes.zone is not None
    stream = dict(zip("abc", parts[6:], strict=True))
    for number, (name, root) in enumerate(zip(graph.logical, graph.root.tolist(), strict=True)):
        if not name:
            continue
        nodes = i.node[i.pair == graph.body_of[root]]
        own = parts[list(REACH).index(name)]
        for node in [graph.node[root]] if graph.node[root] >= 0 else nodes:
            zone = str(problem.nodes.zone[node])
            assert may_be(zone, own, *(stream[one] for one in REACH[name])), graph.ids[number]


PAIR = {"id": "j", "left": "L", "right": "R", "sink": "paris", "selectivity": 0.1}
PAIRS: dict[str, Any] = {
    "nova": 1,
    "nodes": [
        {"id": "berlin", "capacity": 39, "position": [0, 0], "zone": "eu"},
        {"id": "paris", "capacity": 39, "position": [9, 0], "zone": "eu"},
        {"id": "boston", "capacity": 500, "position": [1, 0], "zone": "us"},
        {"id": "sea", "capacity": 500, "position": [1, 1]},
    ],
    "sources": [
        {"id": "l", "node": "berlin", "stream": "L", "rate": 20},
        {"id": "r", "node": "sea", "stream": "R", "rate": 20},
    ],
    "query": {"operators": [PAIR]},
    "streams": [{"id": "L", "zones": {"allow": ["eu"]}}],
}
JOIN = {"id": "j", "kind": "join", "inputs": ["L", "R"], "selectivity": 0.1}
SUM = {"id": "n", "kind": "aggregate", "input": "j", "window": 1}
QUERIES = {name: part for name, part in PAIRS.items() if name != "query"} | {
    "queries": [{"id": "q", "sink": "paris", "operators": [JOIN]}]
}


def read(tmp_path: Path, document: dict[str, Any], **change: Any) -> Problem:
    (tmp_path / "p.yaml").write_text(dump(document | change, ".yaml"))
    return read_problem(tmp_path / "p.yaml")


@pytest.mark.parametrize("document", [PAIRS, QUERIES])
def test_a_cut_join_stays_in_its_zone_and_is_explained(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    problem = read(tmp_path, document)
    plan = place(problem)
    assert verify(plan).ok
    assert set(plan.instances.node.tolist()) == {0, 1}
    answer = Explainer(plan).operator(0)
    verdicts = {one.node: one.verdict for one in answer.candidates}
    assert verdicts["boston"] == verdicts["sea"] == "no node of zone eu"
    assert answer.reasons[0] == "may run on a node of zone eu only: 2 of 4 workers"
    assert any("no worker of zone eu takes 40 tuples/s" in one for one in answer.reasons)
    moved = replace(plan, instances=replace(plan.instances, node=plan.instances.node + 2))
    report = verify(moved)
    assert report.counts["requirement"] == len(plan.instances) and not report.honest
    texts = [one.text for one in report.violations if one.constraint == "requirement"]
    assert any("runs on boston, which is no node of zone eu" in text for text in texts)


@pytest.mark.parametrize("document", [PAIRS, QUERIES])
def test_what_finds_no_room_is_said_with_its_zone(tmp_path: Path, document: dict[str, Any]) -> None:
    nodes = [one | ({"capacity": 9} if "zone" in one else {}) for one in document["nodes"]]
    problem = read(tmp_path, document, nodes=nodes)
    said = r"are missing \(no node of zone eu has room\); add capacity"
    with pytest.raises(InfeasibleError, match=said):
        place(problem)
    spread = place(problem, on_full="spread")
    assert verify(spread).honest and spread.load[2:].sum() == 0
    nodes = [one | {"worker": one.get("zone") != "eu"} for one in document["nodes"]]
    problem = read(tmp_path, document, nodes=nodes)
    with pytest.raises(InfeasibleError, match="there is no worker of zone eu, which operators"):
        place(problem, on_full="spread")


def test_what_an_aggregate_emits_is_new(tmp_path: Path) -> None:
    last = {"id": "f", "kind": "filter", "input": "n", "zones": {"forbid": ["eu"]}}
    query = {"id": "q", "sink": "boston", "operators": [JOIN, SUM, last | {"selectivity": 0.5}]}
    nodes = [one | {"capacity": 500} for one in QUERIES["nodes"]]
    plan = place(read(tmp_path, QUERIES, queries=[query], nodes=nodes))
    zones = dict(zip(plan.operator_names().tolist(), plan.instances.node.tolist(), strict=True))
    assert {zones["q/j(l*r)"], zones["q/n"]} <= {0, 1}
    # The filter may not run with the aggregate, and is placed by itself.
    assert zones["q/f(n)"] in {2, 3}


def test_rules_of_streams_and_operators_add_up(tmp_path: Path) -> None:
    def rule(left: Any, right: Any, own: Any = None, **change: Any) -> str:
        parts = (("L", left), ("R", right))
        join = PAIR | ({} if own is None else {"zones": own})
        problem = read(
            tmp_path, PAIRS, query={"operators": [join | change]},
            streams=[{"id": name, "zones": part} for name, part in parts if part is not None],
            sources=[one | {"node": "berlin"} for one in PAIRS["sources"]],
        )  # fmt: skip
        return str(graph_of(problem).requirements.text(int(graph_of(problem).requirement[2])))

    eu, us = {"allow": ["eu"]}, {"forbid": ["us"]}
    assert rule(None, None) == ""
    assert rule(eu, us) == rule(us, eu) == rule(None, None, eu) == "of zone eu"
    assert rule(us, {"forbid": ["cn"]}) == "outside of zone cn and us"
    assert rule({"allow": ["eu", "us"]}, None, us) == "of zone eu"
    assert rule({"allow": ["eu", "uk"]}, None, requires={"tags": ["gpu"]}) == (
        "of zone eu or uk with tag gpu"
    )
    nowhere = "of a zone that all its inputs may be in"
    assert rule(eu, None, {"allow": ["us"]}) == nowhere


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"query": {"operators": [PAIR | {"sink": "boston"}]}},
            "query.operators[0].sink of 'j': 'boston' is in zone us, but tuples of stream 'L' are "
            "there, which need a node of zone eu",
        ),
        (
            {"sources": [PAIRS["sources"][0] | {"node": "sea"}, PAIRS["sources"][1]]},
            "sources[0].node of 'l': 'sea' is in no zone, but tuples of stream 'L' are there, "
            "which need a node of zone eu",
        ),
        ({"streams": [{"id": "M", "zones": {}}]}, "streams[0].id: unknown stream 'M'"),
        ({"streams": PAIRS["streams"] * 2}, "streams[1].id: 'L' is there twice"),
        ({"streams": [{"id": "L", "key": "k"}]}, "streams[0].key of 'L': columns are missing"),
        (
            {"streams": [{"id": "L", "columns": {"v": "int"}}]},
            "streams: only `queries` can use their columns",
        ),
        ({"streams": [{"id": "L", "zones": {"allow": []}}]}, "zones.allow: [] is not accepted"),
        ({"streams": [{"id": "L", "zones": {"deny": ["eu"]}}]}, "unknown field 'deny'"),
        ({"streams": [{"id": "L", "zones": {"allow": ["e,u"]}}]}, "'e,u' is no zone"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        read(tmp_path, PAIRS, **change)
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            {"sink": "boston"},
            "queries[0].sink of 'q': 'boston' is in zone us, but tuples of stream 'L' are there",
        ),
        (
            {"operators": [JOIN | {"zones": {"forbid": ["e\tu"]}}]},
            "queries[0].operators[0].zones of 'j': 'e\\tu' is no zone",
        ),
    ],
)
def test_queries_that_cannot_be_are_refused(
    tmp_path: Path, query: dict[str, Any], said: str
) -> None:
    with pytest.raises(ProblemError) as caught:
        read(tmp_path, QUERIES, queries=[QUERIES["queries"][0] | query])
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_zones_and_columns_of_streams_are_read_as_they_were_written(tmp_path: Path) -> None:
    streams = [
        {"id": "L", "columns": {"v": "int"}, "zones": {"allow": ["eu"]}},
        {"id": "R", "columns": {"w": "int"}},
    ]
    join = JOIN | {"window": 1, "zones": {"forbid": ["cn"], "allow": ["eu", "us"]}}
    problem = read(
        tmp_path, QUERIES, streams=streams, queries=[QUERIES["queries"][0] | {"operators": [join]}]
    )
    for name in ("q.json", "q.yaml", "tables"):
        write_problem(problem, tmp_path / name)
        again = read_problem(tmp_path / name)
        assert again.same_as(problem) and again.zones == problem.zones
    assert not replace(problem, zones={}).same_as(problem)
    nowhere = replace(problem.nodes, zone=None)
    assert not replace(problem, nodes=nowhere).same_as(problem)


@pytest.mark.parametrize("kind", ["stream", "query", "join"])
def test_a_zone_that_no_node_has_is_no_error_but_named(tmp_path: Path, kind: str) -> None:
    """It may be meant: such a node may come later. So may one that is misspelt."""
    zones = {"forbid": ["uk", "chian"]}
    nodes = [
        {"id": f"n{k}", "position": [k, 0], "capacity": 90, "zone": zone}
        for k, zone in enumerate(["china", "uk"])
    ]
    sources = [{"id": s, "node": "n0", "stream": s, "rate": 1} for s in "ab"]
    document: dict[str, Any] = {"nova": 1, "nodes": nodes, "sources": sources}
    join = {"id": "j", "sink": "n0"}
    if kind == "stream":
        document |= {"streams": [{"id": "a", "zones": zones}]}
    if kind == "query":
        operator = {"id": "j", "kind": "join", "inputs": ["a", "b"], "zones": zones}
        document |= {"queries": [{"id": "q", "sink": "n0", "operators": [operator]}]}
        place_of = "queries[0].operators[0].zones of 'j'"
    else:
        limits = {"zones": zones} if kind == "join" else {}
        document |= {"query": {"operators": [join | {"left": "a", "right": "b"} | limits]}}
        place_of = "query.operators[0].zones of 'j'"
    if kind == "stream":
        place_of = "streams: zones of 'a'"
    (tmp_path / "p.yaml").write_text(dump(document, ".yaml"))
    with pytest.warns(ProblemWarning) as caught:
        problem = read_problem(tmp_path / "p.yaml")
    said = f"{place_of}: forbid: no node is in zone 'chian'; there are china, uk"
    assert [str(one.message).split("p.yaml: ")[1] for one in caught] == [said]
    assert verify(place(problem)).ok


def test_too_many_combinations_are_refused(tmp_path: Path) -> None:
    """Of what operators require, and the zones of what they read."""
    nodes = [
        {"id": f"n{n}", "capacity": 100, "position": [n, 0], "memory": n, "zone": "eu"}
        | ({} if n % 2 else {"zone": "us"})
        for n in range(80)
    ]
    queries = [
        {"id": f"q{n}{left}", "sink": "n1", "operators": [
            {"id": "j", "kind": "join", "inputs": [left, "R"], "requires": {"memory": 2 + 2 * n}}
        ]}
        for n in range(34) for left in "LM"
    ]  # fmt: skip
    sources = [{"id": one, "node": "n1", "stream": one, "rate": 1.0} for one in ("L", "M", "R")]
    zoned = QUERIES | {"nodes": nodes, "sources": sources, "queries": queries}
    with pytest.raises(ProblemError, match="67 different requirements; at most 62"):
        place(read(tmp_path, zoned))
    assert verify(place(read(tmp_path, zoned, queries=queries[:60]))).ok
