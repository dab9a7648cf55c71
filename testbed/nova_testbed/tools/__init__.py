"""Programs that run on the hosts: each a file of its own that needs nothing but Python 3.8."""

from __future__ import annotations

import shlex
from importlib.resources import files


def command(tool: str, *arguments: str) -> str:
    """A shell command that runs a tool on a host, its source included.

    Args:
        tool: name of a module of this package.
        arguments: for it.
    """
    source = (files(__name__) / f"{tool}.py").read_text()
    return shlex.join(["python3", "-I", "-S", "-c", source, *arguments])
