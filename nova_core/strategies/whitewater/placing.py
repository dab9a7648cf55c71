"""WhiteWater's searches as strategies: joins of a problem on nodes, by physical moves alone.

Every pair of the join matrix is a query of one join, which there is nothing to swap with. A tuple
received costs one unit of a node's capacity; budgets of links count tuples. So the profiled input
throughput tells by what factor all sources can speed up until a node or a link is full; below 1
something is overloaded.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from nova_core.model.plan import Plan
from nova_core.model.problem import Ints, Links, Problem
from nova_core.strategies.base import WHOLE, Strategy, able_workers, check_range
from nova_core.strategies.whitewater.query import Network, ProfiledOperator, ProfiledQuery

# The paper's parameters are for queries of up to so many joins; more joins get more iterations ...
JOINS = 25
# ... as long as a search looks at no more neighbours than this, or in annealing makes no more
# steps than leave it so many joins to evaluate.
MOST_EVALUATIONS = 20_000_000
MOST_ANNEALED = 200_000_000


@dataclass(frozen=True)
class PlacementParameters:
    """What all searches have in common.

    Attributes:
        options: nodes each join may run on: the workers nearest to the point that minimizes its
            latencies, of those with capacity that meet its requirement.
        seed: of the first placement and of everything random.
    """

    options: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        from nova_core.strategies.whitewater.search import SearchParameters

        check_range("whitewater:", self, "options", 1, expected=WHOLE)
        SearchParameters(**self.of_search())

    def of_search(self) -> dict[str, Any]:
        """Those that are the search's."""
        return {name: value for name, value in asdict(self).items() if name != "options"}


@dataclass(frozen=True)
class GreedyParameters(PlacementParameters):
    """Parameters of the greedy search.

    Attributes:
        iterations: most moves; with more than 25 joins more in proportion. The paper has 1,000,
            for queries whose order changes as well.
    """

    iterations: int = 200


@dataclass(frozen=True)
class TabuParameters(GreedyParameters):
    """Parameters of tabu search.

    Attributes:
        tabu_list: iterations for which a move is not undone.
    """

    tabu_list: int = 1000


@dataclass(frozen=True)
class ReactiveTabuParameters(GreedyParameters):
    """Parameters of reactive tabu search.

    Attributes:
        longest_cycle: repetitions after more iterations than this are no cycle.
        increase: factor of the tabu list's length when a placement repeats.
        decrease: its factor when none has for a while.
    """

    longest_cycle: int = 50
    increase: float = 1.1
    decrease: float = 0.9


@dataclass(frozen=True)
class AnnealingParameters(PlacementParameters):
    """Parameters of simulated annealing.

    Attributes:
        temperatures: how many, each half of the one before.
        temperature: the first, as a share of the current throughput.
        steps: at each temperature; with more than 25 joins more in proportion.
    """

    temperatures: int = 4
    temperature: float = 0.2
    steps: int = 400


class _Searching(Strategy):
    """What the strategies share."""

    ignores = ("capacity", "minimum-capacity", "link")
    Parameters: ClassVar[type[PlacementParameters]]
    parameters: PlacementParameters

    def place(self, problem: Problem) -> Plan:
        """Place; the plan's note ``throughput`` is Q^p, where it is finite.

        Raises:
            InfeasibleError: when no node may host some join.
        """
        from nova_core.strategies.whitewater.search import SearchParameters, optimize

        options, method = self.parameters.options, self.name.removeprefix("whitewater-")
        hosts = host_options(problem, options)
        used, network, query = pair_queries(problem, hosts)
        settings = scaled(self.parameters.of_search(), len(hosts), options)
        found = optimize(query, network, method, SearchParameters(alpha=1.0, **settings))
        notes: dict[str, float] = {"evaluations": found.evaluations}
        if np.isfinite(found.value):
            notes["throughput"] = found.value
        return self.whole_plan(problem, used[list(found.nodes[2::4])], notes=notes)


class Greedy(_Searching):
    """Move the join that gains most throughput, as long as one does."""

    name = "whitewater-greedy"
    Parameters = GreedyParameters


class Tabu(_Searching):
    """Make the best move that undoes no recent one, also for the worse; keep the best placement."""

    name = "whitewater-tabu"
    Parameters = TabuParameters


class ReactiveTabu(_Searching):
    """Tabu search whose list grows when placements repeat, and that leaves where they often do."""

    name = "whitewater-reactive-tabu"
    Parameters = ReactiveTabuParameters


class Annealing(_Searching):
    """Move random joins, for the worse ever more seldom; keep the best placement."""

    name = "whitewater-annealing"
    Parameters = AnnealingParameters


def scaled(settings: dict[str, Any], joins: int, options: int) -> dict[str, Any]:
    """Settings of a search with as many iterations as so many joins need, within bounds."""
    more = max(1, joins // JOINS)
    most = {
        "iterations": MOST_EVALUATIONS // (joins * options),
        "steps": MOST_ANNEALED // (joins * settings.get("temperatures", 1)),
    }
    return {
        name: max(1, min(value * more, most[name])) if name in most else value
        for name, value in settings.items()
    }


def host_options(problem: Problem, options: int) -> list[Ints]:
    """Nodes that each pair's join may run on.

    Raises:
        InfeasibleError: when there is none for some pair.
    """
    from scipy.spatial import cKDTree

    from nova_core.model.objectives import leg_weights
    from nova_core.placement.geometric_median import geometric_median, pair_anchors

    points = geometric_median(pair_anchors(problem), leg_weights(problem, "latency"))
    found: dict[int, Ints] = {}
    for pairs, fit in able_workers(problem, "whitewater"):
        able = fit[problem.nodes.capacity[fit] > 0]
        hosts = able if len(able) else fit
        count = min(options, len(hosts))
        _, near = cKDTree(problem.nodes.position[hosts]).query(points[pairs], k=count)
        found |= zip(pairs.tolist(), hosts[near].reshape(-1, count), strict=True)
    return [found[pair] for pair in range(len(found))]


def pair_queries(problem: Problem, hosts: list[Ints]) -> tuple[Ints, Network, ProfiledQuery]:
    """Pairs as WhiteWater's queries on the nodes they concern.

    Returns:
        The nodes (k,), as the problem numbers them; a network of these; and a query of four
        operators per pair: left source, right source, join and sink.
    """
    ends = (problem.left_node, problem.right_node, problem.sink_node)
    used = np.unique(np.concatenate([*ends, *hosts]))
    number = np.full(len(problem.nodes), -1)
    number[used] = np.arange(len(used))
    rates = (problem.left_rate, problem.right_rate, problem.matrix.output_rate)
    nodes = np.stack([number[end] for end in ends], axis=1).tolist()
    operators: list[ProfiledOperator] = []
    for pair, ((left, right, output), at) in enumerate(
        zip(np.stack(rates, axis=1).tolist(), nodes, strict=True)
    ):
        first, name = len(operators), problem.pair_name(pair)
        operators += [
            ProfiledOperator(f"{name} left", "source", hosts=(at[0],), rate=left),
            ProfiledOperator(f"{name} right", "source", hosts=(at[1],), rate=right),
            ProfiledOperator(
                name,
                "join",
                (first, first + 1),
                tuple(number[hosts[pair]].tolist()),
                selectivity=output / (2 * (left * right)),
                cost=1.0,
                window=1.0,
            ),
            ProfiledOperator(f"{name} sink", "sink", (first + 2,), (at[2],)),
        ]
    links = problem.links
    within = (number[links.source] >= 0) & (number[links.target] >= 0)
    source, target = number[links.source[within]], number[links.target[within]]
    network = Network(
        speed=problem.nodes.capacity[used], links=Links(source, target, links.budget[within])
    )
    return used, network, ProfiledQuery(operators)
