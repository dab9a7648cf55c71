"""The paper's running example, sections 3.1 to 3.4 and Figures 2 to 4, by its numbers."""

from __future__ import annotations

import numpy as np
import pytest

from nova_core.evaluation import evaluate
from nova_core.io.examples import load_example
from nova_core.model.plan import Plan
from nova_core.model.verify import verify
from nova_core.strategies import place

PAPER = {"sigma": 0.0, "c_min": 15.0}


def hosts(plan: Plan) -> dict[str, list[str]]:
    problem, instances = plan.problem, plan.instances
    result: dict[str, list[str]] = {}
    for pair, node in zip(instances.pair, instances.node, strict=True):
        result.setdefault(problem.pair_name(pair), []).append(str(problem.nodes.ids[node]))
    return {pair: sorted(nodes) for pair, nodes in result.items()}


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param({"index": "kdtree", "k": 2, "refine": False}, id="as in the paper"),
        pytest.param({}, id="defaults"),
        pytest.param({"index": "kdtree", "k": 2}, id="k-NN refined"),
    ],
)
def test_regions_go_where_the_paper_puts_them(parameters: dict[str, object]) -> None:
    plan = place(load_example("running-example"), "nova", **PAPER, **parameters)
    assert hosts(plan) == {
        "climate/t1*w1": ["A"],
        "climate/t2*w1": ["B", "C"],
        "climate/t3*w2": ["G"],
        "climate/t4*w2": ["G"],
    }
    assert verify(plan).ok


def test_second_join_is_cut_into_625_replicas_over_two_nodes() -> None:
    plan = place(load_example("running-example"), "nova", **PAPER)
    of_second = plan.instances.pair == 1
    assert plan.instances.replicas[of_second].sum() == 625
    assert plan.partitions.count[2:4].tolist() == [25, 25]
    # w1 is broadcast, t2 is partitioned: both nodes receive all of w1.
    assert plan.right_rate[of_second].tolist() == [25, 25]
    assert plan.left_rate[of_second].sum() == pytest.approx(25)


def test_latencies_are_those_of_the_text() -> None:
    problem = load_example("running-example")
    plan = place(problem, "nova", **PAPER)
    index = problem.node_index

    def distance(a: str, b: str) -> float:
        position = problem.nodes.position
        return float(np.linalg.norm(position[index[a]] - position[index[b]]))

    assert distance("t1", "C") == pytest.approx(60, abs=1)
    assert distance("t1", "sink") == pytest.approx(110, abs=1)
    assert distance("E", "sink") == pytest.approx(100, abs=1)
    path = plan.path_latency
    region_1 = path[plan.instances.pair < 2].max()
    region_2 = path[plan.instances.pair >= 2].max()
    assert region_1 == pytest.approx(150, abs=5)
    assert region_2 == pytest.approx(175, abs=5)


def test_sink_and_source_placements_overload() -> None:
    problem = load_example("running-example")
    assert problem.sources.rate.sum() == 150
    for strategy in ("sink", "source"):
        report = verify(place(problem, strategy))
        assert not report.ok
        assert report.honest


def test_both_readings_of_equation_1() -> None:
    plan = place(load_example("running-example"), "nova", **PAPER)
    estimated = evaluate(plan).estimated
    legs, second = plan.link_latency().reshape(-1, 3).sum(axis=1), plan.instances.pair == 1
    assert estimated.instance_sum == pytest.approx(legs.sum())
    # Two instances do the second join: what a tuple sees is the mean over their replicas.
    seen = np.average(legs[second], weights=plan.instances.replicas[second])
    assert estimated.objectives["latency"] == pytest.approx(legs[~second].sum() + seen)
    assert round(estimated.objectives["latency"]) == 717
    assert round(estimated.instance_sum) == 915
