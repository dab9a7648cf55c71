"""How long whole queries take to place, on generated topologies."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core.model.problem import JoinMatrix, Joins, Nodes, Problem, Sources

if TYPE_CHECKING:
    from rich.table import Table


KEYS = 2


@dataclass(frozen=True)
class Case:
    """A size and an objective.

    Attributes:
        nodes: of the topology.
        objective: what is minimized.
        seed: of the topology and the queries.
        repeat: how often each step runs; the quickest counts.
    """

    nodes: int
    objective: str
    seed: int = 0
    repeat: int = 3

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"queries on {self.nodes:,} nodes, {self.objective}"


@dataclass(frozen=True)
class Measurement:
    """One size and objective.

    Attributes:
        nodes: of the topology.
        queries: placed.
        instances: of operators in the plan.
        objective: what was minimized.
        expand: s to make the operator graph.
        virtual: s for phase II.
        place: s for all of it, from queries to the plan.
        over_virtual: objective divided by that of the virtual positions, a lower bound.
        overloaded: nodes above their capacity.
    """

    nodes: int
    queries: int
    instances: int
    objective: str
    expand: float
    virtual: float
    place: float
    over_virtual: float
    overloaded: int


def generated(nodes: int, seed: int) -> Problem:
    """A topology and three queries per ten nodes, each over three streams of two keys.

    A query is a filter, two joins by key, a filter on one of their inputs and an aggregate.
    Capacities are exponential, three times what the queries need in all.
    """
    from nova_core.model.queries import queries_of

    random = np.random.default_rng(seed)
    count = max(1, 3 * nodes // 10)
    streams = max(3, count // 2)
    many, none = KEYS * streams, np.empty(0, np.int64)
    problem = Problem(
        nodes=Nodes(
            # As an array at once: a size that is too big is told before memory fills.
            ids=np.strings.add("n", np.arange(nodes).astype(f"U{len(str(nodes))}")),
            position=random.uniform(0, 200, (nodes, 2)),
            capacity=np.floor(random.exponential(size=nodes) * 120) + 1,
            worker=np.ones(nodes, bool),
        ),
        sources=Sources(
            ids=np.array([f"s{i}" for i in range(many)]),
            node=random.integers(0, nodes, many),
            stream=np.array([f"t{i // KEYS}" for i in range(many)]),
            rate=random.integers(5, 60, many).astype(float),
            key=np.array([f"k{i % KEYS}" for i in range(many)]),
        ),
        joins=Joins(np.empty(0, np.str_), np.empty(0, np.str_), np.empty(0, np.str_), none),
        matrix=JoinMatrix(none, none, none, np.empty(0)),
    )
    queries = []
    for number in range(count):
        a, b, c = (f"t{one}" for one in random.choice(streams, 3, replace=False))
        operators: list[dict[str, Any]] = [
            {"kind": "filter", "id": "some", "input": a, "selectivity": 0.5},
            {"kind": "join", "id": "two", "inputs": ["some", b], "selectivity": 0.5},
            {"kind": "join", "id": "three", "inputs": ["two", c], "selectivity": 0.3},
            {"kind": "filter", "id": "few", "input": "three", "selectivity": 0.4, "reads": b},
            {"kind": "aggregate", "id": "mean", "input": "few", "window": 1, "groups": 2},
        ]
        sink = f"n{random.integers(nodes)}"
        queries.append({"id": f"q{number}", "sink": sink, "operators": operators})
    return replace(problem, queries=queries_of(queries))


def _quickest(run: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - start)
    return min(times), result


def measure(case: Case) -> list[Measurement]:
    """Time one size, kernels compiled, the quickest of some runs."""
    from nova_core.model.query_graph import expand
    from nova_core.model.query_plan import link_weights
    from nova_core.queries.virtual import virtual_positions
    from nova_core.strategies import place

    nodes, objective, repeat = case.nodes, case.objective, case.repeat
    place(generated(10, case.seed), objective=objective)
    problem = generated(nodes, case.seed)
    expanding, graph = _quickest(lambda: expand(problem), repeat)
    weight = link_weights(graph, objective)
    position = problem.nodes.position
    relaxing, best = _quickest(lambda: virtual_positions(graph, position, weight), repeat)
    placing, plan = _quickest(lambda: place(problem, objective=objective), repeat)
    return [
        Measurement(
            nodes,
            len(problem.queries),
            len(plan.instances),
            objective,
            expanding,
            relaxing,
            placing,
            plan.objective_value(objective) / best.cost,
            int((plan.load > problem.nodes.capacity * (1 + 1e-9)).sum()),
        )
    ]


def summary_table(measurements: list[Measurement]) -> Table:
    """The figures for people."""
    from nova_core import console

    table = console.table(
        "Placing queries",
        [
            ">nodes",
            ">queries",
            ">instances",
            "objective",
            ">expand (s)",
            ">Phase II (s)",
            ">all (s)",
            ">over virtual",
            ">overloaded",
        ],
    )
    for one in measurements:
        table.add_row(
            f"{one.nodes:,}",
            f"{one.queries:,}",
            f"{one.instances:,}",
            one.objective,
            f"{one.expand:.3f}",
            f"{one.virtual:.3f}",
            f"{one.place:.3f}",
            f"{one.over_virtual:.3f}",
            str(one.overloaded),
        )
    return table
