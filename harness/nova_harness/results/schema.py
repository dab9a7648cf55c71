"""Contents of the files in a run's folder: one type per file, for its writers and readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from nova_testbed.inventory import Inventory

VERSION = 1  # of the format of the folder, in run.json


# --- a run ----------------------------------------------------------------------------------------


class Verdict(msgspec.Struct, frozen=True):
    """How an unfinished cell ended (``verdict.json``)."""

    state: str = "unfinished"
    verdict: str = ""


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run (``run.json``).

    Attributes:
        nova_run: version of the folder's format.
        state: ``running``, ``finished``, ``failed`` or ``interrupted``.
        verdict: the reason, as text.
        started: s since the epoch.
        ended: s since the epoch; for a running one, when this was written.
        engine_up: how long the engine took to start, and its memory.
        cells: state by name.
    """

    nova_run: int = VERSION
    state: str
    verdict: str = ""
    started: float = 0.0
    ended: float = 0.0
    engine_up: dict[str, Any] = {}
    cells: dict[str, str] = {}


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    """A host (``hosts.json``).

    Attributes:
        name: in the inventory.
        role: in the inventory.
        cpu: cores it may use; None where unknown.
        memory: bytes it may use; None without a limit.
        position: coordinates in the cost space, ms.
    """

    name: str
    role: str = ""
    cpu: float | None = None
    memory: int | None = None
    position: list[float] = []


# --- calibrations ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calibration:
    """Costs of operators on an engine, at one rate; cores and CPU time are the engine's alone.

    Attributes:
        idle_cores: of a host that runs the engine's process and no operator.
        source_cores: of a host with a source.
        sink_cores: of the sink's host, the coordinator included.
        join_us: CPU time per tuple that a join takes in.
        rate: of each source, tuples/s.
        results_per_s: that arrived at the sink.
        window_ms: length of the windows.
        cores: of every host, as measured.
        kept_up: share of its tuples that joins took in; 1 where they kept up.
        stress: whether the inventory's load was in force.
        left: share of a loaded host's CPU limit that the engine gets; None where no join needed all
            of it.
    """

    idle_cores: float
    source_cores: float
    sink_cores: float
    join_us: float
    rate: float
    results_per_s: float
    window_ms: int
    cores: dict[str, float]
    kept_up: float = 1.0
    stress: bool = False
    left: float | None = None

    def source_at(self, rate: float) -> float:
        """Cores of a host with a source of that rate, tuples/s.

        Where joins did not keep up, their sources were slowed, and sent less than was due.
        """
        return self.idle_cores + (self.source_cores - self.idle_cores) * rate / (
            self.rate * self.kept_up
        )

    def available(self, inventory: Inventory, cores: Mapping[str, float]) -> dict[str, float]:
        """Cores that load leaves the engine on each host."""
        if not self.stress or self.left is None:
            return dict(cores)
        loaded = set(inventory.stress.hosts)
        return {name: most * (self.left if name in loaded else 1) for name, most in cores.items()}


@dataclass(frozen=True)
class FoundRate:
    """The rate that results in an experiment's ``load``.

    Attributes:
        asked: the requested load: input of a region's join, as a multiple of the strongest host's
            capacity.
        rate: of each source, tuples/s.
        host: the strongest one that has neither a source nor the sink.
        takes: its capacity, with all of its CPU limit, tuples/s of this join.
        load: at this rate.
        calibrations: of the search; the last one counts.
        settled: whether the last one was at about this rate.
    """

    asked: float
    rate: float
    host: str
    takes: float
    load: float
    calibrations: list[Calibration]
    settled: bool = True


class CalibratedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A calibration for a rate, without or under load.

    Attributes:
        rate: of each source, tuples/s.
        stress: whether hosts were under load.
        costs: of operators.
        capacity: of hosts, tuples/s, for strategies.
        bottlenecks: hosts that cannot keep up at this rate, a line each.
    """

    rate: float
    stress: bool = False
    costs: Calibration
    capacity: dict[str, float] = {}
    bottlenecks: list[str] = []


class Calibrations(msgspec.Struct, frozen=True, kw_only=True):
    """All calibrations of a run (``calibration.json``).

    Attributes:
        engine: its name.
        version: the engine's.
        safety: share of hosts' CPU limits that plans may use.
        cores: that hosts may use.
        load: result of the rate search, for an experiment with a load.
        rates: by rate, without and under load.
    """

    engine: str = ""
    version: str = ""
    safety: float = 1.0
    cores: dict[str, float] = {}
    load: FoundRate | None = None
    rates: list[CalibratedSetting] = []

    @property
    def left(self) -> float | None:
        """The least share of a CPU limit that load leaves the engine; None without load."""
        return min((one.costs.left for one in self.rates if one.costs.left), default=None)


# --- a cell ---------------------------------------------------------------------------------------


class CellEvent(msgspec.Struct, frozen=True):
    """An event while a cell ran.

    Attributes:
        at: s since the epoch.
        kind: ``disturbed`` and ``over``, or as in a controller's log.
        text: what happened.
    """

    at: float
    kind: str
    text: str


class CellFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a cell, and facts of its run (``cell.json``).

    Attributes:
        strategy: its label.
        engine: what runs its plan.
        transport: how the engine gets readings, ``direct`` or ``kafka``.
        parameters: of the strategy.
        window_ms: tumbling windows, ms.
        rate: of each source, tuples/s.
        stress: whether hosts are under load.
        repetition: from 1.
        seed: of the experiment.
        duration_s: measured time.
        warm_up_s: time before it.
        drain_s: time after it.
        keys: sequence numbers are compared modulo this.
        every: and the resulting key is a multiple of this.
        sources: how many; 0 before planning.
        expected_rate: results/s when everything keeps up; 0 before planning.
        start_ms: when the sources began, ms since the epoch; None before the run, as the next two.
        measured_us: begin and end of the measured time, us since the epoch.
        counted_s: time that operators' counters cover.
        late_s: by how much the sources began late.
        restarts: how often the engine restarted the sink.
        dead_letters: invalid tuples at the sources.
        truncated_bytes: of an incomplete result.
        scheduled_by: what decided where joins ran: ``plan``, ``controller`` or ``engine``.
        events: of hosts and plan, by time.
    """

    strategy: str
    engine: str
    transport: str
    parameters: dict[str, Any] = {}
    window_ms: int
    rate: float
    stress: bool
    repetition: int
    seed: int = 0
    duration_s: float
    warm_up_s: float
    drain_s: float
    keys: int = 1
    every: int = 1
    sources: int = 0
    expected_rate: float = 0.0
    start_ms: int | None = None
    measured_us: tuple[int, int] | None = None
    counted_s: float | None = None
    late_s: float = 0.0
    restarts: int = 0
    dead_letters: int = 0
    truncated_bytes: int = 0
    scheduled_by: str = "plan"
    events: list[CellEvent] = []

    @property
    def counted(self) -> float:
        """Time that operators' counters cover, s."""
        return self.counted_s or self.duration_s


class VerifiedRow(msgspec.Struct, frozen=True, kw_only=True):
    """Where an operator should run, and where it ran.

    Attributes:
        operator: its name in the flow.
        node: its node in the flow; None for an operator outside the flow.
        actual: where it runs; None while it does not run.
        status: as the engine calls it.
    """

    operator: str
    node: str | None
    actual: str | None = None
    status: str = ""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the engine put every operator where the plan says (``verification.json``)."""

    ok: bool
    rows: list[VerifiedRow] = []
    note: str = ""


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies, ms; None without samples."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    p999: float | None = None
    p9999: float | None = None
    max: float | None = None


class BackPressureFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How the backlog in a broker grew (Costream, Definition 4).

    Attributes:
        rate: R, tuples/s.
        occurred: whether there was back-pressure.
        backlog: at the end, tuples.
        most: at most, tuples.
        samples: number of looks at the broker.
    """

    rate: float
    occurred: bool
    backlog: int = 0
    most: int
    samples: int = 0


class KafkaFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies through a broker: from reading it (L_p) and from writing to it (L_e).

    Attributes:
        processing_ms: L_p (Costream, Definition 2); empty of whole queries, where it is unknown.
        end_to_end_ms: L_e (Costream, Definition 3).
        back_pressure: None for fewer than two looks at the broker in the measured time.
    """

    processing_ms: Percentiles
    end_to_end_ms: Percentiles
    back_pressure: BackPressureFigures | None = None


class HostUse(msgspec.Struct, frozen=True, kw_only=True):
    """Mean CPU use and limit of a host, cores; None where unknown or unlimited."""

    cpu_cores_mean: float | None = None
    limit_cores: float | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Latency, throughput and load of a cell (``summary.json``).

    Attributes:
        latency_ms: from the later reading's due time to the sink.
        from_emit_ms: from the later real emission.
        source_lateness_ms: of emissions after their due time.
        throughput_results_per_s: that arrived in the measured time.
        throughput_tuples_per_s: that were joined in it.
        results: whose tuples were due in the measured time.
        kafka: of a cell whose streams pass through Kafka.
        hosts: CPU by host.
    """

    latency_ms: Percentiles = Percentiles()
    from_emit_ms: Percentiles = Percentiles()
    source_lateness_ms: Percentiles = Percentiles()
    throughput_results_per_s: float
    throughput_tuples_per_s: float
    results: int
    kafka: KafkaFigures | None = None
    hosts: dict[str, HostUse] = {}


class OperatorCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of an operator (``operators.json``); None where the engine does not report them.

    Attributes:
        name: as the engine calls it.
        node: where it ran.
        records_in: tuples received.
        records_out: tuples sent.
        busy_ms: time at work.
        back_pressured_ms: time it waited for its receivers.
    """

    name: str
    node: str | None
    records_in: float | None = None
    records_out: float | None = None
    busy_ms: float | None = None
    back_pressured_ms: float | None = None
