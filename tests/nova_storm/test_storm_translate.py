"""Plans as topologies, storm.yaml fragments and scripts."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from random_plans import random_plan, sources_of

from nova_core.errors import NovaError
from nova_core.model import Plan
from nova_engines.flow import CUT, JOIN, RELAY, SELECT, SINK, SOURCE, Flow, Match
from nova_engines.flow_of_plan import flow_of
from nova_engines.sources import Source, Sources
from nova_engines.verification import MISSING, RUNNING, STARTING
from nova_storm.configuration import ClusterConfiguration, Node
from nova_storm.flux import START, topology
from nova_storm.translate import translate
from nova_storm.verification import verify


@pytest.fixture
def plan() -> Plan:
    return random_plan(1, routes=True, sinks=2)


@pytest.fixture
def flow(plan: Plan) -> Flow:
    return flow_of(plan, Match(100, 7))


def test_every_operator_is_a_component_with_a_node(plan: Plan, flow: Flow) -> None:
    sources = sources_of(plan.problem, 5000)
    made = topology(flow, sources, "/r/results")
    components = {one["id"]: one for one in (*made["spouts"], *made["bolts"])}
    assert set(components) == {one.name for one in flow.operators}
    assert {one.kind for one in flow.operators} == {SOURCE, CUT, RELAY, SELECT, JOIN, SINK}
    assert made["config"]["nova.placement"] == {one.name: one.node for one in flow.operators}
    assert made["config"]["topology.workers"] == len(flow.nodes)
    edges = {(one["from"], one["to"]) for one in made["streams"]}
    assert edges == {
        (name, one.name) for one in flow.operators for name in (*one.inputs, *one.right)
    }
    for number, one in enumerate(flow.joins):
        assert components[one.name]["constructorArgs"] == [number, list(one.inputs), 100, 7, 1]
    files = [components[one.name]["constructorArgs"] for one in flow.sinks]
    assert files == [["/r/results"], ["/r/results.1"]]
    for one in flow.of_kind("relay"):
        flag = components[one.name]["constructorArgs"][0]
        assert flag == one.inputs[0].startswith(("join ", "relay join "))
    for one in (*flow.of_kind(CUT), *flow.of_kind(SELECT)):
        low, high = components[one.name]["constructorArgs"]
        assert (tuple(low), tuple(high)) == (one.low, one.high)


def test_topology_survives_yaml(plan: Plan, flow: Flow) -> None:
    sources = sources_of(plan.problem, 5000)
    made = topology(flow, sources, "/r")
    assert yaml.safe_load(yaml.safe_dump(made)) == made


def test_start_is_left_to_submitting(plan: Plan, flow: Flow) -> None:
    sources = sources_of(plan.problem, 0)
    made = topology(flow, sources, "/r")
    assert all(one["constructorArgs"][4] == START for one in made["spouts"])
    # Flux puts the number in before the YAML is read: quotes would make it text.
    assert f"- {START}\n" in yaml.safe_dump(made)


@pytest.mark.parametrize("name", ["", "a.b", "a/b", "a:b"])
def test_names_that_storm_refuses(plan: Plan, flow: Flow, name: str) -> None:
    sources = sources_of(plan.problem, 0)
    with pytest.raises(NovaError, match="expected a name without any of"):
        topology(flow, sources, "/r", name)


def test_sources_that_do_not_replay_are_refused(plan: Plan, flow: Flow) -> None:
    streams = tuple(
        Source(str(one), 1.0, kind="socket", address="a:1") for one in plan.problem.sources.ids
    )
    with pytest.raises(NovaError, match="kind 'socket': on Storm sources replay"):
        topology(flow, Sources(streams), "/r")


def configuration() -> ClusterConfiguration:
    return ClusterConfiguration([Node("a b", "10.0.0.1")], "/h o", "10.0.0.9", "/w")


def test_supervisor_says_whose_it_is() -> None:
    made = configuration().supervisor(Node("a b", "10.0.0.1"))
    assert made["supervisor.scheduler.meta"] == {"nova.node": "a b"}
    assert made["storm.local.hostname"] == "10.0.0.1"
    assert made["storm.scheduler"] == "nova.storm.PlanScheduler"
    assert made["supervisor.thrift.port"] not in made["supervisor.slots.ports"]


def test_nodes_on_one_address_are_refused() -> None:
    with pytest.raises(NovaError, match="node 'b': at h, as 'a'"):
        ClusterConfiguration([Node("a", "h"), Node("b", "h")], "/home", "h", "/w")


def test_files_are_what_the_readme_promises(plan: Plan, tmp_path: Path) -> None:
    made = tmp_path / "out"
    files = translate(plan, plan.problem, made, home="/opt/storm home", name="climate")
    names = {str(path.relative_to(made)) for path in files}
    assert {
        "README.md",
        "coordinator/nimbus.yaml",
        "coordinator/start.sh",
        "coordinator/zookeeper.sh",
        "job/topology.yaml",
        "job/submit.sh",
        "job/kill.sh",
        "nodes/n_5f_0_2e_x/supervisor.yaml",
        "nodes/n_5f_0_2e_x/stop.sh",
    } <= names
    for path in made.rglob("*.sh"):
        subprocess.run(["sh", "-n", path], check=True)
        assert path.stat().st_mode & 0o111
    assert "'/opt/storm home/lib/*:" in (made / "job" / "submit.sh").read_text()
    assert yaml.safe_load((made / "job" / "topology.yaml").read_text())["name"] == "climate"
    with pytest.raises(NovaError, match="is there already"):
        translate(plan, plan.problem, made)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colour": "red"}, "option 'colour': unknown; Storm takes sources"),
        ({"window_ms": "soon"}, "option window_ms: 'soon': expected a whole number"),
        ({"work": "here"}, "option work: 'here': expected an absolute path"),
        ({"coordinator": "nowhere"}, "option coordinator: 'nowhere' is no node"),
        ({"sources": "/nonexistent"}, "/nonexistent: no such file"),
    ],
)
def test_bad_options(plan: Plan, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(NovaError, match=message):
        translate(plan, plan.problem, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def executor(component: str, host: str, running: bool = True) -> dict[str, Any]:
    return {"component": component, "task": 1, "host": host, "port": 6701, "running": running}


def test_verification_compares_by_name(flow: Flow) -> None:
    reached = {node: f"10.0.0.{i}" for i, node in enumerate(flow.nodes)}
    right = [executor(one.name, reached[one.node]) for one in flow.operators]

    def seen(executors: list[dict[str, Any]]) -> Any:
        status = {"topologies": [{"name": "t", "scheduling": "said", "executors": executors}]}
        return verify(status, "t", flow.placement, reached)

    assert seen(right).ok
    assert seen(right).note == "said"
    moved = [*right[1:], executor(flow.operators[0].name, "elsewhere")]
    assert [row.actual for row in seen(moved).misplaced] == ["elsewhere"]
    gone = seen(right[1:])
    assert [row.status for row in gone.missing] == [MISSING]
    assert [row.operator for row in gone.missing] == [flow.operators[0].name]
    assert [row.operator for row in seen([*right, executor("x", "h")]).unexpected] == ["x"]
    young = [*right[1:], executor(flow.operators[0].name, right[0]["host"], False)]
    assert [row.status for row in seen(young).missing] == [STARTING]
    assert {row.status for row in seen(right).rows} == {RUNNING}
    with pytest.raises(NovaError, match=r"topology 'x': nimbus does not know it; there are: none"):
        verify({"topologies": []}, "x", flow.placement, reached)
