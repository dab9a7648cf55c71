"""What people write: defaults, the derived join matrix, tables beside the document."""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path

import numpy as np
import pytest

from nova_core.errors import ProblemError, ProblemWarning
from nova_core.io import read_problem, write_problem
from nova_core.io.problem_writing import MOST_IN_YAML
from nova_core.model import Problem
from nova_core.model.matching import all_pairs, pairs_by_key

HEAD = """
nova: 1
name: small
nodes:
  - {id: s, position: [0, 0], capacity: unlimited}
  - {id: a, position: [3, 4], capacity: 50, tags: [gpu, arm64], host: 10.0.0.1}
  - {id: b, position: [1e1, 0], capacity: 0, worker: false, memory: 8e9}
"""
SOURCES = """
sources:
  - {id: p1, node: a, stream: pressure, rate: 20, key: r1, tuple_bytes: 64}
  - {id: p2, node: b, stream: pressure, rate: 10, key: r2}
  - {id: h1, node: b, stream: humidity, rate: 5, key: r1}
  - {id: h2, node: a, stream: humidity, rate: 30, key: r1}
"""
KEYLESS = SOURCES.replace(", key: r1", "").replace(", key: r2", "")
QUERY = """
query:
  operators:
    - {id: tw, kind: join, left: pressure, right: humidity, sink: s%s}
"""


def read(tmp_path: Path, text: str, name: str = "p.yaml") -> Problem:
    (tmp_path / name).write_text(textwrap.dedent(text))
    return read_problem(tmp_path / name)


def pairs(problem: Problem) -> list[tuple[str, str, float]]:
    m, ids = problem.matrix, problem.sources.ids.tolist()
    return [
        (ids[a], ids[b], r) for a, b, r in zip(m.left, m.right, m.output_rate.tolist(), strict=True)
    ]


def test_defaults_and_optional_columns(tmp_path: Path) -> None:
    p = read(tmp_path, HEAD + SOURCES + QUERY % "")
    assert p.name == "small"
    assert p.nodes.worker.tolist() == [True, True, False]  # a sink, too, unless the problem says no
    assert p.nodes.capacity.tolist() == [np.inf, 50, 0]
    assert p.nodes.position.tolist() == [[0, 0], [3, 4], [10, 0]]
    assert p.nodes.tags is not None
    assert p.nodes.tags.tolist() == ["", "gpu,arm64", ""]
    assert p.nodes.host is not None
    assert p.nodes.host.tolist() == ["", "10.0.0.1", ""]
    assert p.nodes.memory is not None
    assert np.array_equal(p.nodes.memory, [np.nan, np.nan, 8e9], equal_nan=True)
    assert p.nodes.cost is None
    assert p.sources.tuple_bytes is not None
    assert p.sources.tuple_bytes[0] == 64
    assert p.latency is None
    assert len(p.links) == 0
    kept = HEAD.replace("capacity: unlimited", "capacity: 200, worker: false")
    worker = read(tmp_path, kept + SOURCES + QUERY % "").nodes.worker
    assert worker.tolist() == [False, True, False]


def test_equal_keys_join_by_default(tmp_path: Path) -> None:
    p = read(tmp_path, HEAD + SOURCES + QUERY % "")
    assert pairs(p) == [("p1", "h1", 5.0), ("p1", "h2", 20.0)]
    p = read(tmp_path, HEAD + SOURCES + QUERY % ", selectivity: 0.01")
    assert pairs(p) == [("p1", "h1", 0.05), ("p1", "h2", 0.2)]


def test_every_source_joins_when_nothing_is_known(tmp_path: Path) -> None:
    wanted = [("p1", "h1"), ("p1", "h2"), ("p2", "h1"), ("p2", "h2")]
    for text in (KEYLESS + QUERY % "", SOURCES + QUERY % ", match: all"):
        assert [pair[:2] for pair in pairs(read(tmp_path, HEAD + text))] == wanted


def test_matrix_is_given(tmp_path: Path) -> None:
    matrix = """
matrix:
  - {join: tw, left: p2, right: h1, output_rate: 3}
  - {join: tw, left: p1, right: h2}
"""
    wanted = [("p2", "h1", 3.0), ("p1", "h2", 10.0)]
    for match in ("", ", match: matrix"):
        text = HEAD + SOURCES + QUERY % (match + ", selectivity: 0.5") + matrix
        assert pairs(read(tmp_path, text)) == wanted
    with pytest.raises(ProblemError, match="match of 'tw': key, but pairs of this join are given"):
        read(tmp_path, HEAD + SOURCES + QUERY % ", match: key" + matrix)


def test_stream_joined_with_itself_pairs_each_two_sources_once(tmp_path: Path) -> None:
    query = QUERY.replace("humidity", "pressure") % ", match: all"
    assert [pair[:2] for pair in pairs(read(tmp_path, HEAD + SOURCES + query))] == [("p1", "p2")]


def test_matching_agrees_with_brute_force() -> None:
    rng = np.random.default_rng(3)
    key = rng.choice(["a", "b", "ä", "", "long key"], 200)
    left, right = np.arange(0, 200, 2), np.arange(1, 200, 2)
    found = list(zip(*(side.tolist() for side in pairs_by_key(left, right, key)), strict=True))
    assert found == [(a, b) for a in left.tolist() for b in right.tolist() if key[a] == key[b]]
    a, b = all_pairs(left[:3], right[:2])
    assert (a.tolist(), b.tolist()) == ([0, 0, 2, 2, 4, 4], [1, 3, 1, 3, 1, 3])
    with pytest.raises(ProblemError, match="2500000000 pairs would be derived"):
        all_pairs(np.arange(50_000), np.arange(50_000, 100_000))


def test_latency_matrix_is_arranged_and_symmetrized(tmp_path: Path) -> None:
    latency = """
latency:
  nodes: [b, s, other, a]
  matrix:
    - [0, 4, 9, 6]
    - [4, 0, 9, 7]
    - [9, 9, 0, 9]
    - [8, 7, 9, 0]
"""
    with pytest.warns(ProblemWarning, match=r"1 pairs of nodes differ.*'a' and 'b' \(8 and 6 ms\)"):
        p = read(tmp_path, HEAD + SOURCES + QUERY % "" + latency)
    assert p.latency is not None
    assert p.latency.tolist() == [[0, 7, 4], [7, 0, 7], [4, 7, 0]]


def test_latency_file_with_a_missing_direction(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("s,a,b\nNA,1.5,2\n1.5,0,\n2,3,0\n")
    with pytest.warns(ProblemWarning, match="1 missing values take the other direction's"):
        p = read(tmp_path, HEAD + SOURCES + QUERY % "" + "latency: {file: l.csv}")
    assert p.latency is not None
    assert p.latency.tolist() == [[0, 1.5, 2], [1.5, 0, 3], [2, 3, 0]]


def test_sparse_latencies_and_links(tmp_path: Path) -> None:
    text = """
latency: {pairs: [{from: a, to: s, ms: 5.5}]}
links: [{from: b, to: a, budget: 100}]
"""
    p = read(tmp_path, HEAD + SOURCES + QUERY % "" + text)
    assert p.measured is not None
    assert (p.measured.source[0], p.measured.target[0], p.measured.latency[0]) == (1, 0, 5.5)
    assert (p.links.source[0], p.links.target[0], p.links.budget[0]) == (2, 1, 100)


def test_tables_beside_the_document(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(
        "id,x,y,capacity,worker\ns,0,0,unlimited,\n007,3,4,50,\nb,10,0,0,false\n"
    )
    sources = SOURCES.replace("node: a", "node: '007'")
    p = read(tmp_path, f"nova: 1\ntables: {{nodes: nodes.csv}}\n{sources}{QUERY % ''}")
    assert p.nodes.ids.tolist() == ["s", "007", "b"]
    assert p.nodes.capacity.tolist() == [np.inf, 50, 0]
    assert p.nodes.worker.tolist() == [True, True, False]


def test_json_is_read_and_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    problem = read(tmp_path, "\ufeff" + HEAD + SOURCES + QUERY % "")
    write_problem(problem, tmp_path / "p.json")
    assert read_problem(tmp_path / "p.json").same_as(problem)


def test_many_operators_beside_tables_are_json(tmp_path: Path) -> None:
    small = read(tmp_path, HEAD + SOURCES + QUERY % "")
    many = MOST_IN_YAML + 1
    large = dataclasses.replace(
        small,
        joins=dataclasses.replace(
            small.joins,
            ids=np.array([f"j{number}" for number in range(many)]),
            left=np.resize(small.joins.left, many),
            right=np.resize(small.joins.right, many),
            sink=np.resize(small.joins.sink, many),
        ),
    )
    for problem, header in (
        (small, "problem.yaml"),
        (large, "problem.json"),
        (small, "problem.yaml"),
    ):
        write_problem(problem, tmp_path / "tables")
        assert [path.name for path in (tmp_path / "tables").glob("problem.*")] == [header]
        assert read_problem(tmp_path / "tables").same_as(problem)


def test_unlimited_lifts_all_capacities(tmp_path: Path) -> None:
    read(tmp_path, HEAD + SOURCES + QUERY % "")
    assert np.isinf(read_problem(tmp_path / "p.yaml", "unlimited").nodes.capacity).all()
    with pytest.raises(ProblemError, match="capacity column 'capacity_1': only a directory"):
        read_problem(tmp_path / "p.yaml", "capacity_1")


def test_digest_tells_problems_apart_but_not_names(tmp_path: Path) -> None:
    text = HEAD + SOURCES + QUERY % ""
    p = read(tmp_path, text)
    assert read(tmp_path, text.replace("name: small", "name: other")).digest == p.digest
    for old, new in (("rate: 20", "rate: 21"), ("[3, 4]", "[3, 5]"), ("arm64", "arm65")):
        assert read(tmp_path, text.replace(old, new)).digest != p.digest
    assert read(tmp_path, text + "latency: {pairs: []}").digest != p.digest


def test_writing_leaves_no_temporary_file_and_keeps_the_old_one(tmp_path: Path) -> None:
    problem = read(tmp_path, HEAD + SOURCES + QUERY % "")
    write_problem(problem, tmp_path / "q.yaml")
    before = (tmp_path / "q.yaml").read_text()
    with pytest.raises(ProblemError, match=r"not '\.txt'"):
        write_problem(problem, tmp_path / "q.txt")
    with pytest.raises(ProblemError, match="unknown 'xlsx'"):
        write_problem(problem, tmp_path / "q", "xlsx")
    with pytest.raises(ProblemError, match="csv tables need a directory"):
        write_problem(problem, tmp_path / "r.yaml", "csv")
    assert (tmp_path / "q.yaml").read_text() == before
    assert sorted(f.name for f in tmp_path.iterdir()) == ["p.yaml", "q.yaml"]
