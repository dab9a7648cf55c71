"""What events do to nodes and links, and to the whole plan; sources and sinks are the demand's.

See the paper, section 3.5. Handlers take the placer, the event, and whether nodes may be
overloaded; they raise `NoRoomError` when a join fits nowhere, and `ProblemError` for events with
unknown names. The caller then undoes their changes.
"""

from __future__ import annotations

import heapq
import math
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import UNSET

from nova_core.errors import InfeasibleError, ProblemError, ProblemWarning
from nova_core.io.syntax import listed
from nova_core.model.problem import GREATEST_LATENCY, Floats
from nova_core.model.verify import TOLERANCE
from nova_core.placement.kernels import tuning
from nova_core.placement.kernels.state import hosts as kernels
from nova_core.placement.kernels.state.tables import LEG, LINKED
from nova_core.placement.live.documents import plan_of, problem_of
from nova_core.placement.live.events import (
    AddOperator,
    AddPair,
    AddQuery,
    AddSource,
    AddWorker,
    ChangeCapacity,
    ChangeLink,
    ChangeRate,
    ChangeSelectivity,
    FailNode,
    MoveNode,
    MoveSink,
    Pin,
    Rebalance,
    RemoveOperator,
    RemovePair,
    RemoveQuery,
    RemoveSource,
    RemoveWorker,
    finite,
)
from nova_core.placement.live.naming import or_default, positive, row_of
from nova_core.placement.live.pieces import Pieces
from nova_core.placement.live.placer import NoRoomError, Placer
from nova_core.placement.live.state import WHOLE, Link, LiveState
from nova_core.placement.live.tables import IN_PIECES, NOWHERE, NodeRows, SourceRows
from nova_core.placement.queries.placing import FEW_BODIES, place_queries
from nova_core.suggestions import unknown

# --- nodes and links ------------------------------------------------------------------------------


def _may_host(state: LiveState, node: int) -> bool:
    n = state.nodes
    capacity = n.capacity.item(node)
    hosts: bool = n.alive.item(node) and n.worker.item(node)
    return hosts and capacity > 0 and capacity >= state.c_min


def _update_index(state: LiveState, node: int) -> None:
    """Update the index after a change of a node's position, capacity or role."""
    n, index = state.nodes, state.index
    old, new = index.row_of(node), None
    if _may_host(state, node):
        access = n.extra.item(node, 0) + n.extra.item(node, 1)
        new = [*n.position[node].tolist(), access, n.free.item(node)]
    if new == (None if old is None else old.tolist()):
        return
    offer = state.offer(node)
    index.replace(node, None if new is None else np.array(new), offer)
    state.on_undo(index.replace, node, old, offer)


def _position(state: LiveState, coordinates: list[float], where: str) -> Floats:
    d = state.nodes.position.shape[1]
    if len(coordinates) != d or not all(abs(x) <= GREATEST_LATENCY for x in coordinates):
        raise ProblemError(
            f"{where}: position {coordinates}; {d} numbers of ms are needed, from "
            f"{-GREATEST_LATENCY:g} to {GREATEST_LATENCY:g}"
        )
    return np.array(coordinates)


# Nodes that a warning names.
_NAMED = 5


def _located(
    state: LiveState, latency: Mapping[str, float | list[float]], where: str
) -> tuple[Floats, float]:
    """Position and height that fit measured latencies to other nodes, which do not move.

    Warns:
        ProblemWarning: naming latencies that fit nothing, and how far the node is from those.
    """
    from nova_core.costspace.incremental import located

    metrics = state.base.metrics
    if metrics:
        raise ProblemError(
            f"{where}: latency: positions also measure {', '.join(metrics)}, which latencies do "
            "not tell; give a position"
        )
    rows, measured = [], []
    for name, values in latency.items():
        rows.append(row_of(state.node_index, "node", name, f"{where}: latency: "))
        measured.append(np.atleast_1d(np.asarray(values, np.float64)))
        greatest = measured[-1].max()
        if not greatest <= GREATEST_LATENCY:
            raise ProblemError(
                f"{where}: latency: {name}: {greatest:g} ms; expected 0 to {GREATEST_LATENCY:g}"
            )
    nodes = state.nodes
    height = nodes.extra[rows, 0]
    try:
        location, fit = located(nodes.position[rows], height if height.any() else None, measured)
    except ProblemError as error:
        raise ProblemError(f"{where}: {error}") from None
    if fit.absurd.any():
        named = [
            f"{name} {ms:,.0f} ms (placed at {estimate:,.0f} ms)"
            for name, ms, estimate, absurd in zip(
                latency, fit.measured, fit.estimate, fit.absurd, strict=True
            )
            if absurd
        ]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        warnings.warn(
            f"{where}: latencies that fit nothing: {', '.join(named[:_NAMED])}{more}; the node is "
            "where most of what it measured fits: are all of these ms? Else measure again",
            ProblemWarning,
            stacklevel=2,
        )
    return location.position, location.height or 0.0


def add_worker(placer: Placer, event: AddWorker, overload: bool) -> None:
    """A node joins; nothing moves to it yet."""
    s, new_node = placer.state, event.node
    n, where = s.nodes, f"add-worker {new_node.id!r}"
    if new_node.id in s.node_index:
        raise ProblemError(f"{where}: there is a node of that name")
    if new_node.position is not UNSET and event.latency is UNSET:
        position, height = _position(s, new_node.position, where), or_default(new_node.height, 0.0)
    elif new_node.position is UNSET and event.latency is not UNSET:
        if or_default(new_node.height, None) is not None:
            raise ProblemError(f"{where}: height: latencies give the height; leave one of them out")
        position, height = _located(s, event.latency, where)
    else:
        raise ProblemError(f"{where}: expected either a position or latencies to other nodes")
    row = s.next_node()
    n.ids.append(new_node.id)
    n.facts.append(new_node)
    s.on_undo(_forget, n, row, n.ids, n.facts)
    n.position[row] = position
    n.extra[row] = [height, or_default(new_node.penalty, 0.0)]
    n.capacity[row] = n.free[row] = finite(new_node.capacity, where)
    n.worker[row] = True if new_node.worker is UNSET else new_node.worker
    n.alive[row], n.first[row], n.pieces[row] = True, NOWHERE, 0
    s.put(s.node_index, new_node.id, row)
    _update_index(s, row)


def _forget(rows: NodeRows | SourceRows, row: int, *lists: list[Any]) -> None:
    """Undo that a row was added last."""
    rows.used = row
    for column in lists:
        column.pop()


def _retire(placer: Placer, node: int, overload: bool) -> None:
    """Remove a node without sources and sinks; its joins are placed elsewhere."""
    s, n = placer.state, placer.state.nodes
    s.assign(n, "alive", node, False)
    s.drop(s.node_index, n.ids[node])
    _update_index(s, node)
    for link in list(s.links_at.get(node, ())):
        s.drop(s.budget, link)
        s.drop(s.link_free, link)
        s.drop(s.overfull, link)
        other = link[0] if link[1] == node else link[1]
        s.drop(s.links_at[other], link)
        s.drop(s.links_at[node], link)
    if residents := s.residents.of(node):
        placer.place_all(placer.largest_first(residents), overload, leave=True)
        s.note_load(node)


def remove_worker(placer: Placer, event: RemoveWorker, overload: bool) -> None:
    """A node without sources and sinks leaves."""
    s = placer.state
    node = row_of(s.node_index, "node", event.node)
    sources = [s.sources.ids[row] for row in s.sources_on.of(node)]
    if sources:
        raise ProblemError(
            f"remove-worker: {event.node!r} produces {listed(sources, 5)}; remove the sources "
            "first, or report its failure with fail-node"
        )
    _refuse_sink(s, node, "remove-worker")
    _retire(placer, node, overload)


def fail_node(placer: Placer, event: FailNode, overload: bool) -> None:
    """A node fails, and its sources with it."""
    s = placer.state
    node = row_of(s.node_index, "node", event.node)
    _refuse_sink(s, node, "fail-node")
    _drop_sources(placer, sorted(s.sources_on.of(node)), overload)
    _retire(placer, node, overload)


def _refuse_sink(state: LiveState, node: int, event: str) -> None:
    sinks = state.demand.sinks(node)
    if sinks:
        raise ProblemError(
            f"{event}: {state.nodes.ids[node]!r} is the sink of {listed(sinks, 5)}; move the sink "
            "first (move-sink, also in the same batch)"
        )


def change_capacity(placer: Placer, event: ChangeCapacity, overload: bool) -> None:
    """A node can receive more or fewer tuples; as few joins as possible move away."""
    s, n = placer.state, placer.state.nodes
    node = row_of(s.node_index, "node", event.node)
    capacity = finite(event.capacity, "change-capacity: capacity")
    if s.residents.any_on(node):
        old = float(n.capacity[node])
        free = float(n.free[node]) + (capacity - old)
        if math.isinf(capacity) or math.isinf(old):
            free = capacity - math.fsum(s.shares(pair)[node].size for pair in s.residents.of(node))
    else:
        free = capacity
    s.assign(n, "capacity", node, capacity)
    s.sinks_changed.add(node)
    s.set_free(node, free)
    _update_index(s, node)
    if s.residents.any_on(node) and not _may_host(s, node):
        _evict(placer, s.residents.of(node), overload, node)
    s.demand.capacity_changed(placer, node, overload)
    _relieve(placer, node, overload)


def _evict(placer: Placer, pairs: Collection[int], overload: bool, node: int) -> None:
    """Move pairs away from a node that may no longer host them."""
    s = placer.state
    leaving = placer.largest_first(pairs)
    for pair in leaving:
        if placer.is_pinned(pair):
            name, host = s.names[pair], s.nodes.ids[node]
            raise NoRoomError(f"{name}: pinned to {host}, which can no longer run it", s.size(pair))
    placer.place_all(leaving, overload, leave=True)
    s.note_load(node)


def _relieve(placer: Placer, node: int, overload: bool) -> None:
    """Move residents off a node until its lack is 0: the smallest that suffices, or the largest."""
    s, n = placer.state, placer.state.nodes
    while (over := s.lack(node)) > TOLERANCE * n.capacity.item(node):
        residents = placer.movable(node)
        if not residents:
            if overload:
                return
            beyond = "capacity" if node in s.overloaded else f"C_min of {s.c_min:g}"
            raise NoRoomError(
                f"{n.ids[node]}: only pinned joins are left on it, beyond its {beyond}", over
            )
        greatest = s.greatest(node)
        if greatest < s.c_min and len(residents) > 1:
            # The greatest instance leaves last, as free capacity beside it counts.
            residents.remove(max(residents, key=lambda pair: s.instance(pair, node)))
        enough = [p for p in residents if s.shares(p)[node].size >= over * (1 - TOLERANCE)]
        pair = enough[-1] if enough else residents[0]
        if not _moves_away(placer, pair, overload):
            return


def _moves_away(placer: Placer, pair: int, overload: bool) -> bool:
    """Place a pair elsewhere; with ``overload`` it may stay where nothing else has room."""
    placed = placer.state.detach(pair)
    try:
        placer.place(pair, False)
    except NoRoomError:
        if not overload:
            raise
        assert placed is not None
        placer.state.attach(pair, placed)
        return False
    return True


def move_node(placer: Placer, event: MoveNode, overload: bool) -> None:
    """A node's place in the cost space changes; joins move if that gains enough."""
    s, n = placer.state, placer.state.nodes
    node = row_of(s.node_index, "node", event.node)
    position = _position(s, event.position, f"move-node {event.node!r}")
    s.assign(n, "position", node, position)
    if event.height is not UNSET:
        s.assign(n, "extra", (node, 0), event.height)
    s.put(s.strayed, node, None)
    _update_index(s, node)
    ends = s.demand.around(node)
    s.recompute_points(ends)
    placer.improve_all(sorted({*ends, *s.residents.of(node)}))


def change_link(placer: Placer, event: ChangeLink, overload: bool) -> None:
    """A link's budget changes; joins leave it until the rest fits."""
    s = placer.state
    link = (
        row_of(s.node_index, "node", event.source_node),
        row_of(s.node_index, "node", event.target_node),
    )
    if link[0] == link[1]:
        raise ProblemError(f"change-link: from {event.source_node!r} to itself")
    budget = finite(event.budget, "change-link: budget")
    if math.isinf(budget):
        for table in (s.budget, s.link_free, s.overfull):
            s.drop(table, link)
        for node in link:
            if node in s.links_at:
                s.drop(s.links_at[node], link)
        return
    s.put(s.budget, link, budget)
    for node in link:
        s.put(s.links_at.setdefault(node, {}), link, None)
    if not s.keeps_links:
        return
    users = _users(s, link)
    s.put(s.link_free, link, budget)
    used = {pair: _use_of(s, pair, link) for pair in users}
    free = budget - math.fsum(used.values())
    s.put(s.link_free, link, free)
    if free < -TOLERANCE * budget:
        s.put(s.overfull, link, None)
    else:
        s.drop(s.overfull, link)
    _relieve_link(placer, link, used, overload)


def _users(state: LiveState, link: Link) -> list[int]:
    """Pairs that use a link: it leads to one from a source, or from one to its sink."""
    source, target = link

    def ends(pair: int) -> list[int]:
        begin = state.operators.row.item(pair, LEG)
        nodes: list[int] = state.legs.end[begin : begin + 3].tolist()
        return nodes

    users = {pair for pair in state.residents.of(target) if source in ends(pair)[:2]}
    users |= {pair for pair in state.residents.of(source) if ends(pair)[2] == target}
    return sorted(users)


def _use_of(state: LiveState, pair: int, link: Link) -> float:
    return math.fsum(
        rate
        for node, share in state.shares(pair).items()
        for used, rate in state.traffic(pair, node, share)
        if used == link
    )


def _relieve_link(placer: Placer, link: Link, used: dict[int, float], overload: bool) -> None:
    s = placer.state
    while link in s.overfull:
        over = -s.link_free[link]
        movable = [pair for pair in used if not placer.is_pinned(pair)]
        if not movable:
            if overload:
                return
            name = "->".join(s.nodes.ids[node] for node in link)
            raise NoRoomError(f"link {name}: only pinned joins use it, beyond its budget", over)
        enough = [pair for pair in movable if used[pair] >= over * (1 - TOLERANCE)]
        pair = min(enough, key=used.__getitem__) if enough else max(movable, key=used.__getitem__)
        del used[pair]
        if not _moves_away(placer, pair, overload):
            return


# --- sources --------------------------------------------------------------------------------------


def add_source(placer: Placer, event: AddSource, overload: bool) -> None:
    """A source starts, with its joins."""
    s, new_source = placer.state, event.source
    rows, where = s.sources, f"add-source {new_source.id!r}"
    if new_source.id in s.source_index:
        raise ProblemError(f"{where}: there is a source of that name")
    node = row_of(s.node_index, "node", new_source.node, f"{where}: ")
    rate = positive(new_source.rate, f"{where}: rate")
    s.require_zone(node, s.stream_rule(new_source.stream), f"{where}: node")
    row = rows.next()
    rows.ids.append(new_source.id)
    rows.stream.append(new_source.stream)
    rows.key.append(or_default(new_source.key, ""))
    s.on_undo(_forget, rows, row, rows.ids, rows.stream, rows.key)
    rows.node[row], rows.rate[row], rows.alive[row] = node, rate, True
    rows.tuple_bytes[row] = or_default(new_source.tuple_bytes, math.nan)
    s.put(s.source_index, new_source.id, row)
    s.bind(s.sources_on, node, row)
    s.demand.add_source(placer, row, event, overload)


def remove_source(placer: Placer, event: RemoveSource, overload: bool) -> None:
    """A source ends, and its joins with it."""
    source = row_of(placer.state.source_index, "source", event.source)
    _drop_sources(placer, [source], overload)


def _drop_sources(placer: Placer, sources: list[int], overload: bool) -> None:
    s, rows = placer.state, placer.state.sources
    for source in sources:
        s.assign(rows, "alive", source, False)
        s.drop(s.source_index, rows.ids[source])
        s.unbind(s.sources_on, rows.node.item(source), source)
    s.demand.drop_sources(placer, sources, overload)


def change_rate(placer: Placer, event: ChangeRate, overload: bool) -> None:
    """A source's rate changes; what reads it stays where it still fits."""
    s = placer.state
    source = row_of(s.source_index, "source", event.source)
    s.demand.change_rate(placer, source, positive(event.rate, "change-rate: rate"), overload)


def pin(placer: Placer, event: Pin, overload: bool) -> None:
    """Pin an operator's instances to their nodes, or unpin them."""
    s = placer.state
    if event.operator not in s.demand.names():
        raise ProblemError(unknown("operator", event.operator, s.demand.names()))
    if event.pinned:
        s.put(placer.pinned, event.operator, True)
    else:
        s.drop(placer.pinned, event.operator)


# --- the whole plan -------------------------------------------------------------------------------


def rebalance(placer: Placer, event: Rebalance, overload: bool) -> None:
    """Make at most so many moves, each worth more than the policy's threshold.

    Nodes that are overloaded, or lack C_min, are relieved first, at any cost. Then joins move in
    the order of their greatest possible gain: to a host with room, or to one whose resident moves
    elsewhere, which counts as two moves. Where nothing moves by that, few operators of queries may
    all go where a plan from scratch has them.
    """
    s = placer.state
    budget = event.moves
    for node in sorted({*s.overloaded, *s.short}):
        before = len(s.changed)
        _relieve(placer, node, True)  # joins without room elsewhere stay
        budget -= len(s.changed) - before
        if budget <= 0:
            return
    o = s.operators
    alive = o.alive[: o.used]
    linked = np.flatnonzero(alive & (o.row[: o.used, LINKED] > 0))
    if len(linked):
        budget -= _rebalance_linked(placer, linked.tolist(), budget)
    whole = np.flatnonzero(alive & (o.host[: o.used] != IN_PIECES))
    loss = kernels.losses(s.tables, whole)
    # The queue is in the order of upper bounds of gains, but for what is linked.
    queue = [(-value, pair) for value, pair in zip(loss.tolist(), whole.tolist(), strict=True)]
    heapq.heapify(queue)
    while queue and budget > 0:
        most, pair = heapq.heappop(queue)
        if placer.is_pinned(pair) or placer.rests(pair):
            continue
        # What is linked may gain more: its virtual position is best with those of all it is with.
        if -most <= placer.threshold(pair, 0.0) and not o.row.item(pair, LINKED):
            continue
        if int(o.host[pair]) == IN_PIECES or pair in s.changed:
            continue
        budget -= _move_or_swap(placer, pair, budget)
    if len(linked) and budget == event.moves >= alive.sum() <= FEW_BODIES:
        _go_where_placed_anew(placer)


def _go_where_placed_anew(placer: Placer) -> None:
    """Have all operators run where a plan from scratch has them, if that gains enough.

    That plan is the best of many orders, and so may be better where no single move gains.
    """
    from nova_core.strategies.nova_parameters import NovaParameters

    s = placer.state
    problem = problem_of(s)
    now = plan_of(s, problem)
    bandwidth = s.largest if math.isfinite(s.largest) else None
    p = NovaParameters(objective=s.objective, sigma=s.sigma, bandwidth=bandwidth, c_min=s.c_min)
    try:
        plan = place_queries(problem, p, s.rewriting)
    except InfeasibleError:
        return
    gain = now.objective_value(s.objective) - plan.objective_value(s.objective)
    anew = LiveState(problem, plan, type(s.demand))
    row_of = {name: row for row, name in enumerate(anew.names)}
    moves: dict[int, int | Pieces] = {}
    for one in np.flatnonzero(s.operators.alive[: s.operators.used]).tolist():
        place = _renumbered(anew, row_of[s.names[one]], s.node_index)
        if place != s.cuts.get(one, s.operators.host.item(one)):
            moves[one] = place
    costs = {one: placer.cost(one) for one in moves}
    least = math.fsum(placer.threshold(one, cost) for one, cost in costs.items())
    stay = any(placer.is_pinned(one) or placer.rests(one) for one in moves)
    if stay or gain <= max(least, 1e-9 * math.fsum(costs.values())):
        return
    for one in moves:
        s.detach(one)
    for one, place in moves.items():
        s.attach(one, place)


def _renumbered(state: LiveState, one: int, node_index: Mapping[str, int]) -> int | Pieces:
    """Where an operator of a state runs, by the rows that nodes have elsewhere."""
    ids, cut = state.nodes.ids, state.cuts.get(one)
    if cut is None:
        return node_index[ids[state.operators.host.item(one)]]
    pieces = (piece._replace(node=node_index[ids[piece.node]]) for piece in cut.pieces)
    return replace(cut, pieces=tuple(pieces))


def _rebalance_linked(placer: Placer, linked: list[int], budget: int) -> int:
    """Improve operators that feed each other, those first that may gain most; moves that it took.

    Where fewer moves are left than a group has operators, they move one by one later.
    """
    s, host = placer.state, placer.state.operators.host
    groups = s.demand.groups(linked)
    whole = [np.array([one for one in group if host[one] >= 0], np.int64) for group in groups]
    loss = [float(kernels.losses(s.tables, group).sum()) for group in whole]
    made = 0
    for row in sorted(range(len(groups)), key=lambda row: -loss[row]):
        group = groups[row]
        if len(group) <= budget - made:
            before = host[group]
            placer.improve_all(group)
            made += int((host[group] != before).sum())
    return made


def _move_or_swap(placer: Placer, pair: int, most: int) -> int:
    """Move a whole join to a near host with room, or to one whose resident goes elsewhere.

    The resident goes to the cheapest host with room, or to the host that the join leaves; both
    together must gain.

    Returns:
        How many moves it took: 0, 1, or 2 if so many may be made.
    """
    s, o = placer.state, placer.state.operators
    share = s.whole_share(pair)
    if share.size > s.largest:
        return 0
    here, now = int(o.host[pair]), placer.cost(pair)
    need, own = placer.need(share.size), placer.threshold(pair, now)
    near = dict(placer.near(pair, WHOLE, need, tuning.SWAPS))
    if most > 1:
        near.update(placer.near(pair, WHOLE, -math.inf, tuning.SWAPS))
    best, choice = 1e-9 * now, None
    for node, cost in sorted(near.items(), key=lambda one: one[1]):
        gain = now - cost - own
        if gain <= best:
            break
        if node == here or s.nodes.capacity[node] < need or not s.links_fit(pair, node, share):
            continue
        if s.nodes.free[node] >= need:
            best, choice = gain, (node, NOWHERE, NOWHERE)
            break
        # What makes way may be linked with it, and then costs what it costs with it there.
        s.point(pair, node)
        for other in placer.movable(node)[: tuning.SWAP_RESIDENTS]:
            if o.host[other] == IN_PIECES or placer.rests(other):
                continue
            other_share = s.whole_share(other)
            if s.nodes.free[node] + other_share.size < need:
                continue
            other_now = placer.cost(other)
            margin = placer.threshold(other, other_now)
            places = []
            alternative = placer.elsewhere(other, node)
            if alternative is not None:
                places.append(alternative)
            if s.nodes.free[here] + share.size >= placer.need(other_share.size) and (
                s.index.meets(here, s.requirement(other)) and s.links_fit(other, here, other_share)
            ):
                places.append((here, placer.cost_on(other, WHOLE, here)))
            for target, target_cost in places:
                total = gain + other_now - target_cost - margin
                if total > best:
                    best, choice = total, (node, other, target)
        s.point(pair, here)
    if choice is None:
        return 0
    node, other, target = choice
    s.detach(pair)
    if other != NOWHERE:
        s.detach(other)
        s.attach(other, target)
    s.attach(pair, node)
    return 1 if other == NOWHERE else 2


def check_problem(state: LiveState) -> None:
    """Refuse an event whose result is not a valid problem.

    Raises:
        ProblemError: when nothing is left to place, or a stream that is read has no source.
        NoRoomError: when a sink's capacity is below the rate that arrives.
    """
    state.demand.check()
    for sink in state.sinks_changed:
        arrives, fits = state.arriving.get(sink, 0.0), state.nodes.capacity.item(sink)
        if arrives > fits * (1 + TOLERANCE):
            raise NoRoomError(
                f"sink {state.nodes.ids[sink]}: cannot take the output, {arrives:g} tuples/s "
                f"arrive and {fits:g} fit",
                arrives - fits,
            )


Handler = Callable[[Placer, Any, bool], None]


def _of_demand(name: str) -> Handler:
    """What a problem's demand does; a problem of the other kind has no such events."""

    def handle(placer: Placer, event: Any, overload: bool) -> None:
        does = getattr(placer.state.demand, name, None)
        if does is None:
            tag = type(event).__struct_config__.tag
            raise ProblemError(f"{tag}: {placer.state.demand.lacks}")
        does(placer, event, overload)

    return handle


HANDLERS: dict[type, Handler] = {
    AddWorker: add_worker,
    RemoveWorker: remove_worker,
    FailNode: fail_node,
    ChangeCapacity: change_capacity,
    MoveNode: move_node,
    ChangeLink: change_link,
    AddSource: add_source,
    RemoveSource: remove_source,
    AddPair: _of_demand("add_pair"),
    RemovePair: _of_demand("remove_pair"),
    AddOperator: _of_demand("add_operator"),
    RemoveOperator: _of_demand("remove_operator"),
    AddQuery: _of_demand("add_query"),
    RemoveQuery: _of_demand("remove_query"),
    ChangeSelectivity: _of_demand("change_selectivity"),
    ChangeRate: change_rate,
    MoveSink: _of_demand("move_sink"),
    Pin: pin,
    Rebalance: rebalance,
}
