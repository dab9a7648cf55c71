"""The cost space of a problem that brings measured latencies but no positions."""

from __future__ import annotations

import warnings
from typing import cast

import numpy as np

from nova_core.costspace.components import DisconnectedError
from nova_core.costspace.cost_space import CostSpace
from nova_core.costspace.embedding import MatrixMethod, Method, embed, embed_matrix
from nova_core.costspace.latency_files import Measurements
from nova_core.costspace.measurements import pairs_of, sample_pairs
from nova_core.costspace.sweeps import Progress
from nova_core.errors import ProblemError, ProblemWarning
from nova_core.model.problem import Floats, PairLatencies, Strings

DIMENSIONS = 2
SEED = 0
# Of a matrix, all pairs are used up to this many nodes, and a sample of each node's above.
DENSE_NODES = 500
NEIGHBOURS = 32
MATRIX_METHODS = ("smacof", "classical")
DIGITS = 4
_NAMED = 5


def locate(
    ids: Strings, latency: Floats | None, measured: PairLatencies | None, where: str
) -> tuple[Floats, Floats | None]:
    """Embed a problem's measured latencies with the defaults; deterministic.

    The matrix, if there is one, else the pairs; two dimensions and heights, which on measured
    internet latencies place better than five dimensions without (docs/cost-space.md).

    Args:
        ids: (n,) node names, for errors.
        latency: (n, n) ms, or None.
        measured: pairs, or None.
        where: the file messages name.

    Returns:
        (n, d) positions and (n,) heights, ms.

    Raises:
        ProblemError: when the pairs do not connect all nodes, or a latency cannot be used.

    Warns:
        ProblemWarning: always, to say what was done.
    """
    if latency is not None:
        pairs = chosen_pairs(latency)
    else:
        assert measured is not None
        pairs = measured
    try:
        space = embedded(ids, pairs, dimensions=DIMENSIONS, height=True, method="solver", seed=SEED)
    except ProblemError as error:
        raise ProblemError(f"{where}: {error}") from None
    warnings.warn(
        f"{where}: nodes have no positions; embedded into {DIMENSIONS} dimensions and heights from "
        f"{len(pairs):,} measured pairs",
        ProblemWarning,
        stacklevel=2,
    )
    return space.position, space.height


def chosen_pairs(
    latency: Floats, neighbours: int | None = None, near: float = 0.0, seed: int = SEED
) -> PairLatencies:
    """The pairs of a matrix that are embedded.

    Args:
        latency: (n, n) ms, NaN where nothing was measured.
        neighbours: m, as if each node had measured only so many others; None takes all pairs of up
            to 500 nodes and 32 neighbours of more.
        near: share of the neighbours that are a node's nearest.
        seed: of the others.
    """
    if neighbours is None and len(latency) <= DENSE_NODES:
        return pairs_of(latency)
    return sample_pairs(latency, neighbours or NEIGHBOURS, near, seed)


def embed_measurements(
    measured: Measurements,
    *,
    dimensions: int = DIMENSIONS,
    height: bool | None = None,
    method: str = "solver",
    neighbours: int | None = None,
    near: float = 0.0,
    seed: int = SEED,
    progress: Progress | None = None,
) -> tuple[CostSpace, int]:
    """Embed latencies that were read, and say how many pairs were used.

    Args:
        measured: a matrix or pairs.
        dimensions: d of the space.
        height: whether nodes get heights; None where the method knows them.
        method: of `nova_core.costspace.embed`, or ``smacof`` or ``classical`` for a matrix.
        neighbours: of a matrix, how many others each node uses, see `chosen_pairs`.
        near: share of the neighbours that are a node's nearest.
        seed: of everything random.
        progress: called with steps done and steps in all.

    Raises:
        ProblemError: when the pairs do not connect all nodes, or options do not go together.
    """
    matrix = measured.matrix
    if height is None:
        height = method not in MATRIX_METHODS
    if matrix is None and (neighbours is not None or method in MATRIX_METHODS):
        what = "neighbours" if neighbours is not None else f"method {method}"
        raise ProblemError(f"{what}: only for a matrix; of measured pairs all are used")
    if method in MATRIX_METHODS:
        assert matrix is not None
        if neighbours is not None:
            raise ProblemError(f"neighbours: method {method} uses the whole matrix")
        space = embed_matrix(
            matrix, dimensions=dimensions, height=height, method=cast("MatrixMethod", method),
            seed=seed, progress=progress,
        )  # fmt: skip
        return _rounded(space), len(pairs_of(matrix))
    pairs = measured.pairs() if matrix is None else chosen_pairs(matrix, neighbours, near, seed)
    space = embedded(
        measured.ids, pairs, dimensions=dimensions, height=height, method=method, seed=seed,
        progress=progress,
    )  # fmt: skip
    return space, len(pairs)


def embedded(
    ids: Strings,
    pairs: PairLatencies,
    *,
    dimensions: int,
    height: bool,
    method: str,
    seed: int,
    progress: Progress | None = None,
) -> CostSpace:
    """`nova_core.costspace.embed` with errors that name nodes.

    Raises:
        ProblemError: when the pairs do not connect all nodes, or a latency cannot be used.
    """
    try:
        return _rounded(embed(
            pairs, len(ids), dimensions=dimensions, height=height, method=cast("Method", method),
            seed=seed, progress=progress,
        ))  # fmt: skip
    except DisconnectedError as error:
        raise ProblemError(_unconnected(ids, error)) from None


def _rounded(space: CostSpace) -> CostSpace:
    """The space to a tenth of a microsecond, which documents can show."""
    height = None if space.height is None else np.round(space.height, DIGITS)
    return CostSpace(np.round(space.position, DIGITS), height, space.error)


def _unconnected(ids: Strings, error: DisconnectedError) -> str:
    sizes = np.bincount(error.component)
    parts = []
    for number, size in enumerate(sizes[:_NAMED].tolist()):
        some = ids[np.flatnonzero(error.component == number)[:_NAMED]].tolist()
        more = ", ..." if size > len(some) else ""
        parts.append(f"{size} node{'s' * (size > 1)} ({', '.join(some)}{more})")
    more = f", and {len(sizes) - _NAMED} more" if len(sizes) > _NAMED else ""
    return (
        f"the measured pairs fall apart into {len(sizes)} unconnected groups: {'; '.join(parts)}"
        f"{more}; measure pairs between the groups, or place each by itself"
    )


__all__ = ["chosen_pairs", "embed_measurements", "embedded", "locate"]
