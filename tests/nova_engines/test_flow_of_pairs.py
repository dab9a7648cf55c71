from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import random_plan, sources_of

from nova_core.errors import NovaError
from nova_core.model import Plan
from nova_core.model.partitioner import partition_of
from nova_core.strategies.base import place
from nova_engines.flow import CUT, SELECT, SINK, SOURCE, Flow, Match
from nova_engines.flow_of_plan import flow_of, interval

TUPLES = 40
MATCH = Match(100, 6, 2)


def carried_out(flow: Flow) -> dict[str, Counter[tuple[str, int, str, int]]]:
    """Result pairs that reach each sink, by doing what every operator is there for."""
    sent: dict[str, list[Any]] = {}
    for one in flow.operators:
        received = [item for name in one.inputs for item in sent[name]]
        if one.kind == "source":
            sent[one.name] = [(one.source, k) for k in range(TUPLES)]
        elif one.kind in (CUT, SELECT):
            spread = np.arange(TUPLES, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            u = (spread >> np.uint64(11)).astype(np.float64) / 2.0**53
            parts = list(zip(one.low, one.high, strict=True))
            passes = [any(low <= x < high for low, high in parts) for x in u.tolist()]
            assert {item[0] for item in received} <= {flow.origin(one.name).source}
            sent[one.name] = [item for item in received if passes[item[1]]]
        elif one.kind == "join":
            right = [item for name in one.right for item in sent[name]]
            assert {item[0] for item in received} <= {flow.origin(one.inputs[0]).source}
            assert {item[0] for item in right} <= {flow.origin(one.right[0]).source}
            assert (one.window, one.match) == ((100, 100), (6, 2))
            sent[one.name] = [a + b for a in received for b in right]
        else:
            sent[one.name] = received
    return {one.name: Counter(sent[one.name]) for one in flow.sinks}


def wanted(plan: Plan) -> dict[str, Counter[tuple[str, int, str, int]]]:
    """All pairs of tuples of all pairs of sources, at their sinks."""
    p, found = plan.problem, {}
    for pair in range(len(p.matrix)):
        sink = f"sink {p.nodes.ids[p.sink_node[pair]]}"
        left = str(p.sources.ids[p.matrix.left[pair]])
        right = str(p.sources.ids[p.matrix.right[pair]])
        here = found.setdefault(sink, Counter())
        here.update((left, a, right, b) for a in range(TUPLES) for b in range(TUPLES))
    return found


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.booleans(), st.integers(1, 2))
def test_every_pair_of_tuples_meets_exactly_once(seed: int, routes: bool, sinks: int) -> None:
    plan = random_plan(seed, routes=routes, sinks=sinks)
    assert carried_out(flow_of(plan, MATCH)) == wanted(plan)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.booleans())
def test_operators_are_where_the_plan_says(seed: int, routes: bool) -> None:
    plan = random_plan(seed, routes=routes)
    p, flow = plan.problem, flow_of(plan, MATCH)
    assert [one.node for one in flow.joins] == p.nodes.ids[plan.instances.node].tolist()
    where = dict(zip(p.sources.ids.tolist(), p.nodes.ids[p.sources.node].tolist(), strict=True))
    for one in flow.operators:
        if one.kind in (SOURCE, CUT):
            assert one.node == where[flow.origin(one.name).source]
    # What crosses the network passes every inner node of its route, in order.
    if plan.routes is not None:
        node = {one.name: one.node for one in flow.operators}
        inner = {plan.problem.nodes.ids[n] for n in plan.routes.node.tolist()}
        assert {node[o.name] for o in flow.of_kind("relay")} <= inner
    else:
        assert not flow.of_kind("relay")


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10_000),
    st.lists(st.floats(0.01, 100), min_size=1, max_size=40),
    st.data(),
)
def test_intervals_are_the_partitions(seed: int, rates: list[float], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(rates) - 1))
    end = data.draw(st.integers(begin + 1, len(rates)))
    weights = np.array(rates)
    reached = tuple((weights / weights.sum()).cumsum().tolist())
    low, high = interval(reached, begin, end)
    sequence = np.arange(seed, seed + 200)
    u = ((sequence.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(11)) / 2.0**53
    partition = partition_of(sequence, weights)
    assert ((low <= u) & (u < high)).tolist() == ((begin <= partition) & (partition < end)).tolist()


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.booleans())
def test_round_trip(seed: int, routes: bool) -> None:
    plan = random_plan(seed, routes=routes, sinks=2)
    flow = flow_of(plan, MATCH)
    assert Flow.from_json(flow.to_json()) == flow


def test_the_tree_is_relayed_hop_by_hop() -> None:
    problem = random_plan(3, nodes=12, regions=4).problem
    plan = place(problem, "tree")
    flow = flow_of(plan, MATCH)
    assert plan.routes is not None
    inner = sum(max(0, int(hops) - 2) for hops in np.diff(plan.routes.offset))
    assert len(flow.of_kind("relay")) == inner > 0
    assert carried_out(flow) == wanted(plan)


@given(seed=st.integers(0, 999), routes=st.booleans())
def test_what_no_sensor_or_sink_needs_can_be_left_to_the_engine(seed: int, routes: bool) -> None:
    plan = random_plan(seed, routes=routes)
    pinned = flow_of(plan, MATCH)
    free = pinned.unpinned()
    sources = {one.name for one in pinned.of_kind(SOURCE)}
    for before, after in zip(pinned.operators, free.operators, strict=True):
        kept = before.kind in (SOURCE, SINK) or (before.kind == CUT and before.inputs[0] in sources)
        assert after == (before if kept else replace(before, node=""))
    assert set(free.nodes) == {one.node for one in free.operators} - {""}
    assert Flow.from_json(free.to_json()) == free


def test_every_sink_has_its_own_file() -> None:
    plan = random_plan(5, sinks=2)
    flow = flow_of(plan, MATCH)
    assert list(flow.result_files("/r").values()) == ["/r", "/r.1"]


def test_without_a_match_only_places_are_known() -> None:
    plan = random_plan(1, routes=True)
    known = flow_of(plan, MATCH)
    assert flow_of(plan).placement == known.placement
    assert (known.boundary_ms, flow_of(plan).boundary_ms) == (100, 1)
    assert not known.has_columns


def test_sources_that_are_not_there_are_named() -> None:
    plan = random_plan(1)
    sources = sources_of(plan.problem, 0)
    sources.require(flow_of(plan))
    less = replace(sources, sources=sources.sources[1:])
    with pytest.raises(NovaError, match="sources: 'pressure-0' is not there; there are humidity-1"):
        less.require(flow_of(plan))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "flow: not JSON"),
        ("[]", r"flow: \[\]: expected an object"),
        ("{}", "flow: operators is missing"),
        ('{"operators": 3}', "flow.operators: 3: expected"),
        ('{"operators": [], "extra": 1}', "unknown field 'extra'"),
        ('{"operators": [{"name": 1, "node": "a", "kind": "sink"}]}', r"operators\[0\].name: 1"),
        ('{"operators": [{"name": "x", "node": "a", "kind": "map"}]}', "kind 'map'"),
        (
            '{"operators": [{"name": "x", "node": "a", "kind": "sink", "inputs": ["y"]}]}',
            "receives from unknown 'y'",
        ),
    ],
)
def test_bad_documents_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(NovaError, match=complaint):
        Flow.from_json(text, "flow")
