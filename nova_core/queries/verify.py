"""Whether a plan of queries does what it must, recomputed from its columns alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from nova_core.model.verify import TOLERANCE, Report, Violation
from nova_core.queries.expansion import expand
from nova_core.queries.plan import WHOLE, Instance, QueryPlan

CONSTRAINTS: Mapping[str, str] = {
    "structure": "the operators are those of the queries, and every index is in range",
    "complete": "every operator runs, every pair of partitions is joined exactly once and every "
    "input is aggregated exactly once",
    "rates": "shares of partitions sum to one, and what instances emit to what their operator does",
    "capacity": "no node receives more than its capacity C_a (paper, Eq. 2)",
    "worker": "operators run on nodes that may host them",
    "minimum-capacity": "no chosen node has less capacity than C_min (paper, Eq. 3)",
    "replica-bandwidth": "no instance needs more than the threshold t_b (paper, Eq. 4)",
    "link": "no link carries more than its budget",
}
"""Every constraint's name and what it asks, in the order of checking."""

_SPELLED_OUT = 20


def verify(plan: QueryPlan) -> Report:
    """Check every constraint; a plan that breaks ``structure`` is checked no further."""
    found: list[Violation] = []
    counts: dict[str, int] = {}
    for name, check in (
        ("structure", _structure),
        ("complete", _complete),
        ("rates", _rates),
        ("capacity", _capacity),
        ("worker", _worker),
        ("minimum-capacity", _minimum),
        ("replica-bandwidth", _bandwidth),
        ("link", _links),
    ):
        here = [
            Violation(name, where, amount, limit, text, name in plan.breaks)
            for where, amount, limit, text in check(plan)
        ]
        counts[name] = len(here)
        here.sort(key=lambda one: -(one.amount - one.limit))
        found += here[:_SPELLED_OUT]
        if name == "structure" and here:
            break
    return Report(tuple(found), counts, frozenset(plan.breaks))


Found = Iterator[tuple[str, float, float, str]]


def _structure(plan: QueryPlan) -> Found:
    wanted = expand(plan.problem, plan.queries, **plan.rewriting)
    if list(wanted.graph.operators) != list(plan.graph.graph.operators):
        yield "operators", 1, 0, "the plan's operators are not those of the queries"
        return
    bodies, nodes = set(wanted.bodies.tolist()), len(plan.problem.nodes)
    for number, one in enumerate(plan.instances):
        if one.operator not in bodies:
            yield "instances", number, 0, f"instance {number}: no operator that can be placed"
        elif not 0 <= one.node < nodes:
            yield "instances", one.node, nodes, f"instance {number}: no node {one.node}"
        elif one.feeds != WHOLE and not (
            0 <= one.feeds < len(plan.instances)
            and plan.instances[one.feeds].operator == one.operator
        ):
            yield "instances", one.feeds, 0, f"instance {number} feeds no instance of its operator"
    for operator in plan.shares:
        if operator not in bodies:
            yield "partitions", operator, 0, f"partitions of {operator}, which cannot be cut"


def _complete(plan: QueryPlan) -> Found:
    of: dict[int, list[Instance]] = {}
    for one in plan.instances:
        of.setdefault(one.operator, []).append(one)
    for operator in plan.graph.bodies.tolist():
        mine, name = of.get(operator, []), plan.graph.graph[operator].id
        kind, inputs = plan.graph.graph[operator].kind, plan.graph.graph[operator].inputs
        if operator in plan.shares:
            grid = np.zeros([len(side) for side in plan.shares[operator]], np.int64)
            inside = True
            for one in mine:
                for (begin, end), size in zip((one.left, one.right), grid.shape, strict=True):
                    inside &= 0 <= begin < end <= size
                grid[slice(*one.left), slice(*one.right)] += 1
            wrong = int((grid != 1).sum())
            if wrong or not inside or any(one.feeds != WHOLE for one in mine):
                what = "pairs of partitions" if kind == "join" else "partitions"
                text = f"{name}: {wrong} of {grid.size} {what} are not there exactly once"
                yield name, wrong or 1, 0, text
            continue
        roots = [one for one in mine if one.feeds == WHOLE]
        if len(roots) != 1:
            yield name, len(roots), 1, f"{name}: {len(roots)} instances emit its result, not one"
            continue
        if len(mine) == 1:
            size = 1 if kind == "join" else len(inputs)
            if roots[0].left != (0, size) or roots[0].right != (0, 1):
                yield name, 1, 0, f"{name}: its only instance does not take all inputs"
            continue
        taken = np.zeros(len(inputs), np.int64)
        for one in mine:
            taken[slice(*one.left)] += 1
        wrong = int((taken != 1).sum())
        if wrong or not plan.graph.combines[operator]:
            yield name, wrong or 1, 0, f"{name}: {wrong} inputs are not aggregated exactly once"
        if any(one.feeds != WHOLE and plan.instances[one.feeds].feeds != WHOLE for one in mine):
            yield name, 1, 0, f"{name}: an instance feeds one that feeds another"


def _rates(plan: QueryPlan) -> Found:
    for operator, sides in plan.shares.items():
        for share in sides:
            if not ((share > 0).all() and math.isclose(share.sum(), 1.0, rel_tol=1e-9)):
                name = plan.graph.graph[operator].id
                text = f"{name}: shares of its partitions sum to {share.sum():g}, not 1"
                yield name, float(share.sum()), 1.0, text
    # Every instance of a cut join receives its share; all others all there is, once.
    producer, consumer, side, rate = plan.graph.links
    links = plan.links
    outer = links.logical >= 0
    carried = np.bincount(links.logical[outer], links.rate[outer], len(rate))
    wanted = rate.copy()
    for row in np.flatnonzero(np.isin(consumer, list(plan.shares))).tolist():
        operator = int(consumer[row])
        if plan.graph.graph[operator].kind == "join":
            # Each rectangle receives its range of one input: what is sent more than once is so for
            # ranges of the other.
            share, pick = plan.shares[operator][side[row]], ("left", "right")[side[row]]
            ranges = [getattr(o, pick) for o in plan.instances if o.operator == operator]
            wanted[row] *= sum(float(share[slice(*each)].sum()) for each in ranges)
    bad = np.abs(carried - wanted) > 1e-9 * np.maximum(wanted, 1e-300)
    for row in np.flatnonzero(bad).tolist():
        names = plan.graph.graph[int(producer[row])].id, plan.graph.graph[int(consumer[row])].id
        text = f"{names[0]} -> {names[1]}: {carried[row]:g} tuples/s, not {wanted[row]:g}"
        yield names[0], float(carried[row]), float(wanted[row]), text


def _capacity(plan: QueryPlan) -> Found:
    load, nodes = plan.load, plan.problem.nodes
    for node in np.flatnonzero(load > nodes.capacity * (1 + TOLERANCE)).tolist():
        name, amount, limit = str(nodes.ids[node]), float(load[node]), float(nodes.capacity[node])
        yield name, amount, limit, f"{name}: {amount:g} tuples/s arrive, C_a is {limit:g}"


def _worker(plan: QueryPlan) -> Found:
    nodes = plan.problem.nodes
    for node in np.unique(plan.node[~nodes.worker[plan.node]]).tolist():
        name = str(nodes.ids[node])
        yield name, 1, 0, f"{name}: operators run there, but it is no worker"


def _minimum(plan: QueryPlan) -> Found:
    nodes, least = plan.problem.nodes, float(plan.parameters.get("c_min") or 0.0)
    for node in np.unique(plan.node[nodes.capacity[plan.node] < least]).tolist():
        name, amount = str(nodes.ids[node]), float(nodes.capacity[node])
        yield name, amount, least, f"{name}: C_a is {amount:g} tuples/s, C_min {least:g}"


def _bandwidth(plan: QueryPlan) -> Found:
    limit = plan.parameters.get("bandwidth")
    if limit is None:
        return
    for number in np.flatnonzero(plan.required > limit * (1 + TOLERANCE)).tolist():
        name, amount = (
            plan.graph.graph[plan.instances[number].operator].id,
            float(plan.required[number]),
        )
        yield (
            name,
            amount,
            limit,
            f"{name}: an instance needs {amount:g} tuples/s, t_b is {limit:g}",
        )


def _links(plan: QueryPlan) -> Found:
    budget = plan.problem.links
    if not len(budget):
        return
    count, (start, stop) = len(plan.problem.nodes), plan.ends
    keys, of = np.unique(start * count + stop, return_inverse=True)
    carried = dict(zip(keys.tolist(), np.bincount(of, plan.links.rate).tolist(), strict=True))
    ids = plan.problem.nodes.ids
    rows = zip(budget.source.tolist(), budget.target.tolist(), budget.budget.tolist(), strict=True)
    for one, other, limit in rows:
        amount = carried.get(one * count + other, 0.0)
        if amount > limit * (1 + TOLERANCE):
            name = f"{ids[one]}->{ids[other]}"
            yield name, amount, limit, f"{name}: {amount:g} tuples/s, its budget is {limit:g}"
