"""Eqs. 7 and 8 by the paper's own numbers, and their properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_core.placement.partitioning import (
    maximum_partition_rate,
    partition_count,
    partition_rates,
    sigma_for_bandwidth,
)

rates = st.floats(0.01, 1e5)


def test_two_and_ten_at_half_make_one_and_four_partitions() -> None:
    maximum = float(maximum_partition_rate(np.array(2.0), np.array(10.0), 0.5))
    assert maximum == 3
    s, t = partition_rates(2.0, maximum), partition_rates(10.0, maximum)
    assert s.tolist() == [2]
    assert t.tolist() == [3, 3, 3, 1]
    assert [s[0] + rate for rate in t] == [5, 5, 5, 3]
    assert sum(s[0] + rate for rate in t) == 18  # tuples/s sent, against 24 cut independently


def test_finest_partitions_make_625_replicas_and_25_times_the_traffic() -> None:
    maximum = float(maximum_partition_rate(np.array(25.0), np.array(25.0), 0.0))
    left, right = partition_rates(25.0, maximum), partition_rates(25.0, maximum)
    assert len(left) * len(right) == 625
    traffic = sum(a + b for a in left for b in right)
    assert traffic == 1250
    assert traffic / 50 == 25


@given(rates, rates, st.floats(0, 1))
def test_no_partition_exceeds_the_maximum_and_they_add_up(s: float, t: float, sigma: float) -> None:
    maximum = float(maximum_partition_rate(np.array(s), np.array(t), sigma))
    assert maximum == max(1.0, sigma * 0.5 * (s + t))
    if s / maximum > 10_000:
        return
    parts = partition_rates(s, maximum)
    assert len(parts) == partition_count(np.array(s), np.array(maximum))
    assert parts.sum() == pytest.approx(s)
    assert (parts > 0).all()
    assert (parts <= maximum * (1 + 1e-8)).all()


@given(rates, rates, st.floats(0.1, 1e9))
def test_sigma_for_bandwidth_minimizes_equation_8(s: float, t: float, bandwidth: float) -> None:
    sigma = float(sigma_for_bandwidth(np.array(s), np.array(t), bandwidth))
    assert 0 <= sigma <= 1

    def cost(x: float) -> float:
        return (x * 2 * s * t - bandwidth) ** 2

    best = min(cost(x) for x in np.linspace(0, 1, 101))
    assert cost(sigma) <= best * (1 + 1e-9) + 1e-6
