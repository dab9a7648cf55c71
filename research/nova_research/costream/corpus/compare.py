"""Compare strategies' plans with the other plans of the same queries, on the same hosts."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core import console
from nova_core.errors import NovaError
from nova_research.costream.training.traces import read_traces

if TYPE_CHECKING:
    from rich.table import Table

CANDIDATE = "candidate"
METRIC = "processing_latency_ms"
COLUMNS = ("id", "query", "structure", "plan", "repeat_of", "success", "back_pressure", METRIC)
ALIKE = 1.02
"""Two runs of one plan differ by less in 95 of 100 cases (docs/corpus.md): a plan is no worse than
another if it takes at most this times as long."""


@dataclass(frozen=True)
class Comparison:
    """A strategy's plans for one type of query.

    Attributes:
        strategy: its name.
        structure: of the queries, or ``all``.
        queries: how many.
        failed: queries whose plan by the strategy had no result, or back-pressure.
        speed_up: median of the first plan's processing latency over the strategy's.
        regret: median of the strategy's over the best plan's.
        no_worse: by name of other strategies, share of queries where this one takes no longer.
    """

    strategy: str
    structure: str
    queries: int
    failed: int
    speed_up: float
    regret: float
    no_worse: dict[str, float]


@dataclass(frozen=True)
class _Query:
    structure: str
    candidates: list[float]
    strategies: dict[str, float]


def compared(paths: Sequence[Path]) -> list[Comparison]:
    """Compare the plans of every query.

    The latency of a plan without results, or with back-pressure, is infinite. Queries without a
    finite latency are left out.

    Args:
        paths: files or directories of traces.

    Raises:
        NovaError: where no query has a strategy's plan.
    """
    queries = _queries(read_traces(paths, COLUMNS).to_pylist())
    names = sorted({name for one in queries for name in one.strategies})
    if not names:
        raise NovaError("no trace of a strategy's plan: `nova corpus run --strategy` makes some")
    comparisons = []
    for name in names:
        for structure in ["all", *sorted({one.structure for one in queries})]:
            mine = [
                one
                for one in queries
                if name in one.strategies and structure in ("all", one.structure)
            ]
            if mine:
                comparisons.append(_comparison(name, structure, mine, names))
    return comparisons


def _queries(rows: Sequence[dict[str, Any]]) -> list[_Query]:
    of_query: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["id"]):
        if row["repeat_of"] is None:
            of_query[row["query"]].append(row)
    queries = []
    for mine in of_query.values():
        one = _Query(mine[0]["structure"].removesuffix("-agg"), [], {})
        for row in mine:
            good = row["success"] and not row["back_pressure"]
            latency = float(row[METRIC]) if good and row[METRIC] is not None else math.inf
            strategy = str(json.loads(row["plan"])["strategy"])
            if strategy == CANDIDATE:
                one.candidates.append(latency)
            else:
                one.strategies[strategy] = latency
        if one.candidates and math.isfinite(min(one.candidates)):
            queries.append(one)
    return queries


def _comparison(
    name: str, structure: str, queries: Sequence[_Query], names: Sequence[str]
) -> Comparison:
    own = np.array([one.strategies[name] for one in queries])
    first = np.array([one.candidates[0] for one in queries])
    best = np.array([min(one.candidates) for one in queries])
    # No speed-up where both are infinite.
    speed_up = [1.0 if a == b else a / b for a, b in zip(first.tolist(), own.tolist(), strict=True)]
    no_worse = {}
    for other in names:
        if other != name:
            both = [one for one in queries if other in one.strategies]
            good = [one.strategies[name] <= ALIKE * one.strategies[other] for one in both]
            no_worse[other] = float(np.mean(good)) if good else math.nan
    return Comparison(
        name,
        structure,
        len(queries),
        int(np.isinf(own).sum()),
        float(np.median(speed_up)),
        float(np.median(own / best)),
        no_worse,
    )


def summary_table(comparisons: Sequence[Comparison]) -> Table:
    """A row for each strategy and type of query."""
    table = console.table(
        "Processing latency of strategies' plans",
        ["strategy", "queries", ">number", ">failed", ">speed-up", ">÷ best", ">no worse than"],
        caption="speed-up: of the first plan's over the strategy's, median; ÷ best: over the best "
        "of all plans that are no strategy's, median",
    )
    for one in comparisons:
        others = ", ".join(f"{name} {share:.0%}" for name, share in one.no_worse.items())
        table.add_row(
            one.strategy,
            one.structure,
            str(one.queries),
            str(one.failed),
            f"{one.speed_up:.2f}",
            f"{one.regret:.2f}",
            others or "-",
        )
    return table
