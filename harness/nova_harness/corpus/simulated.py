"""A corpus by the fitted simulator: the same queries and hardware, without hosts."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nova_harness.corpus.prepared import (
    Item,
    Prepared,
    Preparing,
    Settings,
    begin_corpus,
    items_of,
)
from nova_harness.corpus.ranges import FIRST_LOAD, NAMED, RACK, Ranges
from nova_learn.traces import (
    MEASURED_S,
    WARM_UP_S,
    Trace,
    append,
    compact,
    now,
    read_traces,
    trace_of,
)

BATCH = 500
"""Traces of one part file, under the same memory of the hosts."""
GROUPS, HOSTS = 4, 4


def simulate_corpus(
    path: Path,
    traces: int,
    seed: int,
    ranges: str,
    progress: Callable[[int, int], Any],
    drawn: Ranges | None = None,
) -> int:
    """Simulate the missing traces of a corpus.

    Args:
        path: its directory; an interrupted corpus is resumed.
        traces: how many it gets in all.
        seed: one seed gives one corpus.
        ranges: one of `nova_harness.corpus.ranges.NAMED`, or a name for ``drawn``.
        progress: callback with finished traces and their total.
        drawn: ranges to draw from, where the name is not one of those.

    Returns:
        Number of traces in the corpus.

    Raises:
        NovaError: for a directory of another corpus, or of something else.
    """
    from nova_learn.simulate import digest_of, fitted_constants

    settings = Settings(
        seed=seed, batch=BATCH, inventory=f"simulated-{ranges}", hosts=HOSTS, warm_up_s=WARM_UP_S,
        duration_s=MEASURED_S, drain_s=0.0, cores=math.inf,
        constants=digest_of(fitted_constants()),
    )  # fmt: skip
    begin_corpus(path, settings)
    names = [f"host{number}" for number in range(GROUPS * HOSTS)]
    groups = [names[i : i + HOSTS] for i in range(0, len(names), HOSTS)]
    finished = set(read_traces([path], ["id"], begun=True).column("id").to_pylist())
    count = len(finished)
    with tempfile.TemporaryDirectory(prefix="nova-corpus-") as scratch:
        for number, items in enumerate(items_of(traces, BATCH)):
            of = drawn or NAMED[ranges]
            load = FIRST_LOAD if of is RACK else 1.0
            preparing = Preparing(settings, number, groups, load, Path(scratch), of)
            rows = []
            # One seed gives one result: nothing is run twice.
            for item in [
                one for one in items if not one.again and _id(one, seed, ranges) not in finished
            ]:
                rows.append(_simulated(preparing.trace(item), seed, number, ranges))
                progress(count + len(rows), traces)
            if rows:
                append(path, number, rows)
            count += len(rows)
    return count


def _id(item: Item, seed: int, ranges: str) -> str:
    return f"simulated-{ranges}-{item.id(seed)}"


def _simulated(prepared: Prepared, seed: int, batch: int, ranges: str) -> Trace:
    from nova_flink.home import VERSION
    from nova_learn.simulate import simulate

    ran = simulate(prepared.plan, measured_s=prepared.seconds)
    counts = {name: asdict(one) for name, one in ran.operators.items()}
    return trace_of(
        prepared.plan,
        id=_id(prepared.item, seed, ranges),
        # The same name as on a rack with the same seed: it is the same query.
        query=("" if ranges == "rack" else f"{ranges}-") + prepared.problem.name,
        structure=prepared.query.structure,
        operators=compact(counts),
        origin="simulator",
        engine="flink",
        engine_version=VERSION,
        nova_version=version("nova-placement"),
        made=now(),
        seed=seed,
        batch=batch,
        repeat_of=None,
        duration_s=prepared.seconds,
        window_s=prepared.query.window_s,
        **asdict(ran.labels),
    )
