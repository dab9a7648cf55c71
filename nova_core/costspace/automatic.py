"""The cost space of a problem that brings measured latencies but no positions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from nova_core.costspace.cost_space import CostSpace
from nova_core.costspace.embedding import DENSE_METHODS, embed
from nova_core.costspace.measurements import DisconnectedError, Measurements, pairs_of, sample_pairs
from nova_core.errors import ProblemError, ProblemWarning
from nova_core.model.problem import Floats, PairLatencies, Strings

DIMENSIONS = 2
SEED = 0
# Of a matrix, all pairs are used up to this many nodes, and a sample of each node's above.
DENSE_NODES = 500
NEIGHBOURS = 32
DIGITS = 4


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
        measured = chosen_pairs(latency)
    assert measured is not None
    try:
        space = embedded(ids, measured, dimensions=DIMENSIONS, height=True, seed=SEED)
    except ProblemError as error:
        raise ProblemError(f"{where}: {error}") from None
    warnings.warn(
        f"{where}: nodes have no positions; embedded into {DIMENSIONS} dimensions and heights from "
        f"{len(measured):,} measured pairs",
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
        neighbours: m, as if each node had measured only m others; None takes all pairs for up to
            500 nodes, and 32 neighbours for more.
        near: share of the neighbours that are a node's nearest.
        seed: of the others.
    """
    if neighbours is None and len(latency) <= DENSE_NODES:
        return pairs_of(latency)
    return sample_pairs(latency, neighbours or NEIGHBOURS, near, seed)


def embed_measurements(
    measured: Measurements,
    *,
    height: bool | None = None,
    method: str = "solver",
    neighbours: int | None = None,
    near: float = 0.0,
    seed: int = SEED,
    **options: Any,
) -> tuple[CostSpace, int]:
    """Embed latencies that were read, and say how many pairs were used.

    Args:
        measured: a matrix or pairs.
        height: whether nodes get heights; None where the method knows them.
        method: of `nova_core.costspace.embed`.
        neighbours: of a matrix, how many others each node uses, see `chosen_pairs`.
        near: share of the neighbours that are a node's nearest.
        seed: of everything random.
        options: others of `nova_core.costspace.embed`.

    Raises:
        ProblemError: when the pairs do not connect all nodes, or options do not go together.
    """
    matrix, dense = measured.matrix, method in DENSE_METHODS
    if matrix is None and (neighbours is not None or dense):
        what = "neighbours" if neighbours is not None else f"method {method}"
        raise ProblemError(f"{what}: only for a matrix; of measured pairs all are used")
    if dense and neighbours is not None:
        raise ProblemError(f"neighbours: method {method} uses the whole matrix")
    if matrix is None:
        pairs = measured.pairs()
    else:
        pairs = pairs_of(matrix) if dense else chosen_pairs(matrix, neighbours, near, seed)
    space = embedded(
        measured.ids,
        matrix if dense and matrix is not None else pairs,
        height=not dense if height is None else height,
        method=method,
        seed=seed,
        **options,
    )
    return space, len(pairs)


def embedded(ids: Strings, measured: Floats | PairLatencies, **options: Any) -> CostSpace:
    """`nova_core.costspace.embed`, to a tenth of a microsecond, with errors that name nodes.

    Raises:
        ProblemError: when the pairs do not connect all nodes, or a latency cannot be used.
    """
    try:
        space = embed(measured, len(ids), **options)
    except DisconnectedError as error:
        raise DisconnectedError(error.component, ids) from None
    # Coordinates are rounded to what documents show.
    height = None if space.height is None else np.round(space.height, DIGITS)
    return CostSpace(np.round(space.position, DIGITS), height, space.error)
