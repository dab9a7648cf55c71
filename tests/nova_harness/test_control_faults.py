"""Controllers that are killed at every step, are two, or wait for hosts that do not answer.

The engine and hosts are a model (``engine_world.py``); real ones are in ``test_control_e2e.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from control_hosts import ENDS, MORE, placed_join, placed_query
from engine_world import WINDOW_MS, Job, Killed, Pool, Source, World, check_exactly_once, worlds

from nova_core import place
from nova_core.errors import NovaError
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_engines.flow import SOURCE, Flow, Match
from nova_engines.flow_of_plan import flow_of
from nova_engines.handover import FINISHED, RUNNING, Ledger
from nova_engines.source_orders import ControlledJob
from nova_engines.sources import READINGS, Sources
from nova_engines.sources import Source as Replay
from nova_harness.control import controller as controlling
from nova_harness.control import decision_log, deploying
from nova_harness.control.controller import Controller, pause
from nova_harness.control.deciding import Tuning
from nova_harness.control.decision_log import Entry
from nova_harness.control.job_groups import ledgers_of
from nova_harness.control.sensing import HostView
from nova_harness.control.watching import Watching, read_state
from nova_harness.engines.base import JobsSeen, JobState

WORKERS = {"near": 18.0, "far": 15.0}
# With room for two joins on any two of them, and for one on each.
SPARE = WORKERS | {"spare": 30.0}
HOSTS = (*ENDS, *MORE, *SPARE)
TUNING = Tuning(lasting_s=1, cooldown_s=1)


class Engine:
    """An engine on hosts of a model, as far as a controller uses it.

    Args:
        world: of the hosts.
        ends_failed_jobs: as Flink does; Storm does not.

    Attributes:
        views: what its sensor tells of hosts.
        gone: hosts without a worker.
        started: hosts where the controller has started one.
        blamed: hosts that the cause of a failure names.
    """

    def __init__(self, world: World, *, ends_failed_jobs: bool = True) -> None:
        self.world, self.controlled_jobs = world, world
        world.ends_failed_jobs = ends_failed_jobs
        self.views = {name: HostView(1.0, 0.0, alive=True) for name in HOSTS}
        self.gone: set[str] = set()
        self.started: set[str] = set()
        self.blamed: set[str] = set()
        self.names: dict[str, str] = {}
        self.flows: dict[str, Flow] = {}
        self.stays_warm = ends_failed_jobs
        self.deployment = SimpleNamespace(
            hosts=Hosts(self),
            work=lambda name: "",
            result_file=lambda name: f"/results/{name}",
            prepare_results=lambda: None,
            start_worker=self.started.add,
            PROCESSES=("worker",),
            ENGINE="The engine",
        )

    def submit(self, flow: Flow, sources: Sources, name: str, results: str) -> Any:
        self.world.step()
        job = results
        own = [sources.index(one.source) for one in flow.of_kind(SOURCE)]
        self.world.jobs_[job] = Job({number: Source() for number in own})
        self.names[job], self.flows[job] = name, flow
        return SimpleNamespace(name=job, flow=flow, await_running=self.world.step)

    def start_ms(self) -> int:
        return self.world.now

    def jobs(self) -> Any:
        return [
            JobState(
                job, self.names[job], one.state, own=True, runs=one.state in ("RUNNING", "BROKEN")
            )
            for job, one in self.world.jobs_.items()
        ]

    def stop(self, job: str) -> str:
        return self.world.end(job)

    def lose(self, host: str) -> None:
        """The host's worker ends, and with it the jobs that have a part there."""
        self.gone.add(host)
        for name, one in self.world.jobs_.items():
            if one.state == "RUNNING" and host in self.flows[name].nodes:
                one.state = "FAILED" if self.world.ends_failed_jobs else "BROKEN"

    def watch(self, running: Sequence[tuple[ControlledJob, Flow]]) -> Any:
        def look(now: float) -> JobsSeen:
            states = {job.job: self.world.state(job) for job, _ in running}
            if self.world.ends_failed_jobs:
                return JobsSeen(states, set(HOSTS) - self.gone)
            # Only hosts tell that it has failed.
            return JobsSeen(
                {job: FINISHED if one == FINISHED else RUNNING for job, one in states.items()}
            )

        return SimpleNamespace(look=look)

    def processes(self, job: ControlledJob, nodes: Sequence[str]) -> dict[str, set[int]]:
        return {}

    def hosts(self) -> dict[str, bool]:
        return {name: name not in self.gone for name in HOSTS}

    def misses(self, node: str) -> bool:
        return node in self.gone

    def why(self, job: ControlledJob) -> str:
        return "a worker was lost"

    def blames(self, job: ControlledJob) -> set[str]:
        return self.blamed


class Hosts:
    """Names, and the engine's processes."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __iter__(self) -> Iterator[Any]:
        return iter([SimpleNamespace(name=name) for name in HOSTS])

    def __getitem__(self, name: str) -> Any:
        role = "source" if name in ENDS and name != "hub" else "worker"
        runs = name not in self.engine.gone or name in self.engine.started
        jobs = [SimpleNamespace(name="worker", pid=1)] if runs else []
        return SimpleNamespace(name=name, jobs=lambda: jobs, spec=SimpleNamespace(role=role))

    def map(self, call: Callable[[Any], Any]) -> dict[str, Any]:
        return {one.name: call(self[one.name]) for one in self}


class Sensor:
    """Tells what a test has put into the engine's views."""

    def __init__(self, engine: Engine, sessions: dict[str, set[int]]) -> None:
        self.engine, self.sessions = engine, sessions

    def view(self) -> dict[str, HostView]:
        now = self.engine.world.now / 1000
        for name, view in self.engine.views.items():
            view.read_at = now
            view.alive = bool(self.sessions[name]) and name not in self.engine.gone
            view.works = view.alive
        return self.engine.views

    def expect(self, name: str, sessions: set[int]) -> None:
        self.sessions[name] = sessions

    def follow(self, jobs: frozenset[str], workers: dict[str, set[int]]) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], World]]:
    """Makes worlds, in whose time controllers live."""
    with worlds(monkeypatch, (controlling, deploying, decision_log)) as make:
        yield make


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Problem, Plan]:
    """One join of 400 tuples/s, which is on ``near``."""
    return placed_join(tmp_path_factory.mktemp("faults"), WORKERS, hub=300.0)


class Controlled:
    """A controller in a world, and what it has written down."""

    def __init__(
        self,
        engine: Engine,
        directory: Path,
        placed: tuple[Problem, Plan],
        patch: pytest.MonkeyPatch,
        warm_s: float = 0.0,
        readings: Sources | None = None,
    ) -> None:
        self.engine, self.log, self.directory = engine, list[Entry](), directory
        patch.setattr(deploying, "ThreadPoolExecutor", Pool)
        patch.setattr(deploying, "HostFiles", lambda hosts: engine.world)
        patch.setattr(
            controlling, "HostSensor", lambda hosts, sessions, orders: Sensor(engine, sessions)
        )
        patch.setattr(
            controlling,
            "ArrivalsWatch",
            lambda hosts: SimpleNamespace(
                follow=lambda files: None, close=lambda: None, history=list
            ),
        )
        any_engine: Any = engine
        self.controller = Controller(any_engine, directory, TUNING, self.log.append)
        problem, plan = placed
        replays = [Replay(name, 200, values=(1.0,)) for name in problem.sources.ids.tolist()]
        sources, match = readings or Sources(tuple(replays)), Match(WINDOW_MS)
        asked = None if problem.queries else match
        self.controller.begin(problem, plan, sources, asked, warm_s=warm_s)

    @property
    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.log if entry.kind != "restarted"]

    def run(self, seconds: float) -> None:
        """Let it look twice a second."""
        for _ in range(round(2 * seconds)):
            self.controller.run(0.001, lambda controller: None)
            self.engine.world.pass_time(500)

    def check(self) -> int:
        """Its jobs end, exactly once; how many there were."""
        self.controller.end()
        world, jobs = self.engine.world, list[str]()
        for path in ledgers_of(self.directory):
            end = Ledger.read(path).end_ms
            assert end is not None
            jobs += check_exactly_once(world, path, end)
        assert [one.state for one in self.engine.jobs() if one.runs] == []
        return len(jobs)


Begin = Callable[[Engine], Controlled]


@pytest.fixture
def begin(tmp_path: Path, placed: tuple[Problem, Plan], monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Begins, or goes on with, the controller of an engine; each engine has its directory."""
    return beginning(tmp_path, placed, monkeypatch)


def beginning(states: Path, placed: tuple[Problem, Plan], monkeypatch: pytest.MonkeyPatch) -> Begin:
    directories: dict[int, Path] = {}

    def begun(engine: Engine) -> Controlled:
        directory = directories.setdefault(id(engine), states / f"state-{len(directories)}")
        directory.mkdir(exist_ok=True)
        return Controlled(engine, directory, placed, monkeypatch)

    return begun


@pytest.mark.parametrize("ends_failed_jobs", [True, False])
def test_load_and_a_lost_worker(
    ends_failed_jobs: bool, world: Callable[[], World], begin: Begin
) -> None:
    engine = Engine(world(), ends_failed_jobs=ends_failed_jobs)
    one = begin(engine)
    one.run(5)
    assert one.kinds == ["deployed"]
    engine.views["near"].taken = 0.8
    one.run(5)
    assert one.kinds == ["deployed", "noticed", "handed-over"]
    engine.views["near"].taken = 0.0
    engine.lose("far")
    one.run(5)
    assert one.kinds[3:] == ["noticed", "failed", "recovered", "noticed"]
    assert one.check() == 3


def test_the_engine_is_warmed_up(
    world: Callable[[], World],
    tmp_path: Path,
    placed: tuple[Problem, Plan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Joins run on every host that has a worker, and have ended when the first job begins."""
    engine = Engine(world())
    # Not on a host without a worker.
    engine.gone.add("far")
    one = Controlled(engine, tmp_path, placed, monkeypatch, warm_s=2)
    assert one.kinds == ["warmed-up", "deployed"]
    flow = engine.flows["warming-up"]
    assert {join.node for join in flow.joins} == {*ENDS, "near"}
    warming = engine.world.jobs_["warming-up"]
    # As every job ends: that is warm, too.
    assert warming.state == "FINISHED" and all(s.begin for s in warming.sources.values())
    one.run(3)
    # Another controller does not do it again.
    other = Controlled(engine, tmp_path, placed, monkeypatch, warm_s=2)
    assert other.kinds == ["resumed"] and other.check() == 1
    # Nor one of an engine whose workers end with their jobs.
    storm = Engine(world(), ends_failed_jobs=False)
    (tmp_path / "storm").mkdir()
    third = Controlled(storm, tmp_path / "storm", placed, monkeypatch, warm_s=2)
    assert third.kinds == ["deployed"]


@pytest.mark.parametrize(("blamed", "seconds"), [({"near"}, 2), (set(), 9)])
def test_the_cause_of_a_failure_names_the_lost_host(
    blamed: set[str], seconds: float, world: Callable[[], World], begin: Begin
) -> None:
    """The engine may list a lost worker for seconds. Without a name, the controller waits."""
    engine = Engine(world())
    one = begin(engine)
    one.run(3)
    engine.blamed = blamed
    engine.world.jobs_["control-1"].state = "FAILED"
    one.run(seconds)
    moved = ["noticed"] if blamed else []
    assert one.kinds == ["deployed", *moved, "failed", "recovered"]
    assert one.log[-1].figures["seconds"] == pytest.approx(0 if blamed else 8, abs=1)
    assert ("far" if blamed else "near") in one.controller.groups[0].running.target.flow.nodes
    assert one.check() == 2


def test_the_cool_down_counts_from_the_boundary(
    world: Callable[[], World], begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job before may need seconds to end after it, to work off what it was behind."""
    engine = Engine(world())
    one = begin(engine)
    handover = one.controller.groups[0].handover
    plan = handover.plan

    def late(job: ControlledJob) -> int:
        boundary = plan(job)
        engine.world.pass_time(7000)
        return boundary

    monkeypatch.setattr(handover, "plan", late)
    one.run(5)
    engine.views["near"].taken = 0.8
    one.run(5)
    (moved,) = (entry for entry in one.log if entry.kind == "handed-over")
    boundary = moved.figures["boundary_ms"] / 1000
    assert moved.at >= boundary + 7
    assert one.controller._moved_at == pytest.approx(boundary, rel=0, abs=0.01)
    assert one.check() == 2


def test_a_pause(world: Callable[[], World], begin: Begin) -> None:
    """Nothing moves by choice; what is lost is joined elsewhere all the same."""
    engine = Engine(world())
    one = begin(engine)
    one.run(3)
    pause(one.directory, paused=True)
    engine.views["near"].taken = 0.8
    one.run(10)
    assert one.kinds == ["deployed", "noticed", "waiting"]
    pause(one.directory, paused=False)
    one.run(5)
    assert one.kinds[3:] == ["handed-over"]
    pause(one.directory, paused=True)
    engine.lose("far")
    one.run(5)
    assert "recovered" in one.kinds[4:]
    assert one.check() == 3
    with pytest.raises(NovaError, match="holds no state of"):
        pause(one.directory.parent, paused=True)


def test_reasons_that_have_passed_are_forgotten(world: Callable[[], World], begin: Begin) -> None:
    engine = Engine(world())
    one = begin(engine)
    one.run(3)
    pause(one.directory, paused=True)
    engine.views["near"].taken = 0.8
    one.run(4)
    assert one.controller.groups[0].due is not None
    # What should run is what runs: as if nothing had happened.
    engine.views["far"].taken = 0.8
    engine.views["near"].taken = 0.0
    one.run(4)
    assert one.controller.groups[0].due is None
    pause(one.directory, paused=False)
    engine.views["far"].taken = 0.0
    one.run(4)
    engine.views["near"].taken = 0.7
    one.run(5)
    assert one.log[-1].text.startswith("near can do 70 % less: handed over at")
    assert one.check() == 2


def test_what_is_refused_again_and_again_is_logged_once(
    world: Callable[[], World], begin: Begin
) -> None:
    """Also with other figures. A log that cannot be written does not end control."""
    engine = Engine(world())
    one = begin(engine)
    (one.directory / decision_log.DECISIONS).unlink()
    (one.directory / decision_log.DECISIONS).mkdir()
    engine.lose("far")
    for step in range(30):
        engine.views["near"].taken = 0.8 + 0.002 * step
        one.run(1)
    assert one.kinds == ["deployed", "noticed", "refused"]
    assert one.check() == 1


def test_a_lost_host_whose_joins_fit_nowhere_is_waited_for(
    world: Callable[[], World],
    tmp_path: Path,
    placed: tuple[Problem, Plan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = placed[0].nodes
    workers = replace(nodes, worker=np.isin(nodes.ids, ["near", "far"]))
    problem = replace(placed[0], nodes=workers)
    engine = Engine(world())
    one = beginning(tmp_path, (problem, place(problem, "nova")), monkeypatch)(engine)
    one.run(3)
    engine.lose("far")
    engine.lose("near")
    one.run(15)
    assert one.kinds == ["deployed", "noticed", "refused", "failed", "waiting"]
    (waiting,) = (entry for entry in one.log if entry.kind == "waiting")
    assert waiting.text == "for near, without which nothing runs"
    engine.gone.discard("far")
    one.run(25)
    assert one.kinds[5:] == ["noticed", "noticed", "recovered"]
    assert "far" in one.controller.groups[0].running.target.flow.nodes
    assert one.check() == 2


@pytest.mark.parametrize(("lost", "ends_failed_jobs"), [(False, True), (True, True), (True, False)])
def test_killed_at_every_step(
    lost: bool, ends_failed_jobs: bool, world: Callable[[], World], begin: Begin
) -> None:
    """While it hands over, or joins anew after a failure; another one goes on."""
    assert killed_at_every_step(lost, ends_failed_jobs, world, begin) == {2}


def killed_at_every_step(
    lost: bool, ends_failed_jobs: bool, world: Callable[[], World], begin: Begin
) -> set[int]:
    """How many jobs there were."""
    jobs, fatal, killed, engines = set(), 0, True, []
    while killed:
        engine = Engine(world(), ends_failed_jobs=ends_failed_jobs)
        engines.append(engine)  # so that no two have the same identity
        one = begin(engine)
        one.run(3)
        if lost:
            engine.lose("near")
        else:
            engine.views["near"].taken = 0.8
            one.run(0.5)
        engine.world.fatal = engine.world.steps + fatal
        try:
            one.run(2)
            killed = False
        except Killed:
            engine.world.fatal = None
            engine.world.pass_time(2000)
            one = begin(engine)
        fatal += 1
        assert one.kinds[0] == ("resumed" if killed else "deployed")
        engine.world.fatal = None
        one.run(6)
        jobs.add(one.check())
        assert fatal < 300
    assert fatal > 15
    return jobs


def test_a_source_that_answers_too_late(world: Callable[[], World], begin: Begin) -> None:
    engine = Engine(world())
    one = begin(engine)
    one.run(3)
    engine.world.jobs_["control-1"].sources[1].deaf_until = engine.world.now + 14_000
    engine.views["near"].taken = 0.8
    one.run(30)
    assert one.kinds[:3] == ["deployed", "noticed", "failed"]
    assert "no answer from 1 of its sources" in one.log[2].text
    assert one.kinds[-1] == "handed-over"
    # The one that was taken back does not run on.
    assert engine.world.jobs_["control-2"].state == "CANCELED"
    assert one.check() == 2


def test_jobs_end_also_in_a_hand_over(world: Callable[[], World], begin: Begin) -> None:
    engine = Engine(world())
    one = begin(engine)
    one.run(3)
    engine.world.jobs_["control-1"].sources[1].deaf_until = engine.world.now + 90_000
    engine.views["near"].taken = 0.8
    one.run(4)
    assert {job.job for job in engine.jobs() if job.runs} == {"control-1", "control-2"}
    one.controller.deployer.cancel()
    assert not any(job.runs for job in engine.jobs())


@pytest.mark.parametrize("ends_failed_jobs", [True, False])
def test_a_host_is_used_once_it_has_a_worker(
    ends_failed_jobs: bool, world: Callable[[], World], begin: Begin
) -> None:
    engine = Engine(world(), ends_failed_jobs=ends_failed_jobs)
    engine.gone.add("far")
    one = begin(engine)
    one.run(3)
    assert [entry.text for entry in one.log[1:]] == ["far is lost: nothing has to move"]
    engine.views["near"].taken = 0.8
    one.run(5)
    assert "handed-over" not in one.kinds
    engine.gone.discard("far")
    one.run(25)
    assert one.kinds == ["deployed", "noticed", "refused", "noticed", "noticed", "handed-over"]
    assert [entry.text for entry in one.log[3:5]] == [
        "far is back: nothing has to move",
        "near can do 80 % less: join/pressure-1*humidity-1 from near to far",
    ]
    # Its loss is noticed, as that of any other.
    engine.views["near"].taken = 0.0
    engine.lose("far")
    one.run(5)
    assert "recovered" in one.kinds and one.check() == 3


def test_a_host_that_flaps(world: Callable[[], World], begin: Begin) -> None:
    """Ten times down and up within a minute: joins leave it once."""
    engine = Engine(world())
    one = begin(engine)
    one.run(3)
    for _ in range(10):
        engine.gone.add("near")
        running = one.controller.groups[0].running
        last = engine.world.jobs_[running.job.job]
        if "near" in running.target.flow.nodes:
            last.state = "FAILED"
        one.run(3)
        engine.gone.discard("near")
        one.run(3)
    assert one.kinds.count("recovered") == 1 and one.kinds.count("handed-over") == 0
    assert one.check() == 2


def test_a_second_controller_of_the_same_hosts_is_refused(
    world: Callable[[], World],
    begin: Begin,
    tmp_path: Path,
    placed: tuple[Problem, Plan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(world())
    one = begin(engine)
    one.run(3)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(NovaError, match=r"control-1 .* runs already: go on with the --state"):
        Controlled(engine, other, placed, monkeypatch)
    one.run(3)
    assert one.check() == 1


def test_other_processes_read_what_it_knows(
    world: Callable[[], World], begin: Begin, tmp_path: Path
) -> None:
    engine = Engine(world())
    one = begin(engine)
    engine.lose("far")
    one.run(1)
    assert read_state(tmp_path) is None
    shown = Watching(None, tmp_path)
    shown.show(one.controller)
    state = read_state(tmp_path)
    assert state is not None and state == shown.state
    assert state.jobs == [group.running.job.job for group in one.controller.groups]
    assert {host.name: host.state for host in state.hosts}["far"] == "lost"
    assert [path.name for path in tmp_path.glob("*.json")] == ["state.json"]
    # A directory that cannot be written is no reason to end control.
    Watching(None, tmp_path / "absent").show(one.controller)


# --- two joins that share no source: two jobs ---------------------------------------------------


@pytest.fixture
def begin_two(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Begin:
    """As `begin`, for two joins, on ``near`` and ``far``; ``spare`` has room for one."""
    placed = placed_join(tmp_path_factory.mktemp("two"), SPARE, hub=450.0, regions=2)
    hosts = placed[0].nodes.ids[placed[1].instances.node].tolist()
    assert sorted(hosts) == ["far", "near"]
    return beginning(tmp_path, placed, monkeypatch)


def on(one: Controlled) -> dict[str, str]:
    """Which job's join is on which host."""
    running = [group.running for group in one.controller.groups]
    return {join.node: job.job.job for job in running for join in job.target.flow.joins}


def test_a_hand_over_replaces_only_what_changes(
    world: Callable[[], World], begin_two: Begin
) -> None:
    engine = Engine(world())
    one = begin_two(engine)
    one.run(5)
    before = on(one)
    engine.views["near"].taken = 0.8
    one.run(5)
    assert one.kinds == ["deployed", "noticed", "handed-over"]
    after = on(one)
    assert after.keys() == {"far", "spare"} and after["far"] == before["far"]
    assert "1 of 2 jobs handed over" in one.log[-1].text
    assert one.log[-1].figures["job"] == after["spare"]
    # Another controller knows both.
    other = begin_two(engine)
    assert other.kinds == ["resumed"] and on(other) == after
    other.run(3)
    assert other.kinds == ["resumed"] and other.check() == 3


def test_one_hand_over_fails_and_the_engine_does_not_answer(
    world: Callable[[], World], begin_two: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other job has been replaced all the same."""
    engine = Engine(world())
    one = begin_two(engine)
    one.run(3)
    deaf, other = one.controller.groups
    source = engine.world.jobs_[deaf.running.job.job].sources
    source[min(source)].deaf_until = engine.world.now + 14_000
    before = {group.running.job.job for group in (deaf, other)}

    def silent() -> Any:
        raise NovaError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "jobs", silent)
        assert list(one.controller.deployer.hand_over([deaf, other], "test")) == [other]
    assert one.log[-1].text == "a job that did not take over may still run: no answer"
    one.run(20)
    assert deaf.running.job.job in before and other.running.job.job not in before
    assert one.kinds[-1] == "failed" and one.check() == 3


def test_a_failure_stops_only_what_it_hits(world: Callable[[], World], begin_two: Begin) -> None:
    engine = Engine(world())
    one = begin_two(engine)
    one.run(5)
    before = on(one)
    engine.lose("near")
    one.run(5)
    assert one.kinds == ["deployed", "noticed", "failed", "recovered"]
    after = on(one)
    assert after.keys() == {"far", "spare"} and after["far"] == before["far"]
    assert one.check() == 3


def test_a_lost_source_lets_the_other_job_move(
    world: Callable[[], World], begin_two: Begin
) -> None:
    engine = Engine(world())
    one = begin_two(engine)
    one.run(5)
    on_near = on(one)["near"]
    lost, other = one.controller.groups
    if lost.running.job.job == on_near:
        lost, other = other, lost
    (host, *_) = {node for _, node in lost.running.job.sources}
    engine.lose(host)
    engine.views["near"].taken = 0.8
    one.run(6)
    assert one.kinds.count("handed-over") == 1 and "spare" in on(one)
    assert one.log[-1].text != one.log[-2].text
    (waiting,) = (entry for entry in one.log if entry.kind == "waiting")
    assert waiting.text == f"for {host}, without which nothing runs"
    engine.gone.discard(host)
    one.run(12)
    assert one.kinds[-1] == "recovered"
    assert one.check() == 4


def test_the_state_of_another_problem_stays_as_it_is(
    world: Callable[[], World],
    begin_two: Begin,
    placed: tuple[Problem, Plan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(world())
    one = begin_two(engine)
    one.run(3)
    before = [path.read_text() for path in ledgers_of(one.directory)]
    # That problem has one join instead of two.
    with pytest.raises(NovaError, match="is of another problem; use another --state"):
        Controlled(engine, one.directory, placed, monkeypatch)
    assert len(before) == 2
    assert [path.read_text() for path in ledgers_of(one.directory)] == before
    one.run(3)
    assert one.check() == 2


@pytest.mark.parametrize("lost", [False, True])
def test_two_jobs_and_a_controller_that_is_killed_at_every_step(
    lost: bool, world: Callable[[], World], begin_two: Begin
) -> None:
    assert killed_at_every_step(lost, True, world, begin_two) == {3}


def test_storm_has_one_job(world: Callable[[], World], begin_two: Begin) -> None:
    engine = Engine(world(), ends_failed_jobs=False)
    one = begin_two(engine)
    one.run(3)
    assert len(one.controller.groups) == 1 and one.check() == 1


def test_a_controller_that_was_killed_while_it_began(
    world: Callable[[], World], begin_two: Begin
) -> None:
    """Not all ledgers are there: nothing has begun."""
    engine = Engine(world())
    one = begin_two(engine)
    ledgers_of(one.directory)[0].unlink()
    with pytest.raises(NovaError, match="runs already: go on with the --state"):
        begin_two(engine)
    for job in ("control-1", "control-2"):
        engine.stop(job)
    one = begin_two(engine)
    one.run(3)
    assert one.kinds == ["deployed"] and one.check() == 2


def test_whole_queries(
    world: Callable[[], World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs of readings begin so early that windows across a boundary are whole."""
    placed = placed_query(tmp_path, WORKERS)
    engine = Engine(world())
    file = tmp_path / "encoded"
    file.write_bytes(b"read")
    readings = tuple(
        Replay(name, kind=READINGS, path=str(file)) for name in placed[0].sources.ids.tolist()
    )
    start = engine.world.now + 3000
    sources = Sources(readings, start, first_ms=70_300, last_ms=900_000, speed=2.0)
    engine.world.clock, engine.world.history_ms = sources.clock, flow_of(placed[1]).history_ms
    assert engine.world.history_ms == 3000

    def begun() -> Controlled:
        return Controlled(engine, tmp_path / "state", placed, monkeypatch, readings=sources)

    one = begun()
    # Whoever resumes needs them as well.
    file.unlink()
    assert all(
        Path(each.path or "").read_bytes() == b"read" for each in one.controller.sources.sources
    )
    one.run(8)
    engine.views["near"].taken = 0.8
    one.run(8)
    engine.views["near"].taken = 0.0
    engine.lose("far")
    one.run(10)
    kinds = ["deployed", "noticed", "handed-over", "noticed", "failed", "recovered"]
    assert one.kinds[: len(kinds)] == kinds
    # Logs have the time of day.
    moved, again = (entry for entry in one.log if entry.kind in ("handed-over", "recovered"))
    assert start < moved.figures["boundary_ms"] < again.figures["begin_ms"] < engine.world.now
    other = begun()
    assert other.kinds == ["resumed"] and other.controller.match is None
    (ledger,) = (Ledger.read(path) for path in ledgers_of(tmp_path / "state"))
    assert (ledger.boundary_ms, ledger.history_ms) == (2000, 3000)
    assert ledger.shares[0].begin_ms == 70_000 and ledger.shares[0].job.queries == ("waste",)
    assert other.check() >= 3
