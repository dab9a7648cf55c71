"""`nova query`: plan, check, explain and compare, on a topology without joins of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str, str]:
    topology = {
        "nova": 1,
        "nodes": [{"id": f"n{i}", "position": [40.0 * i, i * i], "capacity": 60} for i in range(5)],
        "sources": [
            {"id": f"s{i}", "node": f"n{i}", "stream": "ab"[i % 2], "rate": 10 + i}
            for i in range(4)
        ],
    }
    queries = {
        "nova_queries": 1,
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
    for name, content in (("topology", topology), ("queries", queries)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
    places = (tmp_path / name for name in ("topology.yaml", "queries.yaml", "plan.json"))
    return tuple(str(place) for place in places)  # type: ignore[return-value]


def test_a_plan_is_made_checked_and_explained(nova: Any, files: tuple[str, str, str]) -> None:
    topology, queries, plan = files
    made = nova("query", "plan", topology, queries, "-o", plan)
    assert made.exit_code == 0 and "The plan keeps all 8 constraints." in made.stdout
    asked = ("-p", topology, "-q", queries)
    assert json.loads(nova("query", "check", plan, *asked, "--json").stdout)["holds"]
    told = json.loads(nova("query", "explain", plan, "q", *asked, "--json").stdout)
    assert told["latency"] > 0 and {one["to"] for one in told["links"]} >= {"q/sink"}
    wrong = nova("query", "explain", plan, "p", *asked)
    assert wrong.exit_code == 2 and "unknown query 'p'" in wrong.stderr
    document = json.loads(Path(plan).read_text())
    document["instances"][0]["node"] = "n3" if document["instances"][0]["node"] != "n3" else "n2"
    Path(plan).write_text(json.dumps(document))
    refused = nova("query", "check", plan, *asked)
    assert refused.exit_code == 2 and "do not follow" in refused.stderr


def test_nova_costs_no_more_than_what_it_is_compared_with(
    nova: Any, files: tuple[str, str, str]
) -> None:
    answer = nova("query", "compare", *files[:2], "--objective", "network-usage", "--json")
    found = json.loads(answer.stdout)["strategies"]
    assert set(found) == {"nova", "sink", "source", "sbon-relaxation"}
    assert found["nova"]["overloaded"] == 0
    assert found["nova"]["objective"] <= min(one["objective"] for one in found.values())
