"""The examples in docs/scale.md work, and show what they really print.

They start Spark, so they are `sh` there, which `tests/house/test_docs.py` leaves out, and run here.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_examples import blocks_of, environment_of_examples, run_and_compare

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"


def test_from_nothing_to_a_checked_plan(tmp_path: Path) -> None:
    # Of seconds of Java, the second compiler would take most.
    environment = environment_of_examples() | {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
    ran = sum(
        run_and_compare(block, tmp_path, environment)
        for block in blocks_of(PAGE.read_text())
        if block.language == "sh"
    )
    assert ran == 8
