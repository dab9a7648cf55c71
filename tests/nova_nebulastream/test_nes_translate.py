from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from nes_plans import nes_plan
from nes_queries import forward_plan

from nova_core.errors import NovaError
from nova_core.model import Plan
from nova_nebulastream.bundle import Bundle
from nova_nebulastream.engine import NEBULASTREAM
from nova_nebulastream.topologies import SCHEMA
from nova_nebulastream.translate import translate


def topologies(directory: Path) -> list[dict[str, Any]]:
    files = sorted((directory / "topologies").iterdir())
    return [yaml.safe_load(file.read_text()) for file in files]


def check_document(document: dict[str, Any]) -> None:
    """Keeps the schema, and names only what it defines."""
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    hosts = {one["host"] for one in document["workers"]}
    logical = {one["name"] for one in document["logical"]}
    assert len(hosts) == len(document["workers"])
    assert {one["host"] for one in (*document["sinks"], *document["physical"])} <= hosts
    assert {host for one in document["workers"] for host in one.get("downstream", ())} <= hosts
    assert {one["logical"] for one in document["physical"]} == logical
    assert f"INTO {document['sinks'][0]['name']};" in document["query"]
    assert all(f"FROM {name}" in document["query"] for name in logical)


@pytest.mark.parametrize("routes", [False, True])
def test_files_are_those_told_and_scripts_are_shell(routes: bool, tmp_path: Path) -> None:
    plan, target = nes_plan(2, routes=routes), tmp_path / "out"
    written = NEBULASTREAM.translate(plan, plan.problem, target, {"window_ms": "250"})
    assert sorted(p for p in target.rglob("*") if p.is_file()) == written
    for script in target.rglob("*.sh"):
        subprocess.run(["sh", "-n", script], check=True)
    documents = topologies(target)
    for document in documents:
        check_document(document)
        assert "SIZE 250 MS" in document["query"]
    planned = Bundle(target).planned
    lines = (target / "placement.txt").read_text().splitlines()
    hosts = {node: f"{at}:8080" for node, at in planned.addresses.items()}
    assert lines == [
        " ".join([one.name.upper(), *(hosts[node] for node in one.placed)])
        for one in planned.queries
    ]
    assert len(documents) == len(lines) == len(plan.instances)


def test_whole_queries_read_files_or_what_the_user_says(tmp_path: Path) -> None:
    plan = forward_plan(34, tmp_path)
    own = tmp_path / "own.yaml"
    ids = plan.problem.sources.ids.tolist()
    tcp = {"type": "TCP", "source_config": {"socket_host": "sensors", "socket_port": 9}}
    own.write_text(yaml.safe_dump({ids[0]: tcp}))
    translate(plan, plan.problem, tmp_path / "out", sources=str(own))
    kinds = set()
    for document in topologies(tmp_path / "out"):
        check_document(document)
        for one in document["physical"]:
            kinds.add(one["type"])
            assert one["parser_config"]["type"] == "CSV"
            if one["type"] == "TCP":
                assert one["source_config"]["socket_host"] == "sensors"
    assert kinds == {"TCP", "File"}
    for text, complaint in (
        ("a: [", "line 2, column 1"),
        ("a: 1", "expected for each source: type"),
        ("a: {type: File}", "'a' is no source of the problem"),
    ):
        own.write_text(text)
        with pytest.raises(NovaError, match=complaint):
            translate(plan, plan.problem, tmp_path / "bad", sources=str(own))
    with pytest.raises(NovaError, match="whole queries say themselves what matches"):
        translate(plan, plan.problem, tmp_path / "bad", keys=3)
    with pytest.raises(NovaError, match="option source: 'generator': expected file"):
        translate(plan, plan.problem, tmp_path / "bad", source="generator")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"window": 1}, "option 'window': unknown; NebulaStream takes window_ms, keys"),
        ({"window_ms": "a"}, "option window_ms: 'a': expected a whole number"),
        ({"window_ms": 0}, "window_ms 0: expected 1 to "),
        ({"source": "tcp"}, "option source: 'tcp': expected generator or file"),
        ({"file": "/data/x.csv"}, r"file: '/data/x.csv': expected a path with \{source\} in it"),
        ({"results": '/d"{query}'}, "option results: .*expected a path"),
        ({"sources": "/nowhere/x.yaml"}, "/nowhere/x.yaml: cannot be read: No such file"),
    ],
)
def test_bad_options_leave_nothing(tmp_path: Path, options: dict[str, Any], complaint: str) -> None:
    plan = nes_plan(2)
    with pytest.raises(NovaError, match=complaint):
        translate(plan, plan.problem, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    plan = nes_plan(2)
    (tmp_path / "mine").write_text("x")
    with pytest.raises(NovaError, match="is there already"):
        translate(plan, plan.problem, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def refused(plan: Plan, tmp_path: Path, complaint: str) -> None:
    with pytest.raises(NovaError, match=complaint):
        translate(plan, plan.problem, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_addresses_and_names_that_cannot_be(tmp_path: Path) -> None:
    plan = nes_plan(0)
    nodes = plan.problem.nodes
    for host, complaint in (
        (np.full(len(nodes), ""), r"node .n \d.: its name is no host name"),
        (np.full(len(nodes), "same"), "address 'same': is that of 'n"),
        (
            np.array([f"::{n}" for n in range(len(nodes))]),
            "NebulaStream takes IPv4 addresses, and names",
        ),
    ):
        problem = replace(plan.problem, nodes=replace(nodes, host=host))
        refused(replace(plan, problem=problem), tmp_path, complaint)
    ids = np.array(["p/1", "p.1", "select"])
    problem = replace(plan.problem, sources=replace(plan.problem.sources, ids=ids))
    refused(replace(plan, problem=problem), tmp_path, "source 'p.1': in NebulaStream called 'p_1'")


def test_engine_without_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("NOVA_NES_HOME", raising=False)
    assert not NEBULASTREAM.installed()
    assert NEBULASTREAM.path == Path("nes-cli")
    with pytest.raises(NovaError, match="no nes-cli on the PATH"):
        NEBULASTREAM.install(print)
    for name in ("nes-cli", "nes-single-node-worker"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("NOVA_NES_HOME", str(tmp_path))
    told: list[str] = []
    NEBULASTREAM.install(told.append)
    assert NEBULASTREAM.installed()
    assert told == [f"{tmp_path / 'bin' / 'nes-cli'} is there"]
    assert "NebulaStream" in NEBULASTREAM.describe()


def test_a_bundle_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(NovaError, match=r"queries\.json"):
        Bundle(tmp_path)
    plan = nes_plan(2)
    translate(plan, plan.problem, tmp_path / "out")
    bundle = Bundle(tmp_path / "out")
    assert bundle.names() == []
    with pytest.raises(NovaError, match="nothing has been started from it"):
        bundle.read("")
    file = sorted((tmp_path / "out" / "topologies").iterdir())[0]
    for text, complaint in (("workers: [", "line 2, column 1"), ("a: 1", "expected the topology")):
        file.write_text(text)
        with pytest.raises(NovaError, match=complaint):
            bundle.topology(0)
