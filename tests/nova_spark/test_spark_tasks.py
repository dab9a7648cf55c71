"""What runs in tasks, without Spark around it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.model.partitioner import partition_of
from nova_engines.results import FIELDS
from nova_spark import results
from nova_spark.tasks import KEPT, SPAN, StagesSeen, due_before, emit, write
from nova_workloads.schedule import Schedule, all_tuples
from nova_workloads.streams import Stream


def spans(start_ms: int, bounds: list[int]) -> pa.RecordBatch:
    texts = [SPAN.format(start_ms=start_ms, begin_us=a, end_us=b) for a, b in pairwise(bounds)]
    return pa.RecordBatch.from_pydict({"value": pa.array(texts, pa.string())})


@given(
    st.floats(0.5, 5000),
    st.integers(1, 200),
    st.lists(st.integers(0, 3_000_000), max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_spans_hold_what_the_schedule_emits(rate: float, count: int, cuts: list[int]) -> None:
    values = [1.0, 2.5, 4.0]
    end = 400_000_001 * 2
    bounds = [0, *sorted(cuts), end]
    step = emit(rate, count, values, [1.0], [(0, 1)])
    table = pa.Table.from_batches(step(iter([spans(5_000, bounds)])))
    stream = Stream("s", "r", "pressure", np.arange(3), np.array(values))
    expected = all_tuples(Schedule(rate=rate, start_ms=5_000, count=count), [stream])
    assert table.column("sequence").to_pylist() == expected.sequence.tolist()
    assert table.column("value").to_pylist() == expected.value.tolist()
    times = table.column("ts").cast(pa.int64()).to_numpy() // 1000
    assert times.tolist() == expected.time_ms.tolist()
    assert table.column("emit_us").to_pylist() == (5_000_000 + expected.due).tolist()


@given(st.floats(0.001, 1e6), st.integers(-5, 10**9))
@settings(deadline=None)
def test_tuples_due_before(rate: float, until_us: int) -> None:
    found = due_before(until_us, rate, None)
    due = np.floor(np.arange(max(0, found - 1), found + 2) * 1e6 / rate)
    assert (due[: min(1, found)] < until_us).all()
    assert (due[min(1, found) :][0] >= until_us) or until_us <= 0


def test_only_the_partitions_asked_for_pass() -> None:
    weights = [3.0, 1.0, 2.0]
    step = emit(1000.0, 500, [0.0], weights, [(0, 1), (2, 3)])
    table = pa.Table.from_batches(step(iter([spans(0, [0, 10**6])])))
    part = partition_of(np.arange(500), np.array(weights))
    assert table.column("sequence").to_pylist() == np.flatnonzero(part != 1).tolist()
    assert table.column("part").to_pylist() == part[part != 1].tolist()


def test_nothing_is_told_and_nothing_comes() -> None:
    step = emit(10.0, None, [0.0], [1.0], [(0, 1)])
    assert sum(len(batch) for batch in step(iter([spans(0, [0, 0])]))) == 0


def batch_of(rows: int) -> pa.RecordBatch:
    fields = dict(FIELDS)
    del fields["arrive_us"], fields["waited_us"]
    return pa.RecordBatch.from_pydict(
        {name: pa.array(np.arange(rows).astype(kind)) for name, kind in fields.items()}
    )


def test_results_are_written_once(tmp_path: Path) -> None:
    directory = tmp_path / "results" / "0"
    for number, sizes in ((3, [2, 4]), (10, [1]), (3, [2, 4]), (11, [0]), (12, [])):
        step = write(str(directory), number, FIELDS)
        told = list(step(iter([batch_of(size) for size in sizes])))
        assert told[0].column("results").to_pylist() == [sum(sizes)]
    assert sorted(path.name for path in directory.iterdir()) == ["000000003", "000000010"]
    found = results.read(directory)
    assert found["left_sequence"].tolist() == [0, 1, 0, 1, 2, 3, 0]
    assert found["right_value"].tolist() == [0, 1, 0, 1, 2, 3, 0]
    assert (found["arrive_us"] > 1e15).all()


def test_stages_seen_are_the_latest() -> None:
    param = StagesSeen()
    found = param.addInPlace({"a": {1}}, {"a": {2}, "b": {5}})
    assert found == {"a": {1, 2}, "b": {5}}
    found = param.addInPlace(found, {"a": set(range(2 * KEPT))})
    assert found["a"] == set(range(KEPT, 2 * KEPT))
