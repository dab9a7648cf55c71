"""Compiled kernels (numba) of WhiteWater: what a configuration is worth, its neighbours, walks."""

from __future__ import annotations

from nova_core.kernel_cache import kernel_cache

with kernel_cache(__file__):
    from nova_research.whitewater.kernels import neighbours as neighbours
    from nova_research.whitewater.kernels import throughput as throughput
    from nova_research.whitewater.kernels import walks as walks
