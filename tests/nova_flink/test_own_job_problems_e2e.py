"""What a job is to Nova, by its operators and a mapping: Flink's client, without a cluster."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from needs_flink import require
from own_jobs_material import OwnClient, compiled_jobs

from nova_core.errors import InfeasibleError
from nova_core.io.files import read_problem, write_plan
from nova_core.model.expansion import Rewriting, graph_of
from nova_core.model.verify import verify
from nova_core.strategies import place
from nova_flink.home import FlinkHome

pytestmark = pytest.mark.e2e
NOWHERE = "http://127.0.0.1:1"
NODES = """\
nova: 1
name: field
nodes:
  - {id: hill, capacity: 10, position: [-60, 60]}
  - {id: shore, capacity: 150, position: [-55, 20]}
  - {id: hub, capacity: 400, position: [0, 0]}
"""
KINDS = """\
sources:
  fast: {node: hill, rate: 100}
  kafka-source: {node: shore, rate: 30}
  kafka-source-2: {node: hub, rate: 20}
  control: {node: hub, rate: 1}
sinks: {out: hub}
operators:
  half: {selectivity: 0.5}
  more: {selectivity: 6}
  fewer: {selectivity: 0.5}
  tumblingprocessingtimewindows: {selectivity: 0.25}
"""
# Tuples/s that each emits.
EMITTED = {
    "all": 50 + 30 + 20,
    "steered": 100,
    "ruled": 100,
    "more": 300,
    "tumblingprocessingtimewindows": 0.25 * 20,
    "out~1": 300 + 5,
}
SUMS = "windowaggregate"
SET = """\
sources: {numbers: {node: hill, rate: 100}}
sinks: {sums: hub, copies: hill, least: shore}
operators: {windowaggregate: {selectivity: 0.4}}
"""
TWINS = "sources: {'*': {node: hill, rate: 1}, kafka-source-2: {node: shore, rate: 2}}"
WRONG = {
    "twins": {
        "sources: {kafka-surce-2: hill, '*': hill}": "sources: kafka-surce-2: is not in the job, "
        "whose sources are kafka-source, kafka-source-2; did you mean kafka-source-2?",
        "sources: {'*': hill}\nsinks: {somewhere: hub}": "sinks: somewhere: is not in the job, "
        "whose sinks are out",
        "operators: {out: {selectivity: 1}}": "operators: out: is not in the job, whose operators "
        "are none",
        "sinks: {out: {rate: 1}}": "sinks: out: rate: expected node",
    },
    "kinds": {
        "operators: {steered: hub}": "operators: steered: expected selectivity",
        "operators: {fever: {selectivity: 1}}": "operators: fever: is not in the job, whose "
        "operators are half, map, all, steered, ruled, more, fewer, tumblingprocessingtimewindows;"
        " did you mean fewer?",
    },
    "table": {"sources: {numbers: {node: sea, rate: 1}}\nsinks: {sums: hub}": "node sea is not in"},
}


def test_a_job_is_a_problem(tmp_path: Path) -> None:
    home = FlinkHome.default()
    require(home)
    client = OwnClient(home, NOWHERE, tmp_path / "client")
    jar = compiled_jobs(home, "Shapes", tmp_path)
    (tmp_path / "nodes.yaml").write_text(NODES)
    tasks: dict[str, list[str]] = {}
    expected = {}

    def submission(name: str, job: str, mapping: str) -> list[str]:
        (tmp_path / f"{name}.yaml").write_text(mapping)
        given = {
            "nova.service": NOWHERE,
            "nova.nodes": tmp_path / "nodes.yaml",
            "nova.mapping": tmp_path / f"{name}.yaml",
            "nova.problem-file": tmp_path / f"{name}.json",
        }
        settings = [f"-D{key}={value}" for key, value in given.items()]
        return ["flink", "run", "-d", *settings, "-c", "Shapes", str(jar), job]

    # The problem is written before the service is asked.
    for job, mapping in {"kinds": KINDS, "twins": f"{TWINS}\nsinks: {{'*': hub}}"}.items():
        tasks[job] = submission(job, job, mapping)
        expected[job] = f"nova: {NOWHERE}: no answer from `nova serve`"
    for job, mappings in WRONG.items():
        for number, (mapping, words) in enumerate(mappings.items()):
            name = f"{job}-{number}"
            tasks[name] = submission(name, job, mapping)
            expected[name] = words
    said = client.submit(tasks, timeout_s=300)
    for name, words in expected.items():
        code, line = said[name].splitlines()
        assert code == "1" and line.startswith("nova: ") and words in line, (name, said[name])

    emitted = _emitted(tmp_path / "kinds.json")
    assert {name: emitted.get(name) for name in EMITTED} == pytest.approx(EMITTED)
    sources = json.loads((tmp_path / "kinds.json").read_text())["sources"]
    # What leaves the node: the filter is chained to its source.
    assert _figures(sources)["fast"] == ("hill", 50)
    sources = json.loads((tmp_path / "twins.json").read_text())["sources"]
    assert _figures(sources) == {"kafka-source": ("hill", 1), "kafka-source-2": ("shore", 2)}
    assert _emitted(tmp_path / "twins.json") == {"out~1": 3}

    # As people run it: a line, and no stack trace.
    flink, *arguments = submission("table", "table", "sinks: {sums: hub}")
    ran = subprocess.run(
        [home.flink / "bin" / flink, *arguments],
        env=client.environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode != 0 and not ran.stdout
    (line,) = ran.stderr.splitlines()
    assert line.startswith("nova: source 'numbers': is nowhere mapped to a node"), line


def test_a_common_part_of_a_statement_set_is_planned_once(tmp_path: Path) -> None:
    home = FlinkHome.default()
    require(home)
    client = OwnClient(home, NOWHERE, tmp_path / "client")
    jar = compiled_jobs(home, "Shapes", tmp_path)
    # Room for what all three statements need, once.
    (tmp_path / "nodes.yaml").write_text(NODES.replace("150", "100").replace("400", "40"))
    (tmp_path / "mapping.yaml").write_text(SET)
    given = {
        "nova.service": NOWHERE,
        "nova.nodes": tmp_path / "nodes.yaml",
        "nova.mapping": tmp_path / "mapping.yaml",
        "nova.problem-file": tmp_path / "set.json",
    }

    def submission(**more: Path) -> list[str]:
        told = given | {f"nova.{name}": file for name, file in more.items()}
        settings = [f"-D{key}={value}" for key, value in told.items()]
        return ["flink", "run", "-d", *settings, "-c", "Shapes", str(jar), "set"]

    client.submit({"set": submission()}, timeout_s=300)
    problem = read_problem(tmp_path / "set.json")
    listed = [[one.id for one in query.operators] for query in problem.queries]
    assert sorted(listed) == [[SUMS], [SUMS], [SUMS, "groupaggregate"]]
    with pytest.raises(InfeasibleError):
        place(problem, share_operators=False)
    plan = place(problem)
    assert [one.logical for one in plan.graph if one.logical] == [SUMS, "groupaggregate"]
    load = dict(zip(problem.nodes.ids.tolist(), plan.load.tolist(), strict=True))
    assert load == {"hill": 0, "shore": 100, "hub": 40}
    assert verify(plan).ok
    assert len(plan.query_latency()) == 3 and (plan.query_latency() > 0).all()

    # The plan says of each sink where it is, though two take results of one operator.
    write_plan(plan, tmp_path / "plan.json")
    tasks = {}
    for sink, node, other in (("sums", "hub", "hill"), ("copies", "hill", "hub")):
        mapping = SET.replace(f"{sink}: {node}", f"{sink}: {other}")
        (tmp_path / f"{sink}.yaml").write_text(mapping)
        files = {"plan": tmp_path / "plan.json", "mapping": tmp_path / f"{sink}.yaml"}
        tasks[f"sink {sink}: is on node {node} in the plan and on {other}"] = submission(**files)
    for words, said in client.submit(tasks, timeout_s=300).items():
        assert words in said, said


def _figures(sources: list[Mapping[str, Any]]) -> dict[str, tuple[str, float]]:
    return {one["id"]: (one["node"], one["rate"]) for one in sources}


def _emitted(file: Path) -> dict[str, float]:
    """Tuples/s that each operator emits, as Nova reads a problem."""
    rates: dict[str, float] = {}
    for one in graph_of(read_problem(file), Rewriting(True, True)):
        if one.logical:
            rates[one.logical] = rates.get(one.logical, 0.0) + one.rate
    return rates
