"""Hosts and a join for tests of the controller."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nova_core import place
from nova_core.io.files import read_problem
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_harness.experiment.problem import problem_document, problem_of
from nova_testbed.inventory import read_inventory
from nova_workloads.base import Traffic
from nova_workloads.debs import DebsWorkload

# Positions of the sink and of two sources, and of two more.
ENDS = {"hub": 0.0, "left": 20.0, "right": 20.0}
MORE = {"left2": -20.0, "right2": -20.0}


def placed_join(
    directory: Path, workers: Mapping[str, float], hub: float = 600.0, regions: int = 1
) -> tuple[Problem, Plan]:
    """One join of 400 tuples/s of ``left`` and ``right`` to ``hub``, as nova places it.

    With two regions another one of ``left2`` and ``right2``.

    Args:
        directory: for files.
        workers: other hosts and their positions on a line, ms; each can take 600 tuples/s.
        hub: what the sink's host can take, tuples/s.
    """
    ends = ENDS if regions == 1 else ENDS | MORE
    roles = dict.fromkeys(ends, "source") | {"hub": "sink"}
    lines = [
        f"  - {{name: {name}, role: {roles.get(name, 'worker')}}}" for name in (*ends, *workers)
    ]
    head = ["inventory: 1", "name: control", "virtual: true", "hosts:"]
    (directory / "rack.yaml").write_text("\n".join([*head, *lines, "network: {rtt_ms: 20}"]) + "\n")
    capacity = dict.fromkeys(workers, 600.0) | dict.fromkeys(ends, 10.0) | {"hub": hub}
    document = problem_document(
        read_inventory(directory / "rack.yaml"),
        capacity,
        DebsWorkload(regions=regions),
        Traffic(200, 100),
        sink_hosts=False,
    )
    for row, x in zip(document["nodes"], (*ends.values(), *workers.values()), strict=True):
        row["position"] = [x, 0.0]
    del document["latency"]
    problem = problem_of(document, directory / "problem.yaml")
    return problem, place(problem, "nova")


QUERY = """
streams:
  - {id: heat, columns: {zone: text, value: float}, key: zone}
  - {id: power, columns: {zone: text, watts: int}, key: zone}
sources:
  - {id: left, node: left, stream: heat, key: a, rate: 200}
  - {id: right, node: right, stream: power, key: a, rate: 200}
queries:
  - id: waste
    sink: hub
    operators:
      - {id: hot, kind: filter, input: heat, where: heat.value > 0}
      - id: means
        kind: aggregate
        input: hot
        window: 2
        slide: 1
        group_by: [heat.zone]
        compute: {mean: mean(heat.value)}
      - {id: meet, kind: join, inputs: [means, power], on: means.zone = power.zone, window: 1}
"""


def placed_query(directory: Path, workers: Mapping[str, float]) -> tuple[Problem, Plan]:
    """A filter, an aggregate of sliding windows and a join, of the same hosts as `placed_join`."""
    rows = [f"  - {{id: {one}, position: [{x}, 0], capacity: 600}}" for one, x in workers.items()]
    rows += [
        f"  - {{id: {one}, position: [{x}, 0], capacity: 10, worker: false}}"
        for one, x in ENDS.items()
    ]
    file = directory / "problem.yaml"
    file.write_text("\n".join(["nova: 1", "name: control", "nodes:", *rows]) + QUERY)
    problem = read_problem(file)
    return problem, place(problem, "nova")
