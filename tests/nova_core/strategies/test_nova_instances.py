"""Nova on the published instances: figures in the definitions of the data's README."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nova_core.evaluation import evaluate
from nova_core.io import read_problem
from nova_core.model import Problem
from nova_core.model.verify import verify
from nova_core.strategies import place

# Exact optima of whole joins (HiGHS), ms; atlas capacity_0 is proven 0.28 % below its first value.
OPTIMUM = {
    ("sim1000", "capacity_0"): 25085.8,
    ("sim1000", "capacity_5"): 24915.8,
    ("atlas", "capacity_0"): 37351.3,
    ("atlas", "capacity_5"): 36219.3,
    ("fit", "capacity_0"): 4526.0,
    ("fit", "capacity_5"): 4211.8,
}
P90_AT_MOST = {"sim1000": 92, "atlas": 380, "fit": 34}
P90_UNLIMITED = {"sim1000": 73.0, "atlas": 347.4, "fit": 27.0}

pytestmark = pytest.mark.data


def read(shared_data: Path, name: str, capacity: str) -> Problem:
    return read_problem(shared_data / "instances" / name, capacity=capacity)


@pytest.mark.parametrize("name", list(P90_AT_MOST))
@pytest.mark.parametrize("refine", [True, False])
def test_nothing_is_overloaded_in_any_column(shared_data: Path, name: str, refine: bool) -> None:
    for column in range(6):
        plan = place(read(shared_data, name, f"capacity_{column}"), "nova", refine=refine)
        assert verify(plan).ok
        assert evaluate(plan).load.overloaded_count == 0


@pytest.mark.parametrize(("name", "capacity"), list(OPTIMUM))
def test_objective_is_within_1_percent_of_the_best_whole_joins(
    shared_data: Path, name: str, capacity: str
) -> None:
    plan = place(read(shared_data, name, capacity), "nova")
    objective = evaluate(plan).estimated.objectives["latency"]
    assert objective <= 1.01 * OPTIMUM[name, capacity]


@pytest.mark.parametrize("name", list(P90_AT_MOST))
def test_90th_percentiles(shared_data: Path, name: str) -> None:
    tight = evaluate(place(read(shared_data, name, "capacity_5"), "nova")).estimated
    assert tight.p90_truncated <= P90_AT_MOST[name]
    unlimited = evaluate(place(read(shared_data, name, "unlimited"), "nova")).estimated
    assert unlimited.p90_truncated == pytest.approx(P90_UNLIMITED[name], rel=0.015)


@pytest.mark.parametrize("name", list(P90_AT_MOST))
@pytest.mark.parametrize("objective", ["latency", "source-latency"])
def test_unlimited_capacity_reaches_the_best_host_of_every_join(
    shared_data: Path, name: str, objective: str
) -> None:
    problem = read(shared_data, name, "unlimited")
    plan = place(problem, "nova", objective=objective)
    position = problem.nodes.position
    hosts = position[problem.nodes.worker]

    def to_hosts(node: np.ndarray) -> np.ndarray:
        return np.linalg.norm(position[node][:, None] - hosts, axis=2)

    sink_weight = 2 if objective == "source-latency" else 1
    cost = (
        to_hosts(problem.left_node)
        + to_hosts(problem.right_node)
        + sink_weight * to_hosts(problem.sink_node)
    )
    best = cost.min(axis=1).sum()
    assert evaluate(plan).estimated.objectives[objective] <= 1.001 * best
