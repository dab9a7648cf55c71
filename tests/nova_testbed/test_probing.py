from __future__ import annotations

import csv
from pathlib import Path

import pytest

from nova_core.io.files import read_problem
from nova_testbed.hosts import Hosts
from nova_testbed.inventory import HostSpec, Inventory, InventoryError
from nova_testbed.probing import (
    Capacity,
    PairRtt,
    choose_pairs,
    clock_offsets,
    measure_capacity,
    measure_rtt,
)
from nova_testbed.topology import problem_document, write_pairs, write_problem


def inventory_of(count: int) -> Inventory:
    roles = ["sink", "source", "source", *["worker"] * count]
    return Inventory(
        "i", tuple(HostSpec(f"h{i}", roles[i], f"10.0.0.{i}", memory=1 << 20) for i in range(count))
    )  # type: ignore[arg-type]


def test_pairs_are_drawn_once_and_spread_evenly() -> None:
    inventory = inventory_of(14)
    everything = choose_pairs(inventory)
    assert len(everything) == len({frozenset(pair) for pair in everything}) == 91
    asked = [sum(a == host.name for a, _ in everything) for host in inventory.hosts]
    assert max(asked) - min(asked) <= 1
    some = choose_pairs(inventory, 3, seed=1)
    assert some == choose_pairs(inventory, 3, seed=1) != choose_pairs(inventory, 3, seed=2)
    for host in inventory.hosts:
        assert sum(host.name in pair for pair in some) >= 3
    assert choose_pairs(inventory, 50) == everything
    with pytest.raises(InventoryError, match="neighbours: 0 is not accepted"):
        choose_pairs(inventory, 0)


def test_round_trips(connected: Hosts, inventory: Inventory) -> None:
    pairs = choose_pairs(inventory)
    told: list[str] = []
    found = measure_rtt(connected, pairs, count=10, progress=told.append)
    assert [(rtt.source, rtt.target) for rtt in found] == pairs
    assert set(told) == {source for source, _ in pairs}
    for rtt in found:
        assert len(rtt.udp_ms) > 5 and len(rtt.tcp_ms) == 5
        assert rtt.udp_ms == tuple(sorted(rtt.udp_ms)) and rtt.udp_ms[0] > 0
        if inventory.virtual:
            # The fastest, and generous: the machine may be held up by other programs.
            assert rtt.asked_ms * 0.98 < rtt.median_ms
            assert rtt.udp_ms[0] < rtt.asked_ms + 5
    # No server is left.
    assert all(host.jobs("echo") == [] for host in connected)


def test_clocks(connected: Hosts, inventory: Inventory) -> None:
    for offset in clock_offsets(connected, count=10):
        assert 0 < offset.error_ms < 500
        if inventory.name != "real":
            assert abs(offset.offset_ms) <= offset.error_ms + 0.1


def test_capacity(connected: Hosts, inventory: Inventory) -> None:
    found = measure_capacity(connected, "window-join", seconds=0.5)
    assert [entry.host for entry in found] == [host.name for host in inventory.hosts]
    for entry, spec in zip(found, inventory.hosts, strict=True):
        assert entry.operator == "window-join" and entry.tuples_per_second > 1000
        assert 0.01 < entry.cores < 1.2 * (spec.cpu or 1)
    with pytest.raises(InventoryError, match="unknown operator 'join'; accepted are"):
        measure_capacity(connected, "join")


@pytest.mark.filterwarnings("ignore:.*no positions")
def test_what_was_measured_becomes_a_problem(tmp_path: Path) -> None:
    inventory = inventory_of(5)
    rtts = [
        PairRtt(a, b, 5.0, 3, (4.0 + i, 5.25 + i, 7.0 + i), ())
        for i, (a, b) in enumerate(choose_pairs(inventory))
    ]
    unanswered = PairRtt("h0", "h1", 5.0, 3, (), ())
    capacities = [Capacity(f"h{i}", "filter", 1000.0 * (i + 1), 1.0) for i in range(4)]
    write_problem(inventory, [*rtts, unanswered], capacities, tmp_path / "problem.yaml", rate=50)
    problem = read_problem(tmp_path / "problem.yaml")
    assert problem.nodes.ids.tolist() == [f"h{i}" for i in range(5)]
    assert problem.nodes.capacity.tolist() == [1000, 2000, 3000, 4000, float("inf")]
    assert problem.nodes.worker.all()
    assert problem.sources.rate.tolist() == [50, 50] and len(problem.matrix) == 1
    assert problem.measured is not None and len(problem.measured) == 10
    assert problem.measured.latency.tolist() == pytest.approx(
        [(5.25 + i) / 2 for i in range(10)], abs=0.0005
    )
    write_pairs([*rtts, unanswered], tmp_path / "pairs.csv")
    rows = list(csv.DictReader((tmp_path / "pairs.csv").open()))
    assert list(rows[0]) == ["source", "target", "latency"]
    assert [float(row["latency"]) for row in rows] == pytest.approx(
        [(5.25 + i) / 2 for i in range(10)], abs=0.0005
    )


def test_a_problem_needs_sources() -> None:
    with pytest.raises(InventoryError, match="1 hosts with the role source"):
        problem_document(inventory_of(2), [], [])


@pytest.mark.parametrize(
    ("median", "kept"), [(100.0, True), (102.9, True), (97.1, True), (103.1, False), (96.9, False)]
)
def test_kept_is_within_1_ms_and_2_percent(median: float, kept: bool) -> None:
    assert PairRtt("a", "b", 100.0, 1, (median,), ()).kept is kept


def test_pairs_without_answers() -> None:
    rtt = PairRtt("a", "b", 10.0, 4, (), (9.5,))
    assert (rtt.median_ms, rtt.lost_percent) == (9.5, 100.0)
    nothing = PairRtt("a", "b", 10.0, 4, (), ())
    assert nothing.median_ms != nothing.median_ms and not nothing.kept
