"""The cells of an experiment: one run each, in random order, each with its own directory."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_harness.results.run_folder import CellFolder
from nova_harness.results.schema import CellFacts

if TYPE_CHECKING:
    from nova_harness.experiment.document import Experiment, StrategyPart


@dataclass(frozen=True)
class Cell:
    """One run of one strategy.

    Attributes:
        strategy: with its parameters.
        window_ms: tumbling windows, ms.
        rate: of each source, tuples/s.
        stress: whether hosts are under load.
        repetition: from 1.
    """

    strategy: StrategyPart
    window_ms: int
    rate: float
    stress: bool
    repetition: int

    @property
    def name(self) -> str:
        """Name of its directory."""
        load = "stress" if self.stress else "calm"
        return f"{self.strategy.called}-w{self.window_ms}ms-r{self.rate:g}-{load}-{self.repetition}"

    def facts(self, experiment: Experiment) -> CellFacts:
        """Its settings, for its directory."""
        traffic = experiment.workload_in().traffic(self.window_ms, self.rate)
        return CellFacts(
            strategy=self.strategy.called,
            engine=experiment.engine,
            transport=experiment.transport,
            parameters=dict(self.strategy.parameters),
            scheduled_by=self.strategy.scheduled_by,
            window_ms=self.window_ms,
            rate=self.rate,
            stress=self.stress,
            repetition=self.repetition,
            seed=experiment.seed,
            duration_s=experiment.duration_s,
            warm_up_s=experiment.warm_up_s,
            drain_s=experiment.drain_s,
            keys=traffic.keys,
            every=traffic.every,
        )

    def folder(self, run: Path) -> CellFolder:
        """Its directory in the folder of a run."""
        return CellFolder(run / "cells" / self.name)


def loads_of(experiment: Experiment) -> tuple[bool, ...]:
    """Without load, with it, or both."""
    return (False, True) if experiment.stress == "both" else (bool(experiment.stress),)


def cells_of(experiment: Experiment) -> list[Cell]:
    """All cells, in the order they are run.

    Repetitions follow each other, so that an interrupted run has complete ones; within a repetition
    the order is random, so that changes on the hosts do not favour a strategy.
    """
    loads = loads_of(experiment)
    order = random.Random(experiment.seed)
    cells: list[Cell] = []
    for repetition in range(1, experiment.repetitions + 1):
        block = [
            Cell(strategy, window, rate, stress, repetition)
            for strategy in experiment.chosen
            for window in experiment.windows_ms
            for rate in experiment.rates
            for stress in loads
        ]
        order.shuffle(block)
        cells += block
    return cells


def same_experiment(a: Experiment, b: Experiment) -> bool:
    """Whether two experiments have comparable cells: equal except for the choice of cells.

    More strategies, windows, rates, loads or repetitions can be added to a run later.
    """
    free = {"strategies", "windows_ms", "rates", "stress", "repetitions", "name"}

    def rest(experiment: Experiment) -> dict[str, Any]:
        from msgspec import to_builtins

        return {k: v for k, v in to_builtins(experiment).items() if k not in free}

    return rest(a) == rest(b)
