"""One cell: planned, run, checked, written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core.errors import NovaError
from nova_harness.experiment.carried import carried_figures
from nova_harness.experiment.cells import Cell, CellDirectory
from nova_harness.experiment.check import check, reference_of
from nova_harness.experiment.engine_run import Bed, Outcome, Timing, run_plan
from nova_harness.experiment.samples import samples_table, summary, write_parquet
from nova_harness.experiment.usage import mean_cores, usage_table

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_harness.experiment.document import Experiment
    from nova_testbed.inventory import Inventory
    from nova_workloads.streams import Stream

VERDICT = "verdict.json"


@dataclass(frozen=True)
class CellReport:
    """A cell's figures for people and the run's log.

    Attributes:
        name: of the cell.
        summary: as written.
        check: as written.
        placed: whether every operator ran where the plan says.
    """

    name: str
    summary: dict[str, Any]
    check: dict[str, Any]
    placed: bool

    @property
    def broken(self) -> list[str]:
        """How many results were lost, duplicated or wrong, where any were."""
        return [
            f"{self.check[name]:,} {name}"
            for name in ("lost", "duplicated", "wrong")
            if self.check[name]
        ]

    @property
    def good(self) -> bool:
        """Whether all ran where the plan says, and no result was lost, duplicated or wrong."""
        return self.placed and not self.broken

    def to_dict(self) -> dict[str, Any]:
        """As an answer in JSON."""
        told = {"name": self.name, "placed": self.placed, "check": self.check}
        return told | self.summary


def write_json(path: Path, document: Any) -> None:
    """Write JSON, complete or not at all; NaN becomes null."""
    import msgspec

    from nova_core.model.files import write_text

    text = msgspec.json.format(msgspec.json.encode(document, enc_hook=_plain), indent=2)
    write_text(path, text.decode() + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def place(cell: Cell, problem: Problem) -> Plan:
    """The cell's plan.

    Raises:
        NovaError: for a strategy that cannot place this problem.
    """
    from nova_core.strategies.base import create

    return create(cell.strategy.name, **cell.strategy.parameters).place(problem)


def run_cell(
    bed: Bed,
    experiment: Experiment,
    cell: Cell,
    problem: Problem,
    streams: list[Stream],
    directory: CellDirectory,
    tell: Callable[[str], None],
) -> CellReport:
    """Run a cell and write its directory; what was there is replaced.

    Raises:
        NovaError: naming what failed; its directory then holds the verdict.
    """
    from nova_core.model.files import write_plan

    directory.begin()
    path = directory.path
    document = cell.document(experiment)
    try:
        write_json(path / "cell.json", document)
        plan = place(cell, problem)
        write_plan(plan, path / "plan.json")
        outcome = run_plan(
            bed,
            plan,
            streams,
            Timing(experiment.warm_up_s, experiment.duration_s, experiment.drain_s),
            rate=cell.rate,
            window_ms=cell.window_ms,
            keys=document["keys"],
            every=document["every"],
            stress=cell.stress,
            limited=True,
            name=f"nova {cell.name}",
            scratch=path,
            tell=tell,
        )
        report = write_outcome(
            path, cell, document, plan, streams, outcome, bed.deployment.hosts.inventory
        )
    except BaseException as error:
        state, told = "failed", str(error) or type(error).__name__
        if isinstance(error, KeyboardInterrupt):
            state, told = "interrupted", "interrupted"
        write_json(path / VERDICT, {"state": state, "verdict": told})
        raise
    directory.finish()
    return report


def write_outcome(
    path: Path,
    cell: Cell,
    document: Mapping[str, Any],
    plan: Plan,
    streams: list[Stream],
    outcome: Outcome,
    inventory: Inventory,
) -> CellReport:
    """Write what came of a cell's run.

    Args:
        path: the cell's directory.
        cell: what was run.
        document: what it is, as in ``cell.json``.
        plan: that was run.
        streams: what each source measures.
        outcome: of the run.
        inventory: of the hosts.
    """
    more = {
        "start_ms": outcome.start_ms,
        "measured_us": list(outcome.measured_us),
        "late_s": outcome.late_s,
        "counted_s": outcome.counted_s,
        "truncated_bytes": outcome.truncated_bytes,
        "restarts": outcome.restarts,
        "dead_letters": outcome.dead_letters,
    }
    write_json(path / "cell.json", {**document, **more})
    (path / "dataflow.json").write_text(outcome.dataflow)
    write_json(path / "verification.json", outcome.verification.to_plain())
    samples = samples_table(
        outcome.records,
        plan,
        rate=cell.rate,
        start_ms=outcome.start_ms,
        measured_us=outcome.measured_us,
    )
    write_parquet(samples, path / "samples.parquet")
    write_parquet(usage_table(outcome.series, outcome.start_ms / 1000), path / "hosts.parquet")
    write_json(path / "operators.json", outcome.operators)
    reference = reference_of(
        plan.problem,
        streams,
        rate=cell.rate,
        start_ms=outcome.start_ms,
        count=outcome.workload.count or 0,
        window_ms=cell.window_ms,
        keys=document["keys"],
        every=document["every"],
    )
    checked = asdict(check(plan, reference, outcome.records, finished=outcome.finished))
    write_json(path / "check.json", checked)
    figures = summary(samples, outcome.measured_us)
    if document["transport"] == "kafka":
        measured = outcome.records[samples.column("measured").to_numpy()]
        figures["kafka"] = carried_figures(measured, outcome.samples, outcome.measured_us)
    begin, end = (moment / 1e6 for moment in outcome.measured_us)
    used = mean_cores(outcome.series, begin, end)
    figures["hosts"] = {
        host.name: {"cpu_cores_mean": used.get(host.name), "limit_cores": host.cpu}
        for host in inventory.hosts
    }
    write_json(path / "summary.json", figures)
    return CellReport(cell.name, figures, checked, outcome.verification.ok)


def read_report(directory: CellDirectory) -> CellReport:
    """A finished cell's figures, as they were written.

    Raises:
        NovaError: for a file that cannot be read.
    """
    found = {}
    for name in ("summary", "check", "verification"):
        file = directory.path / f"{name}.json"
        try:
            found[name] = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise NovaError(f"{file}: cannot be read: {error}") from error
    name = directory.path.name
    return CellReport(name, found["summary"], found["check"], found["verification"]["ok"])


__all__ = ["VERDICT", "CellReport", "place", "read_report", "run_cell", "write_json"]
