"""Figures that show why ours differ: readings of Algorithm 1, WhiteWater's examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nova_harness.reproduce.base import Run
from nova_harness.reproduce.fig7_readings import READINGS, Fig7Readings, ReadingsParameters
from nova_harness.reproduce.whitewater_examples import ExamplesParameters, WhitewaterExamples


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


def test_whitewaters_examples_come_out_as_in_the_text() -> None:
    result = WhitewaterExamples().run(
        ExamplesParameters(queries=6, exhaustive=1, joined=(0.0001, 0.57)), Run()
    )
    for one in result.examples:
        assert one.throughput == pytest.approx(one.expected, rel=2e-3), one
    none, some = result.section64
    for row in (none, some):
        assert row.before == pytest.approx(8517, rel=1e-3)
        assert (row.pushed, row.apart) == (True, True)
        assert row.after == pytest.approx(row.optimum, rel=2e-3)
    assert none.after < some.after == pytest.approx(some.published, rel=0.02)
    assert all(0 < row.ratio <= 1 for row in result.alphas)
    assert result.exhaustive[0].configurations > 1000
    assert np.isfinite(result.exhaustive[0].annealing)
