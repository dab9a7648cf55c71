"""Graphs of plans: every piece is a node, flows and rates are the plan's, order does not matter."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learned_models import random_model, shuffled
from learned_problems import candidates, hardware, plan_at, two_streams

from nova_core.errors import NovaError
from nova_core.model import Problem
from nova_core.strategies import place
from nova_research.costream.learned import graph as graphs
from nova_research.costream.learned.features import FEATURES, KINDS
from nova_research.costream.learned.graph import Graph, graph_of, layout_of, stack
from nova_research.costream.learned.network import METRICS


def column(graph: Graph, name: str, kind: str) -> np.ndarray:
    rows = graph.table[graph.kind == KINDS.index(kind)]
    return rows[:, FEATURES[kind].index(name)]


def test_rates_selectivities_and_widths_are_the_querys() -> None:
    graph = graph_of(place(two_streams(), "sink"))
    assert sorted(graph.names) == sorted(
        ["a", "b", "q/some(a)", "q/pairs(a*b)", "q/mean", "q/sink"]
    )
    assert graph.queries == ["q"]
    assert column(graph, "rate_out", "source") == pytest.approx(np.log10([101, 51]))
    assert column(graph, "selectivity", "filter") == pytest.approx([np.log10(0.2)])
    assert column(graph, "compares_>", "filter").tolist() == [1]
    assert column(graph, "compares_<", "filter").tolist() == [0]
    assert column(graph, "literal_float", "filter").tolist() == [1]
    # 20 and 50 tuples/s in windows of 2 s every s; 0.5 results per tuple of the slower.
    assert column(graph, "window", "join") == pytest.approx([np.log10(2001)])
    assert column(graph, "is_sliding", "join").tolist() == [1]
    assert column(graph, "matches", "join") == pytest.approx([np.log10(0.5)])
    assert column(graph, "selectivity", "join") == pytest.approx([np.log10(10 / (20 * 50 * 4))])
    assert column(graph, "key_int", "join").tolist() == [1]
    assert column(graph, "values_in", "join").tolist() == [2.5]
    assert column(graph, "values_out", "join").tolist() == [5]
    assert column(graph, "groups", "aggregate") == pytest.approx([np.log10(6)])
    assert column(graph, "selectivity", "aggregate") == pytest.approx([np.log10(5 / 10)])
    assert column(graph, "computes_mean", "aggregate").tolist() == [1]


def test_hosts_have_their_limits_and_the_links_in_use() -> None:
    problem = hardware(two_streams(), [0.5, 1, 4], [1, 2, 4], ms=20, mbit=40)
    graph = graph_of(place(problem, "sink"))
    by_node = dict(zip(graph.nodes.tolist(), graph.hosts.tolist(), strict=True))
    edge = [np.log10(1 + 50), np.log10(1 + 1e3), np.log10(21), np.log10(41)]
    assert by_node[0][:4] == pytest.approx(edge)
    # Nothing leaves the sink's host.
    assert by_node[2][:3] == pytest.approx([np.log10(401), np.log10(1 + 4e3), 0])


def test_hosts_know_what_is_asked_of_them() -> None:
    problem = hardware(two_streams(), [0.5, 1, 4], [1, 2, 4], ms=20, mbit=40)
    graph = graph_of(place(problem, "sink"))
    common = FEATURES["sink"].index
    received, emitted, size = (
        10 ** graph.table[:, common(name)] - 1 for name in ("rate_in", "rate_out", "bytes_out")
    )
    producer, consumer = graph.ends
    flow = emitted[producer] * size[producer]
    window = np.zeros(len(graph))
    for kind in ("join", "aggregate"):
        mine = graph.kind == KINDS.index(kind)
        window[mine] = (10 ** column(graph, "window", kind) - 1) / 1000
    cores, memory, mbit = [0.5, 1, 4], [1e9, 2e9, 4e9], 40
    for host, node in enumerate(graph.nodes.tolist()):
        here = graph.host == host
        work = (received + emitted)[here].sum() / cores[node]
        leaves = here[producer] & ~here[consumer]
        sent = 100 * flow[leaves].sum() * 8e-6 / mbit if leaves.any() else 0.0
        held = sum(
            window[row] * flow[consumer == row].sum() for row in np.flatnonzero(here).tolist()
        )
        expected = np.log10(1 + np.array([work, sent, 100 * held / memory[node]]))
        assert graph.hosts[host][4:] == pytest.approx(expected)
    assert (graph.hosts[:, 4] > 0).all() and (graph.hosts[:, 5] > 0).any()


def test_measurements_change_all_that_follows() -> None:
    plan = place(two_streams(), "sink")
    graph = graph_of(plan, {"some": (1000, 100)})
    assert column(graph, "selectivity", "filter") == pytest.approx([np.log10(0.1)])
    estimated = graph_of(plan)
    for kind in ("join", "sink"):
        assert column(graph, "rate_in", kind) < column(estimated, "rate_in", kind)


def test_every_piece_is_a_node() -> None:
    problem = two_streams(filters=False)
    problem = problem.with_capacity(np.array([5.0, 5.0, *[105.0] * 7]))
    plan = place(problem, sigma=0.0)
    pieces = int((plan.replica_count > 1).sum())
    assert pieces, "the join must be cut for this test"
    graph = graph_of(plan)
    joins = graph.kind == KINDS.index("join")
    assert joins.sum() == plan.replica_count[0]
    node = graph.nodes[graph.host]
    assert sorted(node[joins]) == sorted(plan.instances.node[plan.instances.pair == 0])
    emitted = 10 ** column(graph, "rate_out", "join") - 1
    assert emitted.sum() == pytest.approx(25)  # 0.5 per tuple of the slower source


def test_pairs_are_queries() -> None:
    from nova_workloads.topology import generate

    problem = generate(40, seed=1)
    graph = graph_of(place(problem, "nova"))
    assert graph.queries == problem.pair_names().tolist()
    assert (graph.kind == KINDS.index("sink")).sum() == len(problem.matrix)
    assert np.isfinite(graph.table).all() and np.isfinite(graph.hosts).all()
    found = random_model().predict([graph])
    assert found.value("success").shape == (len(problem.matrix),)
    first = graph.part(int(graph.sinks[0]))
    assert sorted(KINDS[k] for k in first.kind) == ["join", "sink", "source", "source"]


def test_a_plan_of_too_many_operators_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST_NODES", 2)
    with pytest.raises(NovaError, match="predictions are for at most 2"):
        graph_of(place(two_streams(), "sink"))


def test_stages_follow_the_data() -> None:
    graph = graph_of(place(two_streams(), "nova"))
    stages = [tuple(one) for one in graph.stage.tolist()]
    for producer, consumer in zip(*graph.ends, strict=True):
        if graph.kind[consumer] != KINDS.index("sink"):
            assert stages[producer] < stages[consumer]


@settings(max_examples=20)
@given(seed=st.integers(0, 1000))
def test_order_does_not_matter(seed: int) -> None:
    model = random_model(seed=seed)
    graph = graph_of(plan_at(candidates(two_streams(), 1, seed), 0))
    one, other = model.predict([graph]), model.predict([shuffled(graph, seed)])
    for metric in METRICS:
        assert one.members[metric] == pytest.approx(other.members[metric], rel=1e-3, abs=1e-6)


def test_padding_does_not_matter() -> None:
    model = random_model()
    plans = [
        place(two_streams(filters), one) for filters in (True, False) for one in ("nova", "sink")
    ]
    several = [graph_of(plan) for plan in plans]
    assert len({len(graph) for graph in several}) > 1
    together = model.predict(several)
    for row, graph in enumerate(several):
        alone = model.predict([graph])
        for metric in METRICS:
            assert together.members[metric][:, row] == pytest.approx(
                alone.members[metric][:, 0], rel=1e-3, abs=1e-6
            )


def test_layouts_hold_the_largest() -> None:
    several = [graph_of(place(two_streams(filters), "sink")) for filters in (True, False)]
    groups = layout_of(several)
    assert list(groups) == sorted(groups)
    stacked = stack(several, groups, hosts=7)
    assert stacked.batch.placement.shape == (2, sum(groups.values()), 7)
    assert stacked.batch.placement.sum() == sum(map(len, several))


def with_projection(problem: Problem) -> Problem:
    from nova_core.io.problem_document import queries_of

    query = {"kind": "project", "id": "p", "input": "pressure", "selectivity": 1.0}
    queries = queries_of([{"id": "q", "sink": "hub", "operators": [query]}])
    return replace(problem, queries=queries, streams=())


def test_foreign_operators_are_named() -> None:
    graph = graph_of(place(with_projection(two_streams()), "sink"))
    assert graph.foreign == ("project",)
    assert random_model().untrained(graph) == ["project"]
    model = replace(random_model(), kinds=("source", "filter", "sink"))
    assert model.untrained(graph_of(place(two_streams(), "sink"))) == ["aggregate", "join"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from nova_research.costream.predict import predictions

        predictions(place(with_projection(two_streams()), "sink"), random_model())
    assert any(
        "not been trained for operators of the type project" in str(w.message) for w in caught
    )
