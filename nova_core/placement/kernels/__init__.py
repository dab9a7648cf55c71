"""Compiled kernels (numba): the loops that outgrow numpy. Orchestration lives one level up."""

from __future__ import annotations

from nova_core.kernel_cache import kernel_cache

with kernel_cache(__file__):
    from nova_core.placement.kernels import (
        assign,
        capacity_tree,
        cut,
        fill,
        hosts,
        items,
        median,
        merge,
        ranking,
        refine,
        residents,
        spread,
        tuning,
    )

__all__ = [
    "assign",
    "capacity_tree",
    "cut",
    "fill",
    "hosts",
    "items",
    "median",
    "merge",
    "ranking",
    "refine",
    "residents",
    "spread",
    "tuning",
]
