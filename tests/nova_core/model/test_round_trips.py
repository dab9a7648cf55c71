"""Both documents come back exactly as they were, from every format."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from random_problems import plans, problems

from nova_core.io import read_plan, read_problem, write_plan, write_problem
from nova_core.model import Plan, Problem

SOME = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
DOCUMENTS = (("p.yaml", None), ("p.json", None), ("parquet", "parquet"), ("arrow", "arrow"))


@SOME
@given(problem=problems())
def test_problem_comes_back(tmp_path: Path, problem: Problem) -> None:
    for name, tables in (*DOCUMENTS, ("csv", "csv")):
        write_problem(problem, tmp_path / name, tables)
        again = read_problem(tmp_path / name)
        assert again.same_as(problem), name
        assert again.name == problem.name


@SOME
@given(plan=plans())
def test_plan_comes_back(tmp_path: Path, plan: Plan) -> None:
    for name, tables in DOCUMENTS:
        write_plan(plan, tmp_path / name, tables)
        assert read_plan(tmp_path / name, plan.problem).same_as(plan), name
