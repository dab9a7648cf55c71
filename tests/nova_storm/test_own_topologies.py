"""Nodes of a topology's components, by a plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nova_core.errors import NovaError
from nova_storm.own_topologies import components, placement

# As `nova plan` writes it; what it makes of a problem is placed in test_own_topologies_e2e.
PLAN: dict[str, Any] = {
    "nova_plan": 2,
    "problem": {"name": "words", "digest": ""},
    "strategy": "nova",
    "objective": "latency",
    "rewriting": {"push_filters": True, "split_aggregates": True, "share_operators": True},
    "instances": [{"operator": "report/count", "node": "barn", "left": [0, 1], "right": [0, 1]}],
    "edges": [
        {"from": "hill", "to": "barn", "consumer": 0, "input": "left", "carries": "split"},
        {"from": "barn", "to": "hub", "producer": 0},
    ],
}
SOURCES = {"sentences": "hill"}
BOLTS = ["sentences", "split", "count", "report"]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    return tmp_path / "plan.json"


def test_every_component_gets_its_node(plan: Path) -> None:
    found = placement(plan, [*BOLTS, "__acker", "__metrics"], sources=SOURCES)
    assert found == {
        # A projection that emits no more than it receives runs with what it reads from.
        "sentences": "hill",
        "split": "hill",
        "count": "barn",
        "report": "hub",
        "__acker": "hill",
        "__metrics": "hill",
    }
    chosen = placement(plan, [*BOLTS, "log", "__acker"], {"log": "hub", "__acker": "barn"}, SOURCES)
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
        placement(plan, names, chosen, SOURCES)


def test_a_component_has_one_node(plan: Path) -> None:
    document = json.loads(plan.read_text())
    document["instances"].append(dict(document["instances"][0], node="hill"))
    plan.write_text(json.dumps(document))
    with pytest.raises(NovaError, match="is in pieces on barn, hill"):
        placement(plan, BOLTS, sources=SOURCES)


def test_results_of_one_component_go_to_the_sinks_of_several_queries(plan: Path) -> None:
    document = json.loads(plan.read_text())
    document["edges"] += [{"from": "barn", "to": "mill", "producer": 0, "sink": "alarms"}]
    plan.write_text(json.dumps(document))
    found = placement(plan, [*BOLTS, "alarms"], sources=SOURCES)
    assert (found["report"], found["alarms"]) == ("hub", "mill")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nova_plan": 2, "instances": []}'])
def test_what_is_no_plan_of_queries_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(NovaError, match=r"plan\.json: not "):
        placement(tmp_path / "plan.json", BOLTS)


@pytest.mark.parametrize(
    ("rows", "value", "message"),
    [
        ("instances", [{"operator": "report/count"}], r"instances\[0\].*node"),
        ("edges", [{"from": "barn", "to": "hub", "producer": 7}], r"edges\[0\]: producer"),
        ("edges", [{"from": "barn", "to": "hub"}], r"edges\[0\]: producer"),
    ],
)
def test_a_damaged_plan_is_refused(tmp_path: Path, rows: str, value: Any, message: str) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN | {rows: value}))
    with pytest.raises(NovaError, match=rf"plan\.json: .*{message}"):
        placement(tmp_path / "plan.json", BOLTS, sources=SOURCES)


def test_components_are_known_before_they_are_scheduled() -> None:
    names = ["a", "b", "__acker"]
    status = {"topologies": [{"name": "words", "executors": [], "components": names}]}
    assert components(status, "words") == names
    with pytest.raises(NovaError, match="topology 'other': nimbus does not know it"):
        components(status, "other")
