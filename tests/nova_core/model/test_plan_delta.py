"""Deltas of plans of whole queries: applied they give the new plan, turned round the old one."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.plan_changes import delta_between

from nova_core.errors import PlanError
from nova_core.io.problem_document import queries_of
from nova_core.model import key_ranges
from nova_core.model.expansion import Rewriting, graph_of
from nova_core.model.graph import JOIN
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan
from nova_core.model.plan_delta import (
    Cut,
    CutRow,
    InstanceRow,
    MoveRow,
    PlanDelta,
    RenamedRow,
    VirtualRow,
)
from nova_core.model.problem import JoinMatrix, Joins, Nodes, Problem, Sources
from nova_core.model.verify import verify

SHARED = Rewriting(True, True, True)
NEAR = {"id": "near", "kind": "join", "inputs": ["heat", "force"], "match": "key"}
MEAN = {"id": "mean", "kind": "aggregate", "input": "near", "window": 1, "decomposable": True}
MAKE = {"id": "make", "kind": "project", "input": "near", "selectivity": 3.0}
KEYED = {"id": "keyed", "kind": "join", "inputs": ["make", "arm"], "match": "all", "keys": 5000}


def query(name: str, *operators: dict[str, Any], sink: str = "cloud") -> dict[str, Any]:
    return {"id": name, "sink": sink, "operators": list(operators)}


WEAR, MEANS, ALL = (
    query("wear", NEAR),
    query("means", NEAR, MEAN, sink="edge"),
    query("all", NEAR, MAKE, KEYED),
)


def factory(*queries: dict[str, Any], without: tuple[str, ...] = ()) -> Problem:
    """Two keys of heat and force, and one arm; nodes may be left out."""
    none, text = np.empty(0, np.int64), np.empty(0, np.str_)
    nodes = [name for name in ("cloud", "gate", "edge", "p1", "p2") if name not in without]
    ends = [nodes.index(name) for name in ("p1", "p2", "p1", "p2", "edge")]
    return Problem(
        nodes=Nodes(
            ids=np.array(nodes),
            position=np.stack([np.arange(len(nodes)) * 30.0, np.zeros(len(nodes))], axis=1),
            capacity=np.full(len(nodes), 1e4),
            worker=np.ones(len(nodes), bool),
        ),
        sources=Sources(
            ids=np.array(["heat-1", "heat-2", "force-1", "force-2", "arm"]),
            node=np.array(ends),
            stream=np.array(["heat", "heat", "force", "force", "arm"]),
            rate=np.array([20.0, 22.0, 30.0, 33.0, 10.0]),
            key=np.array(["k1", "k2", "k1", "k2", "k1"]),
        ),
        joins=Joins(text, text, text, none),
        matrix=JoinMatrix(none, none, none, np.empty(0)),
        queries=queries_of(list(queries)),
    )


def plan_of(problem: Problem, seed: int, version: int) -> Plan:
    """Every operator whole, or cut in one of the ways it can be; pieces on random nodes."""
    rng = np.random.default_rng(seed)
    graph = graph_of(problem, SHARED)
    cuts: dict[int, Any] = {}
    by_key: list[int] = []
    rows: list[tuple[int, ...]] = []

    def piece(operator: int, left: tuple[int, int], right: tuple[int, int], feeds: int) -> None:
        node = int(rng.integers(len(problem.nodes)))
        rows.append((operator, node, *left, *right, feeds))

    for number, operator in enumerate(graph.bodies.tolist()):
        inputs = graph.rate[graph.inputs(operator)]
        count = int(rng.integers(2, 5))
        if rng.random() < 0.4:
            piece(number, (0, 1), (0, 1), -1)
        elif graph.kind[operator] == JOIN and graph.parts[operator] > 1 and rng.random() < 0.6:
            rates = key_ranges.cut(graph.joins[operator], *inputs.tolist(), count)
            cuts[2 * number], cuts[2 * number + 1] = rates, inputs[1:]
            by_key.append(number)
            for one in range(len(rates)):
                piece(number, (one, one + 1), (0, 1), -1)
        elif graph.kind[operator] == JOIN:
            for side in (0, 1):
                cuts[2 * number + side] = np.full(count, inputs[side] / count)
            for one in range(count):
                piece(number, (one, one + 1), (0, 1), -1)
                piece(number, (one, one + 1), (1, count), -1)
        elif graph.combines[operator] and len(inputs) > 1:
            cuts[2 * number] = inputs
            root = len(rows)
            piece(number, (0, 0), (0, 1), -1)
            for one in range(len(inputs)):
                piece(number, (one, one + 1), (0, 1), root)
        elif graph.parts[operator] > 1:
            cuts[2 * number] = np.full(count, inputs.sum() / count)
            for one in range(count):
                piece(number, (one, one + 1), (0, 1), -1)
        else:
            piece(number, (0, 1), (0, 1), -1)
    *columns, feeds = np.array(rows, np.int64).T.copy()
    return Plan(
        problem=problem,
        strategy="random",
        objective="latency",
        partitions=Partitions.whole(problem, SHARED).with_cuts(cuts, by_key),
        instances=Instances(*columns, feeds if (feeds >= 0).any() else None),
        virtual_position=rng.uniform(0, 100, (len(graph.bodies), 2)),
        breaks=("link",) if rng.random() < 0.5 else (),
        notes={"version": version},
        rewriting=SHARED,
    )


def carried(delta: PlanDelta) -> PlanDelta:
    """The delta as its document says it."""
    return msgspec.json.decode(msgspec.json.encode(delta), type=PlanDelta)


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 2**32))
def test_a_delta_leads_there_and_back(random: Any, seed: int) -> None:
    """Whatever stays, and whatever it is called then: names of some may become those of others."""
    sets = [(WEAR,), (WEAR, MEANS), (MEANS, WEAR, ALL), (ALL, MEANS), (ALL,)]
    before, after = (
        plan_of(factory(*random.choice(sets), without=random.choice([(), ("gate",)])), one, version)
        for version, one in enumerate((seed, seed + 1), 4)
    )
    assert all(verify(plan).counts.get(name, 0) == 0 for plan in (before, after)
               for name in ("partitions", "complete", "well-formed"))  # fmt: skip
    mine, theirs = before.operator_names().tolist(), after.operator_names().tolist()
    same = {name: name for name in mine if name in theirs}
    many = random.randint(0, min(len(mine), len(theirs)))
    shuffled = dict(zip(random.sample(mine, many), random.sample(theirs, many), strict=True))
    stays = random.choice([same, shuffled])
    delta = carried(delta_between(before, after, stays))
    assert delta.apply(before, after.problem).same_as(after)
    back = carried(delta.inverse())
    assert back.apply(after, before.problem).same_as(before)
    assert back.inverse() == delta


def whole_plan(problem: Problem, nodes: list[int], version: int) -> Plan:
    operators = graph_of(problem, SHARED)
    return Plan(
        problem,
        "hand",
        "latency",
        Partitions.whole(problem, SHARED),
        Instances.whole(np.array(nodes)),
        virtual_position=np.zeros((len(operators.bodies), 2)),
        notes={"version": version},
        rewriting=SHARED,
    )


def test_a_shared_operator_that_stays_gets_another_name() -> None:
    before = whole_plan(factory(WEAR, query("other", NEAR)), [3, 4], 0)
    assert before.operator_names().tolist() == ["wear/near(heat-1*force-1)",
                                                "wear/near(heat-2*force-2)"]  # fmt: skip
    rest = factory(query("other", NEAR))
    delta = PlanDelta(
        new_version=1,
        renamed=[
            RenamedRow(operator=f"wear/near({one})", new=f"other/near({one})")
            for one in ("heat-1*force-1", "heat-2*force-2")
        ],
    )
    assert delta.empty
    after = delta.apply(before, rest)
    assert after.same_as(whole_plan(rest, [3, 4], 1))
    assert delta.inverse().apply(after, before.problem).same_as(before)
    with pytest.raises(PlanError, match=r"near\(heat-1\*force-1\) stays, but the problem has no"):
        PlanDelta(new_version=1).apply(before, rest)


def test_another_operator_may_take_the_name_of_one_that_goes() -> None:
    """Two queries share a join; the first changes its own, which makes one more."""
    other = query("other", NEAR)
    changed = query("wear", NEAR | {"selectivity": 0.25})
    before = whole_plan(factory(WEAR, other), [3, 4], 0)
    problem = factory(changed, other)
    first, second = "near(heat-1*force-1)", "near(heat-2*force-2)"
    delta = PlanDelta(
        new_version=1,
        start=[
            InstanceRow(operator=f"wear/{first}", node="cloud", left=(0, 1), right=(0, 1)),
            InstanceRow(operator=f"wear/{second}", node="gate", left=(0, 1), right=(0, 1)),
        ],
        move=[
            MoveRow(operator=f"other/{second}", source_node="p2", target_node="edge",
                    left=(0, 1), right=(0, 1))
        ],
        added=[f"wear/{first}", f"wear/{second}"],
        renamed=[
            RenamedRow(operator=f"wear/{one}", new=f"other/{one}") for one in (first, second)
        ],
        virtual=[
            VirtualRow(operator=f"wear/{one}", old=None, new=[0.0, 0.0]) for one in (first, second)
        ],
    )  # fmt: skip
    after = delta.apply(before, problem)
    assert after.same_as(whole_plan(problem, [0, 1, 3, 2], 1))
    back = delta.inverse()
    assert (back.stop, back.removed) == (delta.start, delta.added)
    assert back.move[0].operator == f"wear/{second}"
    assert back.apply(after, before.problem).same_as(before)


def test_parts_feed_the_instance_that_combines_them() -> None:
    # Partial results would be as many: there are none of those.
    problem = factory(query("means", NEAR, MEAN | {"window": 0.001}))
    before = whole_plan(problem, [3, 4, 0], 0)
    one, other = graph_of(problem, SHARED).rate[graph_of(problem, SHARED).bodies[:2]].tolist()
    pieces = [
        InstanceRow(operator="means/mean", node="edge", left=(0, 1), right=(0, 1)),
        InstanceRow(operator="means/mean", node="gate", left=(1, 2), right=(0, 1)),
        InstanceRow(operator="means/mean", node="cloud", left=(0, 0), right=(0, 1), combines=True),
    ]
    delta = PlanDelta(
        new_version=1,
        stop=[InstanceRow(operator="means/mean", node="cloud", left=(0, 1), right=(0, 1))],
        start=pieces,
        cuts=[CutRow(operator="means/mean", old=None, new=Cut(left=[one, other], right=[0.0]))],
    )
    after = delta.apply(before, problem)
    assert verify(after).ok
    assert after.instances.feeds is not None
    assert after.instances.feeds.tolist() == [-1, -1, -1, 2, 2]
    assert after.instances.node.tolist() == [3, 4, 0, 2, 1]
    assert delta.inverse().apply(after, problem).same_as(before)
    # Only what combines says so.
    assert msgspec.json.encode(pieces).count(b"combines") == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"removed": ["wear/far"]}, "removed: the old plan has no operator wear/far"),
        ({"added": ["wear/far"]}, "added: the problem has no operator wear/far"),
        (
            {"move": [MoveRow(operator="wear/far", source_node="p1", target_node="p2",
                              left=(0, 1), right=(0, 1))]},
            "move: the problem has no operator wear/far",
        ),
        (
            {"stop": [InstanceRow(operator="wear/near(heat-1*force-1)", node="p2",
                                  left=(0, 1), right=(0, 1))]},
            "runs no instance of wear/near(heat-1*force-1) with partitions [0, 1] and [0, 1] on p2",
        ),
        ({"removed": ["wear/near(heat-1*force-1)"]}, "leaves 1 operators of the old plan"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    before = whole_plan(factory(WEAR), [3, 4], 0)
    with pytest.raises(PlanError) as caught:
        msgspec.structs.replace(PlanDelta(new_version=1), **changes).apply(before, before.problem)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_removed_node_must_be_left() -> None:
    before = whole_plan(factory(WEAR), [1, 4], 0)
    with pytest.raises(PlanError, match="on a removed node"):
        PlanDelta(new_version=1).apply(before, factory(WEAR, without=("gate",)))
