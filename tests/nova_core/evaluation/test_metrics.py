"""What a plan costs, against values worked out by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from small_problems import problem_of, random_problem

from nova_core.errors import PlanError, ProblemError
from nova_core.evaluation import evaluate
from nova_core.model import Instances, JoinMatrix, Partitions, Plan, Problem, Routes, Sources
from nova_core.strategies import create

# Sink at 0, sources at 30 and 40 on an axis, hosts at 10 (node 3) and 20 (node 4).
LINE = problem_of(
    [[0], [30.4], [40], [10], [20]], [50, 0, 0, 20, 100], [(12, 8)], [0, 3, 4], output_rate=2
)


def plan(
    problem: Problem, rows: list[tuple[int, ...]], offset: list[int], rate: list[float]
) -> Plan:
    return Plan(
        problem=problem,
        strategy="by hand",
        objective="latency",
        partitions=Partitions(np.array(offset), np.array(rate, float)),
        instances=Instances(*np.array(rows).T),
    )


def test_a_whole_join() -> None:
    e = evaluate(plan(LINE, [(0, 4, 0, 1, 0, 1)], [0, 1, 2], [12, 8]))
    assert e.measured is None
    latency = e.estimated
    assert latency.per_source == pytest.approx([30.4, 40])
    assert latency.mean == pytest.approx(35.2)
    assert latency.mean_truncated == 35
    assert latency.p90 == pytest.approx(30.4 + 0.9 * 9.6)
    assert latency.p90_truncated == pytest.approx(39)
    assert latency.maximum == pytest.approx(40)
    assert latency.direct_mean == pytest.approx(35.2)
    assert latency.objectives == pytest.approx(
        {
            "latency": 10.4 + 20 + 20,
            "source-latency": 10.4 + 20 + 2 * 20,
            "network-usage": 12 * 10.4 + 8 * 20 + 2 * 20,
        }
    )
    assert latency.network_usage == latency.objectives["network-usage"]
    assert e.traffic == 12 + 8 + 2
    assert e.amplification == 1
    assert (e.joins, e.joins_cut, e.instances, e.replicas, e.nodes_used) == (1, 0, 1, 1, 1)
    assert e.load.rate.tolist() == [0, 0, 0, 0, 20]
    assert e.load.overloaded_percent == 0
    assert e.load.worst_factor == pytest.approx(0.2)


def test_a_cut_join_counts_every_replica() -> None:
    # Three of four cells on node 4 (merged: two in one row, one beside it), one on node 3.
    rows = [(0, 4, 0, 1, 0, 2), (0, 4, 1, 2, 0, 1), (0, 3, 1, 2, 1, 2)]
    e = evaluate(plan(LINE, rows, [0, 2, 4], [6, 6, 5, 3]))
    left = (3 * (10.4 + 20) + (20.4 + 10)) / 4
    right = (3 * (20 + 20) + (30 + 10)) / 4
    assert e.estimated.per_source == pytest.approx([left, right])
    # Legs to node 4 and to node 3, by the share of the cells.
    assert e.estimated.objectives["latency"] == pytest.approx((3 * 50.4 + (20.4 + 30 + 10)) / 4)
    # Node 4 receives both partitions of either side once.
    assert e.load.rate.tolist() == [0, 0, 0, 6 + 3, 20]
    assert e.amplification == pytest.approx(29 / 20)
    assert e.traffic == pytest.approx(29 + 2)
    usage = 12 * 10.4 + 8 * 20 + 6 * 20.4 + 3 * 30
    share = (6 * 3) / (12 * 8)
    results = 2 * (1 - share) * 20 + 2 * share * 10
    assert e.estimated.network_usage == pytest.approx(usage + results)
    assert (e.joins_cut, e.instances, e.replicas, e.nodes_used) == (1, 3, 4, 2)


def test_the_papers_largest_traffic() -> None:
    # Section 3.4: 25 x 25 replicas of 2 tuples/s turn 50 tuples/s into 1250, 25 times as much.
    hosts = 625
    problem = problem_of([[0.0]] * (3 + hosts), [9.0] * (3 + hosts), [(25, 25)], [*range(3, 628)])
    rows = [(0, 3 + k, k // 25, k // 25 + 1, k % 25, k % 25 + 1) for k in range(625)]
    e = evaluate(plan(problem, rows, [0, 25, 50], [1.0] * 50))
    assert e.replicas == 625
    assert e.load.rate.sum() == pytest.approx(1250)
    assert e.amplification == pytest.approx(25)


def test_load_that_arrives_leaves_out_what_is_produced_on_the_spot() -> None:
    e = evaluate(plan(LINE, [(0, 1, 0, 1, 0, 1)], [0, 1, 2], [12, 8]))
    assert e.load.rate.tolist() == [0, 20, 0, 0, 0]
    assert e.arriving.rate.tolist() == [0, 8, 0, 0, 0]
    assert e.traffic == 8 + 2
    # Node 1 has no capacity at all.
    assert e.load.worst_factor == np.inf
    assert e.load.to_dict()["worst_factor"] is None
    assert e.load.overloaded_percent == 100


def test_overload_is_a_share_of_the_nodes_that_receive() -> None:
    rows = [(0, 3, 0, 1, 0, 1), (0, 4, 1, 2, 0, 1)]
    e = evaluate(plan(LINE, rows, [0, 2, 3], [12 - 1e-3, 1e-3, 8]))
    assert not e.load.overloaded.any()
    e = evaluate(plan(LINE.with_capacity(np.full(5, 19.0)), rows, [0, 2, 3], [11.5, 0.5, 8]))
    assert e.load.overloaded_count == 1
    assert e.load.overloaded_percent == 50
    assert e.load.worst_factor == pytest.approx(19.5 / 19)


def test_measured_beside_estimated() -> None:
    matrix = np.array(
        [
            [0, 7, 9, 1, 4],
            [7, 0, 2, 3, 5],
            [9, 2, 0, 8, 6],
            [1, 3, 8, 0, 2],
            [4, 5, 6, 2, 0],
        ],
        float,
    )
    made = plan(LINE, [(0, 4, 0, 1, 0, 1)], [0, 1, 2], [12, 8])
    given = evaluate(made, matrix)
    own = evaluate(replace(made, problem=replace(LINE, latency=matrix)))
    for e in (given, own):
        assert e.measured is not None
        assert e.measured.per_source.tolist() == [9, 10]
        assert e.measured.direct_mean == 8
        assert e.measured.objectives["latency"] == 5 + 6 + 4
        assert e.estimated.mean == pytest.approx(35.2)
    json.dumps(own.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        (np.zeros((4, 4)), "latency: the matrix is 4 x 4; the problem has 5 nodes"),
        (np.full((5, 5), -1.0), "latency: row 0, column 0 is -1.0; use ms, 0 or more"),
        (np.full((5, 5), np.nan), "latency: row 0, column 0 is nan; use ms, 0 or more"),
    ],
)
def test_a_bad_matrix(matrix: np.ndarray, says: str) -> None:
    made = plan(LINE, [(0, 4, 0, 1, 0, 1)], [0, 1, 2], [12, 8])
    with pytest.raises(ProblemError, match=says):
        evaluate(made, matrix)


def test_a_plan_without_instances() -> None:
    empty = plan(LINE, [(0, 4, 0, 1, 0, 1)], [0, 1, 2], [12, 8])
    none = Instances(*np.empty((6, 0), np.int64))
    with pytest.raises(PlanError, match="places no join"):
        evaluate(replace(empty, instances=none))


def test_relays_lengthen_and_load() -> None:
    made = plan(LINE, [(0, 4, 0, 1, 0, 1)], [0, 1, 2], [12, 8])
    # The right input takes the way over node 3, the result too.
    routes = Routes(np.array([0, 2, 5, 8]), np.array([1, 4, 2, 3, 4, 4, 3, 0]))
    e = evaluate(replace(made, routes=routes))
    assert e.estimated.per_source == pytest.approx([10.4 + 20, 30 + 10 + 20])
    assert e.load.rate.tolist() == [0, 0, 0, 8 + 2, 20]
    assert e.traffic == 12 + 2 * 8 + 2 * 2


def test_a_source_in_several_pairs_has_the_mean_of_all_its_replicas() -> None:
    problem = replace(
        LINE,
        sources=Sources(
            ids=np.array(["a", "b", "c", "idle"]),
            node=np.array([1, 2, 3, 4]),
            stream=np.array(["left", "right", "right", "right"]),
            rate=np.array([12.0, 8, 5, 1]),
        ),
        matrix=JoinMatrix(np.array([0, 0]), np.array([0, 0]), np.array([1, 2]), np.ones(2)),
    )
    # Two replicas of the first pair on node 4, one of the second on the sink.
    rows = [(0, 4, 0, 1, 0, 2), (1, 0, 0, 1, 0, 1)]
    e = evaluate(plan(problem, rows, [0, 1, 3, 4, 5], [12, 4, 4, 12, 5]))
    third_path = 30.4
    expected = [(2 * (10.4 + 20) + third_path) / 3, 40, 10, np.nan]
    assert e.estimated.per_source == pytest.approx(expected, nan_ok=True)
    assert e.estimated.mean == pytest.approx(np.mean(expected[:3]))


@pytest.mark.parametrize("strategy", ["sink", "source", "top-c", "tree"])
def test_figures_agree_with_each_other(strategy: str) -> None:
    e = evaluate(create(strategy).place(random_problem(3, pairs=7, hosts=5, full=0.5)))
    assert e.estimated.p90 <= e.estimated.maximum
    assert e.estimated.direct_mean <= e.estimated.mean
    assert (e.arriving.rate <= e.load.rate).all()
    assert e.joins == e.instances == e.replicas == 7
    json.dumps(e.to_dict(), allow_nan=False)


def test_importing_evaluation_loads_no_solver() -> None:
    code = "import sys, nova_core.evaluation as e; e.evaluate; print('scipy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
