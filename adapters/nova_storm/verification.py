"""Does every executor run where the plan says? Asked of nimbus, not of who deployed it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError

if TYPE_CHECKING:
    from nova_flink.dataflow import Dataflow
    from nova_storm.nimbus import Nimbus

POLL_S = 0.5
MISSING, STARTING, RUNNING = "MISSING", "STARTING", "RUNNING"


@dataclass(frozen=True)
class Row:
    """One executor of one component.

    Attributes:
        operator: its name in the dataflow and in Storm.
        node: where the dataflow has it; None for what the dataflow does not know.
        actual: the node of the host it runs on, or the host where that is no node's; None for what
            the topology lacks.
        status: ``RUNNING``; ``STARTING`` where no worker has reported it yet; ``MISSING`` for what
            the topology lacks.
    """

    operator: str
    node: str | None
    actual: str | None
    status: str


@dataclass(frozen=True)
class Verification:
    """A topology beside the dataflow it should be.

    Attributes:
        rows: in the order of the dataflow; what it does not know comes last.
        scheduling: what the scheduler says of the topology.
    """

    rows: tuple[Row, ...]
    scheduling: str

    @property
    def misplaced(self) -> tuple[Row, ...]:
        """Operators that do not run on their node."""
        return tuple(r for r in self.rows if r.node and r.actual and r.actual != r.node)

    @property
    def missing(self) -> tuple[Row, ...]:
        """Operators that do not run."""
        return tuple(row for row in self.rows if row.status != RUNNING)

    @property
    def unexpected(self) -> tuple[Row, ...]:
        """Executors that hold no operator of the dataflow."""
        return tuple(row for row in self.rows if row.node is None)

    @property
    def ok(self) -> bool:
        """Whether everything, and nothing else, runs where it should."""
        return not (self.misplaced or self.missing or self.unexpected)

    def to_plain(self) -> dict[str, Any]:
        """As a JSON document: ``ok``, what the scheduler says, and the rows."""
        rows = [asdict(row) for row in self.rows]
        return {"ok": self.ok, "scheduling": self.scheduling, "rows": rows}


def verify(
    status: Mapping[str, Any], topology: str, dataflow: Dataflow, addresses: Mapping[str, str]
) -> Verification:
    """Compare where a topology's executors are with a dataflow.

    Args:
        status: what `Nimbus.status` answers.
        topology: name of the topology.
        dataflow: what should run where.
        addresses: of every node, what its supervisor is configured with; all different.

    Raises:
        NovaError: for a topology that nimbus does not know.
    """
    found = of_name(status, topology)
    node_at = {address: node for node, address in addresses.items()}
    nodes = {one.name: one.node for one in dataflow.operators}
    rows: dict[str, list[Row]] = {name: [] for name in nodes}
    surplus: list[Row] = []
    for executor in found["executors"]:
        name, host = str(executor["component"]), str(executor["host"])
        state = RUNNING if executor["running"] else STARTING
        row = Row(name, nodes.get(name), node_at.get(host, host), state)
        rows.get(name, surplus).append(row)
    known = [
        row
        for name, seen in rows.items()
        for row in seen or [Row(name, nodes[name], None, MISSING)]
    ]
    return Verification((*known, *surplus), str(found["scheduling"] or ""))


def of_name(status: Mapping[str, Any], topology: str) -> Mapping[str, Any]:
    """A topology in nimbus' answer.

    Raises:
        NovaError: where there is none of that name.
    """
    for one in status["topologies"]:
        if one["name"] == topology:
            found: Mapping[str, Any] = one
            return found
    there = ", ".join(str(one["name"]) for one in status["topologies"]) or "none"
    raise NovaError(f"topology {topology!r}: nimbus does not know it; there are: {there}")


def await_running(
    nimbus: Nimbus,
    topology: str,
    dataflow: Dataflow,
    addresses: Mapping[str, str],
    timeout_s: float = 60.0,
) -> Verification:
    """Wait until all executors of a topology run; how it is placed then.

    Raises:
        NovaError: with the scheduler's reason, or what is not running, when the time is up.
    """
    until = time.monotonic() + timeout_s
    while True:
        seen = verify(nimbus.status(), topology, dataflow, addresses)
        if not seen.missing:
            return seen
        if time.monotonic() > until:
            late = seen.missing[0]
            raise NovaError(
                f"topology {topology}: after {timeout_s:g} s {len(seen.missing)} of "
                f"{len(seen.rows)} executors do not run, e.g. {late.operator} ({late.status}); "
                f"the scheduler says: {seen.scheduling or 'nothing'}"
            )
        time.sleep(POLL_S)
