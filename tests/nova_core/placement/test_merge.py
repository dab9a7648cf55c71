"""Pieces of a join that met on a node, merged, against sets of the cells they join."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.placement.kernels.items import range_rate
from nova_core.placement.kernels.merge import merge_rectangles
from nova_core.placement.partitioning import partition_count, partition_rates

Rectangle = tuple[int, int, int, int]


def cells(rectangle: np.ndarray) -> set[tuple[int, int]]:
    a, b, c, d = rectangle.tolist()
    return {(i, j) for i in range(a, b) for j in range(c, d)}


def tiling(rng: np.random.Generator, grid: np.ndarray) -> np.ndarray:
    """Random rectangles that together are the grid, by cutting it again and again."""
    found: list[Rectangle] = []
    waiting: list[Rectangle] = [(0, int(grid[0]), 0, int(grid[1]))]
    while waiting:
        a, b, c, d = waiting.pop()
        side = int(rng.integers(2))
        low, high = ((a, b), (c, d))[side]
        if high - low == 1 or rng.random() < 0.2:
            found.append((a, b, c, d))
            continue
        at = int(rng.integers(low + 1, high))
        halves = ((a, at, c, d), (at, b, c, d)) if side == 0 else ((a, b, c, at), (a, b, at, d))
        waiting.extend(halves)
    return np.array(sorted(found, key=lambda r: (r[0], r[2])), np.int64)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_merged_pieces_cover_the_same_cells_on_the_same_nodes(
    seed: int, pairs: int, places: int, limited: bool
) -> None:
    rng = np.random.default_rng(seed)
    rate = rng.uniform(1, 100, (pairs, 3))
    maximum = rate[:, :2].sum(axis=1) * rng.uniform(0.1, 0.6, pairs)
    grid = np.stack([partition_count(rate[:, side], maximum) for side in (0, 1)], axis=1)
    tiles = [tiling(rng, grid[pair]) for pair in range(pairs)]
    pair = np.repeat(np.arange(pairs), [len(t) for t in tiles])
    before = np.concatenate(tiles)
    place = rng.integers(0, places, len(pair))
    largest = float(np.quantile(rate[:, 0] + rate[:, 1], 0.5)) if limited else np.inf

    def size(row: int, rectangle: np.ndarray) -> float:
        return sum(
            range_rate(rate[row, side], maximum[row], grid[row, side], *rectangle[2 * side :][:2])
            for side in (0, 1)
        )

    after, keep = before.copy(), np.empty(len(pair), bool)
    merge_rectangles(pair, place, after, rate, maximum, grid, largest, keep)
    for row in range(pairs):
        for node in range(places):
            here = (pair == row) & (place == node)
            old = [cell for r in before[here] for cell in cells(r)]
            new = [cell for r in after[here & keep] for cell in cells(r)]
            assert sorted(old) == sorted(new)
            rest = list(after[here & keep])
            # What could be merged and is not would be too large.
            for a in rest:
                for b in rest:
                    below = a[1] == b[0] and (a[2:] == b[2:]).all()
                    beside = a[3] == b[2] and (a[:2] == b[:2]).all()
                    if below or beside:
                        assert size(row, np.array([a[0], b[1], a[2], b[3]])) > largest
            for r in rest:
                before_merge = any((r == old_one).all() for old_one in before[here])
                assert before_merge or size(row, r) <= largest


@settings(max_examples=100, deadline=None)
@given(st.floats(0.5, 500), st.floats(0.5, 200))
def test_the_rate_of_a_range_is_the_sum_of_its_partitions(whole: float, maximum: float) -> None:
    rates = partition_rates(whole, maximum)
    count = len(rates)
    for begin in range(min(count, 5)):
        for end in range(begin + 1, count + 1):
            rate = range_rate(whole, maximum, count, begin, end)
            assert rate == pytest.approx(rates[begin:end].sum(), abs=1e-9 * whole)
