"""Compiled kernels (numba) of the cost space; orchestration lives one level up."""

from __future__ import annotations

from nova_core.kernel_cache import kernel_cache

with kernel_cache(__file__):
    from nova_core.costspace.kernels import graph as graph
    from nova_core.costspace.kernels import place as place
    from nova_core.costspace.kernels import relax as relax
    from nova_core.costspace.kernels import spectrum as spectrum
    from nova_core.costspace.kernels import triangles as triangles
    from nova_core.costspace.kernels import vivaldi as vivaldi
