"""Names of nodes inside Flink (standard library only: also used in users' environments)."""

from __future__ import annotations

from nova_engines.names import original, sanitised


def resource(node: str) -> str:
    """The external resource that only this node's TaskManager offers."""
    return f"node-{sanitised(node)}"


def group(node: str) -> str:
    """The slot-sharing group of everything that runs on this node."""
    return f"at-{sanitised(node)}"


def task_manager(node: str) -> str:
    """The resource id of this node's TaskManager, as REST reports it."""
    return f"tm-{sanitised(node)}"


def node_of_task_manager(identifier: str) -> str | None:
    """The node of a TaskManager's resource id, None for one that is not named after a node."""
    if not identifier.startswith("tm-"):
        return None
    try:
        node = original(identifier.removeprefix("tm-"))
    except (ValueError, OverflowError):
        return None
    return node if task_manager(node) == identifier else None
