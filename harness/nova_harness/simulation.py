"""Strategies on simulated problems: what figures 6, 7 and 10 of the paper are made from.

Every cell, a strategy on a problem, runs in a process of its own within a limit of time and memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec
import numpy as np

from nova_core.errors import NovaError, ProblemError
from nova_core.strategies.base import create, names
from nova_harness.figure_inputs import DATA
from nova_harness.isolated import BEGIN, END, Limited, isolated
from nova_harness.kept_runs import KeptRuns
from nova_harness.measurement import Case

INSTANCES = "instances"
# A strategy that took less is run again, so that its time tells the work and not the first load.
SECOND_RUN_BELOW = 5.0
# What the figures tell between the runs of two sizes.
LARGER = "not tried"


class Limits(msgspec.Struct, frozen=True):
    """What a cell may take.

    Attributes:
        seconds: for placing, without making the problem and evaluating the plan.
        memory: GB.
    """

    seconds: float = 600.0
    memory: float = 8.0


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy on a problem, and what came of it.

    Attributes:
        problem: the problem's description.
        strategy: the strategy's name.
        limits: within which it was tried.
        nodes: of the problem; 0 where it was not even made.
        variation: coefficient of variation of the capacities of all nodes but sinks, where they
            are limited.
        seconds: that placing took; of a second run where the first was quick.
        overloaded: overloaded nodes in percent of those that receive tuples, as published
            percentages have it.
        p90: 90th percentile of the sources' latency, ms.
        direct_p90: the same of sending straight to the sink.
        error: why there are no figures.
        limited: whether that is because of the limits.
    """

    problem: str
    strategy: str
    limits: Limits
    nodes: int = 0
    variation: float | None = None
    seconds: float | None = None
    overloaded: float | None = None
    p90: float | None = None
    direct_p90: float | None = None
    error: str = ""
    limited: bool = False

    def stands(self, limits: Limits) -> bool:
        """Whether trying again within these limits would come to the same."""
        return not self.limited or (
            self.limits.seconds >= limits.seconds and self.limits.memory >= limits.memory
        )


def place(task: tuple[Case, str], tell: Callable[[str], None]) -> dict[str, float | None]:
    """The fields of a cell that a strategy on a problem comes to; for `isolated`."""
    from nova_core.evaluation import evaluate

    case, strategy = task
    problem = case.problem()
    made = create(strategy)
    tell(BEGIN)
    begin = time.perf_counter()
    plan = made.place(problem)
    seconds = time.perf_counter() - begin
    tell(END)
    if seconds < SECOND_RUN_BELOW:
        begin = time.perf_counter()
        made.place(problem)
        seconds = time.perf_counter() - begin
    found = evaluate(plan)
    capacity = np.delete(problem.nodes.capacity, np.unique(problem.joins.sink))
    finite = np.isfinite(capacity).all()
    return {
        "nodes": len(problem.nodes),
        "variation": float(capacity.std() / capacity.mean()) if finite else None,
        "seconds": seconds,
        "overloaded": found.arriving.overloaded_percent,
        "p90": found.estimated.p90,
        "direct_p90": found.estimated.direct_p90,
    }


def described(case: Case) -> str:
    """What tells a case from all others."""
    return msgspec.json.encode(asdict(case)).decode()


def run_cells(
    wanted: Iterable[tuple[Case, str]],
    limits: Limits,
    kept: Path | None,
    advance: Callable[[int, int], None],
    growing: bool = False,
) -> list[Cell]:
    """Every cell, in the order asked for; those that are kept are not run again.

    Args:
        wanted: problems and names of strategies.
        limits: of each cell.
        kept: file of cells; None keeps none.
        advance: called with cells done and cells in all.
        growing: whether problems grow; then a strategy that a limit ended on one is not tried on
            the next ones.
    """
    asked = list(wanted)
    runs = KeptRuns(kept, Cell, b'{"cells":1}')
    done = {(one.problem, one.strategy): one for one in runs}
    found: list[Cell] = []
    ended: dict[str, Cell] = {}
    for number, (case, strategy) in enumerate(asked):
        advance(number, len(asked))
        key = described(case), strategy
        if strategy in ended:
            why = f"{LARGER}: {ended[strategy].error} on fewer nodes"
            found.append(_cell(key, limits, error=why, limited=True))
            continue
        if key not in done or not done[key].stands(limits):
            done[key] = _run(case, strategy, limits)
            runs.add(done[key])
        found.append(done[key])
        if growing and done[key].limited:
            ended[strategy] = done[key]
    advance(len(asked), len(asked))
    return found


def _run(case: Case, strategy: str, limits: Limits) -> Cell:
    key = described(case), strategy
    try:
        told = isolated(place, (case, strategy), limits.seconds, limits.memory)
    except Limited as error:
        return _cell(key, limits, error=str(error), limited=True)
    except NovaError as error:
        return _cell(key, limits, error=str(error))
    return _cell(key, limits, **told)


def _cell(key: tuple[str, str], limits: Limits, **fields: object) -> Cell:
    return msgspec.convert(
        {"problem": key[0], "strategy": key[1], "limits": msgspec.to_builtins(limits), **fields},
        Cell,
    )


def shown(strategies: Sequence[str], leave_out: Sequence[str]) -> list[str]:
    """Strategies of a figure: those named, or all that are installed and not left out.

    Raises:
        ProblemError: for a name that is not installed.
    """
    installed = names()
    for name in strategies:
        if name not in installed:
            raise ProblemError(f"strategy: unknown {name!r}; installed are {', '.join(installed)}")
    return list(dict.fromkeys(strategies)) or [n for n in installed if n not in leave_out]


def instance_directory(data: Path | None, instance: str) -> Path | None:
    """Where an instance is; None where it is to be generated instead.

    Args:
        data: the directory asked for; the default one need not be there.
        instance: its name.

    Raises:
        NovaError: when the directory asked for does not have it.
    """
    if data is None:
        return None
    found = data / INSTANCES / instance
    if (found / "nodes.csv").is_file():
        return found
    if data != DATA:
        raise NovaError(f"{found}: no such instance; expected nodes.csv and joins.csv there")
    return None


__all__ = ["Cell", "Limits", "instance_directory", "place", "run_cells", "shown"]
