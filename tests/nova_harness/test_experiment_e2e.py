"""A small experiment on a virtual rack with Flink, and what faults make of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from calibrated import begun, keep_calibration
from needs import skip_or_fail
from query_experiment import WORKLOAD, check_queries, write_queries
from virtual_hosts import run_as_root, stop_ssh

from nova_core.errors import NovaError
from nova_core.io.syntax import dump
from nova_harness.engines.flink import COORDINATOR, TASK_MANAGER, ready_home
from nova_harness.experiment.bed import hosts_up
from nova_harness.experiment.cells import cells_of
from nova_harness.experiment.document import Experiment, StrategyPart, read_experiment
from nova_harness.experiment.runner import Watcher, run_experiment
from nova_harness.results.run_folder import CellFolder
from nova_testbed.hosts import connect
from nova_testbed.inventory import Inventory, read_inventory
from nova_testbed.rack import VirtualRack
from nova_testbed.rack.requirements import missing

pytestmark = pytest.mark.e2e

INVENTORY = """
inventory: 1
name: {name}
virtual: true
defaults: {{cpu: 0.15, memory: 512 MiB}}
hosts:
  - {{name: hub, role: sink, cpu: 0.5, memory: 1 GiB}}
  - {{name: left, role: source}}
  - {{name: right, role: source}}
  - {{name: between, role: worker}}
network: {{rtt_ms: 20}}
stress: {{roles: [source], cpu_percent: 100, memory_percent: 50}}
"""

TWO = """
inventory: 1
name: {name}
virtual: true
hosts:
  - {{name: hub, role: sink}}
  - {{name: left, role: source}}
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the inventory of a rack that is up."""
    lacking = missing()
    if lacking:
        skip_or_fail(str(lacking))
    try:
        ready_home(print)
    except NovaError as error:
        skip_or_fail(str(error))
    directory = tmp_path_factory.mktemp("experiment")
    file = directory / "small.yaml"
    file.write_text(INVENTORY.format(name=f"novaexp-{os.getpid()}"))
    rack = VirtualRack(read_inventory(file))
    rack.up()
    try:
        yield directory
    finally:
        rack.down()


def small(**changes: object) -> Experiment:
    experiment = Experiment(
        name="small",
        inventory="small.yaml",
        strategies=["sink"],
        windows_ms=[50],
        rates=[200.0],
        duration_s=4,
        warm_up_s=2,
        drain_s=4,
    )
    experiment = msgspec.structs.replace(
        experiment,
        workload={"regions": 1},
        capacity=msgspec.structs.replace(experiment.capacity, seconds=2.0, warm_up_s=1.0),
    )
    return msgspec.structs.replace(experiment, **changes)


def at_measuring(do: Callable[[], None]) -> Watcher:
    """Does something as soon as a cell is measured."""
    return Watcher(phase=lambda text: do() if text.endswith("-calm-1: measuring") else None)


def reachable(base: Path) -> Inventory:
    return VirtualRack(read_inventory(base / "small.yaml")).reachable()


def kill(base: Path, host: str, process: str) -> Callable[[], None]:
    def do() -> None:
        with connect(reachable(base), [host]) as hosts:
            for job in hosts[host].jobs(process):
                job.stop(grace=0)

    return do


def stop(base: Path, host: str, process: str) -> Callable[[], None]:
    """Stops processes as SIGSTOP does, and leaves them so."""

    def do() -> None:
        with connect(reachable(base), [host]) as hosts:
            for job in hosts[host].jobs(process):
                hosts[host].run(f"kill -STOP {' '.join(map(str, job.processes()))}")

    return do


def assert_clean(base: Path) -> None:
    """Limits are the inventory's, and nothing of Flink's runs."""
    inventory = read_inventory(base / "small.yaml")
    limits = {host.name: host.cpu for host in VirtualRack(inventory).status().hosts}
    assert limits == {host.name: host.cpu for host in inventory.hosts}
    with connect(reachable(base)) as hosts:
        assert all(not jobs for jobs in hosts.map(lambda host: host.jobs()).values())


def state(run: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((run / "run.json").read_text())
    return found


def test_whole_queries_over_readings(base: Path, tmp_path: Path) -> None:
    write_queries(tmp_path)
    shutil.copy(base / "small.yaml", tmp_path)
    # On a busy machine calibrated hosts may have no room for all operators.
    nova = StrategyPart(name="nova", parameters={"on_full": "spread"})
    asked = small(workload=WORKLOAD, strategies=[nova, "sink"], windows_ms=[], rates=[])
    run = tmp_path / "run"
    check_queries(run_experiment(asked, tmp_path, run, Watcher()), run)


def test_an_experiment_and_its_faults(base: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    both = small(strategies=["sink", "source"])
    names = [cell.name for cell in cells_of(both)]
    cells = [run / "cells" / name for name in names]
    finished: list[CellFolder] = []

    def interrupt() -> None:
        if finished:
            raise KeyboardInterrupt

    watcher = at_measuring(interrupt)
    watcher.cell = lambda report, number, total: finished.append(report)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(both, base, run, watcher)
    assert state(run)["state"] == "interrupted"
    assert_clean(base)
    keep_calibration(base, run)
    (report,) = finished
    assert report.name == names[0]
    assert report.verification.ok
    assert report.check.expected == report.check.delivered == 6 * 200
    assert report.check.finished
    # Two links of 10 ms, and the wait for the window's end.
    median = report.summary.latency_ms.p50
    assert median is not None and 10 < median < 1000
    written = {file.name for file in cells[0].iterdir()}
    assert written == {
        *("DONE", "cell.json", "check.json", "flow.json", "hosts.parquet"),
        *("operators.json", "plan.json", "samples.parquet", "summary.json", "verification.json"),
    }
    samples = pq.read_table(cells[0] / "samples.parquet")
    assert sum(samples.column("measured").to_pylist()) == 4 * 200
    sampled = pq.read_table(cells[0] / "hosts.parquet").column("host").to_pylist()
    assert set(sampled) == {"hub", "left", "right", "between"}
    before = (cells[0] / "summary.json").stat().st_mtime_ns

    # A process that is lost ends the run; finished cells are kept.
    with pytest.raises(NovaError) as caught:
        run_experiment(both, base, run, at_measuring(kill(base, "left", TASK_MANAGER)))
    told = state(run)
    assert told["state"] == "failed"
    assert told["verdict"] == str(caught.value)
    assert told["cells"] == dict(zip(names, ["finished", "failed"], strict=True))
    assert not (cells[1] / "DONE").exists()
    assert json.loads((cells[1] / "verdict.json").read_text())["state"] == "failed"
    assert_clean(base)

    # Likewise the coordinator.
    with pytest.raises(NovaError, match="no answer from Flink's JobManager"):
        run_experiment(both, base, run, at_measuring(kill(base, "hub", COORDINATOR)))
    assert_clean(base)

    # The same command goes on, and does again what has not finished only.
    reports = run_experiment(both, base, run, Watcher())
    assert {r.name for r in reports} == set(names)
    assert all(r.verification.ok and r.check.lost == r.check.wrong == 0 for r in reports)
    assert (cells[0] / "summary.json").stat().st_mtime_ns == before
    assert state(run)["state"] == "finished"
    assert_clean(base)
    up = state(run)["engine_up"]
    assert isinstance(up, dict)
    assert 0 < up["seconds"] < 180
    assert up["processes"][TASK_MANAGER]["number"] == 4
    assert 4 * (50 << 20) < up["processes"][TASK_MANAGER]["bytes"] < 4 * (320 << 20)


def test_a_cell_under_load(base: Path, tmp_path: Path) -> None:
    run = begun(base, tmp_path)
    if run.is_dir():
        # The strategy takes no notice of capacities: those of calm hosts will do.
        calibrated = json.loads((run / "calibration.json").read_text())
        (row,) = calibrated["rates"]
        row["costs"] |= {"stress": True, "left": 0.5}
        (run / "calibration.json").write_text(json.dumps(calibrated))
    (report,) = run_experiment(small(strategies=["source"], stress=True), base, run, Watcher())
    cell = run / "cells" / report.name
    assert report.verification.ok
    assert {row.actual for row in report.verification.rows if row.operator.startswith("join")} <= {
        *("left", "right")
    }
    assert report.check.ok
    assert report.check.delivered > 0
    facts = report.facts
    assert facts.start_ms is not None and facts.measured_us is not None
    begin, end = ((moment / 1000 - facts.start_ms) / 1000 for moment in facts.measured_us)
    used = pq.read_table(cell / "hosts.parquet").to_pylist()
    used = [row for row in used if begin + 1 <= row["t_s"] <= end]
    loaded = {row["host"] for row in used if row["load_cores"] > 0.2 * 0.15}
    assert loaded == {"left", "right"}
    for row in used:
        # The engine has the rest of what the limit allows, and something it has everywhere.
        assert row["load_cores"] < row["cpu_cores"]
        assert row["load_cores"] == 0 or row["host"] in loaded
    assert_clean(base)


def test_hosts_that_were_kept_are_taken_down_by_the_next(base: Path, tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TWO.format(name=f"novakept-{os.getpid()}"))
    inventory = read_inventory(file)
    rack = VirtualRack(inventory)
    try:
        with hosts_up(inventory, print, keep=True):
            pass
        assert rack.status().state == "up"
        with hosts_up(inventory, print):
            pass
        assert rack.status().state == "down"
    finally:
        rack.down()


def test_a_full_disk_ends_the_run(base: Path, tmp_path: Path) -> None:
    def command(line: str) -> None:
        with connect(reachable(base), ["hub"]) as hosts:
            assert run_as_root(hosts["hub"], line)

    run = begun(base, tmp_path)
    results = f"/tmp/nova-{reachable(base).host('hub').user}/flink/results"

    def full(text: str) -> None:
        if text.endswith("-calm-1: deploying"):
            # Room for 819 of the 1200 results.
            command(f"mount -t tmpfs -o size=64k,mode=1777 tmpfs {results}")
        elif text.endswith("once more"):  # on a busy machine
            command(f"umount {results}")

    with pytest.raises(NovaError) as caught:
        run_experiment(small(), base, run, Watcher(phase=full))
    command(f"umount {results}")
    assert "No space left on device" in str(caught.value)
    assert state(run)["verdict"] == str(caught.value)
    assert_clean(base)


def test_a_host_that_fails_ends_the_run(base: Path, tmp_path: Path) -> None:
    rack = VirtualRack(read_inventory(base / "small.yaml"))
    run = begun(base, tmp_path)
    with pytest.raises(NovaError):
        run_experiment(small(), base, run, at_measuring(lambda: rack.kill_host("right")))
    assert state(run)["state"] == "failed"
    rack.up()
    assert_clean(base)


def test_a_host_that_no_longer_answers(base: Path, tmp_path: Path) -> None:
    """Its sshd is stopped; what runs there goes on."""
    rack, run = VirtualRack(read_inventory(base / "small.yaml")), begun(base, tmp_path)

    def hang() -> None:
        with connect(reachable(base), ["right"]) as hosts:
            stop_ssh(hosts["right"])

    with pytest.raises(NovaError, match="right: "):
        run_experiment(small(), base, run, at_measuring(hang))
    assert state(run)["state"] == "failed"
    rack.kill_host("right")
    rack.up()
    assert_clean(base)


def test_a_worker_that_hangs(base: Path, tmp_path: Path) -> None:
    hang = at_measuring(stop(base, "left", TASK_MANAGER))
    (report,) = run_experiment(small(), base, begun(base, tmp_path), hang)
    # What its source had not sent is told with its number, and what has arrived is right.
    check = report.check
    assert not check.finished and check.cut_off > 0
    assert check.lost == check.wrong == check.duplicated == 0
    assert check.delivered + check.cut_off == check.expected
    assert_clean(base)


def test_a_coordinator_that_hangs(base: Path, tmp_path: Path) -> None:
    run = begun(base, tmp_path)
    hang = at_measuring(stop(base, "hub", COORDINATOR))
    with pytest.raises(NovaError, match="no answer from Flink's JobManager"):
        run_experiment(small(), base, run, hang)
    assert state(run)["state"] == "failed"
    assert_clean(base)


def test_the_command_itself_hangs_and_is_killed(base: Path, tmp_path: Path) -> None:
    run = begun(base, tmp_path)
    (name,) = (cell.name for cell in cells_of(small()))
    file = base / "killed.yaml"
    file.write_text(dump(msgspec.to_builtins(small()), ".yaml"))
    command = "from nova_core.cli import main; main()"
    words = [sys.executable, "-P", "-c", command, "experiment", "run", str(file), "-o", str(run)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 180
        while not (run / "cells" / name / "plan.json").exists():
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < until
            time.sleep(0.1)
        process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        process.send_signal(signal.SIGCONT)
        time.sleep(3)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert state(run)["state"] == "running" and not (run / "cells" / name / "DONE").exists()
    # The same command ends what still runs, and does it again.
    (report,) = run_experiment(read_experiment(file), base, run, Watcher())
    assert report.check.ok
    assert_clean(base)
