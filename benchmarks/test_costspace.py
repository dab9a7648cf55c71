"""Time, memory and errors of embedding a synthetic internet, on all cores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from nova_core.costspace import CostSpace, ErrorReport, LiveCostSpace, embed, errors
from nova_core.model.problem import PairLatencies
from nova_core.workers import PARALLEL_NODES
from nova_harness.bench.memory import memory_in_use, peak_memory, reset_peak
from nova_testbed.internet import SyntheticInternet

# Numbers of nodes.
CASES, SMALL = (1_000, 10_000, 100_000, 1_000_000), 300
SOLVER, VIVALDI, HEIGHTS = "solver", "vivaldi, heights", "solver, heights"
STEPS: dict[str, dict[str, Any]] = {
    SOLVER: {"method": "solver", "height": False},
    VIVALDI: {"method": "vivaldi", "height": True},
    HEIGHTS: {"method": "solver", "height": True},
}
# How many others each node measures, at random.
NEIGHBOURS = 20
# Pairs whose errors are measured, and nodes that join.
TESTED_PAIRS = 200_000
JOINING = 200


def pairs(
    internet: SyntheticInternet, first: int, end: int, others: int, each: int = NEIGHBOURS
) -> PairLatencies:
    """What the nodes from ``first`` to ``end`` measure: ``each`` of the first others, at random."""
    source = np.repeat(np.arange(first, end), each)
    target = np.random.default_rng((first, each)).integers(0, others - 1, len(source))
    target += target >= source
    return PairLatencies(source, target, internet.rtt(source, target))


def embedded(internet: SyntheticInternet, nodes: int, step: str) -> CostSpace:
    """A space of the first nodes."""
    return embed(pairs(internet, 0, nodes, nodes), nodes, dimensions=2, seed=0, **STEPS[step])


def report(internet: SyntheticInternet, space: CostSpace, nodes: int) -> ErrorReport:
    """Errors of pairs that nobody has measured."""
    each = max(TESTED_PAIRS // nodes, 1) + NEIGHBOURS
    return errors(space, pairs(internet, 0, min(nodes, TESTED_PAIRS), nodes, each))


def figures(found: ErrorReport) -> dict[str, float]:
    """What is kept of errors, ms and shares."""
    assert 0 < found.mae < 60
    assert 0 < found.median_relative < 0.5
    names = ("mae", "median_relative", "p90_relative")
    return {name: getattr(found, name) for name in names}


@pytest.mark.parametrize("step", STEPS)
def test_embed(benchmark: BenchmarkFixture, case: int, step: str) -> None:
    """All nodes at once; peak memory is what is in use beyond the measurements."""
    internet = SyntheticInternet(case, seed=0)
    embedded(internet, min(case, PARALLEL_NODES), step)  # compiles
    measured = pairs(internet, 0, case, case)
    before, can_tell_peak = memory_in_use(), reset_peak()
    options = {"dimensions": 2, "seed": 0, **STEPS[step]}
    space = benchmark.pedantic(embed, (measured, case), options, rounds=3)
    if can_tell_peak:
        benchmark.extra_info["peak_bytes"] = peak_memory() - before
    benchmark.extra_info |= {"pairs": len(measured), **figures(report(internet, space, case))}


def test_join(benchmark: BenchmarkFixture, case: int) -> None:
    """One node after the other joins, ``JOINING`` of them, as well placed as those before."""
    internet = SyntheticInternet(case + JOINING, seed=0)
    space = embedded(internet, case, HEIGHTS)
    live, joined = LiveCostSpace(space, 0), pairs(internet, case, case + JOINING, case)
    others, latency = (np.split(column, JOINING) for column in (joined.target, joined.latency))
    found = benchmark(lambda: [*map(live.locate, others, latency)])
    assert space.height is not None
    larger = CostSpace(
        np.vstack([space.position, *(one.position for one in found)]),
        np.append(space.height, [one.height for one in found]),
    )
    off = errors(larger, pairs(internet, case, case + JOINING, case, each=200))
    benchmark.extra_info |= figures(off)
    assert off.mae < 1.5 * report(internet, space, case).mae


def test_steps_measured_are_as_good_as_they_should() -> None:
    """Heights, and the solver, are worth their time."""
    internet = SyntheticInternet(SMALL, seed=0)
    maes = {one: report(internet, embedded(internet, SMALL, one), SMALL).mae for one in STEPS}
    assert maes[HEIGHTS] < min(maes[VIVALDI], maes[SOLVER])
