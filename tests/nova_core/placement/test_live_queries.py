"""What each event does to a small placement of whole queries, and what bad events get.

`Follower` checks after each one that the problem is what the event makes of it, that the plan keeps
all constraints and runs what the problem asks for, and that the delta leads there and back.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.live_placement import Follower, free_capacity
from query_cases import random_queries

from nova_core.errors import InfeasibleError, NovaError, ProblemError
from nova_core.io.problem_document import queries_of
from nova_core.io.validation import validate_problem
from nova_core.model import JoinMatrix, Joins, Nodes, Problem, Sources
from nova_core.model.expansion import graph_of
from nova_core.model.plan import Plan
from nova_core.model.plan_delta import PlanDelta, RenamedRow
from nova_core.placement.kernels.state.tables import FIRST_SOURCE
from nova_core.placement.kernels.state.tables import SINK as TO_SINK
from nova_core.placement.live import Event, LivePlacement, Policy, parse_event
from nova_core.placement.live.queries import QueryDemand
from nova_core.strategies import place
from nova_workloads.live_events import RandomEvents
from nova_workloads.topology import generate

# Ids, positions, capacities; nothing that hosts is short of room.
NODES: dict[str, tuple[float, float, float]] = {
    "cloud": (0, 0, 400),
    "gateway": (60, 0, 200),
    "spare": (60, 30, 300),
    "press-1": (80, 10, 200),
    "press-2": (80, -10, 200),
    "robot": (70, 20, 60),
}
# Ids, nodes, streams, rates and keys.
SOURCES = [
    ("heat-1", "press-1", "heat", 20, "press-1"),
    ("heat-2", "press-2", "heat", 20, "press-2"),
    ("force-1", "press-1", "force", 30, "press-1"),
    ("force-2", "press-2", "force", 30, "press-2"),
    ("arm", "robot", "arm", 10, "robot"),
]
STRAIN = {"id": "strain", "kind": "join", "inputs": ["heat", "force"], "match": "key",
          "selectivity": 0.5}  # fmt: skip
HOT = {"id": "hot", "kind": "filter", "input": "strain", "selectivity": 0.1, "reads": "heat"}
MEAN = {"id": "mean", "kind": "aggregate", "input": "hot", "by": "key", "window": 10}
SUM = {"id": "sum", "kind": "aggregate", "input": "force", "window": 1, "decomposable": True}
PEAK = {"id": "peak", "kind": "filter", "input": "force", "selectivity": 0.05}
CLOSE = {"id": "near", "kind": "join", "inputs": ["arm", "peak"], "match": "all",
         "selectivity": 0.2}  # fmt: skip
ALL_OF_IT = {"id": "mean", "kind": "aggregate", "input": "strain", "window": 1}


def query(name: str, *operators: dict[str, Any], sink: str = "cloud") -> dict[str, Any]:
    return {"id": name, "sink": sink, "operators": list(operators)}


HALL = (
    query("wear", STRAIN, HOT, MEAN),
    query("total", SUM),
    query("crash", PEAK, CLOSE, sink="gateway"),
)
# Both have the join by two keys in common.
COMMON = (query("wear", STRAIN), query("means", STRAIN, ALL_OF_IT, sink="gateway"))


def factory(
    *queries: dict[str, Any], rates: dict[str, float] | None = None, **capacity: float
) -> Problem:
    """The hall with other rates and capacities; a ``-`` in a node's name is written ``_``."""
    return _factory(json.dumps([queries, rates or {}, capacity]))


@cache
def _factory(text: str) -> Problem:
    queries, given, capacity = json.loads(text)
    none, text = np.empty(0, np.int64), np.empty(0, np.str_)
    ids, ends, streams, rate, keys = zip(*SOURCES, strict=True)
    names = list(NODES)
    room = [capacity.get(name.replace("-", "_"), c) for name, (_, _, c) in NODES.items()]
    return validate_problem(
        Problem(
            nodes=Nodes(
                ids=np.array(names),
                position=np.array([[x, y] for x, y, _ in NODES.values()], np.float64),
                capacity=np.array(room, np.float64),
                worker=np.ones(len(names), bool),
            ),
            sources=Sources(
                ids=np.array(ids),
                node=np.array([names.index(name) for name in ends]),
                stream=np.array(streams),
                rate=np.array([given.get(i, r) for i, r in zip(ids, rate, strict=True)], float),
                key=np.array(keys),
            ),
            joins=Joins(text, text, text, none),
            matrix=JoinMatrix(none, none, none, np.empty(0)),
            queries=queries_of(queries),
        )
    )


# Most tests begin with one of a few plans.
placed = cache(place)


def live_of(problem: Problem, policy: Policy | None = None, **parameters: Any) -> LivePlacement:
    return LivePlacement(problem, placed(problem, **parameters), policy)


def apply(live: LivePlacement, **fields: object) -> PlanDelta:
    """Apply an event that must be possible; everything must hold then."""
    follower = Follower(live)
    event = parse_event(json.dumps(fields))
    if not follower.follow(event):
        live.apply(event)  # says why it was refused
    return follower.deltas[0]


def operators(live: LivePlacement) -> list[str]:
    return live.plan().operator_names().tolist()


def hosts(live: LivePlacement) -> dict[str, list[str]]:
    """Nodes of each operator's instances."""
    plan, found = live.plan(), {}
    for row, name in enumerate(plan.operator_names().tolist()):
        nodes = plan.instances.node[plan.instances.pair == row]
        found[name] = plan.problem.nodes.ids[nodes].tolist()
    return found


def names(rows: list[Any]) -> list[str]:
    return sorted(row.operator for row in rows)


# --- every kind of event -------------------------------------------------------------------------

EVENTS: dict[str, dict[str, Any]] = {
    "add-worker": {"node": {"id": "new", "capacity": 80, "position": [79, 9]}},
    "add-worker, measured": {
        "node": {"id": "new", "capacity": 80},
        "latency": {"cloud": 80, "gateway": 20, "press-1": 5, "robot": 9},
    },
    "remove-worker": {"node": "spare"},
    "fail-node": {"node": "press-1"},
    "add-source": {
        "source": {"id": "heat-3", "node": "spare", "stream": "heat", "rate": 9, "key": "press-1"}
    },
    "remove-source": {"source": "heat-2"},
    "change-rate": {"source": "force-1", "rate": 55},
    "change-capacity": {"node": "press-1", "capacity": 10},
    "move-node": {"node": "press-2", "position": [5, 5]},
    "move-sink": {"operator": "wear", "node": "robot"},
    "change-link": {"from": "press-1", "to": "cloud", "budget": 500},
    "add-query": {"query": query("more", STRAIN, ALL_OF_IT, sink="robot")},
    "add-query, alone": {"query": query("more", CLOSE | {"inputs": ["arm", "heat"]})},
    "remove-query": {"query": "total"},
    "change-selectivity, join": {"query": "wear", "operator": "strain", "selectivity": 2},
    "change-selectivity, filter": {"query": "wear", "operator": "hot", "selectivity": 0.9},
    "change-selectivity, first filter": {"query": "crash", "operator": "peak", "selectivity": 1},
    "pin": {"operator": "wear/strain"},
    "rebalance": {"moves": 5},
    "batch": {
        "events": [
            {"event": "add-query", "query": query("more", STRAIN)},
            {"event": "remove-query", "query": "wear"},
            {"event": "move-sink", "operator": "more", "node": "gateway"},
            {"event": "change-rate", "source": "arm", "rate": 40},
        ]
    },
}  # fmt: skip


@pytest.mark.parametrize("objective", ["latency", "network-usage"])
@pytest.mark.parametrize("kind", EVENTS)
def test_every_event_is_followed(kind: str, objective: str) -> None:
    live = live_of(factory(*HALL), objective=objective)
    fields = {"event": kind.partition(",")[0]} | EVENTS[kind]
    event = parse_event(json.dumps(fields))
    assert live.reach(event) >= 0
    apply(live, **fields)
    assert live.version == 1


def test_all_of_them_one_after_the_other() -> None:
    live = live_of(factory(*HALL))
    follower = Follower(live)
    for kind, fields in EVENTS.items():
        follower.follow(parse_event(json.dumps({"event": kind.partition(",")[0]} | fields)))
    # Some of what they name is gone with the node that failed.
    assert follower.refused <= 8


def test_a_query_comes_and_goes() -> None:
    live = live_of(factory(*HALL))
    before = hosts(live)
    added = apply(live, event="add-query", query=query("more", PEAK, CLOSE | {"selectivity": 1}))
    assert added.added == ["more/near(arm*force-1)", "more/near(arm*force-2)"]
    assert names(added.start) == added.added
    assert not added.move + added.stop
    gone = apply(live, event="remove-query", query="more")
    assert (gone.removed, names(gone.stop)) == (added.added, added.added)
    assert hosts(live) == before


def test_a_moved_sink_draws_its_operators() -> None:
    live = live_of(factory(*HALL), Policy(gain_share=0))
    assert hosts(live)["wear/mean(press-1)"] != ["spare"]
    delta = apply(live, event="move-sink", operator="crash", node="spare")
    assert all(row.operator.startswith("crash/") for row in delta.move)
    ends = [row for row in delta.reroute if row.flow == "result"]
    moved = {row.operator for row in delta.move}
    # Each either moves, or sends its results elsewhere.
    assert {row.operator for row in ends} | moved == {
        "crash/near(arm*force-1)", "crash/near(arm*force-2)"
    }  # fmt: skip
    assert {(row.old, row.new) for row in ends} <= {("gateway", "spare")}


def test_a_pinned_operator_stays_while_its_node_lives() -> None:
    free, held = (live_of(factory(*HALL), Policy(gain_share=0)) for _ in range(2))
    apply(held, event="pin", operator="crash/near")
    assert held.pinned == ("crash/near",)
    before = hosts(held)
    for live in (free, held):
        apply(live, event="move-sink", operator="crash", node="cloud")
        apply(live, event="move-node", node="gateway", position=[300, 300])
        apply(live, event="rebalance", moves=9)
    near = {name for name in before if name.startswith("crash/near")}
    assert any(hosts(free)[name] != before[name] for name in near)
    assert all(hosts(held)[name] == before[name] for name in near)
    assert before["crash/near(arm*force-2)"] == ["gateway"]
    delta = apply(held, event="fail-node", node="gateway")
    assert "crash/near(arm*force-2)" in names(delta.move)


def test_a_policy_pins_operators_of_queries() -> None:
    live = live_of(factory(*HALL), Policy(pinned=("wear/strain",)))
    assert live.pinned == ("wear/strain",)
    with pytest.raises(ProblemError, match=r"wear/strein"):
        live_of(factory(*HALL), Policy(pinned=("wear/strein",)))


# --- what queries have in common -----------------------------------------------------------------

STRAINS = ("strain(heat-1*force-1)", "strain(heat-2*force-2)")


def test_a_shared_operator_stays_when_its_first_query_ends() -> None:
    live = live_of(factory(*COMMON))
    before = hosts(live)
    assert list(before) == [f"wear/{one}" for one in STRAINS] + ["means/mean"]
    delta = apply(live, event="remove-query", query="wear")
    assert delta.renamed == [
        RenamedRow(operator=f"wear/{one}", new=f"means/{one}") for one in STRAINS
    ]
    assert not delta.removed + delta.added
    assert not delta.stop + delta.start
    moved = {row.operator for row in delta.move}
    for one in STRAINS:
        assert hosts(live)[f"means/{one}"] == before[f"wear/{one}"] or f"means/{one}" in moved


def test_a_shared_operator_stays_where_it_is_when_its_second_query_ends() -> None:
    live = live_of(factory(*COMMON), Policy(gain=1e9))
    before = hosts(live)
    delta = apply(live, event="remove-query", query="means")
    assert (delta.removed, delta.renamed) == (["means/mean"], [])
    assert hosts(live) == {name: before[name] for name in before if name.startswith("wear/")}


def test_a_new_query_reads_from_what_runs() -> None:
    live = live_of(factory(*COMMON), Policy(gain=1e9))
    load = live.plan().load.sum()
    before = hosts(live)
    delta = apply(live, event="add-query", query=query("again", STRAIN, sink="robot"))
    assert not delta.added + delta.renamed + delta.start
    assert live.plan().load.sum() == pytest.approx(load)
    assert hosts(live) == before
    more = apply(
        live, event="add-query",
        query=query("more", STRAIN, ALL_OF_IT | {"id": "other"}, sink="robot"),
    )  # fmt: skip
    assert more.added == names(more.start) == ["more/other"]
    # Nothing is counted twice: the new operator has the load of its own input alone.
    rate = 2 * 0.5 * 20
    assert live.plan().load.sum() == pytest.approx(load + rate)


def test_another_selectivity_parts_what_was_shared_and_joins_it_again() -> None:
    live = live_of(factory(*COMMON), Policy(gain=1e9))
    load = live.plan().load.sum()
    before = hosts(live)
    apart = apply(
        live, event="change-selectivity", query="means", operator="strain", selectivity=0.25
    )
    own = [f"means/{one}" for one in STRAINS]
    assert sorted(apart.added) == own
    assert operators(live) == [f"wear/{one}" for one in STRAINS] + own + ["means/mean"]
    assert live.plan().load.sum() == pytest.approx(load + 100 - 10)
    again = apply(
        live, event="change-selectivity", query="means", operator="strain", selectivity=0.5
    )
    assert sorted(again.removed) == own
    assert live.plan().load.sum() == pytest.approx(load)
    assert list(hosts(live)) == list(before)


def test_the_first_of_two_queries_parts_from_the_other() -> None:
    """What ran goes on under one of the names, and only what is new starts."""
    live = live_of(factory(*COMMON), Policy(gain=1e9))
    delta = apply(
        live, event="change-selectivity", query="wear", operator="strain", selectivity=0.25
    )
    assert operators(live) == [
        *(f"wear/{one}" for one in STRAINS), *(f"means/{one}" for one in STRAINS), "means/mean"
    ]  # fmt: skip
    assert len(delta.added) == len(delta.start) == 2
    assert not delta.stop + delta.removed
    apply(live, event="change-selectivity", query="wear", operator="strain", selectivity=0.5)
    assert operators(live) == [f"wear/{one}" for one in STRAINS] + ["means/mean"]


def test_without_sharing_nothing_is_shared() -> None:
    live = live_of(factory(*COMMON), share_operators=False)
    delta = apply(live, event="add-query", query=query("again", STRAIN, sink="robot"))
    assert sorted(delta.added) == [f"again/{one}" for one in STRAINS]
    assert not apply(live, event="remove-query", query="wear").renamed


def test_a_source_joins_what_streams_say() -> None:
    live = live_of(factory(*COMMON))
    new = {"id": "heat-3", "node": "spare", "stream": "heat", "rate": 8, "key": "press-2"}
    delta = apply(live, event="add-source", source=new)
    assert delta.added == ["wear/strain(heat-3*force-2)"]
    gone = apply(live, event="fail-node", node="spare")
    assert gone.removed == delta.added


def known(live: LivePlacement) -> dict[str, Any]:
    """All that is known of operators: what they read and are, who reads them, rates and legs."""
    s, found = live._state, {}
    demand = s.demand
    assert isinstance(demand, QueryDemand)

    def name(other: int) -> str:
        if other >= 0:
            return s.names[other]
        return "sink" if other == TO_SINK else s.sources.ids[FIRST_SOURCE - other]

    for one, body in demand._bodies.items():
        begin, _, count = s.operators.row[one, :3].tolist()
        legs = slice(begin, begin + count)
        ends = zip(s.legs.end[legs].tolist(), s.legs.other[legs].tolist(), strict=True)
        readers = {
            (name(to) if to >= 0 else demand._queries[-1 - to].id, side, of and of.rate)
            for (to, side), of in body.readers
        }
        users = {demand._queries[query].id: local for query, local in body.use.users.items()}
        found[s.names[one]] = (
            [(name(other), of and of.rate) for other, of in body.inputs],
            readers,
            users,
            (body.kind, body.parts, body.combines, body.depth, body.before, body.after),
            [(s.nodes.ids[end] if end >= 0 else "", name(other)) for end, other in ends],
            s.legs.weight[legs].tolist(),
            s.operators.rate[one].tolist(),
        )
    return found


@settings(max_examples=8, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(["latency", "network-usage", "source-latency"]),
    st.booleans(),
)
def test_events_lead_to_what_an_expansion_of_all_queries_gives(
    seed: int, objective: str, shared: bool
) -> None:
    problem = random_queries(seed)
    plan = place(problem, objective=objective, share_operators=shared)
    live, draw = LivePlacement(problem, plan), RandomEvents(problem, seed)
    for number in range(60):
        event: Event = draw.next()
        with suppress(NovaError):
            live.apply(event)
            draw.happened(event)
        if number % 4 == 0:
            problem = live.problem()
            assert known(live) == known(LivePlacement(problem, live.plan(problem)))


# --- what is rewritten is decided again ----------------------------------------------------------


def test_partial_aggregates_follow_rates() -> None:
    live = live_of(factory(query("total", SUM), rates={"force-1": 0.8, "force-2": 0.9}))
    assert operators(live) == ["total/sum"]
    delta = apply(live, event="change-rate", source="force-1", rate=30)
    assert delta.added == ["total/sum.partial(force-1)"]
    assert live.plan().load.sum() == pytest.approx(30 + 1 + 0.9)
    apply(live, event="change-rate", source="force-2", rate=12)
    assert len(operators(live)) == 3
    back = apply(live, event="change-rate", source="force-1", rate=0.5)
    assert back.removed == ["total/sum.partial(force-1)"]


def test_partial_aggregates_follow_the_room_at_sources() -> None:
    live = live_of(factory(query("total", SUM)))
    assert len(operators(live)) == 3
    delta = apply(live, event="change-capacity", node="press-1", capacity=20)
    assert delta.removed == ["total/sum.partial(force-1)"]
    back = apply(live, event="change-capacity", node="press-1", capacity=200)
    assert back.added == delta.removed


def test_partial_aggregates_need_a_second_input() -> None:
    live = live_of(factory(query("total", SUM)))
    delta = apply(live, event="remove-source", source="force-2")
    assert sorted(delta.removed) == ["total/sum.partial(force-1)", "total/sum.partial(force-2)"]


def test_a_pushed_filter_stays_before_the_join() -> None:
    """Its selectivity is that of the join's input, whichever it is."""
    live = live_of(factory(query("wear", STRAIN, HOT, MEAN)))
    assert live.plan().load.sum() == pytest.approx(2 * (30 + 2) + 2 * 1)
    apply(live, event="change-selectivity", query="wear", operator="hot", selectivity=0.5)
    assert live.plan().load.sum() == pytest.approx(2 * (30 + 10) + 2 * 5)
    as_written = live_of(factory(query("wear", STRAIN, HOT, MEAN)), push_filters=False)
    apply(as_written, event="change-selectivity", query="wear", operator="hot", selectivity=0.5)
    assert as_written.plan().load.sum() == pytest.approx(2 * (30 + 20) + 2 * 5)


def test_a_projection_is_placed_once_it_emits_more_than_it_receives() -> None:
    make = {"id": "make", "kind": "project", "input": "strain", "selectivity": 0.5}
    live = live_of(factory(query("wear", STRAIN, make)))
    assert len(operators(live)) == 2
    delta = apply(live, event="change-selectivity", query="wear", operator="make", selectivity=3)
    assert len(delta.added) == len(delta.start) == 2
    back = apply(live, event="change-selectivity", query="wear", operator="make", selectivity=1)
    assert sorted(back.removed) == sorted(delta.added)


# --- operators in pieces -------------------------------------------------------------------------

SMALL = {"cloud": 90, "gateway": 90, "spare": 90, "press_1": 90, "press_2": 90, "robot": 90}
RATES = {"heat-1": 60.0, "heat-2": 60.0, "force-1": 60.0, "force-2": 60.0}
WIDE = {"id": "wide", "kind": "project", "input": "heat", "selectivity": 2.0}
CUTS = {
    "by key": query("q", STRAIN | {"keys": 5000}),
    "grid": query("q", STRAIN),
    "shares": query(
        "q", {"id": "groups", "kind": "aggregate", "input": "heat", "window": 1, "groups": 100}
    ),
    "project": query("q", WIDE),
    "combine": query(
        "q",
        {"id": "all", "kind": "aggregate", "input": "heat", "window": 1, "decomposable": True},
    ),
}
# Partial aggregates would be operators of their own.
PLACED: dict[str, dict[str, Any]] = {"combine": {"split_aggregates": False}}


def cut_problem(kind: str) -> Problem:
    """One operator at least needs more than the 90 tuples/s that each node has."""
    rates = RATES | ({"heat-1": 130.0} if kind == "project" else {})
    return factory(CUTS[kind], rates=rates, **SMALL)


def kinds_of_cuts(plan: Plan) -> set[str]:
    parts, kinds = plan.partitions, set()
    for operator in parts.cut_operators.tolist():
        feeds, of = plan.instances.feeds, plan.instances.pair == operator
        if parts.by_key is not None and parts.by_key[operator]:
            kinds.add("by key")
        elif feeds is not None and (feeds[of] >= 0).any():
            kinds.add("combine")
        elif parts.count[2 * operator + 1] > 1 or plan.graph.input_rate[2 * operator + 1] > 0:
            kinds.add("grid")
        else:
            kinds.add("shares")
    return kinds


@pytest.mark.parametrize("kind", CUTS)
def test_pieces_are_taken_over_and_refitted(kind: str) -> None:
    expected = {"shares" if kind == "project" else kind}
    problem = cut_problem(kind)
    plan = placed(problem, **PLACED.get(kind, {}))
    assert kinds_of_cuts(plan) == expected
    live = LivePlacement(problem, plan)
    first = live.plan()
    assert first.instances.node.tolist() == plan.instances.node.tolist()
    assert first.partitions.rate.tolist() == plan.partitions.rate.tolist()
    delta = apply(live, event="change-rate", source="heat-1", rate=70 if kind != "project" else 140)
    assert delta.cuts or delta.virtual
    assert kinds_of_cuts(live.plan()) == expected
    # Nodes of pieces are lost, while another one has more room.
    apply(live, event="change-capacity", node="cloud", capacity=400)
    for name in ("gateway", "spare"):
        apply(live, event="fail-node", node=name)
    # Small enough for one node, at last.
    for source in ("heat-1", "heat-2", "force-1", "force-2"):
        apply(live, event="change-rate", source=source, rate=5)
    apply(live, event="rebalance", moves=20)


@pytest.mark.parametrize("kind", CUTS)
def test_what_grows_is_cut_and_what_shrinks_is_whole_again(kind: str) -> None:
    calm = dict.fromkeys(RATES, 20.0)
    live = live_of(factory(CUTS[kind], rates=calm, **SMALL), **PLACED.get(kind, {}))
    assert not kinds_of_cuts(live.plan())
    whole = live.plan()
    rates = RATES | ({"heat-1": 130.0} if kind == "project" else {})
    for source, rate in rates.items():
        apply(live, event="change-rate", source=source, rate=rate)
    assert kinds_of_cuts(live.plan()) == {"shares" if kind == "project" else kind}
    for source, rate in calm.items():
        apply(live, event="change-rate", source=source, rate=rate)
    assert not live.plan().notes.get("cut")
    assert live.plan().operator_names().tolist() == whole.operator_names().tolist()


# --- refusals ------------------------------------------------------------------------------------


def selective(name: str, operator: str, selectivity: float) -> dict[str, Any]:
    return {
        "event": "change-selectivity",
        "query": name,
        "operator": operator,
        "selectivity": selectivity,
    }


NO_STREAM, NO_PAIR = STRAIN | {"inputs": ["heat", "forze"]}, STRAIN | {"inputs": ["heat", "arm"]}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"event": "move-sink", "operator": "weer", "node": "cloud"}, "weer"),
    ({"event": "move-sink", "operator": "wear", "node": "cluod"}, "cluod"),
    ({"event": "remove-query", "query": "weer"}, "weer"),
    ({"event": "add-query", "query": query("wear", STRAIN)}, "wear"),
    ({"event": "add-query", "query": query("more", STRAIN, sink="cluod")}, "cluod"),
    ({"event": "add-query", "query": query("more", NO_STREAM)}, "forze"),
    ({"event": "add-query", "query": query("more")}, "more"),
    ({"event": "add-query", "query": query("more", NO_PAIR)}, "arm"),
    (selective("weer", "hot", 0.5), "weer"),
    (selective("wear", "hat", 0.5), "hat"),
    (selective("wear", "mean", 0.5), "mean"),
    (selective("wear", "hot", 1.5), "hot"),
    ({"event": "pin", "operator": "wear/hat"}, "wear/hat"),
    ({"event": "pin", "operator": "weer/hot"}, "weer/hot"),
    ({"event": "remove-source", "source": "arm"}, "arm"),
    ({"event": "remove-source", "source": "leg"}, "leg"),
    ({"event": "fail-node", "node": "robot"}, "arm"),
    ({"event": "fail-node", "node": "cloud"}, "cloud"),
    ({"event": "remove-worker", "node": "press-1"}, "press-1"),
    ({"event": "add-pair", "operator": "wear", "left": "heat-1", "right": "force-2",
      "output_rate": 1}, "quer"),
    ({"event": "remove-pair", "operator": "wear", "left": "heat-1", "right": "force-1"}, "quer"),
    ({"event": "add-operator",
      "operator": {"id": "more", "left": "heat", "right": "force", "sink": "cloud"},
      "pairs": [{"left": "heat-1", "right": "force-1", "output_rate": 1}]}, "quer"),
    ({"event": "remove-operator", "operator": "wear"}, "quer"),
    ({"event": "add-source",
      "source": {"id": "heat-3", "node": "spare", "stream": "heat", "rate": 9, "key": "press-1"},
      "joins": [{"operator": "wear", "with": "force-1", "output_rate": 1}]}, "joins"),
    ({"event": "add-source",
      "source": {"id": "heat-3", "node": "spare", "stream": "heat", "rate": 9}}, "heat-3"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "name"), REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_what_is_not_possible_is_refused_in_a_line(fields: dict[str, Any], name: str) -> None:
    live = live_of(factory(*HALL))
    plan, problem = live.plan(), live.problem()
    with pytest.raises(ProblemError) as caught:
        live.apply(parse_event(json.dumps(fields)))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert live.plan().same_as(plan)
    assert live.problem().same_as(problem)
    assert live.version == 0


def test_the_last_query_stays() -> None:
    live = live_of(factory(query("total", SUM)))
    with pytest.raises(ProblemError, match="quer"):
        live.apply(parse_event('{"event": "remove-query", "query": "total"}'))


@pytest.mark.parametrize(
    "fields",
    [
        {"event": "remove-query", "query": "join"},
        {"event": "change-selectivity", "query": "join", "operator": "join", "selectivity": 0.5},
        {"event": "add-source", "source": {"id": "x", "node": "n1", "stream": "left", "rate": 9}},
    ],
)
def test_joins_of_pairs_take_no_events_of_queries(fields: dict[str, Any]) -> None:
    problem = generate(30, seed=1)
    live = LivePlacement(problem, place(problem))
    with pytest.raises(ProblemError) as caught:
        live.apply(parse_event(json.dumps(fields)))
    assert "\n" not in str(caught.value)


# --- undo ----------------------------------------------------------------------------------------

TOO_MUCH = {"event": "change-rate", "source": "arm", "rate": 1e7}
BEFORE: list[list[dict[str, Any]]] = [
    [],
    [{"event": "remove-query", "query": "wear"}],
    [{"event": "add-query", "query": query("more", STRAIN, ALL_OF_IT | {"id": "x"})}],
    [{"event": "change-selectivity", "query": "wear", "operator": "strain", "selectivity": 0.2}],
    [{"event": "add-source",
      "source": {"id": "heat-3", "node": "spare", "stream": "heat", "rate": 9, "key": "press-1"}}],
    [{"event": "remove-source", "source": "heat-1"}],
    [{"event": "fail-node", "node": "press-1"}],
    [{"event": "move-sink", "operator": "means", "node": "robot"}],
    [{"event": "change-rate", "source": "force-1", "rate": 120}],
    [{"event": "pin", "operator": "wear/strain"}],
    [{"event": "change-capacity", "node": "press-1", "capacity": 3}],
]  # fmt: skip


@pytest.mark.parametrize("events", BEFORE, ids=lambda one: one[0]["event"] if one else "alone")
@pytest.mark.parametrize("last", ["no room", "a wrong name"])
def test_an_event_that_is_refused_leaves_nothing(events: list[dict[str, Any]], last: str) -> None:
    queries = (*COMMON, query("crash", PEAK, CLOSE), query("total", SUM))
    live, other = (live_of(factory(*queries)) for _ in range(2))
    plan, problem, free, pinned = live.plan(), live.problem(), free_capacity(live), live.pinned
    wrong = TOO_MUCH if last == "no room" else {"event": "remove-query", "query": "none"}
    batch = {"event": "batch", "events": [*events, wrong]}
    with pytest.raises(InfeasibleError if last == "no room" else ProblemError):
        live.apply(parse_event(json.dumps(batch)))
    assert live.plan().same_as(plan)
    assert live.problem().same_as(problem)
    assert (free_capacity(live), live.pinned, live.version) == (free, pinned, 0)
    # What comes then is the same as if nothing had been tried.
    for fields in [*events, {"event": "rebalance", "moves": 9}]:
        event = parse_event(json.dumps(fields))
        assert live.apply(event) == other.apply(event)
    assert live.plan().same_as(other.plan())


def test_a_sink_that_gets_what_is_shared_may_be_overloaded_only_if_that_is_allowed() -> None:
    live = live_of(factory(*COMMON))
    with pytest.raises(InfeasibleError):
        live.apply(parse_event(json.dumps(TOO_MUCH | {"source": "heat-1"})))
    delta = live.apply(parse_event(json.dumps(TOO_MUCH | {"source": "heat-1", "overload": True})))
    assert "capacity" in delta.new_breaks


# --- state ---------------------------------------------------------------------------------------


def test_a_compacted_placement_goes_on_the_same() -> None:
    queries = (*HALL, *(query(f"{name}-2", STRAIN, ALL_OF_IT) for name in ("a", "b")))
    live, other = (live_of(factory(*queries)) for _ in range(2))
    for number, (kind, fields) in enumerate(EVENTS.items()):
        event = parse_event(json.dumps({"event": kind.partition(",")[0]} | fields))
        deltas = []
        for one in (live, other):
            try:
                deltas.append(one.apply(event))
            except NovaError as error:
                deltas.append(str(error))
        assert deltas[0] == deltas[1]
        if number % 3 == 0:
            live.compact()
    assert live.plan().same_as(other.plan())
    assert live.moved() == other.moved()


def test_the_reach_of_an_event_is_known_beforehand() -> None:
    live = live_of(factory(*COMMON))

    def reach(**fields: object) -> int:
        return live.reach(parse_event(json.dumps(fields)))

    assert reach(event="rebalance", moves=1) == 3
    assert reach(event="remove-query", query="means") in (1, 3)
    assert reach(event="change-rate", source="heat-1", rate=1) >= 1
    assert reach(event="remove-query", query="none") == 0
    assert reach(event="change-selectivity", query="none", operator="x", selectivity=1) == 0


# --- the state -----------------------------------------------------------------------------------


@pytest.mark.parametrize("moves", range(1, 9))
def test_a_rebalance_takes_no_more_moves_than_it_may(moves: int) -> None:
    """All runs on one node, so that each operator would gain by leaving it."""
    problem = factory(*HALL, *COMMON[1:], spare=2000)
    count = len(graph_of(problem).bodies)
    far = Plan.whole(problem, np.full(count, list(NODES).index("spare")), "by-hand")
    live = LivePlacement(problem, far, Policy(gain_share=0))
    delta = apply(live, event="rebalance", moves=moves)
    assert 0 < len(delta.move) <= moves
    assert not (delta.start or delta.stop)


def test_what_is_only_tried_leaves_no_trace() -> None:
    """Queries look for better nodes; what is free there stays as it was, to the last bit."""
    third = dict.fromkeys(RATES, 10 / 3) | {"arm": 0.1}
    live = live_of(factory(*HALL, rates=third))
    for step in range(20):
        position = [80 + step / 7, 10.0]
        apply(live, event="move-node", node="press-1", position=position)
    used = {name for names in hosts(live).values() for name in names}
    nodes = live.problem().nodes
    room = dict(zip(nodes.ids.tolist(), nodes.capacity.tolist(), strict=True))
    free = free_capacity(live)
    unused = room.keys() - used
    assert unused
    assert {name: free[name] for name in unused} == {name: room[name] for name in unused}


def test_names_within_queries_have_no_control_characters() -> None:
    added = query("more", STRAIN | {"id": "st\x01rain"})
    with pytest.raises(ProblemError, match="control characters"):
        parse_event(json.dumps({"event": "add-query", "query": added}))
