"""Work in its own process, so that only this process ends when time or memory runs out."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nova_core.errors import NovaError

GB = 1e9
# Loaded once, by the process that the others are forked from.
PRELOAD = [
    "nova_core.evaluation.metrics",
    "nova_core.strategies.nova",
    "numba",
    "scipy.optimize",
    "scipy.spatial",
]
# Stages that a worker reports before and after the work whose time is limited.
BEGIN, END = "begin", "end"
# Work that sleeps ends as well, after this many times its limit of processor time.
PATIENCE = 10.0


class Limited(Exception):  # noqa: N818 - an outcome, not a mistake
    """The work did not end within its limits; the text says which."""


def isolated(
    work: Callable[[Any, Callable[[str], None]], Any], task: object, limit: float, memory: float
) -> Any:
    """Run ``work(task, tell)`` in its own process.

    Args:
        work: a function of a module. It calls ``tell(BEGIN)`` and ``tell(END)`` around the part
            that is limited in time, or neither.
        task: its input; pickled, as its result is.
        limit: seconds of processor time between the two, which other load on the machine hardly
            affects.
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
    process = context.Process(target=_run, args=(its, work, task, limit, memory), daemon=True)
    process.start()
    its.close()
    try:
        seconds: float | None = None
        while True:
            if not mine.poll(seconds):
                raise Limited(f"over {limit:g} s")
            kind, value = mine.recv()
            if kind == "result":
                return value
            if kind == "refused":
                raise NovaError(value)
            if kind == "memory":
                raise Limited(f"over {memory:g} GB")
            if kind == "time":
                raise Limited(f"over {limit:g} s")
            seconds = limit * PATIENCE if value == BEGIN else None
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGPROF:
            raise Limited(f"over {limit:g} s") from None
        raise Limited(f"ended by itself, exit code {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        mine.close()


def _run(
    connection: Connection,
    work: Callable[[Any, Callable[[str], None]], Any],
    task: object,
    limit: float,
    memory: float,
) -> None:
    begun = 0.0

    def tell(stage: str) -> None:
        nonlocal begun
        if stage == BEGIN:
            connection.send(("stage", stage))
            begun = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, limit)  # its signal ends the process
            return
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        # The timer counts in ticks of the system.
        if time.process_time() - begun > limit:
            raise TimeoutError
        connection.send(("stage", stage))

    _limit_memory(memory)
    answer: tuple[str, object]
    try:
        answer = ("result", work(task, tell))
    except NovaError as error:
        answer = ("refused", str(error))
    except MemoryError:
        answer = ("memory", None)
    except TimeoutError:
        answer = ("time", None)
    connection.send(answer)


def _limit_memory(memory: float) -> None:
    """Let the process take this many GB more; no limit where memory in use cannot be read."""
    status = Path("/proc/self/statm")
    if sys.platform != "linux" or not status.exists():
        return
    import resource

    pages = int(status.read_text().split()[0])
    most = pages * resource.getpagesize() + int(memory * GB)
    allowed = resource.getrlimit(resource.RLIMIT_AS)[1]
    # An existing limit, by `ulimit -v`, cannot be raised.
    if allowed == resource.RLIM_INFINITY or most < allowed:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
