"""What engines are given to cut a join by key."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_core.io.files import read_problem
from nova_core.strategies import place
from nova_engines.flow import CUT, JOIN, LEFT, RIGHT, Flow
from nova_engines.flow_of_plan import flow_of

PROBLEM = """
nova: 1
name: items
nodes:
  - {id: hub, position: [0, 0], capacity: 9}
  - {id: fog-1, position: [1, 0], capacity: 80}
  - {id: fog-2, position: [2, 0], capacity: 80}
  - {id: fog-3, position: [3, 0], capacity: 80}
  - {id: m, position: [9, 0], capacity: 9}
sources:
  - {id: o, node: m, stream: orders, rate: 100}
  - {id: p, node: m, stream: parts, rate: 100}
streams:
  - {id: orders, columns: {note: text, item: int}}
  - {id: parts, columns: {item: int}}
queries:
  - id: pick
    sink: hub
    operators:
      - id: match
        kind: join
        inputs: [orders, parts]
        on: orders.item = parts.item
        window: 1
        keys: 10000
        hot: [{values: [7], left: 0.5, right: 0.25}]
"""


def test_both_inputs_are_cut_in_the_same_ranges_of_keys(tmp_path: Path) -> None:
    (tmp_path / "problem.yaml").write_text(PROBLEM)
    problem = read_problem(tmp_path / "problem.yaml")
    plan = place(problem, "nova")
    flow = flow_of(plan)
    assert Flow.from_json(flow.to_json()) == flow
    joins = flow.of_kind(JOIN)
    assert len(joins) >= 3
    cuts = {one.name: one for one in flow.of_kind(CUT)}
    for join in joins:
        left, right = (cuts[name] for (name,) in (join.inputs, join.right))
        assert (left.side, right.side) == (LEFT, RIGHT)
        assert (left.low, left.high) == (right.low, right.high)
        # Columns of the note, the item; and the item alone.
        assert (left.hashed, right.hashed) == ((1,), (0,))
        ((values, begin, end),) = left.hot
        assert values == ("7",)
        assert (begin, end, left.others) == (0, pytest.approx(0.5), end)
        assert right.hot == left.hot
    bounds = sorted((one.low[0], one.high[0]) for one in cuts.values() if one.side == LEFT)
    assert bounds[0][0] == 0
    assert [high for _, high in bounds[:-1]] == [low for low, _ in bounds[1:]]
