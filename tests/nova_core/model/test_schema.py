"""JSON Schemas of the documents: documents keep them, and a change of one shows in a diff."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from random_problems import plans, problems

from nova_core.io import write_plan, write_problem
from nova_core.io.examples import example_names
from nova_core.model import Plan, Problem
from nova_core.schemas import NAMES, schema_of

SOME = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def complaints(name: str, document: Any) -> list[str]:
    return [error.message for error in Draft202012Validator(schema_of(name)).iter_errors(document)]


GOLDEN = Path(__file__).with_name("formats.txt")


def outline(name: str) -> Iterator[str]:
    """A line per object of a format: its fields, those that may be left out with a question mark.

    What fields hold is left to the types; a name in braces tells a tagged object.
    """
    definitions = schema_of(name)["$defs"]
    for kind in sorted(definitions):
        fields = definitions[kind].get("properties", {})
        needed = definitions[kind].get("required", [])
        tags = [
            "{" + str(f["enum"][0]) + "}" for f in fields.values() if len(f.get("enum", ())) == 1
        ]
        told = [field if field in needed else f"{field}?" for field in fields]
        yield " ".join([f"{name}.{kind}:", *tags, *told])


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(schema_of(name))


def test_formats_are_those_of_the_golden_file() -> None:
    """A format that changes on purpose: put what this test shows into the file, and its version."""
    told = "\n".join(line for name in NAMES for line in outline(name)) + "\n"
    assert told == GOLDEN.read_text()


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
    import nova_core.io.examples as package

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
