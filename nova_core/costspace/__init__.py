"""The cost space: coordinates of nodes from measured latencies (paper, sections 3.2 and 3.6)."""

from __future__ import annotations

from nova_core.costspace.components import DisconnectedError
from nova_core.costspace.cost_space import CostSpace
from nova_core.costspace.embedding import MatrixMethod, Method, embed, embed_matrix
from nova_core.costspace.errors import ErrorReport, errors
from nova_core.costspace.incremental import LiveCostSpace, Location
from nova_core.costspace.measurements import pairs_of, sample_pairs
from nova_core.costspace.percentile_filter import PercentileFilter, percentile_filter
from nova_core.costspace.stability import Drift, aligned, drift, drifts
from nova_core.costspace.triangles import TriangleReport, triangle_violations

__all__ = [
    "CostSpace",
    "DisconnectedError",
    "Drift",
    "ErrorReport",
    "LiveCostSpace",
    "Location",
    "MatrixMethod",
    "Method",
    "PercentileFilter",
    "TriangleReport",
    "aligned",
    "drift",
    "drifts",
    "embed",
    "embed_matrix",
    "errors",
    "pairs_of",
    "percentile_filter",
    "sample_pairs",
    "triangle_violations",
]
