"""A corpus by the fitted simulator: the same queries and hardware, without hosts."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nova_research.costream.corpus.prepared import (
    Prepared,
    Preparing,
    Settings,
    begin_corpus,
    items_of,
    run_of,
    traces_of,
)
from nova_research.costream.corpus.ranges import FIRST_LOAD, NAMED, RACK, Ranges
from nova_research.costream.training.traces import (
    MEASURED_S,
    WARM_UP_S,
    Trace,
    append,
    compact,
    read_traces,
)

BATCH = 500
"""Runs of one part file, under the same memory of the hosts."""
GROUPS, HOSTS = 4, 4


def simulate_corpus(
    path: Path,
    runs: int,
    seed: int,
    ranges: str,
    progress: Callable[[int, int], Any],
    drawn: Ranges | None = None,
) -> int:
    """Simulate the missing runs of a corpus.

    Args:
        path: its directory; an interrupted corpus is resumed.
        runs: how many it gets in all; each has a trace for every query.
        seed: one seed gives one corpus.
        ranges: one of `nova_research.costream.corpus.ranges.NAMED`, or a name for ``drawn``.
        progress: callback with finished runs and their total.
        drawn: ranges to draw from, where the name is not one of those.

    Returns:
        Number of runs in the corpus.

    Raises:
        NovaError: for a directory of another corpus, or of something else.
    """
    from nova_research.costream.simulator.simulate import digest_of, fitted_constants

    settings = Settings(
        seed=seed, batch=BATCH, inventory=f"simulated-{ranges}", hosts=HOSTS, warm_up_s=WARM_UP_S,
        duration_s=MEASURED_S, drain_s=0.0, cores=math.inf,
        constants=digest_of(fitted_constants()),
    )  # fmt: skip
    begin_corpus(path, settings)
    names = [f"host{number}" for number in range(GROUPS * HOSTS)]
    groups = [names[i : i + HOSTS] for i in range(0, len(names), HOSTS)]
    ids = read_traces([path], ["id"], begun=True).column("id").to_pylist()
    finished = {run_of(one) for one in ids}
    count = len(finished)
    with tempfile.TemporaryDirectory(prefix="nova-corpus-") as scratch:
        for number, items in enumerate(items_of(runs, BATCH)):
            of = drawn or NAMED[ranges]
            load = FIRST_LOAD if of is RACK else 1.0
            preparing = Preparing(settings, number, groups, load, Path(scratch), of)
            prefix, rows = f"simulated-{ranges}-", []
            # One seed gives one result: nothing is run twice.
            for item in items:
                if not item.again and prefix + item.id(seed) not in finished:
                    rows += _simulated(preparing.plan(item), seed, number, ranges, prefix)
                    count += 1
                    progress(count, runs)
            if rows:
                append(path, number, rows)
    return count


def _simulated(prepared: Prepared, seed: int, batch: int, ranges: str, prefix: str) -> list[Trace]:
    from nova_flink.home import VERSION
    from nova_research.costream.simulator.simulate import simulate

    ran = simulate(prepared.plan, measured_s=prepared.seconds)
    counts = {name: asdict(one) for name, one in ran.operators.items()}
    return traces_of(
        prepared,
        seed,
        ran.of_query,
        prefix,
        # The same name as on a rack with the same seed: it is the same problem.
        name=("" if ranges == "rack" else f"{ranges}-") + prepared.problem.name,
        operators=compact(counts),
        origin="simulator",
        engine="flink",
        engine_version=VERSION,
        batch=batch,
    )
