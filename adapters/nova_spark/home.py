"""Where Spark is: in PySpark, or elsewhere."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

from nova_core import extras
from nova_core.errors import NovaError


def spark_home() -> Path | None:
    """``SPARK_HOME``, or else the Spark in PySpark; None where there is neither."""
    configured = os.environ.get("SPARK_HOME")
    if configured:
        return Path(configured)
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def check() -> Path:
    """Check that Spark can start here; its directory.

    Raises:
        NovaError: saying what is missing.
    """
    with extras.needed("Spark"):
        import pyspark  # noqa: F401
    home = spark_home()
    if home is None or not (home / "bin" / "spark-class").is_file():
        raise NovaError(f"SPARK_HOME {home}: holds no bin/spark-class")
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        raise NovaError("Spark needs Java 17 or newer: no java in PATH, and JAVA_HOME is not set")
    return home
