from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from nes_placer import ORDERS, place
from nes_plans import moved, nes_plan

from nova_core.io.examples import load_example
from nova_core.model.plan import Plan
from nova_core.strategies import create
from nova_nebulastream.current import SCHEMA
from nova_nebulastream.translate import translate
from nova_nebulastream.views import View, views


def topologies(plan: Plan, target: Path, **options: Any) -> list[tuple[View, dict[str, Any]]]:
    translate(plan, plan.problem, target, **options)
    files = sorted((target / "topologies").iterdir())
    found = views(plan, plan.problem)
    return [(v, yaml.safe_load(f.read_text())) for v, f in zip(found, files, strict=True)]


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
    fields = {f["name"] for one in document["logical"] for f in one["schema"]}
    assert len(fields) == 8  # joined inputs share no name


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("routes", "together"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("order", ORDERS)
def test_only_the_planned_placement_is_possible(
    seed: int, routes: bool, together: bool, order: tuple[str, str], tmp_path: Path
) -> None:
    plan = nes_plan(seed, routes=routes, together=together)
    for view, document in topologies(plan, tmp_path / "out"):
        check_document(document)
        host = {node: f"10.0.0.{node.removeprefix('n ')}:8080" for node in view.nodes}
        best = place(document, order=order)
        assert best is not None
        cost, chosen = best
        for name in ("join", "all", "select"):
            assert chosen[name] == host[view.node]
            assert place(document, (name, host[view.node]), order) is None
        assert chosen["sink"] == host[view.sink]
        for one in view.inputs:
            assert chosen[f"source {one.side}"] == host[one.node]
            if one.share.whole:
                continue
            crossing = one.node != view.node
            through = any(one.node in o.route[1:] for o in view.inputs if o is not one)
            if crossing and not through:
                other = place(document, (f"filter {one.side}", host[one.node]), order)
                assert chosen[f"filter {one.side}"] == host[one.node]
                assert other is None or other[0] > cost + 0.5


def test_the_stand_in_would_place_elsewhere_without_the_view(tmp_path: Path) -> None:
    """Left to itself it joins at the sources: the test above can fail."""
    plan = moved(nes_plan(0, together=True), 5)
    _, document = topologies(plan, tmp_path / "out")[0]
    for worker in document["workers"]:
        worker["max_operators"] = 100
    best = place(document)
    assert best is not None
    assert best[1]["join"] == "10.0.0.0:8080"


def test_the_running_example(tmp_path: Path) -> None:
    problem = load_example("running-example")
    plan = create("nova").place(problem)
    made = topologies(plan, tmp_path / "out")
    assert len(made) == len(plan.instances)
    assert any("WHERE" in document["query"] for _, document in made)
    for view, document in made:
        check_document(document)
        best = place(document)
        assert best is not None
        assert best[1]["join"] == f"{view.node}:8080"


def test_files_instead_of_generators(tmp_path: Path) -> None:
    options = {"source": "file", "file": "/data/{source}.csv"}
    _, document = topologies(nes_plan(1), tmp_path / "out", **options)[0]
    check_document(document)
    assert document["physical"][0]["source_config"] == {"file_path": "/data/p_1.csv"}
    names = [field["name"] for field in document["sinks"][0]["schema"]]
    assert names[:3] == ["start", "end", "left_key"]


def test_scripts_are_shell_and_start_every_query(tmp_path: Path) -> None:
    """Run with a nes-cli that only writes down how it was called."""
    made = topologies(nes_plan(2), tmp_path / "out")
    for script in (tmp_path / "out").rglob("*.sh"):
        subprocess.run(["sh", "-n", script], check=True)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nes-cli").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\necho id-$$\n')
    (tools / "nes-cli").chmod(0o755)
    environment = {"PATH": f"{tools}:/usr/bin:/bin"}
    for script, command in (("check", "dump"), ("start", "start"), ("stop", "stop")):
        (tmp_path / "calls").unlink(missing_ok=True)
        subprocess.run(
            [tmp_path / "out" / f"{script}.sh"], check=True, env=environment, capture_output=True
        )
        calls = (tmp_path / "calls").read_text().splitlines()
        assert [line.split()[2] for line in calls] == [command] * len(made)
    assert not (tmp_path / "out" / "queries.txt").exists()


def test_nes_cli_accepts_every_topology(tmp_path: Path) -> None:
    if shutil.which("nes-cli") is None:
        pytest.skip("needs nes-cli on the PATH: NebulaStream has no binary to download")
    for seed in range(3):
        translate(nes_plan(seed), nes_plan(seed).problem, tmp_path / str(seed))
        subprocess.run([tmp_path / str(seed) / "check.sh"], check=True, timeout=120)
