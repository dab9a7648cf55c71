"""Compiled kernels of live placement: a tree of hosts that come, go and move, and its searches."""

from __future__ import annotations

from nova_core.kernel_cache import kernel_cache
from nova_core.placement.kernels import median

with kernel_cache(__file__, median.__file__):
    from nova_core.placement.kernels.live import (
        columns,
        hosts,
        look_ahead,
        residents,
        settle,
        touched,
        tree,
    )

__all__ = ["columns", "hosts", "look_ahead", "residents", "settle", "touched", "tree"]
