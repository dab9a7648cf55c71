"""Apache Spark as one of Nova's engines (entry point ``nova.engines``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_spark.home import check, spark_home

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem


class Spark:
    """See `nova_core.engines.Engine`."""

    name = "spark"

    @property
    def path(self) -> Path:
        """Of Spark if it is installed, else the name of the package that brings it."""
        return spark_home() or Path("pyspark")

    def describe(self) -> str:
        """What it is, in a line."""
        return "Apache Spark: every stage of a streaming join on the node the plan says"

    def installed(self) -> bool:
        """Whether PySpark and Java are present; translated plans can be written without."""
        try:
            check()
        except NovaError:
            return False
        return True

    def install(self, progress: Callable[[str], None]) -> None:
        """Compile Nova's part in Scala; Spark itself comes with the extra ``spark``.

        Raises:
            NovaError: saying what is missing.
        """
        check()
        from nova_spark.extension import build

        (jar,) = build(progress)
        progress(f"{self.path} and {jar} are there")

    def translate(
        self, plan: Plan, problem: Problem, directory: Path, options: Mapping[str, Any]
    ) -> list[Path]:
        """Write configuration, job and scripts for a plan into a directory."""
        from nova_spark.translate import translate

        return translate(plan, problem, directory, **options)


SPARK = Spark()
