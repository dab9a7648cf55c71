"""Compiled kernels (numba) of the cost space; orchestration lives one level up."""

from __future__ import annotations

from nova_core.kernel_cache import kernel_cache

with kernel_cache(__file__):
    from nova_core.costspace.kernels import graph, place, relax, spectrum, triangles, vivaldi

__all__ = ["graph", "place", "relax", "spectrum", "triangles", "vivaldi"]
