"""Sinks host joins where they have room; nodes that a problem leaves out are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_core import evaluate, place, read_problem
from nova_core.left_out import left_out
from nova_core.strategies import names

# Five sites. The sink, in the cloud, has room for everything; the sites near it have not.
FIVE_SITES = """\
nova: 1
name: five sites
nodes:
- {id: lisbon, position: [0, 0], capacity: 900}
- {id: oslo, position: [40, 36], capacity: 900}
- {id: rome, position: [44, -22], capacity: 900}
- {id: fog, position: [18, 26], capacity: 3000}
- {id: cloud, position: [28, 4], capacity: 20000WORKER}
sources:
- {id: warmth-west, node: lisbon, stream: warmth, rate: 600, key: west}
- {id: damp-west, node: oslo, stream: damp, rate: 600, key: west}
- {id: warmth-south, node: lisbon, stream: warmth, rate: 700, key: south}
- {id: damp-south, node: rome, stream: damp, rate: 700, key: south}
query:
  operators:
  - {id: weather, left: warmth, right: damp, sink: cloud}
"""


def five_sites(directory: Path, worker: str = "") -> Path:
    path = directory / "five.yaml"
    path.write_text(FIVE_SITES.replace("WORKER", worker))
    return path


def mean(problem: Path, strategy: str) -> float:
    return evaluate(place(read_problem(problem), strategy)).estimated.mean


@pytest.mark.parametrize("strategy", ["nova", "nova-paper", "top-c", "ilp"])
def test_a_sink_with_room_hosts(strategy: str, tmp_path: Path) -> None:
    problem = five_sites(tmp_path)
    plan = place(read_problem(problem), strategy)
    assert {plan.problem.nodes.ids[v] for v in plan.instances.node} == {"cloud"}
    assert mean(problem, strategy) <= mean(problem, "sink")
    assert left_out(plan) is None


def test_no_strategy_that_keeps_it_uses_a_node_left_out(tmp_path: Path) -> None:
    problem = read_problem(five_sites(tmp_path, ", worker: false"))
    cloud = problem.node_index["cloud"]
    for name in names():
        plan = place(problem, name)
        if "worker" not in plan.breaks:
            assert cloud not in plan.instances.node, name


def test_what_a_node_left_out_would_have_given(tmp_path: Path) -> None:
    kept, used = tmp_path / "kept", tmp_path / "used"
    kept.mkdir()
    used.mkdir()
    problem = five_sites(kept, ", worker: false")
    found = left_out(place(read_problem(problem), "nova"))
    assert found is not None
    assert (found.nodes, found.capacity) == (("cloud",), 20_000)
    assert found.cost == pytest.approx(mean(problem, "nova"))
    assert found.cost_with == pytest.approx(mean(five_sites(used), "nova"))
    assert found.cost_with < found.cost
    assert str(found) == (
        "cloud (20,000 tuples/s) is no worker and hosts no joins; with it (worker: true), mean "
        f"latency would be {found.cost_with:.1f} instead of {found.cost:.1f} ms"
    )
    usage = left_out(place(read_problem(problem), "nova", objective="network-usage"))
    assert usage is not None and usage.cost_with is not None
    assert usage.measure == "network usage" and usage.cost_with < usage.cost
    assert left_out(place(read_problem(problem), "sink")) is None  # it does not care


def test_where_placing_again_would_take_long_it_is_only_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = read_problem(five_sites(tmp_path, ", worker: false"))
    by_search = left_out(place(problem, "ilp"))
    monkeypatch.setattr("nova_core.left_out.MOST_PLACES", 9)
    large = left_out(place(problem, "nova"))
    for found in (by_search, large):
        assert found is not None and found.cost_with is found.cost is None
        assert str(found) == "cloud (20,000 tuples/s) is no worker and hosts no joins"


def test_commands_name_it(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from nova_core.cli import cli

    def nova(*arguments: object) -> str:
        result = CliRunner().invoke(cli, [str(one) for one in arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    problem, plan = five_sites(tmp_path, ", worker: false"), tmp_path / "plan.json"
    told = "cloud (20,000 tuples/s) is no worker and hosts no joins; with it"
    assert told in nova("plan", problem, "-o", plan)
    assert told in nova("explain", plan, "-p", problem)
    node = nova("explain", plan, "-p", problem, "--node", "cloud")
    assert told in node
    assert "Would gain by being here" in node  # as it may not host, nobody asks for it otherwise
    nova("plot", plan, "-p", problem, "-o", tmp_path / "plan.svg")
    picture = (tmp_path / "plan.svg").read_text()
    assert told in picture and "has capacity, but is no worker" in picture
    assert "no worker" not in nova("plan", five_sites(tmp_path))
