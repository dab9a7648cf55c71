"""The three settings that make a TaskManager of anybody's cluster a node of a plan, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nova_core.errors import NovaError
from nova_engines.names import sanitised
from nova_flink import names
from nova_flink.configuration import SLOTS

if TYPE_CHECKING:
    from nova_core.model.problem import Problem

README = """\
# Nodes of {problem} for a Flink cluster of your own

Each file here belongs to the TaskManager of one node. Either add its lines to `conf/config.yaml`
there, beside what is in it:

    cat NODE.yaml >> $FLINK_HOME/conf/config.yaml

(where `external-resources` is set already, put the name into that list), or give them when it
starts, with one configuration for all:

    $FLINK_HOME/bin/taskmanager.sh start $(cat NODE.options)

That is all that TaskManagers need. `taskmanager.resource-id` is how Flink's web interface calls
them; two TaskManagers on one node each need one of their own, and may share the resource.
{units} units are how many slots of jobs may be on a node at once.

| node | file |
|---|---|
{rows}

The client that submits jobs needs `nova-flink.jar` in its `lib/`: `nova engines path flink` says
where it is, and Nova's page on Flink what to set.
"""


def settings(node: str) -> dict[str, str | int]:
    """What a node's TaskManager is told, beside what it is told already."""
    resource = names.resource(node)
    return {
        "taskmanager.resource-id": names.task_manager(node),
        "external-resources": resource,
        f"external-resource.{resource}.amount": SLOTS,
    }


def write(problem: Problem, directory: Path) -> list[str]:
    """Write a file for every node of a problem into a directory that is there.

    Returns:
        Names of the files.

    Raises:
        NovaError: for a problem without nodes.
    """
    nodes = [str(one) for one in problem.nodes.ids]
    if not nodes:
        raise NovaError(f"problem {problem.name}: has no nodes")
    written = []
    for node in nodes:
        told = settings(node)
        lines = "".join(f"{key}: {value}\n" for key, value in told.items())
        options = " ".join(f"-D{key}={value}" for key, value in told.items())
        for end, text in (("yaml", lines), ("options", f"{options}\n")):
            name = f"{sanitised(node)}.{end}"
            (directory / name).write_text(text, "utf-8")
            written.append(name)
    (directory / "README.md").write_text(_readme(problem.name, nodes), "utf-8")
    return [*written, "README.md"]


def _readme(problem: str, nodes: Sequence[str]) -> str:
    rows = "\n".join(f"| {node} | `{sanitised(node)}.yaml` |" for node in nodes)
    return README.format(problem=problem, units=SLOTS, rows=rows)
