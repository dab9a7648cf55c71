"""Every example in the READMEs and in docs/ works, and shows what it really prints.

Blocks of a page run in order, in one empty directory with `nova` on PATH:

* ```yaml NAME: saved as NAME;
* ```console: its commands are run, and what they print is compared: see `doc_examples`;
* ```python: a program of its own.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from doc_examples import (
    Block,
    blocks_of,
    commands_of,
    environment_of_examples,
    missing_line,
    run,
    run_and_compare,
    run_warm,
)

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "research").rglob("README.md")),
]
RUN = {"console", "python", "yaml"}
# What needs a checkout or another machine; `./nova ...` is tested in test_launcher.py.
NOT_RUN = {"sh", "text"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_work(page: Path, tmp_path: Path) -> None:
    environment = environment_of_examples()
    for block in blocks_of(page.read_text()):
        if block.language == "yaml" and block.title:
            (tmp_path / block.title).write_text(block.text)
        elif block.language == "python":
            run([sys.executable, "-c", block.text], tmp_path, environment)
        elif block.language == "console":
            run_and_compare(block, tmp_path, environment, warm=True)


def test_a_warm_command_does_what_the_command_does(tmp_path: Path) -> None:
    """Its directory, environment, output, warnings and exit code."""
    environment = environment_of_examples() | {"COLUMNS": "60"}
    (tmp_path / "problem.yaml").write_text("nova: 1\n")
    for command in ("nova --version", "nova plan --help", "nova engines list"):
        real = run(["bash", "-c", command], tmp_path, environment)
        assert run_warm(command.split()[1:], tmp_path, environment) == real
    said = []
    for arguments in (["plan", "problem.yaml"], ["no-such-command"]):
        for attempt in (
            lambda a=arguments: run(["bash", "-c", f"nova {' '.join(a)}"], tmp_path, environment),
            lambda a=arguments: run_warm(a, tmp_path, environment),
        ):
            with pytest.raises(AssertionError, match="ended with 2:") as raised:
                attempt()
            said.append(str(raised.value))
    assert said[0] == said[1] and said[2] == said[3]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_of_a_kind_that_is_run(page: Path) -> None:
    """A fence that is never closed, or of another kind, would slip through untested."""
    text = page.read_text()
    blocks = blocks_of(text)
    assert text.count("```") == 2 * len(blocks)
    assert {block.language for block in blocks} <= RUN | NOT_RUN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_shown_output_is_really_compared() -> None:
    real = "a table\n x   12.5 ms\n─────\nlast line"
    assert missing_line(["a table", "x 3 µs", "..."], real) is None
    assert missing_line(["a ..."], real) is None
    assert missing_line(["a chair"], real) == "a chair"
    assert missing_line(["last line", "a table"], real) == "a table"
    block = Block("console", "", "$ echo a\n> echo b\na\n$ true\n")
    assert commands_of(block) == [("echo a\necho b", ["a"]), ("true", [])]
