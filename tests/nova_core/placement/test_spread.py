"""Overload by option 1 of the paper's section 3.4: evenly over near nodes, batch and live."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.model import JoinMatrix, Joins, Nodes, Problem, Sources
from nova_core.model.verify import verify
from nova_core.placement.kernels.spread import evenly
from nova_core.placement.live import ChangeRate, LivePlacement, Policy
from nova_core.strategies import place


def three_idle(capacity: tuple[float, ...] = (20, 20, 20), rate: float = 50) -> Problem:
    """A join of two sources that no node, nor all together, can take."""
    hosts = len(capacity)
    none = np.empty(0, np.int64)
    problem = Problem(
        nodes=Nodes(
            ids=np.array([*(f"n{i}" for i in range(hosts)), "a", "b", "sink"]),
            position=np.array([[i, 0.0] for i in range(hosts)] + [[1.0, 1.0]] * 3),
            capacity=np.array([*capacity, 1e6, 1e6, 1e6], float),
            worker=np.array([True] * hosts + [False] * 3),
        ),
        sources=Sources(
            ids=np.array(["l", "r"]),
            node=np.array([hosts, hosts + 1]),
            stream=np.array(["L", "R"]),
            rate=np.full(2, float(rate)),
        ),
        joins=Joins(*(np.array([one]) for one in ("j", "L", "R")), np.array([hosts + 2])),
        matrix=JoinMatrix(none, none, none, np.empty(0)),
    )
    zero, one = np.array([0]), np.array([1])
    return replace(problem, matrix=JoinMatrix(zero, zero, one, np.array([1.0])))


@pytest.mark.parametrize("index", ["capacity-tree", "kdtree"])
def test_all_of_the_nearest_nodes_get_their_part(index: str) -> None:
    plan = place(three_idle(), "nova", index=index, k=3, on_full="spread", sigma=0.1)
    loads = plan.load[:3]
    assert (loads > 0).all() and loads.max() <= 1.25 * loads.min(), loads
    assert verify(plan).honest
    # Relative to capacity: who has twice as much takes more.
    larger = place(three_idle((40, 20, 20)), "nova", index=index, k=3, on_full="spread", sigma=0.1)
    assert larger.load[0] > larger.load[1:3].max() > 0


def test_live_placement_spreads_as_well() -> None:
    problem = three_idle((60, 60, 60), rate=25)
    live = LivePlacement(problem, place(problem, "nova", sigma=0.1), Policy(overload=True))
    live.apply(ChangeRate(source="l", rate=200))
    loads = live.plan().load[:3]
    assert (loads > 0).all() and loads.max() <= 1.5 * loads.min(), loads


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=12),
    st.lists(st.floats(0.1, 10), min_size=1, max_size=12),
    st.lists(st.tuples(st.floats(0, 50), st.floats(1, 100)), min_size=1, max_size=9),
    st.integers(0, 9),
)
def test_rows_are_the_join_and_the_fullest_host_no_fuller_than_uncut(
    left: list[float], right: list[float], hosts: list[tuple[float, float]], k: int
) -> None:
    used, capacity = np.array(hosts).T
    rows = evenly(np.array(left), np.array(right), used.copy(), capacity.copy(), k)
    seen = np.zeros((len(left), len(right)), int)
    load = used.copy()
    for host, a, b, c, d in rows.tolist():
        seen[a:b, c:d] += 1
        load[host] += sum(left[a:b]) + sum(right[c:d])
    assert (seen == 1).all()
    assert len({row[0] for row in rows.tolist()}) == len(rows)
    if k:
        assert rows[:, 0].max() < k
    # Never fuller than the fullest host that all of it could have been put on.
    whole = (used + sum(left) + sum(right)) / capacity
    assert (load / capacity)[rows[:, 0]].max() <= whole.max() * (1 + 1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 8), st.floats(1, 100))
def test_equal_hosts_get_nearly_the_same(hosts: int, rate: float) -> None:
    part = np.full(64, rate)
    rows = evenly(part, part, np.zeros(hosts), np.full(hosts, 10.0), hosts)
    sizes = (rows[:, 2] - rows[:, 1] + rows[:, 4] - rows[:, 3]).astype(float)
    assert len(rows) == hosts
    assert sizes.max() <= 1.5 * sizes.min()


def test_hosts_without_a_limit_are_not_cut_over() -> None:
    unlimited = np.full(2, np.inf)
    rows = evenly(np.ones(4), np.ones(4), np.full(2, np.nan), unlimited, 0)
    assert rows.tolist() == [[0, 0, 4, 0, 4]]
