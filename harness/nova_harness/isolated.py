"""Work in a process of its own, so that time or memory running out ends nothing else."""

from __future__ import annotations

import math
import multiprocessing
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nova_core.errors import NovaError

GB = 1e9
# Loaded once, by the process that the others are forked from.
PRELOAD = ["numba", "scipy.optimize", "scipy.spatial", "nova_core.evaluation.metrics"]
# What a worker says before the work whose time is limited, and after it.
BEGIN, END = "begin", "end"


class Limited(Exception):  # noqa: N818 - an outcome, not a mistake
    """The work did not end within its limits; the text says which."""


def isolated(
    work: Callable[[Any, Callable[[str], None]], Any], task: object, limit: float, memory: float
) -> Any:
    """Run ``work(task, tell)`` in a process of its own.

    Args:
        work: a function of a module. It calls ``tell(BEGIN)`` and ``tell(END)`` around what is
            limited in time, or neither.
        task: what it works on; pickled, as its result is.
        limit: seconds between the two.
        memory: GB that the process may take beyond what it has when it begins.

    Returns:
        Its result.

    Raises:
        Limited: when time or memory ran out, or the process ended otherwise.
        NovaError: that the work raised.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(its, work, task, memory), daemon=True)
    process.start()
    its.close()
    try:
        seconds: float | None = None
        begun = math.inf
        while True:
            if not mine.poll(seconds):
                raise Limited(f"over {limit:g} s")
            kind, value, when = mine.recv()
            if kind == "result":
                return value
            if kind == "refused":
                raise NovaError(value)
            if kind == "memory":
                raise Limited(f"over {memory:g} GB")
            # By the worker's clock as well: this process may have slept longer than the limit.
            if value == END and when - begun > limit:
                raise Limited(f"over {limit:g} s")
            seconds, begun = (limit, when) if value == BEGIN else (None, math.inf)
    except EOFError:
        process.join()
        raise Limited(f"ended by itself, exit code {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        mine.close()


def _run(
    connection: Connection,
    work: Callable[[Any, Callable[[str], None]], Any],
    task: object,
    memory: float,
) -> None:
    def send(kind: str, value: object) -> None:
        connection.send((kind, value, time.monotonic()))

    _limit_memory(memory)
    answer: tuple[str, object]
    try:
        answer = ("result", work(task, lambda stage: send("stage", stage)))
    except NovaError as error:
        answer = ("refused", str(error))
    except MemoryError:
        answer = ("memory", None)
    send(*answer)


def _limit_memory(memory: float) -> None:
    """Let the process take so many GB more; where the system cannot tell, it is not limited."""
    status = Path("/proc/self/statm")
    if sys.platform != "linux" or not status.exists():
        return
    import resource

    pages = int(status.read_text().split()[0])
    most = pages * resource.getpagesize() + int(memory * GB)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


__all__ = ["BEGIN", "END", "Limited", "isolated"]
