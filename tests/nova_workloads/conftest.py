"""What tests of Spark pipelines share: one session, started by the first that needs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

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
