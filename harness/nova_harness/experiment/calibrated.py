"""What strategies are told of the hosts: an experiment's calibrations, and problems from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from nova_harness.experiment import calibration as calibrating
from nova_harness.experiment import found_rate as finding
from nova_harness.experiment.bed import cores_of
from nova_harness.experiment.calibration import Setting
from nova_harness.experiment.cells import loads_of
from nova_harness.experiment.document import Experiment
from nova_harness.experiment.problem import (
    data_of,
    problem_document,
    problem_of,
    rtt_csv,
    streams_of,
)
from nova_harness.results.run_folder import CALIBRATIONS, write_json
from nova_harness.results.schema import (
    CalibratedSetting,
    Calibration,
    Calibrations,
    FoundRate,
    HostRow,
)

if TYPE_CHECKING:
    from nova_core.model.problem import Problem
    from nova_harness.experiment.engine_run import Bed
    from nova_workloads.streams import Stream

# Of each source, tuples/s, while the engine warms up.
WARMING_RATE = 1000.0


def settings_of(experiment: Experiment) -> list[Setting]:
    """The settings an experiment's hosts are calibrated for, the first rate's first."""
    loads = loads_of(experiment) if experiment.capacity.stress_known else (False,)
    return [Setting(rate, stress) for rate in experiment.rates for stress in loads]


def setting_told(experiment: Experiment, rate: float, stress: bool) -> Setting:
    """The setting whose capacities strategies are told where a cell has that rate and load."""
    return Setting(rate, stress and experiment.capacity.stress_known)


def measure_calibrations(
    bed: Bed,
    experiment: Experiment,
    base: Path,
    scratch: Path,
    tell: Callable[[str], None],
    known: Mapping[Setting, Calibration] = MappingProxyType({}),
) -> tuple[dict[Setting, Calibration], FoundRate | None]:
    """What operators cost in each setting of an experiment, once the engine is warm.

    Args:
        bed: what it runs on.
        experiment: what is run.
        base: directory that paths in the experiment are relative to.
        scratch: directory for files on the way.
        tell: is told what is being done.
        known: settings that need no calibration, of a run that is gone on with.

    Returns:
        Calibrations by setting; with a load that is asked for, of the rate that was found, which
        is the other value then.

    Raises:
        NovaError: naming what failed.
    """
    from nova_harness.experiment.engine_run import warm_up

    inventory, cores = bed.deployment.hosts.inventory, cores_of(bed)
    workload, data = experiment.workload, data_of(experiment, base)

    def at(rate: float) -> tuple[Problem, list[Stream]]:
        # Only the order of the workers' capacities matters here.
        guess = {name: 1e6 * value for name, value in cores.items()}
        document = problem_document(inventory, guess, rate, workload.regions, workload.matches)
        problem = problem_of(document, scratch / "calibration-problem.yaml")
        (scratch / "calibration-problem.yaml").unlink()
        return problem, streams_of(problem, data, experiment.seed)

    def measure(setting: Setting) -> Calibration:
        problem, streams = at(setting.rate)
        return calibrating.calibrate(bed, experiment, setting, problem, streams, scratch, tell)

    def warm(rate: float) -> None:
        problem, streams = at(rate)
        window = min(experiment.windows_ms)
        warm_up(
            bed,
            calibrating.warming_plan(problem),
            streams,
            experiment.capacity.warm_up_s,
            rate=rate,
            window_ms=window,
            keys=experiment.keys(window, rate),
            tell=tell,
        )

    if bed.engine.stays_warm:
        # Slowly, as every host gets all of a source.
        warm(min(WARMING_RATE, *experiment.rates))
    settings, found, load = settings_of(experiment), dict(known), None
    if experiment.load is not None and not known:
        stress = settings[0].stress
        load = finding.find_rate(
            experiment.load,
            experiment.rates[0],
            lambda rate: measure(Setting(rate, stress)),
            lambda one: finding.strongest(one, inventory, cores, workload.regions),
        )
        settings = [Setting(load.rate, setting.stress) for setting in settings]
        found = {settings[0]: load.calibrations[-1]}
    found |= {setting: measure(setting) for setting in settings if setting not in found}
    most = max(setting.rate for setting in settings)
    if bed.engine.stays_warm and most > WARMING_RATE:
        # What hosts see for the first time, Java makes room and code for: not within a cell.
        warm(most)
    return found, load


def found_line(found: FoundRate) -> str:
    """What a rate that was found stands for."""
    tried = ", ".join(f"{one.rate:g}" for one in found.calibrations)
    under = "under load " if found.calibrations[-1].stress else ""
    return (
        f"load {found.asked:g}: {found.rate:g} tuples/s of each source, whose join asks "
        f"{found.load:.2f} times the {found.takes:,.0f} tuples/s that {found.host} takes "
        f"({under}calibrated at {tried})"
    )


def write_problems(
    path: Path,
    experiment: Experiment,
    bed: Bed,
    found: Mapping[Setting, Calibration],
    load: FoundRate | None = None,
) -> dict[Setting, Problem]:
    """Problems by setting, with what they come from.

    Args:
        path: folder they are written into.
        experiment: what is run.
        bed: what it runs on.
        found: calibrations by setting.
        load: where the rate was found for one.

    Raises:
        NovaError: for an inventory that does not suit, or when something cannot be written.
    """
    from nova_core.model.files import write_text

    inventory, workload = bed.deployment.hosts.inventory, experiment.workload
    regions, cores = workload.regions, cores_of(bed)
    problems, rows = {}, []
    for setting in settings_of(experiment):
        rate, costs = setting.rate, found[setting]
        capacity = calibrating.capacities(
            costs,
            inventory,
            cores,
            rate=rate,
            safety=experiment.capacity.safety,
            regions=regions,
            output_rate=regions * rate * workload.matches,
        )
        further = "" if rate == experiment.rates[0] else f"-r{rate:g}"
        further += "-stress" if setting.stress else ""
        document = problem_document(inventory, capacity, rate, regions, workload.matches)
        problems[setting] = problem_of(document, path / f"problem{further}.yaml")
        rows.append(
            CalibratedSetting(
                rate=rate,
                stress=setting.stress,
                costs=costs,
                capacity=capacity,
                bottlenecks=calibrating.bottlenecks(costs, inventory, cores, regions, rate),
            )
        )
    calibrations = Calibrations(
        engine=experiment.engine,
        version=bed.deployment.version,
        safety=experiment.capacity.safety,
        cores=cores,
        load=load,
        rates=rows,
    )
    write_json(path / CALIBRATIONS, calibrations)
    positions = next(iter(problems.values())).nodes.position.tolist()
    hosts = [
        HostRow(name=h.name, role=h.role, cpu=cores[h.name], memory=h.memory, position=p)
        for h, p in zip(inventory.hosts, positions, strict=True)
    ]
    write_json(path / "hosts.json", hosts)
    write_text(path / "rtt.csv", rtt_csv(inventory))
    return problems
