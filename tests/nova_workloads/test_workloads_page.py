"""The examples in docs/workloads.md work, and show what they really print.

They start Spark, so they are `sh` there, which `tests/house/test_docs.py` leaves out, and run here.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_examples import blocks_of, environment_of_examples, run_and_compare

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).resolve().parents[2] / "docs" / "workloads.md"


def test_from_an_empty_folder_to_a_replay(tmp_path: Path) -> None:
    environment = environment_of_examples()
    ran = sum(
        run_and_compare(block, tmp_path, environment)
        for block in blocks_of(PAGE.read_text())
        if block.language == "sh" and block.text.startswith("$ ")
    )
    assert ran >= 8
    lines = (tmp_path / "tuples.csv").read_text().splitlines()
    assert len(lines) > 100
