"""Random queries of a corpus: what they promise of their readings is so."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.errors import NovaError
from nova_core.io.files import read_problem
from nova_core.io.syntax import dump
from nova_core.model.expansion import Rewriting, graph_of
from nova_core.model.problem import Problem
from nova_research.costream.corpus.random_queries import BENCHMARKS, RandomQuery, random_query
from nova_research.costream.corpus.ranges import MOST_BYTES, MOST_SECONDS, PAPER, RACK, Ranges
from nova_research.costream.training.traces import STRUCTURES
from nova_workloads.base import workload
from nova_workloads.queries.readings import connection, encode, load
from nova_workloads.queries.reference import evaluate

SECONDS = 8.0
OF_BENCHMARKS = [replace(RACK, benchmark=name) for name in BENCHMARKS]


def problem_of(query: RandomQuery, directory: Path) -> Problem:
    """The query on a single node."""
    node = {"id": "n", "position": [0, 0], "capacity": "unlimited", "worker": True}
    document = {"nova": 1, "nodes": [node], **query.document(["n"] * len(query.streams), "n")}
    path = directory / "problem.yaml"
    path.write_text(dump(document, ".yaml"))
    return read_problem(path)


def write_workload(query: RandomQuery, directory: Path, seconds: float) -> dict[str, str]:
    """Write the query and its readings; the ``workload`` entry of an experiment with them."""
    streams = query.document(["n"] * len(query.streams), "n")["streams"]
    sources = [{"id": one.source, "stream": one.id} for one in query.streams]
    queries = [{"id": query.id, "operators": query.operators}]
    content = {"streams": streams, "sources": sources, "queries": queries}
    (directory / "queries.yaml").write_text(dump(content, ".yaml"))
    (directory / "readings").mkdir()
    for stream, values in query._values(seconds):
        columns = {
            name: column.astype(str) if column.dtype.kind == "S" else column
            for name, column in values.items()
        }
        pq.write_table(pa.table(columns), directory / "readings" / f"{stream.source}.parquet")
    return {"kind": "queries", "file": "queries.yaml", "readings": "readings"}


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([RACK, PAPER, *OF_BENCHMARKS]), st.floats(0.25, 8))
def test_nova_counts_on_the_rates_that_follow_from_the_values(
    tmp_path_factory: pytest.TempPathFactory, seed: int, ranges: Ranges, load_: float
) -> None:
    query = random_query([seed], load_, ranges)
    problem = problem_of(query, tmp_path_factory.mktemp("query"))
    graph = graph_of(problem, Rewriting(True, True))
    found = {one.logical: one.rate for one in graph if one.logical}
    for name, rate in query.rates.items():
        if name == "agg":
            # Nova counts whole groups, and no more results than tuples.
            (agg,) = (one for one in query.operators if one["id"] == "agg")
            slide = agg.get("slide", agg["window"])
            received = query.rates.get(agg["input"], query.streams[0].rate)
            near = abs(found[name] - rate) <= 0.51 / slide or rate < 1 / slide
            same = found[name] == pytest.approx(received, rel=1e-3)
            assert near or (same and received <= rate)
        else:
            assert found[name] == pytest.approx(rate, rel=1e-3)
    window = [one for one in query.operators if "window" in one]
    assert (query.window_s is None) == (not window)
    assert all(one.tuple_bytes * one.rate * MOST_SECONDS <= 2 * ranges.most_bytes
               for one in query.streams)  # fmt: skip


def test_one_seed_is_one_query() -> None:
    assert random_query([3, 4]) == random_query([3, 4]) != random_query([3, 5])


def test_structures_filters_and_windows_are_the_papers() -> None:
    queries = [random_query([1, number]) for number in range(1500)]
    structures = Counter(one.structure for one in queries)
    for name, share in zip(STRUCTURES, (0.175, 0.175, 0.17, 0.17, 0.155, 0.155), strict=True):
        assert structures[name] / 1500 == pytest.approx(share, abs=0.03)
    filters = Counter(sum(one["kind"] == "filter" for one in q.operators) for q in queries)
    assert [filters[n] / 1500 for n in (1, 2, 3, 4)] == pytest.approx(
        [0.35, 0.34, 0.24, 0.07], abs=0.04
    )
    assert {3, 10} <= {len(stream.columns) for q in queries for stream in q.streams}
    slides = set().union(*(one.slides_s for one in queries))
    assert {0.1, 0.125, 4.0} <= slides
    size = [
        sum(s.tuple_bytes * s.rate * MOST_SECONDS for s in one.streams) / MOST_BYTES
        for one in queries
    ]
    # What a query looks at stays, however large it is.
    assert max(size) < 1.6


def kinds_of(ranges: Ranges) -> list[str]:
    return [one["kind"] for one in random_query([1], ranges=ranges).operators]


def test_queries_of_benchmarks_have_their_operators() -> None:
    kinds = [kinds_of(ranges) for ranges in OF_BENCHMARKS]
    assert kinds == [["filter", "join"], ["filter"] * 2, *[["filter", "aggregate"]] * 2]
    whole, by_house = (
        random_query([1], ranges=ranges).operators[-1] for ranges in OF_BENCHMARKS[2:]
    )
    assert "group_by" not in whole and len(by_house["group_by"]) == 1
    # Random queries have other windows.
    assert whole["window"] not in (*RACK.windows_s, *PAPER.windows_s)


@pytest.mark.parametrize(
    ("seed", "ranges"), [*((n, RACK) for n in range(12)), *enumerate(OF_BENCHMARKS)]
)
def test_results_are_as_many_as_expected(seed: int, ranges: Ranges, tmp_path: Path) -> None:
    query = random_query([7, seed], ranges=ranges)
    problem = problem_of(query, tmp_path)
    content = write_workload(query, tmp_path, SECONDS)
    database = connection()
    load(database, problem, tmp_path / content["readings"])
    tables = evaluate(database, problem, problem.queries[0])
    for name, rate in query.rates.items():
        (count,) = database.execute(f"SELECT count(*) FROM {tables[name]}").fetchone()
        expected = rate * SECONDS
        kind = next(one["kind"] for one in query.operators if one["id"] == name)
        if kind == "filter" and name[0] == "f" and expected > 300:
            assert count == pytest.approx(expected, rel=0.25)
        elif expected > 2000:
            # Windows at the ends are whole only in part, and results of one tuple come together.
            assert 0.5 < count / expected < 1.6
    # The same readings, encoded for an engine.
    for source, file in query.write_encoded(tmp_path, SECONDS).items():
        (stream,) = (one for one in problem.streams if one.id == source[0])
        assert Path(file).read_bytes() == encode(database, stream, source)


def test_the_workload_can_be_run_as_an_experiment(tmp_path: Path) -> None:
    query = random_query([5, 1])
    found = workload(write_workload(query, tmp_path, 4.0)).at(tmp_path)
    found.check(found.windows_ms())
    document = found.problem(
        ["a", "b"], "c", found.traffic(found.windows_ms()[0], found.rates()[0])
    )
    assert [one["id"] for one in document["queries"]] == ["q"]
    rates = {one["stream"]: one["rate"] for one in document["sources"]}
    for stream in query.streams:
        assert rates[stream.id] == pytest.approx(stream.rate, rel=0.02)
    with pytest.raises(NovaError, match="queries have windows of their own"):
        found.check([3])


def test_times_are_even_and_begin_with_the_windows() -> None:
    for number in range(20):
        for stream in random_query([2, number]).streams:
            times = stream.times_ms(4)
            assert len(times) == pytest.approx(4 * stream.rate, abs=1)
            assert 0 <= times[0] - 1_600_000_000_000 <= 1000 / stream.rate
            assert times[-1] < 1_600_000_004_000
            assert np.ptp(np.diff(times)) <= 1
