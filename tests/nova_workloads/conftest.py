"""What tests of Spark pipelines share: one session, started by the first that needs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark on two threads; for inputs as small as tests have, compiled in a hurry."""
    from nova_workloads.spark import SparkOptions, spark_session

    settings = {
        "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": "2",
    }
    with spark_session(SparkOptions("local[2]", "1g", tuple(settings.items()))) as session:
        yield session
