"""Numba's decorator with the types of what it decorates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function, once for all processes."""
    return cast("F", njit(cache=True, nogil=True)(function))


def inlined(function: F) -> F:
    """Compile a small function into its callers: a call passes every array, which takes longer."""
    return cast("F", njit(cache=True, nogil=True, inline="always")(function))


__all__ = ["compiled", "inlined"]
