"""Write and read the folder of an experiment's run.

A cell's directory is created, filled file by file, and marked as finished last. The files' contents
are described in `nova_harness.results.schema`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from nova_core.errors import NovaError, first_line
from nova_harness.results.latencies import SAMPLE_COLUMNS, latencies_us
from nova_harness.results.schema import (
    VERSION,
    Calibrations,
    CellFacts,
    FoundRate,
    HostRow,
    OperatorCounts,
    RunState,
    Summary,
    Verdict,
    Verification,
)
from nova_workloads.comparison import Comparison

if TYPE_CHECKING:
    import pyarrow as pa

    from nova_core.model.plan import Plan
    from nova_core.model.problem import Floats

DONE = "DONE"
CALIBRATIONS = "calibration.json"
EXPERIMENT = "experiment.yaml"
T = TypeVar("T")


class RunError(NovaError):
    """A run folder that cannot be reported on."""


def write_json(path: Path, document: Any) -> None:
    """Write JSON, complete or not at all; NaN becomes null."""
    from nova_core.io.safe_files import write_text

    text = msgspec.json.format(msgspec.json.encode(document, enc_hook=_plain), indent=2)
    write_text(path, text.decode() + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def read_json(path: Path, kind: type[T]) -> T:
    """Read JSON of a type of `nova_harness.results.schema`.

    Raises:
        RunError: naming the file and the field.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RunError(f"{path}: {error}") from error


def _optional(path: Path, kind: type[T], missing: T) -> T:
    return read_json(path, kind) if path.is_file() else missing


@dataclass(frozen=True)
class CellFolder:
    """The directory of a cell.

    Attributes:
        path: the directory.
    """

    path: Path

    # --- writing ------------------------------------------------------------------------------

    def begin(self, facts: CellFacts) -> None:
        """Create it, without files of an unfinished run."""
        if self.path.exists():
            shutil.rmtree(self.path)
        self.path.mkdir(parents=True)
        self.write("cell", facts)

    def write(self, name: str, document: Any) -> None:
        """Write one of its JSON files, complete or not at all."""
        write_json(self.path / f"{name}.json", document)

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write one of its Parquet files, complete or not at all."""
        import pyarrow.parquet as pq

        from nova_core.io.safe_files import atomic_write

        with atomic_write(self.path / f"{name}.parquet") as file:
            pq.write_table(table, file, compression="zstd")

    def end(self, state: str, verdict: str) -> None:
        """Write why it is not finished."""
        self.write("verdict", Verdict(state, verdict))

    def finish(self) -> None:
        """Mark it as finished."""
        (self.path / DONE).write_text("")

    # --- reading ------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether the cell is finished; the mark is written last."""
        return (self.path / DONE).exists()

    @property
    def name(self) -> str:
        """Name of the cell."""
        return self.path.name

    @cached_property
    def facts(self) -> CellFacts:
        """Its settings and facts."""
        return read_json(self.path / "cell.json", CellFacts)

    @cached_property
    def verdict(self) -> Verdict:
        """``finished``, or why not."""
        if self.done:
            return Verdict("finished")
        return _optional(self.path / "verdict.json", Verdict, Verdict())

    @property
    def samples(self) -> Path:
        """Its result tuples, one row each."""
        return self.path / "samples.parquet"

    @cached_property
    def summary(self) -> Summary:
        """Latency, throughput and load of hosts."""
        return read_json(self.path / "summary.json", Summary)

    @cached_property
    def check(self) -> Comparison:
        """Comparison of the results with the reference join."""
        return read_json(self.path / "check.json", Comparison)

    @cached_property
    def verification(self) -> Verification:
        """Where operators ran."""
        return read_json(self.path / "verification.json", Verification)

    @property
    def good(self) -> bool:
        """Whether all ran where the plan says, and no result was lost, duplicated or wrong."""
        return self.verification.ok and self.check.ok

    def to_dict(self) -> dict[str, Any]:
        """Its figures, for JSON."""
        answer = {"name": self.name, "placed": self.verification.ok, "check": self.check}
        return {**msgspec.to_builtins(answer), **msgspec.to_builtins(self.summary)}

    @cached_property
    def operators(self) -> list[OperatorCounts]:
        """Counts of operators; empty where the engine did not report them."""
        return _optional(self.path / "operators.json", list[OperatorCounts], [])

    def columns(self, *names: str) -> dict[str, Any]:
        """Columns of its samples: (k,) arrays of int64, ``measured`` of bool, ``query`` of str.

        Raises:
            RunError: when the samples cannot be read.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        others = {"measured": pa.bool_(), "query": pa.string()}
        kinds = [pa.field(name, others.get(name, pa.int64()), nullable=False) for name in names]
        try:
            table = pq.read_table(self.samples, columns=list(names)).select(list(names))
            table = table.cast(pa.schema(kinds))
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            raise RunError(f"{self.samples}: cannot be read: {first_line(error)}") from error
        return {name: table.column(name).to_numpy() for name in names}

    @property
    def of_queries(self) -> bool:
        """Whether its samples are results of whole queries, with their column ``query``.

        Raises:
            RunError: when the samples cannot be read.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return "query" in pq.read_schema(self.samples).names
        except (OSError, ValueError, pa.ArrowException) as error:
            raise RunError(f"{self.samples}: cannot be read: {first_line(error)}") from error

    def latencies_us(self) -> tuple[Floats, Floats, Floats]:
        """Latencies of the measured results, see `nova_harness.results.latencies.latencies_us`.

        Raises:
            RunError: when the samples cannot be read.
        """
        return latencies_us(self.columns(*SAMPLE_COLUMNS))


@dataclass(frozen=True)
class RunFolder:
    """A run of an experiment.

    Attributes:
        path: its directory.
        cells: all started cells, by name.
        state: of the run.
        experiment: its document.
        environment: machine and versions.
        hosts: of the run.
        planned: number of planned cells, None where unknown.
        calibrations: of the hosts, for strategies.
    """

    path: Path
    cells: list[CellFolder]
    state: RunState
    experiment: Mapping[str, Any]
    environment: Mapping[str, Any]
    hosts: list[HostRow]
    planned: int | None
    calibrations: Calibrations = field(default_factory=Calibrations)

    @property
    def load(self) -> FoundRate | None:
        """Result of the rate search, for an experiment with a load."""
        return self.calibrations.load

    @property
    def name(self) -> str:
        """Name of the experiment, or of the folder."""
        return str(self.experiment.get("name") or self.path.resolve().name)

    def plan(self, cell: CellFolder) -> Plan:
        """The plan of a cell; problems of load, and of rates after the first, have their own files.

        Raises:
            NovaError: when the plan or its problem cannot be read, or do not fit each other.
        """
        import warnings

        from nova_core.errors import ProblemWarning
        from nova_core.io.files import read_plan, read_problem

        names = [f"problem-r{cell.facts.rate:g}", "problem"]
        if cell.facts.stress:
            # Without ``stress_known``, there are none.
            names = [*(f"{name}-stress" for name in names), *names]
        files = [self.path / f"{name}.yaml" for name in names]
        with warnings.catch_warnings():
            # Positions computed from latencies need no warning here.
            warnings.simplefilter("ignore", ProblemWarning)
            problem = read_problem(next((file for file in files if file.is_file()), files[-1]))
        return read_plan(cell.path / "plan.json", problem)


def read_run(path: Path) -> RunFolder:
    """Read the folder of a run, finished or not.

    Raises:
        RunError: for a directory that is no run's folder, another version, or unreadable files.
    """
    if not (path / "cells").is_dir():
        raise RunError(f"{path}: no folder of a run; it has no directory 'cells'")
    state = read_state(path)
    cells = [CellFolder(file.parent) for file in sorted((path / "cells").glob("*/cell.json"))]
    for cell in cells:
        # Reports read these of every cell: fail early.
        _ = cell.facts, cell.verdict
    experiment = _experiment(path / EXPERIMENT)
    return RunFolder(
        path=path,
        cells=cells,
        state=state,
        experiment=experiment,
        environment=_optional(path / "environment.json", dict[str, Any], {}),
        hosts=_optional(path / "hosts.json", list[HostRow], []),
        planned=_planned(experiment),
        calibrations=read_calibrations(path),
    )


def read_state(path: Path) -> RunState:
    """The state of a run; ``unknown`` without its file.

    Raises:
        RunError: for a folder of another version, or a file that cannot be read.
    """
    state = _optional(path / "run.json", RunState, RunState(state="unknown"))
    if state.nova_run != VERSION:
        version = f"format version {state.nova_run}; {VERSION} is read here"
        raise RunError(f"{path / 'run.json'}: nova_run: {version}")
    return state


def read_calibrations(path: Path) -> Calibrations:
    """The calibrations of a run; empty without any.

    Raises:
        RunError: for a file that cannot be read.
    """
    return _optional(path / CALIBRATIONS, Calibrations, Calibrations())


def _experiment(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    from nova_core.io.syntax import parse

    content = parse(path, RunError)
    if not isinstance(content, dict):
        raise RunError(f"{path}: holds no mapping; an experiment is one")
    return content


def _planned(experiment: Mapping[str, Any]) -> int | None:
    try:
        cells = int(experiment.get("repetitions", 1)) * (2 if experiment["stress"] == "both" else 1)
        for field in ("strategies", "windows_ms", "rates"):
            cells *= len(experiment[field])
    except (KeyError, TypeError, ValueError):
        return None
    return cells
