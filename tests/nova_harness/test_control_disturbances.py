"""Scripts of disturbances: what is refused, and that hosts feel them."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from needs import need_namespaces

from nova_core.errors import NovaError
from nova_flink.home import FlinkHome
from nova_harness.commands.control import control
from nova_harness.control import disturbances
from nova_harness.control.disturbances import (
    Disturbance,
    Disturbing,
    Script,
    ScriptError,
    added_hosts,
    random_script,
)
from nova_harness.engines.base import RunError
from nova_harness.engines.flink import TASK_MANAGER, FlinkDeployment
from nova_harness.experiment.cell_run import place
from nova_harness.experiment.cells import Cell
from nova_harness.experiment.document import EnginePart, StrategyPart
from nova_harness.experiment.engine_run import Bed, Timing, run_plan
from nova_harness.experiment.problem import problem_document, problem_of
from nova_testbed.host import Host
from nova_testbed.hosts import Hosts, connect
from nova_testbed.inventory import Inventory, read_inventory
from nova_testbed.probing import measure_rtt
from nova_testbed.rack import VirtualRack
from nova_workloads.base import Traffic
from nova_workloads.debs import DebsWorkload

PATIENCE_S = 180.0
INVENTORY = """
inventory: 1
name: {name}
virtual: true
defaults: {{cpu: 0.25, memory: 128 MiB}}
hosts: [{{name: hub, role: sink, memory: 1 GiB}}, {{name: near, role: worker, memory: 512 MiB}}]
network: {{rtt_ms: 10}}
"""


def inventory_of(directory: Path, *, virtual: bool = True) -> Inventory:
    file = directory / "rack.yaml"
    text = INVENTORY.format(name=f"novadist-{os.getpid()}")
    if not virtual:
        text = "inventory: 1\nname: real\nhosts: [{name: hub, role: sink, address: 127.0.0.1}]\n"
    file.write_text(text)
    return read_inventory(file)


def script(directory: Path, *events: object, **fields: object) -> Path:
    file = directory / "script.json"
    file.write_text(json.dumps({"nova_disturbances": 1, "events": list(events)} | fields))
    return file


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"at": 1, "what": "load", "host": "nowhere"}, "nowhere"),
        ({"at": 1, "what": "flood", "host": "near"}, "flood"),
        ({"at": -1, "what": "load", "host": "near"}, "at"),
        ({"at": 1, "what": "cpu", "host": "near"}, "cores is missing to what: cpu"),
        ({"at": 1, "what": "cpu", "host": "near", "cores": 0}, "cores"),
        ({"at": 1, "what": "rtt", "host": "near", "ms": 3}, "to is missing to what: rtt"),
        ({"at": 1, "what": "load", "host": "near", "ms": 3}, "ms does not belong to what: load"),
        ({"at": 1, "what": "rtt", "host": "near", "to": "me", "ms": 3}, "me"),
        ({"at": 1, "what": "cut", "host": "near", "to": "me"}, "me"),
        ({"at": 1, "what": "cut", "host": "near", "ms": 3}, "ms does not belong to what: cut"),
        ({"at": 1, "what": "rate", "host": "near"}, "times is missing to what: rate"),
        ({"at": 1, "what": "add", "host": "hub"}, "add: hub is no host of role worker"),
        ({"at": 1, "what": "kill", "host": "near", "when": 3}, "when"),
    ],
)
def test_a_script_that_cannot_be_followed(
    event: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=r"(?s).*") as raised:
        Script.read(script(tmp_path, event), inventory_of(tmp_path))
    assert said in str(raised.value) and "\n" not in str(raised.value)


def test_random_disturbances(tmp_path: Path) -> None:
    """They come one after the other, and from a seed; the command's file is a script."""
    inventory, file = inventory_of(tmp_path), tmp_path / "disturbances.yaml"
    made = random_script(inventory, 600, 3)
    assert made == random_script(inventory, 600, 3) != random_script(inventory, 600, 4)
    ends = [one.at + (one.last or 0) for one in made.events]
    assert len(made.events) > 5 and ends[-1] <= 600
    assert all(one.at > end for one, end in zip(made.events[1:], ends, strict=False))
    assert {one.host for one in made.events} == {"near"}
    arguments = ["-i", str(tmp_path / "rack.yaml"), "--for", "600", "--seed", "3", "-o", str(file)]
    answer = CliRunner().invoke(control, ["script", *arguments])
    assert answer.exit_code == 0, answer.output
    assert Script.read(file, inventory) == made
    for seconds in ("86401", str(2**64), "inf", "nan"):
        refused = CliRunner().invoke(control, ["script", *arguments, "--for", seconds])
        assert refused.exit_code == 2 and "--for" in refused.output, refused.output
    with pytest.raises(ScriptError, match="10 s: too short"):
        random_script(inventory, 10, 3)
    with pytest.raises(ScriptError, match="no host of role worker"):
        random_script(inventory_of(tmp_path, virtual=False), 600, 3)


def test_only_virtual_hosts_can_be_changed(tmp_path: Path) -> None:
    file = script(tmp_path, {"at": 1, "what": "cpu", "host": "hub", "cores": 1})
    with pytest.raises(ScriptError, match="only virtual hosts"):
        Script.read(file, inventory_of(tmp_path, virtual=False))
    file = script(tmp_path, {"at": 1, "what": "kill", "host": "hub"})
    assert str(Script.read(file, inventory_of(tmp_path, virtual=False)).events[0]) == (
        "the worker on hub is killed"
    )


def test_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="format version 2; 1 is read here"):
        Script.read(script(tmp_path, nova_disturbances=2), inventory_of(tmp_path))


def test_what_cannot_be_undone_is_noted_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disturbances, "AGAIN_S", 0.01)
    failures = [NovaError("near: does not answer")] * 2

    def end() -> None:
        if failures:
            raise failures.pop()

    load = SimpleNamespace(start=lambda *_, **__: SimpleNamespace(end=end))
    deployment: Any = SimpleNamespace(hosts={"near": load})
    noted: list[tuple[str, str]] = []
    events = [Disturbance(0, "load", "near", last) for last in (0.01, None)]
    with closing(Disturbing(events, deployment, lambda *one: noted.append(one))) as disturbing:
        disturbing.start()
        until(lambda: len(noted) == 5)
    text = "load on near, for 0.01 s"
    assert noted == [
        ("disturbed", text),
        ("disturbed", "load on near"),
        *[("failed", f"not over: {text}: near: does not answer")] * 2,
        ("over", text),
    ]


def test_what_is_due_does_not_wait_for_a_host_that_is_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(disturbances, "AGAIN_S", 0.01)
    told, failures = threading.Event(), [NovaError("near: does not answer")]
    hosts = {"near": SimpleNamespace(start=lambda *_, **__: None)}
    started: list[str] = []

    def start(name: str) -> None:
        assert told.wait(PATIENCE_S)
        if failures:
            raise failures.pop()
        started.append(name)

    deployment: Any = SimpleNamespace(hosts=hosts, start_worker=start)
    noted: list[tuple[str, str]] = []
    events = [Disturbance(0, "add", "near"), Disturbance(0.01, "rate", "near", times=2)]
    with closing(Disturbing(events, deployment, lambda *one: noted.append(one))) as disturbing:
        disturbing.start()
        until(lambda: len(noted) == 2)
        told.set()
        until(lambda: started == ["near"])
    # Its end waits: a worker that is being started would be started twice.
    assert noted == [
        ("disturbed", "near is added"),
        ("disturbed", "sources on near emit 2 times as much"),
        ("failed", "not added: near: does not answer"),
    ]


class Worker:
    """A host, and the deployment of an engine whose worker there has some processes in turn.

    Attributes:
        pids: what is found next, and then.
        did: what was asked of both, in turn.
    """

    ENGINE = "Flink"

    def __init__(self, *pids: int) -> None:
        self.pids, self.did, self.hosts = list(pids), list[str](), {"near": self}

    def worker_processes(self, name: str) -> set[int]:
        self.did.append("looked up")
        return {self.pids.pop(0)} if self.pids else set()

    def stream(
        self, command: str, feed: Callable[[Callable[[bytes], None]], None], *_: object
    ) -> tuple[int, bytes, float]:
        """A command that kills what was found first, once it reads a line."""
        self.did.append("waits")
        read = list[bytes]()
        feed(read.append)
        if not read:
            return 1, b"", 0.0
        # If there is another worker, that one is gone.
        self.did.append("missed" if self.pids else "killed")
        return int(bool(self.pids)), b"", 0.0

    def run(self, command: str, *, check: bool) -> None:
        self.did.append("killed")

    def start_worker(self, name: str) -> None:
        self.did.append("started")


def killing(worker: Worker, at: float, done: Callable[[], bool]) -> list[tuple[str, str]]:
    """What is noted of a script that kills ``near`` at a time, s, until something is done."""
    noted: list[tuple[str, str]] = []
    events, deployment = [Disturbance(at, "kill", "near")], cast("Any", worker)
    with closing(Disturbing(events, deployment, lambda *one: noted.append(one))) as disturbing:
        disturbing.start(time.time())
        until(lambda: done() or noted != [])
    return noted


def test_what_kills_a_worker_waits_on_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = [("disturbed", "the worker on near is killed")]
    worker = Worker(7)
    assert killing(worker, 0, lambda: False) == killed
    assert worker.did == ["looked up", "waits", "killed", "started"]
    monkeypatch.setattr(disturbances, "AHEAD_S", 3600.0)
    worker = Worker(7)
    assert killing(worker, 3600, lambda: "waits" in worker.did) == []
    # Without the order, nothing is killed.
    assert worker.did == ["looked up", "waits"]


def test_a_worker_that_was_replaced_since_is_killed_all_the_same() -> None:
    worker = Worker(7, 8)
    assert killing(worker, 0, lambda: False) == [("disturbed", "the worker on near is killed")]
    assert worker.did == ["looked up", "waits", "missed", "looked up", "killed", "started"]
    noted = killing(Worker(), 0, lambda: False)
    assert noted == [("failed", "not disturbed: near: Flink has no worker there")]


class Cluster:
    """An engine that has no worker on ``near`` until it is started, at the second try.

    Attributes:
        did: what was asked of it, in turn.
    """

    def __init__(self) -> None:
        self.did: list[str] = []
        self.deployment = SimpleNamespace(
            ENGINE="Flink",
            start_worker=self.start_worker,
            last_words=lambda names: f"; the worker on {names[0]} has ended: no memory",
            prepare_results=lambda: None,
        )

    def hosts(self) -> dict[str, bool]:
        return {"near": self.did.count("starts") > 1, "far": True, "idle": False}

    def start_worker(self, name: str) -> None:
        assert name == "near"
        self.did.append("starts")
        if self.did == ["starts"]:
            raise NovaError("near: does not answer")


def deployed(cluster: Cluster, directory: Path) -> None:
    """Run a plan whose hosts are disturbed, up to the start of its job."""
    inventory = read_inventory("virtual-5")
    workload, traffic = DebsWorkload(regions=1), Traffic(100, 100, 10)
    capacity = dict.fromkeys((host.name for host in inventory.hosts), 1e6)
    document = problem_document(inventory, capacity, workload, traffic)
    problem = problem_of(document, directory / "problem.yaml")
    cell = Cell(StrategyPart(name="top-c"), 100, 100.0, stress=False, repetition=1)

    def start(*_: object) -> Any:
        cluster.did.append("deployed")
        raise RunError("up to here")

    bed = Bed(
        cast("Any", cluster),
        cast("Any", SimpleNamespace(lift=lambda *_: None)),
        EnginePart(miss_after_s=0.1),
        disturbances=[Disturbance(5, "kill", "near", 6), Disturbance(5, "load", "far")],
        starter=start,
    )
    run_plan(
        bed, place(cell, problem), workload.streams(problem, traffic, 0), Timing(1, 1, 1),
        stress=False, limited=True, name="x", scratch=directory, tell=lambda text: None,
    )  # fmt: skip


def test_no_cell_is_deployed_before_all_disturbed_hosts_have_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disturbances, "LOOK_S", 0.01)
    cluster = Cluster()
    with pytest.raises(RunError, match="up to here"):
        deployed(cluster, tmp_path)
    assert cluster.did == ["starts", "starts", "deployed"]


def test_a_worker_that_does_not_come_back_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disturbances, "LOOK_S", 0.01)
    monkeypatch.setattr(disturbances, "WORKER_S", 0.0)
    cluster = Cluster()
    monkeypatch.setattr(cluster, "hosts", lambda: {"near": False, "far": True})
    with pytest.raises(ScriptError) as raised:
        deployed(cluster, tmp_path)
    assert str(raised.value) == (
        "near: no worker of Flink has come back in 0.1 s; the worker on near has ended: no memory"
    )
    assert "deployed" not in cluster.did


# --- on hosts ------------------------------------------------------------------------------------


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    need_namespaces()
    rack = VirtualRack(inventory_of(tmp_path))
    try:
        with connect(rack.up()) as found:
            yield found
    finally:
        rack.down()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def round_trip_ms(hosts: Hosts) -> float:
    """The fastest of some."""
    (found,) = measure_rtt(hosts, [("hub", "near")], count=5)
    return found.udp_ms[0]


def cores(rack: VirtualRack) -> float | None:
    """That ``near`` may use."""
    return next(host.cpu for host in rack.status().hosts if host.name == "near")


def state_of(host: Host, pid: int) -> str:
    """As the kernel calls it; empty for a process that is not there."""
    out = host.run(f"cat /proc/{pid}/stat", check=False).stdout
    return out.rpartition(") ")[2][:1]


@pytest.mark.e2e
def test_hosts_feel_what_a_script_says(hosts: Hosts, tmp_path: Path) -> None:
    near = hosts["near"]
    worker = near.start("exec sleep 600", name=TASK_MANAGER)
    pid = worker.processes()[-1]
    rack = VirtualRack(hosts.inventory)
    assert 9 < round_trip_ms(hosts) < 40
    assert cores(rack) == 0.25
    file = script(
        tmp_path,
        {"at": 0, "what": "cpu", "host": "near", "cores": 0.5},
        {"at": 0, "what": "rtt", "host": "near", "to": "hub", "ms": 50},
        {"at": 0, "what": "load", "host": "near"},
        {"at": 0.1, "what": "hang", "host": "near", "for": 0.5},
        {"at": 8, "what": "kill", "host": "near"},
        {"at": 8.5, "what": "hang", "host": "near"},
    )
    noted: list[tuple[str, str]] = []
    ended = threading.Event()

    def note(kind: str, text: str) -> None:
        noted.append((kind, text))
        if kind == "failed":
            ended.set()

    deployment = FlinkDeployment(hosts, FlinkHome.default())
    # What lasts is undone at the end.
    with closing(Disturbing([Disturbance(0, "hang", "near")], deployment, note)) as disturbing:
        disturbing.start()
        until(lambda: noted == [("disturbed", "the worker on near hangs")])
        assert state_of(near, pid) == "T"
    assert state_of(near, pid) not in ("T", "")
    noted.clear()
    events = Script.read(file, hosts.inventory).events
    with closing(Disturbing(events, deployment, note)) as disturbing:
        disturbing.start()
        assert ended.wait(PATIENCE_S)
        assert state_of(near, pid) == ""
        assert cores(rack) == 0.5
        assert round_trip_ms(hosts) > 49
        assert [job.name for job in near.jobs()] == ["disturbance"]
    assert noted == [
        ("disturbed", "near has 0.5 cores"),
        ("disturbed", "near to hub takes 50 ms"),
        ("disturbed", "load on near"),
        ("disturbed", "the worker on near hangs, for 0.5 s"),
        ("over", "the worker on near hangs, for 0.5 s"),
        ("disturbed", "the worker on near is killed"),
        ("failed", "not disturbed: near: Flink has no worker there"),
    ]
    assert cores(rack) == 0.25
    assert round_trip_ms(hosts) < 40
    assert near.jobs() == []
    with closing(Disturbing([Disturbance(0, "cut", "near")], deployment, note)) as disturbing:
        disturbing.start()
        until(lambda: noted[-1] == ("disturbed", "near is cut off from all others"))
        (found,) = measure_rtt(hosts, [("hub", "near")], count=2)
        assert found.lost_percent == 100
    assert round_trip_ms(hosts) < 40


@pytest.mark.parametrize("strategy", ["nova", "top-c", "source", "sink", "tree", "cl-sf"])
def test_no_plan_uses_a_host_that_is_added_later(strategy: str, tmp_path: Path) -> None:
    inventory = read_inventory("virtual-5")
    capacity = dict.fromkeys((host.name for host in inventory.hosts), 1e6) | {"far": 1e9}
    document = problem_document(inventory, capacity, DebsWorkload(regions=1), Traffic(100, 100))
    problem = problem_of(document, tmp_path / "problem.yaml")
    cell = Cell(StrategyPart(name=strategy), 100, 100.0, stress=False, repetition=1)
    (added,) = added_hosts([Disturbance(3, "add", "far"), Disturbance(1, "load", "near")])
    plan = place(cell, problem, [added])
    assert "far" not in problem.nodes.ids[plan.instances.node].tolist()
    if strategy == "top-c":
        assert "far" in problem.nodes.ids[place(cell, problem).instances.node].tolist()
