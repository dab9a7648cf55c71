"""The cost space: coordinates of nodes from measured latencies (paper, sections 3.2 and 3.6)."""

from __future__ import annotations

from nova_core.costspace.components import DisconnectedError
from nova_core.costspace.cost_space import CostSpace
from nova_core.costspace.embedding import MatrixMethod, Method, embed, embed_matrix
from nova_core.costspace.errors import ErrorReport, errors
from nova_core.costspace.measurements import pairs_of, sample_pairs

__all__ = [
    "CostSpace",
    "DisconnectedError",
    "ErrorReport",
    "MatrixMethod",
    "Method",
    "embed",
    "embed_matrix",
    "errors",
    "pairs_of",
    "sample_pairs",
]
