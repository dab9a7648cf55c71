"""Kernels that borrow their arrays from the caller, and count no references.

Numba counts a reference for every array that a kernel is given, reads out of a tuple or passes on:
with state in tuples of some thirty arrays, that took most of the time of a loop, and of compiling
it. A kernel that neither makes an array nor returns one can leave the counting to its caller, whose
arrays outlive the call. Numba refuses to compile such a kernel when it makes an array;
``tests/nova_core/test_borrowing.py`` checks what kernels return.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from nova_core.kernel_cache import njit

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}


def borrowing(function: F) -> F:
    """Compile a kernel that makes and returns no arrays, once for all processes."""
    return njit(**OPTIONS)(function)


def inlined(function: F) -> F:
    """The same, as part of each kernel that calls it.

    A call copies what describes each array of each tuple. LLVM includes the function after numba
    has compiled it; numba's own ``inline="always"`` compiles it again for every call.
    """
    return njit(**OPTIONS, forceinline=True)(function)


def plain(function: F) -> F:
    """A kernel as Python runs it, for a few sums: calling what is compiled takes longer."""
    return getattr(function, "py_func", function)
