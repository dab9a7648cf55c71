"""`nova bench live`, and the program that checks live placement event by event."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest
from click.testing import CliRunner
from oracles.live_placement import BrokenPromiseError, check, main

from nova_core.cli import cli
from nova_harness.bench.live import BUSY_NODE, Measurement, summary_table
from nova_workloads.live_events import QUERY_SHARES, SHARES, RandomEvents
from nova_workloads.topology import generate


@pytest.mark.parametrize(
    ("more", "kinds", "operators"), [([], SHARES, 60), (["--queries"], QUERY_SHARES, 298)]
)
def test_every_kind_of_event_is_timed(
    more: list[str], kinds: dict[str, float], operators: int
) -> None:
    result = CliRunner().invoke(
        cli, ["bench", "live", "--sizes", "200", "--events", "10", "--json", *more]
    )
    assert result.exit_code == 0, result.output
    measured = json.loads(result.stdout)["measurements"]
    assert [m["event"] for m in measured] == [*kinds, BUSY_NODE]
    assert all(0 < m["median"] <= m["p99"] for m in measured)
    found = [msgspec.convert(m, Measurement) for m in measured]
    table = summary_table([*found, *(replace(m, nodes=2000) for m in found)])
    assert [column.header for column in table.columns] == [
        "event",
        f"200 nodes, {operators} operators",
        f"2,000 nodes, {operators} operators",
    ]
    assert table.row_count == len(found)


def test_too_few_nodes_are_refused() -> None:
    result = CliRunner().invoke(cli, ["bench", "live", "--sizes", "1000,100"])
    assert result.exit_code == 2
    assert "200 nodes or more" in " ".join(result.output.split())


def test_random_events_are_checked_and_counted() -> None:
    result = CliRunner().invoke(main, ["--nodes", "60", "--events", "40"])
    assert result.exit_code == 0, result.output
    assert "moves per event" in result.stdout
    assert "times that of a full optimization" in result.stdout


def test_what_does_not_hold_is_noticed() -> None:
    from nova_core.placement.live import FailNode, LivePlacement
    from nova_core.strategies import place

    problem = generate(60, seed=1)
    live = LivePlacement(problem, place(problem))
    old = live.plan()
    host = str(problem.nodes.ids[old.instances.node[0]])
    delta = live.apply(FailNode(node=host))
    check(live, delta, problem, old)
    state = live._state
    state.nodes.free[5] += 1
    with pytest.raises(BrokenPromiseError, match="free capacities"):
        check(live, delta, problem, old)
    state.nodes.free[5] -= 1
    state.index.replace(int(state.operators.host[3]), None)
    with pytest.raises(BrokenPromiseError, match="index of hosts"):
        check(live, delta, problem, old)


def test_one_seed_gives_one_stream() -> None:
    problem = generate(60, seed=1)
    first, second = RandomEvents(problem, 3), RandomEvents(problem, 3)
    assert [first.next() for _ in range(30)] == [second.next() for _ in range(30)]
