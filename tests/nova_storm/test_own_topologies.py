"""Nodes of a topology's components by a plan of Nova's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nova_core import place, write_plan
from nova_core.errors import NovaError
from nova_core.model.files import read_problem
from nova_storm.own_topologies import components, placement

PROBLEM = """
nova: 1
nodes:
  - {id: hill, capacity: 5, position: [-9, 0]}
  - {id: barn, capacity: 50, position: [-5, 0]}
  - {id: hub, capacity: 50, position: [0, 0], worker: false}
sources:
  - {id: sentences, node: hill, stream: sentences, rate: 10}
queries:
  - id: report
    sink: hub
    operators:
      - {id: split, kind: project, input: sentences, selectivity: 1}
      - {id: count, kind: aggregate, input: split, window: 1}
"""
BOLTS = ["sentences", "split", "count", "report"]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "problem.yaml").write_text(PROBLEM)
    made = place(read_problem(tmp_path / "problem.yaml"), "nova")
    write_plan(made, tmp_path / "plan.json")
    return tmp_path / "plan.json"


def test_every_component_gets_its_node(plan: Path) -> None:
    found = placement(plan, [*BOLTS, "__acker", "__metrics"])
    assert found == {
        # A projection that emits no more than it receives runs with what it reads from.
        "sentences": "hill",
        "split": "hill",
        "count": "barn",
        "report": "hub",
        "__acker": "hill",
        "__metrics": "hill",
    }
    chosen = placement(plan, [*BOLTS, "log", "__acker"], {"log": "hub", "__acker": "barn"})
    assert (chosen["log"], chosen["__acker"]) == ("hub", "barn")


@pytest.mark.parametrize(
    ("names", "chosen", "message"),
    [
        ([*BOLTS, "log"], {}, "component 'log' is not in the plan"),
        (["sentences", "split", "report"], {}, "its operator 'count' is not in the topology"),
        (BOLTS, {"cont": "hub"}, "component 'cont': is not in the topology"),
    ],
)
def test_what_does_not_match_is_refused(
    plan: Path, names: list[str], chosen: dict[str, str], message: str
) -> None:
    with pytest.raises(NovaError, match=message):
        placement(plan, names, chosen)


def test_a_component_has_one_node(plan: Path) -> None:
    document = json.loads(plan.read_text())
    document["instances"].append(dict(document["instances"][0], node="hill"))
    plan.write_text(json.dumps(document))
    with pytest.raises(NovaError, match="is in pieces on barn, hill"):
        placement(plan, BOLTS)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nova_plan": 2, "instances": []}'])
def test_what_is_no_plan_of_queries_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(NovaError, match=r"plan\.json: not "):
        placement(tmp_path / "plan.json", BOLTS)


def test_components_are_those_that_run() -> None:
    rows: list[dict[str, Any]] = [{"component": one} for one in ("a", "b", "b", "__acker")]
    status = {"topologies": [{"name": "words", "executors": rows}]}
    assert components(status, "words") == ["a", "b", "__acker"]
