from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_plans import random_plan, sources_of

from nova_core.errors import NovaError
from nova_engines.flow import Flow, Match
from nova_engines.flow_of_plan import flow_of
from nova_engines.sources import Sources
from nova_flink.translate import translate


def test_a_directory_for_every_node_and_the_job(tmp_path: Path) -> None:
    plan = random_plan(2, routes=True)
    target = tmp_path / "out"
    written = translate(plan, plan.problem, target, home="/opt/flink home", window_ms="20")
    assert sorted(p for p in target.rglob("*") if p.is_file()) == written
    flow = Flow.read(target / "job" / "flow.json")
    assert flow == flow_of(plan, Match(20))
    assert len(list((target / "nodes").iterdir())) == len(flow.nodes)
    assert len(list(target.rglob("jobmanager.sh"))) == 1
    for script in target.rglob("*.sh"):
        subprocess.run(["sh", "-n", script], check=True)
    assert "|" in (target / "README.md").read_text()


def test_the_job_needs_nothing_of_nova_that_is_not_in_the_directory(tmp_path: Path) -> None:
    plan = random_plan(2)
    translate(plan, plan.problem, tmp_path / "out")
    # Without the packages of this environment: an editable install would find the checkout.
    job = subprocess.run(
        [sys.executable, "-S", "-m", "nova_flink.submit", "--help"],
        env={"PYTHONPATH": str(tmp_path / "out" / "job" / "modules")},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    assert "Start the job on the cluster" in job.stdout


def test_given_sources_are_used(tmp_path: Path) -> None:
    plan = random_plan(2)
    sources = sources_of(plan.problem, 5000, seconds=1)
    (tmp_path / "w.json").write_text(sources.to_json())
    translate(plan, plan.problem, tmp_path / "out", sources=tmp_path / "w.json")
    assert Sources.read(tmp_path / "out" / "job" / "sources.json") == sources


def test_streams_come_from_sockets(tmp_path: Path) -> None:
    plan = random_plan(2, regions=1)
    ids = [str(one) for one in plan.problem.sources.ids]
    text = ", ".join(f"{one}=10.0.0.{i}:{9000 + i}" for i, one in enumerate(ids))
    translate(plan, plan.problem, tmp_path / "out", sockets=text)
    made = Sources.read(tmp_path / "out" / "job" / "sources.json")
    assert {one.source: (one.kind, *one.endpoint) for one in made.sources} == {
        one: ("socket", f"10.0.0.{i}", 9000 + i) for i, one in enumerate(ids)
    }
    for bad, complaint in {
        "pressure-0=a:1": "option sockets: no address for humidity-1, pressure-2",
        "pressure-0=a:1,pressure-0=a:2": "option sockets: 'pressure-0=a:2': is there twice",
        "pressure-9=a:1": "sources: 'pressure-9' is not there; there are pressure-0",
        "a:1": "option sockets: 'a:1': expected SOURCE=HOST:PORT",
        text.replace(":9001", ""): "address '10.0.0.1': expected host:port",
    }.items():
        with pytest.raises(NovaError, match=complaint):
            translate(plan, plan.problem, tmp_path / "bad", sockets=bad)
    assert not (tmp_path / "bad").exists()


def test_streams_come_from_kafka(tmp_path: Path) -> None:
    plan = random_plan(2, regions=1)
    given = {"kafka": "10.0.0.9:9092", "connectors": "/opt/connectors", "home": "/opt/flink"}
    translate(plan, plan.problem, tmp_path / "out", topics="pressure-2=other:7", **given)
    job = tmp_path / "out" / "job"
    made = Sources.read(job / "sources.json")
    assert {
        one.source: (one.kind, one.address, one.topic, one.partition) for one in made.sources
    } == {
        "pressure-0": ("kafka", "10.0.0.9:9092", "pressure", 0),
        "humidity-1": ("kafka", "10.0.0.9:9092", "humidity", 0),
        "pressure-2": ("kafka", "10.0.0.9:9092", "other", 7),
    }
    assert {(one.begin, one.group) for one in made.sources} == {("earliest", "")}
    where = {"begin": "committed", "group": "readers"}
    translate(plan, plan.problem, tmp_path / "group", **given, **where)
    made = Sources.read(tmp_path / "group" / "job" / "sources.json")
    assert {(one.begin, one.group) for one in made.sources} == {("committed", "readers")}
    assert "from committed on" in (tmp_path / "group" / "README.md").read_text()
    with pytest.raises(NovaError, match="there is no broker"):
        translate(plan, plan.problem, tmp_path / "bad", group="readers")
    jar = "/opt/connectors/lib/flink-sql-connector-kafka-5.0.0-2.2.jar"
    assert jar in (job / "submit.sh").read_text()
    for script in (tmp_path / "out").rglob("taskmanager.sh"):
        assert jar in script.read_text()
    assert "| pressure-2 | 10.0.0.9:9092 | other | 7 |" in (tmp_path / "out/README.md").read_text()
    for bad, complaint in {
        "topics": "there is no broker: give kafka",
        "sockets": "options sockets and kafka: give one",
    }.items():
        options = {"topics": "pressure-0=a:0"} if bad == "topics" else {**given, "sockets": "x"}
        with pytest.raises(NovaError, match=complaint):
            translate(plan, plan.problem, tmp_path / "bad", **options)
    with pytest.raises(NovaError, match="pressure-0=a: expected SOURCE=TOPIC:PARTITION"):
        translate(plan, plan.problem, tmp_path / "bad", topics="pressure-0=a", **given)


def test_hosts_are_reached_at_their_addresses(tmp_path: Path) -> None:
    plan = random_plan(2)
    nodes = replace(
        plan.problem.nodes, host=np.array([f"10.0.0.{i}" for i in range(len(plan.problem.nodes))])
    )
    problem = replace(plan.problem, nodes=nodes)
    translate(replace(plan, problem=problem), problem, tmp_path / "out")
    sink = int(problem.joins.sink[0])
    assert f"http://10.0.0.{sink}:8081" in (tmp_path / "out" / "job" / "submit.sh").read_text()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"window": 1}, "option 'window': unknown; Flink takes sources, window_ms"),
        ({"window_ms": "a"}, "option window_ms: 'a': expected a whole number"),
        ({"window_ms": 0}, "window_ms 0: expected 1 to "),
        ({"coordinator": "x"}, "option coordinator: 'x' is no node"),
        ({"sources": "/nowhere.json"}, "/nowhere.json: no such file"),
        ({"work": "here"}, "work_directory: 'here': expected an absolute path"),
    ],
)
def test_bad_options_leave_nothing(tmp_path: Path, options: dict[str, Any], complaint: str) -> None:
    plan = random_plan(2)
    with pytest.raises(NovaError, match=complaint):
        translate(plan, plan.problem, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    plan = random_plan(2)
    (tmp_path / "mine").write_text("x")
    with pytest.raises(NovaError, match="is there already"):
        translate(plan, plan.problem, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
