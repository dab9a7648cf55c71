"""Simulated measurements of one placement of a whole query on limited hosts.

The simulator replaces runs on hosts where these are too few to learn from. It models CPU limits per
host, dealt out every 20 ms; costs per tuple, byte and wake-up; windows of event time, whose results
leave when watermarks have passed; links with latency, bandwidth and bounded buffers, so that a slow
operator holds up all operators upstream; and heaps that fill, so that garbage collection takes more
of the CPU until memory is out. The kernel is in `kernels.simulation`; its `Constants` are fitted to
measured runs by `fit`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nova_core.errors import NovaError
from nova_research.costream.simulator.kernels import simulation
from nova_research.costream.simulator.kernels.simulation import Constants, Outcome
from nova_research.costream.simulator.stages import Stages, stages_of
from nova_research.costream.training.traces import BEHIND, MEASURED_S, WARM_UP_S, Labels

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Bools, Floats

QUINTILES = np.array([-1.28, -0.52, 0.0, 0.52, 1.28]) + 0.2
"""Ages of results' oldest readings: medians of fifths of a normal distribution, in standard
deviations. The oldest of a few readings that are spread evenly over a window has its
median 0.17 (of two) to 0.3 (of many) above its mean."""

FITTED = Path(__file__).parent / "simulator.json"


@dataclass(frozen=True)
class OperatorCount:
    """Tuples into and out of an operator of the graph during the whole run."""

    records_in: float
    records_out: float


@dataclass(frozen=True)
class Simulated:
    """A run in the simulator.

    Attributes:
        of_query: measurements of each query, by its id.
        operators: tuples through each operator of the plan's graph, by its id.
        out_of_memory_s: when a host ran out of memory, which ends the run; None where none did.
    """

    of_query: dict[str, Labels]
    operators: dict[str, OperatorCount]
    out_of_memory_s: float | None

    @property
    def labels(self) -> Labels:
        """Measurements of the only query."""
        (labels,) = self.of_query.values()
        return labels


def read_constants(path: Path = FITTED) -> Constants:
    """Constants as `fit` wrote them; the package's own by default.

    Raises:
        NovaError: naming the file, and what is wrong with it.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))["constants"]
        constants = Constants(**{name: float(value) for name, value in values.items()})
    except OSError as error:
        raise NovaError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        names = ", ".join(Constants._fields)
        raise NovaError(f"{path}: constants: numbers by name are expected, of {names}") from error
    wrong = [name for name, value in constants._asdict().items() if not 0 <= value < math.inf]
    if wrong:
        value = getattr(constants, wrong[0])
        raise NovaError(f"{path}: constants.{wrong[0]}: {value:g}; a number >= 0 is expected")
    return constants


@cache
def fitted_constants() -> Constants:
    """The constants that come with the package."""
    return read_constants()


def digest_of(constants: Constants) -> str:
    """A hash of constants."""
    text = json.dumps(constants._asdict())
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def simulate(
    plan: Plan,
    constants: Constants | None = None,
    *,
    warm_up_s: float = WARM_UP_S,
    measured_s: float = MEASURED_S,
) -> Simulated:
    """Run a placement in the simulator.

    The same plan, constants and times give the same result. Sources and windows begin at once.

    Args:
        plan: of whole queries; nodes without `cpu` or `memory`, and links without `mbit`, have no
            limit.
        constants: what work costs; those of the package by default.
        warm_up_s: time before the measurement.
        measured_s: time of the measurement.

    Raises:
        NovaError: for a join without a window.
    """
    constants = fitted_constants() if constants is None else constants
    # Whole numbers would have the kernel compiled once more.
    constants = Constants(*map(float, constants))
    stages = stages_of(plan)
    outcome = simulation.simulate(stages.network, constants, float(warm_up_s), float(measured_s))
    return Simulated(
        {
            query.id: labels_of(outcome, measured_s, stages.upstream(query.id))
            for query in plan.problem.queries
        },
        _counts(stages, plan, outcome),
        outcome.failed if outcome.failed < math.inf else None,
    )


def labels_of(outcome: Outcome, measured_s: float, of: Bools) -> Labels:
    """A query's labels of the kernel's outcome.

    Args:
        outcome: of a plan.
        measured_s: measured time.
        of: (s,) whether stages belong to the query, see `Stages.upstream`.
    """
    failed, behind_s = outcome.failed < math.inf, float(outcome.behind[of].max())
    amount, latency, deviation, lag, sink = outcome.arrived.T
    mine = of[sink.astype(np.int64)]
    amount, latency, deviation, lag = amount[mine], latency[mine], deviation[mine], lag[mine]
    results = math.floor(amount.sum() + 1e-6)
    return Labels(
        success=results > 0,
        back_pressure=failed or behind_s >= BEHIND * measured_s,
        throughput=results / measured_s,
        e2e_latency_ms=median_ms(amount, latency, deviation) if results else None,
        processing_latency_ms=median_ms(amount, latency - lag, deviation) if results else None,
        results=results,
        behind_s=behind_s,
    )


def median_ms(amount: Floats, mean: Floats, deviation: Floats) -> float:
    """Median, ms, of batches of results with these means and standard deviations, s."""
    value = (mean[:, None] + deviation[:, None] * QUINTILES).ravel()
    order = np.argsort(value)
    below = np.cumsum(np.repeat(amount, len(QUINTILES))[order])
    # A fifth below a small mean may be negative; nothing arrives before it is due.
    middle = float(value[order[np.searchsorted(below, below[-1] / 2)]])
    return 1e3 * max(middle, 1e-6)


def _counts(stages: Stages, plan: Plan, outcome: Outcome) -> dict[str, OperatorCount]:
    """Tuples through each operator; filters and projections by the operator they run with."""
    graph = plan.graph
    into: dict[int, float] = defaultdict(float)
    out: dict[int, float] = defaultdict(float)
    taken = np.bincount(stages.network.link["consumer"], outcome.taken, len(stages.operator))
    for s, operator in enumerate(stages.operator.tolist()):
        into[operator] += float(taken[s])
        if not stages.feeds[s]:
            out[operator] += float(outcome.emitted[s])
    operators = list(graph)
    for number in graph.fused.tolist():
        above = operators[number].inputs[0]
        into[number] = out[above]
        out[number] = out[above] * operators[number].rate / operators[above].rate
    return {
        operators[number].id: OperatorCount(into[number], out[number]) for number in sorted(into)
    }
