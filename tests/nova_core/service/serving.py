"""A small problem, and requests that tests of the service share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.testclient import TestClient

LIMIT = 20_000
PROBLEM: dict[str, Any] = {
    "nova": 1,
    "name": "field",
    "nodes": [
        {"id": "thermometer", "capacity": 5, "position": [-60, 60]},
        {"id": "hygrometer", "capacity": 5, "position": [-55, 40]},
        {"id": "A", "capacity": 55, "position": [-32, 38]},
        {"id": "B", "capacity": 60, "position": [-24, 34]},
        {"id": "sink", "capacity": 100, "position": [0, -10], "worker": False},
    ],
    "sources": [
        {"id": "t1", "node": "thermometer", "stream": "T", "rate": 25, "key": "north"},
        {"id": "h1", "node": "hygrometer", "stream": "H", "rate": 25, "key": "north"},
    ],
    "query": {
        "operators": [
            {"id": "climate", "left": "T", "right": "H", "sink": "sink", "selectivity": 0.2}
        ]
    },
}

Service = Callable[..., TestClient]


def begin(client: TestClient, name: str = "field", **more: Any) -> None:
    problem = client.post("/problems", json=PROBLEM)
    assert problem.status_code in (200, 201), problem.text
    request = {"name": name, "problem": problem.json()["id"], **more}
    begun = client.post("/placements", json=request)
    assert begun.status_code == 201, begun.text


def rate(value: float, source: str = "t1") -> dict[str, Any]:
    return {"event": "change-rate", "source": source, "rate": value}
