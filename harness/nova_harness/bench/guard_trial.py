"""Times one kind of work in whatever commit of Nova ``PYTHONPATH`` names; for `guard`.

Run by its path, so that commits which do not have this file are measured by the same code:
``guard_trial.py KIND NODES REPEAT SEED [EVENTS]``, with `kinds` for the names of live events. It
writes JSON to stdout: where Nova was imported from, and seconds of CPU time of each step. Every
step runs once on something small first, which compiles it.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

SMALL = 200
WARM_UP = 100
SINKS = 20


def quickest(work: Callable[[], Any], repeat: int) -> float:
    """Seconds of CPU time of the quickest run; runs of microseconds are repeated for 0.2 s."""
    times: list[float] = []
    gc.collect()
    while len(times) < repeat or sum(times) < 0.2:
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def placement(nodes: int, repeat: int, seed: int) -> dict[str, float]:
    """Placing a generated topology, without and with refinement."""
    from nova_core.strategies import create
    from nova_workloads.topology import generate

    # So tight that joins are cut.
    small, problem = generate(SMALL, rate_max=130), generate(nodes, seed=seed)
    found = {}
    for step, refine in (("place", False), ("place, refined", True)):
        strategy = create("nova", sigma=0.4, refine=refine, on_full="spread")
        strategy.place(small)

        def place(strategy: Any = strategy) -> Any:
            # A problem keeps columns it has worked out; copies start from the bare inputs.
            return strategy.place(replace(problem))

        found[step] = quickest(place, repeat)
    return found


def queries(nodes: int, repeat: int, seed: int) -> dict[str, float]:
    """Placing whole queries."""
    found = {}
    for objective in ("latency", "network-usage"):
        _query_placer(10, objective, seed)()
        found[f"queries, {objective}"] = quickest(_query_placer(nodes, objective, seed), repeat)
    return found


def _module(*names: str) -> Any:
    """The first of these modules that there is: some have moved since b4bfb64."""
    for name in names[:-1]:
        with suppress(ImportError):
            return import_module(name)
    return import_module(names[-1])


def _query_placer(nodes: int, objective: str, seed: int) -> Callable[[], Any]:
    made = _module("nova_harness.bench.queries", "nova_harness.measure_queries").generated(
        nodes, seed
    )
    if not isinstance(made, tuple):
        place = import_module("nova_core.strategies").place
        return lambda: place(replace(made), objective=objective)
    # Up to b4bfb64, queries were no part of problems.
    old = import_module("nova_core.queries")
    return lambda: old.place_queries(*made, old.QueryParameters(objective=objective))


def live(nodes: int, events: int, seed: int, kinds: Sequence[str]) -> dict[str, float]:
    """The median event of each kind, applied to a live placement."""
    benchmark = _live_benchmark()
    from nova_core.placement.live import LivePlacement
    from nova_core.strategies import create

    problem = benchmark.live_problem(nodes, seed)
    placed = LivePlacement(problem, create("nova", refine=False).place(problem))
    draw = _stream(placed, problem, seed)
    found = {}
    for kind in kinds:
        draw.only(kind)
        _apply(placed, draw, min(WARM_UP, events))
        # A small topology would run out of nodes and sources to remove.
        found[f"live, {kind}"] = _apply(placed, draw, min(events, max(50, nodes // 20)))
    return found


def _live_benchmark() -> Any:
    return _module("nova_harness.bench.live", "nova_harness.measure_live")


def _stream(placed: Any, problem: Any, seed: int) -> Any:
    """Random events; sinks move to nodes that are added for it."""
    benchmark = _live_benchmark()
    random = np.random.default_rng(seed)
    sinks = [f"sink-{number}" for number in range(SINKS)]
    for name in sinks:
        position = random.choice(problem.nodes.position).tolist()
        row = benchmark.NodeRow(id=name, capacity="unlimited", position=position, worker=False)
        placed.apply(benchmark.AddWorker(node=row))
    return benchmark.RandomEvents(placed.problem(), seed, sinks=sinks)


def _apply(placed: Any, draw: Any, count: int) -> float:
    """Median seconds of CPU time of so many events that were not refused."""
    from nova_core.errors import InfeasibleError, ProblemError

    used: list[float] = []
    gc.collect()
    while len(used) < count:
        event = draw.next()
        start = time.thread_time()
        try:
            placed.apply(event)
        except (InfeasibleError, ProblemError):
            continue
        used.append(time.thread_time() - start)
        draw.happened(event)
    return float(np.median(used))


def main(kind: str, nodes: int, repeat: int, seed: int, events: int, names: Sequence[str]) -> None:
    """Print what one kind of work took."""
    import nova_core

    answer: Any
    if kind == "kinds":
        answer = list(_module("nova_workloads.live_events", "nova_harness.measure_live").SHARES)
    elif kind == "live":
        answer = live(nodes, events, seed, names)
    else:
        answer = {"placement": placement, "queries": queries}[kind](nodes, repeat, seed)
    json.dump({"from": nova_core.__file__, "answer": answer}, sys.stdout)


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[2:6]]
    main(sys.argv[1], numbers[0], numbers[1], numbers[2], numbers[3], sys.argv[6:])
