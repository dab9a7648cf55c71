"""Traces of several queries on the same hosts: each is simulated, read and learnt by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from simulated_placements import FILTER, join, plan_on, problem_on

from nova_core.errors import NovaError
from nova_core.model.problem import Problem
from nova_research.costream.corpus.simulated import simulate_corpus
from nova_research.costream.learned.graph import Graph, layout_of, stack
from nova_research.costream.learned.model import Model, Predictions
from nova_research.costream.learned.network import METRICS, initial, on_hosts
from nova_research.costream.simulator.fit import read_samples
from nova_research.costream.simulator.simulate import simulate
from nova_research.costream.training.dataset import Dataset, read_dataset
from nova_research.costream.training.evaluate import predicted
from nova_research.costream.training.traces import read_traces, write_traces
from nova_research.costream.training.train import scale_of

OPERATORS = [FILTER, join(0.5)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("several") / "c"
    simulate_corpus(path, 12, 0, "shared", lambda done, total: None)
    return path


@pytest.fixture(scope="module")
def dataset(corpus: Path) -> Dataset:
    return read_dataset([corpus])


def twice(problem: Problem) -> Problem:
    """The query, and another one of the same operators on the same sources."""
    (query,) = problem.queries
    return replace(problem, queries=(query, msgspec.structs.replace(query, id="r")))


def test_queries_on_other_hosts_do_not_disturb_each_other() -> None:
    alone = simulate(plan_on(problem_on(OPERATORS, [400, 300], nodes=6), [2])).labels
    both = twice(problem_on(OPERATORS, [400, 300], nodes=6))
    ran = simulate(plan_on(both, [2, 3])).of_query
    assert ran.keys() == {"q", "r"}
    for labels in ran.values():
        assert labels.throughput == pytest.approx(alone.throughput, rel=0.02)
        assert labels.e2e_latency_ms == pytest.approx(alone.e2e_latency_ms, rel=0.05)


def test_queries_on_one_weak_host_hold_each_other_up() -> None:
    # Enough for one of them: what comes in is the same, but there is twice as much to do.
    problem = problem_on([FILTER, join(0.5, selectivity=5)], [2000, 2000], cpu=0.06, nodes=6)
    alone = simulate(plan_on(problem, [2])).labels
    ran = simulate(plan_on(twice(problem), [2, 2])).of_query
    for labels in ran.values():
        assert labels.results < 0.9 * alone.results or labels.behind_s > alone.behind_s + 0.1


def test_a_trace_is_of_one_of_the_queries(corpus: Path, dataset: Dataset) -> None:
    rows = read_traces([corpus]).to_pylist()
    assert len(dataset) == len(rows) > 12
    assert max(len(graph.sinks) for graph in dataset.graphs) > 1
    for number, row in enumerate(rows):
        graph, sink = dataset.graphs[number], int(dataset.sinks[number])
        assert graph.queries[sink] == row["measured_query"]
    parts, rests = dataset.parts(), dataset.rests()
    for graph, part, rest in zip(dataset.graphs, parts, rests, strict=True):
        assert sorted(part.names + rest.names) == sorted(graph.names)
        assert part.sinks.size == 1 and len(rest.ends[0]) == 0


def test_what_runs_beside_a_query_counts_as_in_the_whole_graph(dataset: Dataset) -> None:
    """Training adds up what other queries run on the hosts; predictions take the whole graph."""
    scale = scale_of(dataset)
    model = Model([initial(8, 1, 0), initial(8, 1, 1)], 8, 1, scale)
    whole = predicted(model, dataset)

    def batch_of(graphs: list[Graph]) -> tuple[object, object]:
        hosts = max(len(graph.hosts) for graph in graphs)
        one = stack(graphs, layout_of(graphs), hosts)
        return one.layout, scale.scaled(one.layout, one.batch)

    layout, batch = batch_of(dataset.parts())
    others = [on_hosts(np, member, *batch_of(dataset.rests())) for member in model.members]
    outputs = model.outputs(layout, batch, others)
    alone = Predictions({metric: outputs[metric][:, 0] for metric in METRICS})
    for metric in METRICS:
        assert alone.value(metric) == pytest.approx(whole[metric], rel=1e-3, abs=1e-4)


def test_a_query_that_is_not_in_its_problem_is_named(corpus: Path, tmp_path: Path) -> None:
    table = read_traces([corpus])
    at = table.column_names.index("measured_query")
    for name in ("nobody", None):
        column = pa.array([name] * len(table), pa.string())
        write_traces(tmp_path / "t.parquet", table.set_column(at, "measured_query", column))
        for read in (read_dataset, lambda paths: read_samples(paths, "simulator")):
            with pytest.raises(NovaError, match=rf"measured_query: {name!r}; expected one of q, q"):
                read([tmp_path / "t.parquet"])
