"""The delta between the states before and after an event."""

from __future__ import annotations

from nova_core.model.plan_delta import (
    Cut,
    CutRow,
    InstanceRow,
    MoveRow,
    PlanDelta,
    RerouteRow,
    VirtualRow,
)
from nova_core.placement.kernels.live.changed import ABSENT
from nova_core.placement.kernels.live.tables import MOVED
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
    ids, names = state.nodes.ids, state.pair_names
    rows, points = state.changed.changes(state.version)
    for (pair, was, host, old_sink, sink, shifted), (old_point, point) in zip(
        rows.tolist(), points.tolist(), strict=True
    ):
        name = names[pair]
        if shifted:
            before = None if was == ABSENT else old_point
            virtual.append(
                VirtualRow(operator=name, old=before, new=None if host == ABSENT else point)
            )
        if was >= 0 and host >= 0:
            if was != host:
                row = MoveRow(
                    operator=name,
                    source_node=ids[was],
                    target_node=ids[host],
                    left=_WHOLE,
                    right=_WHOLE,
                )
                move.append(row)
            elif sink != old_sink:
                reroute.append(_rerouted(name, host, old_sink, sink, ids))
            continue
        if was == ABSENT:
            added.append(name)
        elif host == ABSENT:
            removed.append(name)
        if IN_PIECES not in (was, host):
            node, rows_of = (host, start) if host >= 0 else (was, stop)
            rows_of.append(InstanceRow(operator=name, node=ids[node], left=_WHOLE, right=_WHOLE))
            continue
        cut = state.cuts.get(pair)
        old_cut = state.old_cuts.get(pair, cut)
        if _rates(old_cut) != _rates(cut):
            cuts.append(CutRow(operator=name, old=_rates(old_cut), new=_rates(cut)))
        running = len(start) + len(move)
        old, new = _pieces(was, old_cut), _pieces(host, cut)
        staying = _compare(name, old, new, _grids_equal(old_cut, cut), ids, stop, start, move)
        if len(start) + len(move) > running:
            state.pairs.row[pair, MOVED] = state.version
        if sink != old_sink:
            reroute += [_rerouted(name, node, old_sink, sink, ids) for node in staying]
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
        old_breaks=list(old_breaks),
        new_breaks=list(state.breaks),
    )


def _rerouted(name: str, node: int, old_sink: int, sink: int, ids: list[str]) -> RerouteRow:
    return RerouteRow(
        operator=name, node=ids[node], flow="result", old=ids[old_sink], new=ids[sink]
    )


def _rates(cut: Pieces | None) -> Cut | None:
    return None if cut is None else Cut(left=list(cut.left), right=list(cut.right))


def _instance(name: str, piece: Piece, ids: list[str]) -> InstanceRow:
    left, right = (piece.left, piece.left_end), (piece.right, piece.right_end)
    return InstanceRow(operator=name, node=ids[piece.node], left=left, right=right)


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
    old: tuple[Piece, ...],
    new: tuple[Piece, ...],
    same_grid: bool,
    ids: list[str],
    stop: list[InstanceRow],
    start: list[InstanceRow],
    move: list[MoveRow],
) -> tuple[int, ...]:
    """Append the rows of one pair; returns the nodes of pieces that stay, in ascending order."""
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
            stop.append(_instance(name, piece, ids))
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
