"""Every example in the README and in docs/ works, and shows what it really prints.

Blocks of a page run in order, in one empty directory with `nova` on PATH:

* ```yaml NAME: saved as NAME;
* ```console: the lines after ``$`` run, one by one (``>`` continues a command), and must succeed.
  Lines of output that are shown must occur in the real output in that order, where figures may
  differ; ``...`` stands for anything;
* ```python: a program of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = {"console", "python", "yaml"}
# What needs a checkout or another machine; `./nova ...` is tested in test_launcher.py.
NOT_RUN = {"sh", "text"}

FENCE = re.compile(r"^```(\S*) ?(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r"[-+]?\d[\d,.]*(e-?\d+)?( ?(µs|ms|s|min)\b)?")


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    text: str


def blocks_of(text: str) -> list[Block]:
    return [Block(*match.groups()) for match in FENCE.finditer(text)]


def commands_of(block: Block) -> list[tuple[str, list[str]]]:
    """Each command with the lines of output shown below it."""
    found: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1][0].append(line[2:])
        else:
            assert found, f"output without a command: {line!r}"
            found[-1][1].append(line)
    return [("\n".join(command), output) for command, output in found]


def skeleton(line: str) -> str:
    """A line without what may differ: figures, units of time, spacing, the drawing of tables."""
    line = FIGURE.sub("#", line)
    return " ".join(re.sub(r"[─━│┃]+", " ", line).split())


def missing_line(shown: list[str], real: str) -> str | None:
    """The first line shown that the real output does not have after those before it."""
    rest = iter([skeleton(line) for line in real.splitlines()])
    for line in shown:
        wanted = skeleton(line)
        if wanted in ("", "..."):
            continue
        pattern = re.compile(re.escape(wanted).replace(re.escape("..."), ".*"))
        if not any(pattern.fullmatch(candidate) for candidate in rest):
            return line
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_work(page: Path, tmp_path: Path) -> None:
    scripts = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "COLUMNS": "120"}
    for block in blocks_of(page.read_text()):
        if block.language == "yaml" and block.title:
            (tmp_path / block.title).write_text(block.text)
        elif block.language == "python":
            run([sys.executable, "-c", block.text], tmp_path, environment)
        elif block.language == "console":
            for command, shown in commands_of(block):
                output = run(["bash", "-c", command], tmp_path, environment)
                missing = missing_line(shown, output)
                assert missing is None, (
                    f"$ {command}\ndoes not print this line, or not here:\n{missing}\n"
                    f"but:\n{output}"
                )


def run(command: list[str], directory: Path, environment: dict[str, str]) -> str:
    """Run; return what it printed."""
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command[-1]}\nended with {done.returncode}:\n{done.stdout}"
    assert "Traceback" not in done.stdout
    return done.stdout


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
