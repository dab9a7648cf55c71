"""Measurements of hosts, written as a Nova problem."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.io.safe_files import write_text
from nova_core.io.syntax import Row, dump, number
from nova_testbed.inventory import Inventory, InventoryError

# The problem written for measured hosts is the one that experiments run on them.
from nova_workloads.debs import regional_join

if TYPE_CHECKING:
    from nova_testbed.probing import Capacity, PairRtt

# ms of latency and tuples/s with this many digits after the point.
DIGITS = 3
# Tuples/s of a sensor.
RATE = 1000.0


def hosts_document(
    inventory: Inventory,
    capacity: Mapping[str, float],
    rtt: Iterable[tuple[str, str, float]],
    no_workers: Collection[str] = (),
) -> dict[str, Any]:
    """Nodes and latencies of a problem document.

    CPU, memory and bandwidth are those of the inventory. Latencies are one way: half of the round
    trips.

    Args:
        inventory: of the hosts.
        capacity: C_a by host, tuples/s; a host without one is unlimited.
        rtt: pairs of hosts and their round trip, ms.
        no_workers: hosts on which no joins may run.
    """
    nodes = []
    for host in inventory.hosts:
        measured = capacity.get(host.name)
        limit = "unlimited" if measured is None else number(round(measured, 1))
        row: dict[str, Any] = {"id": host.name, "capacity": limit}
        if host.name in no_workers:
            row["worker"] = False
        if host.memory is not None:
            row["memory"] = host.memory
        if host.cpu is not None:
            row["cpu"] = host.cpu
        nodes.append(Row(row | {"tags": [host.role]}))
    pairs = []
    for a, b, ms in rtt:
        row = {"from": a, "to": b, "ms": one_way(ms)}
        mbit = inventory.link(a, b).bandwidth_mbit
        pairs.append(Row(row if mbit is None else row | {"mbit": number(mbit)}))
    return {"nodes": nodes, "latency": {"is": "one-way", "pairs": pairs}}


def one_way(rtt_ms: float) -> float | int:
    """What problems and files of latencies hold: half of a round trip, ms, rounded."""
    return number(round(rtt_ms / 2, DIGITS))


def problem_document(
    inventory: Inventory,
    rtts: Sequence[PairRtt],
    capacities: Sequence[Capacity],
    rate: float = RATE,
) -> dict[str, Any]:
    """The plain content of a problem document: pressure joined with humidity, region by region.

    Args:
        inventory: of the hosts.
        rtts: measured round trips; latencies of the problem are half of their medians, ms.
        capacities: measured capacities, tuples/s; a host without one is unlimited.
        rate: of each source, tuples/s.

    Returns:
        A document that `nova_core.io.files.read_problem` reads.

    Raises:
        InventoryError: with fewer than two sources.
    """
    sources = inventory.with_role("source")
    if len(sources) < 2 or not inventory.with_role("sink"):
        raise InventoryError(
            f"inventory {inventory.name}: {len(sources)} hosts with the role source; a problem "
            "needs at least two, and a sink"
        )
    document = hosts_document(
        inventory,
        {entry.host: entry.tuples_per_second for entry in capacities},
        ((rtt.source, rtt.target, rtt.median_ms) for rtt in _answered(rtts)),
    )
    for node, host in zip(document["nodes"], inventory.hosts, strict=True):
        node["host"] = host.address
    sink = inventory.with_role("sink")[0].name
    joined = regional_join([host.name for host in sources], sink, rate)
    return {"nova": 1, "name": inventory.name} | joined | document


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
    """Write half of the medians, one way, as CSV: ``source,target,latency``, ms."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["source", "target", "latency"])
    for rtt in _answered(rtts):
        writer.writerow([rtt.source, rtt.target, one_way(rtt.median_ms)])
    write_text(path, text.getvalue())


def _answered(rtts: Sequence[PairRtt]) -> list[PairRtt]:
    return [rtt for rtt in rtts if rtt.median_ms == rtt.median_ms]
