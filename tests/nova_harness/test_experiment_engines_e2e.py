"""The same small experiment on Storm, on Spark and through Kafka, on a virtual rack."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import cluster_commands
import msgspec
import pytest
from calibrated import begun, keep_calibration
from needs import skip_or_fail
from needs_nes import need_home
from query_experiment import WORKLOAD, check_queries, write_queries

from nova_core.errors import NovaError
from nova_core.io.files import write_plan
from nova_core.strategies.base import place
from nova_engines.sources import REPLAY
from nova_flink.home import FlinkHome
from nova_harness.control.disturbances import Disturbance
from nova_harness.engines.base import runner
from nova_harness.experiment.bed import engine_bed, prepare_engine
from nova_harness.experiment.cell_run import run_cell
from nova_harness.experiment.cells import cells_of
from nova_harness.experiment.document import CapacityPart, Experiment, StrategyPart
from nova_harness.experiment.problem import problem_document, problem_of
from nova_harness.experiment.runner import Watcher, run_experiment
from nova_harness.report import make_report
from nova_harness.results.run_folder import CellFolder
from nova_kafka.home import broker_home, connectors_home
from nova_storm.home import StormHome
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
defaults: {{cpu: 0.4, memory: 1280 MiB}}
hosts:
  - {{name: hub, role: sink, cpu: 1, memory: 2560 MiB}}
  - {{name: left, role: source}}
  - {{name: right, role: source}}
  - {{name: between, role: worker}}
network: {{rtt_ms: 20}}
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the inventory of a rack that is up."""
    lacking = missing()
    if lacking:
        skip_or_fail(str(lacking))
    try:
        if os.environ.get("CI"):
            StormHome.default().install()
        for engine in ("storm", "spark"):
            runner(engine).prepare(print, REPLAY)
    except NovaError as error:
        skip_or_fail(str(error))
    directory = tmp_path_factory.mktemp("engines")
    file = directory / "four.yaml"
    file.write_text(INVENTORY.format(name=f"novaeng-{os.getpid()}"))
    rack = VirtualRack(read_inventory(file))
    rack.up()
    try:
        yield directory
    finally:
        rack.down()


def need(engine: str) -> None:
    """Skip what runs on an engine that Nova cannot install."""
    if engine == "nebulastream":
        need_home()


def small(engine: str, *strategies: str | StrategyPart) -> Experiment:
    return Experiment(
        name="small",
        inventory="four.yaml",
        engine=engine,
        strategies=list(strategies),
        workload={"regions": 1},
        windows_ms=[100],
        rates=[100.0],
        duration_s=5,
        # A busy machine takes seconds to ask nimbus, and longer for a first batch.
        warm_up_s=14,
        drain_s=60,
        capacity=CapacityPart(safety=1.0, seconds=6, warm_up_s=12),
    )


def assert_clean(base: Path) -> None:
    reachable = VirtualRack(read_inventory(base / "four.yaml")).reachable()
    with connect(reachable) as hosts:
        assert all(not jobs for jobs in hosts.map(lambda host: host.jobs()).values())


@pytest.mark.parametrize("engine", ["storm", "spark", "nebulastream"])
def test_an_experiment_on_another_engine(base: Path, tmp_path: Path, engine: str) -> None:
    need(engine)
    # What an engine costs may leave hosts less capacity than they need.
    nova = StrategyPart(name="nova", parameters={"on_full": "spread"})
    experiment = small(engine, nova, "sink")
    run = tmp_path / "run"
    reports = run_experiment(experiment, base, run, Watcher(phase=print))
    keep_calibration(base, run, engine)
    assert len(reports) == 2
    for report in reports:
        assert report.verification.ok, report.name
        assert report.check.ok, report.check
        assert report.check.finished
        # On a busy machine the warm-up is longer.
        assert report.check.expected == report.check.delivered >= 19 * 100
        assert report.summary.results == 5 * 100
        # Two links of 10 ms; a busy machine takes its time.
        assert (report.summary.latency_ms.p50 or 0) > 10
        assert {row.operator: row.actual for row in report.verification.rows} == {
            row.name: row.node for row in report.operators
        }
        # Spark's stages hold several operators, and NebulaStream counts nothing.
        assert any(row.records_in for row in report.operators) == (engine == "storm")
    page = make_report([run])
    assert {group.setting.engine for group in page.groups} == {engine}
    assert_clean(base)


def killing(base: Path, process: str) -> Watcher:
    """Kills processes on the sink's host, by their command, as soon as a cell is measured."""

    def kill(phase: str) -> None:
        if phase.endswith("-calm-1: measuring"):
            reachable = VirtualRack(read_inventory(base / "four.yaml")).reachable()
            with connect(reachable, ["hub"]) as hosts:
                hosts["hub"].run(f"pkill -KILL -f '{process}'")

    return Watcher(phase=kill)


def test_the_worker_that_collects_is_killed_on_storm(base: Path, tmp_path: Path) -> None:
    watcher = killing(base, "[d]aemon.worker.Worker")
    run = begun(base, tmp_path, "storm")
    (report,) = run_experiment(small("storm", "sink"), base, run, watcher)
    # What did not arrive is told with its number, whether or not later results came from a new
    # worker; what has arrived is right.
    check = report.check
    absent = check.lost + check.cut_off
    assert absent > 0 and check.wrong == check.duplicated == 0
    assert check.delivered + absent == check.expected
    assert_clean(base)


def test_the_driver_that_collects_is_killed_on_spark(base: Path, tmp_path: Path) -> None:
    watcher = killing(base, "[n]ova_spark.driver")
    with pytest.raises(NovaError, match="nova_spark_driver on hub has ended"):
        run_experiment(small("spark", "sink"), base, begun(base, tmp_path, "spark"), watcher)
    assert_clean(base)


def test_whole_queries_on_storm(base: Path, tmp_path: Path) -> None:
    write_queries(tmp_path)
    shutil.copy(base / "four.yaml", tmp_path)
    asked = Experiment(
        name="queries",
        inventory="four.yaml",
        engine="storm",
        strategies=[StrategyPart(name="nova", parameters={"on_full": "spread"}), "sink"],
        workload=WORKLOAD,
        duration_s=5,
        warm_up_s=14,
        drain_s=60,
        capacity=CapacityPart(safety=1.0, seconds=6, warm_up_s=12),
    )
    run = tmp_path / "run"
    check_queries(run_experiment(asked, tmp_path, run, Watcher(phase=print)), run)


def test_a_cell_through_kafka(base: Path, tmp_path: Path) -> None:
    """Nothing is lost between producers, broker and Flink, and the wait is measured.

    Also under the controller, when the join's worker is killed.
    """
    if os.environ.get("CI"):
        for home in (FlinkHome.default(), broker_home(), connectors_home()):
            home.install()
    experiment = Experiment(
        name="small",
        inventory="four.yaml",
        transport="kafka",
        strategies=[
            "sink",
            StrategyPart(name="top-c", scheduled_by="controller", label="controlled"),
        ],
        workload={"regions": 1},
        windows_ms=[100],
        rates=[100.0],
        # Flink tells how far it has read every few seconds.
        duration_s=16,
        warm_up_s=4,
        drain_s=30,
    )
    try:
        engine = prepare_engine(experiment, print)
    except NovaError as error:
        skip_or_fail(str(error))
    reachable = VirtualRack(read_inventory(base / "four.yaml")).reachable()
    # Every host has room: where the join runs is not what is looked at, so nothing is calibrated.
    capacity = dict.fromkeys((host.name for host in reachable.hosts), 1e6) | {"between": 2e6}
    problem = problem_of(
        problem_document(reachable, capacity, DebsWorkload(regions=1), Traffic(100.0, 100)),
        tmp_path / "p.yaml",
    )
    streams = DebsWorkload(regions=1).streams(problem, Traffic(100.0, 100, 10), experiment.seed)
    killed = msgspec.structs.replace(
        experiment, disturbances=[Disturbance(4, "kill", "between", 6)], drain_s=40
    )
    cells = {cell.strategy.called: cell for cell in cells_of(experiment)}
    with engine_bed(experiment, reachable, engine, print, keep=False) as bed:
        folder, moved = CellFolder(tmp_path / "cell"), CellFolder(tmp_path / "moved")
        run_cell(bed, experiment, cells["sink"], problem, streams, folder, print)
        run_cell(bed, killed, cells["controlled"], problem, streams, moved, print)
    with connect(reachable) as hosts:
        assert all(not jobs for jobs in hosts.map(lambda host: host.jobs()).values())
    for one in (folder, moved):
        assert one.verification.ok
        assert one.check.ok, one.check
        assert one.check.finished
        # A busy machine repeats a cell with a longer warm-up.
        seconds = one.facts.warm_up_s + 16
        assert seconds >= 20
        assert one.check.expected == one.check.delivered == round(seconds * 100)
        assert one.summary.kafka is not None
    assert {"disturbed", "recovered"} <= {event.kind for event in moved.facts.events}
    told = folder.summary.kafka
    assert told is not None and told.back_pressure is not None
    # A reading crosses from its host to the broker and back, and its result from host to sink.
    assert (told.end_to_end_ms.p50 or 0) > (told.processing_ms.p50 or 0) + 10 > 20
    assert told.back_pressure.samples >= 2


@pytest.mark.parametrize("engine", ["storm", "spark", "nebulastream"])
def test_plans_by_command(base: Path, tmp_path: Path, engine: str) -> None:
    """Deployed, verified, replaced, ended: as on Flink in test_cluster_commands_e2e.py."""
    need(engine)
    inventory = base / "four.yaml"
    ask = partial(cluster_commands.ask, engine, inventory)
    spec = read_inventory(inventory)
    capacity = {host.name: 10_000.0 for host in spec.hosts}
    problem = problem_of(
        problem_document(spec, capacity, DebsWorkload(regions=1), Traffic(100, 100)),
        tmp_path / "p.yaml",
    )
    for strategy in ("sink", "source"):
        write_plan(place(problem, strategy), tmp_path / f"{strategy}.json")
    given = ["-p", str(tmp_path / "p.yaml")]
    try:
        first = ask("deploy", str(tmp_path / "sink.json"), *given)
        assert first["ok"] and first["replaced"] == []
        status = ask("status")
        assert status["missing"] == []
        assert [one["job"] for one in status["jobs"]] == [first["job"]]
        second = ask("deploy", str(tmp_path / "source.json"), *given)
        assert second["ok"] and second["replaced"] == [first["job"]]
        assert ask("verify", second["job"])["ok"]
        sink = ["--plan", str(tmp_path / "sink.json"), *given]
        assert not ask("verify", second["job"], *sink, code=1)["ok"]
        assert list(ask("stop")) == [second["job"]]
    finally:
        assert "hub" in ask("down")["ended on"]


@pytest.mark.parametrize("engine", ["storm", "spark", "nebulastream"])
def test_queries_with_columns(base: Path, tmp_path: Path, engine: str) -> None:
    need(engine)
    ask = partial(cluster_commands.ask, engine, base / "four.yaml")
    arguments = cluster_commands.query_plan(tmp_path)
    try:
        done = ask("deploy", *arguments, "--check")
        assert done["ok"]
        assert done["queries"]["hot"]["ok"]
        assert done["queries"]["hot"]["delivered"] == 16
    finally:
        ask("down")
