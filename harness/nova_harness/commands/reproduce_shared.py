"""What the commands ``nova reproduce ...`` share: options, and writing numbers and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nova_core.commands import shared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

F = TypeVar("F", bound=Callable[..., Any])


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
            type=shared.FILE,
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


__all__ = ["as_dict", "data_directory", "figure_options", "write"]
