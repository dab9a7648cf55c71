from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.cli import cli
from nova_core.errors import NovaError
from nova_core.io.files import read_problem
from nova_workloads.debs import Debs
from nova_workloads.reference import Reference, Results, pairs_of
from nova_workloads.result_files import read_results, write_results
from nova_workloads.schedule import Schedule, Tuples, all_tuples
from nova_workloads.streams import Stream, synthetic

Row = tuple[int, int, int, int]  # left stream, left sequence, right stream, right sequence


def tuples_of(rows: list[tuple[int, int, int]]) -> Tuples:
    """From stream, sequence, time."""
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)] or [
        np.empty(0, np.int64)
    ] * 3
    return Tuples(columns[0], columns[1], columns[2], np.zeros(len(rows)), columns[2])


def brute_force(
    streams: list[Stream], rows: list[tuple[int, int, int]], window: int, keys: int, every: int
) -> set[Row]:
    return {
        (a, i, b, j)
        for a, i, t in rows
        for b, j, u in rows
        if streams[a].stream == "pressure"
        and streams[b].stream == "humidity"
        and streams[a].region == streams[b].region
        and t // window == u // window
        and i % keys == j % keys
        and i % keys % every == 0
    }


def results_of(rows: list[Row], window: list[int] | None = None) -> Results:
    a, i, b, j = (np.array([row[k] for row in rows], np.int64) for k in range(4))
    return Results(a, i, b, j, None if window is None else np.array(window, np.int64))


@st.composite
def workloads(draw: st.DrawFn) -> tuple[list[Stream], list[tuple[int, int, int]], int, int]:
    none = np.empty(0, np.int64)
    count = draw(st.integers(0, 5))
    streams = [
        Stream(f"p{i}", draw(st.sampled_from("ab")), "pressure", none, np.empty(0))
        for i in range(draw(st.integers(1, 3)))
    ] + [
        Stream(f"h{i}", draw(st.sampled_from("ab")), "humidity", none, np.empty(0))
        for i in range(draw(st.integers(1, 3)))
    ]
    rows = [
        (index, sequence, draw(st.integers(-30, 30)))
        for index in range(len(streams))
        for sequence in draw(st.lists(st.integers(-3, 12), max_size=count, unique=True))
    ]
    rows = draw(st.permutations(rows))
    return streams, rows, draw(st.integers(1, 20)), draw(st.integers(1, 3))


@settings(max_examples=300, deadline=None)
@given(workloads(), st.integers(1, 3))
def test_is_the_brute_force_join(
    workload: tuple[list[Stream], list[tuple[int, int, int]], int, int], every: int
) -> None:
    streams, rows, window, keys = workload
    join = Reference(streams, tuples_of(rows), window, keys=keys, every=every)
    expected = brute_force(streams, rows, window, keys, every)
    t = join.tuples
    found = [
        (int(t.stream[a]), int(t.sequence[a]), int(t.stream[b]), int(t.sequence[b]))
        for left, right in join.batches()
        for a, b in zip(left, right, strict=True)
    ]
    assert len(found) == join.total == join.per_pair.sum() == len(expected)
    assert set(found) == expected
    times = {(s, q): time for s, q, time in rows}
    windows = {times[a, i] // window for a, i, _, _ in expected}
    assert join.windows == len(windows)


def test_more_keys_than_can_be_counted() -> None:
    none = np.empty(0, np.int64)
    streams = [
        Stream(stream[0], "r", stream, none, np.empty(0)) for stream in ("pressure", "humidity")
    ]
    rows = [(0, 0, 0), (1, 0, 10**12)]
    with pytest.raises(NovaError, match="2147483647 keys in windows of 1 ms are too many"):
        Reference(streams, tuples_of(rows), 1, keys=2**31 - 1)


@settings(max_examples=300, deadline=None)
@given(workloads(), st.data())
def test_comparison_counts_exactly(
    workload: tuple[list[Stream], list[tuple[int, int, int]], int, int], data: st.DataObject
) -> None:
    """Any multiset of rows, existing or not, against the sets a brute-force join gives."""
    streams, rows, window, keys = workload
    join = Reference(streams, tuples_of(rows), window, keys=keys)
    expected = brute_force(streams, rows, window, keys, every=1)
    anything = st.tuples(
        st.integers(-1, len(streams) - 1),
        st.integers(-5, 15),
        st.integers(-1, len(streams) - 1),
        st.integers(-5, 15),
    )
    some = st.one_of(anything, st.sampled_from(sorted(expected))) if expected else anything
    came = data.draw(st.lists(some, max_size=30))
    with_windows = data.draw(st.booleans())
    times = {(s, q): time for s, q, time in rows}
    wrong_window = 0
    windows = []
    good: Counter[Row] = Counter()
    for row in came:
        right_one = times.get((row[0], row[1]), 0) // window * window
        shifted = with_windows and data.draw(st.integers(0, 4)) == 0
        windows.append(right_one + window if shifted else right_one)
        if row in expected and shifted:
            wrong_window += 1
        elif row in expected:
            good[row] += 1
    half = len(came) // 2
    batches = [
        results_of(came[part], windows[part] if with_windows else None)
        for part in (slice(0, half), slice(half, None))
    ]
    compared = join.compare(batches)
    assert compared.expected == len(expected) and compared.delivered == len(came)
    assert compared.lost == len(expected - set(good)) == sum(compared.lost_per_pair.values())
    assert compared.duplicated == good.total() - len(good)
    assert compared.wrong == len(came) - good.total()
    assert compared.ok is (good == Counter(expected) and len(came) == len(expected))
    for what in ("lost", "duplicated", "wrong"):
        assert len(compared.examples[what]) == min(5, getattr(compared, what)) or (
            what == "duplicated" and 0 < len(compared.examples[what]) <= compared.duplicated
        )


def test_a_million_tuples_take_seconds() -> None:
    """What it holds depends on the tuples, not on their 52 million results."""
    streams = synthetic(8)
    tuples = all_tuples(Schedule(rate=1000, duration=130), streams)
    join = Reference(streams, tuples, 100)
    assert len(tuples) == 1_040_000
    assert join.total == 4 * 1300 * 100 * 100
    numbers = np.random.default_rng(0).integers(0, join.total, 100_000)
    left, right = join.rows(numbers)
    delivered = Results(
        tuples.stream[left], tuples.sequence[left], tuples.stream[right], tuples.sequence[right],
        join.window_of(left),
    )  # fmt: skip
    np.testing.assert_array_equal(join.numbers(delivered), numbers)


def test_a_tuple_given_twice_is_refused() -> None:
    streams = synthetic(2)
    with pytest.raises(
        NovaError, match="sensor pressure-1-pressure: two tuples of sequence number 7"
    ):
        Reference(streams, tuples_of([(0, 7, 1), (1, 7, 1), (0, 7, 2)]), 10)


def test_pairs_of_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    path.write_text(Debs().text())
    problem = read_problem(path)
    streams = synthetic(8)
    pairs = pairs_of(problem, streams, "pressure", "humidity")
    assert sorted(pairs) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    with pytest.raises(NovaError, match=r"source 'pressure-4' .* no input is called so"):
        pairs_of(problem, streams[:6], "pressure", "humidity")
    tuples = all_tuples(Schedule(rate=100, count=10), streams)
    assert Reference(streams, tuples, 50, pairs=pairs[:2]).total == 2 * 2 * 25


@pytest.fixture
def join() -> Reference:
    streams = synthetic(8)
    tuples = all_tuples(Schedule(rate=1000, duration=0.2, start_ms=1_000_000), streams)
    return Reference(streams, tuples, 10)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_written_results_compare_as_the_same(tmp_path: Path, join: Reference, suffix: str) -> None:
    path = tmp_path / f"results{suffix}"
    write_results(join, path)
    compared = join.compare(read_results([path], join))
    assert compared.ok and compared.delivered == compared.expected == 4 * 20 * 100


ARGUMENTS = ["--synthetic", "8", "--rate", "1000", "--duration", "0.2", "--start", "1000000",
             "--window", "10"]  # fmt: skip


def reference(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["workload", "reference", *ARGUMENTS, *arguments])


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_command_tells_what_differs(tmp_path: Path, join: Reference, suffix: str) -> None:
    path, broken = tmp_path / "results.parquet", tmp_path / f"broken{suffix}"
    assert reference("-o", str(path)).exit_code == 0
    done = reference("--check", str(path))
    assert done.exit_code == 0 and "the same" in done.stdout

    frame = pq.read_table(path).to_pandas()
    doubled = frame.iloc[[3, 3]]
    alien = frame.iloc[[5]].assign(left_sensor="pressure-9")
    frame = pa.concat_tables(
        pa.Table.from_pandas(part, preserve_index=False)
        for part in (frame.drop(index=[1, 7]), doubled, alien)
    ).to_pandas()
    match suffix:
        case ".csv":
            frame.to_csv(broken, index=False)
        case ".jsonl":
            frame.to_json(broken, orient="records", lines=True)
        case _:
            frame.to_parquet(broken)
    done = reference("--check", str(broken), "--json")
    assert done.exit_code == 1, done.output
    answer = json.loads(done.stdout)["comparison"]
    assert (answer["lost"], answer["duplicated"], answer["wrong"]) == (2, 2, 1)
    assert answer["examples"]["lost"] == [join.describe(1), join.describe(7)]
    assert answer["examples"]["duplicated"] == [join.describe(3)]
    assert answer["lost_per_pair"] == {"pressure-1*humidity-1": 2}
    done = reference("--check", str(broken))
    assert done.exit_code == 1
    assert "different" in done.stdout
    assert "lost: pressure-1 0 with humidity-1 1 in window 1000000" in done.stdout


def test_columns_that_are_not_needed_may_be_nested_deeply(tmp_path: Path) -> None:
    # Arrow's reader has no bound for what it reads: it ended the process.
    needed = "left_sensor", "left_sequence", "right_sensor", "right_sequence", "window_ms"
    row = ", ".join(f'"{name}": 0' for name in needed).replace('sensor": 0', 'sensor": "x"')
    deep = '{"a":' * 60_000 + "1" + "}" * 60_000
    (tmp_path / "results.jsonl").write_text(f'{{{row}, "more": {deep}}}\n')
    done = reference("--check", str(tmp_path / "results.jsonl"), "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["comparison"]["wrong"] == 1


@pytest.mark.parametrize(
    ("name", "values"),
    [("left_sensor", [["a"]]), ("right_sensor", [{"a": 1}]), ("left_sequence", ["one"])],
)
def test_columns_of_other_types_are_refused(tmp_path: Path, name: str, values: list[Any]) -> None:
    columns = {"left_sensor": ["a"], "left_sequence": [1], "right_sensor": ["b"]}
    path = tmp_path / "results.parquet"
    pq.write_table(pa.table(columns | {"right_sequence": [1]} | {name: values}), path)
    done = reference("--check", str(path))
    assert done.exit_code == 2 and f"column '{name}' is " in done.output


def test_a_run_that_delivered_nothing_lost_everything(tmp_path: Path) -> None:
    (tmp_path / "results.csv").touch()
    done = reference("--check", str(tmp_path / "results.csv"), "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["comparison"]["lost"] == 8000


def test_columns_name_those_of_a_file_without_header(tmp_path: Path, join: Reference) -> None:
    path = tmp_path / "results.csv"
    write_results(join, path)
    bare = tmp_path / "bare.csv"
    bare.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    names = "window_ms,_,left_sensor,left_sequence,_v,right_sensor,right_sequence,_w"
    assert reference("--check", str(bare), "--columns", names).exit_code == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("left_sensor,left_sequence,right_sensor\na,1,b\n", "no column 'right_sequence'"),
        ("left_sensor,left_sequence,right_sensor,right_sequence\na,x,b,1\n", "results.csv: "),
        ("left_sensor,left_sequence,right_sensor,right_sequence\na,,b,1\n", "1 rows have no left_"),
        (
            "window_ms,left_sensor,left_sequence,right_sensor,right_sequence,window_ms\n0,a,1,b,1,0\n",
            "has 2 columns 'window_ms'",
        ),
    ],
)
def test_bad_results(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "results.csv"
    path.write_text(content)
    done = reference("--check", str(path))
    assert done.exit_code == 2
    assert message in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--window", "10"], "give files or --synthetic N"),
        (["--synthetic", "2", "--window", "10"], "give --duration or --count"),
        (["--synthetic", "2", "--count", "1", "--window", "10"], "give --rate"),
        (["nothing.csv", "--window", "10"], "nothing.csv: there is no such file"),
        (
            [*ARGUMENTS, "--left", "rain"],
            "no sensor is in stream 'rain'; there are humidity, press",
        ),
        ([*ARGUMENTS, "--start", "now"], "give the start that the replay told"),
        ([*ARGUMENTS, "--check", "none.csv"], "none.csv: there is no such file"),
        ([*ARGUMENTS, "-o", "x.txt"], "x.txt: expected a .csv or .parquet file"),
    ],
)
def test_bad_arguments(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, ["workload", "reference", *arguments])
    assert done.exit_code == 2, done.output
    assert message in done.stderr


def test_a_column_whose_name_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_bytes(b"left_sens\xf6r\na\n")
    done = reference("--check", str(path))
    assert done.exit_code == 2
    assert "results.csv: the name of a column is not UTF-8 text" in done.stderr
