"""The placement problem of an inventory: its hosts, their capacities, and its links."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_testbed.topology import hosts_document

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_testbed.inventory import Inventory
    from nova_workloads.base import Traffic, Workload


def problem_document(
    inventory: Inventory,
    capacity: Mapping[str, float],
    workload: Workload,
    traffic: Traffic,
    *,
    sink_hosts: bool = True,
) -> dict[str, Any]:
    """The plain content of a problem document: hosts, links and a workload on them.

    Latencies are one-way: half of the links' round trips.

    Args:
        inventory: of the hosts.
        capacity: C_a by host, tuples/s.
        workload: with sources and computation.
        traffic: what flows.
        sink_hosts: whether the sink's host may run joins.

    Raises:
        NovaError: for an inventory with too few sources.
    """
    sources = [host.name for host in inventory.with_role("source")]
    sink = inventory.with_role("sink")[0].name
    return {
        "nova": 1,
        "name": inventory.name,
        **workload.problem(sources, sink, traffic),
        **hosts_document(
            inventory,
            capacity,
            ((a.name, b.name, x.rtt_ms) for a, b, x in inventory.pairs()),
            () if sink_hosts else (sink,),
        ),
    }


def problem_of(document: Mapping[str, Any], path: Path) -> Problem:
    """Write a problem document, and read it back as a problem.

    Raises:
        NovaError: when it cannot be written.
    """
    import warnings

    from nova_core.errors import ProblemWarning
    from nova_core.io.files import read_problem
    from nova_core.io.safe_files import write_text
    from nova_core.io.syntax import dump

    write_text(path, dump(document, path.suffix))
    with warnings.catch_warnings():
        # Positions computed from latencies need no warning here.
        warnings.simplefilter("ignore", ProblemWarning)
        return read_problem(path)


def rtt_csv(inventory: Inventory) -> str:
    """The inventory's round trips, ms: a header of names, then a row per host."""
    lines = [",".join(host.name for host in inventory.hosts)]
    lines += [",".join(f"{value:g}" for value in row) for row in inventory.rtt().tolist()]
    return "\n".join(lines) + "\n"


def busy_hosts(plan: Plan) -> set[str]:
    """Hosts where a plan runs something."""
    import numpy as np

    p = plan.problem
    nodes = [p.sources.node, p.sinks, plan.instances.node]
    if plan.routes is not None:
        nodes.append(plan.routes.node)
    return {str(name) for name in p.nodes.ids[np.unique(np.concatenate(nodes))]}
