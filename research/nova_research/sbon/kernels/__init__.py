"""Compiled kernels of SBON: exact searches on the tree of nodes by capacity."""

from __future__ import annotations

from nova_core.kernel_cache import kernel_cache
from nova_core.placement import kernels

with kernel_cache(__file__, kernels.__file__, plain=f"{__name__}:run_all"):
    from nova_research.sbon.kernels import hosts as hosts


def run_all() -> None:
    """Run every kernel, and so have it compiled."""
    from nova_core.io.examples import load_example
    from nova_core.strategies import place

    for strategy in ("sbon-optimal", "sbon-relaxation"):
        place(load_example("running-example"), strategy)
