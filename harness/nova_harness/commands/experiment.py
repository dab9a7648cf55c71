"""The commands ``nova experiment ...``: strategies side by side on hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.choices import LazyChoice
from nova_core.commands import shared
from nova_core.errors import NovaError
from nova_core.numbers import NumberRange, at_least

if TYPE_CHECKING:
    from nova_harness.experiment.document import Experiment
    from nova_harness.experiment.runner import Watcher
    from nova_harness.results.run_folder import CellFolder

experiment_argument = click.argument("place", metavar="FILE|NAME", type=paths.InputPath(text=True))
PER_CENT = 100.0
# Options that change what the file says; a command gets them as ``changes``.
changing_options = shared.together(
    "changes",
    dict,
    click.option(
        "--inventory",
        "-i",
        metavar="FILE|NAME",
        type=paths.InputPath(text=True),
        help="Other hosts.",
    ),
    click.option(
        "--engine",
        type=LazyChoice("nova_harness.engines.base:names"),
        help="What runs the plans, instead of what the file says.",
    ),
    click.option(
        "--transport",
        metavar="direct|kafka",
        help="How readings come to the engine, instead of what the file says.",
    ),
    click.option(
        "--strategy",
        "strategies",
        multiple=True,
        metavar="S",
        help="Only this strategy of the file's, or another; may be repeated.",
    ),
    click.option(
        "--window",
        "windows_ms",
        type=click.IntRange(1, 1000),
        multiple=True,
        help="Only windows of so many ms; may be repeated.",
    ),
    click.option(
        "--rate",
        "rates",
        type=NumberRange(min=0, min_open=True),
        multiple=True,
        help="Of each source, tuples/s, instead of the file's; may be repeated.",
    ),
    click.option(
        "--stress",
        type=click.Choice(["on", "off", "both"]),
        help="Load on the sources, instead of what the file says.",
    ),
    click.option(
        "--duration",
        "duration_s",
        type=NumberRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Measured time of each cell, instead of the file's.",
    ),
    click.option("--repetitions", type=at_least(1), help="Instead of the file's."),
    click.option("--data", type=paths.INPUT, help="Readings to replay, instead of the file's."),
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def experiment() -> None:
    """Run strategies side by side on hosts, and keep the results."""


@experiment.command()
@experiment_argument
@changing_options
@click.option(
    "--output",
    "-o",
    type=paths.OUTPUT,
    help="Folder of the run [default: runs/NAME, with -ENGINE unless Flink].",
)
@click.option("--keep", is_flag=True, help="Leave the engine (and virtual hosts) running.")
@shared.json_option
def run(
    place: str,
    output: Path | None,
    keep: bool,
    as_json: bool,
    changes: dict[str, Any],
) -> None:
    """Run an experiment: FILE, or the NAME of one that comes with Nova, such as debs2021.

    Cells that have finished are kept: the same command resumes an interrupted run. Exit code 1 when
    a cell could not be run, an operator ran elsewhere than planned, or results were lost,
    duplicated or wrong.
    """
    requested, base = read(place, changes)
    from nova_harness.experiment.runner import default_folder, run_experiment

    folder = output or default_folder(requested)
    with shared.working(), watching() as watcher:
        reports = run_experiment(requested, base, folder, watcher, keep=keep)
    good = succeeded(requested, reports)
    if as_json:
        console.print_json(
            {
                "folder": str(folder),
                "ok": good,
                "cells": [report.to_dict() for report in reports],
            }
        )
    else:
        console.show(results_table(reports))
        console.say(f"results in {folder}; `nova report {folder}` makes a page of them")
    click.get_current_context().exit(0 if good else 1)


@experiment.command()
@experiment_argument
@changing_options
@shared.json_option
def cells(place: str, as_json: bool, changes: dict[str, Any]) -> None:
    """Check an experiment and list its cells in the order they would be run."""
    requested, base = read(place, changes)
    from nova_harness.experiment.bed import find_inventory
    from nova_harness.experiment.cells import cells_of

    with console.warnings_as_lines():
        inventory = find_inventory(requested, base)
    names = [cell.name for cell in cells_of(requested)]
    seconds = len(names) * (requested.warm_up_s + requested.duration_s)
    if as_json:
        answer = {"inventory": inventory.name, "cells": names, "least_seconds": seconds}
        console.print_json(answer)
        return
    for name in names:
        console.show(name)
    console.say(f"{len(names)} cells on {inventory.name}, at least {seconds / 60:.0f} min")


@experiment.command()
@experiment_argument
@changing_options
@shared.json_option
def calibrate(place: str, as_json: bool, changes: dict[str, Any]) -> None:
    """Measure what joins cost on the engine, and the hosts' capacities that follow.

    As `run` does at its beginning, for each rate, or until the rate of a load is found.
    """
    import tempfile
    from dataclasses import asdict

    requested, base = read(place, changes)
    from nova_harness.experiment import bed as beds
    from nova_harness.experiment.calibration import Calibrating, found_line

    with shared.working(), watching() as watcher:
        engine = beds.prepare_engine(requested, watcher.phase)
    with (
        shared.working(),
        watching() as watcher,
        tempfile.TemporaryDirectory(prefix="nova-calibration-") as scratch,
        beds.hosts_up(beds.find_inventory(requested, base), watcher.phase) as inventory,
        beds.engine_bed(requested, inventory, engine, watcher.phase, keep=False) as bed,
    ):
        workload = requested.workload_in(base)
        calibrating = Calibrating(bed, requested, workload, Path(scratch), watcher.phase)
        costs, load = calibrating.run()
        cores = beds.cores_of(bed)
        capacity = {setting: calibrating.capacities(setting, one) for setting, one in costs.items()}
    if as_json:
        rates = [{"costs": asdict(one), "capacity": capacity[at]} for at, one in costs.items()]
        answer = {"cores": cores, "load": None if load is None else asdict(load), "rates": rates}
        console.print_json(answer)
        return
    if load is not None:
        console.show(found_line(load))
    for setting, one in costs.items():
        left = f", {one.left:.0%} of them where load is" if one.left is not None else ""
        table = console.table(
            f"capacity at {requested.capacity.safety:.0%} of the CPU limits{left}, "
            f"{setting.rate:g} tuples/s",
            ["host", ">cores", ">used when calibrated", ">tuples/s"],
            caption=f"a join takes {one.join_us:.1f} us of CPU per tuple, a source "
            f"{one.source_cores:.3f} cores, the sink and coordinator {one.sink_cores:.3f}, an "
            f"idle host {one.idle_cores:.3f} (windows of {one.window_ms} ms)",
        )
        for name, value in capacity[setting].items():
            used = f"{one.cores[name]:.3f}"
            table.add_row(name, f"{cores[name]:g}", used, console.number(value, 0))
        console.show(table, "")


def read(place: str, changes: dict[str, Any]) -> tuple[Experiment, Path]:
    """An experiment with options applied, and the directory its paths are relative to.

    Raises:
        NovaError: naming the file or option, the value and what would be accepted.
    """
    from nova_harness.experiment.document import find_experiment, read_experiment

    path = find_experiment(place)
    return read_experiment(path, lambda original: _changed(original, changes)), path.parent


def _changed(original: Experiment, changes: dict[str, Any]) -> Experiment:
    import msgspec

    # Fields have the names and values of options, with the exceptions below.
    new = {name: value for name, value in changes.items() if value}
    if "inventory" in new and Path(new["inventory"]).is_file():
        new["inventory"] = str(Path(new["inventory"]).resolve())
    if "strategies" in new:
        known = {part.called: part for part in original.chosen}
        new["strategies"] = [known.get(name, name) for name in new["strategies"]]
    if "windows_ms" in new:
        new["windows_ms"] = list(new["windows_ms"])
    if "rates" in new:
        new |= {"rates": list(new["rates"]), "load": None}
    if "stress" in new:
        new["stress"] = {"on": True, "off": False}.get(new["stress"], "both")
    if (data := new.pop("data", None)) is not None:
        if not data.exists():
            raise NovaError(f"--data {data}: there is no such file or directory")
        new["workload"] = {**original.workload, "data": str(data.resolve())}
    return msgspec.structs.replace(original, **new)


def succeeded(requested: Experiment, reports: Sequence[CellFolder]) -> bool:
    """Whether every cell ran, as planned and with correct results.

    An engine that restarts a failed job by itself may repeat results and move operators. Reports
    show this; controlled cells are compared with it.
    """
    from nova_harness.experiment.cells import cells_of

    failures = any(one.what in ("kill", "hang") for one in requested.disturbances)

    def good(cell: CellFolder) -> bool:
        if failures and cell.facts.scheduled_by != "controller":
            return cell.check.lost == cell.check.wrong == 0
        return cell.good

    return len(reports) == len(cells_of(requested)) and all(map(good, reports))


@contextmanager
def watching() -> Iterator[Watcher]:
    """Progress on stderr: a bar with live figures on a terminal, a line per step elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from nova_harness.experiment.runner import Watcher

    err = console.output(stderr=True)
    if not err.is_terminal:
        yield Watcher(
            phase=console.say,
            cell=lambda report, number, total: console.say(f"{number}/{total} {line_of(report)}"),
        )
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[live]}"),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("beginning", total=None, live="")

        def cell(report: CellFolder, number: int, total: int) -> None:
            bar.console.print(f"{number}/{total} {line_of(report)}")
            bar.update(task, completed=number, live="")

        yield Watcher(
            phase=lambda text: bar.update(task, description=text),
            live=lambda text: bar.update(task, live=text),
            cell=cell,
            total=lambda total, finished: bar.update(task, total=total, completed=finished),
        )


def line_of(report: CellFolder) -> str:
    """A finished cell in a line."""
    latency = report.summary.latency_ms
    text = (
        f"{report.name}: mean {_ms(latency.mean)}, 99.99 % {_ms(latency.p9999)}, "
        f"{report.summary.throughput_results_per_s:,.0f} results/s"
    )
    wrong = report.check.broken
    if not report.verification.ok:
        wrong.append("not placed as planned")
    if report.check.cut_off:
        wrong.append(f"{report.check.cut_off:,} cut off at the end")
    return f"{text} ({', '.join(wrong)})" if wrong else text


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"


def results_table(reports: Sequence[CellFolder]) -> Any:
    """All cells, a row each."""
    table = console.table(
        "latency from the later reading's due time to the sink, ms",
        [
            "cell",
            ">mean",
            ">50 %",
            ">90 %",
            ">99 %",
            ">99.99 %",
            ">results/s",
            ">of due, %",
            ">cut off",
            "as planned",
            "complete",
        ],
        caption="complete: nothing lost, duplicated or wrong, held against the reference join",
    )
    for r in reports:
        latency = r.summary.latency_ms
        figures = [latency.mean, latency.p50, latency.p90, latency.p99, latency.p9999]
        due = r.check.expected
        came = PER_CENT * (1 - r.check.cut_off / due) if due else float("nan")
        table.add_row(
            r.name,
            *(console.number(float("nan") if f is None else f) for f in figures),
            console.number(r.summary.throughput_results_per_s, 0),
            console.number(came),
            f"{r.check.cut_off:,}",
            "yes" if r.verification.ok else "[red]no[/]",
            "[red]" + ", ".join(r.check.broken) + "[/]" if r.check.broken else "yes",
        )
    return table
