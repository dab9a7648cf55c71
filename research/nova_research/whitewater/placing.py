"""WhiteWater's searches as strategies: operators of a problem on nodes, by physical moves alone.

Operators stay in the order that is written. A tuple received costs one unit of a node's capacity;
budgets of links count tuples. So the profiled input throughput is the factor by which all sources
can speed up until a node or a link is full; below 1 something is overloaded.

The text has trees of filters, projections and joins. Here an operator's output may go to several
others, which changes nothing but what is charged; and an aggregate, whose windows end as often
however fast its input is, emits the same at any speed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nova_core.model.expansion import graph_of
from nova_core.model.graph import AGGREGATE, JOIN, Graph
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
        options: nodes each operator may run on: the workers nearest to the point that minimizes its
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
        """Place every operator, in the order that is written.

        The plan's note ``throughput`` is Q^p, where it is finite.

        Raises:
            InfeasibleError: when no node may host some operator.
        """
        graph = graph_of(problem)
        used, network, query, place = profiled(problem, graph, self.parameters.options)
        solution, notes = self._search(query, network, len(place))
        return self.whole_plan(
            problem, used[np.array(solution.nodes, np.int64)[place]], notes=notes
        )

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
    """Move the operator that gains most throughput, as long as one does."""

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
    """Move random operators, for the worse ever more seldom; keep the best placement."""

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


def host_options(problem: Problem, graph: Graph, options: int) -> list[Ints]:
    """Nodes that each body may run on.

    Raises:
        InfeasibleError: when there is none for some body.
    """
    from nova_core.model.objectives import link_weights
    from nova_core.placement.queries.virtual import virtual_positions

    weight = link_weights(graph, "latency")
    points = virtual_positions(graph, problem.nodes.position, weight).point[graph.bodies]
    hosts_of: dict[int, Ints] = {}
    for bodies, fit in able_workers(problem, "whitewater"):
        near = _nearest(problem, fit, points[bodies], options)
        hosts_of |= zip(bodies.tolist(), near, strict=True)
    return [hosts_of[body] for body in range(len(hosts_of))]


def _nearest(problem: Problem, hosts: Ints, points: Floats, options: int) -> Ints:
    """(k, m) the hosts nearest to (k, d) points; those with capacity where there are any."""
    from scipy.spatial import cKDTree

    able = hosts[problem.nodes.capacity[hosts] > 0]
    able = able if len(able) else hosts
    count = min(options, len(able))
    near = cKDTree(problem.nodes.position[able]).query(points, k=count)[1]
    return np.asarray(able[near].reshape(-1, count))


def profiled(
    problem: Problem, graph: Graph, options: int
) -> tuple[Ints, Network, ProfiledQuery, Ints]:
    """A problem's operators as WhiteWater's, on the nodes they concern.

    A source appears once per reader, a sink once per operator that it receives from. What runs with
    another operator only changes how much the next one takes.

    Args:
        problem: what is placed.
        graph: its operators.
        options: nodes each may run on: the workers nearest to its virtual position.

    Returns:
        The nodes (k,), as the problem numbers them; a network of these; the operators; and the
        place among them of each body.

    Raises:
        InfeasibleError: when no node may host some operator.
    """
    near = host_options(problem, graph, options)
    pinned, made = graph.node, ProfiledOperators()
    used, number = _numbered(len(problem.nodes), pinned[pinned >= 0], *near)
    producers, consumers, _, rates = (column.tolist() for column in graph.links)
    offset, link = (column.tolist() for column in graph.at_body)
    place: dict[int, int] = {}
    for body, (one, hosts) in enumerate(zip(graph.bodies.tolist(), near, strict=True)):
        inputs, takes, product = list[int](), list[float](), 1.0
        sinks: list[tuple[int, float]] = []
        for row in link[offset[body] : offset[body + 1]]:
            producer, rate = producers[row], rates[row]
            # Less than it emits where a filter runs with it.
            share = rate / graph.rate[producer] if graph.rate[producer] > 0 else 1.0
            if producer == one:
                sinks.append((int(number[pinned[consumers[row]]]), share))
                continue
            product *= rate
            if pinned[producer] >= 0:
                inputs.append(made.source(graph.ids[producer], int(number[pinned[producer]]), rate))
                takes.append(1.0)
            else:
                inputs.append(place[producer])
                takes.append(share)
        emitted = float(graph.rate[one])
        joins, combines = graph.kind[one] == JOIN, graph.kind[one] == AGGREGATE
        place[one] = made.add(
            ProfiledOperator(
                graph.ids[one],
                "join" if joins else "aggregate" if combines else "filter",
                tuple(inputs),
                tuple(number[hosts].tolist()),
                rate=emitted if combines else 0.0,
                selectivity=emitted / (2 * product if joins else product),
                cost=1.0,
                window=1.0,
                takes=tuple(takes) if any(share != 1 for share in takes) else (),
            )
        )
        for sink, share in sinks:
            made.sink(place[one], sink, share)
    for producer, consumer, rate in zip(producers, consumers, rates, strict=True):
        if pinned[producer] >= 0 and pinned[consumer] >= 0:
            source = made.source(graph.ids[producer], int(number[pinned[producer]]), rate)
            made.sink(source, int(number[pinned[consumer]]))
    rows = np.array([place[one] for one in graph.bodies.tolist()], np.int64)
    return used, _network(problem, used, number), ProfiledQuery(made.operators), rows


class ProfiledOperators:
    """Operators while they are put together.

    Attributes:
        operators: those so far.
    """

    def __init__(self) -> None:
        self.operators: list[ProfiledOperator] = []

    def add(self, operator: ProfiledOperator) -> int:
        """Add one; its place."""
        self.operators.append(operator)
        return len(self.operators) - 1

    def source(self, name: str, node: int, rate: float) -> int:
        """Add a source as one of its readers has it."""
        name = f"{name} {len(self.operators)}"
        return self.add(ProfiledOperator(name, "source", hosts=(node,), rate=rate))

    def sink(self, producer: int, node: int, share: float = 1.0) -> int:
        """Add a sink of one operator, which takes a share of what that emits."""
        takes = () if share == 1 else (share,)
        name = f"sink {len(self.operators)}"
        return self.add(ProfiledOperator(name, "sink", (producer,), (node,), takes=takes))


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
