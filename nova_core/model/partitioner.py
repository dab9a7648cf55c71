"""How a tuple finds its partition, so that every host and engine sends it to the same one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nova_core.model.problem import Floats, Ints

SEQUENCE_SHARE = "sequence-share"
KEY_SHARE = "key-share"
# 2^64 divided by the golden ratio: multiples of it modulo 2^64 spread most evenly (Knuth, The Art
# of Computer Programming, vol. 3, section 6.4), so each partition has its share of any short run.
_STEP = np.uint64(0x9E3779B97F4A7C15)


def reached(rates: Floats) -> Floats:
    """(m,) where in [0, 1) each partition ends: shares added up from the first.

    What sends tuples to a partition and what places the partition need the same floats.

    Args:
        rates: (m,) of an input's partitions, tuples/s; equal shares where all are 0.
    """
    total = float(rates.sum())
    return np.cumsum(rates / total if total > 0 else np.full(len(rates), 1.0 / len(rates)))


def partition_of(sequence: Ints, rates: Floats) -> Ints:
    """Partition of each tuple of an input, by the rule ``sequence-share``.

    The tuple's sequence number times 0x9E3779B97F4A7C15, modulo 2^64, divided by 2^64, is a number
    u in [0, 1); the tuple belongs to the first partition whose shares up to and including its own
    sum to more than u. Sums are 64-bit floats, added from the first; u has its top 53 bits.

    Args:
        sequence: (t,) sequence numbers, from 0.
        rates: (m,) rates of the input's partitions, tuples/s, which are the weights.

    Returns:
        (t,) partition numbers.
    """
    spread = np.asarray(sequence, np.uint64) * _STEP
    u = (spread >> np.uint64(11)).astype(np.float64) / 2.0**53
    return np.minimum(np.searchsorted(reached(rates), u, side="right"), len(rates) - 1)
