"""Compiled kernels of live placement: what events do to hosts and whole operators."""

from __future__ import annotations

from nova_core.kernel_cache import kernel_cache
from nova_core.placement.kernels import median
from nova_core.placement.queries.kernels import springs

with kernel_cache(__file__, median.__file__, springs.__file__):
    from nova_core.placement.kernels.live import changed as changed
    from nova_core.placement.kernels.live import host_tree as host_tree
    from nova_core.placement.kernels.live import hosts as hosts
    from nova_core.placement.kernels.live import points as points
    from nova_core.placement.kernels.live import settle as settle
    from nova_core.placement.kernels.live import swaps as swaps
    from nova_core.placement.kernels.live import tables as tables
    from nova_core.placement.kernels.live import trees as trees
