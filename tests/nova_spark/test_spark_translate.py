from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from needs import skip_or_fail
from random_plans import random_plan, sources_of
from random_queries import random_problem, random_query_plan

from nova_core.engines import load
from nova_core.errors import NovaError
from nova_engines.flow import Flow, Match
from nova_engines.flow_of_plan import flow_of
from nova_engines.sources import Sources
from nova_kafka.home import broker_home
from nova_spark.translate import translate


def test_a_directory_for_every_node_and_the_job(tmp_path: Path) -> None:
    plan = random_plan(2, routes=True)
    target = tmp_path / "out"
    options = {"window_ms": "20", "spark_home": "/opt/spark"}
    written = load("spark").translate(plan, plan.problem, target, options)
    assert sorted(p for p in target.rglob("*") if p.is_file()) == written
    flow = Flow.read(target / "job" / "flow.json")
    assert flow == flow_of(plan, Match(20))
    assert len(list((target / "nodes").iterdir())) == len(flow.nodes)
    assert len(list(target.rglob("master.sh"))) == 1
    for script in target.rglob("*.sh"):
        subprocess.run(["sh", "-n", script], check=True)
    readme = (target / "README.md").read_text()
    assert all(f"| {node} |" in readme for node in flow.nodes)


def test_the_job_needs_nothing_of_nova_that_is_not_in_the_directory(tmp_path: Path) -> None:
    plan = random_plan(2)
    translate(plan, plan.problem, tmp_path / "out")
    script = """
import sys
modules = sys.argv[1]
sys.path = [modules] + [p for p in sys.path if "site-packages" in p or "python3" in p]
# An editable install finds the checkout before the path is looked at.
sys.meta_path = [f for f in sys.meta_path if "ditable" not in repr(f)]
import nova_spark.job, nova_core
from nova_spark.verification import Record
assert nova_core.__file__.startswith(modules), nova_core.__file__
from importlib.resources import files
sources = sorted(one.name for one in (files("nova_spark") / "scala").iterdir())
assert "RealTimeJoin.scala" in sources, sources
"""
    modules = tmp_path / "out" / "job" / "modules"
    subprocess.run([sys.executable, "-c", script, modules], check=True, cwd=tmp_path)


def test_given_sources_are_used(tmp_path: Path) -> None:
    plan = random_plan(2)
    sources = sources_of(plan.problem, 5000, seconds=1)
    (tmp_path / "w.json").write_text(sources.to_json())
    translate(plan, plan.problem, tmp_path / "out", sources=tmp_path / "w.json")
    assert Sources.read(tmp_path / "out" / "job" / "sources.json") == sources


def test_sources_read_kafka(tmp_path: Path) -> None:
    if not broker_home().installed:
        skip_or_fail("needs Kafka: run `nova engines install kafka`")
    plan = random_plan(2)
    topics = {"kafka": "10.0.0.9:9092", "topics": "pressure-0=mine:3", "strict": "yes"}
    translate(plan, plan.problem, tmp_path / "out", **topics)
    job = tmp_path / "out" / "job"
    sources = Sources.read(job / "sources.json")
    assert sources.strict
    read = {
        one.source: (one.kind, one.address, one.topic, one.partition) for one in sources.sources
    }
    assert read["pressure-0"] == ("kafka", "10.0.0.9:9092", "mine", 3)
    assert read["humidity-1"] == ("kafka", "10.0.0.9:9092", "humidity", 0)
    assert len(list(job.glob("kafka-clients-*.jar"))) == 1
    with pytest.raises(NovaError, match="Spark reads a partition from its first message"):
        translate(plan, plan.problem, tmp_path / "latest", kafka="10.0.0.9:9092", begin="latest")
    assert (
        "| pressure-0 | 10.0.0.9:9092 | mine | 3 |" in (tmp_path / "out" / "README.md").read_text()
    )


def test_hosts_have_the_problem_s_addresses_and_memory(tmp_path: Path) -> None:
    plan = random_plan(2)
    count = len(plan.problem.nodes)
    nodes = replace(
        plan.problem.nodes,
        host=np.array([f"10.0.0.{i}" for i in range(count)]),
        memory=np.full(count, 2.0**31),
    )
    problem = replace(plan.problem, nodes=nodes)
    translate(replace(plan, problem=problem), problem, tmp_path / "out")
    sink = int(problem.joins.sink[0])
    job = tmp_path / "out" / "job"
    assert f"spark://10.0.0.{sink}:7077" in (job / "run.sh").read_text()
    # All executors are alike; the least is beside the Master.
    assert f"--heap {2048 - 864}" in (job / "run.sh").read_text()
    addresses = json.loads((job / "addresses.json").read_text())
    assert addresses[str(nodes.ids[sink])] == f"10.0.0.{sink}"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"window": 1}, "option 'window': unknown; Spark takes sources, window_ms"),
        ({"window_ms": "a"}, "option window_ms: 'a': expected a whole number"),
        ({"window_ms": 0}, "window_ms 0: expected 1 to "),
        ({"coordinator": "x"}, "option coordinator: 'x' is no node"),
        ({"sources": "/nowhere.json"}, r"/nowhere\.json: no such file"),
        ({"work": "here"}, "work_directory: 'here': expected an absolute path"),
        ({"slots": 0}, "option 'slots': unknown"),
        ({"topics": "a=b:0"}, "there is no broker"),
    ],
)
def test_wrong_options_leave_nothing(
    tmp_path: Path, options: dict[str, Any], complaint: str
) -> None:
    plan = random_plan(2)
    with pytest.raises(NovaError, match=complaint):
        translate(plan, plan.problem, tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    plan = random_plan(2)
    (tmp_path / "mine").write_text("")
    with pytest.raises(NovaError, match="is there already"):
        translate(plan, plan.problem, tmp_path)
    with pytest.raises(NovaError, match="problem"):
        translate(plan, random_plan(3).problem, tmp_path / "out")


def test_rules_of_a_plan_of_pairs(tmp_path: Path) -> None:
    plan = random_plan(2)
    problem = plan.problem
    translate(plan, problem, tmp_path / "out", form="stages")
    rules = yaml.safe_load((tmp_path / "out" / "stages.yaml").read_text())["stages"]
    ids = problem.nodes.ids
    joins = [one for one in rules if one.get("kind") == "join"]
    assert sorted(host for one in joins for host in one["hosts"]) == sorted(
        ids[plan.instances.node]
    )
    scans = {tuple(one["reads"]): one["hosts"] for one in rules if one.get("kind") == "scan"}
    streams = problem.sources.stream
    for stream in set(streams.tolist()):
        assert scans[(stream,)] == ids[problem.sources.node[streams == stream]].tolist()
    assert rules[-1] == {"reads": "*", "hosts": sorted(ids[problem.sinks].tolist())}
    assert "spark.nova.stages=stages.yaml" in (tmp_path / "out" / "README.md").read_text()
    with pytest.raises(NovaError, match="form: 'pods': expected bundle or stages"):
        translate(plan, problem, tmp_path / "other", form="pods")


@pytest.mark.parametrize("seed", [11, 21, 9])
def test_rules_of_a_plan_of_whole_queries(tmp_path: Path, seed: int) -> None:
    problem = random_problem(seed, tmp_path)
    plan = random_query_plan(seed, problem)
    translate(plan, problem, tmp_path / "out", form="stages")
    rules = yaml.safe_load((tmp_path / "out" / "stages.yaml").read_text())["stages"]
    placed = {"join": 0, "aggregate": 0, "other": 0}
    for one in rules[:-1]:
        assert set(one["reads"]) <= set(problem.sources.stream.tolist())
        assert set(one["hosts"]) <= set(problem.nodes.ids.tolist())
        if one["kind"] in placed:
            placed[one["kind"]] += len(one["hosts"])
    assert sum(placed.values()) == len(plan.instances)
    kinds = [plan.graph[body].kind for body in plan.graph.bodies[plan.instances.pair]]
    assert placed["join"] == kinds.count("join")
    assert placed["aggregate"] == kinds.count("aggregate")
