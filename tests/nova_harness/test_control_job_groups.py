"""Joins that share no source are jobs of their own."""

from __future__ import annotations

from pathlib import Path

from control_hosts import placed_join
from hypothesis import given
from hypothesis import strategies as st

from nova_engines.flow import JOIN, SINK, SOURCE, Flow, Operator
from nova_engines.flow_of_plan import flow_of
from nova_harness.control.job_groups import sources_of_groups

PAIRS = st.lists(st.tuples(st.integers(0, 8), st.integers(9, 17)), min_size=1, max_size=20)


@given(pairs=PAIRS, most=st.integers(1, 6))
def test_sources_that_are_joined_are_in_one_group(pairs: list[tuple[int, int]], most: int) -> None:
    names = [f"s{k}" for k in range(18)]
    joined = sorted({k for pair in pairs for k in pair})
    sources = [Operator(names[k], "n", SOURCE, source=names[k]) for k in joined]
    joins = [
        Operator(f"join {number}", "n", JOIN, (names[a],), (names[b],))
        for number, (a, b) in enumerate(pairs)
    ]
    sink = Operator("sink", "n", SINK, tuple(one.name for one in joins))
    flow = Flow((*sources, *joins, sink))
    groups = sources_of_groups(flow, most)
    assert sorted(name for group in groups for name in group) == sorted(names[k] for k in joined)
    of = {name: number for number, group in enumerate(groups) for name in group}
    assert all(of[names[a]] == of[names[b]] for a, b in pairs)
    # As many as there can be.
    components = [{a, b} for a, b in pairs]
    for _ in components:
        for one in components:
            for other in components:
                if one & other:
                    one |= other
    independent = {frozenset(one) for one in components}
    assert len(groups) == min(most, len(independent))
    assert groups == sources_of_groups(flow, most)
    assert len(whole_groups := flow.components()) == len(independent)
    assert set(whole_groups) == set(sources_of_groups(flow, 99))


def test_the_parts_of_a_dataflow_are_all_of_it(tmp_path: Path) -> None:
    workers = {f"w{k}": 10.0 + k for k in range(4)}
    problem, plan = placed_join(tmp_path, workers, hub=450.0, regions=2)
    whole = flow_of(plan)
    groups = sources_of_groups(whole, 8)
    parts = [whole.of_sources(group) for group in groups]
    assert len(parts) == 2
    operators = [one for part in parts for one in part.operators if one.kind != SINK]
    assert sorted(operators, key=str) == sorted(
        (one for one in whole.operators if one.kind != SINK), key=str
    )
    # Each has a sink of its own, on the same host, for its own joins.
    (sink,) = whole.sinks
    ends = [one for part in parts for one in part.sinks]
    assert {(one.name, one.node) for one in ends} == {(sink.name, sink.node)}
    assert sorted(name for one in ends for name in one.inputs) == sorted(sink.inputs)
    assert whole.of_sources(problem.sources.ids.tolist()) == whole
