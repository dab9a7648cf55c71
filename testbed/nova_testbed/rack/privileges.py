"""Rights of root: orders of a user without them are executed by a second process under sudo.

That process gets its orders as a pickle on stdin, from a user who may become root anyway, and
answers on stdout with a sequence of pickles: progress, warnings, then a result or an error.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import nova_testbed
from nova_testbed.rack.state import RackError, RackWarning, nova_home

T = TypeVar("T")
# The current step, how much of it is finished, and its total.
Progress = Callable[[str, int, int], None]


def is_root() -> bool:
    """Whether this process has root's rights."""
    return os.geteuid() == 0


def sudo_works() -> bool:
    """Whether sudo gives root's rights without asking."""
    if shutil.which("sudo") is None:
        return False
    result = subprocess.run(["sudo", "-n", "true"], capture_output=True, stdin=subprocess.DEVNULL)
    return result.returncode == 0


def as_root(
    order: str, arguments: Mapping[str, object], kind: type[T], progress: Progress | None = None
) -> T:
    """Execute an order with root's rights.

    Args:
        order: its name, see `agent.ORDERS`.
        arguments: of it.
        kind: type of its result.
        progress: see `Progress`.

    Raises:
        RackError: where sudo does not give the rights, or when the order fails.
    """
    if not sudo_works():
        raise RackError(
            "a virtual rack needs root: run as root, or let sudo do it without a password "
            "(`sudo -v` first, or a NOPASSWD rule)"
        )
    # Paths of packages and engines, which sudo does not pass on. Not the current directory, unless
    # Nova is there: others may have written to it what root would run.
    own, here = Path(nova_testbed.__file__).resolve().parent.parent, Path.cwd()
    entries = [Path(entry).resolve() for entry in sys.path if entry]
    path = os.pathsep.join(str(entry) for entry in entries if entry == own or entry != here)
    command = ["sudo", "-n", "env", f"PYTHONPATH={path}", f"NOVA_HOME={nova_home().absolute()}"]
    command += [sys.executable, "-P", "-m", "nova_testbed.rack.agent"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((order, dict(arguments)), process.stdin)
            process.stdin.close()
            while True:
                what, value = pickle.load(process.stdout)
                if what == "result":
                    assert isinstance(value, kind)
                    return value
                if what == "error":
                    raise RackError(value)
                if what == "warning":
                    warnings.warn(value, RackWarning, stacklevel=3)
                elif what == "progress" and progress is not None:
                    progress(*value)
        except (EOFError, BrokenPipeError):
            raise RackError(f"sudo: {order} ended without an answer") from None
        except KeyboardInterrupt:
            # The other side gets the same signal from the terminal, and cleans up.
            process.wait()
            raise
