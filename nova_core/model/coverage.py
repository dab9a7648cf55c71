"""Whether instances tile every pair's grid of partitions: no cell left out, none taken twice."""

from __future__ import annotations

import numpy as np

from nova_core.model.plan import Plan
from nova_core.model.problem import Ints

# Grid rows laid out at a time; bounds memory to some tens of megabytes.
CHUNK_ROWS = 1_000_000


def coverage(plan: Plan) -> tuple[Ints, Ints]:
    """Count the cells of every pair's grid that are not joined exactly once.

    A cell is one left partition meeting one right one. Takes time in the order of the grid rows
    that instances span, and only for pairs that are cut.

    Args:
        plan: one whose indices are in range.

    Returns:
        (p,) cells that no instance joins, and (p,) joins beyond the first of a cell.
    """
    i, count = plan.instances, plan.partitions.count
    m, n = count[0::2], count[1::2]
    missing, surplus = m * n, np.zeros(len(m), np.int64)
    # The common case is a single instance that takes the whole grid.
    missing[i.pair[plan.uncut]] = 0

    rest = np.flatnonzero(~plan.uncut)
    height = (i.left_end - i.left_begin)[rest]
    # Chunks end between pairs, as a pair's instances must be seen together.
    last_of_pair = np.flatnonzero(np.append(np.diff(i.pair[rest]) != 0, True)[: len(rest)])
    chunk = np.cumsum(height)[last_of_pair] // CHUNK_ROWS
    ends = last_of_pair[np.append(np.diff(chunk) != 0, True)[: len(chunk)]] + 1
    for part in np.split(rest, ends[:-1]):
        covered, total = _covered(plan, part)
        missing -= covered
        surplus += total - covered
    return missing, surplus


def _covered(plan: Plan, part: Ints) -> tuple[Ints, Ints]:
    """(p,) distinct cells the given instances take, and (p,) the sum of their areas."""
    i = plan.instances
    pairs, m = plan.operator_count, plan.partitions.count[0::2]
    height = (i.left_end - i.left_begin)[part]
    # One interval of right partitions per grid row that an instance spans ...
    rect = np.repeat(part, height)
    row = np.arange(len(rect)) - np.repeat(np.cumsum(height) - height, height)
    row += i.left_begin[rect]
    first_row = np.cumsum(m) - m
    row += first_row[i.pair[rect]]
    # ... on one line on which grid rows follow each other, so that one running maximum serves all.
    width = int(i.right_end[part].max(initial=0))
    begin, end = row * width + i.right_begin[rect], row * width + i.right_end[rect]
    order = np.argsort(begin, kind="stable")
    pair, begin, end = i.pair[rect][order], begin[order], end[order]
    reached = np.maximum.accumulate(end)
    fresh = end.copy()
    fresh[1:] = np.maximum(end[1:], reached[:-1])
    fresh[1:] -= np.maximum(begin[1:], reached[:-1])
    fresh[:1] -= begin[:1]
    return _count(pair, fresh, pairs), _count(i.pair[part], i.replicas[part], pairs)


def _count(pair: Ints, cells: Ints, pairs: int) -> Ints:
    return np.bincount(pair, cells, minlength=pairs).astype(np.int64)
