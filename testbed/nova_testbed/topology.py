"""What was measured of hosts, written as the topology of a Nova problem."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nova_core.model.files import write_text
from nova_core.model.syntax import Row, dump, number
from nova_testbed.inventory import Inventory
from nova_testbed.probing import Capacity, PairRtt

# ms of latency and tuples/s with this many digits after the point.
DIGITS = 3


def topology_document(
    inventory: Inventory, rtts: Sequence[PairRtt], capacities: Sequence[Capacity]
) -> dict[str, Any]:
    """The plain content of a problem document without streams or joins.

    Args:
        inventory: of the hosts.
        rtts: measured round trips; latencies of the problem are their medians, ms.
        capacities: measured capacities, tuples/s; a host without one is unlimited.

    Returns:
        A document that `nova_core.model.files.read_problem` reads. The sink hosts no joins.
    """
    capacity = {entry.host: number(round(entry.tuples_per_second, 1)) for entry in capacities}
    nodes = []
    for host in inventory.hosts:
        row: dict[str, Any] = {"id": host.name, "capacity": capacity.get(host.name, "unlimited")}
        if host.role == "sink":
            row["worker"] = False
        if host.memory is not None:
            row["memory"] = host.memory
        nodes.append(Row(row | {"tags": [host.role], "host": host.address}))
    pairs = [
        Row({"from": rtt.source, "to": rtt.target, "ms": number(round(rtt.median_ms, DIGITS))})
        for rtt in _answered(rtts)
    ]
    return {
        "nova": 1,
        "name": inventory.name,
        "query": {"operators": []},
        "nodes": nodes,
        "sources": [],
        "latency": {"pairs": pairs},
    }


def write_topology(
    inventory: Inventory, rtts: Sequence[PairRtt], capacities: Sequence[Capacity], path: Path
) -> None:
    """Write a problem document (.yaml, .yml or .json); see `topology_document`."""
    write_text(path, dump(topology_document(inventory, rtts, capacities), path.suffix))


def write_pairs(rtts: Sequence[PairRtt], path: Path) -> None:
    """Write the medians as CSV: ``source,target,latency``, ms."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["source", "target", "latency"])
    for rtt in _answered(rtts):
        writer.writerow([rtt.source, rtt.target, number(round(rtt.median_ms, DIGITS))])
    write_text(path, text.getvalue())


def _answered(rtts: Sequence[PairRtt]) -> list[PairRtt]:
    return [rtt for rtt in rtts if rtt.median_ms == rtt.median_ms]


__all__ = ["topology_document", "write_pairs", "write_topology"]
