"""How nodes are called inside Spark."""

from __future__ import annotations

import re

_ODD = re.compile(r"[^A-Za-z0-9]")
_WRITTEN = re.compile(r"_([0-9a-f]+)_")
_PREFIX = "node_"


def sanitised(node: str) -> str:
    """A node's name in letters, digits and ``_``; different names stay different.

    Any other character, ``_`` included, becomes ``_`` + its code point in hex + ``_``.
    """
    return _ODD.sub(lambda found: f"_{ord(found[0]):x}_", node)


def resource(node: str) -> str:
    """The resource that only this node's Worker offers."""
    return f"{_PREFIX}{sanitised(node)}"


def node_of_resource(name: str) -> str | None:
    """The node of a resource, None for one that is not named after a node."""
    if not name.startswith(_PREFIX):
        return None
    try:
        node = _WRITTEN.sub(lambda found: chr(int(found[1], 16)), name.removeprefix(_PREFIX))
    except (ValueError, OverflowError):
        return None
    return node if resource(node) == name else None
