"""How nodes are called inside Flink (standard library only: also used in users' environments)."""

from __future__ import annotations

import re

_ODD = re.compile(r"[^A-Za-z0-9-]")


def sanitised(node: str) -> str:
    """A node's name in letters, digits, ``-`` and ``_``; different names stay different.

    Any other character, ``_`` included, becomes ``_`` + its code point in hex + ``_``.
    """
    return _ODD.sub(lambda found: f"_{ord(found[0]):x}_", node)


def resource(node: str) -> str:
    """The external resource that only this node's TaskManager offers."""
    return f"node-{sanitised(node)}"


def task_manager(node: str) -> str:
    """The resource id of this node's TaskManager, as REST reports it."""
    return f"tm-{sanitised(node)}"


__all__ = [
    "group",
    "node_of_task_manager",
    "original",
    "resource",
    "sanitised",
    "task_manager",
]
