"""Jobs that people submit themselves, pinned by Nova's plug-in (standard library only).

The plug-in writes an operator's id in the plan and its node into the operator's description, which
Flink's REST interface shows. So a job is verified by its descriptions, whoever started it and the
cluster.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nova_engines.names import original
from nova_engines.verification import Verification, compare
from nova_flink import names
from nova_flink.rest import ENDED, FlinkError, Rest

# `nova.flink.plugin.Placing.describe` writes it; a name may hold brackets.
MARK = re.compile(
    r"(?:\[nova metrics=(?P<metrics>.*?)\] )?\[nova id=(?P<id>\S+?)(?: at=(?P<at>[^\]\s]+))?\]"
)
RESOURCE = "node-"


@dataclass(frozen=True)
class Part:
    """A vertex of a job: operators that Flink chains and runs as one.

    Attributes:
        vertex: Flink's id.
        title: Flink's name.
        steps: node of each of the plan's operators in it, by id; None where unpinned.
        inputs: vertices it receives from.
        metrics: of each of its own operators, the plan's operator and what metrics call it.
    """

    vertex: str
    title: str
    steps: Mapping[str, str | None]
    inputs: tuple[str, ...]
    metrics: tuple[tuple[str, str], ...]


def find(rest: Rest, job: str) -> str:
    """The id of a job that is named by its id or its name.

    Raises:
        FlinkError: for no such job, or several running ones of that name.
    """
    known = rest.jobs()
    if job in known:
        return job
    called = [one for one, row in known.items() if row["name"] == job]
    running = [one for one in called if known[one]["state"] not in ENDED]
    if len(running or called) != 1:
        what = "several jobs are called so" if called else "there is no job of that id or name"
        raise FlinkError(f"{rest.url}: {job}: {what}")
    return (running or called)[0]


def parts(rest: Rest, job_id: str) -> list[Part]:
    """The parts of a job.

    Raises:
        FlinkError: for an unknown job, or one that did not pass the plug-in.
    """
    details = rest.job(job_id)
    titles = {str(one["id"]): str(one["name"]) for one in details["vertices"]}
    job_parts = []
    for node in details["plan"]["nodes"]:
        # Descriptions are HTML.
        marks = list(MARK.finditer(html.unescape(str(node.get("description", "")))))
        steps = {mark["id"]: original(mark["at"]) if mark["at"] else None for mark in marks}
        inputs = tuple(str(one["id"]) for one in node.get("inputs", ()))
        metrics = tuple((mark["id"], mark["metrics"] or "") for mark in marks)
        job_parts.append(Part(str(node["id"]), titles[str(node["id"])], steps, inputs, metrics))
    if not any(part.steps for part in job_parts):
        raise FlinkError(
            f"{rest.url}: job {job_id} has no marks of a plan: it was not submitted "
            "with execution.target: nova"
        )
    return job_parts


def verify(rest: Rest, job_id: str) -> Verification:
    """Compare where a job's subtasks are with where the plug-in has pinned them.

    Raises:
        FlinkError: for an unknown job, one that is not pinned, or when nothing answers.
    """
    # Asked first: these become parts, and must not be missed in between.
    waiting = int(rest.job(job_id).get("pending-operators", 0))
    held = parts(rest, job_id)
    nodes = {step: node for part in held for step, node in part.steps.items() if node is not None}
    if not nodes:
        raise FlinkError(f"{rest.url}: job {job_id} runs unpinned: there is nothing to verify")
    at = nodes_of(rest.task_managers())
    placements = []
    for part in held:
        pinned = [step for step, node in part.steps.items() if node is not None]
        for subtask in rest.subtasks(job_id, part.vertex):
            manager = str(subtask.get("taskmanager-id") or "")
            place = None if manager in ("", "(unassigned)") else at.get(manager, manager)
            placements += [(name, place, str(subtask["status"])) for name in pinned or [part.title]]
    if waiting > 0:
        placements.append((f"{waiting} more, which wait for others to end", None, "CREATED"))
    return compare(nodes, placements, state=rest.state(job_id))


def nodes_of(managers: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The node of each TaskManager, by the external resource it offers."""
    nodes = {}
    for manager, details in managers.items():
        offered = [
            one.removeprefix(RESOURCE)
            for one in details.get("totalResource", {}).get("extendedResources", {})
            if one.startswith(RESOURCE)
        ]
        node = original(offered[0]) if len(offered) == 1 else names.node_of_task_manager(manager)
        nodes[manager] = node or manager
    return nodes
