"""`nova plan`, `check`, `explain`, `diff` and `compare` of whole queries, as of joins of pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from nova_core.strategies import names


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    problem = {
        "nova": 1,
        "name": "line",
        "nodes": [{"id": f"n{i}", "position": [40.0 * i, i * i], "capacity": 60} for i in range(5)],
        "sources": [
            {"id": f"s{i}", "node": f"n{i}", "stream": "ab"[i % 2], "rate": 10 + i}
            for i in range(4)
        ],
        "queries": [
            {
                "id": "q",
                "sink": "n4",
                "operators": [
                    {"id": "j", "kind": "join", "inputs": ["a", "b"]},
                    {"id": "f", "kind": "filter", "input": "j", "selectivity": 0.5, "reads": "a"},
                ],
            }
        ],
    }
    (tmp_path / "problem.yaml").write_text(yaml.safe_dump(problem))
    return str(tmp_path / "problem.yaml"), str(tmp_path / "plan.json")


def test_a_plan_is_made_checked_explained_and_compared(nova: Any, files: tuple[str, str]) -> None:
    problem, plan = files
    made = nova("plan", problem, "-o", plan)
    assert made.exit_code == 0 and "The plan keeps all 10 constraints." in made.stdout
    assert "q/j(s0*s1)" in made.stdout and "1 query" in made.stdout
    assert json.loads(nova("check", plan, "-p", problem, "--json").stdout)["holds"]
    told = json.loads(nova("explain", plan, "-p", problem, "--join", "q", "--json").stdout)
    assert all(one["queries"]["q"] > 0 for one in told["operators"])
    sinks = {one["name"] for each in told["operators"] for one in each["outputs"]}
    assert sinks == {"q/sink"}
    out = nova("explain", plan, "-p", problem).stdout
    assert "longest way from a source to the sink: q: " in out
    node = told["operators"][0]["hosts"][0]["node"]
    hosted = json.loads(nova("explain", plan, "-p", problem, "--node", node, "--json").stdout)
    assert hosted["hosted"] and hosted["load"] > 0
    wrong = nova("explain", plan, "-p", problem, "--join", "p")
    assert wrong.exit_code == 2 and "p: no such operator, join, query or source" in wrong.stderr
    same = nova("diff", plan, plan, "-p", problem)
    assert same.exit_code == 0 and "no difference: all 4 instances stay" in same.stdout
    document = json.loads(Path(plan).read_text())
    document["instances"][0]["node"] = "n3" if document["instances"][0]["node"] != "n3" else "n2"
    Path(plan).write_text(json.dumps(document))
    refused = nova("check", plan, "-p", problem)
    assert refused.exit_code == 2 and "but by the plan it is" in refused.stderr
    moved = Path(plan).with_name("moved.json")
    kept = ("nova_plan", "problem", "strategy", "objective", "rewriting", "instances")
    moved.write_text(json.dumps({name: document[name] for name in kept}))
    assert nova("plan", problem, "-o", plan).exit_code == 0
    changed = json.loads(nova("diff", plan, str(moved), "-p", problem, "--json").stdout)
    assert changed["counts"]["moved"] == 1
    assert changed["changes"][0]["operator"].startswith("q/j(")


def test_what_queries_share_is_placed_once_unless_told_otherwise(
    nova: Any, files: tuple[str, str]
) -> None:
    problem, plan = files
    document = yaml.safe_load(Path(problem).read_text())
    document["queries"].append(document["queries"][0] | {"id": "again"})
    Path(problem).write_text(json.dumps(document))
    counts = {}
    for option in ("--share", "--no-share"):
        assert nova("plan", problem, "-o", plan, option).exit_code == 0
        written = json.loads(Path(plan).read_text())
        assert written["rewriting"]["share_operators"] == (option == "--share")
        counts[option] = written["totals"]["instances"]
    assert counts["--no-share"] == 2 * counts["--share"]


def test_what_runs_with_its_sources_is_not_placed(nova: Any, files: tuple[str, str]) -> None:
    problem, plan = files
    document = yaml.safe_load(Path(problem).read_text())
    only = {"id": "only", "kind": "filter", "input": "a", "selectivity": 0.5}
    document["queries"] = [{"id": "alone", "sink": "n4", "operators": [only]}]
    Path(problem).write_text(yaml.safe_dump(document))
    assert nova("plan", problem, "-o", plan, "--no-baselines").exit_code == 0
    out = nova("explain", plan, "-p", problem, "--join", "alone")
    assert out.exit_code == 0 and "alone: no operator of it is placed" in out.stderr
    answer = json.loads(nova("explain", plan, "-p", problem, "--json").stdout)
    assert answer == {"operators": [], "more": 0, "left_out": None}


def test_nova_costs_no_more_than_what_it_is_compared_with(
    nova: Any, files: tuple[str, str]
) -> None:
    answer = nova("compare", files[0], "--objective", "network-usage", "--json")
    found = json.loads(answer.stdout)["strategies"]
    assert set(found) >= {"nova", "sink", "source", "sbon-relaxation", "nes-bottom-up", "ifcop"}
    assert found["nova"]["evaluation"]["load"]["overloaded_count"] == 0
    cost = {
        name: one["evaluation"]["estimated"]["objectives"]["network-usage"]
        for name, one in found.items()
        if "evaluation" in one  # others found no room
    }
    # The sink may host nothing, which that baseline takes no notice of.
    assert cost["nova"] <= min(cost["source"], cost["sbon-relaxation"])


MORE = {
    "id": "more",
    "sink": "n0",
    "operators": [{"id": "j", "kind": "join", "inputs": ["a", "b"]}],
}
EVENTS: list[dict[str, Any]] = [
    {"event": "change-rate", "source": "s0", "rate": 20},
    {"event": "add-query", "query": MORE},
    {"event": "change-selectivity", "query": "q", "operator": "f", "selectivity": 0.25},
    {"event": "move-sink", "operator": "more", "node": "n2"},
    {"event": "add-source", "source": {"id": "s9", "node": "n4", "stream": "a", "rate": 5}},
    {"event": "remove-query", "query": "q"},
]


def test_events_are_followed_and_replanned(nova: Any, files: tuple[str, str]) -> None:
    """`nova live` and `nova replan` take events of whole queries, and journals keep them."""
    problem, plan = files
    assert nova("plan", problem, "-o", plan, "--no-baselines").exit_code == 0
    events, new, changed, journal = (
        str(Path(plan).with_name(name)) for name in ("e.jsonl", "new.json", "new.yaml", "journal")
    )
    Path(events).write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    done = nova("live", problem, plan, "--events", events, "--journal", journal)
    assert done.exit_code == 0, done.output
    deltas = [json.loads(line) for line in done.stdout.splitlines()]
    assert [delta["new_version"] for delta in deltas] == [1, 2, 3, 4, 5, 6]
    assert [len(delta["added"]) for delta in deltas] == [0, 4, 0, 0, 4, 0]
    assert len(deltas[-1]["removed"]) == 6
    again = nova("live", problem, plan, "--events", events, "--journal", journal, "--skip-seen")
    assert (again.exit_code, again.stdout) == (0, "")
    made = nova("replan", problem, plan, events, "-o", new, "--problem-output", changed, "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["events"] == len(EVENTS)
    assert nova("check", new, "-p", changed).exit_code == 0
    operators = {row["operator"] for row in json.loads(Path(new).read_text())["instances"]}
    assert operators == {
        f"more/j({a}*{b})" for a in ("s0", "s2", "s9") for b in ("s1", "s3")
    }  # fmt: skip
    assert nova("live", problem, plan, "--pin", "q/k").exit_code == 2
    text = nova("replan", problem, plan, events, "-o", new).stdout
    assert "operators added" in text and "operators removed" in text


def test_all_strategies_a_bound_and_a_front(nova: Any, files: tuple[str, str]) -> None:
    answer = json.loads(nova("compare", files[0], "--bound", "--json").stdout)
    assert set(answer["strategies"]) == set(names())
    least = answer["lower_bound"]
    for name, one in answer["strategies"].items():
        if "evaluation" not in one:  # found no room
            assert "joins of pairs" not in one["error"], name
            continue
        whole = name not in ("nova", "nova-paper")  # others neither move filters nor cut
        cost = one["evaluation"]["estimated"]["objectives"]["latency"]
        assert not whole or cost >= least * (1 - 1e-9), name
    shown = nova("compare", files[0], "--bound").stdout
    assert "no placement of whole operators has latency below" in shown
    front = json.loads(nova("pareto", files[0], "--steps", "2", "--json").stdout)["points"]
    assert min(one["latency"] for one in front if not one["strategy"]) >= least * (1 - 1e-9)
    assert front[-1]["strategy"] == "nova"


def test_a_translation_needs_readings_and_says_so_in_one_line(
    nova: Any, files: tuple[str, str], monkeypatch: Any
) -> None:
    problem, plan = files
    assert nova("plan", problem, "-o", plan, "--no-baselines").exit_code == 0
    monkeypatch.chdir(Path(plan).parent)
    for engine in ("flink", "storm"):
        refused = nova("translate", plan, "-p", problem, "--engine", engine, "-o", "out")
        assert refused.exit_code == 2
        assert "give their readings" in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1
