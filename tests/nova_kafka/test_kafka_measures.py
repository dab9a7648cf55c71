"""Costream's definitions on made-up records and backlogs whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from nova_core.errors import NovaError
from nova_engines.sources import Source, partitions_of
from nova_kafka.measures import Sample, back_pressure, latencies
from nova_kafka.topics import topics_of


def test_latencies_begin_with_the_earlier_input() -> None:
    produced, arrive = np.array([1_000, 4_000]), np.array([9_000, 9_000])
    # Without a broker nothing waits.
    found = latencies(produced, arrive, np.array([3_000, 0]))
    assert found.end_to_end.tolist() == [8_000, 5_000]
    assert found.processing.tolist() == [5_000, 5_000]
    unknown = latencies(produced, arrive)
    assert unknown.end_to_end.tolist() == [8_000, 5_000] and unknown.processing.tolist() == []


P, H = ("pressure", 0), ("humidity", 0)


def samples(read_rate: float) -> list[Sample]:
    """Two streams of 100 and 50 tuples/s; the engine is slower on the first only."""
    return [
        Sample(t, {P: int(100 * t), H: int(50 * t)}, {P: int(read_rate * t), H: int(50 * t - 3)})
        for t in range(10, 20)
    ]


def test_back_pressure_is_what_arrives_less_what_is_read() -> None:
    found = back_pressure(samples(70))
    assert found.rates == {H: 0.0, P: pytest.approx(30)}
    assert found.arrivals == {H: pytest.approx(50), P: pytest.approx(100)}
    assert found.rate == pytest.approx(30)
    assert found.occurred
    assert found.backlog == found.most == 30 * 19 + 3


@pytest.mark.parametrize("read_rate", [100, 99])
def test_a_backlog_that_hardly_grows_is_none(read_rate: float) -> None:
    found = back_pressure(samples(read_rate))
    assert found.rate == 0
    assert not found.occurred


def test_growth_that_noise_may_be_is_none() -> None:
    """As three looks in six seconds told of hosts that kept up, by metrics a second old."""
    late = [261, 554, 330]
    looks = [Sample(2.0 * i, {P: 200 * i}, {P: 200 * i - late[i]}) for i in range(3)]
    assert not back_pressure(looks).occurred
    assert not back_pressure(looks[:2]).occurred


def test_what_is_read_after_it_was_counted_is_no_negative_backlog() -> None:
    late = Sample(0.0, {P: 5}, {P: 7})
    assert late.backlog(P) == 0
    # What has not been read at all waits as a whole.
    assert Sample(0.0, {P: 5}, {}).backlog(P) == 5


def test_one_look_is_not_enough() -> None:
    with pytest.raises(NovaError, match="at least two samples"):
        back_pressure(samples(100)[:1])


def test_a_topic_per_stream_with_a_partition_per_source() -> None:
    found = partitions_of(["pressure", "humidity", "pressure"])
    assert found == [("pressure", 0), ("humidity", 0), ("pressure", 1)]
    sources = [
        Source(str(n), 1.0, kind="kafka", address="a:1", topic=topic, partition=partition)
        for n, (topic, partition) in enumerate(found)
    ]
    assert topics_of([*sources, Source("x", 1.0, values=(1.0,))]) == {
        "pressure": 2,
        "humidity": 1,
    }
