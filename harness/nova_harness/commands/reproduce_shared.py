"""What the commands ``nova reproduce ...`` share: options, and writing numbers and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nova_core import console, paths
from nova_core.commands import shared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


def figure_options(
    figure: str, data: str | None = "measured latencies", synthetic: str = "a synthetic internet"
) -> Callable[[F], F]:
    """Options every figure has.

    Args:
        figure: its name.
        data: what it reads; None for a figure that only takes what is generated.
        synthetic: what it takes instead when asked to.
    """
    of_data = (
        click.option(
            "--data",
            type=paths.INPUT,
            help=f"Directory of {data} [default: ../shared/data beside a checkout].",
        ),
        click.option("--synthetic", is_flag=True, help=f"Take {synthetic} instead."),
    )

    def add(command: F) -> F:
        for option in reversed(
            (
                *(of_data if data else ()),
                click.option(
                    "--parameters",
                    type=paths.INPUT,
                    help=f"A YAML file like the project's own harness/experiments/{figure}.yaml.",
                ),
                click.option(
                    "--output",
                    "-o",
                    type=paths.OUTPUT,
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


def publish(
    directory: Path,
    figure: str,
    result: R,
    tables: Mapping[str, Sequence[object]],
    draw: Callable[[R], Figure],
    shown: Sequence[Any],
    as_json: bool,
) -> None:
    """Write numbers and figure, and print the numbers.

    Args:
        directory: for the files.
        figure: their name.
        result: all numbers, written and printed as JSON.
        tables: rows of CSV files, by their names.
        draw: makes the figure.
        shown: what is printed instead of JSON.
        as_json: whether JSON is printed.
    """
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
    save_figure(lambda: draw(result), directory / f"{figure}.png")
    written += [f"{figure}.json", f"{figure}.png"]
    if as_json:
        console.print_json({**msgspec.to_builtins(result), "written": written})
        return
    console.show(*shown)
    console.say(f"written to {directory}: {', '.join(written)}")
