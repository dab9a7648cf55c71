"""An engine of another package: experiments and `nova cluster` run it, and bear its faults.

The engine is tests/tiny_engine: no Java, up within a second, with results over a real network. What
is tested with it is Nova's part, which Flink, Storm and Spark share.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import cluster_commands
import msgspec
import pytest
from needs import skip_or_fail
from own_packages import installed

from nova_core.errors import NovaError
from nova_core.io.files import write_plan
from nova_core.strategies.base import place
from nova_harness.engines.base import names, runner
from nova_harness.experiment.document import CapacityPart, Experiment, StrategyPart
from nova_harness.experiment.problem import problem_document, problem_of
from nova_harness.experiment.runner import Watcher, run_experiment
from nova_harness.report import make_report
from nova_harness.results.run_folder import CellFolder, read_run
from nova_testbed.hosts import connect
from nova_testbed.inventory import read_inventory
from nova_testbed.rack import VirtualRack
from nova_testbed.rack.requirements import missing
from nova_workloads.base import Traffic
from nova_workloads.debs import DebsWorkload

pytestmark = pytest.mark.e2e
INVENTORY = """
inventory: 1
name: {name}
virtual: true
defaults: {{cpu: 0.3, memory: 256 MiB}}
hosts:
  - {{name: hub, role: sink, cpu: 0.5, memory: 512 MiB}}
  - {{name: left, role: source}}
  - {{name: right, role: source}}
  - {{name: near, role: worker}}
  - {{name: far, role: worker}}
network: {{rtt_ms: 10}}
"""


@pytest.fixture(scope="module", autouse=True)
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The engine's package, and one with a workload."""
    with installed(tmp_path_factory.mktemp("installed"), "tiny_engine", "tiny_workload"):
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the inventory of a rack that is up."""
    lacking = missing()
    if lacking:
        skip_or_fail(str(lacking))
    directory = tmp_path_factory.mktemp("tiny")
    file = directory / "five.yaml"
    file.write_text(INVENTORY.format(name=f"novatiny-{os.getpid()}"))
    rack = VirtualRack(read_inventory(file))
    rack.up()
    try:
        yield directory
    finally:
        rack.down()


def experiment(*strategies: StrategyPart) -> Experiment:
    """A short one."""
    return Experiment(
        name="tiny",
        inventory="five.yaml",
        engine="tiny",
        strategies=list(strategies),
        workload={"regions": 1},
        windows_ms=[50],
        rates=[100.0],
        duration_s=2,
        warm_up_s=1,
        drain_s=10,
        capacity=CapacityPart(seconds=2, warm_up_s=1),
    )


def sink(label: str) -> StrategyPart:
    """Joins on the sink, under a name of its own."""
    return StrategyPart(name="sink", label=label)


@pytest.fixture(scope="module")
def calibrated(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has finished one cell."""
    run = tmp_path_factory.mktemp("calibrated") / "run"
    run_experiment(experiment(sink("sink")), base, run, Watcher())
    return run


@pytest.fixture
def run(calibrated: Path, tmp_path: Path) -> Path:
    """A copy of that folder, for more cells."""
    shutil.copytree(calibrated, tmp_path / "run")
    return tmp_path / "run"


def check_exact(cells: list[CellFolder]) -> None:
    """Every result came, and every operator was where its plan has it."""
    for cell in cells:
        assert cell.verification.ok, cell.verification
        assert cell.check.ok and cell.check.finished, cell.check
        assert cell.check.expected == cell.check.delivered > 0


def test_an_engine_from_another_package_runs_experiments(base: Path, run: Path) -> None:
    assert "tiny" in names()
    (before,) = read_run(run).cells
    cut = StrategyPart(name="nova", label="cut", parameters={"bandwidth": 60.0})
    said: list[str] = []
    asked = experiment(sink("sink"), StrategyPart(name="nova"), cut)
    cells = run_experiment(asked, base, run, Watcher(phase=said.append))
    assert sorted(cell.facts.strategy for cell in cells) == ["cut", "nova", "sink"]
    assert {cell.facts.engine for cell in cells} == {"tiny"}
    check_exact(cells)
    # Two links of 5 ms.
    assert all(10 < (cell.summary.latency_ms.p50 or 0) < 1000 for cell in cells)
    assert {group.setting.engine for group in make_report([run]).groups} == {"tiny"}
    (pieces,) = (cell for cell in cells if cell.facts.strategy == "cut")
    joins = [row for row in pieces.verification.rows if row.operator.startswith("join")]
    assert len(joins) > 1
    # What was measured already was not measured again.
    (again,) = (cell for cell in cells if cell.facts.strategy == "sink")
    assert again.facts.start_ms == before.facts.start_ms
    assert not any("calibrating" in line for line in said)


def test_a_workload_from_another_package_runs_on_it(base: Path, tmp_path: Path) -> None:
    asked = msgspec.structs.replace(
        experiment(StrategyPart(name="nova")), workload={"kind": "machines", "machines": 2}
    )
    (cell,) = run_experiment(asked, base, tmp_path / "run", Watcher())
    check_exact([cell])
    assert cell.facts.sources == 4 and cell.facts.expected_rate == 200
    joins = [row.operator for row in cell.verification.rows if row.operator.startswith("join")]
    assert sorted(joins) == [f"join wear/vibration-{n}*temperature-{n}#0" for n in (1, 2)]


def test_a_worker_that_ends_fails_the_run_which_can_go_on(base: Path, run: Path) -> None:
    asked = experiment(sink("sink"), sink("killed"))

    def kill(phase: str) -> None:
        if "killed" in phase and "measuring" in phase:
            reachable = VirtualRack(read_inventory(base / "five.yaml")).reachable()
            with connect(reachable, ["right"]) as hosts:
                for job in hosts["right"].jobs("tiny_engine_worker"):
                    job.stop(grace=0)

    with pytest.raises(NovaError, match="tiny_engine_worker on right has ended"):
        run_experiment(asked, base, run, Watcher(phase=kill))
    state = read_run(run).state
    assert state.state == "failed" and "right has ended" in state.verdict
    assert sorted(state.cells.values()) == ["failed", "finished"]
    cells = run_experiment(asked, base, run, Watcher())
    assert len(cells) == 2
    check_exact(cells)


def test_a_job_that_starts_late_is_started_again(
    base: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, delays, said = runner("tiny").job, [3.0], []  # type: ignore[attr-defined]
    await_running = job.await_running

    def slow(self: Any) -> None:
        await_running(self)
        if delays:
            time.sleep(delays.pop())

    monkeypatch.setattr(job, "await_running", slow)
    cells = run_experiment(experiment(sink("late")), base, run, Watcher(phase=said.append))
    check_exact(cells)
    assert sum("it took too long; once more" in line for line in said) == 1


def test_measured_time_that_begins_before_all_is_ready_is_measured_again(
    base: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, delays, said = runner("tiny").job, [2.5], []  # type: ignore[attr-defined]
    counters = job.counters

    def slow(self: Any) -> Any:
        if delays:
            time.sleep(delays.pop())
        return counters(self)

    monkeypatch.setattr(job, "counters", slow)
    (cell,) = run_experiment(experiment(sink("slow")), base, run, Watcher(phase=said.append))
    check_exact([cell])
    assert sum("once more, with a warm-up of 3 s" in line for line in said) == 1
    assert cell.facts.warm_up_s == 3
    assert cell.check.expected == 100 * 5


def test_a_plan_that_does_not_fit_leaves_the_others(base: Path, run: Path) -> None:
    greedy = StrategyPart(name="nova", parameters={"c_min": 1e9})
    cells = run_experiment(experiment(greedy, sink("sink")), base, run, Watcher())
    assert [cell.facts.strategy for cell in cells] == ["sink"]
    state = read_run(run).state
    assert state.state == "finished" and "without nova" in state.verdict
    assert sorted(state.cells.values()) == ["finished", "infeasible"]


def test_ctrl_c_ends_the_job_and_the_run_can_go_on(base: Path, run: Path) -> None:
    asked = experiment(sink("interrupted"))

    def interrupt(phase: str) -> None:
        if "measuring" in phase:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(asked, base, run, Watcher(phase=interrupt))
    assert read_run(run).state.state == "interrupted"
    reachable = VirtualRack(read_inventory(base / "five.yaml")).reachable()
    with connect(reachable) as hosts:
        assert all(not jobs for jobs in hosts.map(lambda host: host.jobs()).values())
    check_exact(run_experiment(asked, base, run, Watcher()))


def test_the_commands_of_a_cluster(base: Path, tmp_path: Path) -> None:
    inventory = base / "five.yaml"
    ask = partial(cluster_commands.ask, "tiny", inventory)
    spec = read_inventory(inventory)
    capacity = {host.name: 10_000.0 for host in spec.hosts}
    file = tmp_path / "problem.yaml"
    problem = problem_of(
        problem_document(spec, capacity, DebsWorkload(regions=1), Traffic(100, 100)), file
    )
    for strategy in ("sink", "source"):
        write_plan(place(problem, strategy), tmp_path / f"{strategy}.json")
    up = ask("up")
    assert (up["hosts"], up["found"]) == (5, False)
    first = ask("deploy", str(tmp_path / "sink.json"), "-p", str(file))
    assert first["ok"] and first["replaced"] == []
    second = ask("deploy", str(tmp_path / "source.json"), "-p", str(file))
    assert second["ok"] and second["replaced"] == ["tiny"]
    assert ask("verify", second["job"])["ok"]
    other = ["--plan", str(tmp_path / "sink.json"), "-p", str(file)]
    assert not ask("verify", second["job"], *other, code=1)["ok"]
    status = ask("status")
    assert status["missing"] == [] and [one["state"] for one in status["jobs"]] == ["RUNNING"]
    assert ask("stop") == {"tiny": "ended"}
    assert ask("status")["jobs"] == []
    assert "hub" in ask("down")["ended on"]
