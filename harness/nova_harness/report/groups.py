"""Groups that are compared: cells of the same strategy and setting, pooled.

Latencies of all repetitions, and of all runs that are reported together, are pooled. Percentiles
are exact, with linear interpolation between neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from nova_core.model.problem import Ints
from nova_harness.experiment.feed import DIRECT
from nova_harness.results.run_folder import CellFolder, RunFolder

# Shares of results at which a distribution is kept; finer towards its tail.
LEVELS = tuple(
    np.round(
        np.concatenate(
            [
                np.arange(0, 0.99, 0.005),
                np.arange(0.99, 0.999, 0.001),
                np.arange(0.999, 0.9999, 0.0001),
                [0.9999, 1.0],
            ]
        ),
        6,
    ).tolist()
)
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "p9999": 0.9999}


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies of some results, ms.

    Attributes:
        mean: over all of them.
        levels: (len(LEVELS),) the latency that a share ``LEVELS[i]`` of them does not exceed.
    """

    mean: float
    levels: list[float]

    def at(self, share: float) -> float:
        """The latency that this share of results does not exceed; one of `LEVELS`."""
        return self.levels[LEVELS.index(share)]

    @property
    def most(self) -> float:
        """The longest."""
        return self.levels[-1]


class HostLoad(msgspec.Struct, frozen=True, kw_only=True):
    """CPU of a host, cores, mean over cells; the limit is None where there is none."""

    host: str
    cores: float
    limit: float | None


class Setting(msgspec.Struct, frozen=True, order=True):
    """What strategies are compared under.

    Attributes:
        rate: of each source, tuples/s.
        stress: whether hosts were under load.
        window_ms: tumbling windows, ms.
        engine: that ran the plans; empty where runs do not name it.
    """

    rate: float
    stress: bool
    window_ms: int
    engine: str = ""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy under a setting.

    Attributes:
        strategy: its label.
        setting: what it ran under.
        cells: number of finished cells.
        runs: number of runs that they are from.
        results: measured ones that arrived.
        due: measured ones when everything keeps up.
        latency: from the later due time to arrival; None when nothing arrived.
        from_emit: from the later emission to arrival.
        cell_means: mean latency of each cell, ms, from its summary.
        results_per_s: throughput, mean over cells.
        tuples_per_s: input tuples that had joined, mean over cells.
        expected_per_s: results/s when everything keeps up.
        expected, delivered, lost, duplicated, wrong, cut_off: sums of the checks.
        misplaced: operators that did not run where the plan says.
        verified: operators that were checked.
        hosts: their load.
    """

    strategy: str
    setting: Setting
    cells: int
    runs: int
    results: int
    due: float
    latency: Latency | None
    from_emit: Latency | None
    cell_means: list[float]
    results_per_s: float
    tuples_per_s: float
    expected_per_s: float
    expected: int
    delivered: int
    lost: int
    duplicated: int
    wrong: int
    cut_off: int
    misplaced: int
    verified: int
    hosts: list[HostLoad]

    @property
    def kept_up(self) -> float:
        """Share of the results due in the measured time that arrived in it; more had been late."""
        return self.results_per_s / self.expected_per_s if self.expected_per_s else 1.0

    @property
    def missing_share(self) -> float:
        """Share of the expected results that are missing: lost or cut off."""
        return min(1.0, (self.lost + self.cut_off) / self.expected) if self.expected else 0.0

    def is_bound(self, share: float) -> bool:
        """Whether a percentile is only a lower bound: missing results would be above it."""
        return self.missing_share > 1 - share + 1e-12


Distribution = tuple[int, Latency | None, Latency | None]
Key = tuple[str, Setting]


def key_of(cell: CellFolder) -> Key:
    """Cells with equal keys are pooled."""
    f = cell.facts
    through = "" if f.transport == DIRECT else f" through {f.transport.capitalize()}"
    return f.strategy, Setting(f.rate, f.stress, f.window_ms, f"{f.engine}{through}")


def finished_cells(runs: Sequence[RunFolder]) -> dict[Key, list[tuple[Path, CellFolder]]]:
    """Finished cells by strategy and setting, each with its run's directory."""
    cells_by_key: dict[Key, list[tuple[Path, CellFolder]]] = {}
    for run in runs:
        for cell in run.cells:
            if cell.done:
                cells_by_key.setdefault(key_of(cell), []).append((run.path, cell))
    return dict(sorted(cells_by_key.items(), key=lambda item: (item[0][1], item[0][0])))


def latency_of(latency_us: Ints) -> Latency | None:
    """The distribution of (k,) latencies in us; None of nothing."""
    if len(latency_us) == 0:
        return None
    levels = np.quantile(latency_us, LEVELS) / 1000
    return Latency(mean=float(latency_us.mean() / 1000), levels=levels.tolist())


def distributions(
    cells: Mapping[Key, Sequence[tuple[Path, CellFolder]]],
    advance: Callable[[int, int], None] = lambda *_: None,
) -> dict[Key, Distribution]:
    """Pooled latencies of each group, computed in this process.

    Args:
        cells: of `finished_cells`.
        advance: called with groups finished and groups in all.
    """
    pooled: dict[Key, Distribution] = {}
    for finished, (key, members) in enumerate(cells.items()):
        advance(finished, len(cells))
        parts = [cell.latencies_us() for _, cell in members]
        due, emit = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
        pooled[key] = len(due), latency_of(due), latency_of(emit)
    return pooled


def groups_of(
    cells: Mapping[Key, Sequence[tuple[Path, CellFolder]]],
    distribution: Mapping[Key, Distribution],
) -> list[Group]:
    """All groups: pooled latencies, and figures from their cells' documents."""
    return [_group(key, members, distribution[key]) for key, members in cells.items()]


def _group(
    key: Key, members: Sequence[tuple[Path, CellFolder]], distribution: Distribution
) -> Group:
    results, latency, from_emit = distribution
    cells = [cell for _, cell in members]
    rows = [row for cell in cells for row in cell.verification.rows]
    means = [cell.summary.latency_ms.mean for cell in cells]
    return Group(
        strategy=key[0],
        setting=key[1],
        cells=len(cells),
        runs=len({run for run, _ in members}),
        results=results,
        due=sum(cell.facts.expected_rate * cell.facts.duration_s for cell in cells),
        latency=latency,
        from_emit=from_emit,
        cell_means=[mean for mean in means if mean is not None],
        results_per_s=_mean([cell.summary.throughput_results_per_s for cell in cells]),
        tuples_per_s=_mean([cell.summary.throughput_tuples_per_s for cell in cells]),
        expected_per_s=_mean([cell.facts.expected_rate for cell in cells]),
        expected=sum(cell.check.expected for cell in cells),
        delivered=sum(cell.check.delivered for cell in cells),
        lost=sum(cell.check.lost for cell in cells),
        duplicated=sum(cell.check.duplicated for cell in cells),
        wrong=sum(cell.check.wrong for cell in cells),
        cut_off=sum(cell.check.cut_off for cell in cells),
        misplaced=sum(row.actual != row.node for row in rows)
        + sum(not cell.verification.ok and not cell.verification.rows for cell in cells),
        verified=len(rows),
        hosts=_hosts(cells),
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _hosts(cells: Sequence[CellFolder]) -> list[HostLoad]:
    names = list(dict.fromkeys(name for cell in cells for name in cell.summary.hosts))
    loads = []
    for name in names:
        uses = [cell.summary.hosts[name] for cell in cells if name in cell.summary.hosts]
        cores = [use.cpu_cores_mean for use in uses if use.cpu_cores_mean is not None]
        limits = [use.limit_cores for use in uses if use.limit_cores is not None]
        if cores:
            loads.append(
                HostLoad(host=name, cores=_mean(cores), limit=_mean(limits) if limits else None)
            )
    return loads
