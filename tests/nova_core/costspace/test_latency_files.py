"""Latencies as people have them: matrices, rows of pairs, problems."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latency_series import filtered_series

from nova_core.costspace.latency_files import read_measurements
from nova_core.costspace.percentile_filter import filtered
from nova_core.costspace.statistics import statistics_of
from nova_core.errors import ProblemError, ProblemWarning
from nova_core.model.columnar import write_columns

MATRIX = "a,b,c\n0,10,NA\n12,0,30\n20,,0\n"


def written(tmp_path: Path, text: str, name: str = "l.csv") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


def as_dict(path: Path) -> dict[tuple[str, str], float]:
    """Pairs by name."""
    measured = read_measurements(path)
    pairs, ids = measured.pairs(), measured.ids.tolist()
    ends = zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)
    return {(ids[a], ids[b]): ms for (a, b), ms in zip(ends, pairs.latency.tolist(), strict=True)}


def test_a_matrix_gives_the_mean_of_both_directions(tmp_path: Path) -> None:
    wanted = {("a", "b"): 11.0, ("a", "c"): 20.0, ("b", "c"): 30.0}
    assert as_dict(written(tmp_path, MATRIX)) == wanted
    with gzip.open(tmp_path / "l.csv.gz", "wt") as file:
        file.write(MATRIX)
    assert as_dict(tmp_path / "l.csv.gz") == wanted


@pytest.mark.parametrize("names", [("source", "target", "latency"), ("from", "to", "ms")])
@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_rows_of_pairs(tmp_path: Path, names: tuple[str, str, str], suffix: str) -> None:
    path = tmp_path / f"pairs.{suffix}"
    columns = (np.array(["a", "b", "c"]), np.array(["b", "a", "b"]), np.array([10.0, 12.0, 30.0]))
    write_columns(path, dict(zip(names, columns, strict=True)))
    assert as_dict(path) == {("a", "b"): 11.0, ("b", "c"): 30.0}


def test_several_measurements_are_filtered_in_order_of_time(tmp_path: Path) -> None:
    """An outlier and an old route do not count; the order of rows does not either."""
    values = [100.0] * 5 + [20, 21, 22, 900, 23, 24, 25, 26, 27, 28]
    rows = [f"a,b,{ms},{time}" for time, ms in enumerate(values)]
    rng = np.random.default_rng(0)
    for _ in range(3):
        rng.shuffle(rows)
        path = written(tmp_path, "source,target,latency,time\n" + "\n".join(rows) + "\n")
        assert as_dict(path) == {("a", "b"): 21.0}


def test_times_need_an_order(tmp_path: Path) -> None:
    table = pa.table({"source": ["a"], "target": ["b"], "latency": [1.0], "time": [[1, 2]]})
    pq.write_table(table, tmp_path / "l.parquet")
    with pytest.raises(ProblemError, match=r"column 'time': holds list<.*values with an order"):
        as_dict(tmp_path / "l.parquet")


def test_times_may_be_text(tmp_path: Path) -> None:
    rows = [
        f"a,b,{20 + hour},2021-03-0{1 + hour // 24}T{hour % 24:02}:00:00Z" for hour in range(30)
    ]
    text = "source,target,latency,time\n" + "\n".join(reversed(rows)) + "\n"
    assert as_dict(written(tmp_path, text)) == {("a", "b"): 41.0}


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1e3)), min_size=1, max_size=60),
)
def test_filter_is_that_of_the_live_space(rows: list[tuple[int, float]]) -> None:
    key, value = np.array([k for k, _ in rows]), np.array([v for _, v in rows])
    found, latency = filtered(key, value)
    assert found.tolist() == sorted(set(key.tolist()))
    for k, ms in zip(found, latency, strict=True):
        assert ms == filtered_series(value[key == k])[-1]


def test_lost_measurements_are_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, "source,target,latency\na,b,\na,b,5\nb,b,0\n")
    with pytest.warns(ProblemWarning, match="1 of 3 rows have no latency"):
        assert as_dict(path) == {("a", "b"): 5.0}


PROBLEM = """
nova: 1
nodes:
  - {id: a, capacity: 10}
  - {id: b, capacity: 10}
  - {id: c, capacity: 10}
sources:
  - {id: l, node: a, stream: L, rate: 1}
  - {id: r, node: b, stream: R, rate: 1}
query: {operators: [{id: j, left: L, right: R, sink: c}]}
latency:
"""


def test_problems_hold_latencies(tmp_path: Path) -> None:
    wanted = {("a", "b"): 11.0, ("a", "c"): 20.0, ("b", "c"): 30.0}
    pairs = (
        "  pairs: [{from: b, to: a, ms: 11}, {from: a, to: c, ms: 20}, {from: c, to: b, ms: 30}]"
    )
    assert as_dict(written(tmp_path, PROBLEM + pairs, "p.yaml")) == wanted
    matrix = "  nodes: [a, b, c]\n  matrix: [[0, 11, 20], [11, 0, 30], [20, 30, 0]]"
    assert as_dict(written(tmp_path, PROBLEM + matrix, "p.yaml")) == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n0,-3\n-3,0\n", "latency from 'a' to 'b': -3; use ms >= 0"),
        ("a,a\n0,3\n3,0\n", "'a' is already used by nodes[0]"),
        ("a,b\n0,x\n3,0\n", "row 2, column 'b': 'x' is no number"),
        ("a,b\n0,3\n", "2 node names but 1 rows"),
        ("source,target,latency\n", "no rows"),
        ("source,target,latency\na,b,-1\n", "row 1, column 'latency': -1; use ms >= 0"),
        ("source,target,latency\n,b,1\n", "'' is no name"),
        ("source,target,rtt\na,b,1\n", "rows of pairs need source, target, latency"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ProblemError) as caught:
        read_measurements(path)
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="no such file"):
        read_measurements(tmp_path / "absent.csv")
    with pytest.raises(ProblemError, match=r"latencies are a \.csv"):
        read_measurements(written(tmp_path, "x", "l.txt"))
    with pytest.raises(ProblemError, match="no readable table"):
        read_measurements(written(tmp_path, "x", "l.csv.gz"))
    bare = PROBLEM.replace("latency:", "").replace("capacity: 10", "capacity: 10, position: [0]")
    with pytest.raises(ProblemError, match="the problem has no measured latencies"):
        read_measurements(written(tmp_path, bare, "p.yaml"))


def test_statistics(tmp_path: Path) -> None:
    """Three nodes, one pair measured one way only, one side longer than the other two together."""
    found = statistics_of(read_measurements(written(tmp_path, "a,b,c\n0,10,NA\n12,0,5\n20,5,0\n")))
    assert (found.nodes, found.pairs, found.coverage, found.groups) == (3, 3, 1.0, 1)
    assert (found.least_degree, found.degree, found.both_ways) == (2, 2.0, 2)
    assert found.asymmetric_share == 0.5  # 10 and 12 ms are 18 % of their mean apart
    assert found.mean == pytest.approx(12.0)
    assert found.triangles is not None
    assert found.triangles.share == 1.0  # 20 > 11 + 5
    assert found.triangles.pairs_with_detour == pytest.approx(1 / 3)
    lonely = written(tmp_path, "source,target,latency\na,b,1\nc,d,2\n")
    assert statistics_of(read_measurements(lonely)).groups == 2
