"""Kernels that count no references: what they return, and which must be such."""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import nova_core.placement.kernels as kernels
from nova_core.placement.kernels import capacity_tree, items, refine, residents
from nova_core.placement.kernels.state import host_tree, hosts, settle

SCALARS = re.compile(r"(int|float|bool|None|tuple|[\[\], ])+")


def compiled(module: Any) -> dict[str, Any]:
    """The kernels that a module defines."""
    return {
        f"{module.__name__}.{name}": value
        for name, value in vars(module).items()
        if hasattr(value, "py_func") and value.__module__ == module.__name__
    }


def borrows(kernel: Any) -> bool:
    return kernel.targetoptions.get("_nrt") is False


def test_kernels_that_borrow_return_no_arrays() -> None:
    """Nor do they call one that does: nobody would count, or drop, the reference."""
    found: dict[str, Any] = {}
    for module in walk_packages(kernels.__path__, f"{kernels.__name__}."):
        found |= compiled(import_module(module.name))
    assert len(found) > 50
    for name, kernel in found.items():
        function = kernel.py_func
        if borrows(kernel):
            called = (function.__globals__.get(one) for one in function.__code__.co_names)
            for one in (kernel, *called):
                if hasattr(one, "py_func"):
                    returned = one.py_func.__annotations__["return"]
                    assert SCALARS.fullmatch(returned), f"{name}: {one.__name__}: {returned}"


def test_refinement_counts_no_references() -> None:
    """Counting them, or calling kernels of its loops, made it three to six times slower."""
    for kernel in compiled(refine).values():
        assert borrows(kernel)
    for kernel in (items.attach, items.detach, items.may_host, items.access_cost, residents.enter):
        assert borrows(kernel)
    inlined: list[Any] = [refine.improve, refine.improve_deep, refine._elsewhere]
    for kernel in (*inlined, items.distance_cost):
        assert kernel.targetoptions["forceinline"]
        assert kernel.targetoptions.get("inline", "never") == "never"


def test_live_events_count_no_references() -> None:
    """Each passes trees, loads and joins on for every join that it concerns."""
    called: list[Any] = [host_tree.nearest]
    inlined: list[Any] = [
        hosts.host_cost,
        hosts.ideal,
        settle._look_ahead,
        settle._move_each,
        settle._read_operators,
        hosts.move_operator,
    ]
    inlined += [host_tree.set_free, capacity_tree.flat_distance, capacity_tree._farther]
    for kernel in (*called, *inlined):
        assert borrows(kernel)
    for kernel in inlined:
        assert kernel.targetoptions["forceinline"]
        assert kernel.targetoptions.get("inline", "never") == "never"
