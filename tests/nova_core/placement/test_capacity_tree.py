"""The capacity-augmented k-d tree against brute force, after random updates."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core import workers
from nova_core.placement.kernels.capacity_tree import build, nearest, search_for, set_free


def expected(
    position: np.ndarray, free: np.ndarray, node: np.ndarray, point: np.ndarray, room: float, k: int
) -> list[int]:
    square = ((position[node] - point) ** 2).sum(axis=1)
    order = [i for i in np.lexsort((node, square)) if free[node[i]] >= room]
    return sorted(int(node[i]) for i in order[:k])


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 200), st.integers(1, 4), st.booleans(), st.booleans()
)
def test_nearest_with_room_agrees_with_brute_force(
    seed: int, count: int, dimensions: int, grid: bool, ranked: bool
) -> None:
    rng = np.random.default_rng(seed)
    position = rng.uniform(0, 100, (count + 3, dimensions))
    if grid:
        position = np.round(position / 25) * 25  # many equal distances and equal points
    free = rng.integers(0, 50, count + 3).astype(float)
    node = np.sort(rng.permutation(count + 3)[:count])
    hub = rng.uniform(0, 100, dimensions)
    if grid:
        hub = np.round(hub / 25) * 25
    tree = build(position, free, node, hub if ranked else None)
    slot_of = {int(n): slot for slot, n in enumerate(tree.node)}
    assert sorted(slot_of) == node.tolist()
    for _ in range(30):
        k = int(rng.integers(1, 9))
        search = search_for(k, 1.0)
        point, room = rng.uniform(-10, 110, dimensions), float(rng.integers(0, 55))
        if ranked and rng.random() < 0.5:
            point = hub
        found = nearest(tree, point, room, 0, search)
        answer = sorted(int(n) for n in tree.node[search.slot[:found]])
        assert answer == expected(position, free, node, point, room, k)
        changed = int(rng.choice(node))
        free[changed] = float(rng.integers(0, 50))
        set_free(tree, slot_of[changed], free[changed])


@pytest.mark.parametrize("hub", [None, np.zeros(2)])
def test_a_full_tree_answers_nothing(hub: np.ndarray | None) -> None:
    tree = build(np.zeros((4, 2)), np.ones(4), np.arange(4), hub)
    assert nearest(tree, np.zeros(2), 2.0, 0, search_for(3, 1.0)) == 0


@pytest.mark.parametrize("heights", [False, True])
def test_one_tree_on_any_number_of_threads(heights: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PARALLEL_NODES", 100)  # what many nodes get, for few
    rng = np.random.default_rng(1)
    position, free = rng.uniform(0, 100, (1000, 3)), rng.uniform(0, 9, 1000)
    rise = rng.uniform(0, 50, (1000, 2)) if heights else None
    trees = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=threads: range(n))
        trees.append(build(position, free, np.arange(1000), rise=rise))
    for tree in trees[1:]:
        assert np.array_equal(tree.slot, trees[0].slot)
        assert np.array_equal(tree.node, trees[0].node)
        assert np.array_equal(tree.box[1:], trees[0].box[1:])  # no tree node has number 0
        assert np.array_equal(tree.rise, trees[0].rise)
