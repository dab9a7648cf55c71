"""docs/papers.md: rows have a state; the commands, options, files and headings they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from nova_core.cli import cli
from nova_harness.reproduce.base import names

PAGE = Path(__file__).parents[2] / "docs" / "papers.md"
STATES = {"exact", "differs", "not here"}
COLUMNS = 5


def rows() -> list[list[str]]:
    found = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line[1:-1].split("|")]
        if line.startswith("|") and cells[0] not in ("what", "---"):
            found.append(cells)
    return found


ROWS = rows()


def anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_has_a_state_and_what_it_names_exists(row: list[str]) -> None:
    assert len(row) == COLUMNS, row
    what, state, why, code, command = row
    assert state in STATES, row
    assert why or state == "exact", f"{what}: says neither how it differs nor why"
    if state != "not here" and what != "Proposition 2":
        assert "](../" in code, f"{what}: names no code"
        assert command.startswith("`nova "), f"{what}: names no command"
    for target in re.findall(r"\]\(([^)\s]+)\)", " ".join(row)):
        path, _, heading = target.partition("#")
        file = PAGE.parent / path
        assert file.exists(), target
        if heading:
            lines = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            assert heading in map(anchor, lines), target
    for command in re.findall(r"`nova ([^`]+)`", " ".join(row)):
        _require(command)


def _require(command: str) -> None:
    """A command and its options, by words; other words are its arguments."""
    at: click.Command = cli
    context = click.Context(cli)
    options: set[str] = set()
    for word in command.split():
        if isinstance(at, click.Group) and not word.startswith("-"):
            found = at.get_command(context, word)
            assert found is not None, command
            at = found
            options = {name for param in at.params for name in param.opts}
        elif word.startswith("-"):
            assert word in options, f"nova {command}: no option {word}"
    assert not isinstance(at, click.Group), command


def test_every_figure_of_ours_has_a_row() -> None:
    text = PAGE.read_text()
    assert [name for name in names() if f"`nova reproduce {name}`" not in text] == []
