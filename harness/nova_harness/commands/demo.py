"""The command ``nova demo``: the main job, on hosts."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError

# At the paper's rate, and at one too high for any single host, on the same hosts; then one fails.
EXPERIMENTS = ("demo", "demo-load", "demo-failure")


@click.command(short_help="Run joins on hosts under several placements, and compare them.")
@click.option(
    "--data",
    type=paths.INPUT,
    help="Readings to replay: a directory of sensor files, or one file; made up without.",
)
@click.option("--yes", "-y", is_flag=True, help="Install missing system packages unasked.")
@click.option(
    "--output",
    "-o",
    type=paths.OUTPUT,
    default=Path("nova-demo"),
    show_default=True,
    help="Folder of results; an interrupted run is resumed.",
)
@shared.json_option
@click.pass_context
def demo(ctx: click.Context, data: Path | None, yes: bool, output: Path, as_json: bool) -> None:
    """Join pressure with humidity on fourteen hosts, placed by Nova and by others, and compare.

    Makes fourteen virtual hosts with limits and an emulated network on this machine (Linux, root
    or sudo), installs Flink in an environment of its own, and runs joins under several placements,
    at a low rate and, with fewer sensors, at one that no single host takes. Then, on five hosts,
    kills the worker of a join, with and without `nova control`. Checks every result, takes the
    hosts down, and writes a report. A quarter of an hour or so.
    Exit code 1 when a placement could not be run, an operator ran elsewhere than planned, or a
    result was lost, duplicated or wrong. Results that Flink's own restart repeats do not count.
    """
    # The report, at the end, needs it: what is missing is named before anything is run.
    import jinja2  # noqa: F401

    from nova_harness.commands import experiment, setup
    from nova_harness.commands.report import show
    from nova_harness.experiment.bed import find_inventory, hosts_up
    from nova_harness.experiment.runner import run_experiment
    from nova_harness.report import make_report, write_report

    if data is not None and not data.exists():
        raise NovaError(f"--data {data}: there is no such file or directory")
    experiments = {name: experiment.read(name, {"data": data}) for name in EXPERIMENTS}
    cells, good = [], True
    with shared.working():
        setup.prepare(setup.NEEDS["demo"], yes=yes)
        with experiment.watching() as watcher:
            for _, part in groupby(EXPERIMENTS, lambda name: experiments[name][0].inventory):
                names = list(part)
                with hosts_up(find_inventory(*experiments[names[0]]), watcher.phase):
                    for name in names:
                        reports = run_experiment(*experiments[name], output / name, watcher)
                        good = good and experiment.succeeded(experiments[name][0], reports)
                        cells += reports
        report = make_report([output / name for name in EXPERIMENTS])
        page = output / "report.html"
        with console.progress("drawing") as advance:
            written = write_report(report, page, output / "report-files", advance)
    if as_json:
        console.print_json(
            {
                "folder": str(output),
                "ok": good,
                "written": [str(path) for path in written],
                "cells": [cell.to_dict() for cell in cells],
            }
        )
    else:
        show(report)
        console.say(f"report: {page.resolve()}")
    ctx.exit(0 if good else 1)
