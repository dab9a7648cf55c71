"""What a live placement has to run: pairs of a join matrix, or operators of whole queries.

Both kinds know which operators there are, what these are linked with, and what events of sources,
sinks and queries do to them (`pairs`, `queries`). Hosts, room and moves are the state's, for both
alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Protocol

from nova_core.model.problem import Floats
from nova_core.model.queries import Query
from nova_core.placement.cutting import Cut, Hosts
from nova_core.placement.live.events import AddSource
from nova_core.placement.live.pieces import Pieces

# What an operator is linked with: an operator, a sink or a source; its node, if it has a fixed one;
# what each ms counts; the number of the input, -1 for an output; and the same at the other end.
LogicalLink = tuple[int, int, float, int, int]


class Placing(Protocol):
    """What places operators: `nova_core.placement.live.placer.Placer`.

    Attributes:
        limits: when operators move, and where they fit, see `kernels.state.tables.Limits`.
        pinned: operators that stay, by name.
        state_bytes: bytes of state of operators, by name.
    """

    limits: Floats
    pinned: dict[str, bool]
    state_bytes: dict[str, float]

    def largest_first(self, some: Collection[int], /) -> list[int]:
        """Operators in the order in which they are placed."""

    def put_back(self, placed: Mapping[int, int | Pieces | None], overload: bool, /) -> None:
        """Place operators where they were if they still fit."""

    def place_all(self, some: Sequence[int], overload: bool, recompute: bool = False) -> None:
        """Place operators that run nowhere."""

    def improve_all(self, some: Sequence[int], /) -> None:
        """Move operators that gain enough by it."""

    def recompute_all(self, some: list[int], /) -> None:
        """Recompute virtual positions, and move operators that gain enough by it."""


class Demand(Protocol):
    """What there is to run.

    Attributes:
        links_operators: whether operators may feed each other.
        many_legs: whether operators may have more than three legs.
        lacks: why events of the other kind are refused.
    """

    links_operators: ClassVar[bool]
    many_legs: ClassVar[bool]
    lacks: ClassVar[str]

    @property
    def queries(self) -> tuple[Query, ...]:
        """The present queries, in order; none of pairs."""

    def requirement(self, operator: int, /) -> int:
        """The number of an operator's requirement, counted from 1; 0 for none."""

    def called(self, operator: int, /) -> Sequence[str]:
        """What policies and pins call an operator."""

    def names(self) -> Collection[str]:
        """All that `called` may answer."""

    def links(self, operator: int, /) -> tuple[list[LogicalLink], list[LogicalLink]]:
        """What an operator is linked with: inputs and outputs."""

    def input_rates(self, operator: int, /) -> list[float]:
        """Tuples/s of each input."""

    def groups(self, some: Iterable[int], /) -> list[list[int]]:
        """Operators that feed each other, producers first."""

    def order(self, some: Iterable[int], /) -> list[int]:
        """Operators in an order that stays when the state is compacted."""

    def cut(self, operator: int, hosts: Hosts, sigma: float | None, limit: float, /) -> Cut | None:
        """Pieces along one input; None for what is cut as a grid, or not at all."""

    def around(self, node: int, /) -> list[int]:
        """Operators that a source or a sink on a node concerns."""

    def reading(self, source: int, /) -> Collection[int]:
        """Operators that a source concerns."""

    def of(self, name: str, /) -> Collection[int]:
        """Operators of a join or query."""

    def sinks(self, node: int, /) -> list[str]:
        """Joins or queries whose results go to a node."""

    def feeding(self, logical: int, /) -> tuple[int, Collection[int]]:
        """The sink of a join or query, and the operators whose results go there."""

    def check(self) -> None:
        """Refuse an event whose result is not a valid problem.

        Raises:
            ProblemError: saying what would be missing.
        """

    def add_source(self, placer: Placing, row: int, event: AddSource, overload: bool, /) -> None:
        """A source starts."""

    def drop_sources(self, placer: Placing, sources: Collection[int], overload: bool, /) -> None:
        """Sources end."""

    def change_rate(self, placer: Placing, source: int, rate: float, overload: bool, /) -> None:
        """A source's rate changes."""

    def capacity_changed(self, placer: Placing, node: int, overload: bool, /) -> None:
        """A node's capacity has changed."""
