"""The tables that kernels of live placement share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.core import types
from numba.experimental import structref
from numpy.typing import NDArray

from nova_core.kernel_cache import njit
from nova_core.model.problem import Floats, Ints
from nova_core.placement.kernels.state.host_tree import HostTree

# Columns of `Operators.row`: all whole numbers about an operator, in one cache line.
LEG, INPUTS, LEGS, LINKED, LOGICAL, HOST, MOVED, CHANGED = range(8)
# Columns of `Operators.rate`.
LEFT, RIGHT, OUTPUT = range(3)
# Values of `Legs.other`: a sink, and the first source; the next source is one less.
SINK, FIRST_SOURCE = -1, -2

Narrow = NDArray[np.int32]


class Places(NamedTuple):
    """Where nodes are.

    Attributes:
        position: (n, d) coordinates, ms.
        extra: (n, 2) height and penalty, ms.
    """

    position: Floats
    extra: Floats


class Loads(NamedTuple):
    """What nodes run.

    Attributes:
        capacity: (n,) tuples/s.
        free: (n,) what is left of it.
        first: (n,) the first operator that runs whole there, see
            `nova_core.placement.kernels.residents`.
        pieces: (n,) how many operators run there in pieces.
    """

    capacity: Floats
    free: Floats
    first: Ints
    pieces: Ints


class Operators(NamedTuple):
    """Columns of the table of operators: pairs of sources that are joined, or those of queries.

    Attributes:
        row: (o, 8) the first leg, how many legs are inputs, how many there are, whether an end is
            another operator, the pair's join or the first query, the node a whole operator runs on,
            the version at which it last moved, and the event that changed it last.
        rate: (o, 3) tuples/s of the left input (of an operator that is no join, of all), of the
            right input, and of the output.
        point: (o, d) virtual position, ms.
        chain: (o, 2) neighbours on the host, see `nova_core.placement.kernels.residents`.
    """

    row: Ints
    rate: Floats
    point: Floats
    chain: Ints


class Legs(NamedTuple):
    """What operators are linked with: runs of legs, an operator's inputs before its outputs.

    Attributes:
        end: (l,) node at the other end, or -1 where an operator there has none.
        other: (l,) the operator at the other end, `SINK`, or `FIRST_SOURCE` less the source.
        weight: (l,) what each ms of it counts.
    """

    end: Narrow
    other: Narrow
    weight: Floats


class Kept(NamedTuple):
    """What operators were before an event changed them, see `changed`.

    Attributes:
        row: (m, 3) an operator and what was in its row; has room for all that an event changes.
        point: (m, d) its virtual position then, ms.
        counts: (2,) rows in use, and the number of the event.
    """

    row: Ints
    point: Floats
    counts: Ints


class Limits(NamedTuple):
    """When operators move, and where they fit; kernels get it as an array.

    Attributes:
        gain: least gain of a move, in the objective's unit.
        gain_share: least gain as a share of what an operator costs now.
        minimum: least room a host must have, tuples/s.
        largest: largest operator that may be whole, tuples/s.
        enough: share of a need that counts as room for all of it.
    """

    gain: float
    gain_share: float
    minimum: float
    largest: float
    enough: float


# Places of `Limits` in the array.
MINIMUM, LARGEST, ENOUGH = 2, 3, 4


class Tables(NamedTuple):
    """All of them, as kernels take them that events call.

    Attributes:
        tree: the hosts, by place and free capacity.
        places: where nodes are.
        loads: what they run.
        operators: what is placed.
        legs: what operators are linked with.
        kept: what operators were before the event.
    """

    tree: HostTree
    places: Places
    loads: Loads
    operators: Operators
    legs: Legs
    kept: Kept


class SharedTree(NamedTuple):
    """The tree alone, for what changes hosts only."""

    tree: HostTree


@structref.register
class _SharedType(types.StructRef):
    """Numba's type of `_Shared`."""


class _Shared(structref.StructRefProxy):
    """`Tables` by reference."""


@structref.register
class _TreeType(types.StructRef):
    """Numba's type of `_Tree`."""


class _Tree(structref.StructRefProxy):
    """`SharedTree` by reference."""


structref.define_proxy(_Shared, _SharedType, Tables._fields)
structref.define_proxy(_Tree, _TreeType, SharedTree._fields)


@njit(cache=True, nogil=True)
def shared(tables: Tables) -> Tables:
    """The same tables for kernels, by reference: a call passes on one pointer, not each array.

    They have the same fields there; Python cannot read them. Where an array is replaced by a
    larger one, make them anew.
    """
    return _Shared(*tables)  # type: ignore[no-untyped-call, return-value]


@njit(cache=True, nogil=True)
def shared_tree(tree: HostTree) -> SharedTree:
    """The tree by reference, see `shared`."""
    return _Tree(tree)  # type: ignore[no-untyped-call, return-value]
