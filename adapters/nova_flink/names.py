"""How nodes are called inside Flink (standard library only: also used in users' environments)."""

from __future__ import annotations

import re

_ODD = re.compile(r"[^A-Za-z0-9-]")
# What names of jobs begin with that Nova starts; others' are never ended unasked.
OWN_JOBS = "nova "
_WRITTEN = re.compile(r"_([0-9a-f]+)_")


def sanitised(node: str) -> str:
    """A node's name in letters, digits, ``-`` and ``_``; different names stay different.

    Any other character, ``_`` included, becomes ``_`` + its code point in hex + ``_``.
    """
    return _ODD.sub(lambda found: f"_{ord(found[0]):x}_", node)


def original(name: str) -> str:
    """The node's name that `sanitised` wrote so."""
    return _WRITTEN.sub(lambda found: chr(int(found[1], 16)), name)


def resource(node: str) -> str:
    """The external resource that only this node's TaskManager offers."""
    return f"node-{sanitised(node)}"


def group(node: str) -> str:
    """The slot-sharing group of everything that runs on this node."""
    return f"at-{sanitised(node)}"


def task_manager(node: str) -> str:
    """The resource id of this node's TaskManager, as REST reports it."""
    return f"tm-{sanitised(node)}"


def is_own_job(name: str) -> bool:
    """Whether a job of that name is Nova's."""
    return name == OWN_JOBS.strip() or name.startswith(OWN_JOBS)


def node_of_task_manager(identifier: str) -> str | None:
    """The node of a TaskManager's resource id, None for one that is not named after a node."""
    if not identifier.startswith("tm-"):
        return None
    try:
        node = original(identifier.removeprefix("tm-"))
    except (ValueError, OverflowError):
        return None
    return node if task_manager(node) == identifier else None
