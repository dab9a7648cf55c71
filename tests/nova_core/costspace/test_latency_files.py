"""Latencies as people have them: matrices, rows of pairs, problems."""

from __future__ import annotations

import gzip
import warnings
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
from nova_core.io.columnar import write_columns
from nova_core.io.files import read_problem, write_problem

MATRIX = "a,b,c\n0,10,NA\n12,0,30\n20,,0\n"


def written(tmp_path: Path, text: str, name: str = "l.csv") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


def as_dict(path: Path, what: str | None = None) -> dict[tuple[str, str], float]:
    """Pairs by name."""
    measured = read_measurements(path, what)
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
        ("a,b\n0,x\n3,0\n", "row 2, from 'a' to 'b': 'x' is no number"),
        ("a,b\n0,3\n", "2 node names but 1 rows"),
        ("source,target,latency\n", "no rows"),
        ("source,target,latency\na,b,-3\n", "row 1, column 'latency': -3; use ms >= 0"),
        ("source,target,latency\n,b,1\n", "'' is no name"),
        ("source,target,ping\na,b,1\n", "rows of pairs need source, target, and latency"),
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


# --- tables as people have them -------------------------------------------------------------------

THREE = {("berlin", "munich"): 15.0, ("berlin", "paris"): 25.1, ("munich", "paris"): 30.3}
TABLES = {
    "commas": "berlin,munich,paris\n0,15.1,25.0\n14.9,0,30.2\n25.2,30.4,0\n",
    "byte order mark": "\ufeffberlin,munich,paris\r\n0,15.1,25.0\r\n14.9,0,30.2\r\n25.2,30.4,0\r\n",
    "German Excel": "berlin;munich;paris\r\n0;15,1;25,0\r\n14,9;0;30,2\r\n25,2;30,4;0\r\n",
    "tabs": "berlin\tmunich\tparis\n0\t15,1\t25\n14,9\t0\t30,2\n25,2\t30,4\t0\n",
    "quoted": '"berlin","munich","paris"\n"0","15.1","25.0"\n14.9,0,30.2\n25.2,30.4,0\n',
    "units": "berlin,munich,paris\n0 ms,15.1 ms,0.025s\n14900us,0,30.2 ms\n25.2ms,30.4 ms,0\n",
}


@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES)
def test_one_table_in_many_forms(tmp_path: Path, text: str) -> None:
    path = tmp_path / "l.csv"
    path.write_bytes(text.encode())
    assert as_dict(path) == pytest.approx(THREE)


@pytest.mark.parametrize("lost", ["*", "-1", "", "NA", "n/a", "-"])
def test_a_lost_answer_is_lost(tmp_path: Path, lost: str) -> None:
    path = written(tmp_path, f"a,b,c\n0,15,25\n{lost},0,{lost}\n25,{lost},0\n")
    assert as_dict(path) == {("a", "b"): 15.0, ("a", "c"): 25.0}


def test_nothing_between_different_nodes_is_no_measurement(tmp_path: Path) -> None:
    for text in (
        "a,b,c\n0,0,25\n0,0,30\n25,30,0\n",
        "source,target,latency\na,b,0\na,c,25\nb,c,30\nc,c,0\n",
    ):
        path = written(tmp_path, text)
        with pytest.warns(ProblemWarning, match="latencies between different nodes are 0 ms; left"):
            assert as_dict(path) == {("a", "c"): 25.0, ("b", "c"): 30.0}


@pytest.mark.parametrize(
    ("scale", "said"), [(1e-3, "seconds"), (1e3, "microseconds"), (1, None), (0.1, None)]
)
def test_an_unlikely_scale_is_told(tmp_path: Path, scale: float, said: str | None) -> None:
    matrix = np.array([[0, 12, 25], [12, 0, 30], [25, 30, 0]]) * scale
    rows = "\n".join(",".join(f"{ms:.9g}" for ms in row) for row in matrix)
    path = written(tmp_path, f"a,b,c\n{rows}\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_measurements(path)
    told = [str(one.message) for one in caught]
    assert len(told) == (said is not None)
    assert said is None or f"are these {said}? ms are expected" in told[0]


# --- one way, or there and back -------------------------------------------------------------------


def test_half_of_a_round_trip_counts(tmp_path: Path) -> None:
    wanted = {("a", "b"): 6.0, ("a", "c"): 10.0}
    for name, text, what in (
        ("pairs.csv", "source,target,rtt\na,b,12\nc,a,20\n", None),
        ("ways.csv", "source,target,latency\na,b,12\nc,a,20\n", "round-trip"),
        ("matrix.csv", "a,b,c\n0,12,20\n12,0,\n20,,0\n", "round-trip"),
    ):
        path = written(tmp_path, text, name)
        with pytest.warns(ProblemWarning, match=f"{name}: round trips; half of each counts"):
            assert as_dict(path, what) == wanted
    with pytest.raises(ProblemError, match="column rtt: round trips, not one-way"):
        read_measurements(tmp_path / "pairs.csv", "one-way")
    pairs = "  is: round-trip\n  pairs: [{from: a, to: b, ms: 12}, {from: c, to: a, ms: 20}]"
    path = written(tmp_path, PROBLEM + pairs, "p.yaml")
    assert as_dict(path) == wanted
    with pytest.raises(ProblemError, match="a problem says itself what its latencies are"):
        read_measurements(path, "round-trip")


def test_a_problem_of_round_trips_is_that_of_their_halves(tmp_path: Path) -> None:
    matrix = "  nodes: [a, b, c]\n  matrix: [[0, {0}, {1}], [{0}, 0, {2}], [{1}, {2}, 0]]"
    pairs = "  pairs: [{{from: b, to: a, ms: {0}}}, {{from: a, to: c, ms: {1}}}]"
    table = (
        "  pairs: [{{from: b, to: a, ms: {0}}}]\n  nodes: [a, b, c]\n" + matrix.partition("\n")[2]
    )
    for part in (matrix, pairs, table):
        ways = written(tmp_path, PROBLEM + part.format(11, 20, 30), "ways.yaml")
        trips = PROBLEM + "  is: round-trip\n" + part.format(22, 40, 60)
        found = read_problem(written(tmp_path, trips, "trips.yaml"))
        assert found.digest == read_problem(ways).digest
        write_problem(found, tmp_path / "again.yaml")
        assert read_problem(tmp_path / "again.yaml").digest == found.digest
    with pytest.raises(ProblemError, match=r"latency\.is.*(one-way|round-trip)"):
        read_problem(
            written(tmp_path, PROBLEM + "  is: there\n" + matrix.format(1, 2, 3), "p.yaml")
        )
