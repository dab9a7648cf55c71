"""The best placement under capacities, of operators that are whole or cut, by integer programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.evaluation.assignment import AssignmentCosts, Inner
from nova_core.evaluation.bounds import merged, relaxation, require_total_capacity
from nova_core.evaluation.mip import Program
from nova_core.model.expansion import graph_of
from nova_core.model.graph import JOIN
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Ints, Problem
from nova_core.placement.partitioning import (
    maximum_partition_rate,
    partition_count,
    partition_rates,
)

# Seconds to compute how much capacity is lacking where nothing fits.
_LACKING_TIME = 10.0
# Most variables of a program with cuts.
_MOST_VARIABLES = 200_000


@dataclass(frozen=True, eq=False)
class Optimum:
    """The outcome of an exact search.

    Attributes:
        value: cost of the best placement found, in the objective's unit.
        bound: proven lower bound of the cost of any such placement, on whatever nodes.
        plan: the placement.
        candidates: how many pairs of an operator and a node were considered.
    """

    value: float
    bound: float
    plan: Plan
    candidates: int

    @property
    def gap(self) -> float:
        """How far the value may be from the optimum, as a share of it."""
        return max(0.0, self.value - self.bound) / max(abs(self.value), 1e-300)


def exact_optimum(
    problem: Problem,
    objective: str = "latency",
    time_limit: float = 60.0,
    gap: float = 1e-4,
    candidates: int | None = None,
) -> Optimum:
    """The cheapest placement of whole operators that overloads no node; queries stay as written.

    Operators that feed each other are a quadratic assignment, which is solved on all nodes by the
    program of `AssignmentCosts.add`.

    Of others, a placement that uses a column of reduced cost r costs at least r more than the
    relaxation. So columns by which it would cost more than a greedy placement are left out
    beforehand. With ``candidates``, so are others; the least of their reduced costs bounds what
    placements on them cost. Where operators do not fit on the candidates, there are twice as many.

    Args:
        problem: what is placed; links, requirements, C_min and t_b are left out.
        objective: a name of `nova_core.model.objectives`.
        time_limit: seconds for all programs together.
        gap: relative gap at which a placement counts as optimal.
        candidates: nodes considered for an operator in the mean: those with room and the least
            reduced cost. None takes all, as do operators that feed each other.

    Raises:
        InfeasibleError: when whole operators do not fit, with the least capacity that is lacking.
        ProblemError: when the time ran out before any placement was found, or for a limit out of
            range.
    """
    program = Program(time_limit, gap)
    costs = AssignmentCosts(problem, objective, whole=True)
    need = costs.need
    if len(costs.inner.weight):
        placed, bound = _fed_by_each_other(program, costs)
        considered = len(need) * len(costs.hosts)
    else:
        placed, bound, considered = _apart(program, problem, objective, costs, candidates)
    value = costs.total(placed)
    plan = Plan.whole(
        problem,
        costs.hosts[placed],
        "ilp",
        objective,
        parameters={"time_limit": time_limit, "gap": gap},
        breaks=("requirement", "link"),
    )
    return Optimum(value, min(bound + costs.constant, value), plan, considered)


def _fed_by_each_other(program: Program, costs: AssignmentCosts) -> tuple[Ints, float]:
    """(b,) hosts of operators, and a lower bound of what they cost without `constant`."""
    require_total_capacity(costs.need, costs.room)
    placed, _ = _greedy(costs, costs.need)
    costs.keep_room(program, costs.add(program, costs.fits(costs.need)))
    values = program.solve()
    if placed is None or values is not None:
        values = _found(program, values, lambda: lacking(costs.need, costs.room))
        shape = len(costs.need), len(costs.hosts)
        found = values[: shape[0] * shape[1]].reshape(shape).argmax(axis=1)
        if placed is None or costs.total(found) < costs.total(placed):
            placed = found
    return placed, max(program.bound, 0.0)


def _apart(
    program: Program,
    problem: Problem,
    objective: str,
    costs: AssignmentCosts,
    candidates: int | None,
) -> tuple[Ints, float, int]:
    """The same for operators that do not feed each other, and the columns considered."""
    need, room = costs.need, costs.room
    if not len(need):
        return np.empty(0, np.int64), 0.0, 0
    placed, greedy = _greedy(costs, need)
    duals = relaxation(problem, objective, placed)
    # The bound of these duals: for costs too small for the solver they are 0, but its value is not.
    price, limited = duals.node_price[costs.hosts], np.isfinite(room)
    proven = float(duals.body_price.sum() + price[limited] @ room[limited])
    base = min(proven, duals.value)
    limit = greedy - base
    every = len(need) * len(costs.hosts)
    most = every if candidates is None else candidates * len(need)
    while True:
        pair, host, left_out = costs.below(limit, duals, most)
        if placed is not None:  # one placement is possible in any case
            pair, host = merged((pair, host), (np.arange(len(need)), placed), len(costs.hosts))
        cost = costs.of(pair, host)
        _whole_operators(program, cost, pair, host, need, room)
        values = program.solve()
        if not program.infeasible or left_out == np.inf or program.remaining <= 0:
            break
        most *= 2
        program.clear()
    if placed is None or (values is not None and cost @ values < greedy):
        chosen = _found(program, values, lambda: lacking(need, room)) > 0.5
        placed = np.empty(len(need), np.int64)
        placed[pair[chosen]] = host[chosen]
    # A placement on a column that was left out costs at least its reduced cost more than `base`.
    return placed, max(duals.value, min(program.bound, base + left_out)), len(pair)


def _found(
    program: Program, values: Floats | None, lacking: Callable[[], InfeasibleError]
) -> Floats:
    """(c,) the best values of a solved program's variables.

    Raises:
        InfeasibleError: from ``lacking``, when it is proven that there is no solution.
        ProblemError: when there is neither a proof nor a solution.
    """
    if program.infeasible:
        raise lacking()
    if values is None:
        limit = program.time_limit
        raise ProblemError(f"exact optimum: nothing found in {limit:g} s; allow more time")
    return values


def _greedy(costs: AssignmentCosts, need: Floats) -> tuple[Ints | None, float]:
    """Place the largest first, each where it is cheapest beside those before; and their cost.

    A limit for the search, and what is left where it finds nothing better in time. ``None`` and
    ``inf`` when an operator finds no room.
    """
    room, total = costs.room.copy(), 0.0
    if not len(room):
        return None, np.inf
    placed = np.full(len(need), -1)
    linked = defaultdict[int, list[tuple[int, float]]](list)
    for producer, consumer, weight in zip(*(c.tolist() for c in costs.inner), strict=True):
        linked[producer].append((consumer, weight))
        linked[consumer].append((producer, weight))
    for pair in np.argsort(-need, kind="stable").tolist():
        cost = np.where(room >= need[pair], costs.rows(slice(pair, pair + 1))[0], np.inf)
        for other, weight in linked[pair]:
            if placed[other] >= 0:
                cost += weight * costs.apart[placed[other]]
        host = int(np.argmin(cost))
        if cost[host] == np.inf:
            return None, np.inf
        placed[pair], total = host, total + float(cost[host])
        room[host] -= need[pair]
    # A little more, so that rounding does not leave out the columns of this very placement.
    return placed, total * (1.0 + 1e-9)


def _whole_operators(
    program: Program,
    cost: Floats,
    pair: Ints,
    host: Ints,
    need: Floats,
    room: Floats,
    room_cost: float | None = None,
) -> None:
    """Every operator on a host of one of its columns, no host over its room.

    With ``room_cost``, further room can be bought at that cost per unit.
    """
    from scipy.sparse import csr_array, eye_array

    column = np.arange(len(pair))
    limited = np.flatnonzero(np.isfinite(room))
    once = csr_array((np.ones(len(pair)), (pair, column)), shape=(len(need), len(pair)))
    load = csr_array((need[pair], (host, column)), shape=(len(room), len(pair)))
    placed = program.variables(cost)
    terms: dict[int, Any] = {placed: load[limited]}
    if room_cost is not None:
        added = program.variables(np.full(len(room), room_cost), np.inf, whole=False)
        terms[added] = -eye_array(len(room), format="csr")[limited]
    program.limit({placed: once}, 1.0, 1.0)
    program.limit(terms, most=room[limited])


def lacking(need: Floats, room: Floats) -> InfeasibleError:
    """Says how much must be added to the room, at the right hosts, for whole operators to fit."""
    pair, host = np.divmod(np.arange(len(need) * len(room)), len(room))
    program = Program(_LACKING_TIME, 1e-6)
    _whole_operators(program, np.zeros(len(pair)), pair, host, need, room, room_cost=1.0)
    program.solve()
    missing = max(0.0, program.bound)
    return InfeasibleError(
        f"capacity: whole operators do not fit on the nodes that may host; at least {missing:.6g} "
        "tuples/s are missing on them",
        missing,
    )


# --- joins that may be cut ------------------------------------------------------------------------


def exact_optimum_with_cuts(
    problem: Problem,
    sigma: float = 0.4,
    objective: str = "latency",
    time_limit: float = 60.0,
    gap: float = 1e-4,
) -> Optimum:
    """The cheapest placement where every join is whole or cut into the grid of Eq. 7.

    Cells of a grid go to nodes freely; those that share a partition on a node receive it once. A
    join with all cells on one node is whole. A cut join costs the mean over its cells. Other
    operators stay whole.

    Takes about a second for 8 joins on 12 nodes that are half full; where most joins must be cut,
    the time limit may end it first, and `Optimum.bound` says how near it came.

    Args:
        problem: what is placed; links, C_min and t_b are left out.
        sigma: the scaling factor of Eq. 7, from 0 to 1.
        objective: a name of `nova_core.model.objectives`.
        time_limit: seconds.
        gap: relative gap at which a placement counts as optimal.

    Raises:
        InfeasibleError: when the cells do not fit, with what the largest cell or the whole lacks.
        ProblemError: for a problem that is too large, a value out of range, or when the time ran
            out before any placement was found.
    """
    program = Program(time_limit, gap)
    if not 0 <= sigma <= 1:
        raise ProblemError(f"sigma: {sigma!r}; use a value from 0 to 1")
    costs = AssignmentCosts(problem, objective)
    graph, hosts = graph_of(problem), len(costs.hosts)
    left, right = graph.input_rate[::2], graph.input_rate[1::2]
    maximum = maximum_partition_rate(left, right, sigma)
    maximum = np.where(graph.kind[graph.bodies] == JOIN, maximum, np.maximum(left, 1.0))
    rows, columns = partition_count(left, maximum), partition_count(right, maximum)
    cut = rows * columns
    size = int((cut + rows + columns).sum()) * hosts
    size += int((cut[costs.inner.producer] * cut[costs.inner.consumer]).sum()) * hosts**2
    if size > _MOST_VARIABLES:
        raise ProblemError(
            f"exact optimum with cuts: {size} variables, at most {_MOST_VARIABLES} can be solved; "
            "use a smaller problem or a larger sigma"
        )
    require_total_capacity(costs.need, costs.room)
    if not len(costs.need):
        return exact_optimum(problem, objective, time_limit, gap)
    partitions, cells = _grid(left, right, maximum)
    share = 1.0 / np.bincount(cells.pair)[cells.pair]
    cost = costs.rows(slice(None))[cells.pair] * share[:, None]
    inner = _between_cells(costs.inner, cut, share)
    _cut_joins(program, partitions, cells, costs, cost, inner)
    values = _found(program, program.solve(), lambda: _lacking_cut(partitions, cells, costs.room))
    host = values[: cost.size].reshape(cost.shape).argmax(axis=1)
    value = costs.constant + float(cost[np.arange(len(host)), host].sum())
    if len(inner.weight):
        value += float(inner.weight @ costs.apart[host[inner.producer], host[inner.consumer]])
    plan = Plan(
        problem=problem,
        strategy="ilp",
        objective=objective,
        partitions=partitions,
        instances=_instances(partitions, cells, costs.hosts[host]),
        parameters={"sigma": sigma, "time_limit": time_limit, "gap": gap},
        breaks=("link",),
    )
    bound = costs.constant + max(program.bound, 0.0)
    return Optimum(value, min(bound, value), plan, cost.size)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Every pair of partitions, a row each: operator by operator, and row by row of its grid.

    Attributes:
        pair: (c,) the operator.
        left: (c,) index of the left partition among those of all operators and sides.
        right: (c,) index of the right partition.
    """

    pair: Ints
    left: Ints
    right: Ints


def _between_cells(inner: Inner, cut: Ints, share: Floats) -> Inner:
    """Links between cells: each cell of a producer feeds each of its consumer.

    Args:
        inner: links between operators.
        cut: (b,) cells of each operator.
        share: (c,) of each cell of its operator's.
    """
    first = np.cumsum(cut) - cut
    producer, consumer, weight = [], [], []
    for sender, receiver, whole in zip(*(each.tolist() for each in inner), strict=True):
        senders = first[sender] + np.arange(cut[sender])
        receivers = first[receiver] + np.arange(cut[receiver])
        producer.append(np.repeat(senders, len(receivers)))
        consumer.append(np.tile(receivers, len(senders)))
        weight.append(whole * np.outer(share[senders], share[receivers]).ravel())
    if not weight:
        return inner
    return Inner(np.concatenate(producer), np.concatenate(consumer), np.concatenate(weight))


def _grid(left_rate: Floats, right_rate: Floats, maximum: Floats) -> tuple[Partitions, _Cells]:
    inputs = np.stack([left_rate, right_rate], axis=1)
    rates = [partition_rates(r, m) for both, m in zip(inputs, maximum, strict=True) for r in both]
    offset = np.concatenate(([0], np.cumsum([len(r) for r in rates])))
    partitions = Partitions(offset, np.concatenate(rates))
    pair, left, right = [], [], []
    for k in range(len(inputs)):
        a, b, c = offset[2 * k : 2 * k + 3]
        rows, columns = np.meshgrid(np.arange(a, b), np.arange(b, c), indexing="ij")
        pair.append(np.full(rows.size, k))
        left.append(rows.ravel())
        right.append(columns.ravel())
    return partitions, _Cells(np.concatenate(pair), np.concatenate(left), np.concatenate(right))


def _cut_joins(
    program: Program,
    partitions: Partitions,
    cells: _Cells,
    costs: AssignmentCosts,
    cost: Floats,
    inner: Inner,
) -> None:
    """Variables: each cell on each host, each partition's presence on each host, links' costs.

    Presence need not be an integer: it only costs room, so it takes the largest value of its cells.
    """
    from scipy.sparse import csr_array, eye_array, kron

    count, parts, hosts = len(cells.pair), len(partitions.rate), len(costs.hosts)
    on_hosts = eye_array(hosts)
    fits = costs.fits(partitions.rate[cells.left] + partitions.rate[cells.right])
    placed = program.variables(cost.ravel(), fits.ravel().astype(np.float64))
    present = program.variables(np.zeros(parts * hosts), whole=False)
    program.limit({placed: kron(eye_array(count), np.ones((1, hosts)))}, 1.0, 1.0)
    for part in (cells.left, cells.right):
        brought = csr_array((-np.ones(count), (np.arange(count), part)), shape=(count, parts))
        program.limit({placed: eye_array(count * hosts), present: kron(brought, on_hosts)}, most=0)
    limited = np.flatnonzero(np.isfinite(costs.room))
    load = csr_array(kron(partitions.rate[None, :], on_hosts))[limited]
    program.limit({present: load}, most=costs.room[limited])
    costs.add_products(program, placed, count, inner)


def _instances(partitions: Partitions, cells: _Cells, node: Ints) -> Instances:
    """Cells as instances; neighbours in a grid's row that share a node merge, then equal rows."""
    rows: list[list[int]] = []
    for k, grid in enumerate(np.split(node, np.cumsum(np.bincount(cells.pair))[:-1])):
        above: dict[tuple[int, int, int], list[int]] = {}
        for row, line in enumerate(grid.reshape(-1, partitions.count[2 * k + 1])):
            changes = np.flatnonzero(np.diff(line)) + 1
            for begin, end in pairwise([0, *changes.tolist(), len(line)]):
                run = (int(line[begin]), begin, end)
                if run in above and above[run][3] == row:
                    above[run][3] += 1
                else:
                    above[run] = [k, run[0], row, row + 1, begin, end]
                    rows.append(above[run])
    return Instances(*np.array(rows, np.int64).T)


def _lacking_cut(partitions: Partitions, cells: _Cells, room: Floats) -> InfeasibleError:
    largest = float((partitions.rate[cells.left] + partitions.rate[cells.right]).max())
    missing = largest - float(room.max())
    text = "the cells of cut joins do not fit on the nodes that may host"
    if missing > 0:
        text = f"the largest cell needs {largest:.6g} tuples/s, the largest node has {room.max():g}"
    return InfeasibleError(f"capacity: {text}", max(0.0, missing))
