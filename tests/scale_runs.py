"""What tests of placement at scale share: changed tables, and runs in one session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from nova_core.strategies.nova_parameters import NovaParameters
from nova_workloads.scale.plan import Scale, check_plan, open_plan, open_problem, plan
from nova_workloads.scale.tables import Problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def quiet(_: str) -> None:
    """Nobody watches."""


def placed(
    spark: SparkSession,
    problem: Path,
    output: Path,
    cells: int = 4,
    step: Callable[[str], None] = quiet,
    **parameters: Any,
) -> dict[str, Any]:
    """The report of a plan that is written."""
    settings = NovaParameters(**{"refine": False, **parameters})
    return plan(spark, open_problem(problem, output), output, Scale(settings, cells, 1000), step)


def checked(spark: SparkSession, problem: Path, output: Path) -> dict[str, Any]:
    """What is found of a plan."""
    return check_plan(spark, Problem.open(problem), output, open_plan(output), quiet)


def edited(problem: Path, target: Path, table: str, change: Callable[[pa.Table], pa.Table]) -> Path:
    """A copy of a directory of tables, one of which is changed."""
    target.mkdir()
    for path in problem.iterdir():
        if path.name == table:
            (target / table).mkdir()
            # With Spark's own note of its columns, which is not true then.
            found = change(pq.read_table(path).combine_chunks())
            pq.write_table(found, target / table / "part-000000.parquet")
        else:
            (target / path.name).symlink_to(path)
    return target
