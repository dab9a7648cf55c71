from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latency_series import filtered_series

from nova_core.costspace import PercentileFilter
from nova_core.errors import ProblemError

SERIES = st.lists(st.one_of(st.just(float("nan")), st.floats(0, 1000)), min_size=1, max_size=40)


@given(SERIES, st.integers(1, 12), st.sampled_from([1.0, 20.0, 50.0, 100.0]))
def test_it_is_the_percentile_of_the_last_samples(
    series: list[float], window: int, percentile: float
) -> None:
    found = filtered_series(np.array(series), window, percentile)
    seen: list[float] = []
    for sample, value in zip(series, found.tolist(), strict=True):
        if sample == sample:
            seen.append(sample)
        if seen:
            expected = np.percentile(seen[-window:], percentile, method="inverted_cdf")
            assert value == expected
        else:
            assert np.isnan(value)


def test_spikes_vanish_and_a_new_route_shows() -> None:
    random = np.random.default_rng(0)
    base = np.r_[np.full(100, 40.0), np.full(100, 60.0)]
    samples = base + random.exponential(2, 200) + (random.random(200) < 0.2) * 300
    found = filtered_series(samples)
    assert np.abs(found[10:100] - 41).max() < 5
    assert np.abs(found[110:] - 61).max() < 5


def test_many_links_and_streams_agree() -> None:
    samples = np.random.default_rng(1).random((3, 4, 25))
    whole = filtered_series(samples)
    assert whole.shape == samples.shape
    stream = PercentileFilter(12)
    for time in range(25):
        latest = stream.add(np.arange(12), samples.reshape(12, 25)[:, time])
    assert latest.tolist() == whole.reshape(12, 25)[:, -1].tolist() == stream.latency().tolist()


def test_links_come_at_their_own_pace() -> None:
    stream = PercentileFilter(3, window=2, percentile=50)
    assert stream.add([2, 0], [5.0, 1.0]).tolist() == [5, 1]
    assert stream.add(2, 9.0).tolist() == [5]
    assert stream.add(2, 7.0).tolist() == [7]
    assert stream.add(2, np.nan).tolist() == [7]
    assert np.isnan(stream.latency(np.array([1]))).all()


@pytest.mark.parametrize(("window", "percentile"), [(0, 20), (10, 0), (10, 101)])
def test_options_of_the_filter_that_cannot_be(window: int, percentile: float) -> None:
    with pytest.raises(ProblemError, match="expected"):
        PercentileFilter(1, window, percentile)
