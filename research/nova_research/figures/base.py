"""A published figure: its run, tables, drawing and published values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec

from nova_core import console
from nova_core.extensions import Extensions

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from rich.table import Table as RichTable

# Of drawings, as matplotlib's rcParams.
STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
}

ParametersT = TypeVar("ParametersT", bound=msgspec.Struct)
Result = TypeVar("Result")
Row = TypeVar("Row")
# A field of the row, or a pair: a field or a function of the row, and digits after the point.
Column = str | tuple[str | Callable[[Any], object], int]


@dataclass(frozen=True)
class Run:
    """Inputs of a run beside its parameters.

    Attributes:
        data: directory of measured data; None takes generated data instead.
        kept: directory for finished parts, to resume an interrupted run; None keeps nothing.
        advance: called with steps finished and steps in all.
    """

    data: Path | None = None
    kept: Path | None = None
    advance: Callable[[int, int], None] = field(default=lambda *_: None)


@dataclass(frozen=True)
class Table:
    """Rows for a file, and the printed table.

    Attributes:
        name: of the CSV file.
        rows: dataclasses or structs, one each line of the file.
        title: of the printed table.
        headings: of its columns; ``>`` in front of those flush right.
        lines: its cells.
        caption: below it.
    """

    name: str
    rows: Sequence[Any]
    title: str
    headings: Sequence[str]
    lines: Sequence[Sequence[str]]
    caption: str = ""

    def shown(self) -> RichTable:
        """The printed table."""
        table = console.table(self.title, self.headings, caption=self.caption or None)
        for line in self.lines:
            table.add_row(*line)
        return table


def cell(value: object, digits: int = 1) -> str:
    """A value as a table shows it; ``-`` for None."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    assert isinstance(value, int | float)
    return f"{value:,}" if isinstance(value, int) else console.number(value, digits)


def listed(
    name: str,
    title: str,
    rows: Sequence[Row],
    columns: Mapping[str, Column],
    caption: str = "",
) -> Table:
    """A table with a line per row.

    Args:
        name: of its file.
        title: above it.
        rows: its lines.
        columns: by heading, a field of the row (1 digit after the point), or a pair: a field or a
            function of the row, and digits after the point.
        caption: below it.
    """
    lines = []
    for row in rows:
        line = []
        for column in columns.values():
            value, digits = (column, 1) if isinstance(column, str) else column
            of_row = getattr(row, value) if isinstance(value, str) else value(row)
            line.append(cell(of_row, digits))
        lines.append(line)
    return Table(name, rows, title, list(columns), lines, caption)


def by_first(rows: Sequence[Row], key: Callable[[Row], Hashable]) -> dict[Any, list[Row]]:
    """Rows grouped by a key, in the order in which keys first occur."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


class Figure(ABC, Generic[ParametersT, Result]):
    """A figure, a table or a claim of a paper that is measured again.

    The class's docstring is the command's help. Parameters are a frozen msgspec struct that forbids
    unknown fields and has defaults; numbers, texts and lists of them are options of the command,
    with the ``description`` of their `msgspec.Meta` as help (``title``: the option's name).

    Attributes:
        name: of the command and of its files.
        source: what is reproduced: paper, section, figure.
        Parameters: class of the parameters.
        published: values that the source prints; tables show them beside ours.
        data: what it reads from ``--data``; empty where it reads nothing.
        synthetic: what ``--synthetic`` uses instead; empty where there is no such option.
        quick: parameters that ``--quick`` changes.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    Parameters: ClassVar[type[msgspec.Struct]]
    published: ClassVar[Mapping[Any, Any]]
    data: ClassVar[str] = ""
    synthetic: ClassVar[str] = "a synthetic internet"
    quick: ClassVar[Mapping[str, Any]] = {}

    @abstractmethod
    def run(self, parameters: ParametersT, run: Run) -> Result:
        """Measure.

        Raises:
            NovaError: for parameters or data that cannot be used.
        """

    @abstractmethod
    def tables(self, result: Result) -> Sequence[Table]:
        """The result's tables, published values beside ours."""

    @abstractmethod
    def draw(self, result: Result) -> Drawing:
        """The result as a drawing; `STYLE` is in force."""

    def words(self, result: Result) -> Sequence[str]:
        """Sentences printed below the tables."""
        return ()


def _order(name: str) -> tuple[str, int]:
    number = name.removeprefix(name.rstrip("0123456789"))
    return name.removesuffix(number), int(number or 0)


_INSTALLED = Extensions("nova.figures", "figure", order=_order)


def names() -> list[str]:
    """Names of all figures, numbered ones by their numbers."""
    return _INSTALLED.names()


def load(name: str) -> Figure[Any, Any]:
    """The figure of that name.

    Raises:
        NovaError: for an unknown one, or one that cannot be loaded.
    """
    figure: Figure[Any, Any] = _INSTALLED.load(name)()
    return figure
