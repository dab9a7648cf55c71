"""Checks that every operator runs where the plan says, by what the engine itself reports."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from nova_engines.flow import Flow
from nova_engines.verification import FINISHED, RUNNING, Verification, compare
from nova_flink import names
from nova_flink.rest import POLL_S, FlinkError, Rest

# How long a TaskManager may be missing before a deployment is given up: one may be reconnecting.
PATIENCE_S = 3.0
WELL = (RUNNING, FINISHED)
ABSENT = "no TaskManager has registered"
# Network buffers Flink asks for at either end of a connection: 10 of 32 kB.
CONNECTION_MB = 0.3125


def verify(rest: Rest, job_id: str, flow: Flow) -> Verification:
    """Compare where a job's subtasks are with a flow.

    Operators that the engine may put anywhere are in place on any node.

    Raises:
        FlinkError: for an unknown job, or when nothing answers.
    """
    nodes = flow.placement
    parts = []
    job = rest.job(job_id)
    for vertex in job["vertices"]:
        title = str(vertex["name"])
        held = operators_in(title, nodes) or [title]
        for subtask in rest.subtasks(job_id, vertex["id"]):
            place = _place(subtask)
            parts += [(name, place, str(subtask["status"])) for name in held]
            nodes |= {name: place for name in held if place and nodes.get(name) == ""}
    return compare(nodes, parts, state=str(job["state"]))


def operators_in(title: str, known: Iterable[str]) -> list[str]:
    """Which of some operators a vertex holds, by its name.

    Flink joins the names of chained operators, ``Source: a -> (b, c -> Sink: d)``, and puts
    ``: Writer`` and the like after a sink's. A name may itself hold such signs: longer names are
    matched first, and matched text is not matched again.
    """
    held = set()
    for name in sorted(known, key=lambda name: (-len(name), name)):
        place = re.compile(rf"(^|\(|-> |, |: ){re.escape(name)}(?=$|\)| ->|, |:)")
        match = place.search(title)
        if match is not None:
            held.add(name)
            title = f"{title[: match.end(1)]}\0{title[match.end() :]}"
    return [name for name in known if name in held]


def _place(subtask: Mapping[str, Any]) -> str | None:
    identifier = subtask.get("taskmanager-id")
    if not identifier or identifier == "(unassigned)":
        return None
    return names.node_of_task_manager(str(identifier)) or str(identifier)


def await_running(rest: Rest, job_id: str, flow: Flow, timeout_s: float = 60.0) -> None:
    """Wait until every subtask of a job runs (or has finished).

    Flink may report a job that cannot be scheduled as running for minutes, and then fails it
    without saying what was lacking where. The errors raised here name the nodes.

    Raises:
        FlinkError: naming nodes whose TaskManager has not registered, or that lack room; with
            Flink's reason when the job fails for another; or saying what is not running yet.
    """
    started = time.monotonic()
    while True:
        job = rest.job(job_id)
        statuses = {str(vertex["name"]): str(vertex["status"]) for vertex in job["vertices"]}
        state, waited = str(job["state"]), time.monotonic() - started
        if state in ("FAILED", "CANCELED", "RESTARTING"):
            raise FlinkError(_why(rest, job_id, state, flow))
        if state in WELL and all(status in WELL for status in statuses.values()):
            return
        if waited > PATIENCE_S:
            registered = rest.task_managers()
            absent = [n for n in flow.nodes if names.task_manager(n) not in registered]
            if absent:
                raise FlinkError(_cannot(job_id, dict.fromkeys(absent, ABSENT)))
        if waited > timeout_s:
            late = [name for name, status in statuses.items() if status not in WELL]
            without = _without_slot(rest, job_id, flow)
            hint = f"; no slot on {_listed(without)}" if without else ""
            raise FlinkError(
                f"job {job_id}: after {timeout_s:g} s {len(late)} of {len(statuses)} parts are "
                f"not running, e.g. {late[0]} ({statuses[late[0]]}){hint}"
            )
        time.sleep(POLL_S)


def _why(rest: Rest, job_id: str, state: str, flow: Flow) -> str:
    reasons = rest.exceptions(job_id)
    if any("NoResourceAvailable" in reason for reason in reasons):
        return _cannot(job_id, _full(rest, flow))
    return f"job {job_id} is {state}: {'; '.join(reasons[-2:]) or 'Flink gives no reason'}"


def _cannot(job_id: str, without: Mapping[str, str]) -> str:
    where = _listed(without) if without else "a node that Flink does not name"
    return f"job {job_id} cannot be scheduled: no room on {where}"


def _full(rest: Rest, flow: Flow) -> dict[str, str]:
    """Nodes that have no room for their part of a flow, and what they have."""
    managers, shortages = rest.task_managers(), {}
    for node in flow.nodes:
        manager = managers.get(names.task_manager(node))
        if manager is None:
            shortages[node] = ABSENT
            continue
        free = manager["freeResource"]
        units = free.get("extendedResources", {}).get(names.resource(node), 0)
        buffers = _connections(flow, node) * CONNECTION_MB
        if units < 1 or free["taskHeapMemory"] < 1 or free["networkMemory"] < buffers:
            shortages[node] = f"{_free(node, free)}; needs 1 slot and {buffers:.1f} MB of buffers"
    return shortages


def _connections(flow: Flow, node: str) -> int:
    """Ends of connections between nodes that are on this node."""
    at = flow.placement
    ends = [
        {operator.node, at[name]}
        for operator in flow.operators
        for name in (*operator.inputs, *operator.right)
    ]
    return sum(len(pair) > 1 and node in pair for pair in ends)


def _without_slot(rest: Rest, job_id: str, flow: Flow) -> dict[str, str]:
    """Nodes on which a job has no slot, and what is free there."""
    free = {}
    for node in flow.nodes:
        details = rest.get(f"/taskmanagers/{names.task_manager(node)}")
        if all(slot["jobId"] != job_id for slot in details["allocatedSlots"]):
            free[node] = _free(node, details["freeResource"])
    return free


def _free(node: str, free: Mapping[str, Any]) -> str:
    units = free.get("extendedResources", {}).get(names.resource(node), 0)
    return f"free: {units:g} slots, {free['networkMemory']} MB of network buffers"


def _listed(nodes: Mapping[str, str]) -> str:
    return "; ".join(f"node {name} ({what})" for name, what in nodes.items())
