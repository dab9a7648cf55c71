"""The join matrix when it is not given: derived from equal keys, or dense."""

from __future__ import annotations

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.problem import Floats, Ints, Strings

# Beyond this a dense or badly keyed matrix is a mistake: it would not fit into memory.
MOST_PAIRS = 100_000_000


def output_rate(left: Floats, right: Floats, selectivity: Floats | float) -> Floats:
    """(p,) tuples/s pairs emit: ``selectivity`` results per tuple of the slower input.

    With the default of 1 each tuple of the slower input finds one match, as in a join by key and
    window of readings that come in step; a join that matches less has a selectivity below 1.
    """
    return np.asarray(selectivity * np.minimum(left, right))


def pairs_by_key(left: Ints, right: Ints, key: Strings) -> tuple[Ints, Ints]:
    """Pairs of sources with equal keys (paper, section 2.1: joins on region identifiers).

    Sorts and merges, so the cost is that of the sources and of the pairs found.

    Args:
        left: (a,) sources of the left stream.
        right: (b,) sources of the right stream.
        key: (s,) key of every source.

    Returns:
        ((p,), (p,)) left and right source of each pair, ordered by left, then right.

    Raises:
        ProblemError: when there are more than `MOST_PAIRS`.
    """
    codes = np.unique(np.concatenate([key[left], key[right]]), return_inverse=True)[1]
    left_code, right_code = codes[: len(left)], codes[len(left) :]
    order = np.argsort(right_code, kind="stable")
    first = np.searchsorted(right_code[order], left_code, "left")
    count = np.searchsorted(right_code[order], left_code, "right") - first
    _refuse_too_many(int(count.sum()))
    start = np.cumsum(count) - count
    within = np.arange(count.sum()) - np.repeat(start, count)
    partner = right[order[np.repeat(first, count) + within]]
    return _once(np.repeat(left, count), partner, np.array_equal(left, right))


def all_pairs(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Every left source with every right one (paper, section 2.1: nothing is known).

    Raises:
        ProblemError: when there are more than `MOST_PAIRS`.
    """
    _refuse_too_many(len(left) * len(right))
    every = np.repeat(left, len(right)), np.tile(right, len(left))
    return _once(*every, np.array_equal(left, right))


def _once(left: Ints, right: Ints, one_stream: bool) -> tuple[Ints, Ints]:
    """A stream joined with itself pairs no source with itself and no two sources twice."""
    keep = left < right if one_stream else slice(None)
    return left[keep], right[keep]


def _refuse_too_many(count: int) -> None:
    if count > MOST_PAIRS:
        raise ProblemError(
            f"matrix: {count} pairs would be derived, at most {MOST_PAIRS} are; give the sources "
            "finer keys, or the pairs themselves"
        )
