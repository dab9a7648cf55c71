"""The examples of the text, and its settings."""

from __future__ import annotations

import numpy as np
import pytest

from nova_research.figures.base import Run
from nova_research.whitewater.examples import ExamplesParameters, WhitewaterExamples


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
