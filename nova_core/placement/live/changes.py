"""The delta between the states before and after an event."""

from __future__ import annotations

from nova_core.model.plan_delta import (
    Cut,
    CutRow,
    InstanceRow,
    MoveRow,
    PlanDelta,
    RenamedRow,
    RerouteRow,
    VirtualRow,
)
from nova_core.placement.kernels.state.changed import ABSENT
from nova_core.placement.kernels.state.tables import HOST, MOVED
from nova_core.placement.live.pieces import Piece, Pieces
from nova_core.placement.live.state import LiveState
from nova_core.placement.live.tables import IN_PIECES

_WHOLE = (0, 1)


def delta_of(state: LiveState, old_breaks: tuple[str, ...], old_version: int) -> PlanDelta:
    """The changes since the last commit."""
    stop: list[InstanceRow] = []
    start: list[InstanceRow] = []
    move: list[MoveRow] = []
    reroute: list[RerouteRow] = []
    removed: list[str] = []
    added: list[str] = []
    cuts: list[CutRow] = []
    virtual: list[VirtualRow] = []
    ids, names, row_of = state.nodes.ids, state.names, state.operators.row.item
    staying: dict[int, tuple[int, ...]] = {}
    changes = state.changed.changes(state.version)
    if state.demand.links_operators:
        change_of = {row[0]: (row, points) for row, points in changes}
        changes = [change_of[operator] for operator in state.demand.order(change_of)]
    for (operator, was, host, shifted), (old_point, point) in changes:
        name = names[operator]
        if shifted:
            old = None if was == ABSENT else old_point
            new = None if host == ABSENT else point
            virtual.append(VirtualRow(operator=name, old=old, new=new))
        if was >= 0 and host >= 0:
            if was != host:
                staying[operator] = ()
                row = MoveRow(
                    operator=name,
                    source_node=ids[was],
                    target_node=ids[host],
                    left=_WHOLE,
                    right=_WHOLE,
                )
                move.append(row)
            continue
        if was == ABSENT:
            added.append(name)
        elif host == ABSENT:
            name = state.renamed.get(operator, name)
            removed.append(name)
        if IN_PIECES not in (was, host):
            staying[operator] = ()
            node, rows_of = (host, start) if host >= 0 else (was, stop)
            rows_of.append(InstanceRow(operator=name, node=ids[node], left=_WHOLE, right=_WHOLE))
            continue
        cut = state.cuts.get(operator)
        old_cut = state.old_cuts.get(operator, cut)
        old_rates, rates = _rates(old_cut), _rates(cut)
        if old_rates != rates:
            if operator in state.renamed:  # another one may have its name
                whole = state.whole_share(operator)
                left, right = state.old_rates.get(operator, whole[:2])
                old_rates = old_rates or Cut(left=[left], right=[right])
                rates = rates or Cut(left=[whole.left], right=[whole.right])
            cuts.append(CutRow(operator=name, old=old_rates, new=rates))
        running = len(start) + len(move)
        pieces = _pieces(was, old_cut), _pieces(host, cut)
        old_name = state.renamed.get(operator, name)
        staying[operator] = _compare(
            name, old_name, *pieces, _grids_equal(old_cut, cut), ids, stop, start, move
        )
        if len(start) + len(move) > running:
            state.operators.row[operator, MOVED] = state.version
    for logical, old_sink in state.rerouted.items():
        sink, operators = state.demand.feeding(logical)
        old_end, end = ids[old_sink], ids[sink]
        for operator in operators if end != old_end else ():
            nodes = staying.get(operator)
            if nodes is None:
                host = row_of(operator, HOST)
                nodes = (host,) if host != IN_PIECES else state.cuts[operator].nodes
            for node in nodes:
                name = names[operator]
                reroute.append(
                    RerouteRow(operator=name, node=ids[node], flow="result", old=old_end, new=end)
                )
    return PlanDelta(
        old_version=old_version,
        new_version=state.version,
        stop=stop,
        start=start,
        move=move,
        reroute=reroute,
        removed=removed,
        added=added,
        cuts=cuts,
        virtual=virtual,
        renamed=_renamed(state) if state.renamed else [],
        old_breaks=list(old_breaks),
        new_breaks=list(state.breaks),
    )


def _renamed(state: LiveState) -> list[RenamedRow]:
    return [
        RenamedRow(operator=old, new=state.names[operator])
        for operator, old in sorted(state.renamed.items(), key=lambda row: row[1])
        if state.operators.alive[operator] and old != state.names[operator]
    ]


def _rates(cut: Pieces | None) -> Cut | None:
    if cut is None:
        return None
    return Cut(left=list(cut.left), right=list(cut.right), by_key=cut.join is not None)


def _instance(name: str, piece: Piece, ids: list[str]) -> InstanceRow:
    left, right = (piece.left, piece.left_end), (piece.right, piece.right_end)
    node, combines = ids[piece.node], piece.combines
    return InstanceRow(operator=name, node=node, left=left, right=right, combines=combines)


def _pieces(host: int, cut: Pieces | None) -> tuple[Piece, ...]:
    if cut is not None:
        return cut.pieces
    return () if host < 0 else (Piece(host, 0, 1, 0, 1),)


def _grids_equal(a: Pieces | None, b: Pieces | None) -> bool:
    """Whether partition numbers mean the same before and after."""
    if a is None or b is None:
        return a is b
    return (len(a.left), len(a.right)) == (len(b.left), len(b.right))


def _compare(
    name: str,
    old_name: str,
    old: tuple[Piece, ...],
    new: tuple[Piece, ...],
    same_grid: bool,
    ids: list[str],
    stop: list[InstanceRow],
    start: list[InstanceRow],
    move: list[MoveRow],
) -> tuple[int, ...]:
    """Append the rows of one operator; returns the nodes of pieces that stay, ascending."""
    if same_grid:
        unchanged = set(old) & set(new)
        rest_new = {piece[1:]: piece for piece in new if piece not in unchanged}
    else:
        unchanged, rest_new = set(), {piece[1:]: piece for piece in new}
    for piece in old:
        if piece in unchanged:
            continue
        target = rest_new.pop(piece[1:], None) if same_grid else None
        if target is None:
            stop.append(_instance(old_name, piece, ids))
        else:
            move.append(
                MoveRow(
                    operator=name,
                    source_node=ids[piece.node],
                    target_node=ids[target.node],
                    left=(piece.left, piece.left_end),
                    right=(piece.right, piece.right_end),
                )
            )
    start += [_instance(name, piece, ids) for piece in rest_new.values()]
    return tuple(sorted({piece.node for piece in unchanged}))
