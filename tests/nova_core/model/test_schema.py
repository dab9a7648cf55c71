"""The published JSON Schemas are those of the types, and documents keep them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from random_problems import plans, problems

from nova_core.model import Plan, Problem, write_plan, write_problem
from nova_core.model.examples import example_names
from nova_core.model.schema import NAMES, generated, published

SOME = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def complaints(name: str, document: Any) -> list[str]:
    return [error.message for error in Draft202012Validator(published(name)).iter_errors(document)]


@pytest.mark.parametrize("name", NAMES)
def test_published_schema_is_current(name: str) -> None:
    Draft202012Validator.check_schema(published(name))
    assert published(name) == generated(name), "run python -m nova_core.model.schema"


@SOME
@given(problem=problems())
def test_written_problems_keep_it(tmp_path: Path, problem: Problem) -> None:
    write_problem(problem, tmp_path / "p.json")
    assert complaints("problem", json.loads((tmp_path / "p.json").read_text())) == []


@SOME
@given(plan=plans())
def test_written_plans_keep_it(tmp_path: Path, plan: Plan) -> None:
    write_plan(plan, tmp_path / "p.json")
    assert complaints("plan", json.loads((tmp_path / "p.json").read_text())) == []


def test_examples_keep_it() -> None:
    import nova_core.model.examples as package

    for name in example_names():
        path = Path(package.__path__[0]) / f"{name}.yaml"
        assert complaints("problem", yaml.safe_load(path.read_text())) == []


def test_it_refuses_what_reading_refuses() -> None:
    good: dict[str, Any] = {"nova": 1, "query": {"operators": []}, "nodes": []}
    assert complaints("problem", good) == []
    for wrong in (
        good | {"nova": 2},
        good | {"node": []},
        good | {"nodes": [{"id": "a", "capacity": -1}]},
        good | {"nodes": [{"id": "a", "capacity": "lots"}]},
        {"nova": 1},
    ):
        assert complaints("problem", wrong)
