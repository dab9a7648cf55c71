"""The folder of a run of an experiment, as a report reads it: its cells, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from nova_core.errors import NovaError

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Floats

DONE = "DONE"
T = TypeVar("T")


class RunError(NovaError):
    """A run folder that cannot be reported on."""


class CellFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell is (``cell.json``).

    Attributes:
        strategy: its label.
        engine: what ran its plan; empty where the run does not tell.
        transport: how readings came to the engine, ``direct`` or ``kafka``.
        window_ms: tumbling windows, ms.
        rate: of each source, tuples/s.
        stress: whether hosts were under load.
        repetition: from 1.
        duration_s: measured time.
        warm_up_s: time before it.
        counted_s: how long operators' counters were counted for; None where the run does not tell.
        expected_rate: results of all regions when everything keeps up, results/s.
        keys: sequence numbers are compared modulo this.
        sources: how many.
        restarts: how often the engine started the sink again.
        dead_letters: what came for sources and was no tuple of theirs.
        truncated_bytes: of a result that was not written in full.
    """

    strategy: str
    engine: str = ""
    transport: str = "direct"
    window_ms: int
    rate: float
    stress: bool
    repetition: int
    duration_s: float
    warm_up_s: float = 0.0
    counted_s: float | None = None
    expected_rate: float
    keys: int = 1
    sources: int = 0
    restarts: int = 0
    dead_letters: int = 0
    truncated_bytes: int = 0

    @property
    def counted(self) -> float:
        """How long operators' counters were counted for, s."""
        # Of runs that do not tell: from the middle of the warm-up on.
        return self.counted_s or self.duration_s + self.warm_up_s / 2


class VerifiedRow(msgspec.Struct, frozen=True):
    """Where an operator was to run, and where it ran."""

    operator: str
    node: str | None
    actual: str | None = None


class Verification(msgspec.Struct, frozen=True):
    """Whether the engine put every operator where the plan says (``verification.json``)."""

    ok: bool
    rows: list[VerifiedRow] = []


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Results held against the reference join (``check.json``), counts of result tuples."""

    expected: int
    delivered: int
    lost: int
    duplicated: int
    wrong: int
    cut_off: int
    finished: bool = False

    @property
    def ok(self) -> bool:
        """Whether nothing was lost, duplicated or wrong."""
        return not (self.lost or self.duplicated or self.wrong)


class HostUse(msgspec.Struct, frozen=True):
    """CPU a host used on average and may use, cores; None where it is not known or unlimited."""

    cpu_cores_mean: float | None = None
    limit_cores: float | None = None


class BackPressureFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How the backlog in a broker grew, tuples/s, and how long it was at most, tuples."""

    rate: float
    occurred: bool
    most: int


class CarriedFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What came through a broker: latencies from its reading and from its writing on."""

    processing_ms: dict[str, float | None]
    end_to_end_ms: dict[str, float | None]
    back_pressure: BackPressureFigures | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Throughput and load of a cell (``summary.json``)."""

    throughput_results_per_s: float
    throughput_tuples_per_s: float
    results: int
    latency_ms: dict[str, float | None] = {}
    hosts: dict[str, HostUse] = {}
    kafka: CarriedFigures | None = None


class OperatorUse(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator did (``operators.json``)."""

    name: str
    node: str
    records_in: float | None = None
    records_out: float | None = None
    busy_ms: float | None = None
    back_pressured_ms: float | None = None


class Verdict(msgspec.Struct, frozen=True):
    """How a cell or a run ended."""

    state: str = "unfinished"
    verdict: str = ""


class FoundLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The rate that was found for a load (``calibration.json``, ``load``)."""

    asked: float
    rate: float
    host: str
    takes: float
    load: float
    calibrations: list[dict[str, Any]] = []


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What operators cost: of the CPU limits, the share that load leaves the engine."""

    left: float | None = None


class CalibratedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What was calibrated for a rate, without or under load."""

    stress: bool = False
    costs: Costs = Costs()


class Calibrated(msgspec.Struct, frozen=True):
    """What was calibrated at first (``calibration.json``), as far as reports tell it."""

    load: FoundLoad | None = None
    rates: list[CalibratedSetting] = []

    @property
    def left(self) -> float | None:
        """Of the CPU limits, the least share that load leaves the engine; None without load."""
        return min((one.costs.left for one in self.rates if one.costs.left), default=None)


class HostRow(msgspec.Struct, frozen=True):
    """A host (``hosts.json``): cores and bytes it may use."""

    name: str
    role: str = ""
    cpu: float | None = None
    memory: int | None = None


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RunError(f"{path}: {error}") from error


def _optional(path: Path, kind: type[T], missing: T) -> T:
    return _read(path, kind) if path.is_file() else missing


@dataclass(frozen=True)
class CellFolder:
    """A cell of a run.

    Attributes:
        path: its directory.
        facts: what it is.
        verdict: how it ended; ``finished`` or why not.
    """

    path: Path
    facts: CellFacts
    verdict: Verdict

    @property
    def done(self) -> bool:
        """Whether it was finished."""
        return self.verdict.state == "finished"

    @property
    def samples(self) -> Path:
        """Its result tuples, one row each."""
        return self.path / "samples.parquet"

    @cached_property
    def summary(self) -> Summary:
        """Throughput and load of hosts."""
        return _read(self.path / "summary.json", Summary)

    @cached_property
    def check(self) -> Check:
        """Results held against the reference join."""
        return _read(self.path / "check.json", Check)

    @cached_property
    def verification(self) -> Verification:
        """Where operators ran."""
        return _read(self.path / "verification.json", Verification)

    @cached_property
    def operators(self) -> list[OperatorUse]:
        """What operators did; empty where the engine did not say."""
        return _optional(self.path / "operators.json", list[OperatorUse], [])

    def latencies_us(self) -> tuple[Floats, Floats, Floats]:
        """Of the measured results in the order they arrived, us.

        Returns:
            (k,) arrival, (k,) latency from the later due time, (k,) from the later emission.

        Raises:
            RunError: when the samples cannot be read.
        """
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(self.samples, columns=SAMPLE_COLUMNS).select(SAMPLE_COLUMNS)
            times = [pa.field(name, pa.int64(), nullable=False) for name in SAMPLE_COLUMNS[:-1]]
            table = table.cast(pa.schema([*times, pa.field("measured", pa.bool_(), False)]))
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            raise RunError(f"{self.samples}: cannot be read: {first_line(error)}") from error
        c = {name: table.column(name).to_numpy() for name in SAMPLE_COLUMNS}
        chosen = np.flatnonzero(c["measured"])
        chosen = chosen[np.argsort(c["arrive_us"][chosen], kind="stable")]
        arrive = c["arrive_us"][chosen]
        due = np.maximum(c["left_due_us"], c["right_due_us"])[chosen]
        emit = np.maximum(c["left_emit_us"], c["right_emit_us"])[chosen]
        return arrive, arrive - due, arrive - emit


SAMPLE_COLUMNS = [
    "arrive_us",
    "left_due_us",
    "right_due_us",
    "left_emit_us",
    "right_emit_us",
    "measured",
]


def first_line(error: BaseException) -> str:
    """The first line of what an error says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@dataclass(frozen=True)
class RunFolder:
    """A run of an experiment.

    Attributes:
        path: its directory.
        cells: all that were begun, by name.
        verdict: how it ended.
        experiment: as written.
        environment: what it ran on.
        hosts: that took part.
        planned: cells it was to have, None where that is not known.
        calibrated: what strategies were told of the hosts.
    """

    path: Path
    cells: list[CellFolder]
    verdict: Verdict
    experiment: Mapping[str, Any]
    environment: Mapping[str, Any]
    hosts: list[HostRow]
    planned: int | None
    calibrated: Calibrated = field(default_factory=Calibrated)

    @property
    def load(self) -> FoundLoad | None:
        """The rate that was found, where a load was asked for."""
        return self.calibrated.load

    @property
    def name(self) -> str:
        """Of the experiment, or of the folder."""
        return str(self.experiment.get("name") or self.path.resolve().name)

    def plan(self, cell: CellFolder) -> Plan:
        """The plan a cell ran; of other rates than the first, and of load, problems have own files.

        Raises:
            NovaError: when the plan or its problem cannot be read, or do not fit each other.
        """
        import warnings

        from nova_core.errors import ProblemWarning
        from nova_core.model.files import read_plan, read_problem

        names = [f"problem-r{cell.facts.rate:g}", "problem"]
        if cell.facts.stress:
            # Where strategies were not told of the load, there are none.
            names = [*(f"{name}-stress" for name in names), *names]
        files = [self.path / f"{name}.yaml" for name in names]
        with warnings.catch_warnings():
            # That positions are worked out from latencies is no surprise here.
            warnings.simplefilter("ignore", ProblemWarning)
            problem = read_problem(next((file for file in files if file.is_file()), files[-1]))
        return read_plan(cell.path / "plan.json", problem)


def read_run(path: Path) -> RunFolder:
    """Read the folder of a run, finished or not.

    Raises:
        RunError: for a directory that is none, and for files in it that cannot be read.
    """
    cells = path / "cells"
    if not cells.is_dir():
        raise RunError(f"{path}: no folder of a run; it has no directory 'cells'")
    found = [
        _cell(directory)
        for directory in sorted(cells.iterdir())
        if (directory / "cell.json").is_file()
    ]
    experiment = _experiment(path / "experiment.yaml")
    return RunFolder(
        path=path,
        cells=found,
        verdict=_optional(path / "run.json", Verdict, Verdict("unknown")),
        experiment=experiment,
        environment=_optional(path / "environment.json", dict[str, Any], {}),
        hosts=_optional(path / "hosts.json", list[HostRow], []),
        planned=_planned(experiment),
        calibrated=_optional(path / "calibration.json", Calibrated, Calibrated()),
    )


def _cell(directory: Path) -> CellFolder:
    facts = _read(directory / "cell.json", CellFacts)
    if (directory / DONE).exists():
        return CellFolder(directory, facts, Verdict("finished"))
    return CellFolder(directory, facts, _optional(directory / "verdict.json", Verdict, Verdict()))


def _experiment(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    from nova_core.model.syntax import parse

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


__all__ = [
    "SAMPLE_COLUMNS",
    "CellFacts",
    "CellFolder",
    "Check",
    "FoundLoad",
    "HostRow",
    "HostUse",
    "OperatorUse",
    "RunError",
    "RunFolder",
    "Summary",
    "Verdict",
    "Verification",
    "VerifiedRow",
    "first_line",
    "read_run",
]
