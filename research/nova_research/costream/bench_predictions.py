"""How many candidate placements a second the learned cost model predicts, on one core."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rich.table import Table

    from nova_core.model.problem import Problem
    from nova_research.costream.learned.model import Model

NODES = 40
# CPU time is counted in steps of up to 10 ms.
LEAST = 0.1  # s


@dataclass(frozen=True)
class Case:
    """A query, and the size of the network.

    Attributes:
        filters: of the query, one behind the other before its join.
        hidden: width of states; 0 takes the model that Nova brings.
        layers: of updates, see `network.shapes`.
        members: of the ensemble.
        candidates: predicted each time.
        seed: of hosts, and of parameters, which are not trained.
        repeat: how often; the quickest counts.
    """

    filters: int
    hidden: int = 64
    layers: int = 1
    members: int = 3
    candidates: int = 2000
    seed: int = 0
    repeat: int = 5

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"a join behind {self.filters} filters, {self.members} x {self.hidden}"


@dataclass(frozen=True)
class Measurement:
    """One query.

    Attributes:
        operators: of the query, sources and sink included.
        candidates: predicted.
        draw: s to draw them.
        predict: s of wall time to predict all metrics by all members.
        cpu: s of CPU time of the same.
        rate: candidates/s of CPU time.
    """

    operators: int
    candidates: int
    draw: float
    predict: float
    cpu: float
    rate: float


def problem_of(filters: int, seed: int) -> Problem:
    """Two streams, one behind filters, a join and an aggregate on random hosts."""
    from nova_core.model.queries import queries_of
    from nova_harness.bench.queries import generated

    random = np.random.default_rng(seed)
    base = generated(NODES, seed)
    nodes = replace(
        base.nodes,
        cpu=random.choice([0.5, 1, 2, 4, 8], NODES).astype(float),
        memory=random.choice([1, 2, 4, 8, 16], NODES) * 2.0**30,
    )
    sources = replace(
        base.sources,
        **{
            name: getattr(base.sources, name)[[0, 2]]
            for name in ("ids", "node", "stream", "rate", "key")
        },
    )
    before, operators = "t0", []
    for number in range(filters):
        one: dict[str, Any] = {"kind": "filter", "id": f"f{number}", "input": before}
        operators.append({**one, "selectivity": 0.5})
        before = f"f{number}"
    operators.append({"kind": "join", "id": "join", "inputs": [before, "t1"], "selectivity": 0.5})
    operators.append({"kind": "aggregate", "id": "mean", "input": "join", "window": 1})
    query = {"id": "q", "sink": str(nodes.ids[0]), "operators": operators}
    return replace(base, nodes=nodes, sources=sources, queries=queries_of([query]))


def model_of(case: Case) -> Model:
    """The model that Nova brings, or one of random parameters."""
    from nova_research.costream.learned.model import Model, Scale, load_model
    from nova_research.costream.learned.network import initial

    if case.hidden == 0:
        return load_model()
    members = [initial(case.hidden, case.layers, case.seed + n) for n in range(case.members)]
    return Model(members, case.hidden, case.layers, Scale.of({}))


def measure(case: Case) -> list[Measurement]:
    """Time one query, the quickest of some runs."""
    from nova_research.costream.learned.search import Search

    search = Search(problem_of(case.filters, case.seed), model_of(case))
    query = search.queries()[0]
    search.candidates(query, 10, np.random.default_rng(0))
    begin = time.perf_counter()
    candidates = search.candidates(query, case.candidates, np.random.default_rng(case.seed))
    draw = time.perf_counter() - begin
    search.predict(query, candidates)
    cpu, wall = min(_timed(lambda: search.predict(query, candidates)) for _ in range(case.repeat))
    return [Measurement(len(query.graph), len(candidates), draw, wall, cpu, len(candidates) / cpu)]


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall time of a call, s: the mean of as many as take `LEAST` of CPU time."""
    begin, cpu, calls, used = time.perf_counter(), time.process_time(), 0, 0.0
    while used < LEAST:
        work()
        calls += 1
        used = time.process_time() - cpu
    return used / calls, (time.perf_counter() - begin) / calls


def summary_table(measurements: list[Measurement]) -> Table:
    """The figures for people."""
    from nova_core import console

    return console.table(
        "Predicting candidate placements: five metrics, all members, one core",
        [">operators", ">candidates", ">draw (s)", ">predict (s)", ">CPU (s)", ">candidates/s"],
        [
            (
                str(one.operators),
                f"{one.candidates:,}",
                f"{one.draw:.3f}",
                f"{one.predict:.3f}",
                f"{one.cpu:.3f}",
                f"{one.rate:,.0f}",
            )
            for one in measurements
        ],
    )
