"""Joins that ask for hosts with tags or memory."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import numpy as np
import pytest
from msgspec import UNSET
from synthetic import synthetic_problem

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.evaluation import evaluate
from nova_core.explain import Explainer
from nova_core.io import read_problem, write_problem
from nova_core.io.validation import validate_problem
from nova_core.model import Joins, Problem
from nova_core.model.expansion import graph_of
from nova_core.model.requirements import (
    ANY_NODE,
    FACTS,
    LABELS,
    MET,
    NOTHING,
    PARTS,
    Asks,
    NodeFacts,
    Nodes,
    RequiresPart,
    Rule,
    ZonesPart,
    asked_columns,
    rule_of,
)
from nova_core.model.verify import verify
from nova_core.strategies import place

GROUPS = 4
TAGS = np.array(["gpu", "", "gpu,arm64", ""])
MEMORY = np.array([np.nan, 4e9, np.nan, np.nan])


def asks(tags: str, memory: float = np.nan) -> Asks:
    """What a join asks that requires tags, with commas between them, and bytes; NaN for any."""
    labels, least = tags.split(",") if tags else UNSET, UNSET if np.isnan(memory) else memory
    if labels is UNSET and least is UNSET:
        return NOTHING
    return Asks(requires=RequiresPart(tags=labels, memory=least))


ASKS = tuple(asks(*one) for one in zip(TAGS.tolist(), MEMORY.tolist(), strict=True))


def demanding(seed: int, joins: int = 24) -> Problem:
    """Four logical joins: gpu, memory, gpu and arm64, anything; about half of the nodes have each.

    Every logical join has a quarter of the pairs.
    """
    problem = synthetic_problem(seed, nodes=2 * joins, joins=joins, headroom=6.0)
    rng = np.random.default_rng(seed)
    count = len(problem.nodes)
    has = rng.random((3, count)) < 0.6
    has[:, 1] = True
    tags = [
        "" + ",".join(t for t, h in zip(("gpu", "arm64"), row, strict=True) if h)
        for row in has[:2].T
    ]
    names_of_joins = np.array([f"j{i}" for i in range(GROUPS)])
    asked = Joins(
        names_of_joins,
        np.repeat("left", GROUPS),
        np.repeat("right", GROUPS),
        np.zeros(GROUPS, np.int64),
        asks=ASKS,
    )
    capacity = problem.nodes.capacity.copy()
    capacity[1] += problem.required_capacity.sum()  # node 1 meets everything
    return validate_problem(
        replace(
            problem,
            nodes=replace(
                problem.nodes,
                capacity=capacity,
                tags=np.array(tags),
                memory=np.where(has[2], 8e9, rng.choice([np.nan, 1e9], count)),
            ),
            joins=asked,
            matrix=replace(problem.matrix, join=np.arange(joins) % GROUPS),
        )
    )


def meets(problem: Problem, node: int, join: int) -> bool:
    assert problem.nodes.tags is not None
    assert problem.nodes.memory is not None
    own = set(problem.nodes.tags[node].split(","))
    wanted = {tag for tag in TAGS[join].split(",") if tag}
    return wanted <= own and not (
        MEMORY[join] > 0 and not problem.nodes.memory[node] >= MEMORY[join]
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("index", ["capacity-tree", "kdtree"])
@pytest.mark.parametrize("refine", [True, False])
def test_nova_runs_joins_only_where_they_may(seed: int, index: str, refine: bool) -> None:
    problem = demanding(seed)
    plan = place(problem, index=index, refine=refine)
    for pair, node in zip(plan.instances.pair, plan.instances.node, strict=True):
        assert meets(problem, int(node), int(problem.matrix.join[pair]))
    assert verify(plan).ok


def test_a_requirement_of_all_joins_is_that_of_fewer_workers() -> None:
    """The same plan as for a problem where the other nodes are no workers."""
    problem = synthetic_problem(7, nodes=60, joins=30, headroom=4.0)
    gpu = np.random.default_rng(7).random(60) < 0.6
    tagged = replace(
        problem,
        nodes=replace(problem.nodes, tags=np.where(gpu, "gpu", "")),
        joins=replace(problem.joins, asks=(asks("gpu"),)),
    )
    fewer = replace(problem, nodes=replace(problem.nodes, worker=problem.nodes.worker & gpu))
    assert np.array_equal(place(tagged).instances.node, place(fewer).instances.node)


def test_requirements_cost_but_little_more_than_what_they_take_away() -> None:
    """Joins without one are no worse off than with all requirements met by all."""
    free, bound = [], []
    for seed in range(5):
        problem = demanding(seed)
        everywhere = replace(problem, joins=replace(problem.joins, asks=None))
        free.append(evaluate(place(everywhere)).estimated.mean)
        bound.append(evaluate(place(problem)).estimated.mean)
    assert np.mean(bound) >= np.mean(free) - 1e-9
    assert np.mean(bound) <= 1.5 * np.mean(free)


def test_verify_names_what_is_lacking() -> None:
    problem = demanding(0)
    lacking = next(n for n in range(2, len(problem.nodes)) if not meets(problem, n, 0))
    plan = place(problem)
    node = plan.instances.node.copy()
    row = int(np.flatnonzero(problem.matrix.join[plan.instances.pair] == 0)[0])
    node[row] = lacking
    report = verify(replace(plan, instances=replace(plan.instances, node=node)))
    assert report.counts["requirement"] == 1
    text = next(v.text for v in report.violations if v.constraint == "requirement")
    assert f"runs on n{lacking}, which is no node with tag gpu" in text
    assert not report.honest


@pytest.mark.parametrize("strategy", ["sink", "source", "top-c", "tree"])
def test_baselines_say_that_they_ignore_requirements(strategy: str) -> None:
    problem = demanding(1)
    bare = replace(problem, nodes=replace(problem.nodes, tags=None, memory=None))
    report = verify(place(bare, strategy))
    assert report.counts["requirement"] == len(problem.matrix) * 3 // 4
    assert report.honest


def test_explanations_name_what_a_node_lacks() -> None:
    problem = demanding(0)
    explainer = Explainer(place(problem))
    verdicts = [
        (candidate.node, candidate.verdict)
        for pair in range(0, len(problem.matrix), GROUPS)
        for candidate in explainer.operator(pair).candidates
    ]
    for node, verdict in verdicts:
        assert (verdict == "no node with tag gpu") != meets(problem, int(node[1:]), 0)
    assert any(verdict == "no node with tag gpu" for _, verdict in verdicts)


def test_what_no_node_has_is_said() -> None:
    problem = demanding(2)
    joins = replace(problem.joins, asks=(asks("tpu"), *ASKS[1:]))
    with pytest.raises(InfeasibleError, match=r"no worker with tag tpu, which operators that"):
        place(replace(problem, joins=joins))
    bare = replace(problem, nodes=replace(problem.nodes, memory=None, tags=None))
    with pytest.raises(InfeasibleError, match="there is no worker with "):
        place(bare, on_full="spread")


def test_too_many_different_requirements_are_refused() -> None:
    problem = synthetic_problem(0, nodes=200, joins=80, headroom=6.0)
    count = 80
    tags = np.array([f"t{i}" for i in range(count)])
    own = np.array(["" if i == 0 else f"t{i % count}" for i in range(200)])
    asked = Joins(
        np.array([f"j{i}" for i in range(count)]),
        np.repeat("left", count),
        np.repeat("right", count),
        np.zeros(count, np.int64),
        asks=tuple(asks(tag) for tag in tags.tolist()),
    )
    many = replace(
        problem,
        nodes=replace(problem.nodes, tags=own),
        joins=asked,
        matrix=replace(problem.matrix, join=np.arange(80)),
    )
    with pytest.raises(ProblemError, match="80 different requirements; at most 62"):
        place(many)


DOCUMENT = """
nova: 1
nodes:
  - {id: a, capacity: 100, position: [0, 0], tags: [gpu], memory: 8e9}
  - {id: b, capacity: 100, position: [1, 0], tags: [arm64]}
  - {id: s, capacity: 100, position: [9, 0]}
sources:
  - {id: l, node: b, stream: L, rate: 5}
  - {id: r, node: b, stream: R, rate: 5}
query:
  operators:
    - {id: j, left: L, right: R, sink: s, requires: {tags: [gpu], memory: 4e9}}
    - {id: k, left: L, right: R, sink: s}
"""


def test_documents_say_what_joins_require(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(DOCUMENT)
    problem = read_problem(tmp_path / "p.yaml")
    assert problem.joins.asks == (asks("gpu", 4e9), NOTHING)
    (rule,) = graph_of(problem).requirements.rules
    assert str(rule) == "with tag gpu and 4e+09 bytes of memory"
    assert place(problem).instances.node.tolist() == [0, 1]
    write_problem(problem, tmp_path / "q.json")
    assert read_problem(tmp_path / "q.json").same_as(problem)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tags: [gpu], memory: 4e9", "tag: gpu", "unknown field 'tag'; did you mean 'tags'?"),
        ("memory: 4e9", "memory: -1", "requires.memory"),
        ("requires: {tags: [gpu]", "requires: {tags: ['g,u']", "'g,u' is no tag"),
    ],
)
def test_bad_requirements_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in DOCUMENT
    (tmp_path / "p.yaml").write_text(DOCUMENT.replace(old, new))
    with pytest.raises(ProblemError) as caught:
        read_problem(tmp_path / "p.yaml")
    assert said in str(caught.value)


def test_labels_have_no_comma_in_memory_either() -> None:
    problem = demanding(0)
    for wrong in (Asks(requires=RequiresPart(tags=["g,u"])), Asks(zones=ZonesPart(allow=["g,u"]))):
        joins = replace(problem.joins, asks=(wrong, *ASKS[1:]))
        with pytest.raises(ProblemError, match=r"'g,u' is no (tag|zone); a "):
            validate_problem(replace(problem, joins=joins))
    few = replace(problem.joins, asks=ASKS[1:])
    with pytest.raises(ProblemError, match="4 rows of what joins ask are needed, not 3"):
        validate_problem(replace(problem, joins=few))


def test_every_property_is_declared_whole() -> None:
    """Of what operators ask, nodes have a column, documents a field, and lists a name."""
    columns = {one.name for one in fields(Nodes)}
    assert set(MET) <= set(FACTS) <= columns
    asked = asked_columns([NOTHING])
    for part, name in asked:
        kind = get_type_hints(PARTS[part])[name]
        assert (name in LABELS) == any(get_origin(one) is list for one in get_args(kind))
    assert {name for part, name in asked if part == "requires"} <= set(MET)


@pytest.mark.parametrize("name", Rule._fields)
def test_two_rules_together_keep_what_each_asks_and_say_it(name: str) -> None:
    """A field that `Rule.__and__` or `Rule.__str__` leaves out would be asked of no node."""
    value = 2.0 if isinstance(Rule._field_defaults[name], float) else frozenset({"x"})
    rule = Rule(**{name: value})
    assert rule & ANY_NODE == ANY_NODE & rule == rule != ANY_NODE
    assert str(rule) != str(ANY_NODE)


def test_what_a_part_asks_is_in_its_rule() -> None:
    for part, kind in PARTS.items():
        for name, type_ in get_type_hints(kind).items():
            value = 2.0 if float in get_args(type_) else ["x"]
            assert rule_of(**{part: kind(**{name: value})}) != ANY_NODE, (part, name)


def test_lists_of_labels_have_a_name() -> None:
    for name, type_ in get_type_hints(NodeFacts).items():
        assert (name in LABELS) == any(get_origin(one) is list for one in get_args(type_))


def test_who_has_no_room_is_said() -> None:
    problem = demanding(3)
    assert problem.nodes.tags is not None
    gpu = np.array(["gpu" in one for one in problem.nodes.tags.tolist()])
    total = problem.required_capacity.sum()
    poor = problem.with_capacity(np.where(gpu, 1.0, total))
    said = r"are missing \(no node with tag gpu has room; no node with tag arm64 and tag gpu has "
    with pytest.raises(InfeasibleError, match=said):
        place(poor)
    alone = replace(poor, joins=replace(poor.joins, asks=(asks("gpu"),) * GROUPS))
    said = r"workers that may run them together have \d+: .* \(no node with tag gpu has room\)"
    with pytest.raises(InfeasibleError, match=said):
        place(alone)
