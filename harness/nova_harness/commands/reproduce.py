"""The commands ``nova reproduce ...``: the paper's figures again, from parameters in YAML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nova_core import console
from nova_core.commands import shared
from nova_harness.commands.reproduce_sbon import sbon
from nova_harness.commands.reproduce_whitewater import whitewater

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nova_harness import fig8 as eighth
    from nova_harness import fig9 as ninth

F = TypeVar("F", bound=Callable[..., Any])


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def reproduce() -> None:
    """Run the paper's experiments again: tables, figures and their numbers."""


reproduce.add_command(sbon)
reproduce.add_command(whitewater)


def figure_options(figure: str) -> Callable[[F], F]:
    """Options every figure has."""

    def add(command: F) -> F:
        for option in reversed(
            (
                click.option(
                    "--data",
                    type=shared.FILE,
                    help="Directory of measured latencies [default: ../shared/data beside a "
                    "checkout].",
                ),
                click.option(
                    "--synthetic", is_flag=True, help="Take a synthetic internet instead."
                ),
                click.option(
                    "--parameters",
                    type=shared.FILE,
                    help=f"A YAML file like the project's own harness/experiments/{figure}.yaml.",
                ),
                click.option(
                    "--output",
                    "-o",
                    type=shared.FILE,
                    default=Path(figure),
                    show_default=True,
                    help="Directory for the numbers (CSV, JSON) and the figure (PNG).",
                ),
                shared.json_option,
            )
        ):
            command = option(command)
        return command

    return add


@reproduce.command()
@figure_options("fig8")
def fig8(
    data: Path | None, synthetic: bool, parameters: Path | None, output: Path, as_json: bool
) -> None:
    """Every strategy on estimated latencies, judged by estimated and measured ones (Fig. 8).

    With what heights and more dimensions are worth to Nova.
    """
    from nova_harness import fig8 as figure
    from nova_harness.figure_inputs import read_parameters

    asked = read_parameters("fig8", figure.Fig8, parameters)
    with shared.working(), shared.progress("placing") as advance:
        result = figure.run(asked, data_directory(data, synthetic), advance)
    tables: dict[str, Sequence[object]] = {
        "fig8": result.strategies,
        "fig8-spaces": result.spaces,
    }
    written = write(output, "fig8", result, tables, lambda: figure.draw(result))
    if as_json:
        console.print_json({**as_dict(result), "written": written})
        return
    console.show(strategies_table(result), "", spaces_table(result))
    console.say(f"written to {output}: {', '.join(written)}")


@reproduce.command()
@figure_options("fig9")
def fig9(
    data: Path | None, synthetic: bool, parameters: Path | None, output: Path, as_json: bool
) -> None:
    """A placement that stays while latencies change over the hours (Fig. 9)."""
    from nova_harness import fig9 as figure
    from nova_harness.figure_inputs import read_parameters

    asked = read_parameters("fig9", figure.Fig9, parameters)
    with shared.working(), shared.progress("placing") as advance:
        result = figure.run(asked, data_directory(data, synthetic), advance)
    written = write(output, "fig9", result, {"fig9": result.hours}, lambda: figure.draw(result))
    if as_json:
        console.print_json({**as_dict(result), "written": written})
        return
    console.show(
        hours_table(result),
        "",
        f"90P stays within {100 * result.p90_range:.1f} % of its mean over the hours, the mean "
        f"within {100 * result.mean_range:.1f} %; of single workloads 90P within "
        f"{100 * result.worst_workload:.1f} %",
    )
    console.say(f"written to {output}: {', '.join(written)}")


def data_directory(data: Path | None, synthetic: bool) -> Path | None:
    """Where measured latencies are; None for a synthetic internet.

    Raises:
        UsageError: when both are asked for.
    """
    from nova_harness.figure_inputs import DATA

    if synthetic:
        if data is not None:
            raise click.UsageError("--data and --synthetic exclude each other")
        return None
    return data or DATA


def as_dict(result: object) -> dict[str, Any]:
    """A result as plain values."""
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(result)
    return plain


def write(
    directory: Path,
    figure: str,
    result: object,
    tables: dict[str, Sequence[object]],
    draw: Callable[[], Figure],
) -> list[str]:
    """Write numbers and figure; the names of the files."""
    import csv
    import io

    import msgspec

    from nova_core.model.files import make_directory, write_text
    from nova_core.plotting import save_figure

    make_directory(directory)
    written = []
    for name, rows in tables.items():
        records = [msgspec.to_builtins(row) for row in rows]
        text = io.StringIO()
        writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        write_text(directory / f"{name}.csv", text.getvalue())
        written.append(f"{name}.csv")
    content = msgspec.json.format(msgspec.json.encode(result), indent=2)
    write_text(directory / f"{figure}.json", content.decode() + "\n")
    save_figure(draw, directory / f"{figure}.png")
    return [*written, f"{figure}.json", f"{figure}.png"]


def strategies_table(result: eighth.Result) -> Any:
    """Figure 8 as a table."""
    table = console.table(
        f"Placed on estimated latencies of {result.nodes} nodes ({result.latencies}), ms",
        ["strategy", ">mean, estimated", ">measured", ">x", ">90P, estimated", ">measured", ">x"],
        caption="\n".join(f"{r.strategy}: {r.error}" for r in result.strategies if r.error) or None,
    )
    for row in result.strategies:
        table.add_row(
            row.strategy,
            console.number(row.estimated_mean),
            console.number(row.measured_mean),
            console.number(row.measured_mean / row.estimated_mean, 2),
            console.number(row.estimated_p90),
            console.number(row.measured_p90),
            console.number(row.measured_p90 / row.estimated_p90, 2),
        )
    return table


def spaces_table(result: eighth.Result) -> Any:
    """What other cost spaces are worth, against the first one."""
    table = console.table(
        "nova(p) in other cost spaces, measured",
        ["space", ">error, ms", "objective", ">mean, ms", ">%", ">90P, ms", ">%", ">usage, %"],
    )
    first: dict[str, eighth.SpaceRow] = {}
    for row in result.spaces:
        base = first.setdefault(row.objective, row)
        table.add_row(
            row.space,
            console.number(row.mae),
            row.objective,
            console.number(row.measured_mean),
            _change(row.measured_mean, base.measured_mean),
            console.number(row.measured_p90),
            _change(row.measured_p90, base.measured_p90),
            _change(row.measured_usage, base.measured_usage),
        )
    return table


def _change(value: float, base: float) -> str:
    return f"{100 * (value / base - 1):+.1f}"


def hours_table(result: ninth.Result) -> Any:
    """Figure 9 as a table."""
    table = console.table(
        f"A fixed placement on {result.nodes} nodes ({result.latencies}), measured, ms",
        [">hour", ">mean", ">90P", ">90P / its mean, lowest", ">highest", ">changed", ">by"],
        caption="changed: entries of the matrix since the hour before, by how much (median)",
    )
    for row in result.hours:
        table.add_row(
            str(row.hour),
            console.number(row.mean),
            console.number(row.p90),
            console.number(row.lowest_p90, 3),
            console.number(row.highest_p90, 3),
            f"{row.changed:,}",
            console.number(row.median_change),
        )
    return table


__all__ = ["reproduce"]
