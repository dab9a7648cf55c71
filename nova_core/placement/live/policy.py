"""When instances move by choice."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
from msgspec import Meta

from nova_core.errors import ProblemError
from nova_core.io.problem_document import Name, NonNegative


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a migration costs and what happens when nothing fits.

    A join moves though it could stay only if that lowers its objective by more than ``gain``, plus
    ``gain_share`` of what it costs now, plus what moving its state costs: SBON's minimum migration
    threshold (section 3.2), which keeps placements from flapping. Instances whose node is gone or
    full move regardless.

    Attributes:
        gain: least gain of a move, in the objective's unit (ms for ``latency``).
        gain_share: least gain as a share of the join's present objective, 0 or more.
        state_bytes: operator to the bytes of state that a whole join of it holds; a piece of a cut
            join holds its share. Operators that are not named hold none.
        gain_per_byte: gain that moving a byte of state must bring, in the objective's unit.
        cooldown: events after a move during which the same join does not move again by choice.
        pinned: operators whose instances stay where they are as long as their node lives.
        overload: whether nodes near by are overloaded evenly when nothing fits; else the event is
            refused.
    """

    gain: NonNegative = 0.0
    gain_share: NonNegative = 0.05
    state_bytes: dict[str, NonNegative] = {}
    gain_per_byte: NonNegative = 0.0
    cooldown: Annotated[int, Meta(ge=0)] = 0
    pinned: tuple[Name, ...] = ()
    overload: bool = False

    def __post_init__(self) -> None:
        numbers = {
            "gain": self.gain,
            "gain_share": self.gain_share,
            "gain_per_byte": self.gain_per_byte,
            "cooldown": self.cooldown,
            **{f"state_bytes of {name!r}": size for name, size in self.state_bytes.items()},
        }
        for name, value in numbers.items():
            if not 0 <= value < math.inf:
                raise ProblemError(f"live: {name} is {value:g}; expected 0 or more")
