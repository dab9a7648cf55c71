"""What several commands share: options, and reading problems and plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nova_core import console, paths
from nova_core.errors import ProblemError

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem

F = TypeVar("F", bound=Callable[..., Any])

# Kept by hand so that --help needs no numpy; a test compares it with the optimizer's own.
OBJECTIVES = ("latency", "network-usage", "source-latency")
BASELINES = ("sink", "source", "top-c", "tree")

problem_argument = click.argument("problem", type=paths.INPUT)
problem_option = click.option(
    "--problem", "-p", type=paths.INPUT, required=True, help="The problem the plan answers."
)
capacity_option = click.option(
    "--capacity",
    metavar="COLUMN",
    help="Capacity column of an instance directory, e.g. capacity_5; or: unlimited.",
)
objective_option = click.option(
    "--objective", type=click.Choice(OBJECTIVES), help="What to minimize [default: latency]."
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Write the answer as JSON to stdout, nothing else."
)
rows_option = click.option(
    "--rows",
    type=click.IntRange(min=0),
    help=f"Rows shown of a long table; 0 for all [default: {console.ROWS}; with --json: all].",
)
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any parameter of the strategy; may be repeated.",
)


def complete_strategies(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of installed strategies for the shell's completion."""
    from nova_core.strategies import names

    return [name for name in names() if name.startswith(incomplete)]


@contextmanager
def working() -> Iterator[None]:
    """Around anything that computes: warnings as lines, and word of kernels being compiled."""
    from nova_core.placement.compilation import announce_compilation

    with console.warnings_as_lines(), announce_compilation(console.output(stderr=True)):
        yield


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr that goes away when done; nothing where stderr is no terminal.

    Yields a function to call with the steps done and the steps in all.
    """
    from rich.progress import Progress

    err = console.output(stderr=True)
    with Progress(console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def load_problem(path: Path, capacity: str | None) -> Problem:
    """Read a problem file or directory."""
    from nova_core.model.files import read_problem

    with console.warnings_as_lines():
        return read_problem(path, capacity=capacity, locate=_locate)


def _locate(*measured: Any) -> Any:
    """Positions of nodes that have none, with word of kernels being compiled."""
    from nova_core.costspace.automatic import locate

    with working():
        return locate(*measured)


def load_plan(path: Path, problem: Problem) -> Plan:
    """Read a plan of that problem."""
    from nova_core.model.files import read_plan

    return read_plan(path, problem)


def parameters_of(
    strategy: str, given: Mapping[str, Any], settings: tuple[str, ...]
) -> dict[str, Any]:
    """A strategy's parameters from options and ``--set key=value``, as the types it declares.

    Args:
        strategy: the strategy's name.
        given: values of named options; None is one that was not given.
        settings: texts ``key=value``.

    Raises:
        ProblemError: for a text without ``=``, an unknown parameter, one given twice, or a value
            of the wrong type.
    """
    from dataclasses import fields
    from typing import get_type_hints

    import msgspec

    from nova_core.strategies.base import load

    values: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise ProblemError(f"--set {setting}: expected KEY=VALUE, e.g. sigma=0.4")
        if key in values:
            raise ProblemError(f"--set {setting}: {key} is given twice")
        values[key] = value.strip()
    declared = load(strategy).Parameters
    known = [field.name for field in fields(declared)]
    types = get_type_hints(declared)
    for key, value in values.items():
        if key not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no parameters"
            raise ProblemError(f"strategy {strategy}: unknown parameter {key!r}; it {takes}")
        try:
            values[key] = msgspec.convert(value, types[key], strict=False)
        except msgspec.ValidationError as error:
            raise ProblemError(f"strategy {strategy}: {key}={value}: {error}") from error
    return values


def takes(strategy: str, parameter: str) -> bool:
    """Whether a strategy has a parameter of that name."""
    from dataclasses import fields

    from nova_core.strategies.base import load

    return any(field.name == parameter for field in fields(load(strategy).Parameters))
