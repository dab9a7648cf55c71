from __future__ import annotations

import time
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.model.partitioner import partition_of
from nova_workloads.pacing import Clock, Lateness
from nova_workloads.schedule import Schedule, all_tuples
from nova_workloads.streams import Stream, synthetic
from nova_workloads.tuple_text import TupleText


def stream(times: list[int], name: str = "a", **others: Any) -> Stream:
    values = np.arange(len(times), dtype=np.float64)
    return Stream(name, "r", "pressure", np.array(times, np.int64), values, **others)


@settings(max_examples=60, deadline=None)
@given(
    rate=st.floats(0.01, 1e6),
    count=st.integers(1, 3000),
    sensors=st.integers(1, 5),
    start=st.integers(0, 2**41),
)
def test_rates_never_drift(rate: float, count: int, sensors: int, start: int) -> None:
    """The k-th tuple is due at k / rate, however many came before it."""
    streams = [stream([0, 1, 2], str(i)) for i in range(sensors)]
    found = all_tuples(Schedule(rate=rate, count=count, start_ms=start), streams)
    assert len(found) == count * sensors
    assert (np.diff(found.due) >= 0).all()
    for index in range(sensors):
        mine = found.stream == index
        assert found.sequence[mine].tolist() == list(range(count))
        exact = found.sequence[mine] / rate * 1e6
        assert np.abs(found.due[mine] - exact).max() <= 1 + 1e-9 * exact.max()
        assert (found.time_ms[mine] == start + found.due[mine] // 1000).all()
        assert (found.value[mine] == found.sequence[mine] % 3).all()


def test_one_kilohertz_is_a_tuple_per_millisecond() -> None:
    found = all_tuples(Schedule(rate=1000, duration=2.0), synthetic(8))
    assert len(found) == 16_000
    assert (found.due == found.sequence * 1000).all()
    assert (found.time_ms == found.sequence).all()


def test_values_are_used_once_unless_told_otherwise() -> None:
    streams = [stream([0, 1, 2]), stream([0, 1, 2, 3, 4], "b")]
    found = all_tuples(Schedule(rate=10), streams)
    assert np.bincount(found.stream).tolist() == [3, 5]
    found = all_tuples(Schedule(rate=10, duration=0.75), streams)
    assert np.bincount(found.stream).tolist() == [8, 8]
    endless = Schedule(rate=10, endless=True).tuples(streams, 0)
    assert sum(len(next(endless)) for _ in range(100)) > 100_000


def test_recorded_times_are_kept_and_scaled() -> None:
    streams = [stream([1000, 1500, 4000]), stream([900, 1500], "b")]
    found = all_tuples(Schedule(speed=2.0), streams)
    assert found.time_ms.tolist() == [900, 1000, 1500, 1500, 4000]
    assert found.stream.tolist() == [1, 0, 0, 1, 0]
    assert found.due.tolist() == [0, 50_000, 300_000, 300_000, 1_550_000]
    assert found.sequence.tolist() == [0, 0, 1, 1, 2]
    found = all_tuples(Schedule(speed=2.0, start_ms=10, duration=0.3, count=2), streams)
    assert found.time_ms.tolist() == [10, 110]
    with_numbers = [stream([5, 6], sequence=np.array([41, 42]))]
    assert all_tuples(Schedule(), with_numbers).sequence.tolist() == [41, 42]


def test_synthetic_sensors_pair_up_in_regions() -> None:
    found = synthetic(10, regions=4, seed=3)
    assert [s.sensor for s in found[:4]] == ["pressure-1", "humidity-1", "pressure-2", "humidity-2"]
    assert [s.region for s in found] == [f"region-{n}" for n in (1, 1, 2, 2, 3, 3, 4, 4, 1, 1)]
    again = synthetic(2, seed=3)
    assert (again[0].value == found[0].value).all()
    assert (synthetic(2, seed=4)[0].value != found[0].value).any()
    assert all(0 <= s.value.min() <= s.value.max() <= 100 for s in found if s.stream == "humidity")


def test_thousands_of_sensors_share_a_schedule() -> None:
    streams = synthetic(5000)
    found = all_tuples(Schedule(rate=10, count=3), streams)
    assert len(found) == 15_000 and (np.diff(found.due) >= 0).all()
    assert (np.bincount(found.stream) == 3).all()
    for row in (0, 4999, 7777, 14_999):
        assert found.value[row] == streams[found.stream[row]].value[found.sequence[row]]
    partitions = {s.name: [np.ones(1 + i % 3)] for i, s in enumerate(streams)}
    block = next(Schedule(rate=10, count=3).tuples(streams, 0))
    lines = TupleText(streams, "csv", partitions).lines(block)
    for row in range(0, len(block), 37):
        rates = partitions[streams[block.stream[row]].name][0]
        expected = partition_of(block.sequence[row : row + 1], rates)[0]
        assert lines[row].split(",")[-2] == str(expected)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=200), st.floats(0.01, 1))
def test_lateness_is_a_close_upper_bound(values: list[float], q: float) -> None:
    late = Lateness()
    for value in values:
        late.add(value)
    true = float(np.quantile(values, q, method="inverted_cdf"))
    assert true * (1 - 1e-9) <= late.quantile(q) <= (true + 1) * 2 ** (1 / 16)
    assert late.greatest == max(values)
    both = Lateness()
    both.merge(late)
    both.merge(late)
    assert both.quantile(q) == late.quantile(q)
    late.add(-5.0)
    assert late.counts[0] >= 1


def test_clock_sleeps_to_its_ticks() -> None:
    clock = Clock(tick_ms=20)
    for due in (5_000, 30_000, 61_000):
        clock.sleep_until(due)
        tick = -(-due // 20_000) * 20_000
        assert clock.now() >= tick
    before = clock.now()
    clock.sleep_until(before - 1e6)
    clock.sleep_until(before + 60e6, at_most=0.01)
    assert before < clock.now() < before + 30e6
    ahead = Clock(1.0, int(time.time() * 1000) + 5_000)
    assert -5.1e6 < ahead.now() < -4e6
