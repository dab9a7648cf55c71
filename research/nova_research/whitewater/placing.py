"""WhiteWater's searches as strategies: joins of a problem on nodes, by physical moves alone.

Every pair of the join matrix is a query of one join, so nothing can be swapped. A tuple received
costs one unit of a node's capacity; budgets of links count tuples. So the profiled input throughput
is the factor by which all sources can speed up until a node or a link is full; below 1 something is
overloaded.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.graph import Graph
from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Ints, Links, Problem
from nova_core.strategies.base import WHOLE, Strategy, able_workers, check_range
from nova_research.whitewater.query import Network, ProfiledOperator, ProfiledQuery

if TYPE_CHECKING:
    from nova_research.whitewater.search import Solution

# The paper's parameters suit queries of up to this many joins; more joins get more iterations ...
JOINS = 25
# ... as long as a search examines no more neighbours than this, or annealing evaluates no more
# joins over all its steps.
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
        from nova_research.whitewater.search import SearchParameters

        check_range("whitewater:", self, "options", 1, expected=WHOLE)
        SearchParameters(**self.of_search())

    def of_search(self) -> dict[str, Any]:
        """The parameters of the search itself."""
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
        hosts = host_options(problem, self.parameters.options)
        used, network, query = pair_queries(problem, hosts)
        solution, notes = self._search(query, network, len(hosts))
        return self.whole_plan(problem, used[list(solution.nodes[2::4])], notes=notes)

    def place_queries(self, problem: Problem) -> Plan:
        """Place every operator likewise, in the order that is written; notes as of `place`.

        Raises:
            InfeasibleError: when no node may host operators.
            ProblemError: for an aggregate, or an operator that several others read, which
                WhiteWater's queries do not have.
        """
        notes: dict[str, float] = {}

        def hosts(queries: Graph) -> Ints:
            used, network, query, rows = query_trees(problem, queries, self.parameters.options)
            solution, noted = self._search(query, network, len(rows))
            notes.update(noted)
            nodes = queries.node.copy()
            nodes[queries.bodies] = used[np.array(solution.nodes, np.int64)[rows]]
            return nodes

        return replace(self.whole_query_plan(problem, hosts), notes=notes)

    def _search(
        self, query: ProfiledQuery, network: Network, placed: int
    ) -> tuple[Solution, dict[str, float]]:
        """The search's solution for ``placed`` operators, and notes for the plan."""
        from nova_research.whitewater.search import SearchParameters, optimize

        settings = scaled(self.parameters.of_search(), placed, self.parameters.options)
        method = self.name.removeprefix("whitewater-")
        solution = optimize(query, network, method, SearchParameters(alpha=1.0, **settings))
        notes: dict[str, float] = {"evaluations": solution.evaluations}
        if np.isfinite(solution.value):
            notes["throughput"] = solution.value
        return solution, notes


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
    """Settings of a search, with iterations in proportion to the joins, within bounds."""
    joins = max(1, joins)  # queries of filters alone have none
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
    from nova_core.model.objectives import leg_weights
    from nova_core.placement.geometric_median import geometric_median, pair_anchors

    points = geometric_median(pair_anchors(problem), leg_weights(problem, "latency"))
    hosts_of: dict[int, Ints] = {}
    for pairs, fit in able_workers(problem, "whitewater"):
        hosts_of |= zip(pairs.tolist(), _nearest(problem, fit, points[pairs], options), strict=True)
    return [hosts_of[pair] for pair in range(len(hosts_of))]


def _nearest(problem: Problem, hosts: Ints, points: Floats, options: int) -> Ints:
    """(k, m) the hosts nearest to (k, d) points; those with capacity where there are any."""
    from scipy.spatial import cKDTree

    able = hosts[problem.nodes.capacity[hosts] > 0]
    able = able if len(able) else hosts
    count = min(options, len(able))
    near = cKDTree(problem.nodes.position[able]).query(points, k=count)[1]
    return np.asarray(able[near].reshape(-1, count))


def query_trees(
    problem: Problem, queries: Graph, options: int
) -> tuple[Ints, Network, ProfiledQuery, Ints]:
    """Queries as WhiteWater's, on the nodes they concern.

    A source appears once per reader, together with the operators that run with it.

    Args:
        problem: what is placed.
        queries: its operators.
        options: nodes each may run on: the workers nearest to its virtual position.

    Returns:
        The nodes (k,), as the problem numbers them; a network of these; the trees; and the place
        in them of each body.

    Raises:
        InfeasibleError: when no node may host operators.
        ProblemError: for operators that WhiteWater does not have.
    """
    from nova_core.model.objectives import link_weights
    from nova_core.queries.virtual import virtual_positions

    weight = link_weights(queries, "latency")
    points = virtual_positions(queries, problem.nodes.position, weight).point
    bodies, pinned = queries.bodies, queries.node
    near: dict[int, Ints] = {}
    for rows, fit in able_workers(problem, "whitewater", queries):
        some = bodies[rows]
        near |= zip(some.tolist(), _nearest(problem, fit, points[some], options), strict=True)
    used, number = _numbered(len(problem.nodes), pinned[pinned >= 0], *near.values())
    hosts = {n: number[nodes] for n, nodes in near.items()}
    operators: list[ProfiledOperator] = []
    place: dict[int, int] = {}
    reads: dict[int, list[tuple[int, float]]] = defaultdict(list)
    emitted: dict[int, float] = {}
    producers, consumers, _, rates = (column.tolist() for column in queries.links)
    for producer, consumer, rate in zip(producers, consumers, rates, strict=True):
        if producer in emitted and pinned[producer] < 0:
            raise ProblemError(
                f"whitewater: several operators read {queries[producer].id!r}; it has trees "
                "of operators only"
            )
        emitted[producer] = rate
        reads[consumer].append((producer, rate))
    for n, one in enumerate(queries):
        if one.kind == "source" or queries.root[n] != n:
            continue
        if one.kind == "aggregate":
            raise ProblemError(f"whitewater: {one.id!r} is an aggregate; it has none")
        inputs = []
        for producer, rate in reads[n]:
            if pinned[producer] >= 0:
                name = f"{queries[producer].id} {len(operators)}"
                node = (int(number[pinned[producer]]),)
                operators.append(ProfiledOperator(name, "source", hosts=node, rate=rate))
                place[producer] = len(operators) - 1
            inputs.append(place[producer])
        if one.kind == "sink":
            sink = (int(number[pinned[n]]),)
            operators += [
                ProfiledOperator(f"{one.id} {row}", "sink", (child,), sink)
                for row, child in enumerate(inputs)
            ]
            continue
        place[n] = len(operators)
        product = float(np.prod([rate for _, rate in reads[n]]))
        operators.append(
            ProfiledOperator(
                one.id,
                "join" if one.kind == "join" else "filter",
                tuple(inputs),
                tuple(hosts[n].tolist()),
                selectivity=emitted.get(n, 0.0) / (2 * product if one.kind == "join" else product),
                cost=1.0,
                window=1.0,
            )
        )
    rows = np.array([place[n] for n in bodies.tolist()], np.int64)
    return used, _network(problem, used, number), ProfiledQuery(operators), rows


def _numbered(count: int, *nodes: Ints) -> tuple[Ints, Ints]:
    """The nodes that occur (k,), and (n,) the number of each among them, -1 of others."""
    used = np.unique(np.concatenate(nodes))
    number = np.full(count, -1)
    number[used] = np.arange(len(used))
    return used, number


def _network(problem: Problem, used: Ints, number: Ints) -> Network:
    """A network of some nodes, and the links between them."""
    links = problem.links
    within = (number[links.source] >= 0) & (number[links.target] >= 0)
    source, target = number[links.source[within]], number[links.target[within]]
    return Network(
        speed=problem.nodes.capacity[used], links=Links(source, target, links.budget[within])
    )


def pair_queries(problem: Problem, hosts: list[Ints]) -> tuple[Ints, Network, ProfiledQuery]:
    """Pairs as WhiteWater's queries on the nodes they concern.

    Returns:
        The nodes (k,), as the problem numbers them; a network of these; and a query of four
        operators per pair: left source, right source, join and sink.
    """
    ends = (problem.left_node, problem.right_node, problem.sink_node)
    used, number = _numbered(len(problem.nodes), *ends, *hosts)
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
    return used, _network(problem, used, number), ProfiledQuery(operators)
