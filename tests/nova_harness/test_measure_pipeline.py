"""The comparison of the Spark pipeline with DuckDB."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_duckdb_is_named_where_it_is_absent(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    # A finder that knows no DuckDB, before those that may.
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'duckdb' else find(name, *a)\n"
        "from nova_harness.measure_pipeline import main\n"
        "main(sys.argv[1:])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "archive")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr == "Error: the comparison needs DuckDB: pip install duckdb\n"
