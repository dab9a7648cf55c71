"""How nodes and jobs are called inside engines (standard library only)."""

from __future__ import annotations

import re

# What their names begin with; jobs of others are never ended unasked.
OWN_JOBS = "nova "
_ODD = re.compile(r"[^A-Za-z0-9-]")
_WRITTEN = re.compile(r"_([0-9a-f]+)_")


def is_own_job(name: str) -> bool:
    """Whether a job of that name is Nova's."""
    return name == OWN_JOBS.strip() or name.startswith(OWN_JOBS)


def sanitised(node: str) -> str:
    """A node's name in letters, digits, ``-`` and ``_``; different names stay different.

    Any other character, ``_`` included, becomes ``_`` + its code point in hex + ``_``.
    """
    return _ODD.sub(lambda found: f"_{ord(found[0]):x}_", node)


def original(name: str) -> str:
    """The node's name that `sanitised` wrote so."""
    return _WRITTEN.sub(lambda found: chr(int(found[1], 16)), name)
