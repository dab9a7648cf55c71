"""The commands ``nova scale ...``: problems that outgrow one machine, on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.numbers import SEED, NumberRange, at_least
from nova_workloads.commands.spark_options import spark_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from nova_workloads.spark import Progress


@click.group()
def scale() -> None:
    """Place problems that outgrow one machine: tables in, tables out, on Spark.

    PROBLEM is a directory with problem.yaml and Parquet tables of nodes, sources and matrix, on a
    file system that the driver and all workers see. `embed`, `plan` and `check` resume an
    interrupted run.
    """


def _session(
    options: Mapping[str, Any],
) -> AbstractContextManager[tuple[SparkSession, Progress]]:
    """A session with the settings of large tables."""
    from nova_workloads.spark import shown_session

    return shown_session(options, SPARK)


# What Spark needs for tables of many small rows.
SPARK = (
    ("spark.sql.execution.arrow.maxRecordsPerBatch", "65536"),
    ("spark.sql.files.maxPartitionBytes", str(64 * 2**20)),
)


@scale.command()
@click.argument("output", type=paths.OUTPUT)
@click.option("--nodes", "-n", type=at_least(4), required=True, help="How many.")
@click.option("--sinks", type=at_least(1), default=1, show_default=True, help="Of them, sinks.")
@click.option(
    "--clusters",
    type=at_least(1),
    default=10,
    show_default=True,
    help="Gaussian clusters the nodes lie in.",
)
@click.option("--source-clusters", type=at_least(1), help="Sources lie in so many. [default: all]")
@click.option(
    "--heterogeneity",
    type=NumberRange(0, 1),
    default=0.0,
    show_default=True,
    help="Of capacities: 0 near uniform, 1 exponential.",
)
@click.option("--dimensions", type=click.IntRange(2, 64), default=2, show_default=True)
@click.option(
    "--rate-min",
    type=at_least(1),
    default=1,
    show_default=True,
    help="Least of a source, tuples/s.",
)
@click.option(
    "--rate-max", type=at_least(1), default=75, show_default=True, help="Greatest, tuples/s."
)
@click.option(
    "--landmarks",
    type=at_least(4),
    help="Write latencies to so many nodes in place of positions, for nova scale embed.",
)
@click.option(
    "--measured",
    type=at_least(4),
    default=20,
    show_default=True,
    help="Landmarks that each node measures.",
)
@shared.seed_option()
@spark_options
@shared.json_option
def generate(
    output: Path,
    spark: Mapping[str, Any],
    as_json: bool,
    **shape: Any,
) -> None:
    """Write a synthetic problem of any size as tables in OUTPUT.

    As `nova generate`, which holds it in memory, but with more shapes: several sinks, sources in
    few clusters. One seed gives one problem.
    """
    from nova_workloads.scale.generate import Shape
    from nova_workloads.scale.generate import generate as write

    problem = Shape(**shape)
    with _session(spark) as (session, shown):
        shown.step("tables")
        facts = write(session, problem, output)
    if as_json:
        console.print_json(facts)
        return
    rows = [
        ("nodes", f"{facts['nodes']:,}"),
        ("pairs of sources to join", f"{facts['pairs']:,}"),
    ]
    console.show(console.table(str(output), ["what", ">value"], rows))


@scale.command()
@shared.problem_argument
@shared.output_option("A directory for the problem with positions.", required=True)
@click.option("--dimensions", type=click.IntRange(2, 5), default=2, show_default=True)
@click.option(
    "--height/--no-height",
    default=True,
    show_default=True,
    help="Give every node a height, the latency of its access link.",
)
@shared.seed_option()
@spark_options
@shared.json_option
def embed(
    problem: Path,
    output: Path,
    dimensions: int,
    height: bool,
    seed: int,
    spark: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Work out positions of PROBLEM's nodes from its table latency_pairs.

    Column `to` names landmarks, at most 1,000: nodes that have measured each other, and that every
    other node has measured some of.
    """
    from nova_workloads.scale.embed import embed as locate
    from nova_workloads.scale.embed import open_measured

    opened, header = open_measured(problem, output)
    with _session(spark) as (session, shown), shared.working():
        facts = locate(session, opened, header, output, dimensions, height, seed, shown.step)
    if as_json:
        console.print_json({"output": str(output), **facts})
        return
    rows = [
        ("nodes", f"{facts['nodes']:,}"),
        ("landmarks", f"{facts['landmarks']:,}"),
        ("latencies to them", f"{facts['pairs']:,}"),
        ("mean absolute error, ms", console.number(facts["mae"], 2)),
    ]
    console.show(console.table(str(output), ["what", ">value"], rows))


@scale.command()
@shared.problem_argument
@shared.output_option("A directory for the plan's tables.", required=True)
@shared.objective_option
@click.option("--sigma", type=float, help="How coarsely inputs are cut, 0 to 1. [default: 0.4]")
@click.option("--bandwidth", type=float, metavar="T_B", help="The most an instance may receive.")
@click.option(
    "--c-min", type=float, help="C_min, what a node must have free to be chosen, tuples/s."
)
@click.option(
    "--on-full",
    type=click.Choice(["expand", "spread"]),
    help="Where nothing fits: refuse, or overload evenly. [default: expand]",
)
@click.option(
    "--refine/--no-refine", default=False, show_default=True, help="Improve the plan of each cell."
)
@click.option(
    "--cells",
    type=click.IntRange(1, 2**16),
    help="Of the cost space, rounded up to a power of two. [default: one per 200,000 nodes or "
    "joins]",
)
@click.option(
    "--sample",
    type=click.IntRange(1000, 1_000_000),
    default=200_000,
    show_default=True,
    help="Nodes in the coarse plan.",
)
@click.option("--seed", type=SEED, help="Of samples and draws.")
@spark_options
@shared.json_option
def plan(
    problem: Path,
    output: Path,
    cells: int | None,
    sample: int,
    spark: Mapping[str, Any],
    as_json: bool,
    **named: Any,
) -> None:
    """Place PROBLEM's joins.

    Finished stages are in OUTPUT.stages: the same command resumes an interrupted run. OUTPUT is a
    plan that `nova check` reads, with report.json and space.png beside it. The exit code is 1 if
    it breaks a constraint that it does not break on purpose.
    """
    from nova_core.strategies.nova_parameters import NovaParameters

    options = {name: value for name, value in named.items() if value is not None}
    parameters = NovaParameters(**options)
    from nova_workloads.scale.plan import Scale, open_problem
    from nova_workloads.scale.plan import plan as place

    how = Scale(parameters, cells, sample)
    opened = open_problem(problem, output)
    with _session(spark) as (session, shown), shared.working():
        report = place(session, opened, output, how, shown.step)
    if as_json:
        console.print_json(report)
    else:
        _show(report)
        console.say(f"plan written to {output}")
    click.get_current_context().exit(0 if report["report"]["honest"] else 1)


@scale.command()
@click.argument("plan", type=paths.INPUT)
@shared.problem_option
@click.option("--accept", is_flag=True, help="Accept what the plan says it breaks on purpose.")
@spark_options
@shared.json_option
@click.pass_context
def check(
    ctx: click.Context,
    plan: Path,
    problem: Path,
    accept: bool,
    spark: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Verify that PLAN, a directory of tables, keeps every constraint; exit code 1 if not.

    As `nova check`, for plans that are too large for one machine.
    """
    from nova_workloads.scale.plan import check_plan, open_plan
    from nova_workloads.scale.tables import Problem

    opened, placed = Problem.open(problem), open_plan(plan)
    with _session(spark) as (session, shown):
        result = check_plan(session, opened, plan, placed, shown.step)
    report = result["report"]
    holds = report["ok"] or (accept and report["honest"])
    if as_json:
        console.print_json({"holds": holds, **result})
    else:
        from rich.markup import escape

        for one in report["violations"]:
            purpose = ", on purpose" if one["accepted"] else ""
            console.show(f"[red]{one['constraint']}[/]{purpose}: {escape(one['text'])}")
        console.show(f"[{'green' if holds else 'red'}]{escape(str(plan))} {result['summary']}[/]")
    ctx.exit(0 if holds else 1)


def _show(report: dict[str, Any]) -> None:
    totals, latency, load = report["totals"], report["latency"], report["load"]
    figures = [
        ("nodes", f"{report['nodes']:,}"),
        ("of them may host", f"{report['hosts']:,}"),
        ("joins", f"{report['pairs']:,}"),
        ("of them cut", f"{report['cut_joins']:,}"),
        ("required, share of the capacity", console.share(report["required"], report["capacity"])),
        ("cells", f"{report['cells']:,}"),
        ("objective", console.number(totals["objective"], 0)),
        ("latency of a join, ms: mean", console.number(latency["mean"], 2)),
        ("latency, ms: median, 90P, 99P", ", ".join(_quantiles(latency, 1))),
        ("load of nodes used, %: median, 90P, 99P", ", ".join(_quantiles(load, 100))),
        ("nodes used", f"{totals['nodes_used']:,}"),
    ]
    what = console.table(report["problem"], ["what", ">value"], figures)
    stages = console.table("Stages", ["stage", ">s", ">MiB, all processes"])
    for name, one in report["stages"].items():
        stages.add_row(name, console.number(one["seconds"]), f"{one['peak_mib']:,}")
    rounds = console.table("Rounds", ["round", ">placed", ">without room", ">cells"])
    for name, one in report["rounds"].items():
        cells = f"{one['cells']:,}" if "cells" in one else "here"
        rounds.add_row(name, f"{one['instances']:,}", f"{one['waiting']:,}", cells)
    colour = "green" if report["report"]["ok"] else "yellow"
    console.show(what, rounds, stages, f"[{colour}]The plan {report['summary']}.[/]")


def _quantiles(values: dict[str, float], factor: float) -> list[str]:
    return [console.number(factor * values[name]) for name in ("p50", "p90", "p99")]
