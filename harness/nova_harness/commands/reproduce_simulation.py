"""The commands ``nova reproduce fig6``, ``fig7`` and ``fig10``: the paper's simulations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nova_core import console
from nova_core.commands import shared
from nova_core.numbers import NumberRange, at_least
from nova_harness.commands.reproduce_shared import data_directory, figure_options, publish

if TYPE_CHECKING:
    from nova_harness import fig6 as sixth
    from nova_harness import fig7 as seventh
    from nova_harness import fig10 as tenth
    from nova_harness.simulation import Limits

F = TypeVar("F", bound=Callable[..., Any])

INSTANCES = ("instances of the simulations", "a generated topology")
# In the directory of the numbers.
CELLS = "cells.jsonl"


def cell_options(command: F) -> F:
    """What strategies run, and what each may take."""
    for option in reversed(
        (
            click.option(
                "--strategy",
                "strategies",
                multiple=True,
                shell_complete=shared.complete_strategies,
                help="Only this strategy; may be repeated [default: all].",
            ),
            click.option(
                "--limit",
                type=NumberRange(min=0, min_open=True),
                default=600.0,
                show_default=True,
                help="Seconds of processor time that placing may take.",
            ),
            click.option(
                "--memory",
                type=NumberRange(min=0, min_open=True),
                default=8.0,
                show_default=True,
                help="GB that placing may take.",
            ),
        )
    ):
        command = option(command)
    return command


def _limits(limit: float, memory: float) -> Limits:
    from nova_harness.simulation import Limits

    return Limits(limit, memory)


def _changed(asked: Any, strategies: tuple[str, ...], **others: Any) -> Any:
    """Parameters with what options say in place of what the file says."""
    import msgspec

    changes = {name: value for name, value in others.items() if value is not None}
    if strategies:
        changes["strategies"] = list(strategies)
    return msgspec.structs.replace(asked, **changes)


nodes_option = click.option(
    "--nodes", type=at_least(4), help="Take a generated topology of so many nodes."
)


@click.command()
@nodes_option
@click.option(
    "--seeds",
    type=at_least(1),
    help="Runs of every strategy that draws at random [default: that of the parameters].",
)
@cell_options
@figure_options("fig6", *INSTANCES)
def fig6(
    nodes: int | None, seeds: int | None, strategies: tuple[str, ...], limit: float, memory: float,
    data: Path | None, synthetic: bool, parameters: Path | None, output: Path, as_json: bool,
) -> None:  # fmt: skip
    """Overloaded nodes while capacities become more unequal (Fig. 6).

    Every strategy on six distributions of capacities, and means and standard deviations of those
    that draw at random. What is finished in the output directory is not done again.
    """
    from nova_harness import fig6 as figure
    from nova_harness.figure_inputs import read_parameters

    asked = read_parameters("fig6", figure.Fig6, parameters)
    asked = _changed(asked, strategies, synthetic_nodes=nodes, seeds=seeds)
    source = data_directory(data, synthetic or nodes is not None)
    with shared.working(), console.progress("placing") as advance:
        result = figure.run(asked, source, _limits(limit, memory), output / CELLS, advance)
    shown = [overload_table(result)]
    publish(output, "fig6", result, {"fig6": result.rows}, figure.draw, shown, as_json)


@click.command()
@nodes_option
@cell_options
@figure_options("fig7", *INSTANCES)
def fig7(
    nodes: int | None, strategies: tuple[str, ...], limit: float, memory: float, data: Path | None,
    synthetic: bool, parameters: Path | None, output: Path, as_json: bool,
) -> None:  # fmt: skip
    """90th percentiles of latency against sending straight to the sink (Fig. 7).

    Every strategy without limits of capacity, and Nova with the most heterogeneous ones as well.
    What is finished in the output directory is not done again.
    """
    from nova_harness import fig7 as figure
    from nova_harness.figure_inputs import read_parameters

    asked = read_parameters("fig7", figure.Fig7, parameters)
    asked = _changed(asked, strategies, synthetic_nodes=nodes)
    source = data_directory(data, synthetic or nodes is not None)
    with shared.working(), console.progress("placing") as advance:
        result = figure.run(asked, source, _limits(limit, memory), output / CELLS, advance)
    shown = [delta_table(result)]
    publish(output, "fig7", result, {"fig7": result.rows}, figure.draw, shown, as_json)


@click.command()
@click.option(
    "--nodes",
    type=at_least(4),
    multiple=True,
    help="Size of a topology; may be repeated [default: those of the parameters, up to 10^6].",
)
@cell_options
@figure_options("fig10", None)
def fig10(
    nodes: tuple[int, ...], strategies: tuple[str, ...], limit: float, memory: float,
    parameters: Path | None, output: Path, as_json: bool,
) -> None:  # fmt: skip
    """Time of placing while topology and query grow together (Fig. 10).

    A strategy that runs out of time or memory on one size is not tried on larger ones. What is
    finished in the output directory is not done again.
    """
    from nova_harness import fig10 as figure
    from nova_harness.figure_inputs import read_parameters

    asked = read_parameters("fig10", figure.Fig10, parameters)
    asked = _changed(asked, strategies, nodes=list(nodes) or None)
    with shared.working(), console.progress("placing") as advance:
        result = figure.run(asked, _limits(limit, memory), output / CELLS, advance)
    shown = [time_table(result)]
    publish(output, "fig10", result, {"fig10": result.rows}, figure.draw, shown, as_json)


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else console.number(value, digits)


def _caption(rows: Any) -> str | None:
    """Why figures are missing, once per strategy."""
    told = {f"{row.strategy}: {row.error}" for row in rows if row.error}
    return "\n".join(sorted(told)) or None


def overload_table(result: sixth.Result) -> Any:
    """Figure 6 as a table: a row per strategy, below it the published one."""
    first = result.rows[0].strategy
    columns = [r.capacities for r in result.rows if r.strategy == first]
    table = console.table(
        f"Overloaded nodes, % of those that receive tuples: {result.problem}",
        ["strategy", *(f">{c.replace('capacity_', 'capacity ')}" for c in columns)],
        caption=_caption(result.rows),
    )
    for strategy in dict.fromkeys(row.strategy for row in result.rows):
        rows = [row for row in result.rows if row.strategy == strategy]
        table.add_row(strategy, *(_with_spread(row) for row in rows))
        if any(row.published is not None for row in rows):
            table.add_row("  published", *(_number(row.published, 0) for row in rows))
    return table


def _with_spread(row: sixth.Row) -> str:
    spread = "" if row.spread is None else f" ± {_number(row.spread)}"
    return _number(row.overloaded) + spread


def delta_table(result: seventh.Result) -> Any:
    """Figure 7 as a table."""
    table = console.table(
        "90th percentile of latency, ms, and how much it is above direct transmission",
        ["problem", "strategy", ">90P", ">direct", ">above", ">published"],
        caption=_caption(result.rows),
    )
    for row in result.rows:
        table.add_row(
            row.problem,
            row.strategy,
            _number(row.p90),
            _number(row.direct),
            _number(row.delta),
            _number(row.published),
        )
    return table


def time_table(result: tenth.Result) -> Any:
    """Figure 10 as a table: a row per strategy, a column per size."""
    sizes = list(dict.fromkeys(row.nodes for row in result.rows))
    table = console.table(
        "Processor seconds to place, by nodes (in brackets as published)",
        ["strategy", *(f">{size:,}" for size in sizes)],
        caption=_caption(result.rows),
    )
    for strategy in dict.fromkeys(row.strategy for row in result.rows):
        rows = {row.nodes: row for row in result.rows if row.strategy == strategy}
        table.add_row(strategy, *(_time(rows[size]) for size in sizes))
    return table


def _time(row: tenth.Row) -> str:
    told = "-" if row.seconds is None else _number(row.seconds, 3 if row.seconds < 1 else 1)
    return f"{told} ({row.published})" if row.published else told
