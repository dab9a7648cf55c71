"""Checks that every executor runs where the plan says, by what nimbus itself reports."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_engines.verification import RUNNING, STARTING, Verification, compare

if TYPE_CHECKING:
    from nova_storm.nimbus import Nimbus

POLL_S = 0.5


def verify(
    status: Mapping[str, Any],
    topology: str,
    nodes: Mapping[str, str],
    addresses: Mapping[str, str],
) -> Verification:
    """Compare where a topology's executors are with the nodes of its components.

    Args:
        status: what `Nimbus.status` answers.
        topology: name of the topology.
        nodes: of every component.
        addresses: of every node, what its supervisor is configured with; all different.

    Raises:
        NovaError: for a topology that nimbus does not know.
    """
    details = of_name(status, topology)
    node_at = {address: node for node, address in addresses.items()}
    parts = (
        (
            str(one["component"]),
            node_at.get(str(one["host"]), str(one["host"])),
            RUNNING if one["running"] else STARTING,
        )
        for one in details["executors"]
    )
    return compare(nodes, parts, str(details["scheduling"] or ""))


def of_name(status: Mapping[str, Any], topology: str) -> Mapping[str, Any]:
    """A topology in nimbus' answer.

    Raises:
        NovaError: where there is none of that name.
    """
    for one in status["topologies"]:
        if one["name"] == topology:
            entry: Mapping[str, Any] = one
            return entry
    known = ", ".join(str(one["name"]) for one in status["topologies"]) or "none"
    raise NovaError(f"topology {topology!r}: nimbus does not know it; there are: {known}")


def await_running(
    nimbus: Nimbus,
    topology: str,
    nodes: Mapping[str, str],
    addresses: Mapping[str, str],
    timeout_s: float = 60.0,
) -> Verification:
    """Wait until all executors of a topology run; how it is placed then.

    Raises:
        NovaError: with the scheduler's reason, or what is not running, when the time is up.
    """
    until = time.monotonic() + timeout_s
    while True:
        rest = until - time.monotonic()
        seen = verify(nimbus.status(rest, running=topology), topology, nodes, addresses)
        if not seen.missing:
            return seen
        if time.monotonic() > until:
            late = seen.missing[0]
            raise NovaError(
                f"topology {topology}: after {timeout_s:g} s {len(seen.missing)} of "
                f"{len(seen.rows)} executors do not run, e.g. {late.operator} ({late.status}); "
                f"the scheduler says: {seen.note or 'nothing'}"
            )
        time.sleep(POLL_S)
