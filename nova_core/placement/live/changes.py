"""From the state before and after an event to the delta that tells the difference."""

from __future__ import annotations

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
from nova_core.placement.live.pieces import Piece, Pieces
from nova_core.placement.live.state import LiveState


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
    p, ids, sources = state.pairs, state.nodes.ids, state.sources.ids
    for pair in sorted(state.before):
        before, alive = state.before[pair], p.alive.item(pair)
        if not alive and not before.alive:
            continue
        ref = PairRef(
            operator=state.join_ids[p.join[pair]],
            left=sources[p.left[pair]],
            right=sources[p.right[pair]],
        )
        cut = state.cuts.get(pair)
        pieces = state.pieces(pair)
        same_cut = _rates(before.cut) == _rates(cut)
        if not same_cut:
            cuts.append(CutRow(pair=ref, old=_rates(before.cut), new=_rates(cut)))
        if not alive:
            removed.append(ref)
        elif not before.alive:
            added.append(ref)
        point: list[float] | None = p.point[pair].tolist() if alive else None
        old_point = before.point if before.alive else None
        if point != old_point:
            virtual.append(VirtualRow(pair=ref, old=old_point, new=point))
        if pieces == before.pieces:
            staying = list(pieces)
        else:
            staying = _compare(ref, before.pieces, pieces, ids, _grids_equal(before.cut, cut),
                               stop, start, move)  # fmt: skip
        sink = p.ends.item(pair, 2)
        if sink != before.sink and alive and before.alive:
            reroute += [
                RerouteRow(
                    pair=ref,
                    node=ids[node],
                    flow="result",
                    old=ids[before.sink],
                    new=ids[sink],
                )
                for node in sorted({piece.node for piece in staying})
            ]
        if (move and move[-1].pair is ref) or (start and start[-1].pair is ref):
            state.set(p.moved, pair, state.version)
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


def _grids_equal(a: Pieces | None, b: Pieces | None) -> bool:
    """Whether partition numbers mean the same before and after."""
    if a is None or b is None:
        return a is b
    return (len(a.left), len(a.right)) == (len(b.left), len(b.right))


def _compare(
    pair: PairRef,
    old: tuple[Piece, ...],
    new: tuple[Piece, ...],
    ids: list[str],
    same_grid: bool,
    stop: list[InstanceRow],
    start: list[InstanceRow],
    move: list[MoveRow],
) -> list[Piece]:
    """Write the rows of one pair; the pieces that stay."""
    if same_grid:
        goes_on = set(old) & set(new)
        rest_new = {piece[1:]: piece for piece in new if piece not in goes_on}
    else:
        goes_on, rest_new = set(), {piece[1:]: piece for piece in new}
    for piece in old:
        if piece in goes_on:
            continue
        left, right = (piece.left, piece.left_end), (piece.right, piece.right_end)
        target = rest_new.pop(piece[1:], None) if same_grid else None
        if target is None:
            stop.append(InstanceRow(pair=pair, node=ids[piece.node], left=left, right=right))
        else:
            move.append(
                MoveRow(
                    pair=pair,
                    source_node=ids[piece.node],
                    target_node=ids[target.node],
                    left=left,
                    right=right,
                )
            )
    for piece in rest_new.values():
        left, right = (piece.left, piece.left_end), (piece.right, piece.right_end)
        start.append(InstanceRow(pair=pair, node=ids[piece.node], left=left, right=right))
    return [piece for piece in new if piece in goes_on]


__all__ = ["delta_of"]
