"""A session on a cluster."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from nova_core import extras
from nova_core.environment import variables
from nova_core.errors import NovaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER_MEMORY = "512m"


@contextmanager
def session(master: str, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session that ends with the block.

    Hosts run this interpreter, at this path, unless ``PYSPARK_PYTHON`` names another.

    Args:
        master: ``spark://host:port``.
        settings: of Spark, added or replaced.

    Raises:
        NovaError: without PySpark, or when Spark does not start.
    """
    with extras.needed("Spark"):
        from pyspark.sql import SparkSession

        error_of_java = import_module("py4j.protocol").Py4JError
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("nova")
    chosen = {
        "spark.driver.memory": DRIVER_MEMORY,
        # Spark looks for secrets in the text of long plans, and needs a deep stack for that.
        # The JVM's temporary files go with those of this process.
        "spark.driver.extraJavaOptions": (
            f"-XX:+UseSerialGC -Xss8m -Djava.io.tmpdir={tempfile.gettempdir()}"
        ),
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        **(settings or {}),
    }
    for name, value in chosen.items():
        builder = builder.config(name, value)
    # The address in the URL of its pages is that of the driver, wherever they are.
    address = chosen.get("spark.driver.bindAddress")
    try:
        with variables(**({} if address is None else {"SPARK_LOCAL_IP": address})):
            spark = builder.getOrCreate()
    except error_of_java as error:
        raise NovaError(f"Spark does not start on {master}: {_reason(error)}") from error
    try:
        yield spark
    finally:
        spark.stop()


def _reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line.lstrip(": ") for line in lines if line.startswith(":")), lines[0])
