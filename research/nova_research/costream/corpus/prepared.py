"""What a corpus runs: its plans, each with its queries, hardware and problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from nova_core.errors import InfeasibleError, NovaError
from nova_research.costream.corpus.hardware import (
    Hardware,
    random_ends,
    random_hardware,
    random_memory,
)
from nova_research.costream.corpus.random_queries import (
    RandomQuery,
    document_of,
    random_queries,
    random_query,
)
from nova_research.costream.corpus.ranges import MOST_SECONDS, PLANS, RACK, Ranges
from nova_research.costream.training.traces import Labels, Trace, documents_of, now

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem

SETTINGS = "corpus.yaml"
REPEATED = 10
"""One of so many runs is repeated."""
CANDIDATES = 16
ANYWHERE = 0.15
"""Share of plans with operators on any hosts, as other strategies may place them; the other plans
keep Costream's rules."""
LEAST_LOAD, MOST_LOAD = 0.1, 30.0
DRAWS = 50
CHOICES = 32
"""Choices of equally many queries that `fill` keeps, at either end."""
# What random numbers are for; each has a sequence of its own.
_QUERY, _HARDWARE, _MEMORY, _PLAN, _WARM, _TOGETHER = range(6)


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Settings of a corpus, written beside it: a corpus is resumed with the same settings only.

    Attributes:
        corpus: version of this file.
        seed: one seed gives one sequence of queries, hardware and plans.
        batch: runs of a batch, without repetitions; hosts have other memory in the next.
        inventory: its name.
        hosts: that the queries of a problem have to themselves.
        warm_up_s: before a query is measured; limits are in force in its second half.
        duration_s: least measured time; extended to a whole number of slides.
        drain_s: after it.
        cores: that busy hosts may use together.
        constants: of the simulator, as a digest; empty where hosts run the corpus.
        plans: of a problem, all different.
        strategies: that make a problem's last plans. All of its plans then have the same hardware,
            the others keep Costream's rules, and it has one query.
        model: file of Costream's model, where that is one of the strategies.
    """

    corpus: Literal[1] = 1
    seed: int
    batch: int
    inventory: str
    hosts: int
    warm_up_s: float
    duration_s: float
    drain_s: float
    cores: float
    constants: str = ""
    plans: int = PLANS
    strategies: tuple[str, ...] = ()
    model: str = ""

    @property
    def candidates(self) -> int:
        """Plans of a problem that are no strategy's."""
        return self.plans - len(self.strategies)


def begin_corpus(path: Path, settings: Settings) -> None:
    """Create the directory of a corpus, or resume an existing one.

    Raises:
        NovaError: for a directory of another corpus, or of something else.
    """
    from nova_core.io.safe_files import make_directory, write_text
    from nova_core.io.syntax import dump, read_typed

    file = path / SETTINGS
    if file.exists():
        before = read_typed(file, Settings, "corpus", 1, NovaError)
        for name in Settings.__struct_fields__:
            old, new = getattr(before, name), getattr(settings, name)
            if old != new:
                raise NovaError(
                    f"{path}: is a corpus with {name} {old!r}, not {new!r}; name another "
                    "directory, or the same settings"
                )
        return
    if path.exists() and any(path.iterdir()):
        raise NovaError(f"{path}: is there and holds no corpus; name another directory")
    make_directory(path)
    write_text(file, dump(msgspec.to_builtins(settings), ".yaml"))


@dataclass(frozen=True)
class Item:
    """A run of a plan. It gives a trace for each query of its problem.

    Attributes:
        number: from 0.
        again: whether it repeats the run of this number.
        plans: of its problem.
    """

    number: int
    again: bool = False
    plans: int = PLANS

    def id(self, seed: int, query: str = "") -> str:
        """Of the run, or of the trace of a query of it."""
        name = f"{seed}-{self.number:06d}" + ("-again" if self.again else "")
        return f"{name}/{query}" if query else name

    @property
    def problem(self) -> int:
        """Number of its problem."""
        return self.number // self.plans

    @property
    def turn(self) -> int:
        """Its number among its problem's, from 0."""
        return self.number % self.plans


def items_of(total: int, batch: int, plans: int = PLANS) -> Iterator[list[Item]]:
    """The runs of each batch.

    Args:
        total: of runs, without repetitions.
        batch: of one batch.
        plans: of one problem.
    """
    for first in range(0, total, batch):
        items = []
        for number in range(first, min(first + batch, total)):
            items.append(Item(number, plans=plans))
            if number % REPEATED == REPEATED - 1:
                items.append(Item(number, again=True, plans=plans))
        yield items


@dataclass(frozen=True)
class Prepared:
    """A plan that can be run.

    Attributes:
        item: which one.
        queries: of its problem.
        hardware: of its hosts.
        plan: and its problem.
        seconds: measured time.
    """

    item: Item
    queries: tuple[RandomQuery, ...]
    hardware: Hardware
    plan: Plan
    seconds: float

    @property
    def problem(self) -> Problem:
        """What the plan answers."""
        return self.plan.problem

    @property
    def busy(self) -> set[str]:
        """Hosts that run something."""
        from nova_harness.experiment.problem import busy_hosts

        return busy_hosts(self.plan)

    @property
    def cores(self) -> float:
        """What these may use together."""
        cpu = self.hardware.cpu()
        return sum(cpu[name] for name in self.busy)


def traces_of(
    prepared: Prepared,
    seed: int,
    labels: Mapping[str, Labels],
    prefix: str = "",
    name: str = "",
    **facts: Any,
) -> list[Trace]:
    """A trace for each query of a plan that has run.

    Args:
        prepared: what ran.
        seed: of the corpus.
        labels: by the query's id.
        prefix: of the traces' ids.
        name: of the problem, if traces have another one than its own.
        facts: what all of them have, see `nova_research.costream.training.traces.Trace`.
    """
    item = prepared.item
    problem, plan = documents_of(prepared.plan)
    rows = []
    for query in prepared.queries:
        # The only query of a problem needs no name of its own.
        own = query.id if len(prepared.queries) > 1 else ""
        repeated = Item(item.number).id(seed, own) if item.again else None
        rows.append(
            Trace(
                id=prefix + item.id(seed, own),
                query=name or prepared.problem.name,
                measured_query=query.id,
                structure=query.structure,
                repeat_of=repeated,
                nova_version=version("nova-placement"),
                made=now(),
                seed=seed,
                duration_s=prepared.seconds,
                window_s=query.window_s,
                problem=problem,
                plan=plan,
                **facts,
                **asdict(labels[query.id]),
            )
        )
    return rows


def run_of(trace: str) -> str:
    """The id of the run that a trace belongs to, see `Item.id`."""
    return trace.partition("/")[0]


def measured_s(slides_s: set[float], least_s: float, most_s: float) -> float:
    """A measured time that is a whole number of all slides, so that it sees the mean rate.

    Args:
        slides_s: of a query's windows.
        least_s: how long it is at least.
        most_s: and at most; where none of up to 8 s more fits, it is ``least_s``.
    """
    for more in range(9):
        seconds = least_s + more
        if seconds > most_s:
            break
        if all(abs(seconds / one - round(seconds / one)) < 1e-6 for one in slides_s):
            return seconds
    return least_s


class Preparing:
    """Makes the plans of one batch.

    Args:
        settings: of the corpus.
        batch: number of the batch.
        groups: of hosts, for a problem each.
        load: times the usual rates.
        scratch: directory for a temporary document.
        ranges: that everything is drawn from.

    Attributes:
        groups: of hosts.
        memory: of the batch's hosts, bytes.
    """

    def __init__(
        self,
        settings: Settings,
        batch: int,
        groups: Sequence[Sequence[str]],
        load: float,
        scratch: Path,
        ranges: Ranges = RACK,
    ) -> None:
        self._settings, self.groups, self._load = settings, groups, load
        self._path, self._ranges = scratch / "problem.json", ranges
        names = [name for group in groups for name in group]
        self.memory = random_memory(self._random(_MEMORY, batch), names, ranges)
        self._counts: dict[int, int] = {}

    def _random(self, *what: int) -> np.random.Generator:
        return np.random.default_rng([self._settings.seed, *what])

    def has(self, item: Item) -> bool:
        """Whether a trial's problem has so many different plans by Costream's rules."""
        s, number = self._settings, item.problem
        if not s.strategies or item.turn >= s.candidates:
            return True
        if number not in self._counts:
            try:
                self._counts[number] = len(self._plans(*self._drawn(item), item, 0)[1])
            except NovaError:  # which `plan` raises, too
                self._counts[number] = s.candidates
        return item.turn < self._counts[number]

    def plan(self, item: Item) -> Prepared:
        """One plan; with strategies, one that the problem `has`.

        Raises:
            NovaError: where no drawn hardware fits the cores.
        """
        s, turn = self._settings, item.turn
        queries, group = self._drawn(item)
        hardware, plans = self._plans(queries, group, item, 0)
        if turn >= s.candidates:
            plan = self._by_strategy(plans[0].problem, s.strategies[turn - s.candidates])
        else:
            if turn >= len(plans):
                assert not s.strategies, "plans of a trial are of one problem"
                hardware, plans = self._plans(queries, group, item, turn)
            plan = plans[min(turn, len(plans) - 1)]
        slides = set[float]().union(*(one.slides_s for one in queries))
        seconds = measured_s(slides, s.duration_s, MOST_SECONDS - s.warm_up_s)
        return Prepared(item, tuple(queries), hardware, plan, seconds)

    def _drawn(self, item: Item) -> tuple[list[RandomQuery], Sequence[str]]:
        """The queries of an item's problem, and their hosts."""
        seed = (self._settings.seed, _QUERY, item.problem)
        queries = random_queries(seed, self._together(item), self._load, self._ranges)
        return queries, self.groups[item.problem % len(self.groups)]

    def _together(self, item: Item) -> int:
        """How many queries a problem has; strategies are compared on one."""
        if self._settings.strategies:
            return 1
        counts, shares = zip(*self._ranges.together.items(), strict=True)
        return int(self._random(_TOGETHER, item.problem).choice(counts, p=shares))

    def warming(self, turn: int) -> list[Prepared]:
        """For each group, a query with every operator kind, its operators on all hosts in turn."""
        warm_ups: list[Prepared] = []
        number, calm = 0, replace(self._ranges, loads=(1.0, 1.0))
        while len(warm_ups) < len(self.groups):
            number += 1
            query = random_query((self._settings.seed, _WARM, number), 0.5, calm)
            if query.structure != "three-way-agg":
                continue
            group = self.groups[len(warm_ups)]
            rng = self._random(_WARM, number)
            hardware = random_hardware(rng, {name: self.memory[name] for name in group})
            still = tuple(replace(one, latency_ms=1.0, mbit=800.0) for one in hardware.hosts)
            nodes = [group[(turn + i) % len(group)] for i in range(3)]
            ends = [(nodes, nodes[-1])]
            problem = self._problem([query], Hardware(still), ends, "warming up")
            plan = _in_turn(problem, turn)
            warm_ups.append(Prepared(Item(number), (query,), Hardware(still), plan, 2.0))
        return warm_ups

    def _plans(
        self, queries: Sequence[RandomQuery], group: Sequence[str], item: Item, turn: int
    ) -> tuple[Hardware, list[Plan]]:
        """Hardware, and different plans that fit on it, up to as many as the problem has."""
        s, name = self._settings, f"{self._settings.seed}-q{item.problem:06d}"
        for draw in range(DRAWS):
            rng = self._random(_HARDWARE, item.problem, turn, draw)
            memory = {name: self.memory[name] for name in group}
            hardware = random_hardware(rng, memory, self._ranges)
            edge = bool(s.strategies)
            ends = [random_ends(rng, hardware, len(one.streams), edge=edge) for one in queries]
            problem = self._problem(queries, hardware, ends, name)
            rng = self._random(_PLAN, item.problem, turn, draw)
            cpu = hardware.cpu()
            fitting = []
            # Strategies may use any host.
            if s.strategies and sum(cpu.values()) > s.cores:
                continue
            anywhere = 0.0 if s.strategies else ANYWHERE
            # Draws prefer the hosts of inputs, so they repeat each other.
            many = max(CANDIDATES, (8 if s.strategies else 2) * s.plans)
            for plan in _random_plans(problem, rng, many, anywhere):
                prepared = Prepared(item, tuple(queries), hardware, plan, 0.0)
                if sum(cpu[name] for name in prepared.busy) <= s.cores:
                    fitting.append(plan)
            if fitting:
                return hardware, fitting[: s.candidates]
        raise InfeasibleError(f"corpus: {s.cores:g} cores are too few for a group's hosts", 0.0)

    def _by_strategy(self, problem: Problem, name: str) -> Plan:
        """A strategy's plan for a problem."""
        from nova_core.strategies.base import create

        # Random plans may overload hosts, so Nova may, too.
        own = {"costream": {"model": self._settings.model}, "nova": {"on_full": "spread"}}
        return create(name, **own.get(name, {})).solve(problem)

    def _problem(
        self,
        queries: Sequence[RandomQuery],
        hardware: Hardware,
        ends: Sequence[tuple[Sequence[str], str]],
        name: str,
    ) -> Problem:
        from nova_harness.experiment.problem import problem_of

        document = {"nova": 1, "name": name, **document_of(queries, ends), **hardware.document()}
        if len(queries) == 1 and not self._settings.strategies:
            # So were the traces made that come with Nova. Several queries' sinks may be all hosts.
            sinks = {sink for _, sink in ends}
            for node in document["nodes"]:
                node["worker"] = node["id"] not in sinks
        return problem_of(document, self._path)


def _random_plans(
    problem: Problem, rng: np.random.Generator, count: int, anywhere_share: float
) -> list[Plan]:
    """Different plans, in random order; sometimes the first one keeps no rules."""
    from nova_research.costream.learned.candidates import Enumerator, plan_of_nodes

    enumerator = Enumerator(problem)
    graph = enumerator.graph
    placed = [np.zeros(len(graph.root), np.int64) for _ in range(count)]
    query = graph.query.copy()
    for one in graph:
        query[list(one.inputs)] = one.query  # sources have none
    for number in range(len(problem.queries)):
        options = enumerator.draw(np.flatnonzero(query == number), count, rng)
        rows = rng.permutation(np.resize(np.arange(len(options)), count))
        for nodes, row in zip(placed, rows.tolist(), strict=True):
            nodes[options.operators] = options.nodes(row)
    pinned = graph.node
    if rng.random() < anywhere_share:
        anywhere = rng.integers(0, len(problem.nodes), len(pinned))
        placed.insert(0, np.where(pinned >= 0, pinned, anywhere))
    plans, seen = [], set()
    for nodes in placed:
        key = tuple(nodes[graph.bodies].tolist())
        if key not in seen:
            seen.add(key)
            plan = plan_of_nodes(problem, graph, nodes, "candidate")
            plans.append(plan)
    return plans


def _in_turn(problem: Problem, turn: int) -> Plan:
    """The plan whose operators are on all nodes in turn."""
    from nova_research.costream.learned.candidates import plan_of_nodes
    from nova_research.costream.learned.graph import operators_of

    graph = operators_of(problem)
    many = len(graph.root)
    nodes = (np.arange(many) + turn) % len(problem.nodes)
    return plan_of_nodes(problem, graph, nodes, "in-turn")


def next_load(load: float, failing: float, target: tuple[float, float]) -> float:
    """The load of the next batch.

    Args:
        load: of this one.
        failing: share of its traces that failed or had back-pressure.
        target: least and greatest share to aim for.
    """
    step = 1.5 if failing < target[0] else 1 / 1.5 if failing > target[1] else 1.0
    return min(max(load * step, LEAST_LOAD), MOST_LOAD)


def _ends(choices: list[tuple[float, list[Prepared]]]) -> list[tuple[float, list[Prepared]]]:
    """Choices that use the fewest cores, which leave the most room, and those that use the most."""
    if len(choices) <= 2 * CHOICES:
        return choices
    choices.sort(key=lambda one: one[0])
    return choices[:CHOICES] + choices[-CHOICES:]


def fill(waiting: Sequence[Prepared], cores: float, group_of: Mapping[str, int]) -> list[Prepared]:
    """Plans to run at once: the first, and as many others as fit beside it on other hosts.

    All are measured equally long. Ties go to those that use the most cores.

    Args:
        waiting: in order.
        cores: that their hosts may use together.
        group_of: number of each host's group.
    """
    first, *others = waiting
    groups: dict[int, list[Prepared]] = {}
    for one in others:
        if one.seconds == first.seconds:
            groups.setdefault(group_of[one.hardware.hosts[0].name], []).append(one)
    groups.pop(group_of[first.hardware.hosts[0].name], None)
    # Group by group: the cores each number of queries uses, and which queries these are.
    best: dict[int, list[tuple[float, list[Prepared]]]] = {1: [(first.cores, [first])]}
    for members in groups.values():
        grown = {count: list(choices) for count, choices in best.items()}
        for count, choices in best.items():
            grown.setdefault(count + 1, []).extend(
                (used + one.cores, [*chosen, one])
                for used, chosen in choices
                for one in members
                if used + one.cores <= cores + 1e-9
            )
        best = {count: _ends(choices) for count, choices in grown.items()}
    most = max(count for count, choices in best.items() if choices)
    return max(best[most], key=lambda choice: choice[0])[1]
