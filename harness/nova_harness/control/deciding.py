"""From readings of hosts to the plan that should run: events for the live placement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.io.columns import rows
from nova_core.io.problem_document import NodeRow
from nova_core.io.problem_writing import problem_tables
from nova_core.placement.live import (
    AddWorker,
    Batch,
    ChangeCapacity,
    ChangeRate,
    FailNode,
    LivePlacement,
    Rebalance,
)
from nova_harness.control.backoff import Backoff
from nova_harness.control.sensing import Rate

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.plan_delta import PlanDelta
    from nova_core.model.problem import Problem

# Looks that are farther apart, s, do not show what was in between.
MOST_BETWEEN_S = 2.0
# Until a slow host's joins have moved, the same is measured there again and again, with some noise:
# it counts as slower again at less than this share of what it counts as.
LESS = 0.95
# What differs by much has to last so many times less at most. Sources note their tuples once a
# second: two notes show it.
BRIEFER = 4


@dataclass(frozen=True)
class Tuning:
    """When the controller acts.

    Attributes:
        step: least change that counts: of a host's capacity, as a share of its own capacity, and of
            a source's rate, as a share of that rate. A rate that fits nowhere is placed for less,
            by half of it.
        lasting_s: how long it has to last; less where a rate more than doubles.
        cooldown_s: least time between two hand-overs by choice; failures do not wait.
        moves: instances that may move by choice at a time, when a host's capacity grows again.
        stable_s: how long a lost host must be back before it is used again; doubles with each loss,
            until it was not lost for an hour.
        least: least share of a host that counts, even if others use all its CPU: the engine gets
            some of it.
        headroom: capacity of a host whose joins were too slow, at most, as a share of what they
            received.
        memory_s: how long that limit holds; doubles each time, in the same way. Once its joins are
            elsewhere, no reading shows what the host can do.
    """

    step: float = 0.2
    lasting_s: float = 4.0
    cooldown_s: float = 10.0
    moves: int = 20
    stable_s: float = 15.0
    least: float = 0.05
    headroom: float = 0.9
    memory_s: float = 60.0


@dataclass(frozen=True)
class Seen:
    """A host at a moment.

    Attributes:
        up: whether the engine's worker on it runs.
        share: share of its CPU that is left for the engine, 0 to 1; None where unknown.
        saturated: tuples/s that its saturated joins receive; None where no join is saturated.
    """

    up: bool
    share: float | None = None
    saturated: float | None = None


@dataclass(frozen=True)
class Decision:
    """A change of the plan that should run, or why there is none.

    Attributes:
        what: was noticed, in words.
        about: the same without figures.
        delta: what changes; None where refused.
        refused: why it was refused; empty otherwise.
    """

    what: str
    about: str
    delta: PlanDelta | None
    refused: str = ""


@dataclass
class _Known:
    """Decisions about a host.

    Attributes:
        share: share of its own capacity that counts.
        since: `time.monotonic` of the first look at which it differed by enough; None while it
            does not.
        slow: greatest share that counts, after its joins were too slow.
        slowness: how long that holds.
        losses: how long it must be back before it is used again.
        retry_at: `time.monotonic` of the next try, after an infeasible change.
        leave_at: the same, where a lost host's joins fit nowhere else.
        used: whether the live placement has it.
        back_at: `time.monotonic` from which on it may be used again; None while it is lost.
    """

    share: float = 1.0
    since: float | None = None
    slow: float = 1.0
    slowness: Backoff = field(default_factory=Backoff)
    losses: Backoff = field(default_factory=Backoff)
    retry_at: float = -math.inf
    leave_at: float = -math.inf
    used: bool = True
    back_at: float | None = None


@dataclass
class _Rate:
    """Decisions about a source.

    Attributes:
        planned: tuples/s that the plan is made for.
        since: `Rate.at_s` of the first that differed by enough; None while none does.
        retry_at: as in `_Known`.
    """

    planned: float
    since: float | None = None
    retry_at: float = -math.inf


class Decider:
    """Follows hosts with a live placement, and decides what should run.

    Sources and sinks stay where they are: when a host with one is lost, the decider waits for it.

    Args:
        problem: with the hosts' own capacities; nodes are called like hosts.
        plan: that runs, of this problem or of one that a decider has changed.
        tuning: when to act.
    """

    def __init__(self, problem: Problem, plan: Plan, tuning: Tuning) -> None:
        self.tuning = tuning
        self.live = LivePlacement(plan.problem, plan)
        nodes = problem.nodes
        self._capacity = dict(zip(nodes.ids.tolist(), nodes.capacity.tolist(), strict=True))
        self._worker = dict(zip(nodes.ids.tolist(), nodes.worker.tolist(), strict=True))
        self._problem = problem
        ends = {*problem.sources.node.tolist(), *problem.sinks.tolist()}
        self.fixed = frozenset(str(nodes.ids[row]) for row in ends)
        self._looked_at = -math.inf
        left = plan.problem.nodes
        now = dict(zip(left.ids.tolist(), left.capacity.tolist(), strict=True))
        self._known = {
            name: _Known(share=now[name] / own if 0 < own < math.inf else 1.0)
            if name in now
            else _Known(used=False, losses=Backoff(tuning.stable_s))
            for name, own in self._capacity.items()
        }
        sources = plan.problem.sources
        self._rates = {
            name: _Rate(rate)
            for name, rate in zip(sources.ids.tolist(), sources.rate.tolist(), strict=True)
        }

    def plan(self) -> Plan:
        """What should run."""
        return self.live.plan()

    def counted(self) -> dict[str, float]:
        """Share of each host's own capacity that counts; 0 for hosts that the plan may not use."""
        return {name: one.share if one.used else 0.0 for name, one in self._known.items()}

    @property
    def confirming(self) -> bool:
        """Whether a host or source differs from its counted value, but not yet long enough."""
        since = [one.since for one in self._known.values()]
        since += [one.since for one in self._rates.values()]
        return any(one is not None for one in since)

    def waiting(self, seen: Mapping[str, Seen]) -> list[str]:
        """Lost hosts that the plan uses all the same.

        They have sources or sinks, or their joins fit nowhere else.
        """
        lost = (name for name in seen.keys() & self._known.keys() if not seen[name].up)
        return sorted(name for name in lost if self._known[name].used)

    def decide(
        self, seen: Mapping[str, Seen], now: float, rates: Mapping[str, Rate] | None = None
    ) -> list[Decision]:
        """Decisions after a look at the hosts; failures first.

        Args:
            seen: hosts by name; hosts outside the problem do not count.
            now: `time.monotonic`.
            rates: of sources by name; without sources of unknown rate.
        """
        self._pass_over(now)
        failures = []
        for name in sorted(seen.keys() & self._known.keys() - self.fixed):
            failures += self._presence(name, seen[name], now)
        changes = []
        for name in sorted(seen.keys() & self._known.keys()):
            if self._worker[name] and self._known[name].used and seen[name].up:
                changes += self._capacity_of(name, seen[name], now)
        return failures + changes + self._rates_of(rates or {}, now)

    def _pass_over(self, now: float) -> None:
        """What differed before a long time without a look may not have differed all the time."""
        unseen, self._looked_at = now - self._looked_at - MOST_BETWEEN_S, now
        if unseen <= 0:
            return
        known: list[_Known | _Rate] = [*self._known.values(), *self._rates.values()]
        for one in known:
            if one.since is not None:
                one.since += unseen

    # --- rates of sources -----------------------------------------------------------------------

    def _rates_of(self, rates: Mapping[str, Rate], now: float) -> list[Decision]:
        """Sources whose rates have changed at the same time are one event."""
        changed: dict[str, float] = {}
        for name in sorted(rates.keys() & self._rates.keys()):
            (rate, at_s), known = rates[name], self._rates[name]
            more = rate / known.planned - 1
            # A silent source changes nothing: it may be silent for a moment only.
            if rate <= 0 or abs(more) < self.tuning.step:
                known.since = None
                continue
            if known.since is None:
                known.since = at_s
            if at_s - known.since >= self._lasting_s(more) and now >= known.retry_at:
                changed[name] = rate
        if not changed:
            return []
        what = "; ".join(
            f"{name} emits {rate / self._rates[name].planned:.1f} times as much"
            for name, rate in changed.items()
        )
        sources = [self._rates[name] for name in changed]
        about = f"{', '.join(changed)}: another rate"
        decision = self._place_for(changed, 1.0, what, about, now)
        if decision.refused:
            # A change by less than `step` would not even count, so hosts may lack half of that.
            beyond = 1 + self.tuning.step / 2
            less = f"{100 - 100 / beyond:.0f} % less"
            what += f"; placed as if it were {less}, as all of it fits nowhere"
            other = self._place_for(changed, beyond, what, about, now)
            decision = decision if other.refused else other
        for one in sources:
            one.since = None
        return [decision]

    def _place_for(
        self, rates: Mapping[str, float], beyond: float, what: str, about: str, now: float
    ) -> Decision:
        """Place joins for rates of sources, divided by ``beyond``."""
        planned = {name: rate / beyond for name, rate in rates.items()}
        events = [ChangeRate(source=name, rate=rate) for name, rate in planned.items()]
        event = Batch(events=[*events, self._rebalance()])
        sources = [self._rates[name] for name in planned]
        decision = self._apply(what, about, event, now, *sources)
        if not decision.refused:
            for one, rate in zip(sources, planned.values(), strict=True):
                one.planned, one.retry_at = rate, -math.inf
        return decision

    def _lasting_s(self, more: float) -> float:
        """How long a source has to emit ``more`` than planned, as a share of that.

        The more it is, the faster its join falls behind, and the surer it is no noise.
        """
        return self.tuning.lasting_s / min(max(1.0, more) ** 2, BRIEFER)

    # --- lost and returned hosts ----------------------------------------------------------------

    def _presence(self, name: str, seen: Seen, now: float) -> list[Decision]:
        known = self._known[name]
        if known.used and not seen.up:
            if now < known.leave_at:
                return []
            what = f"{name} is lost"
            decision = self._apply(what, what, FailNode(node=name, overload=True), now)
            if decision.refused:
                known.leave_at = now + self.tuning.cooldown_s
            else:
                known.used, known.back_at, known.since = False, None, None
                known.losses.fail(now, self.tuning.stable_s)
            return [decision]
        if known.used:
            known.leave_at = -math.inf
            return []
        if not seen.up:
            known.back_at = None
            return []
        if known.back_at is None:
            known.back_at = now + known.losses.wait_s
        if now < known.back_at:
            return []
        known.used, known.share = True, 1.0
        events: list[Any] = [AddWorker(node=node_row(self._problem, name)), self._rebalance()]
        what = f"{name} is back"
        return [self._apply(what, what, Batch(events=events), now, known)]

    def _rebalance(self) -> Rebalance:
        return Rebalance(moves=self.tuning.moves)

    # --- capacity of hosts ----------------------------------------------------------------------

    def _capacity_of(self, name: str, seen: Seen, now: float) -> list[Decision]:
        known, own = self._known[name], self._capacity[name]
        if not 0 < own < math.inf:
            return []
        share = known.share if seen.share is None else max(self.tuning.least, seen.share)
        slow = now < known.slowness.until
        if seen.saturated is not None:
            seen_slow = self.tuning.headroom * seen.saturated / own
            share = min(share, max(self.tuning.least, seen_slow))
        elif slow:
            share = min(share, known.slow)
        # A join that is too slow shows what is left, also by less than `step`.
        sure = seen.saturated is not None and share <= LESS * known.share
        if not sure and abs(share - known.share) < self.tuning.step:
            known.since = None
            return []
        if known.since is None:
            known.since = now
        if now - known.since < self.tuning.lasting_s or now < known.retry_at:
            return []
        known.since = None
        more = share > known.share
        changed = ChangeCapacity(node=name, capacity=own * share)
        event = Batch(events=[changed, self._rebalance()]) if more else changed
        way = "more" if more else "less"
        what = f"{name} can do {100 * abs(share - known.share):.0f} % {way}"
        decision = self._apply(what, f"{name} can do {way}", event, now, known)
        if not decision.refused:
            known.share = share
            if seen.saturated is not None and not more:
                known.slow = share
                known.slowness.fail(now, self.tuning.memory_s)
        return [decision]

    def _apply(
        self, what: str, about: str, event: Any, now: float, *known: _Known | _Rate
    ) -> Decision:
        try:
            return Decision(what, about, self.live.apply(event))
        except (InfeasibleError, ProblemError) as error:
            # The change may be feasible later.
            for one in known:
                one.retry_at = now + self.tuning.cooldown_s
            return Decision(what, about, None, str(error))


def rehearse(problem: Problem, plan: Plan) -> None:
    """Make decisions of every kind that come to nothing, for a job that does not run yet.

    On a new installation, their kernels are compiled now: that takes 10 to 20 s, which joins would
    stand still when the first host is lost.
    """
    decider = Decider(problem, plan, Tuning(lasting_s=0, cooldown_s=0, stable_s=0))
    nodes, joined = plan.problem.nodes, set(plan.instances.node.tolist())
    free = [row for row in np.flatnonzero(nodes.worker) if str(nodes.ids[row]) not in decider.fixed]
    # A host without joins needs fewer kernels.
    for row in sorted(free, key=lambda row: row not in joined)[:1]:
        views = (Seen(up=False), Seen(up=True), Seen(up=True, share=0.5))
        for now, seen in enumerate(views):
            decider.decide({str(nodes.ids[row]): seen}, now)
    for name, rate in zip(problem.sources.ids[:1].tolist(), problem.sources.rate, strict=False):
        decider.decide({}, 3, {name: Rate(2 * float(rate), 3)})
        # No hosts have room for that: what has been tried is taken back.
        room = float(nodes.capacity[nodes.worker].sum())
        if math.isfinite(room):
            decider.decide({}, 4, {name: Rate(2 * room, 4)})


def node_row(problem: Problem, node: str) -> NodeRow:
    """A node as a row of an `AddWorker` event."""
    row = problem.node_index[node]
    columns: dict[str, Any] = {**problem_tables(problem)["nodes"]}
    (plain,) = rows({name: column[row : row + 1] for name, column in columns.items()})
    return msgspec.convert(plain, NodeRow)


def moves_of(delta: PlanDelta) -> list[str]:
    """The changes of a delta, a line each."""
    lines = [f"{m.operator} from {m.source_node} to {m.target_node}" for m in delta.move]
    stops, starts = len(delta.stop), len(delta.start)
    if stops or starts:
        nodes = sorted({row.node for row in delta.start})
        lines.append(f"{stops} pieces end, {starts} begin on {', '.join(nodes) or 'no host'}")
    return lines
