"""Types of the columns that everything is made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Codes = NDArray[np.int8]  # of a few values, such as kinds and sides
Bools = NDArray[np.bool_]
Strings = NDArray[np.str_]


def runs(first: Ints, count: Ints) -> Ints:
    """Runs of numbers, one after the other: ``count`` numbers from ``first`` each."""
    offset = np.cumsum(count) - count
    return np.repeat(first - offset, count) + np.arange(int(count.sum()))
