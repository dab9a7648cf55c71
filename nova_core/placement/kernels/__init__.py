"""Compiled kernels (numba): the loops that outgrow numpy. Orchestration lives one level up."""

from __future__ import annotations

from nova_core.kernel_cache import kernel_cache

with kernel_cache(__file__, plain="nova_core.compile_kernels:placement"):
    from nova_core.placement.kernels import assign as assign
    from nova_core.placement.kernels import capacity_tree as capacity_tree
    from nova_core.placement.kernels import cut as cut
    from nova_core.placement.kernels import fill as fill
    from nova_core.placement.kernels import items as items
    from nova_core.placement.kernels import median as median
    from nova_core.placement.kernels import merge as merge
    from nova_core.placement.kernels import ranking as ranking
    from nova_core.placement.kernels import refine as refine
    from nova_core.placement.kernels import residents as residents
    from nova_core.placement.kernels import rules as rules
    from nova_core.placement.kernels import spread as spread
    from nova_core.placement.kernels import tuning as tuning
