"""The benchmark of the simulator: it measures what it says, on the same plans each time."""

from __future__ import annotations

from nova_research.costream.bench_simulator import Case, measure, plans_of, summary_table


def test_it_measures_random_plans() -> None:
    case = Case("rack", load=4.0, traces=4, repeat=1)
    (found,) = measure(case)
    assert (found.ranges, found.load, found.traces) == ("rack", 4.0, 4)
    assert 0 <= found.failing <= 1
    assert found.prepare > 0
    assert found.simulate > 0
    assert summary_table([found]).row_count == 1
    nodes = [[plan.instances.node.tolist() for plan, _ in plans_of(case)] for _ in range(2)]
    assert nodes[0] == nodes[1]
