"""Compiled kernels on a state's tables: of live placement, and of first plans of whole queries."""

from __future__ import annotations

from nova_core.kernel_cache import kernel_cache
from nova_core.placement.kernels import median
from nova_core.placement.queries.kernels import springs

with kernel_cache(__file__, median.__file__, springs.__file__):
    from nova_core.placement.kernels.state import changed as changed
    from nova_core.placement.kernels.state import host_tree as host_tree
    from nova_core.placement.kernels.state import hosts as hosts
    from nova_core.placement.kernels.state import points as points
    from nova_core.placement.kernels.state import settle as settle
    from nova_core.placement.kernels.state import swaps as swaps
    from nova_core.placement.kernels.state import tables as tables
    from nova_core.placement.kernels.state import trees as trees
