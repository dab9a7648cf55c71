"""The columns kernels work on: what is given, and a configuration with all that follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nova_core.kernel_cache import njit

F = TypeVar("F", bound=Callable[..., Any])
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SOURCE, FILTER, PROJECT, JOIN, SINK, AGGREGATE = range(6)


class Given(NamedTuple):
    """A query and a network, which no move changes.

    Resources are processors and memories of nodes and links, as far as they have a limit.

    Attributes:
        kind: (o,) one of SOURCE, FILTER, PROJECT, JOIN, SINK, AGGREGATE.
        factor: (o,) what the product of an operator's input rates is multiplied by to give its
            output rate: a source's rate, a filter's selectivity, 2 w s of a join (Table 3). What an
            aggregate emits, whatever it receives.
        taken: (o, i) share of the output of each input that an operator receives.
        reader_at: (o + 1,) where each operator's run in ``reader`` begins.
        reader: operators that receive an output besides its ``State.parent``; none in trees, and no
            swap changes those of others.
        cost: (o,) instructions per tuple received.
        fixed_memory: (o,) bytes whatever the rates (Table 4).
        window_memory: (o,) bytes per tuple/s received.
        columns: (o,) bits of columns: of a source those it emits, of a filter those it reads, of a
            project those it keeps.
        keys: (o, 2) bits of the two columns a join compares.
        movable: (m,) operators with several hosts.
        offset: (o + 1,) where each operator's run in ``host`` begins.
        host: (h,) nodes that may run it.
        speed: (n,) instructions/s.
        processor: (n,) resource that each node's processor is; -1 for none.
        memory: (n,) resource that each node's memory is; -1 for none.
        link: (l,) sorted keys ``from * n + to`` of links with a budget.
        link_resource: (l,) resource that each of them is.
        limit: (r,) of each resource: instructions/s, bytes, bytes/s.
        tuple_bytes: m_t.
        latency: (n, n) ms between nodes, or (1, 1) where no limit is set.
        latency_limit: ms on every path from a source to a root; inf for none.
    """

    kind: Ints
    factor: Floats
    taken: Floats
    reader_at: Ints
    reader: Ints
    cost: Floats
    fixed_memory: Floats
    window_memory: Floats
    columns: Ints
    keys: Ints
    movable: Ints
    offset: Ints
    host: Ints
    speed: Floats
    processor: Ints
    memory: Ints
    link: Ints
    link_resource: Ints
    limit: Floats
    tuple_bytes: float
    latency: Floats
    latency_limit: float


class State(NamedTuple):
    """A configuration, and what `throughput.refresh` derives from it.

    When all inputs have x times their expected rates, every stream carries c x^k tuples/s, where k
    is the number of sources it comes from, 0 behind an aggregate; so each resource is charged a
    polynomial of x.

    Attributes:
        child: (o, i) operators whose output each receives, two at least; -1 for none.
        parent: (o,) operator that receives its output, of several the last; -1 for a root.
        waiting: (o,) scratch: readers that are not in ``order`` yet.
        node: (o,) where it runs.
        coefficient: (o,) c of its output.
        degree: (o,) k of its output.
        output: (o,) bits of columns it emits.
        arrival: (o,) ms from the farthest source until it has processed a tuple.
        order: (o,) operators, each after its inputs.
        load: (r, d) coefficients of what each resource is charged.
        solved: (r, d) coefficients that ``most`` belongs to; NaN for none.
        most: (r,) greatest x each resource allows; negative where it is too small for any x.
        touched: (t,) scratch: resources a move changes, as many as one may.
        ranked: (t + 1,) the tightest resources, the tightest first; -1 where there are no more. The
            tightest one that a move leaves alone is among them.
        change: (t, d) scratch: by what.
        row: (d,) scratch.
    """

    child: Ints
    parent: Ints
    waiting: Ints
    node: Ints
    coefficient: Floats
    degree: Ints
    output: Ints
    arrival: Floats
    order: Ints
    load: Floats
    solved: Floats
    most: Floats
    ranked: Ints
    touched: Ints
    change: Floats
    row: Floats


def compiled(function: F) -> F:
    """Compile a function, once for all processes."""
    return njit(cache=True, nogil=True)(function)


def inlined(function: F) -> F:
    """Compile a small function into its callers: a call passes every array, which takes longer."""
    return njit(cache=True, nogil=True, inline="always")(function)
