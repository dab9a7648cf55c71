"""Topologies that import Storm alone are placed by a plan, by rebalancing, and acknowledge."""

from __future__ import annotations

import json
import subprocess
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from local_storm import LocalCluster
from needs_storm import require

from nova_engines.compiling import compiler
from nova_storm.commands import place
from nova_storm.configuration import java_command
from nova_storm.verification import of_name

pytestmark = pytest.mark.e2e
NODES = ["hill", "barn", "hub"]
FLUX: dict[str, Any] = {
    "name": "flux",
    "config": {"topology.acker.executors": 1},
    "spouts": [{"id": "sentences", "className": "words.Words$Sentences", "parallelism": 1}],
    "bolts": [
        {"id": "split", "className": "words.Words$Split", "parallelism": 1},
        {"id": "report", "className": "words.Words$Report", "parallelism": 1},
    ],
    "streams": [
        {"from": "sentences", "to": "split", "grouping": {"type": "SHUFFLE"}},
        {"from": "split", "to": "report", "grouping": {"type": "GLOBAL"}},
    ],
}
STEPS: dict[str, dict[str, Any]] = {
    "count": {
        "sources": ["sentences"],
        "operators": [
            {"id": "split", "kind": "project", "input": "sentences", "selectivity": 6},
            {"id": "count", "kind": "aggregate", "input": "split", "window": 1, "groups": 1},
        ],
    },
    "join": {
        "sources": ["left", "right"],
        "operators": [
            {"id": "join", "kind": "join", "inputs": ["left", "right"], "match": "all"}],
    },
    "flux": {
        "sources": ["sentences"],
        "operators": [
            {"id": "split", "kind": "project", "input": "sentences", "selectivity": 6}],
    },
}  # fmt: skip
SETTLED_S = 90.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("storm") / "cluster"
    # As often as Storm itself looks for what to schedule: a topology is placed before that.
    settings = {"nimbus.monitor.freq.secs": 10}
    with LocalCluster(require(), NODES, directory, settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def jar(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the topologies; nothing of Nova's is on the class path it is compiled with."""
    classes = tmp_path_factory.mktemp("classes")
    source = Path(__file__).parent / "java" / "words" / "Words.java"
    path = ":".join(map(str, cluster.home.jars))
    command = [compiler("Storm"), "-J-XX:TieredStopAtLevel=1", "-proc:none", "-cp", path]
    subprocess.run([*command, "-d", classes, source], check=True)
    made = classes / "words.jar"
    with zipfile.ZipFile(made, "w") as archive:
        for one in classes.rglob("*.class"):
            archive.write(one, one.relative_to(classes).as_posix())
    return made


def submit(cluster: LocalCluster, jar: Path, *words: str) -> None:
    """As `storm jar` does."""
    host, port = cluster.nimbus.host, cluster.nimbus.port
    options = [
        f'-Dstorm.options=nimbus.seeds=["{host}"],nimbus.thrift.port={port}',
        f"-Dstorm.jar={jar}",
    ]
    command = java_command(str(cluster.home.path), cluster.configuration.java, 128, options)
    command[-1] = f"{command[-1]}:{jar}"
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def problem(cluster: LocalCluster, name: str, hosts: list[str], directory: Path) -> Path:
    """In the topology's words; only ``hosts`` may have operators."""
    positions = {"hill": [-9, 0], "barn": [-5, 0], "hub": [0, 0]}
    document = {
        "nova": 1,
        "nodes": [
            {"id": node, "host": cluster.addresses[node], "capacity": 400, "position": at,
             "worker": node in hosts}
            for node, at in positions.items()
        ],
        "sources": [
            {"id": one, "node": "hill", "stream": one, "rate": 20} for one in STEPS[name]["sources"]
        ],
        "queries": [{"id": "report", "sink": "hub", "operators": STEPS[name]["operators"]}],
    }  # fmt: skip
    file = directory / f"{name}-{'-'.join(hosts)}.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def placed(cluster: LocalCluster, name: str, hosts: list[str], directory: Path) -> dict[str, str]:
    """Plan and place a topology; where each component runs, by nimbus."""
    from nova_core import place as plan_of
    from nova_core import read_problem, write_plan

    asked = problem(cluster, name, hosts, directory)
    plan = asked.with_suffix(".json")
    write_plan(plan_of(read_problem(asked), "nova"), plan)
    words = [name, "--plan", str(plan), "-p", str(asked), "--at", cluster.nimbus.address, "--json"]
    done = CliRunner().invoke(place, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert all(row["node"] == row["actual"] for row in rows)
    return {row["operator"]: row["actual"] for row in rows}


def test_topologies_of_others_run_where_the_plan_says(
    cluster: LocalCluster, jar: Path, tmp_path: Path
) -> None:
    flux = tmp_path / "flux.yaml"
    flux.write_text(yaml.safe_dump(FLUX))
    submit(cluster, jar, "words.Words", "count")
    submit(cluster, jar, "org.apache.storm.flux.Flux", "-n", "-q", str(flux))
    found = placed(cluster, "count", ["barn"], tmp_path)
    assert found == {
        "sentences": "hill", "split": "barn", "count": "barn", "report": "hub", "__acker": "hill"
    }  # fmt: skip
    # Once more, elsewhere: it is moved, not submitted.
    moved = placed(cluster, "count", ["hill"], tmp_path)
    assert {moved["split"], moved["count"]} == {"hill"}
    assert placed(cluster, "flux", ["barn"], tmp_path)["split"] == "barn"
    for name in ("count", "flux"):
        cluster.nimbus.kill(name)
    submit(cluster, jar, "words.Words", "join")
    assert placed(cluster, "join", ["barn"], tmp_path)["join"] == "barn"
    _acknowledges(cluster, "join")


def _acknowledges(cluster: LocalCluster, topology: str) -> None:
    """The acker receives what spouts emit."""
    until = time.monotonic() + SETTLED_S
    while time.monotonic() < until:
        rows = of_name(cluster.nimbus.status(), topology)["executors"]
        done = [row.get("executed", 0) for row in rows if row["component"] == "__acker"]
        if sum(done) > 0:
            return
        time.sleep(1)
    raise AssertionError("nothing is acknowledged")
