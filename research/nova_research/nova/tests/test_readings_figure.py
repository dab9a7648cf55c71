"""Figure 7 by different readings of Algorithm 1, which show why ours differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_research.figures.base import Run
from nova_research.nova.fig7_readings import READINGS, Fig7Readings, ReadingsParameters


@pytest.mark.data
def test_what_algorithm_1_leaves_open_is_worth(shared_data: Path) -> None:
    result = Fig7Readings().run(ReadingsParameters(instances=("fit",)), Run(shared_data))
    rows = {row.reading: row for row in result.rows}
    assert list(rows) == [reading.label for reading in READINGS]
    merged, each = rows["whole where it fits, merged"], rows["whole where it fits, not merged"]
    assert merged.unplaced == 0
    assert merged.delta < 0.8 * merged.published
    # Replicas that take their inputs each for themselves are farther away, and near the paper's.
    assert each.delta == pytest.approx(each.published, abs=1.5)
    assert rows["always cut, merged"].replicas > merged.replicas
