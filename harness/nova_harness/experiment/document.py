"""An experiment as people write it: what is run, where, under which strategies, for how long."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from nova_core.errors import NovaError
from nova_core.model.syntax import read_typed
from nova_harness.control.disturbances import Disturbance
from nova_harness.engines.base import DIRECT, names, runner
from nova_harness.figure_inputs import EXPERIMENTS

VERSION = 1
SUFFIXES = (".yaml", ".yml", ".json")
# Strategies' labels become names of directories.
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")

Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Window = Annotated[int, Meta(ge=1, le=1000)]
Rate = Annotated[float, Meta(gt=0, le=1_000_000)]


class ExperimentError(NovaError):
    """An experiment that cannot be run as it stands."""


class WorkloadPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What is joined: pressure with humidity by region (Nova paper, section 4.1).

    Attributes:
        kind: of the workload; there is one.
        regions: with a pressure and a humidity sensor each, on the inventory's sources in order.
        matches: results per tuple; where a window holds more tuples of a sensor, sequence numbers
            have to be equal modulo a number of keys as well. Below 1, only tuples of one in so
            many keys match.
        data: files or directory of readings to replay, relative to the experiment's file; None
            for made-up ones.
    """

    kind: Literal["debs"] = "debs"
    regions: Annotated[int, Meta(ge=1, le=10_000)] = 4
    matches: Annotated[float, Meta(ge=0.001, le=1000)] = 1
    data: str | None = None


class StrategyPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A strategy with parameters.

    Attributes:
        name: of the strategy.
        parameters: those that are not its defaults.
        label: what it is called in results; its name by default.
        scheduled_by: what decides where joins run: the ``plan`` from beginning to end; the
            ``controller``, which re-places them while they run (docs/control.md); or the
            ``engine``'s own scheduler, to which only sources and sinks are given by the plan.
    """

    name: str
    parameters: dict[str, Any] = {}
    label: str = ""
    scheduled_by: Literal["plan", "controller", "engine"] = "plan"

    @property
    def called(self) -> str:
        """Its label or name."""
        return self.label or self.name


class CapacityPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How hosts' capacities C_a come from their CPU limits.

    Attributes:
        safety: share of its CPU limit that a host may be planned to use.
        seconds: how long a calibration measures, once for each rate.
        warm_up_s: time before it, in which the engine compiles what it runs.
        stress_known: whether cells under load are planned with capacities under load, or with
            those of calm hosts: load that nobody has told of.
    """

    safety: Annotated[float, Meta(gt=0, le=1)] = 0.7
    seconds: Annotated[float, Meta(ge=1, le=600)] = 10
    warm_up_s: Annotated[float, Meta(ge=0, le=600)] = 14
    stress_known: bool = True


class EnginePart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Settings of the engine that decide between latency and CPU time.

    Attributes:
        watermark_ms: how often sources tell how far event time has come.
        buffer_timeout_ms: how long tuples may wait for company at most before they are sent;
            whatever waits goes with the next watermark.
        checkpoint_s: with it, the engine starts a job that has failed again by itself, from the
            state it keeps so often; the controller's jobs need neither. 0: a failed job ends.
    """

    watermark_ms: Annotated[int, Meta(ge=1, le=10_000)] = 10
    buffer_timeout_ms: Annotated[int, Meta(ge=0, le=10_000)] = 100
    checkpoint_s: Annotated[float, Meta(ge=0, le=3600)] = 0


class Experiment(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Strategies side by side on hosts.

    Attributes:
        experiment: version of this format.
        name: what people call it.
        workload: what is joined.
        inventory: file, relative to the experiment's, or name of one that comes with Nova.
        engine: what runs the plans.
        transport: how readings come to the engine: its own sources make them (``direct``), or
            producers on the sources' hosts send them to a broker (``kafka``; Flink only).
        broker: name of the broker's host; the sink's by default.
        settings: of the engine.
        strategies: names, or names with parameters.
        windows_ms: tumbling windows, ms.
        rates: of each source, tuples/s.
        load: what a region's join is to ask of the strongest host without source or sink, as a
            multiple of all it can take; the rate is found by calibrations that begin with the one
            in ``rates``. None for ``rates`` as they are.
        stress: without (false) or with (true) the inventory's load on its hosts, or ``both``.
        duration_s: measured time of a cell.
        warm_up_s: time before it, under the same conditions for its second half.
        drain_s: time after it in which what is on its way may still arrive.
        repetitions: of each cell.
        capacity: how hosts' capacities are told.
        disturbances: what happens to hosts, its times from the begin of the measured time on.
        seed: of the order of cells, and of made-up values.
    """

    experiment: Literal[1] = 1
    name: str
    workload: WorkloadPart = WorkloadPart()
    inventory: str = "virtual-14"
    engine: str = "flink"
    transport: str = DIRECT
    broker: str = ""
    settings: EnginePart = EnginePart()
    strategies: Annotated[list[str | StrategyPart], Meta(min_length=1)]
    windows_ms: Annotated[list[Window], Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: [100]
    )
    rates: Annotated[list[Rate], Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: [1000.0]
    )
    load: Annotated[float, Meta(gt=0, le=100)] | None = None
    stress: bool | Literal["both"] = False
    duration_s: Annotated[float, Meta(gt=0, le=86_400)] = 120
    warm_up_s: Seconds = 20
    drain_s: Seconds = 10
    repetitions: Annotated[int, Meta(ge=1, le=1000)] = 1
    capacity: CapacityPart = CapacityPart()
    disturbances: list[Disturbance] = []
    seed: Annotated[int, Meta(ge=0)] = 0

    @property
    def chosen(self) -> list[StrategyPart]:
        """All strategies, each as a mapping."""
        return [StrategyPart(name=s) if isinstance(s, str) else s for s in self.strategies]

    def keys(self, window_ms: int, rate: float) -> int:
        """What sequence numbers are compared modulo, for so many matches per tuple."""
        tuples = rate * window_ms / 1000
        if self.every > 1:
            return math.ceil(tuples / self.every) * self.every
        return max(1, round(tuples / self.workload.matches))

    def matches(self, window_ms: int, rate: float) -> float:
        """Results per tuple of a source that so many keys make."""
        tuples = rate * window_ms / 1000
        return max(1.0, tuples / self.keys(window_ms, rate)) / self.every

    @property
    def every(self) -> int:
        """Of which a key must be a multiple, where less than every tuple is to match."""
        return max(1, round(1 / self.workload.matches))


def find_experiment(path_or_name: str | Path) -> Path:
    """The file of an experiment: a path, or the name of one that comes with Nova.

    Raises:
        ExperimentError: where there is none.
    """
    path = Path(path_or_name)
    if path.exists():
        return path
    shipped = [folder / f"{path_or_name}.yaml" for folder in EXPERIMENTS]
    for file in shipped:
        if file.is_file():
            return file
    raise ExperimentError(
        f"experiment {str(path_or_name)!r}: no such file, nor an experiment that comes with Nova"
    )


def read_experiment(path: Path) -> Experiment:
    """Read an experiment and check it.

    Raises:
        ExperimentError: naming the file, the field, the value and what would be accepted.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ExperimentError(f"{path}: an experiment is a .yaml or .json file")
    found = read_typed(path, Experiment, "experiment", VERSION, ExperimentError)
    check_experiment(found, str(path))
    return found


def check_experiment(experiment: Experiment, where: str) -> None:
    """What the types of fields do not say.

    Args:
        experiment: read from a file, perhaps changed by options.
        where: what errors name as the place.

    Raises:
        ExperimentError: naming the field, the value and what would be accepted.
    """
    from nova_core.strategies.base import create

    if experiment.engine not in names():
        raise ExperimentError(
            f"{where}: engine: unknown {experiment.engine!r}; there are {', '.join(names())}"
        )
    if experiment.transport != DIRECT:
        transports = runner(experiment.engine).transports
        if experiment.transport not in transports:
            raise ExperimentError(
                f"{where}: transport: engine {experiment.engine!r} cannot read through "
                f"{experiment.transport!r}; its transports: {', '.join(transports)}"
            )
    elif experiment.broker:
        raise ExperimentError(f"{where}: broker: only transport kafka has one")
    if experiment.workload.data == "":
        raise ExperimentError(f"{where}: workload.data: empty; a file or directory is expected")
    seen: set[str] = set()
    own_flink = (experiment.engine, experiment.transport) == ("flink", DIRECT)
    if experiment.settings.checkpoint_s and not own_flink:
        raise ExperimentError(
            f"{where}: settings.checkpoint_s: only with engine flink and transport {DIRECT}"
        )
    for i, part in enumerate(experiment.chosen):
        place = f"{where}: strategies[{i}]"
        if part.scheduled_by != "plan" and not own_flink:
            raise ExperimentError(
                f"{place}: scheduled_by: {part.scheduled_by}: only with engine flink and "
                f"transport {DIRECT}"
            )
        try:
            create(part.name, **part.parameters)
        except NovaError as error:
            raise ExperimentError(f"{place}: {error}") from None
        except TypeError as error:
            raise ExperimentError(f"{place}: parameters of {part.name}: {error}") from None
        if not _LABEL.fullmatch(part.called):
            raise ExperimentError(
                f"{place}: label {part.called!r} is not accepted; up to 40 lower-case letters, "
                "digits and hyphens are"
            )
        if part.called in seen:
            raise ExperimentError(f"{place}: {part.called!r} is given twice; give one a label")
        seen.add(part.called)
    others = [part.called for part in experiment.chosen if part.scheduled_by != "controller"]
    for i, event in enumerate(experiment.disturbances):
        if event.what not in ("kill", "hang"):
            continue
        if experiment.engine != "flink":
            raise ExperimentError(
                f"{where}: disturbances[{i}]: what: {event.what}: only with engine flink"
            )
        if others and not experiment.settings.checkpoint_s:
            raise ExperimentError(
                f"{where}: disturbances[{i}]: what: {event.what}: would end the jobs of "
                f"{', '.join(others)}; settings.checkpoint_s has the engine start them again"
            )
    for field in ("windows_ms", "rates"):
        values = getattr(experiment, field)
        if len(set(values)) < len(values):
            raise ExperimentError(f"{where}: {field}: {values} has a value twice")
    if experiment.load is not None and len(experiment.rates) > 1:
        raise ExperimentError(
            f"{where}: rates: {experiment.rates}: with load there is one, to begin with"
        )
