"""Operator graphs: what operators take, where their tuples come from, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from nova_core.errors import ProblemError
from nova_research.operators import Operator, OperatorGraph

SOURCE = Operator("s", "source", output_rate=4.0, node=0)


def graph() -> OperatorGraph:
    return OperatorGraph(
        [
            SOURCE,
            Operator("t", "source", output_rate=3.0, node=1),
            Operator("f", "filter", (1,), 1.0),
            Operator("j", "join", (0, 2), 2.0),
            Operator("given", "aggregate", (3,), 0.5, need=9.0),
            Operator("k", "sink", (3, 4), node=2),
        ]
    )


def test_operators_take_what_they_receive_or_say() -> None:
    assert graph().demand.tolist() == [0.0, 0.0, 3.0, 5.0, 9.0, 0.0]
    pinned = OperatorGraph([Operator("s", "source", node=0, need=2.0)])
    assert pinned.demand.tolist() == [2.0]


def test_upstream_sources() -> None:
    made = graph()
    assert made.sources == [0, 1]
    assert [sorted(made.upstream_sources(n)) for n in range(6)] == [
        *([0], [1], [1]),
        *([0, 1], [0, 1], [0, 1]),
    ]


def test_usage_and_arrival() -> None:
    latency = np.array([[0.0, 10.0, 30.0], [10.0, 0.0, 20.0], [30.0, 20.0, 0.0]])
    nodes = np.array([0, 1, 1, 0, 2, 2])
    made = graph()
    # t to f and s to j stay; f to j 1 over 10; j to given and k 2 over 30 each; given stays.
    assert made.network_usage(nodes, latency) == 1 * 10 + 2 * 30 + 2 * 30
    assert made.arrival(nodes, latency).tolist() == [0, 0, 0, 10, 40, 40]


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        ([SOURCE, SOURCE], "'s' is there twice"),
        ([Operator("x", "sort", (0,))], "kind 'sort'"),
        ([SOURCE, Operator("x", "source", (0,), node=0)], "must not have inputs"),
        ([SOURCE, Operator("x", "filter")], "needs inputs"),
        ([SOURCE, Operator("x", "filter", (1,))], "inputs must be operators before it"),
        ([Operator("x", "source")], "node is missing"),
        ([Operator("x", "source", output_rate=-1.0, node=0)], "must be >= 0"),
        (
            [SOURCE, Operator("k", "sink", (0,), node=0), Operator("x", "filter", (1,))],
            "a sink emits nothing",
        ),
    ],
)
def test_bad_graphs_are_refused(operators: list[Operator], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        OperatorGraph(operators)
