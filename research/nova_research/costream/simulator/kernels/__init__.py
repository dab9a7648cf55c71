"""Compiled kernels (numba) of the simulator; orchestration lives one level up."""

from __future__ import annotations

from nova_core.kernel_cache import kernel_cache

with kernel_cache(__file__):
    from nova_research.costream.simulator.kernels import simulation as simulation
