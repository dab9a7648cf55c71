"""The examples in docs/workloads.md work, and show what they really print.

They start Spark, so they are `sh` there, which `tests/house/test_docs.py` leaves out, and run here.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]


def docs_tests() -> ModuleType:
    """What runs the examples of other pages."""
    spec = importlib.util.spec_from_file_location("docs", ROOT / "tests" / "house" / "test_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs"] = module
    spec.loader.exec_module(module)
    return module


def test_from_an_empty_folder_to_a_replay(tmp_path: Path) -> None:
    docs = docs_tests()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": "120"}
    text = (ROOT / "docs" / "workloads.md").read_text()
    commands = [
        command
        for block in docs.blocks_of(text)
        if block.language == "sh" and block.text.startswith("$ ")
        for command in docs.commands_of(block)
    ]
    assert len(commands) >= 8
    for command, shown in commands:
        output = docs.run(["bash", "-c", command], tmp_path, environment)
        missing = docs.missing_line(shown, output)
        assert missing is None, f"$ {command}\nlacks {missing}\nbut:\n{output}"
    lines = (tmp_path / "tuples.csv").read_text().splitlines()
    assert len(lines) > 100
