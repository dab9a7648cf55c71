"""Plans, and figures, of jobs that are handed over by choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nova_core.model.plan import Plan
from nova_core.strategies import place
from nova_harness.control.decision_log import Entry
from nova_harness.control.outcome import NEAR_US, Outcome, arrived_us, longest_gap_ms
from nova_harness.experiment.problem import problem_document, problem_of
from nova_testbed.inventory import Inventory
from nova_workloads.debs import DebsWorkload

# After a boundary: how long results may be late because of it, and when the new job is steady.
AFTER_S, STEADY_S = 2.0, 5.0
# Length of windows.
WINDOW_MS = 100
# With enough hosts, each takes at most so much of a join's input: every join is cut in two.
CUT = 0.8


class Case(NamedTuple):
    """A series of hand-overs.

    Attributes:
        rate: of each source, tuples/s.
        load: a busy loop runs on each source's host.
        inventory: the hosts.
        regions: with two sources and a join each.
        calm_s: undisturbed time before each, and after the last.
    """

    rate: float
    load: bool = False
    inventory: str = "virtual-14-equal"
    regions: int = 2
    calm_s: float = 20.0


def plans_of(case: Case, inventory: Inventory, scratch: Path) -> tuple[Plan, Plan]:
    """Two plans of the same joins on different hosts."""
    workload = DebsWorkload(regions=case.regions)
    traffic = workload.traffic(WINDOW_MS, case.rate)
    # Hosts of sources are busy with these, and the sink's with the results.
    sources = inventory.with_role("source")[: 2 * case.regions]
    taken = {host.name for host in (*sources, *inventory.with_role("sink"))}
    free = [host.name for host in inventory.hosts if host.name not in taken]
    assert len(free) >= 2 * case.regions, f"{inventory.name}: too few hosts"
    each = 2 * case.rate * (CUT if len(free) >= 4 * case.regions else 1)
    room = dict.fromkeys(free, each) | dict.fromkeys(taken, case.rate * case.regions)
    document = problem_document(inventory, room, workload, traffic)
    for node in document["nodes"]:
        node["worker"] = node["id"] in free
    problem = problem_of(document, scratch / "problem.yaml")
    first = place(problem, "nova")
    left = problem.nodes.capacity.copy()
    left[np.unique(first.instances.node)] = 0
    other = replace(problem, nodes=replace(problem.nodes, capacity=left))
    return first, place(other, "nova")


def figures(
    calm_s: float, entries: Sequence[Entry], observed: Outcome, end_ms: int
) -> dict[str, Any]:
    """Figures of a finished series; latencies are from the later emission to the arrival.

    Those of each hand-over are in their order; percentiles are of all hand-overs together:
    `decided_s` from the decision to the boundary, `told_s` until all sources of the old job had
    agreed to the boundary, `silence_ms` the longest time without a result of a group of joins
    within 2 s around the boundary, group by group, `steady_silence_ms` the same around moments
    between hand-overs, `after_p99_ms` of the 2 s after boundaries, `steady_p99_ms` of the new jobs
    from 5 s after the boundary on, `deploying_p9999_ms` of the old jobs while the new ones were
    deployed, and `steady_p9999_ms` of the same jobs before that.

    Args:
        calm_s: of the case.
        entries: the controller's log.
        observed: the results.
        end_ms: when the last job ended, ms since the epoch.
    """
    done = [one for one in entries if one.kind == "handed-over"]
    boundary = np.array([one.figures["boundary_ms"] for one in done]) * 1000
    begun = np.array([round(1e6 * (one.at - one.figures["seconds"])) for one in done])
    parts = [part for group in observed.valid for part in group]
    later = [np.maximum(part["left_emit_us"], part["right_emit_us"]) for part in parts]
    emit = np.concatenate(later)
    late = np.concatenate([part["arrive_us"] for part in parts]) - emit
    latencies = _Latencies(emit, late)
    calm = round(1e6 * calm_s)
    steady = boundary + round(1e6 * STEADY_S)
    # Between two hand-overs, as many such periods as fit one after the other.
    middles = np.arange(NEAR_US, calm - NEAR_US + 1, 2 * NEAR_US)
    between = ([*begun.tolist(), end_ms * 1000] - middles[:, None]).ravel().tolist()
    groups = [arrived_us(group) for group in observed.valid]
    return {
        "results": observed.compared.delivered,
        "decided_s": ((boundary - begun) / 1e6).tolist(),
        "told_s": [one.figures["told_s"] for one in done],
        "silence_ms": observed.silence_ms,
        "steady_silence_ms": [longest_gap_ms(arrive, at) for arrive in groups for at in between],
        "after_p99_ms": latencies.percentile(99, boundary, boundary + round(1e6 * AFTER_S)),
        "steady_p99_ms": latencies.percentile(99, steady, steady + calm),
        "deploying_p9999_ms": latencies.percentile(99.99, begun, boundary),
        "steady_p9999_ms": latencies.percentile(99.99, begun - calm, begun),
    }


@dataclass(frozen=True)
class _Latencies:
    """Of results: (k,) when the later tuple was emitted, us since the epoch, and latency, us."""

    emit: NDArray[np.int64]
    late: NDArray[np.int64]

    def percentile(
        self, percent: float, begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> float:
        """A percentile, ms, of all that was emitted in any of some periods."""
        inside = np.zeros(len(self.emit), bool)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            inside |= (self.emit >= begin) & (self.emit < end)
        assert inside.any(), "no results for seconds: the hosts need a lower rate"
        return float(np.percentile(self.late[inside], percent, method="inverted_cdf")) / 1000
