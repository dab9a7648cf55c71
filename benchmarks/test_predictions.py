"""How long the learned cost model takes for candidate placements of a query, on one core."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from nova_core.io.problem_document import queries_of
from nova_core.model.problem import Problem
from nova_harness.bench.queries import generated
from nova_research.costream.learned.model import Model, Scale, load_model
from nova_research.costream.learned.network import initial
from nova_research.costream.learned.search import Search

# Candidates.
CASES, SMALL = (2000,), 50
NODES = 40
# Width of states of three networks whose parameters are not trained; 0: the model Nova brings.
WIDTHS = (64, 0)

pytestmark = pytest.mark.usefixtures("one_core")


def problem_of(filters: int) -> Problem:
    """Two streams, one behind filters, a join and an aggregate on random hosts."""
    random = np.random.default_rng(0)
    base = generated(NODES, seed=0)
    nodes = replace(
        base.nodes,
        cpu=random.choice([0.5, 1, 2, 4, 8], NODES).astype(float),
        memory=random.choice([1, 2, 4, 8, 16], NODES) * 2.0**30,
    )
    columns = ("ids", "node", "stream", "rate", "key")
    two = {name: getattr(base.sources, name)[[0, 2]] for name in columns}
    before, operators = "t0", list[dict[str, Any]]()
    for number in range(filters):
        one = {"kind": "filter", "id": f"f{number}", "input": before, "selectivity": 0.5}
        operators.append(one)
        before = f"f{number}"
    operators.append({"kind": "join", "id": "join", "inputs": [before, "t1"], "selectivity": 0.5})
    operators.append({"kind": "aggregate", "id": "mean", "input": "join", "window": 1})
    query = {"id": "q", "sink": str(nodes.ids[0]), "operators": operators}
    sources = replace(base.sources, **two)
    return replace(base, nodes=nodes, sources=sources, queries=queries_of([query]))


def model_of(width: int) -> Model:
    """The model that Nova brings, or one of random parameters."""
    if width == 0:
        return load_model()
    return Model([initial(width, 1, seed) for seed in range(3)], width, 1, Scale.of({}))


@pytest.mark.parametrize("filters", [2, 8])
def test_draw(benchmark: BenchmarkFixture, case: int, filters: int) -> None:
    """To draw candidates; some are drawn twice, and count once."""
    search = Search(problem_of(filters), model_of(WIDTHS[0]))
    query = search.queries()[0]
    found = benchmark(lambda: search.candidates(query, case, np.random.default_rng(0)))
    benchmark.extra_info["candidates"] = len(found)
    assert SMALL <= len(found) <= case


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("filters", [2, 8])
def test_predict(benchmark: BenchmarkFixture, case: int, filters: int, width: int) -> None:
    """CPU time to predict all metrics of all candidates by all members."""
    search = Search(problem_of(filters), model_of(width))
    query = search.queries()[0]
    assert len(query.graph) == filters + 5
    candidates = search.candidates(query, case, np.random.default_rng(0))
    found = benchmark(search.predict, query, candidates)
    benchmark.extra_info["candidates"] = len(candidates)
    assert all(values.shape[1] == len(candidates) for values in found.members.values())
