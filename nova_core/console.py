"""What people and programs see: answers on stdout, everything else on stderr."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

PIPE_WIDTH = 140
ROWS = 20


def fail(message: str) -> None:
    """Print an error on stderr, in one line."""
    _line("error", "red", message)


def warn(message: str) -> None:
    """Print a warning on stderr, in one line."""
    _line("warning", "yellow", message)


def say(message: str) -> None:
    """Print a note on stderr, in one line."""
    click.echo(f"nova: {_flat(message)}", err=True)


def _line(kind: str, colour: str, message: str) -> None:
    click.echo(f"nova: {click.style(f'{kind}:', fg=colour, bold=True)} {_flat(message)}", err=True)


def _flat(message: str) -> str:
    return " ".join(message.split())


# Warnings that this process has shown: a file may be read more than once.
_SHOWN: set[str] = set()


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show Python warnings raised inside as one line each on stderr, each text once."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)

        def show(message: Warning | str, *_: Any, **__: Any) -> None:
            if str(message) not in _SHOWN:
                _SHOWN.add(str(message))
                warn(str(message))

        warnings.showwarning = show
        yield


def output(*, stderr: bool = False) -> Console:
    """A rich console on stdout (or stderr).

    Where the output is no terminal and ``COLUMNS`` is not set, lines are wide enough for tables
    not to be squeezed.
    """
    from rich.console import Console

    class QuietPipeConsole(Console):
        """Leaves a closed pipe to the command line, which ends quietly."""

        def on_broken_pipe(self) -> NoReturn:
            raise BrokenPipeError(32, "broken pipe")

    stream = sys.stderr if stderr else sys.stdout
    terminal = stream.isatty()
    width = None if terminal else shutil.get_terminal_size((PIPE_WIDTH, 24)).columns
    return QuietPipeConsole(file=stream, width=width, highlight=False, soft_wrap=False)


def print_json(value: Any) -> None:
    """Write a document to stdout, as `json_line` has it, over several lines."""
    import msgspec

    click.echo(msgspec.json.format(json_line(value), indent=2))


def json_line(value: Any) -> bytes:
    """A document as JSON; NaN and infinities become null, arrays become lists.

    Bytes of a file's name that are no UTF-8, which JSON cannot hold, become U+FFFD.
    """
    import msgspec

    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except UnicodeEncodeError:
        return msgspec.json.encode(_readable(msgspec.to_builtins(value, enc_hook=_plain)))


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_readable(name): _readable(each) for name, each in value.items()}
    return [_readable(each) for each in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    # numpy's scalars and arrays have `tolist`; the check needs no import of numpy.
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]] = (),
    *,
    caption: str | None = None,
) -> Table:
    """A table.

    Args:
        title: above it, shown as it is.
        columns: headings; a column whose heading starts with ``>`` holds numbers, flush right.
        rows: cells, shown as they are; `Table.add_row` takes others with rich's markup.
        caption: below it.
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    columned = Table(
        title=escape(title),
        title_justify="left",
        title_style="bold",
        caption=caption,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for name in columns:
        if name.startswith(">"):
            columned.add_column(name[1:], justify="right", overflow="fold")
        else:
            columned.add_column(name, overflow="fold")
    for row in rows:
        columned.add_row(*map(escape, row))
    return columned


def show(*what: RenderableType) -> None:
    """Print to stdout."""
    console = output()
    for item in what:
        console.print(item)


class Progress:
    """Progress on stderr: a bar or status on a terminal, else a line per step.

    Code that reports progress takes a function of completed and total steps, such as this object,
    or a function of a text that names the present step, such as `step`.
    """

    def __init__(self, what: str, terminal: Callable[..., None] | None) -> None:
        self._what = what
        self._update = terminal

    def __call__(self, completed: int, total: int) -> None:
        """Show the number of completed steps."""
        if self._update is not None:
            self._update(completed=completed, total=total)

    def step(self, what: str) -> None:
        """Show the present step."""
        if self._update is not None:
            self._update(description=f"{self._what}: {what}" if self._what else what)
        else:
            say(what)


@contextmanager
def progress(what: str = "") -> Iterator[Progress]:
    """Show progress; on a terminal it disappears when the work is finished."""
    from rich.progress import Progress as Bar

    screen = output(stderr=True)
    if not screen.is_terminal:
        yield Progress(what, None)
        return
    with Bar(console=screen, transient=True) as bar:
        yield Progress(what, partial(bar.update, bar.add_task(what, total=None)))


def number(value: float, digits: int = 1) -> str:
    """A figure for a table: ``-`` for NaN, ``unlimited`` for infinity, grouped thousands."""
    if value != value:
        return "-"
    if value in (float("inf"), float("-inf")):
        return "unlimited"
    if digits and value == round(value) and abs(value) >= 1000:
        digits = 0
    return f"{value:z,.{digits}f}"  # z: 0.0 in place of -0.0


def share(part: float, whole: float) -> str:
    """A percentage for a table; ``-`` if the whole is 0."""
    return f"{100 * part / whole:.0f} %" if whole else "-"
