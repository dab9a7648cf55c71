"""Zones in live placement: where tuples may be holds after every event, or the event is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.io.files import read_problem
from nova_core.io.syntax import dump
from nova_core.model import Problem
from nova_core.model.verify import verify
from nova_core.placement.live import Journal, LivePlacement, parse_event
from nova_core.strategies import place

NODES = [
    {"id": "rome", "position": [0, 0], "capacity": 100, "zone": "eu"},
    {"id": "oslo", "position": [30, 0], "capacity": 100, "zone": "eu"},
    {"id": "york", "position": [1, 1], "capacity": 500, "zone": "us"},
    {"id": "ship", "position": [2, 0], "capacity": 500},
]
SOURCES = [
    {"id": "p1", "node": "rome", "stream": "pulse", "rate": 20, "key": "a"},
    {"id": "p2", "node": "oslo", "stream": "pulse", "rate": 20, "key": "b"},
    {"id": "a1", "node": "york", "stream": "air", "rate": 10, "key": "a"},
    {"id": "a2", "node": "york", "stream": "air", "rate": 10, "key": "b"},
]
EU = {"allow": ["eu"]}
PAIRS = {"query": {"operators": [{"id": "risk", "left": "pulse", "right": "air", "sink": "rome"}]}}
JOIN = {"id": "near", "kind": "join", "inputs": ["pulse", "air"], "match": "key"}
QUERIES = {"queries": [{"id": "risk", "sink": "rome", "operators": [JOIN]}]}
KINDS: dict[str, dict[str, Any]] = {"pairs": PAIRS, "queries": QUERIES}


def live_of(tmp_path: Path, kind: str) -> LivePlacement:
    """Tuples of one stream may not leave a zone; the nodes with most room are outside."""
    document = {"nova": 1, "name": "ward", "nodes": NODES, "sources": SOURCES, **KINDS[kind]}
    path = tmp_path / "problem.yaml"
    path.write_text(dump(document | {"streams": [{"id": "pulse", "zones": EU}]}, ".yaml"))
    problem = read_problem(path)
    return LivePlacement(problem, place(problem))


def apply(live: LivePlacement, **fields: Any) -> None:
    live.apply(parse_event(json.dumps(fields)))
    assert verify(live.plan()).ok


def hosts(live: LivePlacement) -> set[str]:
    plan = live.plan()
    return {str(live.problem().nodes.ids[node]) for node in plan.instances.node}


@pytest.mark.parametrize("kind", KINDS)
def test_events_keep_tuples_in_their_zone(tmp_path: Path, kind: str) -> None:
    live = live_of(tmp_path, kind)
    assert hosts(live) <= {"rome", "oslo"}
    apply(live, event="change-capacity", node="rome", capacity=25)
    assert hosts(live) == {"oslo"}
    with pytest.raises(InfeasibleError, match="fit on no worker of zone eu, nor"):
        apply(live, event="change-capacity", node="oslo", capacity=5)
    bern = {"id": "bern", "position": [1, 0], "capacity": 300, "zone": "eu"}
    apply(live, event="add-worker", node=bern | {"id": "lima", "zone": "pe"})
    apply(live, event="add-worker", node=bern)
    apply(live, event="change-capacity", node="oslo", capacity=5)
    assert hosts(live) == {"bern"}
    assert live.problem().nodes.zone is not None
    assert live.problem().zones == read_problem(tmp_path / "problem.yaml").zones
    with Journal.create(tmp_path / "journal", live) as journal:
        journal.apply(parse_event(json.dumps({"event": "change-rate", "source": "p1", "rate": 21})))
    with Journal.resume(tmp_path / "journal") as journal:
        apply(journal.live, event="rebalance", moves=9)
        assert hosts(journal.live) == {"bern"}


NEW: dict[str, dict[str, Any]] = {
    "pairs": {
        "event": "add-operator",
        "operator": {"id": "more", "left": "air", "right": "pulse", "sink": "rome"},
        "pairs": [{"left": "a1", "right": "p1", "output_rate": 2}],
    },
    "queries": {
        "event": "add-query",
        "query": {"id": "more", "sink": "rome", "operators": [JOIN | {"id": "also"}]},
    },
}


def changed(kind: str, zones: dict[str, list[str]] | None = None, **fields: Any) -> dict[str, Any]:
    """The event that adds a join, with other fields, and zones of its own."""
    event: dict[str, Any] = json.loads(json.dumps(NEW[kind]))
    new = event["operator" if kind == "pairs" else "query"]
    new.update(fields)
    if zones is not None:
        (new if kind == "pairs" else new["operators"][0])["zones"] = zones
    return event


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_new_keeps_zones_of_streams_and_its_own(tmp_path: Path, kind: str) -> None:
    live = live_of(tmp_path, kind)
    apply(live, **changed(kind))
    assert hosts(live) <= {"rome", "oslo"}
    with pytest.raises(InfeasibleError):
        apply(live, **changed(kind, {"allow": ["us"]}, id="other"))


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("pairs", {"event": "move-sink", "operator": "risk", "node": "york"}, "york"),
    ("queries", {"event": "move-sink", "operator": "risk", "node": "ship"}, "in no zone"),
    ("pairs", changed("pairs", sink="york"), "york"),
    ("queries", changed("queries", sink="york"), "york"),
    ("pairs", changed("pairs", {"allow": ["eu,us"]}), "no comma"),
    ("pairs", changed("pairs", requires={"tags": ["a,b"]}), "requires: 'a,b' is no tag"),
    ("queries", changed("queries", {"forbid": ["eu,us"]}), "no comma"),
    ("queries", {"event": "add-source", "source": SOURCES[0] | {"id": "p3", "node": "york"}}, "eu"),
    ("pairs", {"event": "add-source", "joins": [],
               "source": SOURCES[0] | {"id": "p3", "node": "york"}}, "eu"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "event", "text"), REFUSED)
def test_what_would_leave_a_zone_is_refused(
    tmp_path: Path, kind: str, event: dict[str, Any], text: str
) -> None:
    live = live_of(tmp_path, kind)
    before: Problem = live.problem()
    with pytest.raises(ProblemError) as caught:
        live.apply(parse_event(json.dumps(event)))
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert live.problem().same_as(before)
