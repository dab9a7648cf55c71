"""Queries whose operators may migrate, beside fixed ones."""

from __future__ import annotations

import pytest

from nova_core.errors import NovaError
from nova_research.figures.base import Run
from nova_research.sbon.migration import SbonMigration, SbonMigrationParameters, Variant


def test_queries_that_may_migrate_use_less_where_they_began_badly() -> None:
    variants = (
        Variant("measured", load=0.0, measured=True),
        Variant("never", load=0.0, displacement=1e6),
        Variant("unaware", load=0.0, measured=True, first_neighbours=3),
    )
    asked = SbonMigrationParameters(
        nodes=40, synthetic_nodes=50, synthetic_hours=3, pairs=10, groups=3, neighbours=12,
        variants=variants,
    )  # fmt: skip
    result = SbonMigration().run(asked, Run())
    measured, never, unaware = result.rows
    assert (never.usage, never.less, never.more, never.moves) == (0, 0, 0, 0)
    assert measured.usage <= 0
    assert unaware.usage < measured.usage
    assert unaware.moves > 0
    assert len(result.pairs) == 30
    with pytest.raises(NovaError, match="nodes is 130; 50 were measured"):
        SbonMigration().run(SbonMigrationParameters(synthetic_nodes=50), Run())
    with pytest.raises(NovaError, match="one hour; expected two or more"):
        SbonMigration().run(SbonMigrationParameters(latencies=("a",)), Run())
