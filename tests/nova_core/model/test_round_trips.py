"""Both documents come back exactly as they were, from every format."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from random_problems import plans, problems

from nova_core.model import Plan, Problem, read_plan, read_problem, write_plan, write_problem

RELAXED = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize(
    ("name", "tables"),
    [
        ("p.yaml", None),
        ("p.json", None),
        ("parquet", "parquet"),
        ("arrow", "arrow"),
        ("csv", "csv"),
    ],
)
@RELAXED
@given(problem=problems())
def test_problem_comes_back(
    tmp_path: Path, name: str, tables: str | None, problem: Problem
) -> None:
    write_problem(problem, tmp_path / name, tables)
    again = read_problem(tmp_path / name)
    assert again.same_as(problem)
    assert again.name == problem.name
    assert again.digest == problem.digest


@pytest.mark.parametrize(
    ("name", "tables"),
    [("p.json", None), ("p.yaml", None), ("parquet", "parquet"), ("arrow", "arrow")],
)
@RELAXED
@given(plan=plans())
def test_plan_comes_back(tmp_path: Path, name: str, tables: str | None, plan: Plan) -> None:
    write_plan(plan, tmp_path / name, tables)
    assert read_plan(tmp_path / name, plan.problem).same_as(plan)
