"""The current state of controlled jobs, for the terminal, the page and Prometheus."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from nova_engines.flow import PLACED
from nova_harness.control.arrivals import Arrival

if TYPE_CHECKING:
    from nova_harness.control.controller import Controller
    from nova_harness.control.decision_log import Entry


class HostState(msgspec.Struct, frozen=True):
    """A host.

    Attributes:
        name: also of its node.
        role: ``source``, ``sink`` or ``worker``.
        position: first two coordinates in the cost space, ms.
        cores: it may use.
        taken: cores that others than the engine use; None where unknown.
        counts: share of its own capacity that counts, 0 to 1; 0 for a lost host.
        joins: instances on it, of joins and aggregates.
        state: ``up``, ``silent`` or ``lost``.
    """

    name: str
    role: str
    position: tuple[float, float]
    cores: float
    taken: float | None
    counts: float
    joins: int
    state: str


class LogLine(msgspec.Struct, frozen=True):
    """A line of the log: s since the epoch, kind and text."""

    at: float
    kind: str
    text: str


class ControlState(msgspec.Struct, frozen=True):
    """The state of controlled jobs.

    Attributes:
        at: s since the epoch.
        jobs: that run.
        hosts: in the order of the inventory.
        flows: pairs of hosts between which tuples travel.
        arrivals: results over time, oldest first.
        log: the newest lines, oldest first.
        kinds: lines of the log since the controller began, by kind.
    """

    at: float
    jobs: list[str]
    hosts: list[HostState]
    flows: list[tuple[str, str]]
    arrivals: list[Arrival]
    log: list[LogLine]
    kinds: dict[str, int]


def state_of(controller: Controller, log: list[Entry], kinds: Counter[str]) -> ControlState:
    """What a controller knows now.

    Args:
        controller: after its `begin`.
        log: lines to show.
        kinds: how many there were of each kind.
    """
    running = [group.running for group in controller.groups]
    operators = [one for job in running for one in job.target.flow.operators]
    node = {one.name: one.node for one in operators}
    joins = Counter(one.node for one in operators if one.kind in PLACED)
    flows = {
        (node[other], one.node)
        for one in operators
        for other in (*one.inputs, *one.right)
        if node[other] != one.node
    }
    now, counted = time.monotonic(), controller.decider.counted()
    hosts = []
    for name, view in controller.views().items():
        silent = view.silent(now)
        hosts.append(
            HostState(
                name,
                controller.hosts[name].spec.role,
                controller.positions.get(name, (0.0, 0.0)),
                view.cores,
                None if silent else view.taken,
                counted.get(name, 0.0),
                joins[name],
                "silent" if silent else "lost" if view.alive is False else "up",
            )
        )
    lines = [LogLine(one.at, one.kind, one.text) for one in log]
    jobs = [one.job.job for one in running]
    return ControlState(
        time.time(), jobs, hosts, sorted(flows), controller.arrivals(), lines, kinds
    )
