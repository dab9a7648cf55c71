"""``nova pareto``: what latency costs in network usage and nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console
from nova_core.commands import figures, shared
from nova_core.numbers import NumberRange, at_least

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nova_core.evaluation.pareto import Point


@click.command(short_help="Weigh latency against traffic and nodes, exactly.")
@shared.problem_argument
@shared.capacity_option
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    default=["nova"],
    show_default=True,
    shell_complete=shared.complete_strategies,
    help="A strategy to show beside; may be repeated.",
)
@click.option(
    "--steps",
    type=at_least(2),
    default=5,
    show_default=True,
    help="Limits of network usage tried for each number of nodes.",
)
@click.option(
    "--limit",
    type=NumberRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds it may take.",
)
@shared.output_option("Directory for the points (pareto.csv) and a figure (pareto.png).")
@shared.json_option
def pareto(
    problem: Path,
    capacity: str | None,
    strategies: tuple[str, ...],
    steps: int,
    limit: float,
    output: Path | None,
    as_json: bool,
) -> None:
    """Show placements of PROBLEM's whole operators that none beats.

    Each has the least latency for its network usage and number of nodes. They are exact, by
    mixed-integer programs, so the problem has to be small. An operator is a join of a pair, or
    an operator of a query as it is written.
    """
    from nova_core.evaluation.pareto import pareto_front

    loaded = shared.load_problem(problem, capacity)
    with shared.working(), console.progress("solving") as progress:
        front = pareto_front(loaded, steps, limit, progress)
        others = figures.run_all(loaded, {name: {} for name in dict.fromkeys(strategies)})
    rows = [_row("", point.latency, point.network_usage, point.nodes) for point in front]
    for name, outcome in others.items():
        if isinstance(outcome, Exception):
            console.warn(f"{name}: {outcome}")
            continue
        estimated = outcome.evaluation.estimated
        latency, usage = estimated.objectives["latency"], estimated.network_usage
        rows.append(_row(name, latency, usage, outcome.evaluation.nodes_used))
    written = [] if output is None else _write(output, front, rows)
    if as_json:
        console.print_json(
            {"problem": figures.problem_dict(loaded), "points": rows, "written": written}
        )
        return
    console.show(figures.problem_line(loaded), "", _table(rows))
    if output is not None:
        console.say(f"written to {output}: {', '.join(written)}")


def _row(strategy: str, latency: float, usage: float, nodes: int) -> dict[str, Any]:
    return {"strategy": strategy, "nodes": nodes, "latency": latency, "network_usage": usage}


def _table(rows: list[dict[str, Any]]) -> Any:
    return console.table(
        "Placements that none beats, and strategies",
        [">nodes", ">latency, ms", ">network usage, tuples/s * ms", "strategy"],
        [
            (
                str(row["nodes"]),
                console.number(row["latency"]),
                console.number(row["network_usage"], 0),
                row["strategy"],
            )
            for row in rows
        ],
        caption="latency: sum over joins of their three legs; strategies may cut joins",
    )


def _write(directory: Path, front: list[Point], rows: list[dict[str, Any]]) -> list[str]:
    """Write points and figure; the names of the files."""
    import csv
    import io

    from nova_core.io.safe_files import make_directory, write_text
    from nova_core.plotting import save_figure

    make_directory(directory)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(directory / "pareto.csv", text.getvalue())
    save_figure(lambda: _draw(front, rows), directory / "pareto.png")
    return ["pareto.csv", "pareto.png"]


def _draw(front: list[Point], rows: list[dict[str, Any]]) -> Figure:
    """Latency over network usage; a colour for every number of nodes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), layout="constrained", facecolor="white")
    axes = figure.subplots()
    marks = axes.scatter(
        [point.network_usage for point in front],
        [point.latency for point in front],
        c=[point.nodes for point in front],
        cmap="viridis",
    )
    figure.colorbar(marks, label="nodes used")
    for row in rows:
        if row["strategy"]:
            axes.plot(row["network_usage"], row["latency"], "x", color="#D55E00")
            place = (row["network_usage"], row["latency"])
            axes.annotate(f" {row['strategy']} ({row['nodes']})", place, fontsize=8)
    axes.set_xlabel("network usage, tuples/s * ms")
    axes.set_ylabel("latency, ms")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
