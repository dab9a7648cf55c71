"""Strategies' plans beside the other plans of their queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nova_core.errors import NovaError
from nova_research.costream.corpus import compare
from nova_research.costream.corpus.compare import compared, summary_table


def traces(
    monkeypatch: pytest.MonkeyPatch, rows: list[tuple[str, str, float | None, bool]]
) -> None:
    """Rows of query, strategy, latency and back-pressure, in place of a file."""
    made = [
        {"id": f"{number:03d}", "query": query, "structure": "two-way-agg", "repeat_of": None,
         "plan": json.dumps({"strategy": strategy}), "success": latency is not None,
         "back_pressure": behind, compare.METRIC: latency}
        for number, (query, strategy, latency, behind) in enumerate(rows)
    ]  # fmt: skip

    class Table:
        def to_pylist(self) -> list[dict[str, Any]]:
            return made

    monkeypatch.setattr(compare, "read_traces", lambda paths, columns: Table())


def test_speed_up_regret_and_other_strategies(monkeypatch: pytest.MonkeyPatch) -> None:
    traces(
        monkeypatch,
        [
            ("a", "candidate", 300, False),
            ("a", "candidate", 100, False),
            ("a", "costream", 110, False),
            ("a", "nova", 109, False),
            ("b", "candidate", None, False),
            ("b", "candidate", 100, True),
            ("b", "candidate", 200, False),
            ("b", "costream", 200, False),
            ("b", "nova", 250, True),
            ("d", "candidate", 400, False),
            ("d", "candidate", 100, False),
            ("d", "costream", 100, False),
            # Nothing works.
            ("c", "candidate", None, False),
            ("c", "costream", 1, False),
        ],
    )
    every, two_way, *nova = compared([Path("any")])
    assert (every.structure, two_way.structure) == ("all", "two-way")
    assert (every.strategy, every.queries, every.failed) == ("costream", 3, 0)
    # Of 300/110, infinity, and 4.
    assert every.speed_up == 4
    assert every.regret == 1
    assert every.no_worse == {"nova": 1.0}
    assert nova[0].failed == 1 and nova[0].no_worse == {"costream": 0.5}
    assert summary_table([every]).row_count == 1


def test_without_a_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    traces(monkeypatch, [("a", "candidate", 300, False)])
    with pytest.raises(NovaError, match="no trace of a strategy's plan"):
        compared([Path("any")])
