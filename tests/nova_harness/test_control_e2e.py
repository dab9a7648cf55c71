"""``nova control`` on a virtual rack: load, a killed worker, a killed controller."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from needs_rack import require
from ports import free_port

from nova_core import place
from nova_core.io.files import read_problem, write_plan
from nova_core.model.plan import Plan
from nova_harness.control.state import ControlState
from nova_harness.experiment.problem import problem_document, problem_of
from nova_testbed.hosts import connect
from nova_testbed.inventory import Inventory, read_inventory
from nova_testbed.rack import VirtualRack
from nova_workloads.base import Traffic
from nova_workloads.debs import DebsWorkload

pytestmark = pytest.mark.e2e
PATIENCE_S = 180.0
INVENTORY = """
inventory: 1
name: {name}
virtual: true
defaults: {{cpu: {cpu}, memory: {memory} MiB}}
hosts:
  - {{name: hub, role: sink, cpu: 0.6, memory: {hub} MiB}}
  - {{name: left, role: source}}
  - {{name: right, role: source}}
  - {{name: near, role: worker}}
  - {{name: far, role: worker}}
{more}network: {{rtt_ms: 20}}
"""
# Sources of another join, and a host that both can move to.
MORE = """\
  - {name: left2, role: source}
  - {name: right2, role: source}
  - {name: spare, role: worker}
"""


# Two topologies on a host at once are four JVMs.
NEEDS = {
    "flink": {"cpu": 0.25, "memory": 512, "hub": 1024},
    "storm": {"cpu": 0.4, "memory": 1280, "hub": 2048},
}
# The workers on a host.
KILL = {
    "flink": "pkill -KILL -f '[t]askexecutor'",
    "storm": "pkill -KILL -f '[d]aemon.worker.Worker'",
}


@pytest.fixture(params=sorted(NEEDS))
def engine(request: pytest.FixtureRequest) -> str:
    """The name of each engine whose jobs are controlled."""
    return str(request.param)


@pytest.fixture
def rack(tmp_path: Path, engine: str) -> Iterator[Inventory]:
    """The hosts of a rack that is up, with their addresses."""
    with running_rack(tmp_path, engine) as reachable:
        yield reachable


@contextmanager
def running_rack(directory: Path, engine: str, more: str = "") -> Iterator[Inventory]:
    """The hosts of a rack that is up, with their addresses; also ``more``, as YAML."""
    require()
    file = directory / "rack.yaml"
    name = f"novactl-{os.getpid()}"
    file.write_text(INVENTORY.format(name=name, more=more, **NEEDS[engine]))
    rack = VirtualRack(read_inventory(file))
    rack.up()
    try:
        yield rack.reachable()
    finally:
        rack.down()


def write_placed(reachable: Inventory, directory: Path, regions: int = 1) -> Plan:
    """One join of each region, and its plan, in `problem.yaml` and `plan.json`."""
    capacity = {"hub": 600.0, "near": 600.0, "far": 590.0, "spare": 580.0}
    capacity = {host.name: capacity.get(host.name, 10.0) for host in reachable.hosts}
    workload = DebsWorkload(regions=regions)
    traffic = Traffic(200, 100)
    document = problem_document(reachable, capacity, workload, traffic, sink_hosts=False)
    plan = place(problem_of(document, directory / "problem.yaml"), "nova")
    write_plan(plan, directory / "plan.json")
    return plan


def control_run(directory: Path, engine: str) -> list[str]:
    """Runs what `running_rack` and `write_placed` have written; the state is in ``state``."""
    command = [sys.executable, "-c", "from nova_core.cli import main; main()", "control", "run"]
    command += [str(directory / name) for name in ("problem.yaml", "plan.json")]
    command += ["-i", str(directory / "rack.yaml"), "--engine", engine, "--keys", "7"]
    # A busy machine is no lost host.
    command += ["--state", str(directory / "state"), "--cooldown", "1", "--miss-after", "30"]
    return command


class Log:
    """What controllers have written down."""

    def __init__(self, state: Path) -> None:
        self.file = state / "decisions.jsonl"

    def all(self) -> list[dict[str, Any]]:
        text = self.file.read_text() if self.file.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def wait(self, kind: str, process: subprocess.Popen[bytes], count: int = 1) -> dict[str, Any]:
        """The line of that kind, the ``count``-th, once it is there."""
        until = time.monotonic() + PATIENCE_S
        while True:
            found = [one for one in self.all() if one["kind"] == kind]
            if len(found) >= count:
                return found[count - 1]
            assert process.poll() is None, f"it has ended: {self.all()}"
            assert time.monotonic() < until, self.all()
            time.sleep(0.2)


def seen_results(page: str, job: str) -> ControlState:
    """What the page shows, once it has seen results of a job."""
    until = time.monotonic() + PATIENCE_S
    while True:
        state = msgspec.json.decode(httpx.get(f"{page}/state").content, type=ControlState)
        last = state.arrivals[-1] if state.arrivals else None
        if state.jobs == [job] and last and last.per_second > 100 and last.p50_ms:
            return state
        assert time.monotonic() < until, state
        time.sleep(0.2)


def test_load_a_killed_worker_and_a_killed_controller(
    rack: Inventory, engine: str, tmp_path: Path
) -> None:
    plan = write_placed(rack, tmp_path)
    names = plan.problem.nodes.ids.tolist()
    (first,) = {names[node] for node in plan.instances.node.tolist()}
    (other,) = {"near", "far"} - {first}
    state = tmp_path / "state"
    log = Log(state)
    command = control_run(tmp_path, engine)
    page = f"http://127.0.0.1:{free_port()}"
    command += ["--listen", page.rpartition(":")[2]]
    # The other host has no worker until then: long enough that Storm alone would not use it soon.
    added = [{"at": 12, "what": "add", "host": other}]
    (tmp_path / "script.json").write_text(json.dumps({"nova_disturbances": 1, "events": added}))
    command += ["--disturb", str(tmp_path / "script.json"), "--back-after", "2"]

    controller = subprocess.Popen(command)
    try:
        log.wait("noticed", controller, 2)
        texts = [one["text"] for one in log.all() if one["kind"] == "noticed"]
        assert texts == [f"{other} is {what}: nothing has to move" for what in ("lost", "back")]
        # A second one is refused; the first one is killed, and the job goes on.
        second = subprocess.run(command, capture_output=True, text=True)
        assert second.returncode == 2 and "uses" in second.stderr
    finally:
        controller.kill()
        controller.wait()

    controller = subprocess.Popen(command)
    try:
        log.wait("resumed", controller)
        with connect(rack, [first, other]) as hosts:
            load = hosts[first].start("while :; do :; done", name="load")
            handed = log.wait("handed-over", controller)
            load.end()
            shown = seen_results(page, handed["job"])
            assert {host.name for host in shown.hosts if host.joins} == {other}
            assert (first, "hub") not in shown.flows and (other, "hub") in shown.flows
            killed_at = time.monotonic()
            hosts[other].run(KILL[engine])
        recovered = log.wait("recovered", controller)
        took = time.monotonic() - killed_at
        if engine == "flink":
            # Storm starts its workers again by itself.
            log.wait("restarted", controller)
        controller.send_signal(signal.SIGINT)
        assert controller.wait(60) == 0
    finally:
        controller.kill()
    told = f"handed over in {handed['seconds']:.1f} s; recovered {took:.1f} s after the kill"
    print(told)

    results = tmp_path / "results.csv"
    last = [*command, "--for", "1", "--results", str(results), "--json"]
    done = subprocess.run(last, stdout=subprocess.PIPE, timeout=PATIENCE_S)
    answer = json.loads(done.stdout)
    assert done.returncode == 0 and answer["exact"], answer
    assert (answer["lost"], answer["doubled"], answer["wrong"]) == (0, 0, 0)
    assert answer["jobs"] == 3 and answer["expected"] > 10_000 and answer["dropped"] > 0
    assert len(results.read_text().splitlines()) == answer["results"] + 1
    texts = [one["text"] for one in log.all()]
    assert any(text.startswith(f"{first} can do") and f"to {other}" in text for text in texts)
    assert f"{other} is lost: join/pressure-1*humidity-1 from {other} to {first}" in texts
    assert recovered["job"] != handed["job"]


def test_a_failure_stops_only_the_job_that_it_hits(tmp_path: Path) -> None:
    """Two joins that share no source; a host is added, rates change, a worker is killed."""
    state = tmp_path / "state"
    log = Log(state)
    with running_rack(tmp_path, "flink", MORE) as reachable:
        plan = write_placed(reachable, tmp_path, regions=2)
        hosts = plan.problem.nodes.ids[plan.instances.node].tolist()
        (spare,) = {"near", "far", "spare"}.difference(hosts)
        hit = next(host for host in hosts if host != "hub")
        script = {
            "nova_disturbances": 1,
            "events": [
                {"at": 3, "what": "add", "host": spare},
                # Less than what counts as a change.
                {"at": 2, "what": "rate", "host": "left", "times": 1.1, "for": 5},
                {"at": 2, "what": "rate", "host": "right", "times": 1.1, "for": 5},
            ],
        }
        (tmp_path / "script.json").write_text(json.dumps(script))
        command = [*control_run(tmp_path, "flink"), "--back-after", "2"]
        command += ["--disturb", str(tmp_path / "script.json")]
        controller = subprocess.Popen(command)
        try:
            back = log.wait("noticed", controller, 2)
            # So that nothing waits for the other rates any more.
            log.wait("over", controller, 2)
            with connect(reachable, [hit]) as connected:
                connected[hit].run(KILL["flink"])
            recovered = log.wait("recovered", controller)
            controller.send_signal(signal.SIGINT)
            assert controller.wait(60) == 0
        finally:
            controller.kill()
        last = [*command, "--for", "1", "--json"]
        done = subprocess.run(last, stdout=subprocess.PIPE, timeout=PATIENCE_S)
    answer = json.loads(done.stdout)
    assert done.returncode == 0 and answer["exact"], (answer, log.all())
    begun, ended = (
        next(one for one in log.all() if one["kind"] == kind)["text"]
        for kind in ("deployed", "ended")
    )
    first = begun.rpartition("running: ")[2].split(", ")
    last_ones = ended.partition(" ended at ")[0].split(", ")
    # The other job has run from beginning to end.
    assert len(first) == len(last_ones) == 2 and len({*first, *last_ones}) == answer["jobs"] == 3
    assert [one["kind"] for one in log.all()].count("recovered") == 1
    assert recovered["job"] in last_ones and recovered["job"] not in first
    assert back["text"] == f"{spare} is back: nothing has to move"
    print(f"recovered {recovered['seconds']:.1f} s after the failure was seen")


QUERY = """
streams:
  - {id: heat, columns: {zone: text, value: float}, key: zone}
  - {id: power, columns: {zone: text, watts: int}, key: zone}
  - {id: flow, columns: {zone: text, litres: float}, key: zone}
sources:
  - {id: heat-a, node: left, stream: heat, key: a, rate: 40}
  - {id: power-a, node: right, stream: power, key: a, rate: 40}
  - {id: flow-a, node: right, stream: flow, key: a, rate: 10}
queries:
  - id: waste
    sink: hub
    operators:
      - {id: hot, kind: filter, input: heat, where: heat.value > 10}
      - id: means
        kind: aggregate
        input: hot
        window: 2
        slide: 0.5
        group_by: [heat.zone]
        compute: {mean: mean(heat.value), hot: count()}
      - {id: meet, kind: join, inputs: [means, power], on: means.zone = power.zone, window: 1}
      - id: all
        kind: join
        inputs: [meet, flow]
        on: means.zone = flow.zone AND power.watts > flow.litres
        window: 1
"""


def write_query(directory: Path, seconds: int) -> Plan:
    """A query over readings of so many s, in files as of `write_placed`, and ``readings``."""
    rows = [
        f"  - {{id: {name}, position: [{x}, 0], capacity: {capacity}, worker: {worker}}}"
        for name, x, capacity, worker in (
            ("hub", 0, 10, "false"),
            ("left", 20, 10, "false"),
            ("right", 20, 10, "false"),
            ("near", 18, 120, "true"),
            ("far", 15, 115, "true"),
        )
    ]
    file = directory / "problem.yaml"
    file.write_text("\n".join(["nova: 1", "name: query", "nodes:", *rows]) + QUERY)
    readings = directory / "readings"
    readings.mkdir()
    for source, step_ms, column, scale in (
        ("heat-a", 50, "value", 0.3),
        ("power-a", 50, "watts", 1),
        ("flow-a", 200, "litres", 0.5),
    ):
        lines = [f"time,zone,{column}"]
        for number in range(1000 * seconds // step_ms):
            # Not at a boundary, and none like the one before.
            at, value = 1_000_317 + number * step_ms, number * 37 % 101 * scale
            lines.append(f"{at},a,{value:g}")
        (readings / f"{source}.csv").write_text("\n".join(lines) + "\n")
    plan = place(read_problem(file), "nova")
    write_plan(plan, directory / "plan.json")
    return plan


def test_a_whole_query_is_handed_over(rack: Inventory, engine: str, tmp_path: Path) -> None:
    """A filter, an aggregate of overlapping windows and two joins, at twice their own speed."""
    plan = write_query(tmp_path, 600)
    names = plan.problem.nodes.ids.tolist()
    (first,) = {names[node] for node in plan.instances.node.tolist()}
    state = tmp_path / "state"
    command = [one for one in control_run(tmp_path, engine) if one not in ("--keys", "7")]
    command += ["--readings", str(tmp_path / "readings"), "--speed", "2", "--for", "45", "--json"]
    with (tmp_path / "answer.json").open("wb") as file:
        controller = subprocess.Popen(command, stdout=file)
        log = Log(state)
        try:
            log.wait("deployed", controller)
            time.sleep(8)
            with connect(rack, [first]) as hosts:
                load = hosts[first].start("while :; do :; done", name="load")
                handed = log.wait("handed-over", controller)
                load.end()
            assert controller.wait(PATIENCE_S) == 0
        finally:
            controller.kill()
    answer = json.loads((tmp_path / "answer.json").read_text())
    print(answer, [one["text"] for one in log.all()])
    assert answer["exact"] and answer["jobs"] >= 2 and answer["dropped"] > 0
    assert (answer["lost"], answer["doubled"], answer["wrong"]) == (0, 0, 0)
    assert answer["expected"] == answer["results"] > 5000
    assert f"{first} can do" in handed["text"]
