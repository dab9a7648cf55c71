"""Ranges of random queries, hosts and links: Costream's Table II, and a part of it for a rack."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

MOST_BYTES = 16 << 20
"""Readings of a query, which travel with its job and are in the memory of its hosts."""
FIRST_LOAD = 20.0
"""Load of a rack's first batch; later batches adapt to the share of traces that fail."""
TRIAL_LOAD = 1.0
"""Likewise where strategies are on trial: all sources are on weak hosts."""
MOST_SECONDS = 10
"""How long readings of a run may have to last."""
PLANS = 2
"""Of a problem, by default. The second plan is another one of the same problem, or one for other
hardware if there is no other plan."""


@dataclass(frozen=True)
class Ranges:
    """Values to draw from, equally likely unless stated otherwise.

    Attributes:
        cpu: cores of a host; with ``crowded``, small ones are likelier.
        memory_mib: MiB of a host.
        mbit: Mbit/s of a host's access.
        latency_ms: of what a host sends, one way; a round trip takes those of both ends.
        rates: tuples/s of each stream, by how many there are.
        loads: least and greatest times these rates, of a query, by logarithm. With the paper's own
            rates nearly everything succeeds: Flink takes a fraction of the CPU for a tuple that the
            paper's Storm took.
        windows_s: length of windows.
        window_shares: how often each.
        results: least and greatest target results/s of a join, by logarithm.
        most_bytes: of the readings of `MOST_SECONDS`.
        crowded: whether several hosts share a machine.
        together: how often a problem has so many queries on the same hosts.
        benchmark: name of a benchmark whose query takes the place of random ones.
    """

    cpu: Sequence[float]
    memory_mib: Sequence[int]
    mbit: Sequence[float]
    latency_ms: Sequence[float]
    rates: Mapping[int, Sequence[float]]
    loads: tuple[float, float]
    windows_s: Sequence[float]
    window_shares: Sequence[float]
    results: tuple[float, float]
    most_bytes: float
    crowded: bool
    together: Mapping[int, float]
    benchmark: str = ""


LATENCY_MS = (1, 2, 5, 10, 20, 40, 80, 160)
TWO_WAY = (50, 100, 250, 500, 750, 1000, 1250, 1500, 1750, 2000)
THREE_WAY = (20, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000)

PAPER = Ranges(
    cpu=(0.5, 1, 2, 3, 4, 5, 6, 7, 8),
    memory_mib=(1000, 2000, 4000, 8000, 16000, 24000, 32000),
    mbit=(25, 50, 100, 200, 400, 800, 1600, 3200, 6400, 10000),
    latency_ms=LATENCY_MS,
    rates={
        1: (100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600),
        2: TWO_WAY,
        3: THREE_WAY,
    },
    loads=(4.0, 128.0),
    windows_s=(0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    window_shares=(1 / 7,) * 7,
    results=(0.02, 20_000.0),
    most_bytes=math.inf,
    crowded=False,
    together={1: 1.0},
)

SHARED = replace(PAPER, together={2: 0.2, 3: 0.2, 4: 0.2, 6: 0.2, 8: 0.1, 12: 0.1})
"""The paper's, with hosts that several queries share."""

RACK = Ranges(
    # Hosts share one machine, so shares are a tenth of the paper's, and so is the bandwidth at the
    # lower end: what flows is in proportion to what hosts can compute.
    cpu=(0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6),
    memory_mib=(352, 448, 640, 896, 1280),
    mbit=(2, 5, 10, 25, 50, 100, 200, 400, 800),
    latency_ms=LATENCY_MS,
    rates={1: (100, 200, 400, 800, 1600, 3200, 6400), 2: TWO_WAY, 3: THREE_WAY},
    loads=(1.0, 10.0),
    # Longer ones end too rarely in a run of seconds.
    windows_s=(0.25, 0.5, 1.0, 2.0, 4.0),
    window_shares=(0.2, 0.2, 0.25, 0.2, 0.15),
    results=(0.02, 2000.0),
    most_bytes=MOST_BYTES,
    crowded=True,
    together={1: 0.4, 2: 0.2, 3: 0.2, 4: 0.1, 6: 0.1},
)

NAMED = {"rack": RACK, "paper": PAPER, "shared": SHARED}
