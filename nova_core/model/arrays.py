"""Types of the columns that everything is made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.signedinteger]  # of 8 bytes, or see `NARROW`
Codes = NDArray[np.int8]  # of a few values, such as kinds and sides
Bools = NDArray[np.bool_]
Strings = NDArray[np.str_]

# Of columns with a row per link or operator that are kept: there are fewer than 2^31 of anything.
# Products of such numbers need 8 bytes.
NARROW = np.int32


def runs(first: Ints, count: Ints) -> Ints:
    """Runs of numbers, one after the other: ``count`` numbers from ``first`` each."""
    offset = np.cumsum(count) - count
    numbers = np.arange(int(count.sum()))
    numbers += np.repeat(first - offset, count)
    return numbers
