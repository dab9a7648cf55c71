"""The tables that kernels of live placement share.

Kernels that events call take all arrays one by one, which numba passes on in half the time of a
tuple, and pack them into these once.
"""

from __future__ import annotations

from typing import NamedTuple

from nova_core.model.problem import Floats, Ints

# Columns of `Joins.row`: all whole numbers about a join, in one cache line.
LEFT, RIGHT, LEFT_NODE, RIGHT_NODE, SINK, HOST, MOVED, CHANGED = range(8)


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
        first: (n,) the first join that runs whole there, see
            `nova_core.placement.kernels.residents`.
        pieces: (n,) how many joins run there in pieces.
    """

    capacity: Floats
    free: Floats
    first: Ints
    pieces: Ints


class Joins(NamedTuple):
    """Columns of the table of pairs.

    Attributes:
        row: (p, 8) left and right source, their nodes, the sink, the host of a whole join, the
            version at which it last moved, and the event that changed it last.
        chain: (p, 2) neighbours on the host, see `nova_core.placement.kernels.residents`.
    """

    row: Ints
    chain: Ints


class Kept(NamedTuple):
    """What pairs were before an event changed them, see `changed`.

    Attributes:
        row: (m, 4) a pair and what was in its row; has room for all that an event changes.
        point: (m, d) its virtual position then, ms.
        counts: (2,) rows in use, and the number of the event.
    """

    row: Ints
    point: Floats
    counts: Ints
