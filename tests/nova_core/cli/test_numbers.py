"""Numbers that options take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result


@pytest.mark.parametrize("value", ["nan", "-nan", "NaN"])
def test_nan_is_no_number_between_bounds(
    nova: Callable[..., Result], tmp_path: Path, value: str
) -> None:
    latencies = tmp_path / "pairs.csv"
    latencies.write_text("source,target,latency\na,b,1\nb,c,2\na,c,2\n")
    output = tmp_path / "space.csv"
    result = nova("topology", "embed", latencies, "-o", output, f"--near={value}")
    assert result.exit_code == 2
    assert "is no number" in result.stderr
    assert not output.exists()
