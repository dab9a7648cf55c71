"""Checks of every constraint of a plan, from the plan alone.

`verify` trusts nothing the strategy claims; it recomputes every sum from the plan's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nova_core.errors import PlanError
from nova_core.model.coverage import coverage
from nova_core.model.graph import JOIN
from nova_core.model.key_ranges import KeyRanges
from nova_core.model.plan import Plan
from nova_core.model.problem import Bools, Floats, Ints
from nova_core.model.traffic import hops

CONSTRAINTS: Mapping[str, str] = {
    "structure": "columns have the right lengths and every index is in range",
    "partitions": "partition rates are positive and sum to their input's rate",
    "complete": "every pair of partitions that M allows is joined exactly once, every input of a "
    "query's operator is taken exactly once, and one instance emits what others feed it",
    "route": "routes begin and end where their leg does",
    "capacity": "no node receives more than its capacity C_a (paper, Eq. 2)",
    "worker": "operators run on nodes that may host them",
    "requirement": "operators run on nodes that have what they require, in zones where they may be",
    "minimum-capacity": "every node had C_min available when it was chosen (paper, Eq. 3)",
    "replica-bandwidth": "no instance needs more than the threshold t_b (paper, Eq. 4)",
    "link": "no link carries more than its budget",
}
"""Every constraint's name and what it asks, in the order of checking."""

ACCEPTABLE = frozenset(
    {"capacity", "worker", "requirement", "minimum-capacity", "replica-bandwidth", "link"}
)
"""What a strategy may break on purpose. Without the others the query's answer would be wrong."""

TOLERANCE = 1e-9
"""Relative excess that counts as rounding."""


@dataclass(frozen=True)
class Violation:
    """One place where a plan breaks a constraint.

    Attributes:
        constraint: its name in `CONSTRAINTS`.
        where: id of the node, name of the pair, ``source->target`` of the link or the column.
        amount: the plan's value, in the constraint's unit (tuples/s, or a count).
        limit: the value that the constraint allows.
        text: the same as one line for a person.
        accepted: whether the strategy breaks this constraint on purpose and the plan says so.
    """

    constraint: str
    where: str
    amount: float
    limit: float
    text: str
    accepted: bool


@dataclass(frozen=True)
class Report:
    """What `verify` found.

    Attributes:
        violations: the worst of each constraint, spelled out.
        counts: exact number of violations of every constraint that was checked. A plan that breaks
            ``structure`` is checked no further.
        accepted: constraints the plan says it breaks on purpose.
    """

    violations: tuple[Violation, ...]
    counts: Mapping[str, int]
    accepted: frozenset[str]

    @property
    def ok(self) -> bool:
        """Whether the plan breaks nothing."""
        return not any(self.counts.values())

    @property
    def honest(self) -> bool:
        """Whether the plan breaks nothing but what it says it does."""
        return all(name in self.accepted for name, count in self.counts.items() if count)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values for JSON; a limit that is not finite is None."""
        return {
            "ok": self.ok,
            "honest": self.honest,
            "constraints": {
                name: {"violations": count, "accepted": name in self.accepted}
                for name, count in self.counts.items()
            },
            "violations": [
                {
                    name: None if isinstance(value, float) and not np.isfinite(value) else value
                    for name, value in asdict(violation).items()
                }
                for violation in self.violations
            ],
        }

    def summary(self) -> str:
        """One line for a person."""
        if self.ok:
            return f"keeps all {len(self.counts)} constraints"
        broken = [
            f"{name} ({count}{', on purpose' if name in self.accepted else ''})"
            for name, count in self.counts.items()
            if count
        ]
        return f"breaks {', '.join(broken)}"


@dataclass(frozen=True)
class _Finding:
    """Violations of one constraint as columns; ``describe`` gives a row's place and text."""

    constraint: str
    amount: Floats
    limit: Floats
    describe: Callable[[int], tuple[str, str]]


def verify(plan: Plan, spelled_out: int = 20) -> Report:
    """Check every constraint of `CONSTRAINTS`.

    Args:
        plan: any plan, also one read from a file or made by another program.
        spelled_out: violations listed per constraint, the worst first; counts are always exact.

    Raises:
        PlanError: when the plan's parameter ``c_min`` or ``bandwidth`` is not a number.
    """
    accepted = ACCEPTABLE & set(plan.breaks)
    findings = _structure(plan)
    counts = {"structure": sum(len(f.amount) for f in findings)}
    if not counts["structure"]:
        checks = (
            _partitions,
            _complete,
            _route,
            _capacity,
            _worker,
            _requirement,
            _minimum_capacity,
            _replica_bandwidth,
            _link,
        )
        findings = [check(plan) for check in checks]
        counts |= {f.constraint: len(f.amount) for f in findings}
    violations = []
    for f in findings:
        worst = np.argsort(-np.abs(f.amount - f.limit), kind="stable")[:spelled_out]
        for row in worst.tolist():
            where, text = f.describe(row)
            violations.append(
                Violation(
                    constraint=f.constraint,
                    where=where,
                    amount=float(f.amount[row]),
                    limit=float(f.limit[row]),
                    text=text,
                    accepted=f.constraint in accepted,
                )
            )
    return Report(tuple(violations), counts, accepted)


# --- what makes a plan readable at all -----------------------------------------------------------


def _structure(plan: Plan) -> list[_Finding]:
    problem, parts, i = plan.problem, plan.partitions, plan.instances
    pairs, nodes, k = plan.operator_count, len(problem.nodes), len(i)
    findings: list[_Finding] = []

    def require(
        right: bool, where: str, text: str, amount: float = 1.0, limit: float = 0.0
    ) -> bool:
        if not right:
            findings.append(
                _Finding(
                    "structure",
                    np.array([amount]),
                    np.array([limit]),
                    lambda _: (where, f"{where}: {text}"),
                )
            )
        return right

    def offsets(column: Ints, runs: int, values: int, where: str) -> bool:
        shape = f"must rise from 0 to {values} in {runs + 1} entries, every run with at least one"
        right = len(column) == runs + 1 and column[0] == 0 and column[-1] == values
        return require(bool(right and (np.diff(column) > 0).all()), where, shape)

    def within(right: Bools, where: str, text: str) -> bool:
        wrong = np.flatnonzero(~right)
        first = f"row {wrong[0]} {text}" if len(wrong) else ""
        return require(len(wrong) == 0, where, first, amount=len(wrong))

    cut = offsets(parts.offset, 2 * pairs, len(parts.rate), "partitions.offset")
    columns = [i.node, i.left_begin, i.left_end, i.right_begin, i.right_end]
    feeds = np.full(k, -1) if i.feeds is None else i.feeds
    columns.append(feeds)
    if parts.by_key is not None:
        text = f"must have {pairs} entries, one per operator"
        if not require(len(parts.by_key) == pairs, "partitions.by_key", text):
            return findings
    if not require(all(len(c) == k for c in columns), "instances", "columns differ in length"):
        return findings
    known = within((i.pair >= 0) & (i.pair < pairs), "instances.pair", f"is not in 0..{pairs - 1}")
    require(bool((np.diff(i.pair) >= 0).all()), "instances.pair", "rows are not ordered by pair")
    within((i.node >= 0) & (i.node < nodes), "instances.node", f"is not in 0..{nodes - 1}")
    fed = feeds >= 0
    if known and within((feeds < k) & (feeds >= -1), "instances.feeds", "is no row of instances"):
        within(~fed | (i.pair[feeds] == i.pair), "instances.feeds", "is of another operator")
    combines = np.isin(np.arange(k), feeds[fed])
    if cut and known:
        for side, begin, end in (
            ("left", i.left_begin, i.left_end),
            ("right", i.right_begin, i.right_end),
        ):
            count = parts.count[2 * i.pair + (side == "right")]
            filled = (begin < end) | (combines & (begin == end))
            is_range = (begin >= 0) & filled & (end <= count)
            within(is_range, f"instances.{side}", "is not a range of the operator's partitions")
    if plan.virtual_position is not None:
        right = len(plan.virtual_position) == pairs
        require(right, "virtual_position", f"must have {pairs} rows, one per operator")
    if plan.routes is not None and not findings:
        offsets(plan.routes.offset, len(plan.links.rate), len(plan.routes.node), "routes.offset")
        node = plan.routes.node
        within((node >= 0) & (node < nodes), "routes.node", f"is not in 0..{nodes - 1}")
    return findings


# --- what makes the query's answer right ---------------------------------------------------------


def _partitions(plan: Plan) -> _Finding:
    parts = plan.partitions
    rate = plan.graph.input_rate
    total = np.add.reduceat(parts.rate, parts.offset[:-1]) if len(rate) else np.empty(0)
    least = np.minimum.reduceat(parts.rate, parts.offset[:-1]) if len(rate) else np.empty(0)
    # Written so that NaN fails.
    right = ((least > 0) | (rate == 0)) & (np.abs(total - rate) <= TOLERANCE * rate)
    wrong = np.flatnonzero(~right)

    def describe(row: int) -> tuple[str, str]:
        pair, side = divmod(int(wrong[row]), 2)
        where = f"{plan.operator_name(pair)} {('left', 'right')[side]}"
        if not least[wrong[row]] > 0:
            return where, f"{where}: a partition has rate {least[wrong[row]]:.6g}, not above 0"
        sums = f"partitions sum to {total[wrong[row]]:.9g} tuples/s"
        return where, f"{where}: {sums}, its source sends {rate[wrong[row]]:.9g}"

    return _Finding("partitions", total[wrong], rate[wrong], describe)


def _complete(plan: Plan) -> _Finding:
    missing, surplus = coverage(plan)
    wrongly_fed = _wrongly_fed(plan)
    wrong = np.flatnonzero((missing > 0) | (surplus > 0) | wrongly_fed)
    cells = plan.partitions.count[0::2] * plan.partitions.count[1::2]

    def describe(row: int) -> tuple[str, str]:
        pair = int(wrong[row])
        where = plan.operator_name(pair)
        parts = []
        if missing[pair]:
            parts.append(f"{missing[pair]} never joined")
        if surplus[pair]:
            parts.append(f"{surplus[pair]} joined again")
        if not parts:
            return (
                where,
                f"{where}: it cannot be cut so, or its parts do not feed the one that emits",
            )
        return where, f"{where}: of {cells[pair]} pairs of partitions {', '.join(parts)}"

    return _Finding(
        "complete",
        (missing + surplus + wrongly_fed)[wrong].astype(float),
        np.zeros(len(wrong)),
        describe,
    )


def _wrongly_fed(plan: Plan) -> Bools:
    """(p,) operators whose parts are not combined as they must be, or cannot be cut."""
    i, wrong = plan.instances, np.zeros(plan.operator_count, bool)
    if plan.partitions.by_key is not None:
        for one in np.flatnonzero(plan.partitions.by_key).tolist():
            wrong[one] = not _can_be_cut_by_key(plan, one)
    graph, parts = plan.graph, plan.partitions
    one_input = graph.kind[graph.bodies] != JOIN
    if i.feeds is None and not one_input.any():
        return wrong
    feeds = np.full(len(i), -1) if i.feeds is None else i.feeds
    fed = feeds >= 0
    has = np.zeros(len(wrong), bool)
    has[i.pair[fed]] = True
    roots = np.bincount(i.pair[~fed], minlength=len(wrong))
    wrong[i.pair[fed][feeds[feeds[fed]] >= 0]] = True
    wrong |= has & (roots != 1)
    _, consumer, _, rate = graph.links
    wrong |= one_input & ~has & (parts.count[0::2] > graph.parts[graph.bodies])
    for row in np.flatnonzero(has).tolist():
        operator = graph.bodies[row]
        inputs = rate[consumer == operator]
        wrong[row] |= not graph.combines[operator] or not (
            len(inputs) == parts.count[2 * row] and np.allclose(inputs, parts.rates(row, 0))
        )
    return wrong


def _can_be_cut_by_key(plan: Plan, operator: int) -> bool:
    """Whether an operator is a join of many keys, and its partitions are ranges of them."""
    parts = plan.partitions
    if parts.count[2 * operator + 1] > 1:
        return False
    join = plan.graph.joins.get(int(plan.graph.bodies[operator]))
    return join is not None and join.keys > 1 and KeyRanges.of(join, parts.rates(operator, 0)).whole


def _route(plan: Plan) -> _Finding:
    problem, i, routes = plan.problem, plan.instances, plan.routes
    if routes is None:
        return _Finding("route", np.empty(0), np.empty(0), lambda _: ("", ""))
    (begin, end), links = plan.ends, plan.links
    first, last = routes.node[routes.offset[:-1]], routes.node[routes.offset[1:] - 1]
    wrong = np.flatnonzero((first != begin) | (last != end))

    def describe(row: int) -> tuple[str, str]:
        link, ids = int(wrong[row]), problem.nodes.ids
        result = links.consumer[link] < 0
        kind = "output" if result else f"{('left', 'right')[links.side[link]]} input"
        instance = links.producer[link] if result else links.consumer[link]
        where = f"{plan.operator_name(int(i.pair[instance]))} {kind}"
        has = f"route runs from {ids[first[link]]} to {ids[last[link]]}"
        return where, f"{where}: {has}, must run from {ids[begin[link]]} to {ids[end[link]]}"

    return _Finding("route", np.ones(len(wrong)), np.zeros(len(wrong)), describe)


# --- what resources allow ------------------------------------------------------------------------


def _capacity(plan: Plan) -> _Finding:
    nodes, load = plan.problem.nodes, plan.load
    wrong = np.flatnonzero(load > nodes.capacity * (1.0 + TOLERANCE))

    def describe(row: int) -> tuple[str, str]:
        where = str(nodes.ids[wrong[row]])
        has, limit = load[wrong[row]], nodes.capacity[wrong[row]]
        over = f"{has - limit:.6g} over its capacity of {limit:.6g}"
        return where, f"node {where} receives {has:.6g} tuples/s, {over}"

    return _Finding("capacity", load[wrong], nodes.capacity[wrong], describe)


def _worker(plan: Plan) -> _Finding:
    nodes = plan.problem.nodes
    hosted = np.bincount(plan.instances.node, minlength=len(nodes))
    wrong = np.flatnonzero((hosted > 0) & ~nodes.worker)

    def describe(row: int) -> tuple[str, str]:
        where = str(nodes.ids[wrong[row]])
        return (
            where,
            f"node {where} may not host operators but runs {hosted[wrong[row]]} instance(s)",
        )

    return _Finding("worker", hosted[wrong].astype(float), np.zeros(len(wrong)), describe)


def _requirement(plan: Plan) -> _Finding:
    graph, i = plan.graph, plan.instances
    required = graph.requirement[graph.bodies[i.pair]]
    wrong = np.flatnonzero(~graph.requirements.fits(required, i.node))

    def describe(row: int) -> tuple[str, str]:
        k = wrong[row]
        where = f"{plan.operator_name(int(i.pair[k]))}#{plan.replica_number[k]}"
        node, asked = plan.problem.nodes.ids[i.node[k]], graph.requirements.text(int(required[k]))
        return where, f"{where}: runs on {node}, which is no node {asked}"

    return _Finding("requirement", np.ones(len(wrong)), np.zeros(len(wrong)), describe)


def _minimum_capacity(plan: Plan) -> _Finding:
    nodes, minimum = plan.problem.nodes, _parameter(plan, "c_min") or 0.0
    if minimum <= 0:  # a node that is overloaded breaks its capacity only
        return _Finding("minimum-capacity", np.empty(0), np.empty(0), lambda _: ("", ""))
    # A plan does not record in which order its instances were placed. C_min holds in some order
    # only if it holds when the greatest instance on each node comes last.
    greatest = np.zeros(len(nodes))
    np.maximum.at(greatest, plan.instances.node, plan.required_capacity)
    available = nodes.capacity - plan.load + greatest
    chosen = np.zeros(len(nodes), bool)
    chosen[plan.instances.node] = True
    lacks = available < minimum - TOLERANCE * nodes.capacity
    wrong = np.flatnonzero(chosen & lacks)

    def describe(row: int) -> tuple[str, str]:
        where = str(nodes.ids[wrong[row]])
        had = f"had {available[wrong[row]]:.6g} tuples/s available at most when last chosen"
        return where, f"node {where} {had}, C_min is {minimum:.6g}"

    return _Finding("minimum-capacity", available[wrong], np.full(len(wrong), minimum), describe)


def _replica_bandwidth(plan: Plan) -> _Finding:
    threshold = _parameter(plan, "bandwidth")
    limit = np.inf if threshold is None else threshold
    need, i = plan.required_capacity, plan.instances
    wrong = np.flatnonzero(need > limit * (1.0 + TOLERANCE))

    def describe(row: int) -> tuple[str, str]:
        k = wrong[row]
        where = f"{plan.operator_name(int(i.pair[k]))}#{plan.replica_number[k]}"
        return where, f"{where}: receives {need[k]:.6g} tuples/s, t_b allows {limit:.6g}"

    return _Finding("replica-bandwidth", need[wrong], np.full(len(wrong), limit), describe)


def _link(plan: Plan) -> _Finding:
    links, ids = plan.problem.links, plan.problem.nodes.ids
    used, budget = np.zeros(len(links)), links.budget
    if len(links):
        count = len(ids)
        traffic = hops(plan).per_node_pair(count)
        key = traffic.source * count + traffic.target
        budgeted = links.source * count + links.target
        at = np.searchsorted(key, budgeted)
        known = at < len(key)
        known[known] = key[at[known]] == budgeted[known]
        used[known] = traffic.rate[at[known]]
    wrong = np.flatnonzero(used > budget * (1.0 + TOLERANCE))

    def describe(row: int) -> tuple[str, str]:
        k = wrong[row]
        where = f"{ids[links.source[k]]}->{ids[links.target[k]]}"
        return where, f"link {where} carries {used[k]:.6g} tuples/s, its budget is {budget[k]:.6g}"

    return _Finding("link", used[wrong], budget[wrong], describe)


def _parameter(plan: Plan, name: str) -> float | None:
    value = plan.parameters.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PlanError(f"plan: parameters.{name} is {value!r}; use a number of tuples/s or none")
    return float(value)
