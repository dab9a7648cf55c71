"""The best placement of joins that may be cut, for small problems, by mixed-integer programming."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.evaluation.bounds import AssignmentCosts, require_total_capacity
from nova_core.evaluation.exact import Optimum, check_limits
from nova_core.evaluation.mip import Model, solve
from nova_core.model.plan import Instances, Partitions, Plan
from nova_core.model.problem import Floats, Ints, Problem
from nova_core.placement.partitioning import (
    maximum_partition_rate,
    partition_count,
    partition_rates,
)

_MOST_VARIABLES = 200_000


@dataclass(frozen=True, eq=False)
class _Cells:
    """Every pair of partitions, a row each: pair by pair, and row by row of its grid.

    Attributes:
        pair: (c,) the pair.
        left: (c,) index of the left partition among those of all pairs and sides.
        right: (c,) index of the right partition.
    """

    pair: Ints
    left: Ints
    right: Ints


def exact_optimum_with_cuts(
    problem: Problem,
    sigma: float = 0.4,
    objective: str = "latency",
    time_limit: float = 60.0,
    gap: float = 1e-4,
) -> Optimum:
    """The cheapest placement where every join is whole or cut into the grid of Eq. 7.

    Cells of a grid go to nodes freely; those that share a partition on a node receive it once. A
    join with all cells on one node is whole. A cut join costs the mean over its cells.

    Takes about a second for 8 joins on 12 nodes that are half full; where most joins must be cut,
    the time limit may end it first, and `Optimum.bound` says how near it came.

    Args:
        problem: what is placed; links, C_min and t_b are left out.
        sigma: the scaling factor of Eq. 7, from 0 to 1.
        objective: a name of `nova_core.placement.objectives`.
        time_limit: seconds.
        gap: relative gap at which a placement counts as optimal.

    Raises:
        InfeasibleError: when the cells do not fit, with what the largest cell or the whole lacks.
        ProblemError: for a problem that is too large, a value out of range, or when the time ran
            out before any placement was found.
    """
    check_limits(time_limit, gap)
    if not 0 <= sigma <= 1:
        raise ProblemError(f"sigma: {sigma!r}; use a value from 0 to 1")
    deadline = time.monotonic() + time_limit
    costs = AssignmentCosts(problem, objective)
    hosts = len(costs.hosts)
    maximum = maximum_partition_rate(problem.left_rate, problem.right_rate, sigma)
    rows = partition_count(problem.left_rate, maximum)
    columns = partition_count(problem.right_rate, maximum)
    size = int((rows * columns + rows + columns).sum()) * hosts
    if size > _MOST_VARIABLES:
        raise ProblemError(
            f"exact optimum with cuts: {size} variables, at most {_MOST_VARIABLES} can be solved; "
            "use a smaller problem or a larger sigma"
        )
    require_total_capacity(problem.required_capacity, costs.room)
    partitions, cells = _grid(problem, maximum)
    model = _model(partitions, cells, costs)
    found = solve(model, deadline - time.monotonic(), gap)
    if found.infeasible:
        raise _lacking(partitions, cells, costs.room)
    if found.x is None:
        raise ProblemError(f"exact optimum: nothing found in {time_limit:g} s; allow more time")
    placed = found.x[: len(cells.pair) * hosts].reshape(-1, hosts)
    host = placed.argmax(axis=1)
    value = float(model.cost[: placed.size].reshape(placed.shape)[np.arange(len(host)), host].sum())
    plan = Plan(
        problem=problem,
        strategy="ilp",
        objective=objective,
        partitions=partitions,
        instances=_instances(partitions, cells, costs.hosts[host]),
        parameters={"sigma": sigma, "time_limit": time_limit, "gap": gap},
        breaks=("link",),
    )
    return Optimum(value, min(max(found.bound, 0.0), value), plan)


def _grid(problem: Problem, maximum: Floats) -> tuple[Partitions, _Cells]:
    inputs = np.stack([problem.left_rate, problem.right_rate], axis=1)
    rates = [partition_rates(r, m) for both, m in zip(inputs, maximum, strict=True) for r in both]
    offset = np.concatenate(([0], np.cumsum([len(r) for r in rates])))
    partitions = Partitions(offset, np.concatenate(rates))
    pair, left, right = [], [], []
    for k in range(len(problem.matrix)):
        a, b, c = offset[2 * k : 2 * k + 3]
        rows, columns = np.meshgrid(np.arange(a, b), np.arange(b, c), indexing="ij")
        pair.append(np.full(rows.size, k))
        left.append(rows.ravel())
        right.append(columns.ravel())
    return partitions, _Cells(np.concatenate(pair), np.concatenate(left), np.concatenate(right))


def _model(partitions: Partitions, cells: _Cells, costs: AssignmentCosts) -> Model:
    """Variables: each cell on each host, then each partition's presence on each host.

    Presence need not be an integer: it only costs room, so it takes the largest value of the cells
    that want it.
    """
    from scipy.sparse import block_array, csr_array, eye_array, kron

    count, parts, hosts = len(cells.pair), len(partitions.rate), len(costs.hosts)
    each = np.arange(count)
    on_hosts = eye_array(hosts)
    once = kron(eye_array(count), np.ones((1, hosts)))
    bring = [
        kron(csr_array((-np.ones(count), (each, part)), shape=(count, parts)), on_hosts)
        for part in (cells.left, cells.right)
    ]
    limited = np.flatnonzero(np.isfinite(costs.room))
    load = csr_array(kron(partitions.rate[None, :], on_hosts))[limited]
    rows = block_array(
        [
            [once, None],
            [eye_array(count * hosts), bring[0]],
            [eye_array(count * hosts), bring[1]],
            [None, load],
        ],
        format="csr",
    )
    below = rows.shape[0] - count
    most = np.zeros(rows.shape[0])
    most[:count] = 1.0
    most[count * (1 + 2 * hosts) :] = costs.room[limited]
    need = partitions.rate[cells.left] + partitions.rate[cells.right]
    fits = need[:, None] <= costs.room * (1.0 + 1e-12)
    share = 1.0 / np.bincount(cells.pair)[cells.pair]
    cost = costs.rows(slice(0, int(cells.pair[-1]) + 1))
    return Model(
        cost=np.concatenate([(cost[cells.pair] * share[:, None]).ravel(), np.zeros(parts * hosts)]),
        rows=rows,
        least=np.concatenate([np.ones(count), np.full(below, -np.inf)]),
        most=most,
        integral=np.arange((count + parts) * hosts) < count * hosts,
        upper=np.concatenate([fits.ravel().astype(np.float64), np.ones(parts * hosts)]),
    )


def _instances(partitions: Partitions, cells: _Cells, node: Ints) -> Instances:
    """Cells as instances; neighbours in a grid's row that share a node merge, then equal rows."""
    offset = partitions.offset
    found: list[list[int]] = []
    for k in range(int(cells.pair[-1]) + 1):
        mine = cells.pair == k
        left = cells.left[mine] - offset[2 * k]
        right = cells.right[mine] - offset[2 * k + 1]
        runs: list[list[int]] = []
        for where, row, column in zip(node[mine], left, right, strict=True):
            last = runs[-1] if runs else None
            if last and last[1] == where and last[2] == row and last[5] == column:
                last[5] = int(column) + 1
            else:
                runs.append([k, *map(int, (where, row, row + 1, column, column + 1))])
        merged: dict[tuple[int, int, int], list[int]] = {}
        for run in runs:
            above = merged.get((run[1], run[4], run[5]))
            if above and above[3] == run[2]:
                above[3] = run[3]
            else:
                merged[run[1], run[4], run[5]] = run
                found.append(run)
    return Instances(*np.array(found, np.int64).T)


def _lacking(partitions: Partitions, cells: _Cells, room: Floats) -> InfeasibleError:
    largest = float((partitions.rate[cells.left] + partitions.rate[cells.right]).max())
    missing = largest - float(room.max())
    text = "the cells of cut joins do not fit on the nodes that may host"
    if missing > 0:
        text = f"the largest cell needs {largest:.6g} tuples/s, the largest node has {room.max():g}"
    return InfeasibleError(f"capacity: {text}", max(0.0, missing))


__all__ = ["exact_optimum_with_cuts"]
