"""Time and memory of the optimizer's steps on one problem, measured in a process of its own.

Run as ``python -m nova_harness.measure_kernels CASE``, with a `Case` as JSON; writes a JSON list of
`Measurement` to stdout. With a process per problem, one's memory does not count as another's.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import msgspec
import numpy as np

from nova_core import console
from nova_core.errors import NovaError
from nova_core.evaluation.metrics import evaluate
from nova_core.model.objectives import leg_weights
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.model.verify import verify
from nova_core.placement.assignment import host_nodes
from nova_core.placement.geometric_median import geometric_median, pair_anchors
from nova_core.placement.kernels import capacity_tree
from nova_core.strategies import create
from nova_harness.measurement import (
    EVALUATE,
    MEDIAN,
    PLACE,
    REFINE,
    TREE,
    VERIFY,
    Case,
    Measurement,
)
from nova_harness.memory import memory_in_use, peak_memory, reset_peak
from nova_workloads.topology import generate

SIGMA = 0.4  # of the paper's experiments
SHORTEST_SERIES = 0.1  # seconds; a step of microseconds is repeated until it has taken this long

T = TypeVar("T")


class _Series:
    """Runs steps on one problem and keeps what they took."""

    def __init__(self, case: Case, problem: Problem) -> None:
        self._case = case
        self._problem = problem
        self._baseline = memory_in_use()
        self.measurements: list[Measurement] = []

    def run(self, step: str, work: Callable[[], T]) -> T:
        """Repeat a step; return the last result."""
        can_tell_peak = reset_peak()
        times: list[float] = []
        cpu_times: list[float] = []
        while True:
            cpu, start = time.process_time(), time.perf_counter()
            result = work()
            times.append(time.perf_counter() - start)
            cpu_times.append(time.process_time() - cpu)
            if len(times) >= self._case.repeat and sum(times) >= SHORTEST_SERIES:
                break
            del result  # two results at once would look like one's memory
        peak = peak_memory() - self._baseline if can_tell_peak else None
        self.measurements.append(
            Measurement(
                problem=self._case.label,
                synthetic=self._case.path is None,
                nodes=len(self._problem.nodes),
                joins=len(self._problem.matrix),
                step=step,
                median=statistics.median(times),
                best=min(times),
                cpu=statistics.median(cpu_times),
                runs=len(times),
                peak_bytes=peak,
            )
        )
        return result

    def add_quality(self, plan: Plan) -> None:
        """Add what the plan of the last step is worth."""
        evaluation = evaluate(plan)
        self.measurements[-1] = replace(
            self.measurements[-1],
            objective=evaluation.estimated.objectives["latency"],
            p90=evaluation.estimated.p90,
            overloaded=evaluation.load.overloaded_count,
            joins_cut=evaluation.joins_cut,
        )


def measure(case: Case) -> list[Measurement]:
    """Measure every step, warm and on one core.

    Raises:
        NovaError: when the problem cannot be read or nothing fits.
    """
    _use_one_core()
    _warm_up()
    problem = case.problem()
    series = _Series(case, problem)
    weights = leg_weights(problem, "latency")
    hosts = np.flatnonzero(host_nodes(problem, 0.0))
    nodes = problem.nodes
    position, free = np.ascontiguousarray(nodes.position), nodes.capacity

    series.run(MEDIAN, lambda: geometric_median(pair_anchors(problem), weights))
    series.run(TREE, lambda: capacity_tree.build(position, free, hosts))

    # A problem and a plan keep columns they have worked out; copies start from the bare inputs.
    nova, refined = (create("nova", sigma=SIGMA, refine=refine) for refine in (False, True))
    series.add_quality(series.run(PLACE, lambda: nova.place(replace(problem))))
    plan = series.run(REFINE, lambda: refined.place(replace(problem)))
    series.add_quality(plan)

    def bare() -> Plan:
        return replace(plan, problem=replace(problem))

    series.run(VERIFY, lambda: verify(bare()))
    series.run(EVALUATE, lambda: evaluate(bare()))
    return series.measurements


def _use_one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _warm_up() -> None:
    """Load and compile whatever the steps need, on a problem so tight that it takes cuts."""
    problem = generate(200, heterogeneity=1, rate_max=130)
    for refine in (False, True):
        plan = create("nova", sigma=SIGMA, refine=refine, on_full="spread").place(problem)
        verify(plan)
        evaluate(plan)


def main() -> None:
    """Measure the case given as the only argument."""
    case = msgspec.json.decode(sys.argv[1], type=Case)
    try:
        measurements = measure(case)
    except NovaError as error:
        console.fail(str(error))
        sys.exit(error.exit_code)
    sys.stdout.buffer.write(msgspec.json.encode(measurements))


if __name__ == "__main__":
    main()
