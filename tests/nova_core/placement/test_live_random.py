"""Random events in a row: plans stay right, deltas exact, capacity whole, the objective near."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from oracles.live_placement import Follower
from query_cases import random_queries

from nova_core.evaluation.metrics import evaluate
from nova_core.model import Instances, Links, Problem
from nova_core.model.expansion import graph_of
from nova_core.model.requirements import Asks, RequiresPart
from nova_core.placement.kernels import tuning
from nova_core.placement.live import (
    Batch,
    ChangeCapacity,
    FailNode,
    LivePlacement,
    MoveSink,
    Policy,
    Rebalance,
)
from nova_core.placement.live.placer import Placer
from nova_core.strategies import place
from nova_workloads.live_events import SHARES, RandomEvents
from nova_workloads.topology import generate


def with_links(problem: Problem) -> Problem:
    """Budgets on some links from sources to near nodes, and to the sink."""
    rng = np.random.default_rng(1)
    nodes = len(problem.nodes)
    ends = np.stack([rng.choice(problem.sources.node, 200), rng.integers(0, nodes, 200)], axis=1)
    ends[::4, 1] = problem.sinks[0]
    ends = np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)
    budget = rng.integers(10, 100, len(ends)).astype(float)
    return replace(problem, links=Links(ends[:, 0], ends[:, 1], budget))


def with_heights(problem: Problem) -> Problem:
    rng = np.random.default_rng(2)
    nodes = problem.nodes
    height, penalty = rng.uniform(0, 9, len(nodes)), rng.uniform(0, 3, len(nodes))
    return replace(problem, nodes=replace(nodes, height=height, penalty=penalty))


def with_requirements(problem: Problem) -> Problem:
    """Every third node has what the join requires."""
    nodes, joins = problem.nodes, problem.joins
    capacity = nodes.capacity * np.where(np.arange(len(nodes)) % 3 == 0, 4.0, 1.0)
    tags = np.where(np.arange(len(nodes)) % 3 == 0, "arm64,gpu", "arm64")
    return replace(
        problem,
        nodes=replace(nodes, tags=tags, capacity=capacity),
        joins=replace(joins, asks=(Asks(requires=RequiresPart(tags=["gpu"])),)),
    )


def with_measurements(problem: Problem) -> Problem:
    everyone = np.arange(len(problem.nodes))
    latency = problem.distance(everyone[:, None], everyone[None, :])
    return replace(problem, latency=1.1 * (latency + latency.T) / 2)


def tight(problem: Problem) -> Problem:
    """Less capacity than the joins need."""
    nodes = problem.nodes
    return problem.with_capacity(np.where(nodes.worker, nodes.capacity * 0.45, nodes.capacity))


def live_of(problem: Problem, policy: Policy | None = None, **parameters: object) -> LivePlacement:
    return LivePlacement(problem, place(problem, "nova", **parameters), policy)


CASES = {
    "plain": live_of,
    "cut finely": lambda p: live_of(p, sigma=0.1, bandwidth=60.0),
    "network usage": lambda p: live_of(p, objective="network-usage"),
    "source latency, C_min": lambda p: live_of(p, objective="source-latency", c_min=100.0),
    "links": lambda p: live_of(with_links(p), on_full="spread"),
    "measured latencies": lambda p: live_of(with_measurements(p)),
    "overload": lambda p: live_of(tight(p), Policy(overload=True), on_full="spread"),
    "threshold": lambda p: live_of(p, Policy(gain=5.0, gain_share=0.2, cooldown=20)),
    "baseline": lambda p: LivePlacement(p, place(p, "sink")),
}


@pytest.mark.parametrize("name", CASES)
def test_everything_holds_after_each_of_many_events(name: str) -> None:
    problem = generate(120, heterogeneity=1.0, seed=3)
    live = CASES[name](problem)
    draw, follower = RandomEvents(live.problem(), 5), Follower(live)
    for _ in range(100):
        event = draw.next()
        if follower.follow(event):
            draw.happened(event)
    assert follower.refused < 50
    assert any(delta.move or delta.start for delta in follower.deltas)
    follower.follow(Rebalance(moves=20))


QUERY_CASES: dict[str, Callable[[Problem], LivePlacement]] = {
    "plain": live_of,
    "as written": lambda p: live_of(
        p, push_filters=False, split_aggregates=False, share_operators=False
    ),
    "network usage": lambda p: live_of(p, objective="network-usage"),
    "source latency, C_min": lambda p: live_of(p, objective="source-latency", c_min=50.0),
    "links": lambda p: live_of(with_links(p)),
    "heights": lambda p: live_of(with_heights(p)),
    "measured latencies": lambda p: live_of(with_measurements(p)),
    "overload": lambda p: live_of(tight(p), Policy(overload=True), on_full="spread"),
    "threshold": lambda p: live_of(p, Policy(gain=5.0, gain_share=0.2, cooldown=20)),
    "baseline": lambda p: LivePlacement(p, place(p, "sink")),
}


@pytest.mark.parametrize("name", QUERY_CASES)
def test_everything_holds_for_whole_queries(name: str) -> None:
    live = QUERY_CASES[name](random_queries(2))
    draw, follower = RandomEvents(live.problem(), 5), Follower(live)
    for _ in range(100):
        event = draw.next()
        if follower.follow(event):
            draw.happened(event)
    assert follower.refused < 50
    assert any(delta.move or delta.start for delta in follower.deltas)
    for change in ("added", "removed", "virtual"):
        assert any(getattr(delta, change) for delta in follower.deltas), change
    follower.follow(Rebalance(moves=20))


@pytest.mark.parametrize("change", [with_heights, with_requirements])
def test_everything_holds_where_hosts_differ(change: Callable[[Problem], Problem]) -> None:
    problem = change(generate(150, seed=3))
    # Every join on the worker with most room that has what it requires.
    worker = problem.nodes.worker & graph_of(problem).requirements.met.all(axis=0)
    host = int(np.argmax(np.where(worker, problem.nodes.capacity, -1)))
    capacity = problem.nodes.capacity.copy()
    capacity[host] = np.inf
    problem = problem.with_capacity(capacity)
    plan = replace(
        place(problem, "source"),
        instances=Instances.whole(np.full(len(problem.matrix), host)),
        breaks=(),
    )
    live = LivePlacement(problem, plan)
    draw, follower = RandomEvents(live.problem(), 7), Follower(live)
    node = str(problem.nodes.ids[host])
    assert follower.follow(ChangeCapacity(node=node, capacity=100.0))
    assert len(follower.deltas[0].move) + len(follower.deltas[0].start) > len(problem.matrix) - 5
    for _ in range(100):
        event = draw.next()
        if follower.follow(event):
            draw.happened(event)
    assert follower.refused < 50


def test_ten_thousand_nodes_stay_near_a_full_optimization() -> None:
    """A sample of what `python -m tests.oracles.live_placement` checks event by event."""
    problem = generate(10_000, seed=1)
    live = LivePlacement(problem, place(problem, "nova"))
    draw, follower = RandomEvents(problem, 1), Follower(live, every=400)
    for _ in range(1000):
        event = draw.next()
        if follower.follow(event):
            draw.happened(event)
    assert follower.refused < 10
    now = live.problem()
    reached, best = (
        evaluate(plan).estimated.objectives["latency"] for plan in (live.plan(now), place(now))
    )
    assert reached < 1.10 * best


def test_the_same_events_give_the_same_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so where sinks are hubs, or joins are settled one by one: only times change by that."""
    problem = generate(100, seed=2)
    plan = place(problem, "nova")
    kinds = [kind for kind in SHARES if kind != "change-link"]  # then all are settled one by one
    streams = []
    for joins_of_a_hub, one_by_one in ((1000, False), (1000, False), (3, False), (1000, True)):
        monkeypatch.setattr(tuning, "HUB_JOINS", joins_of_a_hub)
        if one_by_one:
            monkeypatch.setattr(Placer, "_room_decides", False)
        live, draw = LivePlacement(problem, plan), RandomEvents(problem, 3, kinds)
        assert len(live._state.index.tree.hub) == (joins_of_a_hub == 3)
        follower = Follower(live, every=50)
        for _ in range(200):
            event = draw.next()
            if follower.follow(event):
                draw.happened(event)
        streams.append(follower.deltas)
    assert all(stream == streams[0] for stream in streams[1:])


def test_joins_that_move_together_see_what_each_other_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A host has room for one large join: settled together or one by one, all end up the same."""
    problem = generate(400, seed=4)
    nodes = problem.nodes
    sinks = np.random.default_rng(1).choice(len(nodes), 8, replace=False)
    worker = nodes.worker.copy()
    worker[sinks] = False
    capacity = np.where(worker, problem.required_capacity.max(), nodes.capacity)
    capacity[sinks] = capacity[problem.joins.sink] = np.inf
    problem = replace(problem, nodes=replace(nodes, worker=worker, capacity=capacity))
    plan, streams = place(problem, "nova"), []
    operator = str(problem.joins.ids[0])
    for together in (True, False):
        if not together:
            monkeypatch.setattr(Placer, "_room_decides", False)
        live = LivePlacement(problem, plan)
        events = [MoveSink(operator=operator, node=str(nodes.ids[node])) for node in sinks]
        streams.append([live.apply(event) for event in 3 * events])
    assert streams[0] == streams[1]
    assert sum(len(delta.move) for delta in streams[0]) > 1000


def test_the_reach_of_an_event_is_known_beforehand() -> None:
    problem = generate(100, seed=2)
    plan = place(problem, "nova")
    fed = np.bincount(np.concatenate([problem.left_node, problem.right_node]), minlength=100)
    runs = np.bincount(np.unique(np.stack([plan.instances.node, plan.instances.pair]), axis=1)[0])
    busiest = int(np.argmax(runs))
    live, fail = LivePlacement(problem, plan), FailNode(node=str(problem.nodes.ids[busiest]))
    assert live.reach(fail) == runs[busiest] + fed[busiest]
    assert live.reach(Batch(events=[fail, fail])) == 2 * live.reach(fail)
    assert live.reach(Rebalance(moves=1)) == len(problem.matrix)
    assert live.reach(FailNode(node="nobody")) == 0
