"""Follow random events and check after every one all that must hold of a live placement.

Run as ``python -m tests.oracles.live_placement [--nodes N] [--events N] [--every K]``: prints how
many events of each kind there were, how much they moved, and how far from a full optimization it
ends.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import click
import msgspec
import numpy as np

from nova_core import console
from nova_core.errors import InfeasibleError, NovaError, ProblemError
from nova_core.evaluation.metrics import evaluate
from nova_core.io.validation import validate_problem
from nova_core.model.expansion import Rewriting, expand
from nova_core.model.graph import Graph
from nova_core.model.plan import Plan
from nova_core.model.plan_delta import PlanDelta
from nova_core.model.problem import Problem
from nova_core.model.verify import verify
from nova_core.placement.live import AddWorker, Event, LivePlacement
from nova_core.strategies import place
from nova_workloads.live_events import RandomEvents
from nova_workloads.topology import generate

from .problem_after import after

# A problem, the plan that answers it, and what nodes have free, tuples/s.
Snapshot = tuple[Problem, Plan, dict[str, float]]


class BrokenPromiseError(NovaError):
    """A live placement does not hold what it must."""


@dataclass
class Follower:
    """Applies events and checks, every so many.

    Attributes:
        live: what follows the events.
        every: events from one check to the next.
        seen: events so far.
        refused: those that could not be satisfied.
        infeasible: those of them for which there was no room, and why.
        deltas: of the others.
    """

    live: LivePlacement
    every: int = 1
    seen: int = 0
    refused: int = 0
    infeasible: list[tuple[Event, InfeasibleError]] = field(default_factory=list)
    deltas: list[PlanDelta] = field(default_factory=list)
    _after: Snapshot | None = None

    def follow(self, event: Event) -> bool:
        """Apply an event; whether it was satisfied.

        Raises:
            BrokenPromiseError: when something does not hold.
        """
        self.seen += 1
        before, self._after = self._after if self.every == 1 else None, None
        if before is None and self.seen % self.every == 0:
            before = _snapshot(self.live)
        try:
            delta = self.live.apply(event)
        except (InfeasibleError, ProblemError) as error:
            self.refused += 1
            if isinstance(error, InfeasibleError):
                self.infeasible.append((event, error))
                _require(error.missing > 0, f"{event}: nothing is missing")
            _require("\n" not in str(error), f"{event}: is refused in several lines")
            if before is not None:
                problem, plan, free = _snapshot(self.live)
                unchanged = plan.same_as(before[1]) and free == before[2]
                _require(unchanged, f"{event}: was refused, but changed the state")
                if _foretold(problem) and not isinstance(error, InfeasibleError):
                    impossible = _expected(problem, event, plan.rewriting) is None
                    _require(impossible, f"{event}: was refused: {error}")
            return False
        self.deltas.append(delta)
        if before is not None:
            self._after = check(self.live, delta, before[0], before[1])
            if _foretold(before[0]):
                problem = self._after[0]
                expected = _expected(before[0], _positioned(event, problem), before[1].rewriting)
                _require(expected is not None, f"{event}: should have been refused")
                same = expected is not None and expected.same_as(problem)
                _require(same, f"{event}: leads to another problem")
        return True


def _foretold(problem: Problem) -> bool:
    """Whether `after` knows what events make of a problem."""
    return bool(problem.queries) and problem.latency is None and problem.measured is None


def _expected(problem: Problem, event: Event, rewriting: Rewriting) -> Problem | None:
    """The problem after an event; None where that is not possible."""
    try:
        return after(problem, event, rewriting)
    except ProblemError:
        return None


def _positioned(event: Event, problem: Problem) -> Event:
    """The event, with the place that a node was found to have."""
    if not isinstance(event, AddWorker) or event.latency is msgspec.UNSET:
        return event
    nodes, row = problem.nodes, problem.node_index[event.node.id]
    node = msgspec.structs.replace(event.node, position=nodes.position[row].tolist())
    if nodes.height is not None:
        node = msgspec.structs.replace(node, height=float(nodes.height[row]))
    return AddWorker(node=node)


def free_capacity(live: LivePlacement) -> dict[str, float]:
    """What is left of each node's capacity, tuples/s; below 0 where it is overloaded."""
    n = live._state.nodes
    return {n.ids[row]: float(n.free[row]) for row in range(n.used) if n.alive[row]}


def searchable(live: LivePlacement) -> dict[str, float]:
    """Hosts as searches see them, and what is left of their capacity, tuples/s."""
    ids = live._state.nodes.ids
    hosts, rows = live._state.index.hosts()
    return {ids[node]: left for node, left in zip(hosts, rows[:, -1].tolist(), strict=True)}


def check(live: LivePlacement, delta: PlanDelta, old_problem: Problem, old: Plan) -> Snapshot:
    """The plan holds, the delta and its inverse are exact, and no capacity leaks; what there is.

    Raises:
        BrokenPromiseError: naming what does not hold.
    """
    problem, new, free = after = _snapshot(live)
    validate_problem(problem)
    report = verify(new)
    _require(report.honest, report.summary())
    limits = ("capacity", "minimum-capacity", "link")
    # Budgets are not planned for with queries: their plans say so beforehand.
    for name in limits[: 2 if problem.queries else 3]:
        broken = report.counts.get(name, 0) > 0
        _require((name in new.breaks) == broken, f"breaks: {new.breaks}; {report.summary()}")
    _require(delta.apply(old, problem).same_as(new), "the delta does not give the new plan")
    back = delta.inverse().apply(new, old_problem)
    _require(back.same_as(old), "the inverse does not give the old plan")
    left = np.array(list(free.values()))
    recomputed = problem.nodes.capacity - new.load
    if problem.queries:
        same_graph(new.graph, expand(problem, new.rewriting))
    same = np.isclose(left, recomputed, rtol=1e-9, atol=1e-7)
    _require(bool(same.all()), "free capacities are not those recomputed from the plan")
    _require(list(free) == problem.nodes.ids.tolist(), "free capacities of other nodes")
    _require(searchable(live) == _hosts(problem, free, live), "the index of hosts is out of date")
    return after


def same_graph(mine: Graph, theirs: Graph) -> None:
    """What a placement runs is what its problem asks for, when that is read anew.

    Raises:
        BrokenPromiseError: naming the column that differs.
    """
    for name in ("ids", "logical"):
        own, other = list(getattr(mine, name)), list(getattr(theirs, name))
        _require(own == other, f"{name} of the graph: {own}, not {other}")
    for name in ("kind", "input_at", "input", "rate", "node", "source", "query", "root", "parts",
                 "combines", "partial"):  # fmt: skip
        equal = np.array_equal(getattr(mine, name), getattr(theirs, name))
        _require(equal, f"{name} of the graph is not that of the problem")
    _require(dict(mine.joins) == dict(theirs.joins), "the graph has other joins")


def _hosts(problem: Problem, free: dict[str, float], live: LivePlacement) -> dict[str, float]:
    nodes, least = problem.nodes, float(live.plan(problem).parameters.get("c_min") or 0)
    hosts = nodes.worker & (nodes.capacity > 0) & (nodes.capacity >= least)
    return {name: free[name] for name in nodes.ids[hosts].tolist()}


def _snapshot(live: LivePlacement) -> Snapshot:
    problem = live.problem()
    return problem, live.plan(problem), free_capacity(live)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise BrokenPromiseError(f"live placement: {otherwise}")


@click.command()
@click.option("--nodes", default=10_000, show_default=True)
@click.option("--events", default=10_000, show_default=True)
@click.option("--every", default=1, show_default=True, help="Events from one check to the next.")
@click.option("--heterogeneity", default=0.0, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(nodes: int, events: int, every: int, heterogeneity: float, seed: int) -> None:
    """Follow random events and check everything."""
    problem = generate(nodes, heterogeneity=heterogeneity, seed=seed)
    live = LivePlacement(problem, place(problem, "nova"))
    draw, follower = RandomEvents(problem, seed), Follower(live, every)
    count, moves = Counter[str](), Counter[str]()
    while follower.seen < events:
        event = draw.next()
        if not follower.follow(event):
            continue
        draw.happened(event)
        kind = str(type(event).__struct_config__.tag)
        delta = follower.deltas.pop()
        count[kind] += 1
        moves[kind] += len(delta.move) + len(delta.start) - len(delta.added)
    now = live.problem()
    reached, best = (
        evaluate(plan).estimated.objectives["latency"] for plan in (live.plan(now), place(now))
    )
    table = console.table("Events", ["event", ">number", ">moves per event"])
    for kind, number in count.most_common():
        table.add_row(kind, f"{number:,}", f"{moves[kind] / number:.2f}")
    console.show(
        table,
        f"{follower.seen:,} events, {follower.refused} refused, checked every {every}",
        f"objective {reached / best:.4f} times that of a full optimization",
    )


if __name__ == "__main__":
    main()
