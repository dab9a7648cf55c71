"""The commands ``nova reproduce ...``: one per figure, and one for all of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError
from nova_core.lazy_commands import broken_command
from nova_core.numbers import at_least

if TYPE_CHECKING:
    from nova_research.figures.base import Figure

QUICK = click.option(
    "--quick", is_flag=True, help="Fewer repetitions and smaller inputs: minutes in place of hours."
)


class Figures(click.Group):
    """A command for every figure, generated from the figure's declarations."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all figures, and ``all``."""
        from nova_research.figures.base import names

        return [*names(), "all"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        from nova_research.figures.base import load, names

        if cmd_name == "all" or cmd_name not in names():
            return every if cmd_name == "all" else None
        try:
            return _command(load(cmd_name))
        except NovaError as error:
            # One broken package must not break `nova reproduce --help`.
            return broken_command(cmd_name, error)


@click.group(cls=Figures, context_settings={"help_option_names": ["-h", "--help"]})
def reproduce() -> None:
    """Run the papers' experiments again: tables, figures and their numbers."""


@click.command("all")
@click.option("--data", type=paths.INPUT, help="Directory of measured data, as of each figure.")
@QUICK
@click.option(
    "--output",
    "-o",
    type=paths.OUTPUT,
    default=Path("figures"),
    show_default=True,
    help="Directory for a directory of each figure.",
)
@click.pass_context
def every(ctx: click.Context, data: Path | None, quick: bool, output: Path) -> None:
    """Every figure in turn; those that are finished with the same parameters are skipped.

    Figures without measured data use generated data.
    """
    from nova_research.figures.base import load, names

    failed = []
    for name in names():
        console.say(f"{name} ...")
        try:
            figure = load(name)
            source = _data(figure, data, synthetic=False, needed=False)
            parameters = _parameters_of(figure, quick, None, {})
            if _is_finished(figure, parameters, source, output / name):
                console.say(f"{name}: finished before")
            else:
                _reproduce(figure, parameters, source, output / name)
        except NovaError as error:
            console.warn(f"{name}: {error}")
            failed.append(name)
    if failed:
        console.fail(f"without a result: {', '.join(failed)}")
        ctx.exit(1)


def _command(figure: Figure[Any, Any]) -> click.Command:
    options = [
        QUICK,
        click.option(
            "--parameters",
            type=paths.INPUT,
            help=f"A YAML file with 'figure: {figure.name}' and parameters, the others by default.",
        ),
        click.option(
            "--output",
            "-o",
            type=paths.OUTPUT,
            default=Path(figure.name),
            show_default=True,
            help="Directory for the numbers (CSV, JSON) and the figure (PNG).",
        ),
        shared.json_option,
    ]
    if figure.data:
        options[:0] = [
            click.option(
                "--data",
                type=paths.INPUT,
                help=f"Directory of {figure.data} [default: ../shared/data beside a checkout].",
            ),
        ]
    if figure.data and figure.synthetic:
        options.insert(
            1, click.option("--synthetic", is_flag=True, help=f"Take {figure.synthetic} instead.")
        )

    def run(
        quick: bool, parameters: Path | None, output: Path, as_json: bool,
        data: Path | None = None, synthetic: bool = False, **own: Any,
    ) -> None:  # fmt: skip
        options = {key: list(v) if isinstance(v, tuple) else v for key, v in own.items()}
        chosen = _parameters_of(
            figure, quick, parameters, {k: v for k, v in options.items() if v not in (None, [])}
        )
        source = _data(figure, data, synthetic, needed=True)
        _reproduce(figure, chosen, source, output, as_json)

    help_text = f"{figure.__doc__}\n\n    Reproduces: {figure.source}."
    command = click.command(figure.name, help=help_text)(run)
    for option in (*_own_options(figure), *options):
        option(command)
    assert isinstance(command, click.Command)
    return command


def _own_options(figure: Figure[Any, Any]) -> list[Any]:
    """An option for every parameter that is a number, a text, or several of them."""
    from msgspec import inspect

    kinds: dict[type, Any] = {
        inspect.IntType: at_least(0),
        inspect.FloatType: float,
        inspect.StrType: str,
    }
    described = inspect.type_info(figure.Parameters)
    assert isinstance(described, inspect.StructType)
    options = []
    for field in described.fields:
        of_field, words = _plain(field.type)
        several = isinstance(of_field, inspect.ListType | inspect.VarTupleType)
        kind = kinds.get(type(_plain(of_field.item_type)[0] if several else of_field))
        if kind is None or "description" not in words:
            continue
        default = "" if field.default in (None, (), "") else f"{field.default}"
        options.append(
            click.option(
                f"--{words.get('title', field.name).replace('_', '-')}",
                field.name,
                type=kind,
                multiple=several,
                help=words["description"]
                + ("; may be repeated" if several else "")
                + (f" [default: {default}]." if default else "."),
                shell_complete=shared.complete_strategies if field.name == "strategies" else None,
            )
        )
    return options


def _plain(type_: Any) -> tuple[Any, Mapping[str, str]]:
    """A field's type without None, and the texts of its `msgspec.Meta`."""
    from msgspec import inspect

    words: dict[str, str] = {}
    while isinstance(type_, inspect.Metadata | inspect.UnionType):
        if isinstance(type_, inspect.Metadata):
            words |= type_.extra_json_schema or {}
            type_ = type_.type
            continue
        others = [one for one in type_.types if not isinstance(one, inspect.NoneType)]
        if len(others) != 1:
            break
        [type_] = others
    return type_, words


def _parameters_of(
    figure: Figure[Any, Any], quick: bool, path: Path | None, options: Mapping[str, Any]
) -> Any:
    """Parameters: options first, then those of a file, quick ones, and defaults.

    Raises:
        NovaError: naming the file or the command, the parameter and what is accepted.
    """
    from nova_core.io.syntax import convert, parse

    own: dict[str, Any] = {}
    if path is not None:
        own = parse(path, NovaError)
        if not isinstance(own, dict) or own.pop("figure", None) != figure.name:
            raise NovaError(f"{path}: 'figure: {figure.name}' is missing; its parameters are read")
    where = path or Path(f"reproduce {figure.name}")
    changed = {**(figure.quick if quick else {}), **own, **options}
    return convert(changed, where, figure.Parameters, NovaError)


def _data(
    figure: Figure[Any, Any], data: Path | None, synthetic: bool, needed: bool
) -> Path | None:
    """Directory of measured data; None for generated data.

    Raises:
        UsageError: when both are requested.
    """
    from nova_research.figures.inputs import DATA

    if synthetic and data is not None:
        raise click.UsageError("--data and --synthetic exclude each other")
    if synthetic or not figure.data or (data is None and not needed and not DATA.is_dir()):
        return None
    return data or DATA


def _head(figure: Figure[Any, Any], parameters: Any, data: Path | None) -> dict[str, Any]:
    """Figure, source, data and parameters of a result."""
    import msgspec

    return {
        "figure": figure.name,
        "source": figure.source,
        "data": str(data) if data else None,
        "parameters": msgspec.to_builtins(parameters),
    }


def _is_finished(
    figure: Figure[Any, Any], parameters: Any, data: Path | None, output: Path
) -> bool:
    """Whether a directory has this figure's numbers and drawing, with the same parameters."""
    import msgspec

    file = output / f"{figure.name}.json"
    if not (file.is_file() and file.with_suffix(".png").is_file()):
        return False
    try:
        document = msgspec.json.decode(file.read_bytes())
    except (msgspec.MsgspecError, RecursionError):
        return False
    head = msgspec.json.decode(msgspec.json.encode(_head(figure, parameters, data)))
    return isinstance(document, dict) and all(document.get(k) == v for k, v in head.items())


def _reproduce(
    figure: Figure[Any, Any],
    parameters: Any,
    data: Path | None,
    output: Path,
    as_json: bool = False,
) -> None:
    """Run, write numbers and drawing, and print the numbers."""
    import msgspec
    from matplotlib import rc_context

    from nova_core.io.safe_files import make_directory, write_text
    from nova_core.kernel_cache import compile_first
    from nova_core.plotting import save_figure
    from nova_research.figures.base import STYLE, Run

    compile_first()  # a figure places thousands of small problems, and times some
    with shared.working(), console.progress(figure.name) as advance:
        result = figure.run(parameters, Run(data, output, advance))
    document = {**_head(figure, parameters, data), "result": msgspec.to_builtins(result)}
    make_directory(output)
    tables = figure.tables(result)
    for table in tables:
        write_text(output / f"{table.name}.csv", _csv(table.rows))
    content = msgspec.json.format(msgspec.json.encode(document), indent=2)
    write_text(output / f"{figure.name}.json", content.decode() + "\n")
    with rc_context(STYLE):
        save_figure(lambda: figure.draw(result), output / f"{figure.name}.png")
    names = [f"{table.name}.csv" for table in tables]
    written = [*names, f"{figure.name}.json", f"{figure.name}.png"]
    if as_json:
        console.print_json({**document, "written": written})
        return
    for table in tables:
        console.show(table.shown(), "")
    words = figure.words(result)
    if words:
        console.show(*words, "")
    console.say(f"written to {output}: {', '.join(written)}")


def _csv(rows: Sequence[object]) -> str:
    import msgspec

    records = [msgspec.to_builtins(row) for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()
