"""What was measured of hosts, written as a Nova problem."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nova_core.model.files import write_text
from nova_core.model.syntax import Row, dump, number
from nova_testbed.inventory import Inventory, InventoryError
from nova_testbed.probing import Capacity, PairRtt

# ms of latency and tuples/s with this many digits after the point.
DIGITS = 3
STREAMS = ("pressure", "humidity")
# Tuples/s of a sensor.
RATE = 1000.0


def problem_document(
    inventory: Inventory,
    rtts: Sequence[PairRtt],
    capacities: Sequence[Capacity],
    rate: float = RATE,
) -> dict[str, Any]:
    """The plain content of a problem document.

    The sources are those of the paper's end-to-end run (section 4.1): hosts in the role of a source
    measure pressure and humidity in turn, two and two in a region, joined by region at the sink's
    behest. The sink hosts no joins.

    Args:
        inventory: of the hosts.
        rtts: measured round trips; latencies of the problem are their medians, ms.
        capacities: measured capacities, tuples/s; a host without one is unlimited.
        rate: of each source, tuples/s.

    Returns:
        A document that `nova_core.model.files.read_problem` reads.

    Raises:
        InventoryError: with fewer than two sources.
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
    sources = inventory.with_role("source")
    if len(sources) < 2 or not inventory.with_role("sink"):
        raise InventoryError(
            f"inventory {inventory.name}: {len(sources)} hosts with the role source; a problem "
            "needs at least two, and a sink"
        )
    pairs = [
        Row({"from": rtt.source, "to": rtt.target, "ms": number(round(rtt.median_ms, DIGITS))})
        for rtt in _answered(rtts)
    ]
    join = {
        "id": "join",
        "left": STREAMS[0],
        "right": STREAMS[1],
        "sink": inventory.with_role("sink")[0].name,
        "match": "key",
    }
    return {
        "nova": 1,
        "name": inventory.name,
        "query": {"operators": [Row(join)]},
        "nodes": nodes,
        "sources": [
            Row(
                {
                    "id": f"{STREAMS[i % 2]}{i // 2 + 1}",
                    "node": host.name,
                    "stream": STREAMS[i % 2],
                    "rate": number(rate),
                    "key": f"region{i // 2 + 1}",
                }
            )
            for i, host in enumerate(sources[: len(sources) // 2 * 2])
        ],
        "latency": {"pairs": pairs},
    }


def write_problem(
    inventory: Inventory,
    rtts: Sequence[PairRtt],
    capacities: Sequence[Capacity],
    path: Path,
    rate: float = RATE,
) -> None:
    """Write a problem document (.yaml, .yml or .json); see `problem_document`."""
    document = problem_document(inventory, rtts, capacities, rate)
    write_text(path, dump(document, path.suffix))


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
