"""Names of nodes and jobs inside engines (standard library only)."""

from __future__ import annotations

import re

# Prefix of the names of Nova's jobs; other jobs are never ended without a request.
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
    return _ODD.sub(lambda match: f"_{ord(match[0]):x}_", node)


def original(name: str) -> str:
    """The node's name that `sanitised` has written as this one."""
    return _WRITTEN.sub(lambda match: chr(int(match[1], 16)), name)
