"""The maps of the tree name files that exist and define what the maps say.

They are the tables of CONTRIBUTING.md (Where to look) and of docs/architecture.md.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from inspect import getsourcefile, unwrap
from pathlib import Path

import click
import pytest
import yaml

from nova_core.cli import cli

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
MAPS = {"## Where to look": PAGE, "# Architecture": ROOT / "docs" / "architecture.md"}
# Folders that a path may leave out where a longer one before it in the line names them.
SHORT = re.compile(r"[\w./-]+\.(?:py|md|txt)|[\w-]+/(?:[\w.-]+/?)*")

# Of the map's rows: `names` in `file`, files, and links to pages.
DEFINED = re.compile(r"((?:`[^`]+`(?:, | and )?)+) in `([^`]+)`")
FILE = re.compile(r"`([^`\s]+/[^`\s]+|[^`\s/]+\.(?:py|toml))`")
LINK = re.compile(r"\]\(([^)\s:]+)\)")
MOST_FILES = 3


def missing() -> list[str]:
    """Paths in backticks, and targets of links, that lead nowhere."""
    lost = []
    for line in PAGE.read_text().splitlines():
        names = re.findall(r"`([^`\s]+)`", line)
        names += [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s:]+)\)", line)]
        parents = [ROOT]
        for name in names:
            if not SHORT.fullmatch(name) or name.startswith(("../", "fuzz-failures")):
                continue
            here = next((at / name for at in parents if (at / name).exists()), None)
            if here is None:
                lost.append(name)
            else:
                parents += here.parents[: len(here.relative_to(ROOT).parents)]
    return lost


def test_paths_exist() -> None:
    assert missing() == []


def rows() -> list[str]:
    """Rows of the maps' tables, without their heads."""
    found = []
    for heading, page in MAPS.items():
        level = heading.partition(" ")[0]
        text = page.read_text().partition(f"{heading}\n")[2].partition(f"\n{level} ")[0]
        tables = re.findall(r"^\|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
        assert tables, f"{page}: no table under {heading}"
        found += [row for table in tables for row in table.splitlines()]
    return found


def definitions(body: list[ast.stmt], owner: str = "") -> Iterator[str]:
    """What a module's or a class's body defines, also by assignment; not what it imports."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield owner + node.name
            if isinstance(node, ast.ClassDef):
                yield from definitions(node.body, f"{owner}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (owner + one.id for one in targets if isinstance(one, ast.Name))


def defines_in_java(text: str, name: str) -> bool:
    """Whether Java or Scala text has a class, or a class with a method, of that name."""
    owner, _, method = name.partition(".")
    has_class = re.search(rf"\b(?:class|interface|enum|record|object) {owner}\b", text)
    return bool(has_class and re.search(rf"[\w>\]] {method}\(" if method else "", text))


def place_of(command: str) -> Path | None:
    """The file of the function that a command such as ``nova demo`` calls; None of no command."""
    found: click.Command | None = cli
    for word in command.split()[1:]:
        if not isinstance(found, click.Group):
            return None
        found = found.get_command(click.Context(found), word)
    if found is None or found.callback is None:
        return None
    source = getsourcefile(unwrap(found.callback))
    return None if source is None else Path(source).resolve()


def defines(file: Path, name: str) -> bool:
    """Whether a file defines a function, class, method, constant, command or experiment."""
    if name.startswith("nova "):
        return place_of(name) == file
    if file.suffix == ".py":
        return name in definitions(ast.parse(file.read_text()).body)
    if file.suffix in (".java", ".scala"):
        return defines_in_java(file.read_text(), name)
    return file.suffix == ".yaml" and yaml.safe_load(file.read_text()).get("name") == name


def headings(page: Path) -> set[str]:
    """Anchors of a page's headings, as links name them."""
    lines = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line).lower().replace(" ", "-") for line in lines}


def faults(row: str) -> list[str]:
    """What is wrong with a row of the map."""
    wrong = []
    named = {path: re.findall(r"`([^`]+)`", names) for names, path in DEFINED.findall(row)}
    files, pages = set(FILE.findall(row)), set(LINK.findall(row))
    if not 1 <= len(files | pages) <= MOST_FILES:
        wrong.append(f"{len(files | pages)} files, expected 1 to {MOST_FILES}")
    for path in sorted(files):
        file = ROOT / path
        if not file.is_file():
            wrong.append(f"{path}: is no file")
        elif path not in named:
            wrong.append(f"{path}: nothing is named that it defines")
        else:
            lost = [name for name in named[path] if not defines(file, name)]
            wrong += [f"{path}: does not define {name}" for name in lost]
    for target in sorted(pages):
        path, _, anchor = target.partition("#")
        page = ROOT / path
        if not page.is_file() or (anchor and anchor not in headings(page)):
            wrong.append(f"{target}: is no page, or has no such heading")
    return wrong


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.split("|")[1].strip())
def test_the_map_leads_to_what_it_names(row: str) -> None:
    assert faults(row) == []


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("`leg_weights` in `nova_core/model/objectives.py`", ""),
        ("`network_usage` in `nova_core/model/objectives.py`", "does not define network_usage"),
        # Imported there, defined elsewhere.
        ("`leg_weights` in `nova_core/model/plan.py`", "does not define leg_weights"),
        ("`Plan.objective_value`, `Plan` in `nova_core/model/plan.py`", ""),
        ("`objective_value` in `nova_core/model/plan.py`", "does not define objective_value"),
        ("`nova_core/model/plan.py` adds", "nothing is named"),
        ("`Plan` in `nova_core/model/plans.py`", "is no file"),
        ("`nova demo` in `harness/nova_harness/commands/demo.py`", ""),
        ("`nova demo` in `harness/nova_harness/commands/report.py`", "does not define nova demo"),
        ("`nova demos` in `harness/nova_harness/commands/demo.py`", "does not define nova demos"),
        ("`demo` in `harness/experiments/demo-load.yaml`", "does not define demo"),
        ("`Orders` in `adapters/nova_engines/java/nova/engines/Orders.java`", ""),
        ("`Orders.none` in `adapters/nova_engines/java/nova/engines/Orders.java`", "Orders.none"),
        ("`Order` in `adapters/nova_engines/java/nova/engines/Orders.java`", "not define Order"),
        ("[a page](docs/flink.md#your-own-job)", ""),
        ("[a page](docs/flink.md#your-own-jobs)", "no such heading"),
        ("[a page](docs/flinks.md)", "is no page"),
        ("it says nothing", "0 files"),
        ("[1](README.md) [2](docs/cli.md) [3](docs/live.md) [4](docs/flink.md)", "4 files"),
    ],
)
def test_wrong_rows_are_noticed(answer: str, fault: str) -> None:
    found = faults(f"| where? | {answer} |")
    assert len(found) == bool(fault) and all(fault in one for one in found)
