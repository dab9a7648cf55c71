"""The examples of docs/testbed.md that need a virtual rack; test_docs.py runs the others."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_examples import blocks_of, environment_of_examples, run, run_and_compare
from needs import need_namespaces

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testbed.md"

pytestmark = pytest.mark.e2e


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A home of its own, so that a rack that is up already is not touched."""
    need_namespaces()
    home = tmp_path / "home"
    home.mkdir()
    made = environment_of_examples() | {
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
    }
    made.pop("NOVA_INVENTORY", None)
    yield made
    for place in ("virtual-14", "europe.yaml"):
        command = ["nova", "testbed", "down", "-i", place]
        subprocess.run(command, env=made, cwd=tmp_path, capture_output=True)


def test_commands_on_a_rack(environment: dict[str, str], tmp_path: Path) -> None:
    ran = sum(
        run_and_compare(block, tmp_path, environment)
        for block in blocks_of(PAGE.read_text())
        if (block.language, block.title) == ("sh", "rack")
    )
    assert ran > 8


def test_python_on_a_rack(environment: dict[str, str], tmp_path: Path) -> None:
    blocks = blocks_of(PAGE.read_text())
    for block in blocks:
        if block.language == "yaml":
            (tmp_path / block.title).write_text(block.text)
    (program,) = [block.text for block in blocks if block.title == "rack-python"]
    output = run([sys.executable, "-c", program], tmp_path, environment)
    assert re.fullmatch(r"left\n\nTrue \d+\n", output), output
