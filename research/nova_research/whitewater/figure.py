"""WhiteWater's Figures 6 to 8: how often searches find the best configuration, and how fast.

Small random queries are searched exhaustively as well (Fig. 6); on large ones every search is
compared with reactive tabu (Fig. 7) and timed (Fig. 8).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
import numpy as np
from msgspec import Meta

from nova_core.errors import NovaError
from nova_core.model.problem import Floats
from nova_research.figures.base import Figure, Run, Table, cell, listed
from nova_research.figures.kept_runs import KeptRuns
from nova_research.whitewater.random_queries import LARGE, SMALL, QueryShape, random_query
from nova_research.whitewater.search import METHODS, SearchParameters, optimize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

# Relative differences below this are rounding.
SAME = 1e-6
OPTIMUM = "exhaustive"
REFERENCE = "reactive-tabu"
TWO_PHASES = " 2-phase"
# Bounds of the histogram: how many times worse than the optimum.
WORSE = (1.0, 1.5, 2.0, 4.0, np.inf)


class WhitewaterParameters(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Parameters of the experiment; ``2-phase`` follows the names of searches in two phases.

    Attributes:
        small: number of queries of section 6.1, with seeds from 0 on.
        large: queries of section 6.2.
        small_shape: their size, as `nova_research.whitewater.random_queries.QueryShape`.
        large_shape: likewise; the paper does not say how many nodes there are.
        small_searches: run on small queries.
        large_searches: run on large queries.
    """

    small: Annotated[int, Meta(ge=1, description="Small queries, as in section 6.1")] = 100
    large: Annotated[int, Meta(ge=1, description="Large queries, as in section 6.2")] = 1000
    small_shape: QueryShape = SMALL
    large_shape: QueryShape = LARGE
    small_searches: tuple[str, ...] = (
        "exhaustive", "exhaustive 2-phase", "reactive-tabu", "annealing", "tabu", "greedy",
        "random",
    )  # fmt: skip
    large_searches: tuple[str, ...] = (
        "reactive-tabu", "reactive-tabu 2-phase", "tabu", "annealing", "greedy", "random",
    )  # fmt: skip

    def parts(self) -> dict[str, tuple[int, QueryShape, tuple[str, ...]]]:
        """Number, shape and searches of small and of large queries."""
        return {
            "small": (self.small, self.small_shape, self.small_searches),
            "large": (self.large, self.large_shape, self.large_searches),
        }


class SearchRun(msgspec.Struct, frozen=True):
    """One search of one query.

    Attributes:
        part: ``small`` or ``large``.
        query: its seed.
        search: the search's name.
        throughput: Q^p found; 0 or less where nothing feasible was found.
        time: ms of CPU.
        evaluations: configurations evaluated.
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
        relative_time: mean time relative to tabu's.
        published_time: the same in the paper, NaN where it does not say.
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
    ratio: float
    lowest: float
    infeasible: int
    time: float
    median_time: float
    evaluations: float
    relative_time: float
    published_time: float


# Histogram of Figure 7: throughput relative to reactive tabu's, from less than a tenth up.
EDGES = (0.0, 0.1, 0.5, 0.9, 1 - SAME, 1 + SAME, 1.1, 2.0, np.inf)
BINS = ("< 0.1", "to 0.5", "to 0.9", "to 1", "1", "to 1.1", "to 2", "more")


@dataclass(frozen=True)
class RatioRow:
    """Shares of large queries, %, by throughput relative to reactive tabu's; see `BINS`."""

    search: str
    share_0: float
    share_1: float
    share_2: float
    share_3: float
    share_4: float
    share_5: float
    share_6: float
    share_7: float


@dataclass(frozen=True)
class Result:
    """The figures' numbers.

    Attributes:
        small_queries: with a feasible optimum, which are those that count.
        large_queries: with a configuration that reactive tabu found feasible.
        small: Figure 6.
        large: Figures 7 and 8.
        ratios: the histogram of Figure 7.
        speedup: mean time of tabu relative to annealing's, on large queries; the paper has 23.
        annealing_to_tabu: mean ratio of annealing's throughput to tabu's, on large queries.
        annealing_at_least_tabu: share of large queries where it is no less, %.
    """

    small_queries: int
    large_queries: int
    small: list[SmallRow]
    large: list[LargeRow]
    ratios: list[RatioRow]
    speedup: float
    annealing_to_tabu: float
    annealing_at_least_tabu: float


# Share of small queries whose optimum is found, % (section 6.1).
PUBLISHED_OPTIMAL = {
    "reactive-tabu": 100.0,
    "annealing": 92.0,
    "tabu": 88.0,
    "greedy": 66.0,
    "exhaustive 2-phase": 66.0,
    "random": 4.0,
    "exhaustive": 100.0,
}
# Share of large queries with better, same and worse throughput than reactive tabu's, % (6.2).
PUBLISHED_LARGE = {
    "annealing": (6.2, 79.0, 12.8),
    "tabu": (6.0, 81.1, 12.9),
    "greedy": (np.nan, np.nan, 62.0),
    "reactive-tabu 2-phase": (7.5, 67.1, 25.4),
}
# Mean run time, relative to tabu's (section 6.3); annealing's is close to 200 ms.
PUBLISHED_TIME = {
    "tabu": 1.0,
    "reactive-tabu": 1.0,
    "reactive-tabu 2-phase": 1.05,
    "greedy": 0.7,
    "annealing": 1 / 23,
}
PUBLISHED_ANNEALING = 200.0


class Whitewater(Figure[WhitewaterParameters, Result]):
    """WhiteWater's searches: how often they find the best configuration, and how fast.

    Small random queries are searched exhaustively as well (its Fig. 6); on large ones searches are
    compared with reactive tabu (Fig. 7) and timed (Fig. 8). Finished searches in the output
    directory do not run again.
    """

    name = "whitewater"
    source = "WhiteWater, sections 6.1 to 6.3, Figures 6 to 8"
    Parameters = WhitewaterParameters
    published: ClassVar[Mapping[str, Any]] = {
        "optimal": PUBLISHED_OPTIMAL,
        "large": PUBLISHED_LARGE,
        "time": PUBLISHED_TIME,
    }
    quick: ClassVar = {"small": 30, "large": 20}

    def run(self, parameters: WhitewaterParameters, run: Run) -> Result:
        """Every search on every query, or those that are not finished."""
        parts = parameters.parts()
        for name, (_, _, searches) in parts.items():
            _require_searches(name, searches)
        everything = [
            (name, query, search)
            for name, (queries, _, searches) in parts.items()
            for query in range(queries)
            for search in searches
        ]
        same = msgspec.json.encode(msgspec.structs.replace(parameters, small=1, large=1))
        keeper = KeptRuns(run.kept and run.kept / "runs.jsonl", SearchRun, same)
        finished = {(one.part, one.query, one.search): one for one in keeper}
        runs = []
        for number, (name, query, search) in enumerate(everything):
            run.advance(number, len(everything))
            if (name, query, search) not in finished:
                shape = parts[name][1]
                if not any(one[2] == search for one in finished):
                    search_query(shape, 0, search)  # compiles, which is not timed
                finished[name, query, search] = search_run = measured(name, shape, query, search)
                keeper.add(search_run)
            runs.append(finished[name, query, search])
        run.advance(len(everything), len(everything))
        return summary(parameters, runs)

    def tables(self, result: Result) -> list[Table]:
        """Figure 6, and Figures 7 and 8."""
        small = listed(
            "whitewater-small",
            f"{result.small_queries} small queries, by how many times worse than the optimum, %",
            result.small,
            {
                "search": "search",
                ">optimal": "optimal",
                ">published": "published",
                ">to 1.5 x": "up_to_1_5",
                ">to 2 x": "up_to_2",
                ">to 4 x": "up_to_4",
                ">more": "worse",
                ">worst": ("worst", 2),
                ">ms of CPU": ("time", 2),
            },
            "worst: unlimited where nothing feasible was found",
        )
        large = listed(
            "whitewater-large",
            f"{result.large_queries} large queries, against reactive tabu, % of queries",
            result.large,
            {
                "search": "search",
                ">better": "better",
                ">same": "same",
                ">worse": "worse",
                ">published": (_published, 0),
                ">ratio, mean": ("ratio", 3),
                ">5th percentile": ("lowest", 3),
                ">infeasible": "infeasible",
                ">ms of CPU": ("time", 2),
                ">of tabu's": ("relative_time", 3),
                ">published ": ("published_time", 3),
                ">evaluations": ("evaluations", 0),
            },
            "published: better, same, worse; and time relative to tabu's",
        )
        ratios = listed(
            "whitewater-ratios",
            "Large queries by throughput relative to reactive tabu's (the histogram of Fig. 7), %",
            result.ratios,
            {"search": "search", **{f">{h}": (f"share_{i}", 1) for i, h in enumerate(BINS)}},
        )
        return [small, large, ratios]

    def words(self, result: Result) -> list[str]:
        """Annealing against tabu, beside the published figures."""
        annealing = next(row for row in result.large if row.search == "annealing")
        return [
            f"annealing is {result.speedup:.0f} times as fast as tabu (published: 23) with "
            f"{result.annealing_to_tabu:.3f} of its throughput on average, and no less in "
            f"{result.annealing_at_least_tabu:.0f} % of the queries; it takes "
            f"{annealing.time:.1f} ms (published: {PUBLISHED_ANNEALING:.0f} ms)"
        ]

    def draw(self, result: Result) -> Drawing:
        """Figures 6 to 8 side by side."""
        from matplotlib.figure import Figure as Drawing

        figure = Drawing(figsize=(12.0, 4.2))
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
        bars = times.barh(
            [row.search for row in shown], [row.time for row in shown], color="#0072B2"
        )
        times.bar_label(bars, fmt="%.1f", fontsize=7, padding=2)
        times.set_xscale("log")
        times.axvline(PUBLISHED_ANNEALING, color="#D55E00", linestyle=":")
        times.set_xlabel("mean ms of CPU (dotted: annealing, published)")
        for axes in (small, large, times):
            axes.invert_yaxis()
        return figure


def _published(row: LargeRow) -> str:
    if row.search not in PUBLISHED_LARGE:
        return "-"
    return ", ".join(cell(value) for value in PUBLISHED_LARGE[row.search])


def _require_searches(name: str, searches: Sequence[str]) -> None:
    known = ", ".join(METHODS)
    for search in searches:
        if search.removesuffix(TWO_PHASES) not in METHODS:
            raise NovaError(
                f"{name}_searches: unknown search {search!r}; expected one of {known}, "
                f"or one with{TWO_PHASES!r} after it"
            )
    for search in [OPTIMUM] if name == "small" else [REFERENCE, "tabu", "annealing"]:
        if search not in searches:
            raise NovaError(f"{name}_searches: {search} is missing; others are compared with it")


def search_query(shape: QueryShape, query: int, search: str) -> tuple[float, int]:
    """Throughput found, and number of configurations evaluated."""
    method = search.removesuffix(TWO_PHASES)
    parameters = SearchParameters(phases=1 if method == search else 2, seed=query)
    best = optimize(*random_query(shape, query), method, parameters)
    return best.value, best.evaluations


def measured(part: str, shape: QueryShape, query: int, search: str) -> SearchRun:
    """One search, timed; includes creating the query, which takes less than a millisecond."""
    start = time.process_time()
    value, evaluations = search_query(shape, query, search)
    return SearchRun(part, query, search, value, 1000 * (time.process_time() - start), evaluations)


def summary(parameters: WhitewaterParameters, runs: Sequence[SearchRun]) -> Result:
    """The figures' numbers from single runs."""
    tables = {
        part: {
            search: [one for one in runs if (one.part, one.search) == (part, search)]
            for search in searches
        }
        for part, (_, _, searches) in parameters.parts().items()
    }
    optimum = _values(tables["small"][OPTIMUM])
    reference = _values(tables["large"][REFERENCE])
    tabu, annealing = (tables["large"][name] for name in ("tabu", "annealing"))
    ratio = _ratio(_values(annealing), _values(tabu))
    return Result(
        small_queries=int((optimum > 0).sum()),
        large_queries=int((reference > 0).sum()),
        small=[_small(name, of_search, optimum) for name, of_search in tables["small"].items()],
        large=[
            _large(name, of_search, reference, _mean_time(tabu))
            for name, of_search in tables["large"].items()
        ],
        ratios=[
            _histogram(name, _ratio(_values(of_search), reference))
            for name, of_search in tables["large"].items()
        ],
        speedup=_mean_time(tabu) / _mean_time(annealing),
        annealing_to_tabu=float(ratio.mean()),
        annealing_at_least_tabu=100 * float((ratio >= 1 - SAME).mean()),
    )


def _values(runs: Sequence[SearchRun]) -> Floats:
    return np.array([max(one.throughput, 0.0) for one in runs])


def _ratio(
    values: Floats,
    reference: Floats,
) -> Floats:
    """Ratios where the reference is feasible."""
    feasible = reference > 0
    return values[feasible] / reference[feasible]


def _mean_time(runs: Sequence[SearchRun]) -> float:
    return float(np.mean([one.time for one in runs]))


def _small(search: str, runs: Sequence[SearchRun], optimum: Floats) -> SmallRow:
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


def _histogram(search: str, ratio: Floats) -> RatioRow:
    shares = 100 * np.histogram(ratio, EDGES)[0] / len(ratio)
    return RatioRow(search, *shares.tolist())


def _large(search: str, runs: Sequence[SearchRun], reference: Floats, of_tabu: float) -> LargeRow:
    ratio = _ratio(_values(runs), reference)
    return LargeRow(
        search,
        better=100 * float((ratio > 1 + SAME).mean()),
        same=100 * float((np.abs(ratio - 1) <= SAME).mean()),
        worse=100 * float((ratio < 1 - SAME).mean()),
        ratio=float(ratio.mean()),
        lowest=float(np.percentile(ratio, 5)),
        infeasible=int((_values(runs) <= 0).sum()),
        time=_mean_time(runs),
        median_time=float(np.median([one.time for one in runs])),
        evaluations=float(np.mean([one.evaluations for one in runs])),
        relative_time=_mean_time(runs) / of_tabu,
        published_time=PUBLISHED_TIME.get(search, np.nan),
    )


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
