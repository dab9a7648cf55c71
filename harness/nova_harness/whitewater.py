"""WhiteWater's Figures 6 to 8: how often searches find the best configuration, and how fast.

Small random queries are searched exhaustively as well (Fig. 6); on large ones every search is
compared with reactive tabu (Fig. 7) and timed (Fig. 8).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from nova_core.errors import NovaError
from nova_core.model.problem import Floats
from nova_core.strategies.whitewater import METHODS, SearchParameters, optimize
from nova_harness.kept_runs import KeptRuns
from nova_workloads.operator_queries import QueryShape, random_query

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Relative differences below this are rounding.
SAME = 1e-6
OPTIMUM = "exhaustive"
REFERENCE = "reactive-tabu"
TWO_PHASES = " 2-phase"
# How much worse a found configuration is than the optimum, in the histogram.
WORSE = (1.0, 1.5, 2.0, 4.0, np.inf)


class Part(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Queries of one size, and what searches them.

    Attributes:
        queries: how many, seeds 0 and up.
        sources: fewest and most.
        operators: most, sources included.
        nodes: of the network.
        options: nodes each operator may run on.
        others: most operators that are no sources; None for what ``operators`` leaves.
        searches: names, ``2-phase`` after those in two phases.
    """

    queries: int
    sources: tuple[int, int]
    operators: int
    nodes: int
    options: int
    others: int | None = None
    searches: list[str]

    def shape(self) -> QueryShape:
        """What the generator takes."""
        return QueryShape(self.sources, self.operators, self.nodes, self.options, self.others)


class Whitewater(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Parameters of the experiment, see ``harness/experiments/whitewater.yaml``."""

    experiment: int
    small: Part
    large: Part


class Run(msgspec.Struct, frozen=True):
    """One search of one query.

    Attributes:
        part: ``small`` or ``large``.
        query: its seed.
        search: the search's name.
        throughput: Q^p found; 0 or less where nothing feasible was.
        time: ms of CPU.
        evaluations: configurations looked at.
    """

    part: str
    query: int
    search: str
    throughput: float
    time: float
    evaluations: int


@dataclass(frozen=True)
class SmallRow:
    """A search on queries whose optimum is known (Fig. 6).

    Attributes:
        search: its name.
        optimal: share of queries in which it finds the optimum, %.
        published: the same in the paper, NaN where it does not say.
        up_to_1_5: share at most 1.5 times worse, but not optimal, %.
        up_to_2: at most 2 times.
        up_to_4: at most 4 times.
        worse: more than that, or nothing feasible.
        worst: how many times worse in the worst query; inf for nothing feasible.
        time: mean, ms of CPU.
    """

    search: str
    optimal: float
    published: float
    up_to_1_5: float
    up_to_2: float
    up_to_4: float
    worse: float
    worst: float
    time: float


@dataclass(frozen=True)
class LargeRow:
    """A search against reactive tabu (Fig. 7), and its time (Fig. 8).

    Attributes:
        search: its name.
        better: share of queries with a greater throughput, %.
        same: with the same.
        worse: with a smaller one.
        published_worse: the same in the paper, NaN where it does not say.
        ratio: mean of the ratio of throughputs.
        lowest: 5th percentile of the ratio.
        infeasible: queries without a feasible configuration found.
        time: mean, ms of CPU.
        median_time: median, ms of CPU.
        evaluations: mean.
    """

    search: str
    better: float
    same: float
    worse: float
    published_worse: float
    ratio: float
    lowest: float
    infeasible: int
    time: float
    median_time: float
    evaluations: float


@dataclass(frozen=True)
class Result:
    """The figures' numbers.

    Attributes:
        small_queries: with a feasible optimum, which are those that count.
        large_queries: with a configuration that reactive tabu found feasible.
        small: Figure 6.
        large: Figures 7 and 8.
        speedup: mean time of tabu relative to annealing's, on large queries; the paper has 23.
        annealing_to_tabu: mean ratio of annealing's throughput to tabu's, on large queries.
        annealing_at_least_tabu: share of large queries where it is no less, %.
        published_annealing: ms, in the paper.
    """

    small_queries: int
    large_queries: int
    small: list[SmallRow]
    large: list[LargeRow]
    speedup: float
    annealing_to_tabu: float
    annealing_at_least_tabu: float
    published_annealing: float = 200.0


PUBLISHED_OPTIMAL = {
    "reactive-tabu": 100.0,
    "annealing": 92.0,
    "tabu": 88.0,
    "greedy": 66.0,
    "exhaustive 2-phase": 66.0,
    "random": 4.0,
    "exhaustive": 100.0,
}
PUBLISHED_WORSE = {
    "annealing": 12.8,
    "tabu": 12.9,
    "greedy": 62.0,
    "reactive-tabu 2-phase": 25.4,
}


def run(
    asked: Whitewater,
    kept: Path | None = None,
    advance: Callable[[int, int], None] = lambda *_: None,
) -> Result:
    """Run the experiment, or the rest of it.

    Args:
        asked: its parameters.
        kept: file of runs done, one JSON object a line after one of parameters: those are not done
            again, new ones are added; None keeps none.
        advance: called with runs done and runs in all.

    Raises:
        NovaError: for an unknown search, or kept runs of other parameters.
    """
    parts = {"small": asked.small, "large": asked.large}
    for name, part in parts.items():
        part.shape()
        _require_searches(name, part)
    everything = [
        (name, query, search)
        for name, part in parts.items()
        for query in range(part.queries)
        for search in part.searches
    ]
    same = [msgspec.structs.replace(p, queries=1) for p in (asked.small, asked.large)]
    keeper = KeptRuns(kept, Run, msgspec.json.encode(same))
    done = {(one.part, one.query, one.search): one for one in keeper}
    runs = []
    for number, (name, query, search) in enumerate(everything):
        advance(number, len(everything))
        if (name, query, search) not in done:
            if not any(one[2] == search for one in done):
                search_query(parts[name].shape(), 0, search)  # compiles, so that times do not tell
            done[name, query, search] = made = measured(name, parts[name].shape(), query, search)
            keeper.add(made)
        runs.append(done[name, query, search])
    advance(len(everything), len(everything))
    return summary(asked, runs)


def _require_searches(name: str, part: Part) -> None:
    known = ", ".join(METHODS)
    for search in part.searches:
        if search.removesuffix(TWO_PHASES) not in METHODS:
            raise NovaError(
                f"{name}.searches: unknown search {search!r}; expected one of {known}, "
                f"or one with{TWO_PHASES!r} after it"
            )
    needed = [OPTIMUM] if name == "small" else [REFERENCE, "tabu", "annealing"]
    for search in needed:
        if search not in part.searches:
            raise NovaError(f"{name}.searches: {search} is missing; others are compared with it")
    if part.queries < 1:
        raise NovaError(f"{name}.queries is {part.queries}; expected a whole number >= 1")


def search_query(shape: QueryShape, query: int, search: str) -> tuple[float, int]:
    """Throughput found and configurations looked at."""
    method = search.removesuffix(TWO_PHASES)
    parameters = SearchParameters(phases=1 if method == search else 2, seed=query)
    found = optimize(*random_query(shape, query), method, parameters)
    return found.value, found.evaluations


def measured(part: str, shape: QueryShape, query: int, search: str) -> Run:
    """One search, timed: making the query included, which takes less than a millisecond."""
    start = time.process_time()
    value, evaluations = search_query(shape, query, search)
    return Run(part, query, search, value, 1000 * (time.process_time() - start), evaluations)


def summary(asked: Whitewater, runs: Sequence[Run]) -> Result:
    """The figures' numbers from single runs."""
    tables = {
        part: {
            search: [one for one in runs if (one.part, one.search) == (part, search)]
            for search in getattr(asked, part).searches
        }
        for part in ("small", "large")
    }
    optimum = _values(tables["small"][OPTIMUM])
    reference = _values(tables["large"][REFERENCE])
    tabu, annealing = (tables["large"][name] for name in ("tabu", "annealing"))
    ratio = _ratio(_values(annealing), _values(tabu))
    return Result(
        small_queries=int((optimum > 0).sum()),
        large_queries=int((reference > 0).sum()),
        small=[_small(name, found, optimum) for name, found in tables["small"].items()],
        large=[_large(name, found, reference) for name, found in tables["large"].items()],
        speedup=_mean_time(tabu) / _mean_time(annealing),
        annealing_to_tabu=float(ratio.mean()),
        annealing_at_least_tabu=100 * float((ratio >= 1 - SAME).mean()),
    )


def _values(runs: Sequence[Run]) -> Floats:
    return np.array([max(one.throughput, 0.0) for one in runs])


def _ratio(
    values: Floats,
    reference: Floats,
) -> Floats:
    """Ratios where the reference is feasible."""
    feasible = reference > 0
    return values[feasible] / reference[feasible]


def _mean_time(runs: Sequence[Run]) -> float:
    return float(np.mean([one.time for one in runs]))


def _small(search: str, runs: Sequence[Run], optimum: Floats) -> SmallRow:
    with np.errstate(divide="ignore"):
        worse = 1 / _ratio(_values(runs), optimum)
    optimal = worse <= 1 + SAME
    to_1_5, to_2, to_4, more = (
        100 * float(((worse > low) & (worse <= high) & ~optimal).mean())
        for low, high in pairwise(WORSE)
    )
    return SmallRow(
        search,
        optimal=100 * float(optimal.mean()),
        published=PUBLISHED_OPTIMAL.get(search, np.nan),
        up_to_1_5=to_1_5,
        up_to_2=to_2,
        up_to_4=to_4,
        worse=more,
        worst=float(worse.max()),
        time=_mean_time(runs),
    )


def _large(search: str, runs: Sequence[Run], reference: Floats) -> LargeRow:
    ratio = _ratio(_values(runs), reference)
    return LargeRow(
        search,
        better=100 * float((ratio > 1 + SAME).mean()),
        same=100 * float((np.abs(ratio - 1) <= SAME).mean()),
        worse=100 * float((ratio < 1 - SAME).mean()),
        published_worse=PUBLISHED_WORSE.get(search, np.nan),
        ratio=float(ratio.mean()),
        lowest=float(np.percentile(ratio, 5)),
        infeasible=int((_values(runs) <= 0).sum()),
        time=_mean_time(runs),
        median_time=float(np.median([one.time for one in runs])),
        evaluations=float(np.mean([one.evaluations for one in runs])),
    )


def draw(result: Result) -> Figure:
    """Figures 6 to 8 side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 4.2), layout="constrained", facecolor="white")
    small, large, times = figure.subplots(1, 3)
    names = ("optimal", "up_to_1_5", "up_to_2", "up_to_4", "worse")
    labels = ("optimal", "to 1.5 x worse", "to 2 x", "to 4 x", "worse still")
    colours = ("#009E73", "#56B4E9", "#F0E442", "#E69F00", "#D55E00")
    _stack(small, result.small, names, labels, colours)
    small.set_xlabel(f"% of {result.small_queries} small queries")
    _stack(
        large,
        [row for row in result.large if row.search != REFERENCE],
        ("better", "same", "worse"),
        ("better than reactive tabu", "same", "worse"),
        ("#009E73", "#56B4E9", "#D55E00"),
    )
    large.set_xlabel(f"% of {result.large_queries} large queries")
    shown = [row for row in result.large if row.search != "random"]
    bars = times.barh([row.search for row in shown], [row.time for row in shown], color="#0072B2")
    times.bar_label(bars, fmt="%.1f", fontsize=7, padding=2)
    times.set_xscale("log")
    times.axvline(result.published_annealing, color="#D55E00", linestyle=":")
    times.set_xlabel("mean ms of CPU (dotted: annealing, published)")
    for axes in (small, large, times):
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _stack(
    axes: Axes,
    rows: Sequence[SmallRow] | Sequence[LargeRow],
    names: Sequence[str],
    labels: Sequence[str],
    colours: Sequence[str],
) -> None:
    """Shares as stacked bars, one per search."""
    left = np.zeros(len(rows))
    for name, label, colour in zip(names, labels, colours, strict=True):
        width = np.array([asdict(row)[name] for row in rows])
        axes.barh([row.search for row in rows], width, left=left, color=colour, label=label)
        left += width
    axes.legend(frameon=False, fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
