"""Numba's decorator with the types of what it decorates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function, once for all processes."""
    made: F = njit(cache=True, nogil=True)(function)
    return made


__all__ = ["compiled"]
