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
from nova_core.model.files import write_plan
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
network: {{rtt_ms: 20}}
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
def rack(tmp_path: Path, engine: str) -> Iterator[tuple[Path, Inventory]]:
    """The file of a rack that is up, and its hosts' addresses."""
    with running_rack(tmp_path, engine) as up:
        yield up


@contextmanager
def running_rack(directory: Path, engine: str) -> Iterator[tuple[Path, Inventory]]:
    """The file of a rack that is up, and its hosts' addresses."""
    require()
    file = directory / "rack.yaml"
    file.write_text(INVENTORY.format(name=f"novactl-{os.getpid()}", **NEEDS[engine]))
    rack = VirtualRack(read_inventory(file))
    rack.up()
    try:
        yield file, rack.reachable()
    finally:
        rack.down()


def write_placed(reachable: Inventory, directory: Path) -> Plan:
    """One join on a rack, and its plan, in `problem.yaml` and `plan.json`."""
    capacity = dict.fromkeys(("hub", "left", "right", "near"), 600.0) | {"far": 590.0}
    capacity |= {"left": 10.0, "right": 10.0}
    document = problem_document(reachable, capacity, DebsWorkload(regions=1), Traffic(200, 100))
    plan = place(problem_of(document, directory / "problem.yaml"), "nova")
    write_plan(plan, directory / "plan.json")
    return plan


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
    rack: tuple[Path, Inventory], engine: str, tmp_path: Path
) -> None:
    file, reachable = rack
    plan = write_placed(reachable, tmp_path)
    names = plan.problem.nodes.ids.tolist()
    (first,) = {names[node] for node in plan.instances.node.tolist()}
    (other,) = {"near", "far"} - {first}
    state = tmp_path / "state"
    log = Log(state)
    command = [sys.executable, "-c", "from nova_core.cli import main; main()", "control", "run"]
    command += [str(tmp_path / "problem.yaml"), str(tmp_path / "plan.json"), "-i", str(file)]
    command += ["--engine", engine, "--state", str(state), "--cooldown", "1", "--keys", "7"]
    # A busy machine is no lost host.
    command += ["--miss-after", "30"]
    page = f"http://127.0.0.1:{free_port()}"
    command += ["--listen", page.rpartition(":")[2]]

    controller = subprocess.Popen(command)
    log.wait("deployed", controller)
    time.sleep(2)
    # A second one is refused; the first one is killed, and the job goes on.
    second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 2 and "uses" in second.stderr
    controller.kill()
    controller.wait()

    controller = subprocess.Popen(command)
    try:
        log.wait("resumed", controller)
        with connect(reachable, [first, other]) as hosts:
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
