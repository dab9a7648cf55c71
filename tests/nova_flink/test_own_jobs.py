"""What jobs of anybody's say of themselves, without a cluster; with one see test_own_jobs_e2e."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from nova_core.errors import NovaError
from nova_engines.names import sanitised
from nova_flink import commands, moving, names, observing, own_jobs
from nova_flink.observing import observe
from nova_flink.pin import PinError, pin
from nova_flink.rest import FlinkError, Rest

JOIN = """[13]:WindowJoin(joinType=[InnerJoin]) [nova metrics=WindowJoin[13]] \
[nova id=windowjoin#0 at=barn]<br/>\
+- [14]:Calc(select=[n]) [nova metrics=join (n, m) -&gt; n] [nova id=windowjoin at=barn]<br/>"""
SOURCE = "Source: x [nova metrics=Source__x[1]] [nova id=x at=hill_2e_1]<br/>"
MANAGERS = {
    "10.0.0.7:6122-ab": {"totalResource": {"extendedResources": {"node-barn": 1000}}},
    "tm-hill_2e_1": {"totalResource": {"extendedResources": {}}},
}


class Told(Rest):
    """A cluster that runs one job."""

    def __init__(self, manager: str = "10.0.0.7:6122-ab", state: str = "RUNNING") -> None:
        super().__init__("http://flink")
        self.manager, self.count = manager, 0
        vertices = [
            {"id": "a", "name": "Source: x[1]"},
            {"id": "b", "name": "WindowJoin[13] -> join (n, m) -> n"},
        ]
        plan = {
            "nodes": [
                {"id": "a", "description": SOURCE},
                {"id": "b", "description": JOIN, "inputs": [{"id": "a"}]},
            ]
        }
        self.known: dict[str, Any] = {
            "/jobs/overview": {"jobs": [{"jid": "1", "name": "sums", "state": "RUNNING"}]},
            "/jobs/1": {"vertices": vertices, "plan": plan, "state": state},
            "/jobs/1/status": {"status": state},
            "/taskmanagers": {"taskmanagers": [{"id": k, **v} for k, v in MANAGERS.items()]},
            "/jobs/1/vertices/a": self._subtask("tm-hill_2e_1"),
            "/jobs/1/vertices/b": self._subtask(manager),
        }

    @staticmethod
    def _subtask(manager: str) -> Mapping[str, Any]:
        return {"subtasks": [{"taskmanager-id": manager, "status": "RUNNING"}]}

    def get(self, path: str) -> Any:
        plain, _, query = path.partition("?")
        if not plain.endswith("/metrics"):
            return self.known[plain]
        metrics = {
            "a": ["Source__x[1].numRecordsOut", "numRecordsOut"],
            "b": ["WindowJoin[13].numRecordsOut", "join (n, m) -> n.numRecordsOut"],
        }[plain.split("/")[4]]
        if not query:
            return [{"id": one} for one in metrics]
        self.count += 50
        return [{"id": one, "sum": self.count} for one in metrics]


def test_a_job_is_verified_by_what_it_carries() -> None:
    assert own_jobs.find(Told(), "sums") == "1"
    assert own_jobs.verify(Told(), "1").ok
    wrong = own_jobs.verify(Told(manager="tm-hill_2e_1"), "1")
    assert [(row.operator, row.node, row.actual) for row in wrong.misplaced] == [
        ("windowjoin#0", "barn", "hill.1"),
        ("windowjoin", "barn", "hill.1"),
    ]
    assert wrong.summary() == "not as planned"
    failed = own_jobs.verify(Told(state="FAILED"), "1")
    assert not failed.ok and failed.placed and failed.summary().startswith("the job is FAILED")
    assert failed.to_plain()["state"] == "FAILED"
    assert own_jobs.verify(Told(state="FINISHED"), "1").ok
    with pytest.raises(FlinkError, match="there is no job of that id or name"):
        own_jobs.find(Told(), "other")


def test_a_batch_job_is_verified_when_all_of_it_has_begun() -> None:
    rest = Told()
    rest.known["/jobs/1"]["pending-operators"] = 2
    early = own_jobs.verify(rest, "1")
    assert not early.ok and not early.misplaced
    assert [row.operator for row in early.unexpected] == ["2 more, which wait for others to end"]
    # Flink's batch scheduler makes a vertex first, and decides on its subtasks a moment later.
    rest = Told()
    rest.known["/jobs/1/vertices/b"] = {"subtasks": []}
    assert len(own_jobs.verify(rest, "1").missing) == 2


def test_a_job_that_never_passed_nova_says_nothing() -> None:
    rest = Told()
    for node in rest.known["/jobs/1"]["plan"]["nodes"]:
        node["description"] = "Map"
    with pytest.raises(FlinkError, match="it was not submitted with"):
        own_jobs.verify(rest, "1")


def test_rates_are_put_into_the_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nova_flink.observing.SETTLE_S", 0.0)
    problem = {
        "nova": 1,
        "sources": [{"id": "x", "node": "hill.1", "stream": "x", "rate": 1}],
        "queries": [
            {"id": "out", "sink": "hub", "operators": [
                {"id": "windowjoin", "kind": "aggregate", "input": "x", "output_rate": 1}]}
        ],
    }  # fmt: skip
    found = observe(Told(), "1", problem, 0.05)
    assert found["sources"][0]["rate"] > 1
    assert found["queries"][0]["operators"][0]["output_rate"] > 1
    with pytest.raises(NovaError, match="is it a problem of another job"):
        observe(Told(), "1", problem | {"sources": [{"id": "y"}]}, 0.05)
    with pytest.raises(FlinkError, match="only a running one"):
        observe(Told(state="FINISHED"), "1", problem, 0.05)


def test_operators_of_one_name_are_not_confused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nova_flink.observing.SETTLE_S", 0.0)
    rest = Told()
    nodes = rest.known["/jobs/1"]["plan"]["nodes"]
    problem = {"sources": [{"id": "x", "stream": "x", "rate": 1}], "queries": []}
    # The last one's tuples all leave the vertex, which Flink counts as well.
    nodes[0]["description"] = SOURCE + SOURCE
    assert observe(rest, "1", problem, 0.05)["sources"][0]["rate"] > 1
    nodes[0]["description"] = SOURCE + SOURCE + SOURCE.replace("id=x", "id=other")
    with pytest.raises(FlinkError, match="x: its last operator is called like another one"):
        observe(rest, "1", problem, 0.05)


def test_what_is_observed_is_what_a_problem_says_of_each_kind() -> None:
    def operator(name: str, kind: str, *inputs: str) -> dict[str, Any]:
        of = {"inputs": list(inputs)} if kind == "join" else {"input": inputs[0]}
        return {"id": name, "kind": kind, **of}

    operators = [
        operator("union", "join", "parts", "y"),
        operator("less", "project", "union"),
        operator("more", "aggregate", "union"),
        operator("out~1", "join", "less", "more"),
    ]
    sources = [("parts", "parts"), ("parts-2", "parts"), ("y", "y")]
    problem = {
        "sources": [{"id": name, "stream": stream, "rate": 1} for name, stream in sources],
        "queries": [{"id": "out", "operators": operators}],
    }
    rates = {"parts": 30.0, "parts-2": 10.0, "y": 20.0, "union": 60.0, "less": 6.0, "more": 120.0}
    found = observing._with(problem, rates)["queries"][0]["operators"]
    figures = [
        {k: v for k, v in one.items() if k not in ("id", "input", "inputs")} for one in found
    ]
    assert figures == [
        # Of the two pairs that Nova has: min(30, 20) + min(10, 20).
        {"kind": "join", "selectivity": 2.0},
        {"kind": "aggregate", "output_rate": 6.0},
        {"kind": "project", "selectivity": 2.0},
        {"kind": "join", "selectivity": pytest.approx(126 / (6 + 6))},
    ]


@pytest.mark.parametrize(
    "queries", [[{"id": "out"}], [{"id": "out", "sink": "hub", "operators": [{"id": "sums"}]}]]
)
def test_a_damaged_problem_is_not_observed(tmp_path: Path, queries: list[Any]) -> None:
    sources = [{"id": "x", "node": "hill", "stream": "x", "rate": 1}]
    file = tmp_path / "problem.json"
    file.write_text(json.dumps({"nova": 1, "sources": sources, "queries": queries}))
    arguments = ["sums", str(file), "--rest", "127.0.0.1:9", "-o", str(tmp_path / "out.json")]
    with pytest.raises(NovaError, match=r"problem\.json: .*queries\[0\]"):
        commands.observe.main(arguments, standalone_mode=False)


@pytest.mark.parametrize(
    ("section", "rows"),
    [
        ("instances", [{"operator": "j/a*b"}]),
        ("edges", [{"from": "hill", "to": "barn", "consumer": 7, "input": "left"}]),
        ("edges", ["hill"]),
    ],
)
def test_no_job_is_pinned_by_a_damaged_plan(section: str, rows: list[Any]) -> None:
    plan = {
        "nova_plan": 2,
        "instances": [{"operator": "j/a*b", "node": "barn"}],
        "edges": [{"from": "barn", "to": "hub", "producer": 0}],
    }
    with pytest.raises(PinError, match="plan: is damaged: "):
        pin(None, plan | {section: rows})


KEYS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join)
DOCUMENTS = st.recursive(
    st.integers(), lambda inner: st.dictionaries(KEYS, inner, min_size=1, max_size=3), max_leaves=6
).filter(lambda one: isinstance(one, dict))


@given(DOCUMENTS, KEYS)
def test_a_setting_is_replaced_however_it_was_written(document: dict[str, Any], key: str) -> None:
    text = yaml.safe_dump(document)
    # As the text has it: of a setting that is written in two ways, the last one counts.
    before = _flattened(yaml.safe_load(text))
    assume(not any(f"{name}.".startswith(f"{key}.") and name != key for name in before))
    after = _flattened(yaml.safe_load(moving.configured(text, {key: "new"})))
    assert after == before | {key: "new"}


def _flattened(document: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            found |= _flattened(value, f"{above}{name}.")
        else:
            found[f"{above}{name}"] = value
    return found


ADDRESSES = {"hill.1": "hill.1", "room 2": "worker-2"}
NODES = """\
nova: 1
nodes:
  - {id: hill.1, capacity: 10}
  - {id: "room 2", capacity: 20, host: worker-2}
"""

PROBLEM = """\
nova: 1
nodes: [{id: a, capacity: 10, position: [0, 0]}, {id: b, capacity: 10, position: [1, 1]}]
sources: [{id: t1, node: a, stream: T, rate: 1}, {id: h1, node: a, stream: H, rate: 1}]
query: {operators: [{id: j, left: T, right: H, sink: b}]}
"""


def _task_managers(tmp_path: Path, *options: str, nodes: str = NODES) -> Path:
    file, out = tmp_path / "nodes.yaml", tmp_path / f"made{len(options)}"
    file.write_text(nodes)
    commands.flink.main(
        ["taskmanagers", str(file), "-o", str(out), *options], standalone_mode=False
    )
    return out


def test_a_task_manager_of_any_cluster_needs_three_settings(tmp_path: Path) -> None:
    made = _task_managers(tmp_path)
    names_of = {f"{sanitised(node)}.{end}" for node in ADDRESSES for end in ("yaml", "options")}
    assert {path.name for path in made.iterdir()} == {"README.md", *names_of}
    told = yaml.safe_load((made / "hill_2e_1.yaml").read_text())
    assert told == {
        "taskmanager.resource-id": "tm-hill_2e_1",
        "external-resources": "node-hill_2e_1",
        "external-resource.node-hill_2e_1.amount": 1000,
    }


@pytest.mark.parametrize(
    ("nodes", "options", "words"),
    [
        ("nova: 1\nnodes: []", [], "nodes: none"),
        ("nova: 1\nname: field", [], "field 'nodes' is missing"),
        ("nova: 1\nnodes: [{id: a, capacity: 1}, {id: a, capacity: 1}]", [], "'a'"),
        ("nova: 1\nnodes: [{id: a, capacty: 1}]", [], "capacty"),
        ("nova: 1\nnodes: [{id: a, capacity: 1, host: 'a b'}]", [], "'a b' is not a host name"),
        # A problem that no other command takes.
        (f"{NODES}query: {{operators: []}}", [], "none has a position"),
        (PROBLEM.replace("id: h1", "id: t1"), [], r"'t1' is already used by sources\[0\]"),
        (NODES, ["--image", "mine:1"], "go with --kubernetes"),
    ],
)
def test_no_settings_of_damaged_nodes(
    tmp_path: Path, nodes: str, options: list[str], words: str
) -> None:
    with pytest.raises(NovaError, match=words):
        _task_managers(tmp_path, *options, nodes=nodes)
    assert [path.name for path in tmp_path.iterdir()] == ["nodes.yaml"]


def test_nodes_may_be_in_a_file_whose_name_is_no_utf8(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"\xff.yaml")
    file.write_text(NODES)
    words = ["taskmanagers", str(file), "-o", str(tmp_path / "made")]
    commands.flink.main(words, standalone_mode=False)
    assert "Nodes of \ufffd.yaml" in (tmp_path / "made" / "README.md").read_text()


def test_savepoints_go_to_no_empty_path(tmp_path: Path) -> None:
    plan = str(tmp_path)  # is not reached
    words = ["move", "job", plan, "--rest", "127.0.0.1:9", "--savepoints", "", "--", "true"]
    with pytest.raises(click.BadParameter, match="the path is empty"):
        commands.flink.main(words, standalone_mode=False)


def test_a_task_manager_per_node_on_kubernetes(tmp_path: Path) -> None:
    made = _task_managers(tmp_path, "--kubernetes", "--image", "mine:1", "--memory", "2g")
    assert {path.name for path in made.iterdir()} == {
        *("README.md", "jobmanager.yaml", "taskmanagers.yaml")
    }
    service, manager = yaml.safe_load_all((made / "jobmanager.yaml").read_text())
    assert service["spec"]["selector"] == manager["spec"]["selector"]["matchLabels"]
    sets = list(yaml.safe_load_all((made / "taskmanagers.yaml").read_text()))
    assert [one["metadata"]["annotations"]["nova/node"] for one in sets] == list(ADDRESSES)
    names_of_sets = [one["metadata"]["name"] for one in sets]
    assert len(set(names_of_sets)) == len(ADDRESSES)
    for (node, host), one in zip(ADDRESSES.items(), sets, strict=True):
        assert one["kind"] == "StatefulSet" and one["spec"]["replicas"] == 1
        pod = one["spec"]["template"]
        assert pod["metadata"]["labels"] == one["spec"]["selector"]["matchLabels"]
        assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": host}
        (container,) = pod["spec"]["containers"]
        assert (container["image"], container["args"]) == ("mine:1", ["taskmanager"])
        told = yaml.safe_load(container["env"][0]["value"])
        assert told["taskmanager.resource-id"] == names.task_manager(node)
        assert told["jobmanager.rpc.address"] == service["metadata"]["name"]
        assert told["taskmanager.memory.process.size"] == "2g"
    # Beside a JobManager that is there.
    beside = _task_managers(tmp_path, "--kubernetes", "--jobmanager", "flink-rest")
    assert not (beside / "jobmanager.yaml").exists()
    assert "jobmanager.rpc.address: flink-rest" in (beside / "taskmanagers.yaml").read_text()
