"""The document of an experiment: what runs, where, under which strategies, for how long."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from nova_core.errors import NovaError
from nova_core.io.syntax import read_typed
from nova_engines.sources import KAFKA, READINGS, REPLAY
from nova_harness.control.disturbances import Disturbance
from nova_harness.engines.base import ALL, PAIRS, Abilities, names, require, runner
from nova_harness.experiment.feed import DIRECT, TRANSPORTS
from nova_workloads.base import Workload, workload

VERSION = 1
HERE = Path(__file__).parents[1]
# In a checkout beside the package, in an installation inside it.
EXPERIMENTS = (HERE / "experiments", HERE.parent / "experiments")
DEFAULT_ENGINE = "flink"
SUFFIXES = (".yaml", ".yml", ".json")
# Strategies' labels become names of directories.
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")

Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Window = Annotated[int, Meta(ge=1, le=1000)]
Rate = Annotated[float, Meta(gt=0, le=1_000_000)]


class ExperimentError(NovaError):
    """An invalid experiment."""


class StrategyPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A strategy with parameters.

    Attributes:
        name: of the strategy.
        parameters: those that are not its defaults.
        label: its name in results; the strategy's name by default.
        scheduled_by: what decides where joins run: the ``plan`` from beginning to end; the
            ``controller``, which re-places them while they run (docs/control.md); or the
            ``engine``'s own scheduler; then the plan places only sources and sinks.
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
        safety: share of a host's CPU limit that plans may use.
        seconds: how long a calibration measures, once for each rate.
        warm_up_s: time before it, in which the engine compiles what it runs.
        stress_known: whether cells under load are planned with capacities under load, or with
            those of calm hosts, as if the load were unknown.
    """

    safety: Annotated[float, Meta(gt=0, le=1)] = 0.7
    seconds: Annotated[float, Meta(ge=1, le=600)] = 10
    warm_up_s: Annotated[float, Meta(ge=0, le=600)] = 14
    stress_known: bool = True


class EnginePart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Settings of the engine that decide between latency and CPU time.

    Attributes:
        watermark_ms: how often sources send a watermark, the progress of event time.
        buffer_timeout_ms: how long tuples may wait in a buffer at most before they are sent; a
            watermark sends them, too.
        checkpoint_s: interval of checkpoints, from which the engine restarts a failed job; the
            controller's jobs need neither. 0: a failed job ends.
        miss_after_s: when a host that hangs or is cut off counts as lost. None: when the engine
            usually says so, with Flink after 60 s.
    """

    watermark_ms: Annotated[int, Meta(ge=1, le=10_000)] = 10
    buffer_timeout_ms: Annotated[int, Meta(ge=0, le=10_000)] = 100
    checkpoint_s: Annotated[float, Meta(ge=0, le=3600)] = 0
    miss_after_s: Annotated[float, Meta(ge=1, le=3600)] | None = None


class Experiment(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Strategies side by side on hosts.

    Attributes:
        experiment: version of this format.
        name: of the experiment.
        workload: what flows: ``kind``, one of the entry points ``nova.workloads`` (debs where it is
            missing), and its parameters.
        inventory: file, relative to the experiment's, or name of one that comes with Nova.
        engine: what runs the plans.
        transport: how the engine gets readings: its own sources make them (``direct``), or
            producers on the sources' hosts send them to a broker (``kafka``).
        broker: name of the broker's host; the sink's by default.
        settings: of the engine.
        strategies: names, or names with parameters.
        windows_ms: tumbling windows, ms; by default those of the workload.
        rates: of each source, tuples/s; by default those of the workload.
        load: input of a region's join, as a multiple of the capacity of the strongest host without
            source or sink; calibrations, the first at the rate in ``rates``, find its rate. None
            for ``rates`` as they are.
        stress: without (false) or with (true) the inventory's load on its hosts, or ``both``.
        duration_s: measured time of a cell.
        warm_up_s: time before it, under the same conditions for its second half.
        drain_s: time after it for late results.
        repetitions: of each cell.
        capacity: how hosts' capacities are determined.
        sink_hosts: whether plans may have joins on the sink's host, if it has room for them.
        disturbances: of hosts; their times count from the begin of the measured time.
        seed: of the order of cells, and of generated values.
    """

    experiment: Literal[1] = 1
    name: str
    workload: dict[str, Any] = {}
    inventory: str = "virtual-14"
    engine: str = DEFAULT_ENGINE
    transport: str = DIRECT
    broker: str = ""
    settings: EnginePart = EnginePart()
    strategies: Annotated[list[str | StrategyPart], Meta(min_length=1)]
    windows_ms: list[Window] = []
    rates: list[Rate] = []
    load: Annotated[float, Meta(gt=0, le=100)] | None = None
    stress: bool | Literal["both"] = False
    duration_s: Annotated[float, Meta(gt=0, le=86_400)] = 120
    warm_up_s: Seconds = 20
    drain_s: Seconds = 10
    repetitions: Annotated[int, Meta(ge=1, le=1000)] = 1
    capacity: CapacityPart = CapacityPart()
    sink_hosts: bool = True
    disturbances: list[Disturbance] = []
    seed: Annotated[int, Meta(ge=0)] = 0

    @property
    def chosen(self) -> list[StrategyPart]:
        """All strategies, each with parameters."""
        return [StrategyPart(name=s) if isinstance(s, str) else s for s in self.strategies]

    @property
    def source(self) -> str:
        """Kind of sources that the engine's jobs have, of `nova_engines.sources.KINDS`."""
        return KAFKA if self.transport == KAFKA else self.workload_in().source

    def workload_in(self, base: Path = Path()) -> Workload:
        """The workload, its paths relative to a directory.

        Raises:
            NovaError: naming the field, the value and what would be accepted.
        """
        return workload(self.workload).at(base)

    def filled(self, base: Path) -> Experiment:
        """The same, with its workload's windows and rates where it has none.

        Raises:
            NovaError: for a workload that cannot be run.
        """
        if self.windows_ms and self.rates:
            return self
        flowing = self.workload_in(base)
        return msgspec.structs.replace(
            self,
            windows_ms=self.windows_ms or flowing.windows_ms(),
            rates=self.rates or flowing.rates(),
        )


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


def read_experiment(
    path: Path, change: Callable[[Experiment], Experiment] = lambda read: read
) -> Experiment:
    """Read an experiment and check it.

    Args:
        path: the file.
        change: changes the experiment before the check.

    Raises:
        ExperimentError: naming the file, the field, the value and what would be accepted.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ExperimentError(f"{path}: an experiment is a .yaml or .json file")
    experiment = change(read_typed(path, Experiment, "experiment", VERSION, ExperimentError))
    check_experiment(experiment, str(path))
    return experiment.filled(path.parent)


def check_experiment(experiment: Experiment, where: str) -> None:
    """Check what the types of fields do not express.

    Args:
        experiment: read from a file, perhaps changed by options.
        where: the place that errors name.

    Raises:
        ExperimentError: naming the field, the value and what would be accepted.
    """
    from nova_core.strategies.base import create

    if experiment.engine not in names():
        raise ExperimentError(
            f"{where}: engine: unknown {experiment.engine!r}; there are {', '.join(names())}"
        )
    if experiment.transport not in TRANSPORTS:
        raise ExperimentError(
            f"{where}: transport: unknown {experiment.transport!r}; there are "
            f"{', '.join(TRANSPORTS)}"
        )
    if experiment.broker and experiment.transport != KAFKA:
        raise ExperimentError(f"{where}: broker: only transport {KAFKA} has one")
    try:
        flowing = workload(experiment.workload, f"{where}: workload")
    except NovaError as error:
        raise ExperimentError(str(error)) from None
    try:
        require(experiment.engine, ALL if flowing.queries else PAIRS, [experiment.source])
    except NovaError as error:
        raise ExperimentError(f"{where}: {error}") from None
    seen: set[str] = set()
    can = runner(experiment.engine).can
    controlled = can.controlled and not (flowing.queries and experiment.source != READINGS)
    own_controlled = f"with engine {_able(lambda one: one.controlled)}"
    if flowing.queries:
        own_controlled += f" and transport {DIRECT}"
    if experiment.settings.checkpoint_s and not (can.checkpoints and experiment.source == REPLAY):
        raise ExperimentError(
            f"{where}: settings.checkpoint_s: only for joins with engine "
            f"{_able(lambda one: one.checkpoints)} and transport {DIRECT}"
        )
    if experiment.settings.miss_after_s is not None and not controlled:
        raise ExperimentError(f"{where}: settings.miss_after_s: only {own_controlled}")
    for i, part in enumerate(experiment.chosen):
        place = f"{where}: strategies[{i}]"
        if part.scheduled_by == "engine" and not can.places:
            raise ExperimentError(
                f"{place}: scheduled_by: engine: only with engine {_able(lambda one: one.places)}"
            )
        if part.scheduled_by == "controller" and not controlled:
            raise ExperimentError(f"{place}: scheduled_by: controller: only {own_controlled}")
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
    _check_disturbances(experiment, where, can, queries=flowing.queries)
    for field in ("windows_ms", "rates"):
        values = getattr(experiment, field)
        if len(set(values)) < len(values):
            raise ExperimentError(f"{where}: {field}: {values} has a value twice")
    if experiment.load is not None and len(experiment.rates) > 1:
        raise ExperimentError(
            f"{where}: rates: {experiment.rates}: with load there is one, to begin with"
        )


def _check_disturbances(
    experiment: Experiment, where: str, can: Abilities, *, queries: bool
) -> None:
    """Check that the engine and the strategies can go through them.

    Args:
        experiment: as for `check_experiment`.
        where: the same.
        can: what its engine can do.
        queries: whether its jobs are whole queries.
    """
    chosen, settings = experiment.chosen, experiment.settings
    those = _able(lambda one: one.controlled)
    others = [part.called for part in chosen if part.scheduled_by != "controller"]
    for i, event in enumerate(experiment.disturbances):
        place = f"{where}: disturbances[{i}]: what: {event.what}"
        own = can.controlled and experiment.transport == DIRECT
        if event.what in ("rate", "add") and not own:
            raise ExperimentError(f"{place}: only with engine {those} and transport {DIRECT}")
        if event.what == "rate" and queries:
            raise ExperimentError(f"{place}: readings of queries have times of their own")
        seen_late = settings.miss_after_s is None and len(others) < len(chosen)
        if event.what in ("hang", "cut") and seen_late:
            raise ExperimentError(
                f"{place}: the controller would notice it late or never; settings.miss_after_s "
                "says when, 5 for example"
            )
        if event.what not in ("kill", "hang"):
            continue
        if not can.controlled:
            raise ExperimentError(f"{place}: only with engine {those}")
        if others and can.checkpoints and not settings.checkpoint_s:
            again = "settings.checkpoint_s has the engine start them again"
            if queries:
                again = "those of queries go on under the controller only (scheduled_by)"
            raise ExperimentError(f"{place}: would end the jobs of {', '.join(others)}; {again}")


def _able(does: Callable[[Abilities], bool]) -> str:
    """Names of the engines that can do something."""
    return " or ".join(name for name in names() if does(runner(name).can))
