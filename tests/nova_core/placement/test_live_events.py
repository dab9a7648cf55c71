"""What each event does to a small placement, and what bad events get."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from oracles.live_placement import free_capacity

from nova_core.errors import InfeasibleError, PlanError, ProblemError
from nova_core.io.validation import validate_problem
from nova_core.model import JoinMatrix, Joins, Nodes, Problem, Sources
from nova_core.model.expansion import graph_of
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan
from nova_core.model.plan_delta import PlanDelta, assemble_partitions
from nova_core.model.verify import verify
from nova_core.placement.live import (
    Event,
    LivePlacement,
    Policy,
    Rebalance,
    parse_event,
)
from nova_core.strategies import place

# Ids, positions on a line, capacities. Sources at 0 and 10, the sink at 20.
NODES = {
    "left": (0, 5),
    "right": (10, 5),
    "near": (9, 60),
    "middle": (12, 50),
    "far": (90, 500),
    "sink": (20, 100),
}


def problem(joins: int = 1, **changes: float) -> Problem:
    """``joins`` pairs of 25 + 25 tuples/s between the same nodes, an operator each."""
    numbers = range(joins)
    capacity = {name: changes.get(name, c) for name, (_, c) in NODES.items()}
    return validate_problem(
        Problem(
            nodes=Nodes(
                ids=np.array(list(NODES)),
                position=np.array([[x, 0.0] for x, _ in NODES.values()]),
                capacity=np.array(list(capacity.values()), np.float64),
                worker=np.array([name != "sink" for name in NODES]),
            ),
            sources=Sources(
                ids=np.array([f"{side}{k}" for k in numbers for side in "lr"]),
                node=np.array([0, 1] * joins),
                stream=np.array(["L", "R"] * joins),
                rate=np.full(2 * joins, 25.0),
            ),
            joins=Joins(
                ids=np.array([f"j{k}" for k in numbers]),
                left=np.array(["L"] * joins),
                right=np.array(["R"] * joins),
                sink=np.full(joins, 5),
            ),
            matrix=JoinMatrix(
                join=np.arange(joins),
                left=np.arange(0, 2 * joins, 2),
                right=np.arange(1, 2 * joins, 2),
                output_rate=np.full(joins, 10.0),
            ),
        )
    )


def live_of(
    asked: Problem, hosts: list[str], policy: Policy | None = None, **parameters: float
) -> LivePlacement:
    """Each pair whole on a named node."""
    node = np.array([asked.node_index[name] for name in hosts])
    plan = Plan(
        problem=asked,
        strategy="by hand",
        objective="latency",
        partitions=Partitions.whole(asked),
        instances=Instances.whole(node),
        parameters=parameters,
    )
    return LivePlacement(asked, plan, policy)


def event(**fields: object) -> Event:
    return parse_event(json.dumps(fields))


def apply(live: LivePlacement, **fields: object) -> PlanDelta:
    """Apply an event; the delta must be exact both ways, and the plan hold."""
    problem, old = live.problem(), live.plan()
    delta = live.apply(event(**fields))
    now = validate_problem(live.problem())
    new = live.plan(now)
    assert verify(new).honest
    assert delta.apply(old, now).same_as(new)
    assert delta.inverse().apply(new, problem).same_as(old)
    return delta


def moves(delta: PlanDelta) -> list[tuple[str, str, str]]:
    return [(m.operator.partition("/")[0], m.source_node, m.target_node) for m in delta.move]


def hosts(live: LivePlacement) -> list[str]:
    plan = live.plan()
    return plan.problem.nodes.ids[plan.instances.node].tolist()


# --- nodes ---------------------------------------------------------------------------------------


def test_a_new_worker_is_used_only_later() -> None:
    live = live_of(problem(), ["far"])
    node = {"id": "new", "capacity": 80, "position": [10, 1]}
    assert apply(live, event="add-worker", node=node).empty
    assert free_capacity(live)["new"] == 80
    assert moves(apply(live, event="fail-node", node="far")) == [("j0", "far", "near")]
    assert moves(apply(live, event="remove-worker", node="near")) == [("j0", "near", "new")]


def test_a_new_worker_is_where_its_measurements_put_it() -> None:
    live = live_of(problem(), ["near"])
    before = live.problem().nodes
    there = np.array([6.0, 3.0])
    away = np.linalg.norm(before.position - there, axis=1)
    latency = dict(zip(before.ids.tolist(), away.tolist(), strict=True))
    apply(live, event="add-worker", node={"id": "new", "capacity": 80}, latency=latency)
    nodes = live.problem().nodes
    found = nodes.position[nodes.ids.tolist().index("new")]
    distances = np.linalg.norm(before.position - found, axis=1)
    assert distances == pytest.approx(away, abs=0.1)
    assert free_capacity(live)["new"] == 80


def test_a_new_worker_with_absurd_latencies_is_told() -> None:
    def add(live: LivePlacement, latency: dict[str, float]) -> str:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            apply(live, event="add-worker", node={"id": "new", "capacity": 80}, latency=latency)
        return "; ".join(str(one.message) for one in said)

    before = problem().nodes
    away = np.linalg.norm(before.position - [6.0, 3.0], axis=1)
    right = dict(zip(before.ids.tolist(), away.tolist(), strict=True))
    assert add(live_of(problem(), ["near"]), right) == ""
    told = add(live_of(problem(), ["near"]), dict.fromkeys(right, 9 * 3.6e6))
    assert told.startswith("add-worker 'new': latencies that fit nothing: ")
    assert all(f"{name} 32,400,000 ms (placed at " in told for name in list(right)[:5])
    told = add(live_of(problem(), ["near"]), right | {"far": 9 * 3.6e6})
    assert "far 32,400,000 ms (placed at " in told and "near" not in told
    assert "\n" not in told


def test_of_many_measurements_the_low_ones_count() -> None:
    one = {"near": 6.0, "far": 3.0, "sink": 9.0}
    rng = np.random.default_rng(0)
    # Ten of each, eight of them late; and older ones, which no longer count.
    many = {
        name: [ms / 2] * 3 + rng.permutation([ms, ms, *(ms + rng.exponential(50, 8))]).tolist()
        for name, ms in one.items()
    }
    positions = []
    for latency in (one, many):
        live = live_of(problem(), ["near"])
        apply(live, event="add-worker", node={"id": "new", "capacity": 80}, latency=latency)
        nodes = live.problem().nodes
        positions.append(nodes.position[nodes.ids.tolist().index("new")].tolist())
    assert positions[0] == positions[1]


def test_latencies_do_not_tell_other_metrics() -> None:
    live = live_of(replace(problem(), metrics=("jitter",)), ["near"])
    with pytest.raises(ProblemError, match=r"also measure jitter.*; give a position"):
        live.apply(event(event="add-worker", node=UNPLACED, latency={"near": 1, "far": 5}))


def test_an_idle_worker_leaves_without_a_trace() -> None:
    live = live_of(problem(), ["near"])
    assert apply(live, event="remove-worker", node="far").empty
    assert "far" not in free_capacity(live)


def test_a_failing_node_takes_its_sources_along() -> None:
    live = live_of(problem(2), ["near", "far"])
    apply(live, event="add-worker", node={"id": "n", "capacity": 9, "position": [1, 0]})
    apply(
        live,
        event="add-source",
        source={"id": "extra", "node": "n", "stream": "L", "rate": 5},
        joins=[{"operator": "j0", "with": "r0", "output_rate": 1}],
    )
    delta = apply(live, event="fail-node", node="n")
    assert delta.removed == ["j0/extra*r0"]
    assert len(delta.stop) == 1
    assert live.problem().sources.ids.tolist() == ["l0", "r0", "l1", "r1"]


def test_less_capacity_moves_the_smallest_join_that_suffices() -> None:
    asked = problem(3, near=500)
    live = live_of(asked, ["near"] * 3)
    apply(live, event="change-rate", source="l1", rate=35)
    apply(live, event="change-rate", source="l2", rate=45)
    # 50 + 60 + 70 there; 125 leave 55 too many, which 60 makes up for.
    delta = apply(live, event="change-capacity", node="near", capacity=125)
    assert moves(delta) == [("j1", "near", "far")]
    assert free_capacity(live)["near"] == 5
    assert apply(live, event="change-capacity", node="near", capacity="unlimited").empty
    assert apply(live, event="change-capacity", node="near", capacity=120).empty


def test_capacity_zero_empties_a_node() -> None:
    live = live_of(problem(), ["near"])
    assert moves(apply(live, event="change-capacity", node="near", capacity=0))
    assert hosts(live) == ["middle"]


def test_coordinates_that_hardly_change_move_nothing() -> None:
    live = live_of(problem(), ["near"])
    assert apply(live, event="move-node", node="near", position=[9.5, 0.5]).empty
    delta = apply(live, event="move-node", node="near", position=[60, 60])
    assert moves(delta) == [("j0", "near", "middle")]
    assert delta.virtual == []


def test_sources_that_move_take_the_virtual_position_along() -> None:
    live = live_of(problem(), ["near"])
    apply(live, event="move-node", node="left", position=[95, 0])
    delta = apply(live, event="move-node", node="right", position=[92, 0])
    (virtual,) = delta.virtual
    assert virtual.new == [92, 0]
    assert hosts(live) == ["far"]


def test_links_are_left_when_their_budget_falls() -> None:
    live = live_of(problem(), ["near"])
    assert apply(live, event="change-link", **{"from": "left", "to": "near", "budget": 30}).empty
    delta = apply(live, event="change-link", **{"from": "left", "to": "near", "budget": 20})
    assert moves(delta) == [("j0", "near", "middle")]
    assert live.problem().links.budget.tolist() == [20]
    apply(live, event="change-link", **{"from": "left", "to": "near", "budget": "unlimited"})
    assert len(live.problem().links) == 0


# --- workload ------------------------------------------------------------------------------------


def test_rates_move_only_what_no_longer_fits() -> None:
    live = live_of(problem(), ["near"])
    assert apply(live, event="change-rate", source="l0", rate=35).empty
    assert free_capacity(live)["near"] == 0
    assert live.problem().matrix.output_rate.tolist() == [10]
    delta = apply(live, event="change-rate", source="l0", rate=200)
    assert moves(delta) or delta.cuts


def test_a_join_emits_in_proportion_to_its_slower_input() -> None:
    live = live_of(problem(), ["far"])
    for source, rate, output in (("l0", 50, 10), ("r0", 75, 20), ("l0", 5, 2), ("r0", 25, 2)):
        apply(live, event="change-rate", source=source, rate=rate)
        assert live.problem().matrix.output_rate.tolist() == [pytest.approx(output)]


def test_a_join_that_fits_nowhere_whole_is_cut() -> None:
    live = live_of(problem(far=40), ["near"])
    delta = apply(live, event="change-rate", source="l0", rate=50)
    (cut,) = delta.cuts
    assert cut.old is None
    assert cut.new is not None
    assert sum(cut.new.left) == pytest.approx(50)
    assert len(delta.start) >= 2
    back = apply(live, event="change-rate", source="l0", rate=25)
    assert [c.new for c in back.cuts] in ([], [None])


def test_a_join_that_finds_no_room_in_pieces_is_cut_finer_unless_sigma_is_chosen() -> None:
    asked = problem(middle=38, far=0)
    less_room = {"event": "change-capacity", "node": "near", "capacity": 38}
    with pytest.raises(InfeasibleError):
        live_of(asked, ["near"], sigma=0.4).apply(event(**less_room))
    live = live_of(asked, ["near"])
    (cut,) = apply(live, **less_room).cuts
    assert cut.new is not None and len(cut.new.left) == 10
    assert {"near", "middle"} <= set(hosts(live))
    # It stays where it is, in pieces as fine, while it fits there.
    before = hosts(live)
    rates = [{"event": "change-rate", "source": name, "rate": 24} for name in ("l0", "r0")]
    assert moves(apply(live, event="batch", events=rates)) == []
    assert hosts(live) == before


def test_a_new_source_starts_its_joins() -> None:
    live = live_of(problem(), ["near"])
    delta = apply(
        live,
        event="add-source",
        source={"id": "l9", "node": "left", "stream": "L", "rate": 10},
        joins=[{"operator": "j0", "with": "r0", "output_rate": 2}],
    )
    assert [s.node for s in delta.start] == ["middle"]
    assert delta.added == ["j0/l9*r0"]
    gone = apply(live, event="remove-source", source="l9")
    assert gone.removed == delta.added
    assert gone.stop == delta.start


def test_a_pair_of_sources_that_stay_comes_and_goes() -> None:
    live = live_of(problem(2), ["near", "middle"])
    pair = {"operator": "j0", "left": "l0", "right": "r1"}
    delta = apply(live, event="add-pair", **pair, output_rate=4)
    assert delta.added == ["j0/l0*r1"]
    assert [start.node for start in delta.start] == ["far"]
    assert live.problem().matrix.output_rate.tolist() == [10, 10, 4]
    assert [row.new for row in delta.virtual] == [[10.0, 0.0]]
    gone = apply(live, event="remove-pair", **pair)
    assert (gone.removed, gone.stop) == (delta.added, delta.start)
    assert live.problem().sources.ids.tolist() == ["l0", "r0", "l1", "r1"]
    # Both at once change nothing.
    both = [
        {"event": "add-pair", **pair, "output_rate": 4},
        {"event": "remove-pair", **pair},
    ]
    assert apply(live, event="batch", events=both).empty
    # A pair may go and come again, with another rate.
    apply(live, event="batch", events=[both[0]])
    again = [both[1], both[0] | {"output_rate": 5}]
    delta = apply(live, event="batch", events=again)
    assert delta.removed == delta.added == ["j0/l0*r1"]
    assert live.problem().matrix.output_rate.tolist() == [10, 10, 5]


QUERY = {"id": "q", "left": "L", "right": "R", "sink": "middle"}
PAIR = {"left": "l0", "right": "r0", "output_rate": 2}


def test_a_query_starts_and_ends() -> None:
    live = live_of(problem(), ["near"])
    delta = apply(live, event="add-operator", operator=QUERY, pairs=[PAIR])
    assert delta.added == ["q/l0*r0"]
    assert [start.node for start in delta.start] == ["middle"]
    now = live.problem()
    assert now.joins.ids.tolist() == ["j0", "q"]
    assert now.joins.sink.tolist() == [5, 3]
    # It is an operator like any other.
    with pytest.raises(ProblemError, match="is the sink of q"):
        live.apply(event(event="fail-node", node="middle"))
    apply(live, event="pin", operator="q")
    apply(live, event="move-sink", operator="q", node="far")
    # The first one may go, as long as another is left.
    assert apply(live, event="remove-operator", operator="j0").removed == ["j0/l0*r0"]
    assert live.problem().joins.ids.tolist() == ["q"]
    with pytest.raises(ProblemError, match="no pair to join"):
        live.apply(event(event="remove-operator", operator="q"))
    apply(live, event="add-operator", operator=QUERY | {"id": "j0"}, pairs=[PAIR])
    apply(live, event="remove-operator", operator="q")
    assert live.pinned == ()
    apply(live, event="fail-node", node="far")


def test_a_query_over_new_streams_comes_with_their_sources() -> None:
    live = live_of(problem(), ["near"])
    sources = [
        {"event": "add-source", "joins": [], "source": {"id": f"{s}9", "node": "far", "rate": 9,
         "stream": s}} for s in "AB"
    ]  # fmt: skip
    query = {
        "event": "add-operator",
        "operator": QUERY | {"left": "A", "right": "B"},
        "pairs": [{"left": "A9", "right": "B9", "output_rate": 1}],
    }
    apply(live, event="batch", events=[*sources, query])
    assert live.problem().sources.stream.tolist() == ["L", "R", "A", "B"]
    end = [{"event": "remove-source", "source": name} for name in ("A9", "B9")]
    with pytest.raises(ProblemError, match="stream 'A', which an operator joins, without a sou"):
        live.apply(event(event="batch", events=end))
    apply(live, event="batch", events=[*end, {"event": "remove-operator", "operator": "q"}])
    assert live.problem().sources.stream.tolist() == ["L", "R"]


def test_a_query_may_require_what_none_did() -> None:
    asked = problem()
    tags = np.array(["", "", "x", "arm", "arm,gpu", ""])
    memory = np.array([1e9] * 4 + [8e9, 1e9])
    asked = replace(asked, nodes=replace(asked.nodes, tags=tags, memory=memory))
    live = live_of(asked, ["near"])
    for number, (requires, host) in enumerate([
        ({"tags": ["gpu"]}, "far"),
        ({"memory": 2e9}, "far"),
        ({"tags": ["arm"]}, "middle"),
        ({"tags": ["gpu"]}, "far"),
        ({}, "far"),
    ]):  # fmt: skip
        query = QUERY | {"id": f"q{number}", "requires": requires}
        delta = apply(live, event="add-operator", operator=query, pairs=[PAIR])
        assert [start.node for start in delta.start] == [host]
    assert len(graph_of(live.problem()).requirements.rules) == 3
    before = live.plan()
    with pytest.raises(InfeasibleError, match="tuples/s are missing"):
        live.apply(
            event(
                event="add-operator",
                operator=QUERY | {"requires": {"tags": ["fpga"]}},
                pairs=[PAIR],
            )
        )
    assert live.plan().same_as(before)
    # A worker that comes later is known by what it offers.
    node = {"id": "new", "capacity": 60, "position": [10, 1], "tags": ["arm", "gpu"]}
    apply(live, event="add-worker", node=node)
    live.compact()
    apply(
        live, event="add-operator", operator=QUERY | {"requires": {"tags": ["gpu"]}}, pairs=[PAIR]
    )
    assert hosts(live)[-1] == "new"


def test_what_ends_is_forgotten_whether_or_not_it_is_compacted() -> None:
    policy = Policy(state_bytes={"j0": 5.0, "j1": 1.0}, gain_per_byte=1.0, pinned=("j0",))
    lives = [live_of(problem(2), ["near", "middle"], policy) for _ in range(2)]
    for live in lives:
        apply(live, event="remove-operator", operator="j0")
    lives[1].compact()
    for live in lives:
        apply(live, event="add-operator", operator=QUERY | {"id": "j0"}, pairs=[PAIR])
        assert live.pinned == ()
        live.compact()
        assert live.policy.state_bytes == {"j1": 1.0}
    assert lives[0].plan().same_as(lives[1].plan())


def test_a_sink_that_moves_reroutes_what_stays() -> None:
    live = live_of(problem(), ["near"])
    apply(live, event="change-capacity", node="right", capacity=30)
    delta = apply(live, event="move-sink", operator="j0", node="right")
    assert delta.move == []
    (row,) = delta.reroute
    assert (row.node, row.flow, row.old, row.new) == ("near", "result", "sink", "right")
    assert live.problem().joins.sink.tolist() == [1]


# --- transactions --------------------------------------------------------------------------------


def test_a_batch_is_one_change() -> None:
    live = live_of(problem(), ["near"])
    delta = apply(
        live,
        event="batch",
        events=[
            {"event": "change-capacity", "node": "middle", "capacity": 0},
            {"event": "fail-node", "node": "near"},
            {"event": "change-capacity", "node": "middle", "capacity": 60},
        ],
    )
    assert moves(delta) == [("j0", "near", "far")]
    assert (delta.old_version, delta.new_version, live.version) == (0, 1, 1)


def test_a_batch_that_fails_leaves_nothing_behind() -> None:
    live = live_of(problem(), ["near"])
    before, free = live.plan(), free_capacity(live)
    bad = event(
        event="batch",
        events=[
            {"event": "add-worker", "node": {"id": "x", "capacity": 70, "position": [9, 0]}},
            {"event": "fail-node", "node": "near"},
            {"event": "change-rate", "source": "nix", "rate": 3},
        ],
    )
    with pytest.raises(ProblemError, match=r"events\[2\]: unknown source 'nix'"):
        live.apply(bad)
    assert live.plan().same_as(before)
    assert free_capacity(live) == free
    assert live.version == 0


def test_what_cannot_be_satisfied_says_how_much_is_missing() -> None:
    live = live_of(problem(far=40, sink=1000), ["near"])
    before = live.plan()
    with pytest.raises(InfeasibleError, match="tuples/s are missing") as told:
        live.apply(event(event="change-rate", source="l0", rate=400))
    assert told.value.missing > 0
    assert live.plan().same_as(before)
    delta = live.apply(event(event="change-rate", source="l0", rate=400, overload=True))
    assert delta.new_breaks == ["capacity"]
    report = verify(live.plan())
    assert report.honest
    assert not report.ok
    relieved = live.apply(event(event="change-rate", source="l0", rate=25))
    assert relieved.new_breaks == []
    assert verify(live.plan()).ok


def test_joins_leave_a_node_that_lacks_c_min_beside_its_greatest() -> None:
    """Of 500 tuples/s far has 100 free and 50 of its greatest join: more than C_min = 120."""
    live = live_of(problem(8, near=130, sink=1000), ["far"] * 8, c_min=120)
    assert apply(live, event="change-capacity", node="far", capacity=470).empty
    delta = apply(live, event="change-capacity", node="far", capacity=460)
    assert moves(delta) == [("j7", "far", "near")]
    # A join that grows leaves less free, and counts for more.
    assert apply(live, event="change-rate", source="l0", rate=50).empty
    assert apply(live, event="change-capacity", node="far", capacity=430).empty
    with pytest.raises(InfeasibleError, match="missing"):
        apply(live, event="change-rate", source="l1", rate=60)
    delta = apply(live, event="change-rate", source="l1", rate=60, overload=True)
    assert delta.new_breaks == ["minimum-capacity"]
    apply(live, event="change-capacity", node="far", capacity=500)
    assert apply(live, event="change-capacity", node="near", capacity=300).new_breaks == []


def test_an_overloaded_node_that_fails_is_forgotten() -> None:
    """Near has 60 tuples/s; half of a join that is cut leaves it first, then two whole ones."""
    asked, near, far = problem(3), 2, 4
    halves = {0: [np.array([12.5, 12.5]), np.array([25.0])]}
    plan = Plan(
        problem=asked,
        strategy="by hand",
        objective="latency",
        partitions=assemble_partitions(Partitions.whole(asked), halves),
        instances=Instances(
            *np.array([[0, 0, 1, 2], [near, far, near, near], [0, 1, 0, 0], [1, 2, 1, 1]]),
            *np.array([[0, 0, 0, 0], [1, 1, 1, 1]]),
        ),
        breaks=("capacity",),
    )
    live = LivePlacement(asked, plan)
    assert apply(live, event="fail-node", node="near").new_breaks == []
    assert verify(live.plan()).ok


def test_a_sink_that_cannot_take_the_output_is_refused_even_with_overload() -> None:
    live = live_of(problem(), ["near"], Policy(overload=True))
    with pytest.raises(InfeasibleError, match="sink sink: cannot take the output") as told:
        live.apply(event(event="change-capacity", node="sink", capacity=4))
    assert told.value.missing == 6


def test_when_nothing_fits_another_join_makes_way() -> None:
    asked = problem(2, far=0, middle=55)
    live = live_of(asked, ["near", "middle"])
    apply(live, event="change-rate", source="l0", rate=5)
    apply(live, event="add-worker", node={"id": "small", "capacity": 35, "position": [11, 0]})
    # j0 (30) is on near (60); j1 (50) grows to 60 and fits only there, in one piece.
    whole = LivePlacement(live.problem(), sigma_one(live.plan()))
    rates = [{"event": "change-rate", "source": name, "rate": 30} for name in ("l1", "r1")]
    delta = whole.apply(event(event="batch", events=rates))
    assert sorted(moves(delta)) == [("j0", "near", "small"), ("j1", "middle", "near")]


def sigma_one(plan: Plan) -> Plan:
    """The same plan of a strategy that does not cut."""
    return replace(plan, parameters={"sigma": 1.0})


# --- policy --------------------------------------------------------------------------------------


def test_the_threshold_decides_about_moves_by_choice() -> None:
    moved = event(event="move-node", node="near", position=[9, 10])
    assert moves(live_of(problem(), ["near"], Policy()).apply(moved))
    for policy in (
        Policy(gain=30),
        Policy(gain_share=0.9),
        Policy(state_bytes={"j0": 1e6}, gain_per_byte=1e-4),
        Policy(pinned=("j0",)),
    ):
        assert live_of(problem(), ["near"], policy).apply(moved).empty


def test_a_join_does_not_flap() -> None:
    def count(policy: Policy) -> int:
        live = live_of(problem(), ["near"], policy)
        total = 0
        for step in range(10):
            # The host goes off, and the other one comes back.
            nodes = ("near", "middle") if step % 2 == 0 else ("middle", "near")
            away, back = ([10.0, 15.0], [10.0, 0.0])
            total += len(
                live.apply(
                    event(
                        event="batch",
                        events=[
                            {"event": "move-node", "node": nodes[1], "position": back},
                            {"event": "move-node", "node": nodes[0], "position": away},
                        ],
                    )
                ).move
            )
        return total

    assert count(Policy(gain_share=0.01)) == 10
    assert count(Policy(gain_share=0.01, cooldown=5)) == 2
    assert count(Policy(gain=50)) == 0


def test_pinned_operators_move_only_when_their_node_is_gone() -> None:
    live = live_of(problem(2, near=500), ["near", "near"], Policy(pinned=("j0",)))
    delta = apply(live, event="change-capacity", node="near", capacity=60)
    assert [m[0] for m in moves(delta)] == ["j1"]
    with pytest.raises(InfeasibleError, match="pinned"):
        live.apply(event(event="change-capacity", node="near", capacity=10))
    with pytest.raises(InfeasibleError, match="pinned"):
        live.apply(event(event="change-rate", source="l0", rate=60))
    assert [m[0] for m in moves(apply(live, event="fail-node", node="near"))] == ["j0"]
    apply(live, event="pin", operator="j0", pinned=False)
    assert live.pinned == ()


@pytest.mark.parametrize(
    ("capacity", "largest", "budget", "missing"),
    [
        (60, 100, 100, 25),
        # An instance may be too large where there is room.
        (500, 50, 100, 35),
        # And a link may have no room for it, which is not said.
        (500, 100, 30, 85),
    ],
)
def test_what_is_pinned_says_how_much_room_it_lacks(
    capacity: float, largest: float, budget: float, missing: float
) -> None:
    asked, policy = problem(1, near=capacity), Policy(pinned=("j0",))
    live = live_of(asked, ["near"], policy, bandwidth=largest)
    apply(live, event="change-link", **{"from": "left", "to": "near"}, budget=budget)
    with pytest.raises(InfeasibleError, match=f"pinned.*: {missing:g} tuples/s are missing"):
        apply(live, event="change-rate", source="l0", rate=60)


def test_rebalancing_improves_within_its_budget() -> None:
    asked = problem(4, near=500, far=5000)
    live = live_of(asked, ["far"] * 4)
    one = live.apply(Rebalance(moves=1))
    assert len(one.move) == 1
    assert len(live.rebalance(10).move) == 3
    assert live.rebalance(10).empty
    assert set(hosts(live)) == {"near", "middle"} or set(hosts(live)) == {"near"}


def test_rebalancing_swaps_two_joins_that_are_in_each_others_place() -> None:
    live = live_of(problem(1, middle=0, near=50, far=50), ["far"])
    far = {"node": "far", "rate": 25}
    apply(live, event="add-source", source={"id": "l9", "stream": "L", **far}, joins=[])
    delta = apply(
        live,
        event="add-source",
        source={"id": "r9", "stream": "R", **far},
        joins=[{"operator": "j0", "with": "l9", "output_rate": 1}],
    )
    assert [start.node for start in delta.start] == ["near"]
    assert live.rebalance(1).empty
    swapped = live.rebalance(2)
    assert sorted((m.operator, m.target_node) for m in swapped.move) == [
        ("j0/l0*r0", "near"),
        ("j0/l9*r9", "far"),
    ]


def test_rebalancing_keeps_joins_that_have_no_other_place() -> None:
    live = live_of(problem(2), ["near", "far"], Policy(overload=True))
    live.apply(event(event="batch", events=[
        {"event": "remove-worker", "node": "far"},
        {"event": "remove-worker", "node": "middle"},
    ]))  # fmt: skip
    assert hosts(live) == ["near", "near"]
    apply(live, event="rebalance", moves=5)
    assert hosts(live) == ["near", "near"]
    assert live.plan().breaks == ("capacity",)


def test_rebalancing_relieves_overloaded_nodes() -> None:
    asked = problem(2)
    live = live_of(asked, ["near", "far"], Policy(overload=True))
    live.apply(event(event="batch", events=[
        {"event": "remove-worker", "node": "far"},
        {"event": "remove-worker", "node": "middle"},
    ]))  # fmt: skip
    assert live.plan().breaks == ("capacity",)
    live.apply(event(event="add-worker", node={"id": "n", "capacity": 100, "position": [50, 0]}))
    assert len(live.rebalance(5).move) >= 1
    assert live.plan().breaks == ()


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("3", "an object with a field 'event'"),
        ('{"event": "fail"}', "'fail' is none"),
        ('{"event": "fail-node"}', "node"),
        ('{"event": "fail-node", "node": "a", "nod": 1}', "nod"),
        ('{"event": "change-rate", "source": "l0", "rate": -1}', "rate"),
        ('{"event": "change-rate", "source": "l0", "rate": "a"}', "rate"),
        ('{"event": "change-capacity", "node": "a", "capacity": "lots"}', "capacity"),
        ('{"event": "batch", "events": [{"event": "batch", "events": []}]}', "no other batch"),
        ('{"event": "batch", "events": [{"event": "nix"}]}', r"events\[0\]"),
        ('{"event": "add-operator", "operator": {"id": "q"}, "pairs": []}', "left"),
        (
            '{"event": "add-operator", "pairs": [], "operator": '
            '{"id": "q", "left": "L", "right": "R", "sink": "s"}}',
            "length >= 1",
        ),
        (
            '{"event": "add-operator", "pairs": [{"left": "l", "right": "r", "output_rate": 1}], '
            '"operator": {"id": "q", "left": "L", "right": "R", "sink": "s", '
            '"requires": {"tags": ["a\\u0007"]}}}',
            "operator: requires: tags: .* control characters",
        ),
    ],
)
def test_bad_documents_are_refused(text: str, said: str) -> None:
    with pytest.raises(ProblemError, match=said) as told:
        parse_event(text, "events.jsonl: line 7")
    assert str(told.value).startswith("events.jsonl: line 7: ")
    assert "\n" not in str(told.value)


UNPLACED = {"id": "new", "capacity": 9}
NEW = UNPLACED | {"position": [1, 1]}
SOURCE = {"id": "new", "node": "left", "stream": "L", "rate": 5}
JOIN = {"operator": "j0", "with": "r0", "output_rate": 1}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"event": "fail-node", "node": "nix"}, "unknown node 'nix'"),
        ({"event": "fail-node", "node": "sink"}, "is the sink of j0"),
        ({"event": "remove-worker", "node": "left"}, "produces l0"),
        ({"event": "fail-node", "node": "left"}, "no pair to join"),
        ({"event": "remove-source", "source": "l0"}, "no pair to join"),
        ({"event": "add-worker", "node": NEW | {"id": "near"}}, "node of that name"),
        ({"event": "add-worker", "node": NEW | {"position": [1]}}, "2 numbers of ms"),
        ({"event": "add-worker", "node": UNPLACED}, "either a position or"),
        ({"event": "add-worker", "node": NEW, "latency": {"near": 1}}, "either a position or"),
        (
            {"event": "add-worker", "node": UNPLACED, "latency": {"nix": 1}},
            "latency: unknown node 'nix'",
        ),
        ({"event": "add-worker", "node": UNPLACED, "latency": {}}, "measurements: none"),
        (
            {"event": "add-worker", "node": UNPLACED | {"height": 1}, "latency": {"near": 1}},
            "height: latencies give the height",
        ),
        (
            {"event": "add-worker", "node": UNPLACED, "latency": {"far": 1, "near": 2e9}},
            r"'new': latency: near: 2e\+09 ms; expected 0 to 1e\+09",
        ),
        (
            {"event": "add-worker", "node": UNPLACED, "latency": {"far": [1, 2e9], "near": 2}},
            r"'new': latency: far: 2e\+09 ms; expected 0 to 1e\+09",
        ),
        ({"event": "move-node", "node": "near", "position": [1, 2, 3]}, "2 numbers of ms"),
        ({"event": "move-sink", "operator": "nix", "node": "near"}, "unknown operator"),
        ({"event": "move-sink", "operator": "j0", "node": "nix"}, "unknown node"),
        ({"event": "pin", "operator": "nix"}, "unknown operator"),
        ({"event": "change-rate", "source": "nix", "rate": 1}, "unknown source"),
        (
            {"event": "change-rate", "source": "l0", "rate": 5e-324},
            "rate 5e-324: output_rate of a pair: 0.0 is not a positive number of tuples/s",
        ),
        ({"event": "change-link", "from": "near", "to": "near", "budget": 1}, "itself"),
        ({"event": "add-source", "source": SOURCE | {"id": "l0"}, "joins": []}, "of that name"),
        ({"event": "add-source", "source": SOURCE | {"node": "nix"}, "joins": []}, "unknown node"),
        ({"event": "add-source", "source": SOURCE, "joins": [JOIN | {"with": "l0"}]}, "'L'"),
        ({"event": "add-source", "source": SOURCE, "joins": [JOIN | {"with": "x"}]}, "unknown"),
        ({"event": "add-source", "source": SOURCE, "joins": [JOIN, JOIN]}, "given twice"),
        ({"event": "add-pair", "operator": "nix", **PAIR}, "unknown operator 'nix'"),
        ({"event": "add-pair", "operator": "j0", **PAIR}, "joins 'l0' and 'r0' already"),
        ({"event": "add-pair", "operator": "j0", **PAIR, "left": "x"}, "left: unknown source 'x'"),
        (
            {"event": "add-pair", "operator": "j0", **PAIR, "right": "l0"},
            "right: 'l0' belongs to 'L'; the right stream of 'j0' is 'R'",
        ),
        ({"event": "remove-pair", "operator": "j0", "left": "l0", "right": "r0"}, "no pair to"),
        ({"event": "remove-pair", "operator": "j0", "left": "r0", "right": "l0"}, "belongs to"),
        ({"event": "remove-operator", "operator": "j0"}, "no pair to join"),
        ({"event": "remove-operator", "operator": "nix"}, "unknown operator"),
        ({"event": "add-operator", "operator": QUERY | {"id": "j0"}, "pairs": [PAIR]}, "that name"),
        ({"event": "add-operator", "operator": QUERY | {"sink": "x"}, "pairs": [PAIR]}, "node 'x'"),
        ({"event": "add-operator", "operator": QUERY, "pairs": [PAIR, PAIR]}, "given twice"),
        ({"event": "add-operator", "operator": QUERY | {"left": "X"}, "pairs": [PAIR]}, "'X'"),
    ],
)
def test_events_that_do_not_fit_are_refused(fields: dict[str, object], said: str) -> None:
    live = live_of(problem(), ["near"])
    before, free = live.plan(), free_capacity(live)
    with pytest.raises(ProblemError, match=said) as told:
        live.apply(event(**fields))
    assert "\n" not in str(told.value)
    assert live.plan().same_as(before)
    assert free_capacity(live) == free
    # A name that was refused is free.
    apply(live, event="add-worker", node=NEW)
    apply(live, event="add-source", source=SOURCE, joins=[JOIN])


def test_plans_that_cannot_be_followed_are_refused() -> None:
    asked = problem()
    with pytest.raises(PlanError, match="relays"):
        LivePlacement(asked, place(asked, "tree"))
    with pytest.raises(PlanError, match="made for problem"):
        LivePlacement(problem(2), place(asked))
    with pytest.raises(PlanError, match="breaks capacity"):
        live_of(asked, ["left"])
    with pytest.raises(ProblemError, match="unknown operator 'nix'"):
        live_of(asked, ["near"], Policy(pinned=("nix",)))
    with pytest.raises(ProblemError, match="gain"):
        Policy(gain=-1)


def test_a_delta_of_another_plan_is_refused() -> None:
    live = live_of(problem(), ["near"])
    delta = live.apply(event(event="fail-node", node="near"))
    new = live.plan()
    with pytest.raises(PlanError, match="leads from version 0, the plan is version 1"):
        delta.apply(new, new.problem)
    with pytest.raises(PlanError, match="runs no instance of j0/l0\\*r0"):
        delta.apply(replace(new, notes={}), new.problem)
    gone = live.apply(
        event(
            event="batch",
            events=[
                {"event": "add-source", "source": SOURCE, "joins": [JOIN]},
                {"event": "remove-source", "source": "l0"},
            ],
        )
    )
    with pytest.raises(PlanError, match="removed: the old plan has no operator j0/l0"):
        gone.apply(replace(live.plan(), notes={}), live.problem())
