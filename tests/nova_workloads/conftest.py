"""What tests of Spark pipelines share: one session, started by the first that needs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from small_spark import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark on two threads."""
    from nova_workloads.spark import SparkOptions, spark_session

    with spark_session(SparkOptions("local[2]", "1g", tuple(SETTINGS.items()))) as session:
        yield session


@pytest.fixture(scope="session")
def small(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A problem of 3,000 nodes at 60 % load: some joins find no room in their cell."""
    place = tmp_path_factory.mktemp("scale") / "problem"
    from nova_workloads.scale.generate import Shape, generate

    generate(spark, Shape(3000, rate_max=110), place)
    return place


@pytest.fixture(scope="session")
def small_plan(spark: SparkSession, small: Path) -> tuple[Path, dict[str, Any]]:
    from scale_runs import placed

    output = small.parent / "plan"
    return output, placed(spark, small, output)
