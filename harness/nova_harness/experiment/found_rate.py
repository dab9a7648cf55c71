"""The rate at which joins ask of hosts what an experiment wants.

A few calibrations find it: what a host takes decides on the rate, and the rate on what a tuple
costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from nova_harness.experiment.calibration import capacities
from nova_harness.experiment.document import ExperimentError
from nova_harness.results.schema import Calibration, FoundRate

if TYPE_CHECKING:
    from nova_testbed.inventory import Inventory

# A rate is found when the next calibration would be made at one that differs by less.
CLOSE = 0.05
MOST_CALIBRATIONS = 3
# Rates found are multiples of this, tuples/s.
STEP = 100.0


def strongest(
    found: Calibration, inventory: Inventory, cores: Mapping[str, float], regions: int
) -> tuple[str, float]:
    """The host with neither a source nor the sink that takes most, and what it takes, tuples/s.

    Raises:
        ExperimentError: where every host has a source or the sink, or none is left any CPU.
    """
    taken = {host.name for host in inventory.with_role("source")[: 2 * regions]}
    taken |= {host.name for host in inventory.with_role("sink")}
    takes = {
        name: amount
        for name, amount in capacities(
            found, inventory, cores, rate=found.rate, safety=1.0, regions=regions, output_rate=0.0
        ).items()
        if name not in taken
    }
    if not any(takes.values()):
        raise ExperimentError("load: no host without source and sink has CPU left for a join")
    name = max(takes, key=lambda name: takes[name])
    return name, takes[name]


def find_rate(
    load: float,
    start: float,
    measure: Callable[[float], Calibration],
    takes: Callable[[Calibration], tuple[str, float]],
) -> FoundRate:
    """The rate at which a region's join asks a multiple of what the strongest host takes.

    Args:
        load: the multiple.
        start: rate of the first calibration, of each source, tuples/s.
        measure: a calibration at a rate.
        takes: the strongest host by a calibration, and what it can take, tuples/s.

    Returns:
        The rate by the last calibration: the first that was made within `CLOSE` of the rate it
        leads to, or the last of `MOST_CALIBRATIONS`.
    """
    calibrations: list[Calibration] = []
    rate = start
    while True:
        calibrations.append(measure(rate))
        host, most = takes(calibrations[-1])
        # A join receives the tuples of two sources.
        before, rate = rate, max(1.0, round(load * most / 2 / STEP)) * STEP
        if abs(rate - before) <= CLOSE * before or len(calibrations) == MOST_CALIBRATIONS:
            return FoundRate(load, rate, host, most, 2 * rate / most, calibrations)
