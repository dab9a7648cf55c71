"""docs/papers.md and the READMEs of papers: what their rows name exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from nova_core.cli import cli
from nova_research.figures.base import names

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "papers.md"
PAPERS = sorted((ROOT / "research" / "nova_research").glob("*/README.md"))
HEADINGS = ["What is here", "How to run it", "What differs"]
STATES = {"exact", "differs", "not here"}
COLUMNS = 5


def rows(page: Path) -> Iterator[list[str]]:
    """Of the last table."""
    for line in page.read_text().partition("## What differs")[2].splitlines():
        cells = [cell.strip() for cell in line[1:-1].split("|")]
        if line.startswith("|") and cells[0] not in ("what", "---"):
            yield cells


ROWS = [(page, row) for page in PAPERS for row in rows(page)]


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)


def anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def test_every_paper_is_in_the_index() -> None:
    linked = re.findall(r"\]\(\.\./(research/[^)]+/README\.md)\)", INDEX.read_text())
    assert sorted(linked) == [str(page.relative_to(ROOT)) for page in PAPERS]


@pytest.mark.parametrize("page", PAPERS, ids=lambda page: page.parent.name)
def test_a_paper_can_be_read_alone(page: Path) -> None:
    """It says what the paper says, what is here, how to run it and what differs."""
    _, says, *others = headings(page)
    assert re.fullmatch(r"What the (paper|document) says", says)
    assert others == HEADINGS
    assert list(rows(page))
    # The table of files names every module.
    here = page.read_text().partition("## What is here")[2].partition("\n## ")[0]
    named = {path.rstrip("/") for path in re.findall(r"\]\(([^)]+)\)", here)}
    modules = {path.name for path in page.parent.iterdir() if path.name[0] not in "_."}
    assert modules - {"README.md"} <= named


@pytest.mark.parametrize(("page", "row"), ROWS, ids=[f"{p.parent.name}: {r[0]}" for p, r in ROWS])
def test_a_row_has_a_state_and_what_it_names_exists(page: Path, row: list[str]) -> None:
    assert len(row) == COLUMNS, row
    what, state, why, code, command = row
    assert state in STATES, row
    assert why or state == "exact", f"{what}: says neither how it differs nor why"
    if state != "not here" and what != "Proposition 2":
        assert "](" in code, f"{what}: names no code"
        assert command.startswith("`nova "), f"{what}: names no command"
    for target in re.findall(r"\]\(([^)\s]+)\)", " ".join(row)):
        path, _, heading = target.partition("#")
        file = page.parent / path
        assert file.exists(), target
        if heading:
            assert heading in map(anchor, headings(file)), target
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
    text = "".join(page.read_text() for page in PAPERS)
    assert [name for name in names() if f"`nova reproduce {name}`" not in text] == []
