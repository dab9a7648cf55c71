"""An experiment from beginning to end: hosts, engine, calibration, cells, results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from nova_core.errors import InfeasibleError
from nova_harness.experiment import calibration as calibrating
from nova_harness.experiment.cell_run import (
    VERDICT,
    CellReport,
    read_report,
    run_cell,
    write_json,
)
from nova_harness.experiment.cells import Cell, cells_of, directory_of, same_experiment
from nova_harness.experiment.document import Experiment, ExperimentError, read_experiment
from nova_harness.experiment.engine import prepare
from nova_harness.experiment.environment import environment
from nova_harness.experiment.limits import Limits
from nova_harness.experiment.problem import problem_document, problem_of, rtt_csv, streams_of

if TYPE_CHECKING:
    from nova_core.model.problem import Problem
    from nova_harness.experiment.calibration import Calibration
    from nova_harness.experiment.engine import Opener
    from nova_harness.experiment.engine_run import Bed
    from nova_testbed.inventory import Inventory

EXPERIMENT_FILE = "experiment.yaml"
CALIBRATION_FILE = "calibration.json"


@dataclass
class Watcher:
    """Is told how an experiment goes on; does nothing unless something is put in.

    Attributes:
        phase: what is being done, and in which cell.
        live: figures of the run.
        cell: a finished cell: its report, its number from 1, and how many there are.
        total: how many cells there are, and how many are done already.
    """

    phase: Callable[[str], None] = lambda text: None
    live: Callable[[str], None] = lambda text: None
    cell: Callable[[CellReport, int, int], None] = lambda report, number, total: None
    total: Callable[[int, int], None] = lambda total, done: None


@dataclass
class Run:
    """The folder of a run and what is said of it.

    Attributes:
        path: the folder.
        experiment: what is run.
        base: directory that paths in the experiment are relative to.
        cells: state by name.
        started: s since the epoch.
    """

    path: Path
    experiment: Experiment
    base: Path
    cells: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.time)

    def prepare(self) -> None:
        """Make the folder, or go on with the one that is there.

        Raises:
            ExperimentError: for a folder of another experiment, or of something else.
        """
        from nova_core.model.files import make_directory, write_text
        from nova_core.model.syntax import dump

        file = self.path / EXPERIMENT_FILE
        if file.exists():
            before = read_experiment(file)
            if not same_experiment(before, self.experiment):
                raise ExperimentError(
                    f"{self.path}: holds another experiment ({before.name}) or one with other "
                    "durations, workload, inventory or settings; name another folder"
                )
        elif self.path.exists() and any(self.path.iterdir()):
            raise ExperimentError(f"{self.path}: is there and holds no run; name another folder")
        make_directory(self.path / "cells")
        write_text(file, dump(msgspec.to_builtins(self.experiment), ".yaml"))

    def tell(self, state: str, verdict: str) -> None:
        """Write how it stands."""
        write_json(
            self.path / "run.json",
            {
                "state": state,
                "verdict": verdict,
                "started": self.started,
                "ended": time.time(),
                "cells": self.cells,
            },
        )


def find_inventory(experiment: Experiment, base: Path) -> Inventory:
    """The experiment's inventory: beside its file, or one that comes with Nova.

    Raises:
        NovaError: where there is none, or it cannot be used.
    """
    from nova_testbed.inventory import read_inventory

    beside = base / experiment.inventory
    return read_inventory(beside if beside.is_file() else experiment.inventory)


@contextmanager
def hosts_up(
    inventory: Inventory, tell: Callable[[str], None], *, keep: bool = False
) -> Iterator[Inventory]:
    """The inventory's hosts, reachable; a virtual rack that was down is taken down again.

    Args:
        inventory: of the hosts.
        tell: is told what is being done.
        keep: leave a rack up in any case.

    Raises:
        NovaError: naming what is in the way.
    """
    if not inventory.virtual:
        yield inventory
        return
    from nova_testbed.rack import VirtualRack

    rack = VirtualRack(inventory)
    was = rack.status().state
    tell("bringing hosts up")
    reachable = rack.up()
    try:
        yield reachable
    finally:
        if was == "down" and not keep:
            tell("taking hosts down")
            rack.down()


def prepare_engine(experiment: Experiment, tell: Callable[[str], None]) -> Opener:
    """The experiment's engine, and its broker where it has one.

    Args:
        experiment: what is run.
        tell: is told what is being done.

    Raises:
        NovaError: when something of it is not installed.
    """
    if experiment.transport == "kafka":
        from nova_harness.experiment import on_flink_kafka

        return on_flink_kafka.prepare(tell, experiment.broker)
    return prepare(experiment.engine, tell)


@contextmanager
def engine_bed(
    experiment: Experiment,
    inventory: Inventory,
    opener: Opener,
    tell: Callable[[str], None],
    *,
    keep: bool,
) -> Iterator[Bed]:
    """The engine on the hosts; limits are back in force at the end, however it ends.

    Args:
        experiment: what is run.
        inventory: of reachable hosts.
        opener: of the engine, from `nova_harness.experiment.engine.prepare`.
        tell: is told what is being done.
        keep: whether the engine goes on running.

    Raises:
        NovaError: naming what failed.
    """
    from nova_harness.experiment.engine_run import Bed
    from nova_testbed.hosts import connect

    with ExitStack() as stack:
        tell("connecting")
        limits = Limits(inventory)
        stack.enter_context(limits.off())
        hosts = stack.enter_context(connect(inventory))
        engine = stack.enter_context(opener(hosts, tell, keep))
        yield Bed(engine, limits, experiment.settings)


def cores_of(bed: Bed) -> dict[str, float]:
    """Cores each host may use: its limit, or those of the machine."""
    hosts = bed.deployment.hosts
    told = hosts.run("nproc")
    return {host.spec.name: host.spec.cpu or float(told[host.spec.name].stdout) for host in hosts}


def measure_calibrations(
    bed: Bed,
    experiment: Experiment,
    base: Path,
    scratch: Path,
    tell: Callable[[str], None],
) -> dict[float, Calibration]:
    """What operators cost at each rate of an experiment.

    Args:
        bed: what it runs on.
        experiment: what is run.
        base: directory that paths in the experiment are relative to.
        scratch: directory for files on the way.
        tell: is told what is being done.

    Raises:
        NovaError: naming what failed.
    """
    inventory, cores = bed.deployment.hosts.inventory, cores_of(bed)
    found = {}
    for rate in experiment.rates:
        # Only the order of the workers' capacities matters here.
        guess = {name: 1e6 * value for name, value in cores.items()}
        workload = experiment.workload
        document = problem_document(inventory, guess, rate, workload.regions, workload.matches)
        problem = problem_of(document, scratch / "calibration-problem.yaml")
        (scratch / "calibration-problem.yaml").unlink()
        streams = streams_of(problem, data_of(experiment, base), experiment.seed)
        found[rate] = calibrating.calibrate(bed, experiment, rate, problem, streams, scratch, tell)
    return found


def data_of(experiment: Experiment, base: Path) -> Path | None:
    """The readings to replay, or None for made-up ones."""
    data = experiment.workload.data
    return None if data is None else base / Path(data).expanduser()


def run_experiment(
    experiment: Experiment,
    base: Path,
    path: Path,
    watcher: Watcher,
    *,
    keep: bool = False,
) -> list[CellReport]:
    """Run what is not finished yet of an experiment.

    Args:
        experiment: what to run.
        base: directory that paths in it are relative to.
        path: folder of the run; one that was interrupted is gone on with.
        watcher: is told how it goes on.
        keep: leave the engine running on the hosts.

    Returns:
        A report of every cell that has finished, in the order of the cells.

    Raises:
        NovaError: naming what failed; finished cells are kept.
    """
    inventory = find_inventory(experiment, base)
    run = Run(path, experiment, base)
    run.prepare()
    cells = cells_of(experiment)
    for cell in cells:
        run.cells[cell.name] = "finished" if directory_of(path, cell).done else "open"
    left = [cell for cell in cells if run.cells[cell.name] == "open"]
    watcher.total(len(cells), len(cells) - len(left))
    run.tell("running", "")
    try:
        if left:
            opener = prepare_engine(experiment, watcher.phase)
            with (
                hosts_up(inventory, watcher.phase, keep=keep) as reachable,
                engine_bed(experiment, reachable, opener, watcher.phase, keep=keep) as bed,
            ):
                _run_cells(run, bed, cells, watcher)
    except KeyboardInterrupt:
        run.tell("interrupted", "interrupted; run the same command again to go on")
        raise
    except BaseException as error:
        run.tell("failed", str(error) or type(error).__name__)
        raise
    open_ones = [name for name, state in run.cells.items() if state != "finished"]
    run.tell("finished", f"without {', '.join(open_ones)}" if open_ones else "all cells finished")
    return [read_report(d) for cell in cells if (d := directory_of(path, cell)).done]


def _run_cells(run: Run, bed: Bed, cells: list[Cell], watcher: Watcher) -> None:
    experiment, inventory = run.experiment, bed.deployment.hosts.inventory
    facts = environment() | {
        "inventory": inventory.name,
        "virtual": inventory.virtual,
        "engine": {"name": experiment.engine, "version": bed.deployment.version},
        "engine_configuration": {
            host.name: bed.deployment.files(host.name) for host in inventory.hosts
        },
    }
    write_json(run.path / "environment.json", facts)
    # A run that is gone on with keeps the capacities it began with, but is warmed up as well.
    before = calibrating.read_calibrations(run.path / CALIBRATION_FILE)
    found = measure_calibrations(bed, experiment, run.base, run.path, watcher.phase) | before
    problems = write_problems(run, bed, found)
    data = data_of(experiment, run.base)
    for number, cell in enumerate(cells, 1):
        directory = directory_of(run.path, cell)
        if directory.done:
            continue
        problem = problems[cell.rate]
        streams = streams_of(problem, data, experiment.seed)

        def tell(what: str, name: str = cell.name, number: int = number) -> None:
            watcher.phase(f"{number}/{len(cells)} {name}: {what}")

        try:
            with _live(bed, watcher):
                report = run_cell(bed, experiment, cell, problem, streams, directory, tell)
        except InfeasibleError as error:
            # Of this strategy alone: the others can go on.
            run.cells[cell.name] = "infeasible"
            write_json(directory.path / VERDICT, {"state": "infeasible", "verdict": str(error)})
            continue
        except BaseException:
            run.cells[cell.name] = "failed"
            raise
        run.cells[cell.name] = "finished"
        run.tell("running", "")
        watcher.cell(report, number, len(cells))


@contextmanager
def _live(bed: Bed, watcher: Watcher) -> Iterator[None]:
    from nova_harness.experiment.live import LiveFigures, Ticker

    with Ticker(LiveFigures(bed.deployment), watcher.live):
        yield


def write_problems(run: Run, bed: Bed, found: Mapping[float, Calibration]) -> dict[float, Problem]:
    """Problems by rate, with what they come from; the first rate's is the run's.

    Raises:
        NovaError: for an inventory that does not suit, or when something cannot be written.
    """
    from nova_core.model.files import write_text

    experiment, inventory = run.experiment, bed.deployment.hosts.inventory
    regions, cores = experiment.workload.regions, cores_of(bed)
    problems, rows = {}, []
    for rate in experiment.rates:
        capacity = calibrating.capacities(
            found[rate],
            inventory,
            cores,
            safety=experiment.capacity.safety,
            regions=regions,
            output_rate=regions * rate * experiment.workload.matches,
        )
        name = "problem.yaml" if rate == experiment.rates[0] else f"problem-r{rate:g}.yaml"
        document = problem_document(inventory, capacity, rate, regions, experiment.workload.matches)
        problems[rate] = problem_of(document, run.path / name)
        rows.append(
            {
                "costs": asdict(found[rate]),
                "capacity": capacity,
                "bottlenecks": calibrating.bottlenecks(found[rate], inventory, cores, regions),
            }
        )
    told = {
        "engine": experiment.engine,
        "version": bed.deployment.version,
        "safety": experiment.capacity.safety,
        "cores": cores,
        "rates": rows,
    }
    write_json(run.path / CALIBRATION_FILE, told)
    hosts = [
        {"name": h.name, "role": h.role, "cpu": cores[h.name], "memory": h.memory, "position": p}
        for h, p in zip(
            inventory.hosts,
            problems[experiment.rates[0]].nodes.position.tolist(),
            strict=True,
        )
    ]
    write_json(run.path / "hosts.json", hosts)
    write_text(run.path / "rtt.csv", rtt_csv(inventory))
    return problems


def default_folder(experiment: Experiment) -> Path:
    """Where results go unless something else is said."""
    engine = "" if experiment.engine == "flink" else f"-{experiment.engine}"
    engine += "-kafka" if experiment.transport == "kafka" else ""
    return Path("runs") / f"{experiment.name.replace(os.sep, '-')}{engine}"


__all__ = [
    "Run",
    "Watcher",
    "default_folder",
    "engine_bed",
    "find_inventory",
    "hosts_up",
    "measure_calibrations",
    "prepare_engine",
    "run_experiment",
]
