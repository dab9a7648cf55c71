"""The tree of hosts that come, go and move finds what looking at all of them finds."""

from __future__ import annotations

import numpy as np
import pytest

from nova_core.placement.kernels.live import hosts
from nova_core.placement.kernels.live.tree import tree_at
from nova_core.placement.live.index import HostIndex


def nearest_of_all(
    rows: dict[int, np.ndarray], point: np.ndarray, need: float, k: int
) -> list[int]:
    key = {
        node: np.sqrt(((row[:-2] - point) ** 2).sum()) + row[-2]
        for node, row in rows.items()
        if row[-1] >= need
    }
    return sorted(key, key=lambda node: (key[node], node))[:k]


def found(index: HostIndex, point: np.ndarray, need: float, k: int) -> list[int]:
    slot, key = np.empty(k, np.int64), np.empty(k)
    forest = index.forest
    h = tree_at(forest.hub, point)
    arrays = (forest.row[h], forest.node[h], forest.box[h], forest.link[h])
    stack = np.empty(hosts.SEARCH_STACK, np.int64), np.empty(hosts.SEARCH_STACK)
    count = hosts.nearest(*arrays, np.zeros(len(point)) if h else point, need, slot, key, *stack)
    return forest.node[h, slot[:count]].tolist()


@pytest.mark.parametrize(("dimensions", "grid"), [(1, 3.0), (2, 1.0), (2, 1e-9), (3, 10.0)])
def test_it_finds_the_nearest_with_room_whatever_happened(dimensions: int, grid: float) -> None:
    """Also from hubs; on a coarse grid, where many are equally near, and with as good as none."""
    rng = np.random.default_rng(dimensions)

    def row() -> np.ndarray:
        position = np.round(rng.uniform(0, 100, dimensions) / grid) * grid
        return np.concatenate([position, [rng.integers(0, 3) * 1.0, rng.integers(0, 50) * 1.0]])

    nodes = 2000
    rows = {node: row() for node in range(0, nodes, 2)}
    hubs = np.array([row()[:-2], rows[0][:-2]])
    index = HostIndex(np.array(list(rows.values())), np.array(list(rows)), nodes, hubs)
    assert index.hubs == (2 if dimensions > 1 else 0)
    for step in range(3000):
        node = int(rng.integers(nodes))
        if node not in rows:
            rows[node] = row()
            index.insert(node, rows[node])
        elif step % 3 == 0:
            del rows[node]
            index.remove(node)
        else:
            rows[node][-1] = rng.integers(0, 50)
            index.set_free(node, rows[node][-1])
        if step % 40 == 0:
            point, need = rng.uniform(-10, 110, dimensions), float(rng.integers(0, 55))
            k = int(rng.integers(1, 12))
            for at in (point, *hubs):
                assert found(index, at, need, k) == nearest_of_all(rows, at, need, k)
    assert index.most_room() == max(row[-1] for row in rows.values())


def test_it_begins_empty_and_grows() -> None:
    index = HostIndex(np.empty((0, 4)), np.empty(0, np.int64), 1)
    assert found(index, np.zeros(2), 0.0, 3) == []
    assert index.most_room() == 0.0
    index.reserve(5000)
    for node in range(5000):
        index.insert(node, np.array([float(node), 0.0, 0.0, 1.0]))
    assert found(index, np.array([4000.2, 0.0]), 1.0, 3) == [4000, 4001, 3999]


def test_hosts_in_one_place_do_not_make_it_deep() -> None:
    index = HostIndex(np.empty((0, 4)), np.empty(0, np.int64), 20_000)
    for node in range(20_000):
        index.insert(node, np.array([1.0, 2.0, 0.0, float(node % 7)]))
    parent, owner, used = index.forest.parent[0], index.forest.owner[0], index.forest.used[0]

    def depth(t: int) -> int:
        return 0 if t < 0 else 1 + depth(int(parent[t]))

    assert max(depth(int(t)) for t in owner[: used[1]]) < 20
    assert found(index, np.zeros(2), 6.0, 2) == [6, 13]


def test_hosts_that_come_in_a_row_do_not_make_it_deep() -> None:
    index = HostIndex(np.empty((0, 4)), np.empty(0, np.int64), 20_000)
    for node in range(20_000):
        index.insert(node, np.array([float(node), 0.0, 0.0, 1.0]))
    assert found(index, np.array([123.4, 0.0]), 1.0, 1) == [123]
