"""Compiled kernels of operator graphs (numba). Orchestration lives one level up."""

from __future__ import annotations

from nova_core.kernel_cache import kernel_cache

with kernel_cache(__file__):
    from nova_core.placement.queries.kernels import springs as springs
