"""The cost space: coordinates of nodes from measured latencies (paper, sections 3.2 and 3.6)."""

from __future__ import annotations

from nova_core.costspace.comparison import Drift as Drift
from nova_core.costspace.comparison import ErrorReport as ErrorReport
from nova_core.costspace.comparison import aligned as aligned
from nova_core.costspace.comparison import drift as drift
from nova_core.costspace.comparison import errors as errors
from nova_core.costspace.cost_space import CostSpace as CostSpace
from nova_core.costspace.embedding import embed as embed
from nova_core.costspace.incremental import LiveCostSpace as LiveCostSpace
from nova_core.costspace.incremental import Location as Location
from nova_core.costspace.measurements import DisconnectedError as DisconnectedError
from nova_core.costspace.measurements import pairs_of as pairs_of
from nova_core.costspace.measurements import sample_pairs as sample_pairs
from nova_core.costspace.percentile_filter import PercentileFilter as PercentileFilter
from nova_core.costspace.statistics import TriangleReport as TriangleReport
from nova_core.costspace.statistics import triangle_violations as triangle_violations
