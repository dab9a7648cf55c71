from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_core.costspace import CostSpace, aligned, drift
from nova_core.errors import ProblemError


def turned(space: CostSpace, seed: int) -> CostSpace:
    random = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(random.normal(size=(space.dimensions, space.dimensions)))
    return CostSpace(space.position @ rotation + random.normal(scale=100), space.height)


def points(seed: int, dimensions: int = 2) -> CostSpace:
    random = np.random.default_rng(seed)
    return CostSpace(random.normal(scale=50, size=(40, dimensions)), random.exponential(3, 40))


@given(st.integers(0, 1000), st.integers(1, 5))
def test_rigid_motions_are_no_drift(seed: int, dimensions: int) -> None:
    space = points(seed, dimensions)
    moved = turned(space, seed + 1)
    assert np.abs(aligned(moved, space).position - space.position).max() < 1e-9
    assert drift(space, moved).moved.max() < 1e-9


def test_who_moved_is_found() -> None:
    before = points(0)
    position = before.position.copy()
    position[11] += [60, 0]
    assert before.height is not None
    height = before.height.copy()
    height[4] += 30
    found = drift(before, turned(CostSpace(position, height), 3))
    assert np.argsort(-found.moved)[:2].tolist() == [11, 4]
    assert found.moved[11] == pytest.approx(60, abs=4)
    assert found.moved[4] == pytest.approx(30, abs=4)
    assert found.median < 4
    assert found.mean == pytest.approx(found.moved.mean())
    assert found.distance_change == 0  # the median pair has neither of them
    assert drift(before, points(1)).distance_change > 0.1


def test_hour_by_hour() -> None:
    spaces = [points(0), turned(points(0), 1), points(2)]
    first, second = (drift(before, after) for before, after in pairwise(spaces))
    assert first.p90 < 1e-9 < 10 < second.p90


def test_other_nodes_cannot_be_compared() -> None:
    flat = CostSpace(np.zeros((3, 2)))
    for other in (CostSpace(np.zeros((4, 2))), CostSpace(np.zeros((3, 2)), np.zeros(3))):
        with pytest.raises(ProblemError, match="cannot be compared"):
            drift(flat, other)
