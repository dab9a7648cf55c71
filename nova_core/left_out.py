"""Nodes that have a capacity but may host nothing, and what a plan would gain by them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nova_core import console
from nova_core.errors import NovaError
from nova_core.io.syntax import listed
from nova_core.model.expansion import graph_of
from nova_core.model.plan import Plan
from nova_core.model.problem import Ints, Problem

# What is placed again takes no time that people notice: problems of so many operators times nodes,
# by strategies whose time depends on that alone.
MOST_PLACES = 30_000
QUICK = ("nova", "nova-paper", "top-c")
NAMES = 3


@dataclass(frozen=True)
class LeftOut:
    """Nodes that a plan could not use, and what it would cost if they were workers.

    Attributes:
        nodes: their ids, the greatest capacity first.
        capacity: of all of them, tuples/s.
        measure: ``mean latency``, ms, or ``network usage``, tuples/s * ms, by the plan's objective.
        cost: the plan's; None where ``cost_with`` is.
        cost_with: of the same strategy's plan with them as workers; None for large problems and
            strategies that take long.
        hosts: what workers host: ``joins`` or ``operators``.
    """

    nodes: tuple[str, ...]
    capacity: float
    measure: str
    cost: float | None
    cost_with: float | None
    hosts: str

    def __str__(self) -> str:
        is_, host, it = ("is no worker", "hosts", "it")
        if len(self.nodes) > 1:
            is_, host, it = ("are no workers", "host", "them")
        size = console.number(self.capacity, 0)
        text = f"{listed(self.nodes, NAMES)} ({size} tuples/s) {is_} and {host} no {self.hosts}"
        if self.cost is None or self.cost_with is None:
            return text
        now, then = console.number(self.cost), console.number(self.cost_with)
        what = f"would stay {now}" if now == then else f"would be {then} instead of {now}"
        what += " ms" if self.measure == "mean latency" else ""
        return f"{text}; with {it} (worker: true), {self.measure} {what}"


def left_out(plan: Plan) -> LeftOut | None:
    """The nodes with a capacity that are no workers, where the plan's strategy respects that.

    Small problems are placed again with these nodes as workers.

    Returns:
        None where there are no such nodes.
    """
    from nova_core.evaluation import evaluate

    problem = plan.problem
    nodes, kept = problem.nodes, left_out_nodes(problem)
    if not len(kept) or "worker" in plan.breaks:
        return None

    def cost(of: Plan) -> float:
        estimated = evaluate(of).estimated
        usage = plan.objective == "network-usage"
        return estimated.network_usage if usage else estimated.mean

    again = None
    if plan.operator_count * len(nodes) <= MOST_PLACES and plan.strategy in QUICK:
        again = _with_workers(plan, kept)
    return LeftOut(
        nodes=tuple(nodes.ids[kept].tolist()),
        capacity=float(nodes.capacity[kept].sum()),
        measure="network usage" if plan.objective == "network-usage" else "mean latency",
        cost=None if again is None else cost(plan),
        cost_with=None if again is None else cost(again),
        hosts="operators" if problem.queries else "joins",
    )


def left_out_nodes(problem: Problem) -> Ints:
    """(k,) nodes with a capacity that are no workers, the greatest capacity first.

    Those that have what some operator requires: the others would host nothing as workers.
    """
    nodes = problem.nodes
    graph = graph_of(problem)
    able = graph.requirements.able(graph.requirement[graph.bodies])
    kept = np.flatnonzero(~nodes.worker & (nodes.capacity > 0) & able)
    return kept[np.argsort(-nodes.capacity[kept], kind="stable")]


def _with_workers(plan: Plan, more: Ints) -> Plan | None:
    """The plan of the same strategy with more workers; None where it cannot be made."""
    from nova_core.strategies import create
    from nova_core.strategies.parameters import typed_parameters

    nodes = plan.problem.nodes
    worker = nodes.worker.copy()
    worker[more] = True
    problem = replace(plan.problem, nodes=replace(nodes, worker=worker))
    try:
        return create(plan.strategy, **typed_parameters(plan.strategy, plan.parameters)).solve(
            problem
        )
    except NovaError:  # parameters of a plan in a file may be anything
        return None
