"""The searches of section 5: which configuration of a query on a network has the greatest Q^p."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.problem import Floats, Ints
from nova_core.strategies.base import WHOLE, check_range
from nova_research.whitewater.kernels import neighbours, throughput, walks
from nova_research.whitewater.query import Inputs, Network, ProfiledQuery
from nova_research.whitewater.tables import given_columns, inputs_of, state_columns

# Reactive tabu search (Battiti and Tecchiolli 1994): configurations seen more than so often ...
REPETITIONS = 3
# ... and more such configurations than this make it leave the region.
CHAOTIC = 3
# What exhaustive search can do in minutes.
MOST_CONFIGURATIONS = 50_000_000


@dataclass(frozen=True)
class SearchParameters:
    """Parameters of the searches; the defaults are the paper's (sections 5.3 and 6) but for steps.

    Attributes:
        phases: 1 moves operators and swaps them in one search; 2 first looks for the best order on
            a single machine, then for the best nodes for that order.
        alpha: probability that a random move is a physical one. 0 leaves operators where they are,
            1 leaves their order; with other values, the other searches examine all moves.
        iterations: most moves of greedy and both tabu searches.
        tabu_list: iterations for which tabu search does not undo a move.
        longest_cycle: reactive tabu: repetitions after more iterations than this are no cycle.
        increase: reactive tabu: factor of the list's length when a configuration repeats.
        decrease: reactive tabu: its factor when none has for a while.
        temperatures: of annealing, each half of the one before.
        temperature: annealing's first, as a share of the current value.
        steps: of annealing at each temperature. The paper has 400, and says that it calibrates
            iterations so that searches find configurations of similar quality; so are these.
        seed: of everything random.
    """

    phases: int = 1
    alpha: float = 0.5
    iterations: int = 1000
    tabu_list: int = 1000
    longest_cycle: int = 50
    increase: float = 1.1
    decrease: float = 0.9
    temperatures: int = 4
    temperature: float = 0.2
    steps: int = 1200
    seed: int = 0

    def __post_init__(self) -> None:
        where = "whitewater:"
        check_range(where, self, "phases", 1, 2, expected="1 or 2")
        counts = "iterations tabu_list longest_cycle steps"
        check_range(where, self, counts, 1, expected=WHOLE)
        check_range(where, self, "temperatures", 1, 100_000)
        check_range(where, self, "alpha decrease", 0, 1)
        check_range(where, self, "increase", 1, 10)
        check_range(where, self, "temperature", 0, 10)
        check_range(where, self, "seed", 0)


@dataclass(frozen=True, eq=False)
class Solution:
    """A configuration, and its best solution in the text's sense (Definitions 1 and 2).

    Attributes:
        query: what runs.
        network: where.
        inputs: what every operator receives from, in this order of operators.
        nodes: where every operator runs.
        value: Q^p; 0 or less when a constraint is broken at any rates.
        evaluations: configurations that were evaluated.
    """

    query: ProfiledQuery
    network: Network
    inputs: tuple[tuple[int, ...], ...]
    nodes: tuple[int, ...]
    value: float
    evaluations: int

    @property
    def feasible(self) -> bool:
        """Whether it can process any rates at all."""
        return self.value > 0

    @cached_property
    def throughput(self) -> dict[str, float]:
        """r^s: tuples/s of every source that it can process together, on the profile's line."""
        scale = max(self.value, 0.0)
        return {source: rate * scale for source, rate in self.query.profile.items()}


class Walk:
    """A walk from configuration to configuration that remembers the best one."""

    def __init__(
        self,
        query: ProfiledQuery,
        network: Network,
        inputs: Inputs,
        nodes: Sequence[int] | Ints,
        alpha: float,
        random: np.random.Generator,
    ) -> None:
        self.alpha, self.random = alpha, random
        self.given = given_columns(query, network)
        self.state = state_columns(self.given, inputs, nodes)
        # Of the configuration, and of the best one.
        self._values = np.full(2, throughput.refresh(self.given, self.state))
        self.evaluations = 1
        swaps = len(query) if alpha < 1 else 1
        self._tabu = walks.Tabu(
            np.zeros(len(self.given.host), np.int64), np.zeros((swaps, swaps), np.int64)
        )
        self.child, self.node = self.state.child.copy(), self.state.node.copy()
        self._first = self.state.child.copy()

    @property
    def highest(self) -> float:
        """Value of the best configuration seen, which `child` and `node` hold."""
        return float(self._values[1])

    def record(self, value: float, child: Ints, node: Ints) -> None:
        """Record a configuration if it is the best so far."""
        if value > self.highest:
            self._values[1], self.child, self.node = value, child.copy(), node.copy()

    def climb(
        self, now: int, moves: int, length: int, improving: bool = False, swaps: bool = True
    ) -> int:
        """Make the best moves that are not tabu, and return their number.

        Args:
            now: number of the first iteration.
            moves: most moves.
            length: iterations for which each is not undone.
            improving: stop when no neighbour is better.
            swaps: whether to change the order of operators, where the search may.
        """
        count, evaluated = walks.climb(
            self.given,
            self.state,
            walks.Kinds(physical=self.alpha > 0, logical=self.alpha < 1 and swaps),
            self.random.integers(len(self.given.kind), size=moves),
            now,
            length,
            improving,
            self._tabu,
            self._values,
            (self.child, self.node),
        )
        self.evaluations += evaluated
        return count

    def wander(self, now: int, moves: int, length: int) -> None:
        """Make random moves, in the order of operators that the search began with.

        An operator pushed below a join never returns above it (Table 6), so random swaps would
        soon destroy that order.
        """
        alpha = self.alpha
        if self.alpha < 1:
            walks.restore(self.state, (self._first, self.state.node.copy()))
            throughput.refresh(self.given, self.state)
        if self.alpha > 0:
            alpha = 1.0
        move = np.zeros(4, np.int64)
        swaps = np.zeros((2 * len(self.given.kind), 3), np.int64)
        for _ in range(moves):
            draws = self.random.random(3)
            count = walks.list_swaps(self.given, self.state, swaps) if alpha < 1 else 0
            if walks.random_move(self.given, self.state, alpha, draws, swaps, count, move):
                until = now + 1 + length
                value = walks.make(self.given, self.state, move, until, self._tabu)
                self._values[0] = value
                self.evaluations += 1
                self.record(value, self.state.child, self.state.node)

    def anneal(self, temperatures: Floats) -> None:
        """Random moves at these temperatures."""
        value, evaluated = walks.anneal(
            self.given,
            self.state,
            self.alpha,
            temperatures,
            self.random.random((len(temperatures), 4)),
            (self.child, self.node),
        )
        self._values[1] = value
        self.evaluations += evaluated

    def forget(self, now: int, share: float) -> bool:
        """Forget the oldest share of the tabu list; whether there was any."""
        every = np.concatenate([table[table > now] for table in self._tabu])
        if len(every) == 0:
            return False
        # `np.quantile(every, share, method="higher")`, with which a search takes a quarter longer.
        last = math.ceil(share * (len(every) - 1))
        until = np.partition(every, last)[last]
        for table in self._tabu:
            table[table <= until] = 0
        return True

    def fingerprint(self) -> int:
        """A number that tells configurations apart."""
        return walks.fingerprint(self.state.parent, self.state.node)


def greedy(walk: Walk, p: SearchParameters) -> None:
    """Make the best move as long as it is an improvement (section 5.1.1)."""
    walk.climb(0, p.iterations, 0, improving=True)


def tabu(walk: Walk, p: SearchParameters) -> None:
    """Make the best move that does not undo a recent one, even for the worse (section 5.1.2).

    A move that leads to a new best is never tabu. When all moves are, the older half is forgotten.
    """
    now = 0
    while now < p.iterations:
        now += walk.climb(now, p.iterations - now, p.tabu_list)
        if now < p.iterations and not walk.forget(now, 0.5):
            return


def reactive_tabu(walk: Walk, p: SearchParameters) -> None:
    """Tabu search whose list grows with repetitions, and that escapes from where it is (5.1.3)."""
    length, cycle, changed, chaotic = 1.0, 1.0, 0, 0
    seen: dict[int, tuple[int, int]] = {}
    now = 0
    while now < p.iterations:
        key = walk.fingerprint()
        last, times = seen.get(key, (now, -1))
        seen[key] = (now, times + 1)
        if times >= 0:
            if times + 1 > REPETITIONS:
                chaotic += 1
            if now - last < p.longest_cycle:
                cycle = 0.1 * (now - last) + 0.9 * cycle
                length = min(max(length * p.increase, length + 1), p.iterations)
                changed = now
        if now - changed > cycle:
            length, changed = max(min(length * p.decrease, length - 1), 1.0), now
        if chaotic > CHAOTIC:
            chaotic = 0
            seen.clear()
            steps = 1 + int((1 + walk.random.random()) * cycle / 2)
            walk.wander(now, steps, int(length))
            # An order can only be judged with its operators on good nodes.
            now += 1 + walk.climb(now, p.iterations - now, 0, improving=True, swaps=False)
            continue
        while not walk.climb(now, 1, int(length)):
            # All moves are tabu: the list is too long.
            length, changed = max(length * p.decrease, 1.0), now
            if not walk.forget(now, 0.5):
                return
        now += 1


def annealing(walk: Walk, p: SearchParameters) -> None:
    """Random moves, of which worse ones are made ever more seldom (section 5.1.4)."""
    walk.anneal(np.repeat(p.temperature * 0.5 ** np.arange(p.temperatures), p.steps))


def exhaustive(walk: Walk, p: SearchParameters) -> None:
    """All orders that swaps lead to, and every placement of each (section 5.2).

    Raises:
        ProblemError: when there are too many.
    """
    given, state = walk.given, walk.state
    placements = 1
    if walk.alpha > 0:
        placements = int(np.prod([float(n) for n in np.diff(given.offset)]))
    nowhere = np.zeros(len(given.kind), np.int64)
    first = (state.child.copy(), state.parent.copy())
    seen, waiting = {walks.fingerprint(state.parent, nowhere)}, [first]
    node = state.node.copy()
    while waiting:
        child, parent = waiting.pop()
        if len(seen) * placements > MOST_CONFIGURATIONS:
            raise ProblemError(
                f"exhaustive: {len(seen)} or more orders of operators with {placements} placements "
                f"each; at most {MOST_CONFIGURATIONS:,} configurations can be searched"
            )
        state.child[:], state.parent[:] = child, parent
        if walk.alpha > 0:
            value, evaluated = walks.best_placement(given, state, node)
        else:
            value, evaluated = throughput.refresh(given, state), 1
        walk.evaluations += evaluated
        walk.record(value, child, node)
        if walk.alpha == 1:
            return
        for top in range(len(given.kind)):
            for i in range(2):
                j = neighbours.swap_slot(given, state, top, i)
                if j < 0:
                    continue
                bottom = state.child[top, i]
                neighbours.rotate(state, top, i, j)
                key = walks.fingerprint(state.parent, nowhere)
                if key not in seen:
                    seen.add(key)
                    waiting.append((state.child.copy(), state.parent.copy()))
                neighbours.rotate(state, bottom, j, i)


def stay(walk: Walk, p: SearchParameters) -> None:
    """No search: the random configuration that others begin with."""


METHODS: dict[str, Callable[[Walk, SearchParameters], None]] = {
    "greedy": greedy,
    "tabu": tabu,
    "reactive-tabu": reactive_tabu,
    "annealing": annealing,
    "exhaustive": exhaustive,
    "random": stay,
}


def random_nodes(query: ProfiledQuery, seed: int) -> Ints:
    """(o,) a host for every operator, chosen at random: where every search begins."""
    random = np.random.default_rng([seed, 0])
    return np.array([one.hosts[random.integers(len(one.hosts))] for one in query.operators])


def optimize(
    query: ProfiledQuery,
    network: Network,
    method: str = "annealing",
    parameters: SearchParameters | None = None,
    nodes: Sequence[int] | Ints | None = None,
) -> Solution:
    """Look for the configuration that keeps up with the fastest input.

    Args:
        query: what runs; its operators' order is where the search begins.
        network: where.
        method: one of METHODS.
        parameters: of the search.
        nodes: (o,) where to begin; None begins at random nodes.

    Raises:
        ProblemError: for an unknown method, or a query that does not go with the network.
    """
    p = parameters or SearchParameters()
    if method not in METHODS:
        raise ProblemError(
            f"whitewater: unknown search {method!r}; expected one of {', '.join(METHODS)}"
        )
    run = METHODS[method]
    random = np.random.default_rng([p.seed, 1])
    inputs: Inputs = query.inputs
    evaluations = 0
    alpha = p.alpha
    if p.phases == 2 and query.reorderable:
        ordering = Walk(*on_one_machine(query, network), inputs, [0] * len(query), 0.0, random)
        run(ordering, p)
        inputs, evaluations, alpha = inputs_of(ordering.child), ordering.evaluations, 1.0
    elif not swappable(query):
        alpha = 1.0
    start = random_nodes(query, p.seed) if nodes is None else nodes
    walk = Walk(query, network, inputs, start, alpha, random)
    run(walk, p)
    return Solution(
        query,
        network,
        inputs_of(walk.child),
        tuple(walk.node.tolist()),
        walk.highest,
        evaluations + walk.evaluations,
    )


def swappable(query: ProfiledQuery) -> bool:
    """Whether any operator but sources and sinks receives from another one, in trees."""
    if not query.reorderable:
        return False
    inner = ("filter", "project", "join")
    return any(
        one.kind in inner and any(query[i].kind in inner for i in one.inputs)
        for one in query.operators
    )


def on_one_machine(query: ProfiledQuery, network: Network) -> tuple[ProfiledQuery, Network]:
    """The query on a single node, as fast as the fastest, without limits of memory and latency."""
    operators = [replace(one, hosts=(0,)) for one in query.operators]
    alone = replace(query, operators=operators, latency_limit=float("inf"))
    return alone, Network(speed=np.array([network.speed.max()]))
