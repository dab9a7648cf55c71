"""A document with joins of pairs and whole queries: the joins are queries of one operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from query_cases import asking, mixed, random_queries, read_content, topology

from nova_core.errors import ProblemError
from nova_core.io.problem_writing import problem_document
from nova_core.model.expansion import graph_of
from nova_core.model.graph import JOIN
from nova_core.model.verify import verify
from nova_core.strategies import place

JOIN_OF_PAIRS = {"id": "pairs", "left": "t0", "right": "t1", "sink": "n0", "selectivity": 0.5}
WHOLE = [{"id": "q", "sink": "n1", "operators": [
    {"kind": "aggregate", "id": "sum", "input": "t2", "window": 1}]}]  # fmt: skip


def content(join: dict[str, Any], queries: bool = True, **more: Any) -> dict[str, Any]:
    found = problem_document(asking(topology(3), WHOLE))
    if not queries:
        del found["queries"]
    return found | {"query": {"operators": [JOIN_OF_PAIRS | join]}} | more


@pytest.mark.parametrize("join", [{}, {"match": "all"}, {"match": "key", "selectivity": 2.0}])
def test_joins_are_as_without_queries(join: dict[str, Any]) -> None:
    alone = read_content(content(join, queries=False))
    graph = graph_of(read_content(content(join)))
    rows = np.flatnonzero(graph.kind == JOIN)
    sources = [[int(graph.source[one]) for one in graph.inputs(row)] for row in rows]
    assert sources == np.stack([alone.matrix.left, alone.matrix.right], axis=1).tolist()
    assert graph.rate[rows].tolist() == alone.matrix.output_rate.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_both_are_placed(seed: int) -> None:
    problem = mixed(seed)
    names = [query.id for query in problem.queries]
    assert names == [*(query.id for query in random_queries(seed).queries), "by-key", "all"]
    plan = place(problem)
    assert verify(plan).ok
    again = read_content(problem_document(problem))
    assert again.queries == problem.queries and place(again).same_as(plan)


@pytest.mark.parametrize(
    ("join", "more", "said"),
    [
        ({"match": "matrix"}, {}, "query.operators[0].match of 'pairs': matrix; beside `queries`"),
        (
            {},
            {"matrix": [{"join": "pairs", "left": "s0", "right": "s2"}]},
            "matrix: beside `queries`, joins take no pairs; give match: key or all",
        ),
        ({"id": "q"}, {}, "'q'"),
        ({"left": "t9"}, {}, "unknown stream or operator above 't9'"),
    ],
)
def test_what_cannot_be_is_refused(join: dict[str, Any], more: dict[str, Any], said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        read_content(content(join, **more))
    assert said in str(caught.value) and "\n" not in str(caught.value)
