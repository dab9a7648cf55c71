"""Names and numbers in events: what they mean, or one line that says why they mean nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

from msgspec import UNSET, UnsetType

from nova_core.errors import ProblemError
from nova_core.suggestions import unknown

T = TypeVar("T")


def row_of(index: Mapping[str, int], kind: str, name: str, where: str = "") -> int:
    """Row of a name.

    Raises:
        ProblemError: when the name is unknown.
    """
    row = index.get(name)
    if row is None:
        raise ProblemError(where + unknown(kind, name, index))
    return row


def or_default(value: T | UnsetType | None, default: T) -> T:
    """A field of an event; a default where it is left out."""
    return default if value is UNSET or value is None else value


def positive(value: float, what: str) -> float:
    """A rate.

    Raises:
        ProblemError: for one that is not positive.
    """
    if not 0 < value < math.inf:
        raise ProblemError(f"{what}: {value} is not a positive number of tuples/s")
    return float(value)
