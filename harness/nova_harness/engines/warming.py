"""Plans that put operators on given hosts, to measure them there, or to warm the engine up."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Ints, Problem

# Rate of each source while the engine warms up, tuples/s.
WARMING_RATE = 1000.0


def plan_on(
    problem: Problem, name: str, instances: Callable[[int], tuple[Ints, Ints | None]]
) -> Plan:
    """A plan of a problem's pairs, or of the operators of its queries.

    Args:
        problem: of the experiment.
        name: of the strategy.
        instances: for a number of operators, the nodes of each operator in turn, and the number of
            pieces of each left input, or None for whole operators.
    """
    from nova_core.model.expansion import Rewriting, graph_of
    from nova_core.model.graph import JOIN
    from nova_core.model.partitions import Instances, Partitions
    from nova_core.model.plan import Plan

    rewriting = Rewriting(push_filters=True, split_aggregates=True)
    graph = graph_of(problem, rewriting)
    rate = graph.input_rate
    count = len(rate) // 2
    node, pieces = instances(count)
    if pieces is None:
        pieces = np.ones(count, np.int64)
    else:
        # Only joins are cut here: to cut aggregates takes more than a range.
        joins = graph.kind[graph.bodies] == JOIN
        first = np.cumsum(pieces) - pieces
        rows = np.concatenate(
            [
                np.arange(b, b + (k if j else 1))
                for b, k, j in zip(first, pieces, joins, strict=True)
            ]
        )
        node, pieces = node[rows], np.where(joins, pieces, 1)
    cuts = np.ones(2 * count, np.int64)
    cuts[0::2] = pieces
    left = np.concatenate([np.arange(k) for k in pieces])
    facts: dict[str, Any] = {
        "problem": problem,
        "strategy": name,
        "objective": "latency",
        "partitions": Partitions(
            np.concatenate([[0], np.cumsum(cuts)]), np.repeat(rate / cuts, cuts)
        ),
        "instances": Instances(
            pair=np.repeat(np.arange(count), pieces),
            node=node,
            left_begin=left,
            left_end=left + 1,
            right_begin=np.zeros_like(left),
            right_end=np.ones_like(left),
        ),
        "breaks": ("capacity",),
    }
    return Plan(**facts, rewriting=rewriting)


def warming_plan(problem: Problem, hosts: Collection[str] | None = None) -> Plan:
    """Joins on every host, so that each has run all operators before they are needed.

    Hosts are assigned to the joins in turn; a join's left input is cut into as many pieces as it
    has hosts, and each piece gets the whole right input.

    Args:
        problem: with the joins.
        hosts: names of its nodes that are used; all by default.
    """
    ids = problem.nodes.ids
    used = np.arange(len(ids)) if hosts is None else np.flatnonzero(np.isin(ids, list(hosts)))

    def dealt(count: int) -> tuple[Ints, Ints]:
        turns = np.resize(used, max(count, len(used)))
        hosts = [turns[one::count] for one in range(count)]
        return np.concatenate(hosts), np.array([len(one) for one in hosts])

    return plan_on(problem, "warming up", dealt)
