"""Problems that bring latencies but no positions, and metrics besides latency."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nova_core.costspace.automatic import chosen_pairs
from nova_core.costspace.space_files import Metric, with_metrics
from nova_core.errors import ProblemError, ProblemWarning
from nova_core.io import read_problem, write_problem
from nova_core.io.validation import validate_problem
from nova_core.model import Problem
from nova_core.strategies import place

NODES = 12


def points() -> np.ndarray:
    return np.random.default_rng(4).uniform(0, 100, (NODES, 2))


def document(latency: str, extra: str = "") -> str:
    nodes = "\n".join(f"  - {{id: n{i}, capacity: 50{extra}}}" for i in range(NODES))
    return f"""
nova: 1
nodes:
{nodes}
sources:
  - {{id: l, node: n1, stream: L, rate: 9}}
  - {{id: r, node: n2, stream: R, rate: 9}}
query: {{operators: [{{id: j, left: L, right: R, sink: n0}}]}}
{latency}
"""


def pairs_of(wanted: list[tuple[int, int]]) -> str:
    where = points()
    rows = [
        f"    - {{from: n{a}, to: n{b}, ms: {np.linalg.norm(where[a] - where[b]):.6f}}}"
        for a, b in wanted
    ]
    return "latency:\n  pairs:\n" + "\n".join(rows)


ALL = [(a, b) for a in range(NODES) for b in range(a)]


def read(tmp_path: Path, text: str) -> Problem:
    (tmp_path / "p.yaml").write_text(text)
    with pytest.warns(ProblemWarning, match="nodes have no positions; embedded into 2 dimensions"):
        return read_problem(tmp_path / "p.yaml")


def test_positions_are_worked_out_from_pairs(tmp_path: Path) -> None:
    problem = read(tmp_path, document(pairs_of(ALL)))
    a, b = np.array(ALL).T
    where = points()
    true = np.linalg.norm(where[a] - where[b], axis=1)
    assert problem.distance(a, b) == pytest.approx(true, abs=0.2)
    assert place(problem).instances.node.tolist()


def test_positions_are_worked_out_from_a_matrix_in_a_file(tmp_path: Path) -> None:
    where = points()
    matrix = np.linalg.norm(where[:, None] - where[None], axis=2)
    head = ",".join(f"n{i}" for i in range(NODES))
    np.savetxt(tmp_path / "m.csv", matrix, delimiter=",", header=head, comments="")
    problem = read(tmp_path, document("latency: {file: m.csv}"))
    a, b = np.array(ALL).T
    assert problem.distance(a, b) == pytest.approx(matrix[a, b], abs=0.2)


def test_the_same_document_gives_the_same_problem_and_it_comes_back(tmp_path: Path) -> None:
    text = document(pairs_of(ALL))
    problem = read(tmp_path, text)
    assert read(tmp_path, text).digest == problem.digest
    write_problem(problem, tmp_path / "q.yaml")
    assert read_problem(tmp_path / "q.yaml").digest == problem.digest


def test_pairs_that_do_not_connect_all_nodes_are_refused_by_name(tmp_path: Path) -> None:
    apart = [(a, b) for a, b in ALL if (a < 9) == (b < 9)]
    (tmp_path / "p.yaml").write_text(document(pairs_of(apart)))
    with pytest.raises(ProblemError) as caught:
        read_problem(tmp_path / "p.yaml")
    assert (
        "p.yaml: the measured pairs fall apart into 2 unconnected groups: 9 nodes (n0, n1,"
        in str(caught.value)
    )
    assert "3 nodes (n9, n10, n11)" in str(caught.value)


@pytest.mark.parametrize(
    ("latency", "extra", "said"),
    [
        ("", "", "none has a position"),
        ("latency: {pairs: []}", "", "fall apart into 12 unconnected groups"),
        (pairs_of(ALL), ", height: 3", "height without positions"),
        (pairs_of(ALL) + "\nmetrics: [energy]", "", "metrics without positions"),
    ],
)
def test_what_cannot_be_embedded_is_refused(
    tmp_path: Path, latency: str, extra: str, said: str
) -> None:
    (tmp_path / "p.yaml").write_text(document(latency, extra))
    with pytest.raises(ProblemError, match=said):
        read_problem(tmp_path / "p.yaml")


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (", position: [0, 0], height: -1", "height"),
        (", position: [0, 0], penalty: -1", "penalty"),
    ],
)
def test_bad_heights_are_refused(tmp_path: Path, extra: str, said: str) -> None:
    (tmp_path / "p.yaml").write_text(document("", extra))
    with pytest.raises(ProblemError, match=said):
        read_problem(tmp_path / "p.yaml")


def test_a_height_is_given_to_all_nodes_or_none(tmp_path: Path) -> None:
    text = document("", ", position: [0, 0], height: 1").replace(", height: 1", "", 1)
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(
        ProblemError, match=r"nodes\[0\].height of 'n0': nan is not a number from 0 to 1e\+09 \(ms"
    ):
        read_problem(tmp_path / "p.yaml")


def test_at_least_one_coordinate_measures_latency(tmp_path: Path) -> None:
    text = document("metrics: [energy, money]", ", position: [0, 0]")
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(ProblemError, match="2 of the 2 coordinates; at least one must measure"):
        read_problem(tmp_path / "p.yaml")


def test_large_matrices_are_sampled() -> None:
    matrix = np.zeros((600, 600))
    assert len(chosen_pairs(matrix[:500, :500])) == 500 * 499 // 2
    assert 600 * 16 <= len(chosen_pairs(matrix)) <= 600 * 32


# --- metrics -------------------------------------------------------------------------------------


def placed(tmp_path: Path) -> Problem:
    return read(tmp_path, document(pairs_of(ALL)))


def test_a_table_becomes_a_penalty_and_a_matrix_coordinates(tmp_path: Path) -> None:
    problem = placed(tmp_path)
    load = np.linspace(0, 1, NODES)
    rows = "\n".join(f"n{i},{x}" for i, x in enumerate(load))
    (tmp_path / "load.csv").write_text(f"id,load\n{rows}\n")
    energy = np.abs(np.subtract.outer(np.arange(NODES), np.arange(NODES))).astype(float)
    head = ",".join(f"n{i}" for i in range(NODES))
    np.savetxt(tmp_path / "energy.csv", energy, delimiter=",", header=head, comments="")
    metrics = [
        Metric.parse(f"load=30:{tmp_path}/load.csv"),
        Metric.parse(f"energy=2:{tmp_path}/energy.csv"),
    ]
    added = validate_problem(with_metrics(problem, metrics))
    assert added.nodes.penalty == pytest.approx(30 * load)
    assert added.metrics == ("energy_0", "energy_1")
    extra = added.nodes.position[:, 2:]
    apart = np.linalg.norm(extra[:, None] - extra[None], axis=2)
    assert apart == pytest.approx(2 * energy, abs=0.1)
    assert np.array_equal(added.latency_position, problem.nodes.position)
    write_problem(added, tmp_path / "q", "parquet")
    assert read_problem(tmp_path / "q").same_as(added)


def test_money_is_the_nodes_cost(tmp_path: Path) -> None:
    problem = placed(tmp_path)
    cost = np.arange(float(NODES))
    priced = replace(problem, nodes=replace(problem.nodes, cost=cost))
    added = with_metrics(priced, [Metric.parse("money=0.5")])
    assert added.nodes.penalty == pytest.approx(0.5 * cost)
    with pytest.raises(ProblemError, match="no node has a cost"):
        with_metrics(problem, [Metric.parse("money=0.5")])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("load", "expected NAME=WEIGHT"),
        ("load=x:f.csv", "expected NAME=WEIGHT"),
        ("load=-1:f.csv", "a weight above 0"),
        ("load=1", "give a file with it, load=1:FILE"),
    ],
)
def test_bad_metrics_are_refused(text: str, said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        Metric.parse(text)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("id,lod\nn0,1\n", "no column 'load'; did you mean 'lod'"),
        ("id,load\nn0,1\n", "load of node 'n1': no value"),
        ("id,load\n" + "".join(f"n{i},-2\n" for i in range(NODES)), "load of node 'n0': -2"),
    ],
)
def test_bad_tables_of_metrics_are_refused(tmp_path: Path, table: str, said: str) -> None:
    problem = placed(tmp_path)
    (tmp_path / "load.csv").write_text(table)
    with pytest.raises(ProblemError, match=said):
        with_metrics(problem, [Metric.parse(f"load=1:{tmp_path}/load.csv")])
