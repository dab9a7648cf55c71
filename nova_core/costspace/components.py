"""Whether measurements connect all nodes; nothing places unconnected parts against each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nova_core.errors import ProblemError
from nova_core.model.problem import Ints

_NAMED = 5


class DisconnectedError(ProblemError):
    """Measured pairs fall apart into unconnected groups of nodes.

    Attributes:
        component: (n,) number of each node's group; 0 is the largest.
    """

    def __init__(self, message: str, component: Ints) -> None:
        super().__init__(message)
        self.component = component


def refuse_components(start: Ints, neighbour: NDArray[np.int32], node: Ints) -> None:
    """Raise unless every node can be reached from every other over measured pairs.

    Args:
        start: (n + 1,) first entry of each row of the graph.
        neighbour: (2m,) row at the other end of each entry.
        node: (n,) the node of each row.

    Raises:
        DisconnectedError: names how many groups there are, how large, and nodes of small ones.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = len(node)
    if n < 2:
        return
    # A few entries a row connect nearly every graph that is connected, and take no memory.
    for most in (2, 6, len(neighbour)):
        degree = np.minimum(np.diff(start), most)
        first = np.concatenate([[0], np.cumsum(degree)])
        kept = np.repeat(start[:-1] - first[:-1], degree) + np.arange(first[-1])
        entries = csr_array((np.ones(len(kept), np.int8), neighbour[kept], first), shape=(n, n))
        count, found = connected_components(entries, directed=True, connection="weak")
        if count == 1:
            return
    label = np.empty(n, np.int64)
    label[node] = found
    sizes = np.bincount(label, minlength=count)
    # Largest first; equal ones in the order of their first nodes.
    first = np.full(count, n)
    np.minimum.at(first, label, np.arange(n))
    order = np.lexsort((first, -sizes))
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    label = rank[label]
    parts = [_described(np.flatnonzero(label == i)) for i in range(min(count, _NAMED))]
    more = f", and {count - _NAMED} more" if count > _NAMED else ""
    raise DisconnectedError(
        f"the measured pairs fall apart into {count} unconnected groups of nodes: "
        f"{'; '.join(parts)}{more}; measure pairs between the groups, or embed each by itself",
        label,
    )


def _described(nodes: Ints) -> str:
    if len(nodes) == 1:
        return f"node {nodes[0]}"
    listed = ", ".join(str(node) for node in nodes[:_NAMED].tolist())
    return f"{len(nodes)} nodes ({listed}{', ...' * (len(nodes) > _NAMED)})"


__all__ = ["DisconnectedError", "refuse_components"]
