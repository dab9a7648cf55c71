"""Time of live placement's events, kind by kind."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from nova_core import console
from nova_core.errors import InfeasibleError, ProblemError
from nova_core.io.problem_document import NodeRow
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.placement.live import AddWorker, Event, FailNode, LivePlacement
from nova_core.strategies import create
from nova_harness.bench.queries import generated
from nova_workloads.live_events import RandomEvents, shares_of
from nova_workloads.topology import generate

if TYPE_CHECKING:
    from rich.table import Table

PAIRS_PER_OPERATOR = 10
SINKS = 20
WARM_UP = 100
BUSY_NODE = "fail-node, per replica"
REPLICAS = 1000


@dataclass(frozen=True)
class Case:
    """What to measure.

    Attributes:
        nodes: of the generated topology.
        seed: of the topology and the events.
        events: timed per kind.
        queries: whether whole queries are placed, three per ten nodes; else joins of pairs.
    """

    nodes: int
    seed: int
    events: int
    queries: bool = False

    @property
    def label(self) -> str:
        """Its name for people."""
        what = "whole queries" if self.queries else "joins"
        return f"live placement of {what} on {self.nodes:,} nodes"


@dataclass(frozen=True)
class Measurement:
    """Times of one kind of event, seconds.

    Attributes:
        nodes: of the topology.
        operators: to be placed; a pair of joined sources is one.
        event: the kind; or the time a failing node takes for each replica it hosts.
        events: how many were timed.
        median: elapsed.
        p99: elapsed, 99th percentile.
        cpu_median: of the processor time, which other work on the machine disturbs less.
        cpu_p99: its 99th percentile.
        moves: instances moved or started elsewhere per event.
        refused: events that could not be satisfied; they are not among those timed.
    """

    nodes: int
    operators: int
    event: str
    events: int
    median: float
    p99: float
    cpu_median: float
    cpu_p99: float
    moves: float
    refused: int


def measure(case: Case) -> list[Measurement]:
    """Time every kind of event on a live placement, warm."""
    problem = (generated if case.queries else live_problem)(case.nodes, case.seed)
    plan = create("nova", refine=False).solve(problem)
    live = LivePlacement(problem, plan)
    sinks = [f"sink-{number}" for number in range(SINKS)]
    random = np.random.default_rng(case.seed)
    for name in sinks:
        position = random.choice(problem.nodes.position)
        live.apply(
            AddWorker(
                node=NodeRow(
                    id=name, capacity="unlimited", position=position.tolist(), worker=False
                )
            )
        )
    # One stream of events for all kinds.
    draw = RandomEvents(live.problem(), case.seed, sinks=sinks)
    measurements = []
    for kind in shares_of(problem):
        draw.only(kind)
        _timed(live, draw, min(WARM_UP, case.events))
        measurements.append(_measured(live, draw, kind, case, plan.operator_count))
    measurements.append(_busy_node(problem, plan, case))
    return measurements


def live_problem(nodes: int, seed: int) -> Problem:
    """A generated topology whose joins belong to many operators, so that sinks can move one by one.

    The sink takes any output, so that rates may grow.
    """
    problem = generate(nodes, seed=seed)
    operators = -(-len(problem.matrix) // PAIRS_PER_OPERATOR)
    joins, first = problem.joins, np.zeros(operators, np.int64)
    capacity = problem.nodes.capacity.copy()
    capacity[joins.sink] = np.inf
    return replace(
        problem.with_capacity(capacity),
        joins=replace(
            joins,
            ids=np.array([f"join-{number}" for number in range(operators)]),
            left=joins.left[first],
            right=joins.right[first],
            sink=joins.sink[first],
        ),
        matrix=replace(problem.matrix, join=np.arange(len(problem.matrix)) // PAIRS_PER_OPERATOR),
    )


def _timed(
    live: LivePlacement, draw: RandomEvents, count: int
) -> tuple[list[float], list[float], int, int]:
    """Elapsed and processor times, moves and refusals of a number of events."""
    elapsed: list[float] = []
    used: list[float] = []
    moves = refused = 0
    gc.collect()
    while len(elapsed) < count:
        event: Event = draw.next()
        cpu, start = time.thread_time(), time.perf_counter()
        try:
            delta = live.apply(event)
        except (InfeasibleError, ProblemError):
            refused += 1
            continue
        end, cpu_end = time.perf_counter(), time.thread_time()
        elapsed.append(end - start)
        used.append(cpu_end - cpu)
        draw.happened(event)
        moves += len(delta.move) + len(delta.start) - len(delta.added)
    return elapsed, used, moves, refused


def _measured(
    live: LivePlacement, draw: RandomEvents, kind: str, case: Case, operators: int
) -> Measurement:
    # A small topology would run out of nodes and sources to remove.
    count = min(case.events, max(50, case.nodes // 20))
    elapsed, used, moves, refused = _timed(live, draw, count)
    return Measurement(
        nodes=case.nodes,
        operators=operators,
        event=kind,
        events=count,
        median=float(np.median(elapsed)),
        p99=float(np.quantile(elapsed, 0.99)),
        cpu_median=float(np.median(used)),
        cpu_p99=float(np.quantile(used, 0.99)),
        moves=moves / count,
        refused=refused,
    )


def _busy_node(problem: Problem, plan: Plan, case: Case) -> Measurement:
    """A node that hosts many replicas fails: time per replica."""
    whole = np.flatnonzero(plan.replica_count == 1)[:REPLICAS]
    ends = np.isin(np.arange(len(problem.nodes)), problem.sinks)
    host = int(np.flatnonzero(problem.nodes.worker & ~ends)[0])
    capacity = problem.nodes.capacity.copy()
    capacity[host] += float(plan.graph.required[plan.graph.bodies[whole]].sum())
    instances = plan.instances
    node = np.where(np.isin(instances.pair, whole), host, instances.node)
    busier = problem.with_capacity(capacity)
    moved = replace(plan, problem=busier, instances=replace(instances, node=node), notes={})
    times = []
    for _ in range(3):
        live = LivePlacement(busier, moved)
        gc.collect()
        cpu, start = time.thread_time(), time.perf_counter()
        delta = live.apply(FailNode(node=str(problem.nodes.ids[host])))
        count = len(delta.move) + len(delta.start)
        end, cpu_end = time.perf_counter(), time.thread_time()
        times.append(((end - start) / count, (cpu_end - cpu) / count))
    elapsed, used = min(times)
    return Measurement(
        nodes=case.nodes,
        operators=plan.operator_count,
        event=BUSY_NODE,
        events=len(times),
        median=elapsed,
        p99=elapsed,
        cpu_median=used,
        cpu_p99=used,
        moves=count,
        refused=0,
    )


def summary_table(measurements: Sequence[Measurement]) -> Table:
    """Processor time of every kind of event over the sizes: median and 99th percentile, µs."""
    sizes = sorted({(m.nodes, m.operators) for m in measurements})
    table = console.table(
        "Live placement: processor time of an event, median / 99th percentile, µs",
        ["event", *(f">{nodes:,} nodes, {many:,} operators" for nodes, many in sizes)],
    )
    for kind in dict.fromkeys(m.event for m in measurements):
        of_size = {m.nodes: m for m in measurements if m.event == kind}
        cells = []
        for nodes, _ in sizes:
            m = of_size.get(nodes)
            if m is None:
                cells.append("")
            elif kind == BUSY_NODE:
                cells.append(f"{m.cpu_median * 1e6:,.0f}")
            else:
                cells.append(f"{m.cpu_median * 1e6:,.0f} / {m.cpu_p99 * 1e6:,.0f}")
        table.add_row(kind, *cells)
    return table
