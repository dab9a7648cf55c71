"""Any events in a row: what a placement comes to, against a plan that is made from scratch then.

Of joins of pairs, of whole queries and of both alike, where hosts have room for about twice what is
needed:

* after every event, all that `Follower` checks holds: no capacity is broken, deltas are exact both
  ways, what was refused left nothing, and the problem is what the event makes of it;
* a plan from scratch finds room whenever the placement has it, and where the placement refuses an
  event for lack of room, a plan from scratch finds none either, but for one event in a hundred;
* a journal of the same events leads to the same deltas and state, to the last bit, if it has its
  checkpoint when the placement is compacted;
* once no move gains, the objective is at most 1.025 times that of a plan from scratch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.live_placement import Follower, free_capacity
from query_cases import mixed, random_queries

from nova_core.errors import InfeasibleError, NovaError
from nova_core.model import Problem
from nova_core.model.plan import Plan
from nova_core.model.plan_delta import PlanDelta
from nova_core.placement.live import Event, Journal, LivePlacement, Policy, Rebalance
from nova_core.strategies import place
from nova_workloads.live_events import RandomEvents
from nova_workloads.topology import generate

EVENTS = 300
# Events before the state is compacted, which rounds free capacities anew.
COMPACTED = 150


def pairs(seed: int) -> Problem:
    """Joins of a generated topology; its sink takes any output."""
    problem = generate(80, heterogeneity=1.0, seed=seed)
    capacity = problem.nodes.capacity.copy()
    capacity[problem.joins.sink] = np.inf
    return problem.with_capacity(capacity)


KINDS: dict[str, Callable[[int], Problem]] = {
    "pairs": pairs,
    "queries": random_queries,
    "mixed": mixed,
}


def scratch(problem: Problem, like: Plan) -> Plan:
    """A plan made anew, of what was rewritten as before; small ones may leave aggregates whole."""
    how: dict[str, Any] = {"objective": like.objective}
    if problem.queries:
        how |= like.rewriting._asdict()
    return place(problem, **how)


def same(a: LivePlacement, b: LivePlacement) -> bool:
    return (
        a.plan().same_as(b.plan())
        and (a.version, a.moved(), a.pinned) == (b.version, b.moved(), b.pinned)
        and free_capacity(a) == free_capacity(b)
    )


def fits_from_scratch(live: LivePlacement, event: Event) -> bool:
    """Whether a plan from scratch finds room for what an event leads to."""
    forced = LivePlacement(live.problem(), live.plan())
    forced.apply(event, overload=True)
    try:
        scratch(forced.problem(), live.plan())
    except InfeasibleError:
        return False
    return True


@settings(max_examples=4, deadline=None)
@given(st.sampled_from(list(KINDS)), st.integers(0, 2**32), st.sampled_from([0.0, 0.05]))
def test_any_events_keep_all_promises(
    tmp_path_factory: pytest.TempPathFactory, kind: str, seed: int, gain: float
) -> None:
    problem = KINDS[kind](seed)
    live = LivePlacement(problem, place(problem), Policy(gain_share=gain, cooldown=5))
    draw, follower, events = RandomEvents(problem, seed), Follower(live), list[Event]()
    unjust = 0
    while follower.seen < EVENTS:
        event: Event = draw.next()
        if follower.seen % 40 == 39:
            event = Rebalance(moves=5)
        events.append(event)
        if follower.follow(event):
            draw.happened(event)
        elif follower.infeasible and follower.infeasible[-1][0] is event:
            unjust += fits_from_scratch(live, event)
        if len(events) == COMPACTED:
            live.compact()
        if follower.seen % 50 == 0:
            now = live.plan()
            assert "capacity" not in now.breaks
            assert "capacity" not in scratch(now.problem, now).breaks
    assert follower.refused < EVENTS / 4
    # It moves little, and so may find no room where a plan from scratch does.
    assert unjust <= EVENTS / 100
    deltas = replayed(tmp_path_factory.mktemp("journal") / "j", problem, live.policy, events)
    assert deltas == follower.deltas


def replayed(
    directory: Path, problem: Problem, policy: Policy, events: list[Event]
) -> list[PlanDelta]:
    """What events change by way of a journal that is read from disk now and then.

    The state is the same to the last bit as without one, if that is compacted with the checkpoint.
    """
    twin, deltas = LivePlacement(problem, place(problem), policy), []
    journal = Journal.create(directory, LivePlacement(problem, place(problem), policy))
    for number, event in enumerate(events):
        if number % 70 == 69:
            journal.close()
            journal = Journal.resume(directory)
        with suppress(NovaError):
            deltas.append(journal.apply(event))
            assert twin.apply(event) == deltas[-1]
        if number + 1 == COMPACTED:
            journal.checkpoint()
            twin.compact()
    assert journal.entries == len(events)
    assert same(journal.live, twin)
    journal.close()
    with Journal.resume(directory) as again:
        assert same(again.live, twin)
    return deltas


def settled(problem: Problem, seed: int, events: int = EVENTS) -> LivePlacement:
    """A placement after random events, once no move gains."""
    live = LivePlacement(problem, place(problem), Policy(gain_share=0))
    draw = RandomEvents(problem, seed)
    for _ in range(events):
        event = draw.next()
        try:
            live.apply(event)
        except NovaError:
            continue
        draw.happened(event)
    before = np.inf
    for _ in range(10):
        moved, plan = live.rebalance(10**6).move, live.plan()
        now = plan.objective_value(plan.objective)
        # Also where those that change places are linked with each other.
        assert now <= before * (1 + 1e-9)
        if not moved:
            break
        before = now
    return live


# Of queries, also seeds where single moves alone leave up to 1.13 times (20, 29, 37), and one where
# operators that feed several others are placed together (25).
SEEDS = {"pairs": range(15), "queries": [*range(15), 20, 25, 29, 37], "mixed": range(5)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_objective_is_near_that_of_a_plan_from_scratch(kind: str) -> None:
    ratios = []
    for seed in SEEDS[kind]:
        plan = settled(KINDS[kind](seed), seed).plan()
        best = scratch(plan.problem, plan).objective_value(plan.objective)
        ratios.append(plan.objective_value(plan.objective) / best)
    # Measured over 60 seeds: of pairs 1.003 in the median and 1.02 at most, of queries 1.000 and
    # 1.021; what is left of these are aggregates that stay split, and would cost less whole.
    assert max(ratios) <= 1.025, ratios
