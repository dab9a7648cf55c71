"""The tree of hosts that come, go and move finds what looking at all of them finds."""

from __future__ import annotations

import numpy as np
import pytest

from nova_core.placement.host_index import HostIndex
from nova_core.placement.kernels.state.host_tree import nearest, search_for


def nearest_of_all(
    node: np.ndarray, rows: np.ndarray, point: np.ndarray, need: float, k: int
) -> list[int]:
    key = np.sqrt(((rows[:, :-2] - point) ** 2).sum(1)) + rows[:, -2]
    able = np.flatnonzero(rows[:, -1] >= need)
    return node[able[np.lexsort((node[able], key[able]))[:k]]].tolist()


def found(
    index: HostIndex, point: np.ndarray, need: float, k: int, requirement: int = 0
) -> list[int]:
    search = search_for(k, len(point))
    count = nearest(index.tree, point, need, requirement, search)
    node = index.tree.node[0, search.slot[:count]]
    return node.tolist()


def empty(nodes: int) -> HostIndex:
    no_hosts = np.empty((0, 4)), np.empty(0, np.int64)
    return HostIndex(*no_hosts, np.empty((0, 2)), np.zeros(nodes, np.int64))


@pytest.mark.parametrize(("dimensions", "grid"), [(1, 3.0), (2, 1.0), (2, 1e-9), (3, 10.0)])
def test_it_finds_the_nearest_with_room_whatever_happened(dimensions: int, grid: float) -> None:
    """Also from hubs, with requirements, on a coarse grid, where many are equally near, and with
    as good as none.
    """
    rng = np.random.default_rng(dimensions)

    def row() -> np.ndarray:
        position = np.round(rng.uniform(0, 100, dimensions) / grid) * grid
        return np.concatenate([position, [rng.integers(0, 3) * 1.0, rng.integers(0, 50) * 1.0]])

    nodes = 2000
    rows = {node: row() for node in range(0, nodes, 2)}
    hubs = np.array([row()[:-2], rows[0][:-2]])
    offer = rng.integers(0, 8, nodes)
    index = HostIndex(np.array(list(rows.values())), np.array(list(rows)), hubs, offer.copy(), 3)
    assert len(index.tree.hub) == (2 if dimensions > 1 else 0)
    for step in range(3000):
        node = int(rng.integers(nodes))
        if node not in rows:
            rows[node] = row()
            index.replace(node, rows[node], int(offer[node]))
        elif step % 3 == 0:
            del rows[node]
            index.replace(node, None)
        else:
            rows[node][-1] = rng.integers(0, 50)
            index.set_free(node, rows[node][-1])
        if step % 40 == 0:
            point, need = rng.uniform(-10, 110, dimensions), float(rng.integers(0, 55))
            k = int(rng.integers(1, 12))
            there, row_of = np.array(list(rows)), np.array(list(rows.values()))
            for number in range(4):
                able = slice(None) if number == 0 else offer[there] >> (number - 1) & 1 == 1
                for at in (point, *hubs):
                    expected = nearest_of_all(there[able], row_of[able], at, need, k)
                    assert found(index, at, need, k, number) == expected
    assert index.most_room(0) == max(row[-1] for row in rows.values())
    assert index.most_room(2) == max(row[-1] for n, row in rows.items() if offer[n] & 2)


def test_it_begins_empty_and_grows() -> None:
    index = empty(1)
    assert found(index, np.zeros(2), 0.0, 3) == []
    assert index.most_room(0) == 0.0
    index.reserve(5000)
    for node in range(5000):
        index.replace(node, np.array([float(node), 0.0, 0.0, 1.0]))
    assert found(index, np.array([4000.2, 0.0]), 1.0, 3) == [4000, 4001, 3999]


def test_hosts_in_one_place_do_not_make_it_deep() -> None:
    index = empty(20_000)
    for node in range(20_000):
        index.replace(node, np.array([1.0, 2.0, 0.0, float(node % 7)]))
    parent, used = index.tree.parent[0], index.tree.used[0]
    owner = parent[index.tree.box.shape[1] :]

    def depth(t: int) -> int:
        return 0 if t < 0 else 1 + depth(int(parent[t]))

    assert max(depth(int(t)) for t in owner[: used[1]]) < 20
    assert found(index, np.zeros(2), 6.0, 2) == [6, 13]


def test_hosts_that_come_in_a_row_do_not_make_it_deep() -> None:
    index = empty(20_000)
    for node in range(20_000):
        index.replace(node, np.array([float(node), 0.0, 0.0, 1.0]))
    assert found(index, np.array([123.4, 0.0]), 1.0, 1) == [123]
