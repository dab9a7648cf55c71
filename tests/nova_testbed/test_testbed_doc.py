"""The examples of docs/testbed.md that need a virtual rack; test_docs.py runs the others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from conftest import need_namespaces

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "testbed.md"

_spec = spec_from_file_location("test_docs", ROOT / "tests" / "house" / "test_docs.py")
assert _spec is not None and _spec.loader is not None
docs = module_from_spec(_spec)
sys.modules["test_docs"] = docs
_spec.loader.exec_module(docs)

pytestmark = pytest.mark.e2e


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A home of its own, so that a rack that is up already is not touched."""
    need_namespaces()
    scripts = Path(sys.executable).parent
    home = tmp_path / "home"
    home.mkdir()
    made = os.environ | {
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "COLUMNS": "120",
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
    }
    made.pop("NOVA_INVENTORY", None)
    yield made
    for place in ("virtual-14", "europe.yaml"):
        command = ["nova", "testbed", "down", "-i", place]
        subprocess.run(command, env=made, cwd=tmp_path, capture_output=True)


def test_commands_on_a_rack(environment: dict[str, str], tmp_path: Path) -> None:
    ran = 0
    for block in docs.blocks_of(PAGE.read_text()):
        if (block.language, block.title) != ("sh", "rack"):
            continue
        for command, shown in docs.commands_of(block):
            output = docs.run(["bash", "-c", command], tmp_path, environment)
            missing = docs.missing_line(shown, output)
            assert missing is None, f"$ {command}\ndoes not print:\n{missing}\nbut:\n{output}"
            ran += 1
    assert ran > 8


def test_python_on_a_rack(environment: dict[str, str], tmp_path: Path) -> None:
    blocks = docs.blocks_of(PAGE.read_text())
    for block in blocks:
        if block.language == "yaml":
            (tmp_path / block.title).write_text(block.text)
    (program,) = [block.text for block in blocks if block.title == "rack-python"]
    output = docs.run([sys.executable, "-c", program], tmp_path, environment)
    assert re.fullmatch(r"left\n\nTrue \d+\n", output), output
