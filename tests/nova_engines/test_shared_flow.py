"""Engines run what queries share once, and every sink has its own query's results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nova_core.io.files import read_problem
from nova_core.model.expansion import graph_of
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.strategies import place
from nova_engines.flow import JOIN, SINK, SOURCE, Flow
from nova_engines.flow_of_plan import flow_of

PROBLEM = """
nova: 1
name: hall
nodes:
  - {id: hub, position: [0, 0], capacity: CAPACITY}
  - {id: fog, position: [5, 1], capacity: CAPACITY}
  - {id: mill, position: [7, 7], capacity: CAPACITY}
  - {id: press, position: [9, 0], capacity: CAPACITY}
sources:
  - {id: heat-1, node: press, stream: heat, rate: 40, key: a}
  - {id: heat-2, node: mill, stream: heat, rate: 30, key: b}
  - {id: strain-1, node: press, stream: strain, rate: 20, key: a}
  - {id: strain-2, node: mill, stream: strain, rate: 50, key: b}
streams:
  - {id: heat, columns: {place: text, value: float}, key: place}
  - {id: strain, columns: {place: text, value: float, n: int}, key: place}
queries:
  - id: alarms
    sink: hub
    sql: >-
      SELECT heat.value * 2 AS twice, strain.n FROM heat JOIN strain ON heat.place = strain.place
      WHERE heat.value > 3 WINDOW TUMBLE(1 s)
  - id: counts
    sink: mill
    operators:
      - {id: warm, kind: filter, input: heat, where: value > 3}
      - {id: both, kind: join, inputs: [warm, strain], on: heat.place = strain.place, window: 1}
      - {id: some, kind: filter, input: both, where: strain.n > heat.value}
      - id: count
        kind: aggregate
        input: some
        window: 1
        group_by: [strain.n]
        groups: 8
        compute: {many: count(), most: max(heat.value)}
      - {id: many, kind: filter, input: count, where: many > 2}
  - id: counted
    sink: hub
    operators:
      - {id: hot, kind: filter, input: heat, where: heat.value > 3}
      - {id: pairs, kind: join, inputs: [hot, strain], on: heat.place = strain.place, window: 1}
      - {id: less, kind: filter, input: pairs, where: strain.n > heat.value}
      - id: count
        kind: aggregate
        input: less
        window: 1
        group_by: [strain.n]
        groups: 8
        compute: {many: count(), most: max(heat.value)}
      - {id: shown, kind: project, input: count, columns: {n: count.n, high: count.most}}
"""


def problem_of(tmp_path: Path, capacity: str) -> Problem:
    file = tmp_path / "problem.yaml"
    file.write_text(PROBLEM.replace("CAPACITY", capacity))
    return read_problem(file)


def computed(flow: Flow) -> dict[str, Any]:
    """What arrives at each sink, spelled out from the sources, wherever it is computed."""
    known: dict[str, Any] = {}
    for one in flow.operators:
        inputs = [sorted(known[name] for name in names) for names in (one.inputs, one.right)]
        nameless = replace(one, name="", node="", inputs=(), right=(), query="")
        known[one.name] = repr((nameless, inputs))
    return {one.query: known[one.name] for one in flow.of_kind(SINK)}


def apart(plan: Plan) -> Plan:
    """The same queries, none of whose operators are shared, all on the first node."""
    rewriting = plan.rewriting._replace(share_operators=False)
    graph = graph_of(plan.problem, rewriting)
    return replace(
        plan,
        rewriting=rewriting,
        partitions=Partitions.uncut(graph.input_rate),
        instances=Instances.whole(np.zeros(len(graph.bodies), np.int64)),
        virtual_position=None,
    )


@pytest.mark.parametrize("push", [True, False])
def test_every_sink_gets_what_its_query_says(tmp_path: Path, push: bool) -> None:
    problem = problem_of(tmp_path, "500")
    plan = place(problem, push_filters=push, split_aggregates=False)
    flow = flow_of(plan)
    # Without moving the first query's filter, that one joins all readings.
    assert len(flow.of_kind(JOIN)) == (2 if push else 4)
    assert len(flow_of(apart(plan)).of_kind(JOIN)) == 6
    assert computed(flow) == computed(flow_of(apart(plan)))
    assert Flow.from_json(flow.to_json()) == flow
    assert flow.has_columns and flow.boundary_ms == 1000


def test_pieces_of_what_is_shared_reach_every_sink(tmp_path: Path) -> None:
    plan = place(problem_of(tmp_path, "62"))
    assert plan.replica_count.max() > 1
    flow = flow_of(plan)
    above = {one.name: {*one.inputs, *one.right} for one in flow.operators}
    joins = {one.name for one in flow.of_kind(JOIN)}
    assert len(joins) == plan.replica_count[:2].sum() > 2
    for sink in flow.of_kind(SINK):
        reached, open_ = set[str](), [sink.name]
        while open_:
            reached |= (further := above[open_.pop()] - reached)
            open_ += further
        assert joins <= reached and {one.name for one in flow.of_kind(SOURCE)} <= reached
