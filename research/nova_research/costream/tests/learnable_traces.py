"""Traces whose labels follow a simple rule of rates, CPU and links, so that they can be learnt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
from learned_problems import candidates, plan_at, two_streams

from nova_core.io.plan_writing import plan_text
from nova_core.io.problem_writing import document_text
from nova_core.model.problem import Problem
from nova_research.costream.learned.graph import Graph, GraphBuilder
from nova_research.costream.training.traces import Trace, append

PLACEMENTS = 5


def varied(number: int, random: np.random.Generator) -> Problem:
    """A query of other rates, on hosts of other CPU."""
    problem = two_streams(filters=bool(number % 2))
    cpu, rate = problem.nodes.cpu, problem.sources.rate
    assert cpu is not None
    return replace(
        problem,
        nodes=replace(problem.nodes, cpu=cpu * random.choice([0.2, 1, 5], len(cpu))),
        sources=replace(problem.sources, rate=rate * random.choice([0.5, 1, 2, 5, 10])),
        queries=(msgspec.structs.replace(problem.queries[0], id=f"q{number}"),),
    )


def labels(graph: Graph) -> dict[str, float | bool | int | None]:
    """Load of the busiest host, latency of all flows, and what arrives."""
    received, emitted = 10 ** graph.table[:, 4] - 1, 10 ** graph.table[:, 5] - 1
    cores = (10 ** graph.hosts[:, 0] - 1) / 100
    load = float((np.bincount(graph.host, received + emitted) / cores).max()) / 2000
    producer, consumer = graph.ends
    crossing = graph.host[producer] != graph.host[consumer]
    ms = 10 ** graph.hosts[graph.host[producer][crossing], 2] - 1
    latency = 50.0 + 3 * float(ms.sum()) + 500 * load
    success = load < 8
    result = float(emitted.sum()) / max(1.0, load)
    return {
        "success": success,
        "back_pressure": load > 1,
        "throughput": result if success else 0.0,
        "e2e_latency_ms": latency * max(1.0, load) if success else None,
        "processing_latency_ms": latency if success else None,
        "results": int(success),
    }


def write_learnable(
    directory: Path, queries: int, origin: str = "simulator", seed: int = 0
) -> None:
    """Write traces of so many queries; every tenth is there twice, almost the same."""
    random = np.random.default_rng(seed)
    traces = []
    for number in range(queries):
        problem = varied(number, random)
        builder, document = GraphBuilder(problem), document_text(problem, ".json")
        found = candidates(problem, PLACEMENTS, number)
        for row in range(len(found)):
            plan = plan_at(found, row)
            facts = labels(builder.graph(plan))
            one = Trace(
                id=f"{origin}-{seed}-{number}-{row}", query=f"{origin}-{seed}-{number}",
                structure="two-way-agg", problem=document, plan=plan_text(plan, ".json"),
                operators=msgspec.json.encode(
                    {"pairs": {"records_in": 200, "records_out": 10}}
                ).decode(),
                origin=origin, engine="flink", engine_version="2", nova_version="0",
                made="2025-01-01T00:00:00Z", seed=seed, batch=0, repeat_of=None, duration_s=6.0,
                window_s=2.0, **facts,
            )  # fmt: skip
            traces.append(one)
            if len(traces) % 10 == 1:
                again = {
                    name: None if facts[name] is None else 1.1 * facts[name]
                    for name in ("throughput", "e2e_latency_ms", "processing_latency_ms")
                }
                traces.append(replace(one, id=f"{one.id}-again", repeat_of=one.id, **again))
    directory.mkdir(exist_ok=True)
    append(directory, 0, traces)
