"""Joins of many keys are cut by key: nothing is sent twice, and every pair of tuples meets once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from query_cases import asking, document, topology

from nova_core.errors import InfeasibleError, PlanError, ProblemError
from nova_core.explain import Explainer, find
from nova_core.io.files import read_plan, write_plan
from nova_core.io.problem_document import queries_of
from nova_core.model.key_ranges import COMPARING, KeyRanges, cut, intervals, required
from nova_core.model.partitions import Partitions
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.model.queries import Join
from nova_core.model.verify import verify
from nova_core.strategies import place

SOME = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
ROOMS = [60.0] * 30
HOT = [{"values": [7], "left": 0.25, "right": 0.2}, {"values": [1], "left": 0.1, "right": 0.1}]


def asked(rooms: list[float], **fields: Any) -> Problem:
    """One join of two streams of one source each, at 100 tuples/s, on nodes with these rooms."""
    problem = topology(3, len(rooms), np.array(rooms))
    sources = replace(problem.sources, rate=np.full(len(problem.sources), 100.0))
    join = {"kind": "join", "id": "j", "inputs": ["t0", "t1"], "match": "key"} | fields
    return asking(replace(problem, sources=sources), document(join))


def placed(problem: Problem, **parameters: Any) -> Plan:
    return place(problem, "nova", **parameters)


def joins(**fields: Any) -> Join:
    (query,) = queries_of(
        document({"kind": "join", "id": "j", "inputs": ["a", "b"], "keys": 10_000} | fields)
    )
    (join,) = query.operators
    assert isinstance(join, Join)
    return join


def test_nothing_is_sent_twice() -> None:
    grid, by_key = placed(asked(ROOMS), sigma=0.2), placed(asked(ROOMS, keys=10_000))
    assert verify(grid).ok and verify(by_key).ok
    assert by_key.partitions.by_key is not None and by_key.partitions.by_key.all()
    # Two joins at 200 tuples/s: as grids, they receive more.
    assert by_key.load.sum() == pytest.approx(400)
    assert grid.load.sum() > 500
    emitted = by_key.links.rate[by_key.links.consumer < 0].sum()
    assert emitted == pytest.approx(200)


def test_few_keys_are_cut_as_a_grid() -> None:
    plan = placed(asked(ROOMS, keys=99), sigma=0.2)
    assert plan.partitions.by_key is None
    assert verify(plan).ok


def test_a_hot_key_is_spread_over_nodes() -> None:
    # Of one key, 70 tuples/s arrive: more than any node takes.
    hot = [{"values": [7], "left": 0.6, "right": 0.1}]
    plan = placed(asked([50.0] * 14, keys=10_000, hot=hot))
    assert verify(plan).ok
    ranges = KeyRanges.of(plan.graph.joins[int(plan.graph.bodies[0])], plan.partitions.rates(0, 0))
    mine = plan.instances.pair == 0
    of_hot = plan.instances.left_begin[mine] < ranges.first[1]
    assert of_hot.sum() >= 2
    # Its right input goes to each of them.
    assert plan.right_rate[mine].sum() == pytest.approx(100 + 10 * (of_hot.sum() - 1))
    assert plan.left_rate[mine].sum() == pytest.approx(100)


def test_a_frequent_key_counts_as_what_it_meets() -> None:
    # Of windows of 1 s, its tuples meet 4,000 others a second, the others' less than one.
    hot = [{"values": [7], "left": 0.4, "right": 0.1}]
    plans = [
        placed(asked([60.0] * 12, keys=10_000, hot=hot, **window))
        for window in ({}, {"window": 0.01}, {"window": 10.0})
    ]
    emitted = []
    for plan in plans:
        assert verify(plan).ok
        mine = (plan.instances.pair == 0) & (plan.instances.left_begin == 0)
        to_sink = plan.links.consumer < 0
        rate = np.bincount(plan.links.producer[to_sink], plan.links.rate[to_sink])
        emitted.append(float(rate[mine][0] / rate[plan.instances.pair == 0].sum()))
    assert emitted[0] == pytest.approx(emitted[1])
    # The longer the window, the more of the work is the key's, and the more nodes share it.
    assert emitted[2] < 0.7 * emitted[0]


@SOME
@given(
    window=st.floats(0.001, 10),
    shares=st.lists(st.floats(0.02, 0.3), max_size=3),
    ranges=st.integers(2, 100),
)
def test_a_range_requires_its_tuples_or_more(
    window: float, shares: list[float], ranges: int
) -> None:
    hot = [{"values": [k], "left": share, "right": 0.1} for k, share in enumerate(shares)]
    join = joins(hot=hot, window=window)
    rates = cut(join, 100.0, 80.0, ranges)
    dealt, of_range = KeyRanges.of(join, rates), required(join, 100.0, 80.0, rates)
    assert of_range(0, len(rates)) == pytest.approx(180)
    begin = np.arange(len(rates))
    received, emitted = dealt.shares(begin, begin + 1)
    tuples = rates + 80 * received
    each = np.array([of_range(one, one + 1) for one in begin.tolist()])
    assert (each >= tuples * (1 - 1e-12)).all()
    pairs = 8000 * window * (sum(0.1 * one for one in shares))
    of_hot = begin < dealt.first[-2]
    assert (each[of_hot] >= COMPARING * pairs * emitted[of_hot] * 180 / (180 + 2000 * window)).all()


@SOME
@given(
    room=st.floats(20, 300),
    nodes=st.integers(6, 30),
    keys=st.sampled_from([1, 60, 200, 5000]),
    hot=st.sampled_from([[], HOT[:1], HOT]),
    bandwidth=st.sampled_from([None, 50.0, 1000.0]),
    on_full=st.sampled_from(["expand", "spread"]),
)
def test_every_plan_verifies_and_is_read_as_it_was_written(
    tmp_path: Path,
    room: float,
    nodes: int,
    keys: int,
    hot: list[dict[str, Any]],
    bandwidth: float | None,
    on_full: str,
) -> None:
    problem = asked([room] * nodes, keys=keys, hot=hot if keys > len(hot) else [])
    try:
        plan = placed(problem, bandwidth=bandwidth, on_full=on_full)
    except InfeasibleError:
        assert on_full == "expand"
        return
    report = verify(plan)
    assert report.honest, report.summary()
    for name in ("plan.json", "tables"):
        write_plan(plan, tmp_path / name)
        assert read_plan(tmp_path / name, problem).same_as(plan)


def tuples(join: Join, rates: np.ndarray[Any, Any], keys: Any, side: int, seed: int) -> Any:
    """(t, m) which partitions engines send tuples of these keys to, as `Cut` in Java does."""
    hot, others = intervals(join, rates)
    reached = (rates / rates.sum()).cumsum()
    bounds = np.concatenate(([0.0], reached[:-1], [2.0]))
    at = {int(values[0]): (begin, end) for values, begin, end in hot}
    rng = np.random.default_rng(seed)
    number = rng.random(len(keys))
    u = np.random.default_rng(0).random(10_001)  # of each key
    taken = np.zeros((len(keys), len(rates)), bool)
    for row, key in enumerate(keys.tolist()):
        if key not in at:
            place = others + (1 - others) * u[key]
            taken[row] = (bounds[:-1] <= place) & (place < bounds[1:])
            continue
        begin, end = at[key]
        if side == 1:
            taken[row] = (bounds[:-1] < end) & (begin < bounds[1:])
        else:
            place = min(begin + (end - begin) * number[row], np.nextafter(end, 0))
            taken[row] = (bounds[:-1] <= place) & (place < bounds[1:])
    return taken


@SOME
@given(
    shares=st.lists(st.floats(0.001, 0.3), max_size=3),
    right=st.floats(0.001, 0.3),
    ranges=st.integers(2, 100),
    seed=st.integers(0, 1000),
)
def test_every_two_tuples_of_a_key_meet_once(
    shares: list[float], right: float, ranges: int, seed: int
) -> None:
    hot = [{"values": [k], "left": share, "right": right} for k, share in enumerate(shares)]
    join = joins(hot=hot)
    rates = cut(join, 100.0, 80.0, ranges)
    assert rates.sum() == pytest.approx(100)
    assert (rates > 0).all()
    dealt = KeyRanges.of(join, rates)
    assert dealt.whole
    # Each hot key has partitions of its own.
    assert (np.diff(dealt.first) > 0).all()
    rng = np.random.default_rng(seed)
    keys = [np.where(rng.random(60) < 0.5, rng.integers(0, 4, 60), rng.integers(0, 10_000, 60))]
    keys.append(np.where(rng.random(60) < 0.5, rng.integers(0, 4, 60), rng.integers(0, 10_000, 60)))
    sides = [tuples(join, rates, each, side, seed) for side, each in enumerate(keys)]
    assert (sides[0].sum(axis=1) == 1).all()
    meet = sides[0].astype(int) @ sides[1].T.astype(int)
    same = keys[0][:, None] == keys[1]
    assert (meet[same] == 1).all()
    # What a range receives is what the plan says, for any range.
    begin, end = np.zeros(1, np.int64), np.array([len(rates)])
    assert dealt.shares(begin, end)[0][0] == pytest.approx(1)
    assert dealt.shares(begin, end)[1][0] == pytest.approx(1)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"keys": 0}, "keys: 0"),
        ({"keys": 2, "hot": HOT}, "2, but keys is 2"),
        ({"keys": 9, "hot": [HOT[0] | {"left": 1}]}, "left: 1"),
        ({"keys": 9, "hot": [HOT[0] | {"right": 0.9}, HOT[1]]}, "right: shares add up to 1"),
        ({"keys": 9, "hot": [{"values": [], "left": 0.1, "right": 0}]}, "values"),
    ],
)
def test_bad_keys_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ProblemError, match=said) as caught:
        placed(asked(ROOMS, **fields))
    assert "\n" not in str(caught.value)


def test_verification_finds_what_cannot_be_cut_by_key() -> None:
    plan = placed(asked(ROOMS, keys=10_000))
    parts = plan.partitions
    keyless = asked(ROOMS)
    other = replace(plan, problem=keyless)
    assert verify(other).counts["complete"] == 2
    short = replace(plan, partitions=Partitions(parts.offset, parts.rate, np.ones(1, bool)))
    assert verify(short).counts == {"structure": 1}
    # By number and not by key, the right input would have to go to every instance.
    grid = replace(plan, partitions=Partitions(parts.offset, parts.rate))
    assert grid.load.sum() > plan.load.sum()


def test_a_partitioner_that_is_not_the_plans_is_refused(tmp_path: Path) -> None:
    plan = placed(asked(ROOMS, keys=10_000))
    write_plan(plan, tmp_path / "plan.json")
    content = json.loads((tmp_path / "plan.json").read_text())
    assert {row["partitioner"] for row in content["partitions"]} == {"key-share"}
    content["partitions"][0]["partitioner"] = "sequence-share"
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(PlanError, match="but by the plan it is"):
        read_plan(tmp_path / "plan.json", plan.problem)


def test_why_a_join_is_cut_so_is_explained() -> None:
    by_key, grid = placed(asked(ROOMS, keys=10_000, hot=HOT)), placed(asked(ROOMS), sigma=0.2)
    for plan, text, least in (
        (by_key, "cut by ranges of its 10,000 keys, 2 of them with their own; as a grid of ", 1.0),
        (grid, "cut as a grid: ", 1.2),
    ):
        for row in range(plan.operator_count):
            one = Explainer(plan).operator(row)
            assert one.reasons[-1].startswith(text)
            assert one.required_capacity == 200
            assert one.received >= least * one.required_capacity
    assert find(by_key, by_key.operator_name(1)) == [1]
