"""Phase III: from virtual positions to nodes, by the kernels over a capacity-augmented k-d tree.

First every join is placed whole, largest first, on the cheapest near node with room. With
refinement, joins are then relocated, swapped and ejected until that stops paying. Cuts follow,
first of joins that fit nowhere whole, then of joins that get cheaper in pieces. The same search
then runs over the pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova_core.errors import InfeasibleError
from nova_core.model.expansion import graph_of
from nova_core.model.partitions import Instances, Partitions
from nova_core.model.problem import Bools, Floats, Ints, Problem
from nova_core.placement.able_hosts import AbleHosts, able_hosts
from nova_core.placement.geometric_median import weighted_distance
from nova_core.placement.kernels import assign, cut, merge, refine, spread, tuning
from nova_core.placement.kernels.capacity_tree import CapacityTree, build, write_free
from nova_core.placement.kernels.items import Candidates, Items, LinkRoom, Pairs
from nova_core.placement.kernels.ranking import busiest_sinks
from nova_core.placement.partitioning import partition_count


@dataclass(frozen=True)
class Assignment:
    """The result of Phase III.

    Attributes:
        partitions: how inputs are cut.
        instances: which instances run where.
        cuts: number of joins that run in more than one instance.
    """

    partitions: Partitions
    instances: Instances
    cuts: int


@dataclass
class Assigner:
    """The working state of one run of Phase III."""

    problem: Problem
    pairs: Pairs
    tree: CapacityTree
    links: LinkRoom
    items: Items
    candidates: Candidates
    capacity: Floats
    order: Ints

    @classmethod
    def start(
        cls,
        problem: Problem,
        anchors: Floats,
        points: Floats,
        weights: Floats,
        maximum: Floats,
        *,
        by_rate: bool,
        c_min: float,
        bandwidth: float,
        on_full: str,
        refine: bool,
    ) -> Assigner:
        """Set up the state.

        Args:
            problem: to place.
            anchors: (p, 3, d) coordinates of each pair's sources and sink, ms.
            points: (p, d) virtual positions, ms.
            weights: (p, 3) objective weights of each pair's legs.
            maximum: (p,) p_max of each pair, tuples/s (Eq. 7).
            by_rate: whether a piece's legs weigh by its own rates.
            c_min: C_min, tuples/s (Eq. 3).
            bandwidth: t_b, tuples/s; ``inf`` for none (Eq. 4).
            on_full: ``expand`` to refuse what cannot fit, ``spread`` to overload.
            refine: whether refinement follows; it decides the memory layout.

        Raises:
            InfeasibleError: when no node may host, or the joins need more than all nodes have.
        """
        hosts = host_nodes(problem, c_min)
        if not hosts.any():
            raise InfeasibleError(
                f"{problem.name}: no worker has a capacity above 0 and C_min = {c_min:g} tuples/s",
                float(problem.required_capacity.sum()),
            )
        able = AbleHosts(hosts, np.empty(0, np.int64), None)
        if problem.requires:
            able = able_hosts(graph_of(problem), hosts, problem.name)
        hosts, needs, meets = able
        node = np.flatnonzero(hosts)
        needed = float(problem.required_capacity.sum())
        available = float(problem.nodes.capacity[node].sum())
        if needed > available * (1 + 1e-9) and on_full == "expand":
            raise InfeasibleError(_too_little(problem, needed, available), needed - available)
        order = _memory_order(problem, points, refine)
        # Without a new order the columns need no copy.
        pick = order if len(points) >= tuning.IN_CACHE else slice(None)
        nodes, rate = problem.pair_ends[pick], _pair_rates(problem)[pick]
        anchors, points = anchors[pick], points[pick]
        weights, maximum = weights[pick], maximum[pick]
        grid = np.stack(
            [partition_count(rate[:, 0], maximum), partition_count(rate[:, 1], maximum)], axis=1
        )
        position = np.ascontiguousarray(problem.nodes.position)
        access = _access(problem)
        pairs = Pairs(
            node=nodes,
            anchors=_of_one_type(anchors),
            weights=_of_one_type(weights),
            point=_of_one_type(points),
            rate=rate,
            maximum=_of_one_type(maximum),
            grid=grid,
            by_rate=by_rate,
            height=np.empty((0, 3)) if access is None else access[nodes, 1],
            needs=needs[pick] if len(needs) else needs,
            largest=bandwidth,
            minimum=c_min,
        )
        hubs = busiest_sinks(points, problem.sink_node[pick], position, 1)
        hub = hubs[0] if len(hubs) else None
        capacity = np.ascontiguousarray(problem.nodes.capacity)
        tree = build(position, capacity, node, hub, rise=access, meets=meets)
        count = len(problem.matrix)
        items = _empty_items(count + count // 2 + 64, len(tree.node))
        items.free[:-1] = tree.slot[:, -1]
        items.used[0] = count
        items.pair[:count] = np.arange(count)
        items.rectangle[:count, 0::2] = 0
        items.rectangle[:count, 1::2] = grid
        items.rate[:count], items.weights[:count] = rate, weights
        items.size[:count] = rate[:, 0] + rate[:, 1]
        return cls(
            problem=problem,
            pairs=pairs,
            tree=tree,
            links=_link_room(problem),
            items=items,
            candidates=_empty_candidates(0),
            capacity=items.free.copy(),
            order=order,
        )

    @property
    def unplaced(self) -> Bools:
        """(m,) which items have no host yet."""
        slot = self.items.slot[: self.items.used[0]]
        return np.asarray(slot == len(self.tree.node))

    def assign_whole(self, nearby: int, seed: list[int] | None, exact: float = 1.0) -> None:
        """Place every join whole, the largest first; joins without room stay unplaced.

        Args:
            nearby: slots compared for each join.
            seed: of a random perturbation of the order; None keeps the order.
            exact: how exact the search for the nearest is, as in `Search`.
        """
        priority = self.problem.required_capacity
        if seed is not None:
            rng = np.random.default_rng(seed)
            priority = priority * np.exp(rng.normal(scale=tuning.SHAKE, size=len(priority)))
        first_to_last = np.argsort(-priority, kind="stable")
        position = np.empty(len(self.order), np.int64)
        position[self.order] = np.arange(len(self.order))
        order = position[first_to_last]
        assign.assign_whole(self.tree, self.links, self.pairs, self.items, order, nearby, exact)

    def free(self) -> Floats:
        """(n,) capacity left on every node, tuples/s; 0 on nodes that are not workers."""
        nodes = self.problem.nodes
        free = np.where(nodes.worker, nodes.capacity, 0.0)
        free[self.tree.node] = self.items.free[:-1]
        return free

    def score(self) -> tuple[float, float]:
        """Unplaced capacity, tuples/s, and the objective of placed items; less is better."""
        placed = ~self.unplaced
        return self.missing(), float(self.items.cost[: len(placed)][placed].sum())

    def update_tree(self) -> None:
        """Bring the tree's free capacities up to date."""
        write_free(self.tree, self.items.free)

    def list_candidates(self, width: int) -> None:
        """List the slots each item may move to."""
        count = int(self.items.used[0])
        spare = (len(self.items.size) - count) * 2 * tuning.PIECE_CANDIDATES
        width = min(width, len(self.tree.node))
        self.candidates = _empty_candidates(count * width + spare)
        assign.list_candidates(
            self.tree, self.pairs, self.items, self.candidates, self.capacity, width
        )

    def improve(self, *, deep: bool = False, only_unplaced: bool = False) -> None:
        """Relocate, swap and eject until it stops paying."""
        state = self.tree, self.links, self.pairs, self.items, self.candidates
        refine.descend(*state, tuning.ROUNDS, deep, only_unplaced)
        self.update_tree()

    def cut_to_fit(self) -> None:
        """Cut unplaced items until their pieces fit."""
        item = 0
        while item != -1:
            item = cut.cut_to_fit(
                self.tree, self.links, self.pairs, self.items, self.candidates, item
            )
            if item != -1:
                self.grow()

    def cut_where_cheaper(self, gain: float) -> None:
        """Cut joins that cost at least the share ``gain`` less in pieces, the worst placed first.

        The search for cuts is the most expensive step, so at scale only the joins that lose most
        against their virtual positions are tried.
        """
        items, pairs, count = self.items, self.pairs, int(self.items.used[0])
        pair = items.pair[:count]
        ideal = weighted_distance(pairs.anchors[pair], items.weights[:count], pairs.point[pair])
        if len(pairs.height):
            ideal += (items.weights[:count] * pairs.height[pair]).sum(axis=1)
        loss = items.cost[:count] - ideal
        order = np.flatnonzero(loss > gain * items.cost[:count])
        order = order[np.argsort(-loss[order], kind="stable")]
        cut.cut_where_cheaper(
            self.tree,
            self.links,
            pairs,
            items,
            self.candidates,
            order[: max(tuning.CUTS_TRIED, count // tuning.CUTS_TRIED_SHARE)],
            gain,
        )

    def spread(self, k: int | None) -> int:
        """Overload the k nearest nodes evenly with unplaced items; returns how many pieces."""
        nearby = k or tuning.SPREAD_NEARBY
        while self.items.used[0] + nearby * self.unplaced.sum() > len(self.items.size):
            self.grow()
        state = self.tree, self.links, self.pairs, self.items
        return int(spread.spread(*state, nearby, k or 0))

    def missing(self) -> float:
        """Required capacity that is unplaced, tuples/s."""
        unplaced = self.unplaced
        return float(self.items.size[: len(unplaced)][unplaced].sum())

    @property
    def hopeless(self) -> bool:
        """Whether more is unplaced than all nodes have room for."""
        return bool(self.missing() > self.free().sum() * (1 + 1e-9))

    def waiting(self) -> Bools:
        """(p,) pairs of the problem with unplaced pieces."""
        waiting = np.zeros(len(self.order), bool)
        unplaced = self.unplaced
        waiting[self.order[self.items.pair[: len(unplaced)][unplaced]]] = True
        return waiting

    def finish(self) -> Assignment:
        """Merge pieces that met; write partitions, and instances with node -1 if unplaced."""
        hosts = np.append(self.tree.node, -1)
        items, count, pairs = self.items, int(self.items.used[0]), len(self.pairs.rate)
        if count == pairs:
            node = np.empty(count, np.int64)
            node[self.order] = hosts[items.slot[:count]]
            instances = Instances.whole(node)
            return Assignment(Partitions.whole(self.problem), instances, 0)
        rectangle = items.rectangle
        order = np.lexsort((rectangle[:count, 2], rectangle[:count, 0], items.pair[:count]))
        pair, slot, bounds = items.pair[order], items.slot[order], rectangle[order]
        keep = np.empty(count, bool)
        merge.merge_rectangles(
            pair,
            slot,
            bounds,
            self.pairs.rate,
            self.pairs.maximum,
            self.pairs.grid,
            self.pairs.largest,
            keep,
        )
        pair, slot, bounds = self.order[pair[keep]], slot[keep], bounds[keep]
        # A merged rectangle may begin elsewhere than its first piece.
        order = np.lexsort((bounds[:, 2], bounds[:, 0], pair))
        pair, slot, bounds = pair[order], slot[order], bounds[order]
        is_cut = np.bincount(pair, minlength=pairs) > 1
        whole = ~is_cut[pair]
        bounds[whole] = (0, 1, 0, 1)
        instances = Instances(pair, hosts[slot], *(np.ascontiguousarray(c) for c in bounds.T))
        back = np.argsort(self.order)
        partitions = _partitions(
            self.pairs.rate[back], self.pairs.maximum[back], self.pairs.grid[back], is_cut
        )
        return Assignment(partitions, instances, int(is_cut.sum()))

    def grow(self) -> None:
        """Double the room for items and for pieces' candidates."""
        old, pool = self.items, self.candidates
        self.items = _empty_items(2 * len(old.size), len(self.tree.node))
        for new_column, old_column in zip(self.items, old, strict=True):
            new_column[: len(old_column)] = old_column
        used = int(pool.used[0])
        spare = (len(self.items.size) - int(old.used[0])) * 2 * tuning.PIECE_CANDIDATES
        self.candidates = _empty_candidates(used + spare)
        self.candidates.used[0] = used
        self.candidates.slot[:used], self.candidates.cost[:used] = (
            pool.slot[:used],
            pool.cost[:used],
        )


def _too_little(problem: Problem, needed: float, available: float) -> str:
    graph = graph_of(problem)
    who = graph.requirements.without_room(graph.requirement[graph.bodies])
    return (
        f"{problem.name}: the joins need {needed:g} tuples/s and all workers"
        f"{' that may run them' if who else ''} together have {available:g}: "
        f"{needed - available:g} tuples/s are missing{who}; add capacity, lower rates, or accept "
        "overload with on_full=spread"
    )


def host_nodes(problem: Problem, c_min: float) -> Bools:
    """(n,) nodes that may host: workers with capacity, and at least C_min of it (Eq. 3)."""
    nodes = problem.nodes
    return nodes.worker & (nodes.capacity > 0) & (nodes.capacity >= c_min)


def _of_one_type(values: Floats) -> Floats:
    """A contiguous, writable array; kernels would compile again for read-only ones, as Arrow's."""
    return np.require(values, np.float64, ("C", "W"))


def _pair_rates(problem: Problem) -> Floats:
    """(p, 3) left, right and output rate of every pair, tuples/s."""
    rate = np.empty((len(problem.matrix), 3))
    rate[:, 0], rate[:, 1] = problem.left_rate, problem.right_rate
    rate[:, 2] = problem.matrix.output_rate
    return rate


def _access(problem: Problem) -> Floats | None:
    """(n, 2) access cost that a leg to a node adds, and the node's height alone, ms; or None."""
    height, penalty = problem.nodes.height, problem.nodes.penalty
    if height is None and penalty is None:
        return None
    own = np.zeros(len(problem.nodes)) if height is None else height
    return np.stack([own if penalty is None else own + penalty, own], axis=1)


def _empty_items(count: int, slots: int) -> Items:
    def ints(*shape: int) -> Ints:
        return np.full(shape, -1, np.int64)

    items = Items(
        used=np.zeros(1, np.int64),
        pair=ints(count),
        rectangle=ints(count, 4),
        rate=np.zeros((count, 3)),
        weights=np.zeros((count, 3)),
        size=np.zeros(count),
        slot=ints(count),
        cost=np.zeros(count),
        begin=np.zeros(count, np.int64),
        end=np.zeros(count, np.int64),
        opening=np.zeros(count, np.int64),
        chain=ints(count, 2),
        first=ints(slots + 1),
        free=np.zeros(slots + 1),
    )
    items.free[-1] = np.inf
    return items


def _empty_candidates(count: int) -> Candidates:
    return Candidates(np.zeros(1, np.int64), np.empty(count, np.uint32), np.empty(count))


def _link_room(problem: Problem) -> LinkRoom:
    links, nodes = problem.links, len(problem.nodes)
    if not len(links):
        return LinkRoom(np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0))
    order = np.lexsort((links.target, links.source))
    offset = np.searchsorted(links.source[order], np.arange(nodes + 1))
    return LinkRoom(
        offset.astype(np.int64), links.target[order].astype(np.int64), links.budget[order].copy()
    )


def _partitions(rate: Floats, maximum: Floats, grid: Ints, is_cut: Bools) -> Partitions:
    """Eq. 7 partitions of the pairs that are cut, whole inputs for the others."""
    count = np.where(is_cut[:, None], grid, 1).ravel()
    offset = np.concatenate(([0], np.cumsum(count))).astype(np.int64)
    side_rate = np.ascontiguousarray(rate[:, :2]).ravel()
    maximum = np.repeat(maximum, 2)
    partition_rate = np.repeat(maximum, count)
    last = np.where(count > 1, side_rate - maximum * (count - 1), side_rate)
    partition_rate[offset[1:] - 1] = last
    return Partitions(offset, partition_rate)


def _memory_order(problem: Problem, points: Floats, refine: bool) -> Ints:
    """Order of joins in memory, so that joins used together are neighbours.

    Args:
        problem: to place.
        points: (p, d) virtual positions, ms.
        refine: whether refinement follows the first pass.
    """
    if len(points) < tuning.IN_CACHE:
        return np.arange(len(points))
    if refine:
        return _spatial_order(points)
    return np.argsort(-problem.required_capacity, kind="stable")


def _spatial_order(points: Floats) -> Ints:
    """Order of points along a Z-curve, so that neighbours in space are neighbours in memory."""
    plane = points[:, :2]
    low, span = plane.min(axis=0), np.ptp(plane, axis=0)
    cell = ((plane - low) / np.where(span > 0, span, 1.0) * 65535).astype(np.uint64)
    for shift, mask in ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
        cell = (cell | (cell << np.uint64(shift))) & np.uint64(mask)
    code = cell[:, 0] if cell.shape[1] == 1 else cell[:, 0] | (cell[:, 1] << np.uint64(1))
    return np.argsort(code, kind="stable")
