"""From the state before and after an event to the delta that tells the difference."""

from __future__ import annotations

import numpy as np

from nova_core.model.plan_delta import (
    Cut,
    CutRow,
    InstanceRow,
    MoveRow,
    PairRef,
    PlanDelta,
    RerouteRow,
    VirtualRow,
)
from nova_core.placement.kernels.live.columns import HOST, MOVED, SINK
from nova_core.placement.live.pieces import Piece, Pieces
from nova_core.placement.live.state import Before, LiveState
from nova_core.placement.live.tables import NOWHERE

_WHOLE = (0, 1)


def delta_of(state: LiveState, old_breaks: tuple[str, ...], old_version: int) -> PlanDelta:
    """The changes since the last commit."""
    stop: list[InstanceRow] = []
    start: list[InstanceRow] = []
    move: list[MoveRow] = []
    reroute: list[RerouteRow] = []
    removed: list[PairRef] = []
    added: list[PairRef] = []
    cuts: list[CutRow] = []
    virtual: list[VirtualRow] = []
    p, ids, refs, cuts_now = state.pairs, state.nodes.ids, state.refs, state.cuts
    pairs = sorted(state.before)
    # One row after the other, each would be a wait for memory.
    rows = np.array(pairs, np.int64)
    now = zip(
        pairs,
        p.alive.take(rows).tolist(),
        p.row.take(rows, axis=0).tolist(),
        p.point.take(rows, axis=0).tolist(),
        strict=True,
    )
    for pair, alive, row, point_now in now:
        before = state.before[pair]
        if not alive and not before.alive:
            continue
        ref = refs[pair]
        host, cut = row[HOST], cuts_now.get(pair)
        if cut is not before.cut and _rates(before.cut) != _rates(cut):
            cuts.append(CutRow(pair=ref, old=_rates(before.cut), new=_rates(cut)))
        if not alive:
            removed.append(ref)
        elif not before.alive:
            added.append(ref)
        point: list[float] | None = point_now if alive else None
        old_point = before.point if before.alive else None
        if point != old_point:
            virtual.append(VirtualRow(pair=ref, old=old_point, new=point))
        sink = row[SINK]
        rerouted = sink != before.sink and alive and before.alive
        running = len(start) + len(move)
        staying: tuple[int, ...] = ()
        if host == before.host and cut is before.cut:
            if rerouted:
                staying = (host,) if cut is None else cut.nodes
        elif host >= 0 and before.host >= 0:
            move.append(
                MoveRow(
                    pair=ref,
                    source_node=ids[before.host],
                    target_node=ids[host],
                    left=_WHOLE,
                    right=_WHOLE,
                )
            )
        elif host >= 0 and before.host == NOWHERE:
            start.append(InstanceRow(pair=ref, node=ids[host], left=_WHOLE, right=_WHOLE))
        else:
            staying = _compare(ref, before, host, cut, ids, stop, start, move)
        if rerouted:
            reroute += [
                RerouteRow(
                    pair=ref, node=ids[node], flow="result", old=ids[before.sink], new=ids[sink]
                )
                for node in staying
            ]
        if len(start) + len(move) > running:
            state.done(p.row.__setitem__, (pair, MOVED), row[MOVED])
            p.row[pair, MOVED] = state.version
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


def _rates(cut: Pieces | None) -> Cut | None:
    return None if cut is None else Cut(left=list(cut.left), right=list(cut.right))


def _instance(pair: PairRef, piece: Piece, ids: list[str]) -> InstanceRow:
    left, right = (piece.left, piece.left_end), (piece.right, piece.right_end)
    return InstanceRow(pair=pair, node=ids[piece.node], left=left, right=right)


def _pieces(host: int, cut: Pieces | None) -> tuple[Piece, ...]:
    if cut is not None:
        return cut.pieces
    return () if host == NOWHERE else (Piece(host, 0, 1, 0, 1),)


def _grids_equal(a: Pieces | None, b: Pieces | None) -> bool:
    """Whether partition numbers mean the same before and after."""
    if a is None or b is None:
        return a is b
    return (len(a.left), len(a.right)) == (len(b.left), len(b.right))


def _compare(
    pair: PairRef,
    before: Before,
    host: int,
    cut: Pieces | None,
    ids: list[str],
    stop: list[InstanceRow],
    start: list[InstanceRow],
    move: list[MoveRow],
) -> tuple[int, ...]:
    """Write the rows of one pair; the nodes of pieces that stay, in ascending order."""
    old, new = _pieces(before.host, before.cut), _pieces(host, cut)
    same_grid = _grids_equal(before.cut, cut)
    if same_grid:
        goes_on = set(old) & set(new)
        rest_new = {piece[1:]: piece for piece in new if piece not in goes_on}
    else:
        goes_on, rest_new = set(), {piece[1:]: piece for piece in new}
    for piece in old:
        if piece in goes_on:
            continue
        target = rest_new.pop(piece[1:], None) if same_grid else None
        if target is None:
            stop.append(_instance(pair, piece, ids))
        else:
            move.append(
                MoveRow(
                    pair=pair,
                    source_node=ids[piece.node],
                    target_node=ids[target.node],
                    left=(piece.left, piece.left_end),
                    right=(piece.right, piece.right_end),
                )
            )
    start += [_instance(pair, piece, ids) for piece in rest_new.values()]
    return tuple(sorted({piece.node for piece in goes_on}))


__all__ = ["delta_of"]
