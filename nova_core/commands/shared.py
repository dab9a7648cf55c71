"""What several commands share: options, and reading problems and plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nova_core import console, paths
from nova_core.choices import LazyChoice
from nova_core.errors import ProblemError
from nova_core.numbers import SEED, at_least

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem

F = TypeVar("F", bound=Callable[..., Any])

BASELINES = ("sink", "source", "top-c", "tree")
# The last is part of nova-research.
QUERY_BASELINES = ("sink", "source", "sbon-relaxation")

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
    "--objective",
    type=LazyChoice("nova_core.model.objectives:OBJECTIVES"),
    help="What to minimize [default: latency].",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Write the answer as JSON to stdout, nothing else."
)
rows_option = click.option(
    "--rows",
    type=at_least(0),
    help=f"Rows shown of a long table; 0 for all [default: {console.ROWS}; with --json: all].",
)


def shown_rows(rows: int | None, usual: int = console.ROWS, as_json: bool = False) -> int | None:
    """How many rows of a table are shown, by ``--rows``; None for all, as in JSON by default."""
    if rows is None:
        return None if as_json else usual
    return rows or None


sync_option = click.option(
    "--sync", is_flag=True, help="Wait for the disk after each event (power cuts)."
)


def options(*chosen: Callable[[Any], Any]) -> Callable[[F], F]:
    """Options and arguments that several commands have, as one decorator."""

    def decorate(command: F) -> F:
        for option in reversed(chosen):
            command = option(command)
        return command

    return decorate


def together(
    name: str, make: Callable[..., Any], *chosen: Callable[[Any], Any]
) -> Callable[[F], Any]:
    """Options and arguments that a command gets as one.

    Args:
        name: the command's argument.
        make: makes it of their values, by name: a class with such fields, or `dict`.
        chosen: the options and arguments.
    """
    names = [each.name for each in click.command()(options(*chosen)(lambda: None)).params]

    def decorate(command: F) -> Any:
        @wraps(command)
        def with_one(*arguments: Any, **others: Any) -> Any:
            values = {str(each): others.pop(str(each)) for each in names}
            return command(*arguments, **{name: make(**values)}, **others)

        return options(*chosen)(with_one)

    return decorate


def output_option(help_text: str, **more: Any) -> Callable[[F], F]:
    """``--output``: where the answer is written."""
    return click.option("--output", "-o", type=paths.OUTPUT, help=help_text, **more)


def seed_option(help_text: str | None = None) -> Callable[[F], F]:
    """``--seed``, 0 unless it is given."""
    return click.option("--seed", type=SEED, default=0, show_default=True, help=help_text)


def settings_option(help_text: str, metavar: str = "KEY=VALUE") -> Callable[[F], F]:
    """``--set``, as often as one likes."""
    return click.option("--set", "settings", multiple=True, metavar=metavar, help=help_text)


set_option = settings_option("Any parameter of the strategy; may be repeated.")


def baselines(problem: Problem) -> list[str]:
    """Strategies that a plan is compared with, of those that are installed."""
    from nova_core.strategies import names

    installed = names()
    wanted = QUERY_BASELINES if problem.queries else BASELINES
    return [name for name in wanted if name in installed]


def complete_strategies(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of installed strategies for the shell's completion."""
    from nova_core.strategies import names

    return [name for name in names() if name.startswith(incomplete)]


@contextmanager
def working() -> Iterator[None]:
    """Context for computations: shows warnings as lines and announces kernel compilation."""
    from nova_core.placement.compilation import announce_compilation

    with console.warnings_as_lines(), announce_compilation(console.output(stderr=True)):
        yield


def load_problem(path: Path, capacity: str | None) -> Problem:
    """Read a problem file or directory; errors are those of `nova_core.io.files.read_problem`."""
    from nova_core.io.files import read_problem
    from nova_core.kernel_cache import prepare

    with console.warnings_as_lines():
        problem = read_problem(path, capacity=capacity, locate=_locate)
    prepare(len(problem.nodes) + len(problem.matrix))
    return problem


def _locate(*measured: Any) -> Any:
    """Positions of nodes that have none; announces kernel compilation."""
    from nova_core.costspace.automatic import locate

    with working():
        return locate(*measured)


def load_plan(path: Path, problem: Problem) -> Plan:
    """Read a plan of that problem."""
    from nova_core.io.files import read_plan

    return read_plan(path, problem)


def settings_of(settings: Iterable[str]) -> dict[str, str]:
    """Texts ``key=value`` as a mapping; a dash in a key is an underscore.

    Raises:
        ProblemError: for a text without ``=``, or a key given twice.
    """
    values: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise ProblemError(f"--set {setting}: expected KEY=VALUE, e.g. sigma=0.4")
        if key in values:
            raise ProblemError(f"--set {setting}: {key} is given twice")
        values[key] = value.strip()
    return values


def parameters_of(
    strategy: str, named: Mapping[str, Any], settings: Iterable[str]
) -> dict[str, Any]:
    """A strategy's parameters from options and ``--set key=value``, as the types it declares.

    Args:
        strategy: the strategy's name.
        named: values of named options; None is one that was not given.
        settings: texts ``key=value``.

    Raises:
        ProblemError: for a text without ``=``, an unknown parameter, one given twice, or a value
            of the wrong type.
    """
    from nova_core.strategies.parameters import typed_parameters

    values = {key: value for key, value in named.items() if value is not None}
    texts = settings_of(settings)
    for key in values.keys() & texts.keys():
        raise ProblemError(f"--set {key}={texts[key]}: {key} is given twice")
    return typed_parameters(strategy, {**values, **texts})
