"""An experiment from beginning to end: hosts, engine, calibration, cells, results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nova_core.errors import InfeasibleError
from nova_harness.experiment.bed import (
    engine_bed,
    find_inventory,
    hosts_up,
    prepare_engine,
    reserved,
)
from nova_harness.experiment.calibration import Calibrating, Setting, found_line, known_setting
from nova_harness.experiment.cell_run import run_cell
from nova_harness.experiment.cells import Cell, cells_of, same_experiment
from nova_harness.experiment.document import (
    DEFAULT_ENGINE,
    Experiment,
    ExperimentError,
    read_experiment,
)
from nova_harness.experiment.environment import environment
from nova_harness.experiment.feed import DIRECT
from nova_harness.results.run_folder import (
    EXPERIMENT,
    CellFolder,
    read_calibrations,
    read_state,
    write_json,
)
from nova_harness.results.schema import RunState

if TYPE_CHECKING:
    from nova_harness.experiment.engine_run import Bed
    from nova_harness.results.schema import FoundRate
    from nova_testbed.inventory import Inventory


@dataclass
class Watcher:
    """Progress callbacks of an experiment; by default, they do nothing.

    Attributes:
        phase: the current activity, and its cell.
        live: figures of the run.
        cell: a finished cell: its folder, its number from 1, and the number of cells.
        total: the number of cells, and how many are already finished.
    """

    phase: Callable[[str], None] = lambda text: None
    live: Callable[[str], None] = lambda text: None
    cell: Callable[[CellFolder, int, int], None] = lambda folder, number, total: None
    total: Callable[[int, int], None] = lambda total, finished: None


@dataclass
class Run:
    """The folder and state of a run.

    Attributes:
        path: the folder.
        experiment: what is run.
        base: directory that paths in the experiment are relative to.
        cells: state by name.
        started: s since the epoch.
        up: how long the engine took to start, and its memory; empty before.
    """

    path: Path
    experiment: Experiment
    base: Path
    cells: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    up: dict[str, Any] = field(default_factory=dict)

    def prepare(self) -> None:
        """Create the folder, or resume an existing one.

        Raises:
            ExperimentError: for a folder of another experiment, or of something else.
        """
        from nova_core.io.safe_files import make_directory, write_text
        from nova_core.io.syntax import dump

        file = self.path / EXPERIMENT
        if file.exists():
            before = read_experiment(file)
            if not same_experiment(before, self.experiment):
                raise ExperimentError(
                    f"{self.path}: holds another experiment ({before.name}) or one with other "
                    "durations, workload, inventory or settings; name another folder"
                )
            read_state(self.path)
        elif self.path.exists() and any(self.path.iterdir()):
            raise ExperimentError(f"{self.path}: is there and holds no run; name another folder")
        make_directory(self.path / "cells")
        write_text(file, dump(msgspec.to_builtins(self.experiment), ".yaml"))

    def open_cells(self) -> list[Cell]:
        """All cells; updates their states."""
        cells = cells_of(self.experiment)
        self.cells = {
            cell.name: "finished" if cell.folder(self.path).done else "open" for cell in cells
        }
        return cells

    def settle(self, rate: float) -> None:
        """Set the rate that was found for the experiment's load."""
        self.experiment = msgspec.structs.replace(self.experiment, rates=[rate])

    def tell(self, state: str, verdict: str) -> None:
        """Write the state of the run."""
        current = RunState(
            state=state,
            verdict=verdict,
            started=self.started,
            ended=time.time(),
            engine_up=self.up,
            cells=self.cells,
        )
        write_json(self.path / "run.json", current)


def run_experiment(
    experiment: Experiment,
    base: Path,
    path: Path,
    watcher: Watcher,
    *,
    keep: bool = False,
) -> list[CellFolder]:
    """Run the unfinished cells of an experiment.

    Args:
        experiment: what to run.
        base: directory that paths in it are relative to.
        path: folder of the run; an interrupted run is resumed.
        watcher: progress callbacks.
        keep: leave the engine running on the hosts.

    Returns:
        The folders of finished cells, in the order of the cells.

    Raises:
        NovaError: naming what failed; finished cells are kept.
    """
    experiment = experiment.filled(base)
    inventory = find_inventory(experiment, base)
    # Before writing: another running program may use the same folder.
    with reserved(inventory):
        return _run(Run(path, experiment, base), inventory, watcher, keep)


def _run(run: Run, inventory: Inventory, watcher: Watcher, keep: bool) -> list[CellFolder]:
    path, experiment = run.path, run.experiment
    run.prepare()
    # A resumed run keeps the rate that it found at first.
    load = read_calibrations(path).load
    if load is not None:
        run.settle(load.rate)
    cells = run.open_cells()
    finished = sum(state == "finished" for state in run.cells.values())
    watcher.total(len(cells), finished)
    run.tell("running", "")
    try:
        if finished < len(cells):
            engine = prepare_engine(experiment, watcher.phase)
            with (
                hosts_up(inventory, watcher.phase, keep=keep) as reachable,
                engine_bed(experiment, reachable, engine, watcher.phase, keep=keep) as bed,
            ):
                _run_cells(run, bed, load, watcher)
    except KeyboardInterrupt:
        run.tell("interrupted", "interrupted; run the same command again to go on")
        raise
    except BaseException as error:
        run.tell("failed", str(error) or type(error).__name__)
        raise
    open_ones = [name for name, state in run.cells.items() if state != "finished"]
    run.tell("finished", f"without {', '.join(open_ones)}" if open_ones else "all cells finished")
    cells = cells_of(run.experiment)
    return [folder for cell in cells if (folder := cell.folder(path)).done]


def _run_cells(run: Run, bed: Bed, load: FoundRate | None, watcher: Watcher) -> None:
    inventory = bed.deployment.hosts.inventory
    run.up = bed.deployment.footprint()
    watcher.phase(f"{bed.deployment.ENGINE} {footprint_line(run.up)}")
    facts = environment() | {
        "inventory": inventory.name,
        "virtual": inventory.virtual,
        "engine": {"name": run.experiment.engine, "version": bed.deployment.version},
        "engine_up": run.up,
        "engine_configuration": {
            host.name: bed.deployment.files(host.name) for host in inventory.hosts
        },
    }
    write_json(run.path / "environment.json", facts)
    # A resumed run keeps its first capacities, but is warmed up, too.
    before = {Setting(one.rate, one.stress): one.costs for one in read_calibrations(run.path).rates}
    workload = run.experiment.workload_in(run.base)
    costs, new = Calibrating(bed, run.experiment, workload, run.path, watcher.phase).run(before)
    if new is not None:
        load = new
        run.settle(new.rate)
    if load is not None:
        watcher.phase(found_line(load))
    experiment, cells = run.experiment, run.open_cells()
    calibrating = Calibrating(bed, experiment, workload, run.path, watcher.phase)
    problems = calibrating.write_problems(costs, load)
    for number, cell in enumerate(cells, 1):
        folder = cell.folder(run.path)
        if folder.done:
            continue
        problem = problems[known_setting(experiment, cell.rate, cell.stress)]
        traffic = workload.traffic(cell.window_ms, cell.rate)
        streams = workload.streams(problem, traffic, experiment.seed)

        def tell(what: str, name: str = cell.name, number: int = number) -> None:
            watcher.phase(f"{number}/{len(cells)} {name}: {what}")

        try:
            # Queries have no live figures.
            with nullcontext() if problem.queries else _live(bed, watcher):
                run_cell(bed, experiment, cell, problem, streams, folder, tell)
        except InfeasibleError as error:
            # Only this strategy fails: the others run.
            run.cells[cell.name] = "infeasible"
            folder.end("infeasible", str(error))
            continue
        except BaseException:
            run.cells[cell.name] = "failed"
            raise
        run.cells[cell.name] = "finished"
        run.tell("running", "")
        watcher.cell(folder, number, len(cells))


def footprint_line(up: Mapping[str, Any]) -> str:
    """How long the engine took to start, and its memory, in a line."""
    came = "was running" if up["seconds"] is None else f"is up in {up['seconds']:.1f} s"
    parts = [
        f"{kind['number']} {name.removeprefix('nova_').replace('_', ' ')} "
        f"{kind['bytes'] / 2**30:.2f} GiB"
        for name, kind in up["processes"].items()
    ]
    return f"{came}: {', '.join(parts)}"


@contextmanager
def _live(bed: Bed, watcher: Watcher) -> Iterator[None]:
    from nova_harness.experiment.live import LiveFigures, Ticker

    with Ticker(LiveFigures(bed.deployment), watcher.live):
        yield


def default_folder(experiment: Experiment) -> Path:
    """The default folder of results."""
    engine = "" if experiment.engine == DEFAULT_ENGINE else f"-{experiment.engine}"
    engine += "" if experiment.transport == DIRECT else f"-{experiment.transport}"
    return Path("runs") / f"{experiment.name.replace(os.sep, '-')}{engine}"
