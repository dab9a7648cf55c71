"""The cost space: coordinates of nodes from measured latencies (paper, sections 3.2 and 3.6)."""

from __future__ import annotations

from nova_core.costspace.comparison import Drift, ErrorReport, aligned, drift, errors
from nova_core.costspace.cost_space import CostSpace
from nova_core.costspace.embedding import embed
from nova_core.costspace.incremental import LiveCostSpace, Location
from nova_core.costspace.measurements import DisconnectedError, pairs_of, sample_pairs
from nova_core.costspace.percentile_filter import PercentileFilter
from nova_core.costspace.statistics import TriangleReport, triangle_violations

__all__ = [
    "CostSpace",
    "DisconnectedError",
    "Drift",
    "ErrorReport",
    "LiveCostSpace",
    "Location",
    "PercentileFilter",
    "TriangleReport",
    "aligned",
    "drift",
    "embed",
    "errors",
    "pairs_of",
    "sample_pairs",
    "triangle_violations",
]
