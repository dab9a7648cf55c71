"""Compiles the kernels that tests use, and the tests, once for all processes of tests side by side.

`./nova test` runs this while the linters leave a core idle, and what is left when they are done on
both. Nothing depends on it but time.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from oracles import live_placement

from benchmarks.test_simulator import plans_of, simulated
from nova_core.costspace import CostSpace, LiveCostSpace, embed, sample_pairs
from nova_core.errors import InfeasibleError, NovaError
from nova_core.io.examples import load_example
from nova_core.placement.live import LivePlacement, Rebalance
from nova_core.strategies import place
from nova_harness.bench.queries import generated
from nova_research.costream.simulator.stages import stages_of
from nova_workloads.live_events import RandomEvents
from nova_workloads.topology import generate

HERE = Path(__file__).parent


def placement() -> None:
    """Kernels of placement, and those of live placement, which call them: about half of it all."""
    problem = generate(400, heterogeneity=0.5, seed=0)
    place(problem, "nova")
    place(problem, "nova", refine=False)
    live_placement.main(
        ["--nodes", "400", "--events", "300", "--every", "150"], standalone_mode=False
    )
    place(problem, "nova", index="kdtree", on_full="spread")
    live_queries()
    sys.path.append(str(HERE / "nova_core" / "strategies"))
    from problem_families import FAMILIES

    for family in FAMILIES.values():
        for strategy in ("nova", "sbon-optimal"):
            with suppress(InfeasibleError):
                place(family(1), strategy)
    place(FAMILIES["crowded"](1), "nova", on_full="spread")


def live_queries() -> None:
    """Kernels of live placement of whole queries."""
    sys.path.append(str(HERE / "nova_core" / "queries"))
    from query_cases import random_queries

    problem = random_queries(0)
    live, draw = LivePlacement(problem, place(problem)), RandomEvents(problem, 0)
    for _ in range(150):
        event = draw.next()
        with suppress(NovaError):
            live.apply(event)
            draw.happened(event)
    live.apply(Rebalance(moves=5))


def others() -> None:
    """All other kernels, and the tests."""
    for search in ("annealing", "reactive-tabu"):
        place(load_example("running-example"), f"whitewater-{search}")
    place(generated(100, seed=0))
    with TemporaryDirectory() as scratch:
        ((plan, seconds),) = plans_of("rack", 1, Path(scratch))
    simulated(plan, stages_of(plan), seconds)
    position = np.random.default_rng(0).uniform(size=(300, 2)) * 50
    space = CostSpace(position, np.ones(300))
    for height in (False, True):
        embed(sample_pairs(space.matrix(), 20), 300, height=height)
        embed(sample_pairs(space.matrix(), 20), 300, height=height, method="vivaldi")
        embed(space.matrix(), height=height)
    embed(space.matrix(), method="smacof")
    LiveCostSpace(space).add(np.arange(20), np.full(20, 9.0))
    # pytest compiles tests, and its plugins, in a way of its own.
    pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider"])


if __name__ == "__main__":
    beside = multiprocessing.get_context("fork").Process(target=others, daemon=True)
    beside.start()
    # Ended early, it ends the other process, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    placement()
    beside.join()
