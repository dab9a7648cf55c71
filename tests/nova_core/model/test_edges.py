"""Edges and the sums they share with the plan, against counting one partition at a time."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from random_problems import plans

from nova_core.model import Plan
from nova_core.model.edges import edges
from nova_core.model.partitioner import partition_of


def partitions_by_node(plan: Plan) -> dict[tuple[int, int, int], set[int]]:
    """(pair, node, side) to the partitions some instance there needs."""
    i, needed = plan.instances, defaultdict(set)
    for k in range(len(i)):
        key = int(i.pair[k]), int(i.node[k])
        needed[*key, 0] |= set(range(i.left_begin[k], i.left_end[k]))
        needed[*key, 1] |= set(range(i.right_begin[k], i.right_end[k]))
    return needed


@settings(max_examples=80, deadline=None)
@given(plan=plans())
def test_edges_of_random_plans(plan: Plan) -> None:
    check_each_partition_reaches_a_node_once(plan)
    check_rates_add_up(plan)
    check_bandwidth_is_rate_times_tuple_size(plan)


def check_each_partition_reaches_a_node_once(plan: Plan) -> None:
    e, sent = edges(plan), defaultdict(list)
    for row in range(len(e)):
        instance, leg = divmod(int(e.link[row]), 3)
        pair = int(plan.instances.pair[instance])
        ends = (plan.problem.left_node, plan.problem.right_node, plan.problem.sink_node)
        outer, inner = (e.source, e.target) if leg < 2 else (e.target, e.source)
        assert outer[row] == ends[leg][pair]
        assert inner[row] == plan.instances.node[instance]
        runs = range(e.offset[row], e.offset[row + 1])
        assert (len(runs) == 0) == (leg == 2)
        for run in runs:
            sent[pair, int(inner[row]), leg] += range(e.begin[run], e.end[run])
    needed = partitions_by_node(plan)
    assert {key: sorted(found) for key, found in sent.items()} == {
        key: sorted(wanted) for key, wanted in needed.items()
    }


def check_rates_add_up(plan: Plan) -> None:
    e, p = edges(plan), plan.problem
    received = np.zeros(len(p.nodes))
    exact = True  # a source's own rate stands for a whole input, whatever its partitions sum to
    for (pair, node, side), wanted in partitions_by_node(plan).items():
        rates = plan.partitions.rates(pair, side)
        source = (p.left_rate, p.right_rate)[side][pair]
        exact &= bool(np.isclose(rates.sum(), source))
        received[node] += rates[sorted(wanted)].sum()
    inputs = e.link % 3 < 2
    into = np.bincount(e.target[inputs], e.rate[inputs], minlength=len(received))
    left, right = plan.received
    by_node = np.bincount(plan.instances.node, left + right, minlength=len(received))
    assert np.allclose(into, by_node)
    if exact:
        assert np.allclose(into, received)
    assert e.rate[~inputs].sum() == pytest.approx(plan.output_rate.sum())
    assert np.array_equal(e.latency, plan.link_latency()[e.link])


def check_bandwidth_is_rate_times_tuple_size(plan: Plan) -> None:
    e, size, m = edges(plan), plan.problem.sources.tuple_bytes, plan.problem.matrix
    for row in range(len(e)):
        instance, leg = divmod(int(e.link[row]), 3)
        pair = plan.instances.pair[instance]
        if size is None:
            assert np.isnan(e.bandwidth[row])
            continue
        left, right = size[m.left[pair]], size[m.right[pair]]
        wanted = (left, right, left + right)[leg] * e.rate[row]
        assert np.array_equal(e.bandwidth[row], wanted, equal_nan=True)


def test_range_sums_are_exact_far_into_a_large_plan() -> None:
    from nova_core.model import Partitions

    rate = np.random.default_rng(0).uniform(10, 1e4, 300_000)
    parts = Partitions(np.array([0, len(rate)]), rate)
    begin = np.arange(0, 299_990, 1000)
    sums = parts.range_rate(begin, begin + 3)
    wanted = rate[begin] + rate[begin + 1] + rate[begin + 2]
    assert np.abs(sums - wanted).max() <= 1e-11
    assert parts.range_rate(np.array([5, 300_000]), np.array([5, 300_000])).tolist() == [0, 0]


def test_partitioner_gives_each_partition_its_share_of_any_run() -> None:
    rates = np.array([3.0, 3.0, 3.0, 1.0])
    for start in (0, 12_345, 2**40):
        found = partition_of(start + np.arange(1000), rates)
        share = np.bincount(found, minlength=4) / 1000
        assert np.abs(share - rates / 10).max() < 0.005


def test_partitioner_is_the_published_rule() -> None:
    rates, step = np.array([1.0, 2.0, 4.0, 1.5]), 0x9E3779B97F4A7C15
    reached = np.cumsum(rates / rates.sum()).tolist()
    for sequence in [0, 1, 2, 3, 1000, 2**33 + 7, 2**62]:
        u = (sequence * step % 2**64) / 2**64
        wanted = next(i for i, total in enumerate(reached) if u < total)
        assert partition_of(np.array([sequence]), rates)[0] == wanted
    assert (partition_of(np.arange(100), np.array([7.0])) == 0).all()
