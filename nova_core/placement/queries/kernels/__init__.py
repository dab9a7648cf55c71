"""Compiled kernels of operator graphs (numba). Orchestration lives one level up."""

from __future__ import annotations

from nova_core.kernel_cache import kernel_cache
from nova_core.placement.kernels import capacity_tree

with kernel_cache(__file__, capacity_tree.__file__):
    from nova_core.placement.queries.kernels import assign as assign
    from nova_core.placement.queries.kernels import springs as springs
