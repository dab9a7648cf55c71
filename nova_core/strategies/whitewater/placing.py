"""WhiteWater's searches as strategies: joins of a problem on nodes, by physical moves alone.

Every pair of the join matrix is a query of one join, which there is nothing to swap with. A tuple
received costs one unit of a node's capacity; budgets of links count tuples. So the profiled input
throughput tells by what factor all sources can speed up until a node or a link is full; below 1
something is overloaded.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.model.operator_graph import OperatorGraph
from nova_core.model.plan import Instances, Partitions, Plan
from nova_core.model.problem import Floats, Ints, Links, Problem
from nova_core.strategies.base import parameter_dict
from nova_core.strategies.whitewater.query import Network, Query, QueryOperator

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
        from nova_core.strategies.whitewater.search import Parameters

        if self.options < 1:
            raise ProblemError(
                f"whitewater: options is {self.options}; expected a whole number >= 1"
            )
        Parameters(**self.of_search())

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


class _Search:
    """What the strategies share."""

    name: ClassVar[str]
    method: ClassVar[str]
    Parameters: ClassVar[type[PlacementParameters]]

    def __init__(self, parameters: PlacementParameters | None = None) -> None:
        self.parameters = parameters or self.Parameters()

    def place(self, problem: Problem) -> Plan:
        """Place; the plan's note ``throughput`` is Q^p, where it is finite.

        Raises:
            InfeasibleError: when no node may host some join.
        """
        from nova_core.strategies.whitewater.search import Parameters, optimize

        hosts = host_options(problem, self.parameters.options)
        used, network, query = pair_queries(problem, hosts)
        settings = scaled(self.parameters.of_search(), len(hosts), self.parameters.options)
        found = optimize(query, network, self.method, Parameters(alpha=1.0, **settings))
        notes: dict[str, float] = {"evaluations": found.evaluations}
        if np.isfinite(found.value):
            notes["throughput"] = found.value
        return Plan(
            problem=problem,
            strategy=self.name,
            objective="latency",
            partitions=Partitions.whole(problem),
            instances=Instances.whole(used[np.array(found.nodes, np.int64)[2::4]]),
            parameters=parameter_dict(self.parameters),
            breaks=("capacity", "minimum-capacity", "link"),
            notes=notes,
        )


class Greedy(_Search):
    """Move the join that gains most throughput, as long as one does."""

    name = "whitewater-greedy"
    method = "greedy"
    Parameters: ClassVar[type[GreedyParameters]] = GreedyParameters


class Tabu(_Search):
    """Make the best move that undoes no recent one, also for the worse; keep the best placement."""

    name = "whitewater-tabu"
    method = "tabu"
    Parameters: ClassVar[type[TabuParameters]] = TabuParameters


class ReactiveTabu(_Search):
    """Tabu search whose list grows when placements repeat, and that leaves where they often do."""

    name = "whitewater-reactive-tabu"
    method = "reactive-tabu"
    Parameters: ClassVar[type[ReactiveTabuParameters]] = ReactiveTabuParameters


class Annealing(_Search):
    """Move random joins, for the worse ever more seldom; keep the best placement."""

    name = "whitewater-annealing"
    method = "annealing"
    Parameters: ClassVar[type[AnnealingParameters]] = AnnealingParameters


def scaled(settings: dict[str, Any], joins: int, options: int) -> dict[str, Any]:
    """Settings of a search with as many iterations as so many joins need, within bounds."""
    found = dict(settings)
    more = max(1, joins // JOINS)
    if "iterations" in found:
        afforded = MOST_EVALUATIONS // (joins * options)
        found["iterations"] = max(1, min(found["iterations"] * more, afforded))
    if "steps" in found:
        afforded = MOST_ANNEALED // (joins * found["temperatures"])
        found["steps"] = max(1, min(found["steps"] * more, afforded))
    return found


def host_options(problem: Problem, options: int) -> list[Ints]:
    """Nodes that each pair's join may run on.

    Raises:
        InfeasibleError: when there is none for some pair.
    """
    from scipy.spatial import cKDTree

    from nova_core.placement.geometric_median import geometric_median, pair_anchors
    from nova_core.placement.objectives import leg_weights

    points = geometric_median(pair_anchors(problem), leg_weights(problem, "latency"))
    of_pair = problem.requirements.of_pairs(problem)
    found: list[Ints] = [np.empty(0, np.int64)] * len(of_pair)
    for requirement in np.unique(of_pair).tolist():
        pairs = np.flatnonzero(of_pair == requirement)
        fit = problem.nodes.worker
        if requirement >= 0:
            fit = fit & problem.requirements.met[requirement]
        able = np.flatnonzero(fit & (problem.nodes.capacity > 0))
        hosts = able if len(able) else np.flatnonzero(fit)
        if len(hosts) == 0:
            asked = "host joins"
            if requirement >= 0:
                asked += f" that need {problem.requirements.texts[requirement]}"
            missing = float(problem.required_capacity[pairs].sum())
            raise InfeasibleError(f"whitewater: no node may {asked}; make one a worker", missing)
        tree = cKDTree(problem.nodes.position[hosts])
        _, near = tree.query(points[pairs], k=min(options, len(hosts)))
        for pair, row in zip(pairs.tolist(), hosts[near].reshape(len(pairs), -1), strict=True):
            found[pair] = row
    return found


def pair_queries(problem: Problem, hosts: list[Ints]) -> tuple[Ints, Network, Query]:
    """Pairs as WhiteWater's queries on the nodes they concern.

    Returns:
        The nodes (k,), as the problem numbers them; a network of these; and a query of four
        operators per pair: left source, right source, join and sink.
    """
    graph = OperatorGraph.of(problem)
    ends = (problem.left_node, problem.right_node, problem.sink_node)
    used = np.unique(np.concatenate([*ends, *hosts]))
    number = np.full(len(problem.nodes), -1)
    number[used] = np.arange(len(used))
    operators: list[QueryOperator] = []
    pairs = range(len(problem.sources), len(problem.sources) + len(hosts))
    for pair, join in enumerate(pairs):
        first, name = len(operators), problem.pair_name(pair)
        sides = [graph[i] for i in graph[join].inputs]
        for side, one in zip(("left", "right"), sides, strict=True):
            at = _one(number, one.node)
            operators.append(
                QueryOperator(f"{name} {side}", "source", hosts=at, rate=one.output_rate)
            )
        operators.append(
            QueryOperator(
                name,
                "join",
                (first, first + 1),
                tuple(number[hosts[pair]].tolist()),
                selectivity=graph[join].output_rate / (2 * math.prod(s.output_rate for s in sides)),
                cost=1.0,
                window=1.0,
            )
        )
        at = _one(number, int(problem.sink_node[pair]))
        operators.append(QueryOperator(f"{name} sink", "sink", (first + 2,), at))
    return used, _network(problem, used, number), Query(operators)


def _one(number: Ints, node: int | None) -> tuple[int, ...]:
    assert node is not None  # sources and sinks have one
    return (int(number[node]),)


def _network(problem: Problem, used: Ints, number: Ints) -> Network:
    links = problem.links
    within = (number[links.source] >= 0) & (number[links.target] >= 0)
    speed: Floats = problem.nodes.capacity[used]
    source, target = number[links.source[within]], number[links.target[within]]
    return Network(speed=speed, links=Links(source, target, links.budget[within]))


__all__ = ["Annealing", "Greedy", "ReactiveTabu", "Tabu"]
