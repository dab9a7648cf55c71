"""Tells running sources when to begin and end, through a file on each one's host.

``Orders.java`` is the sources' side of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nova_core.errors import NovaError
from nova_engines.flow import SOURCE, Flow
from nova_engines.sources import Sources

# Sources look every 100 ms; where CPUs are busy, and over SSH, an answer takes longer.
ANSWER_S = 5.0
POLL_S = 0.05
AT_ONCE = 32


class OrderError(NovaError):
    """Sources that do not answer, or do not take an order."""


class Files(Protocol):
    """Small files on the nodes' hosts."""

    def read(self, node: str, path: str) -> str | None:
        """What a file holds; None where it does not exist.

        Raises:
            NovaError: naming the host.
        """
        ...

    def ask(
        self, node: str, path: str, text: str, number: int, timeout_s: float
    ) -> list[str] | None:
        """Write a file, completely or not at all, and wait for an answer to it in ``PATH.answer``.

        Directories are created.

        Args:
            node: the host.
            path: of the file.
            text: its content.
            number: the first word of the answer.
            timeout_s: how long to wait.

        Returns:
            The words of the answer; None where none has come.

        Raises:
            NovaError: naming the host.
        """
        ...


class LocalFiles:
    """Files of this machine, which all nodes share."""

    def write(self, node: str, path: str, text: str) -> None:
        """Write a file, completely or not at all; directories are created."""
        file = Path(path)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_name(file.name + ".part")
            part.write_text(text, "utf-8")
            part.replace(file)
        except OSError as error:
            raise OrderError(f"{node}: {path}: {error.strerror}") from error

    def read(self, node: str, path: str) -> str | None:
        """See `Files.read`."""
        try:
            return Path(path).read_text("utf-8")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OrderError(f"{node}: {path}: {error.strerror}") from error

    def ask(
        self, node: str, path: str, text: str, number: int, timeout_s: float
    ) -> list[str] | None:
        """See `Files.ask`."""
        self.write(node, path, text)
        until = time.monotonic() + timeout_s
        while True:
            words = (self.read(node, f"{path}.answer") or "").split()
            if words[:1] == [str(number)]:
                return words
            if time.monotonic() > until:
                return None
            time.sleep(POLL_S)


@dataclass(frozen=True)
class ControlledJob:
    """A job whose sources take orders, as far as they and its results are concerned.

    Attributes:
        job: its id.
        directory: `Sources.control`.
        sources: index of each, and its node.
        results: node of each sink, and its file of results there.
        queries: whose results these are; none of pairs.
    """

    job: str
    directory: str
    sources: tuple[tuple[int, str], ...]
    results: tuple[tuple[str, str], ...]
    queries: tuple[str, ...] = ()

    @classmethod
    def of(cls, job: str, flow: Flow, sources: Sources, result_file: str) -> ControlledJob:
        """The job that was submitted with these arguments.

        Raises:
            OrderError: for sources without a directory of orders.
        """
        if not sources.control:
            raise OrderError("sources: control is missing: they take no orders")
        files = flow.result_files(result_file)
        return cls(
            job,
            sources.control,
            tuple((sources.index(one.source), one.node) for one in flow.of_kind(SOURCE)),
            tuple((one.node, files[one.name]) for one in flow.sinks),
            tuple(one.query for one in flow.sinks if one.query),
        )


@dataclass(frozen=True)
class Order:
    """An order to all sources of a job; times are event times, ms since the epoch.

    Attributes:
        begin_ms: of their first tuples.
        end_ms: all their tuples are before that; None is without end.
        committed: whether that end is final; until then, a source that reaches it waits there.
    """

    begin_ms: int
    end_ms: int | None = None
    committed: bool = False


def tell(files: Files, job: ControlledJob, order: Order, timeout_s: float = ANSWER_S) -> int | None:
    """Give an order to all sources of a job, and wait for their answers.

    Args:
        files: of the sources' hosts.
        job: that runs.
        order: replaces the previous one.
        timeout_s: until all must have answered.

    Returns:
        None where all have taken it. Otherwise the latest event time, ms, of tuples that some
        sources had already emitted after the end; these sources go on as before.

    Raises:
        OrderError: naming sources that do not answer.
    """
    # Larger than the number of any earlier order, so that answers to those do not match.
    number = time.time_ns()
    lines = [f"order={number}", f"begin={order.begin_ms}"]
    if order.end_ms is not None:
        lines.append(f"end={order.end_ms}")
    if order.committed:
        lines.append("committed=true")
    text = "".join(f"{line}\n" for line in lines)

    def ask(one: tuple[int, str]) -> list[str] | None:
        return files.ask(one[1], _path(job, one[0]), text, number, timeout_s)

    # Hosts are far away: all get the order at the same time.
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(ask, job.sources))
    silent = [node for (_, node), words in zip(job.sources, answers, strict=True) if words is None]
    if silent:
        raise OrderError(
            f"job {job.job}: no answer from {len(silent)} of its sources, on "
            f"{', '.join(sorted(set(silent)))}, for {timeout_s:g} s"
        )
    return max((int(words[2]) for words in answers if words and words[1] == "late"), default=None)


def _path(job: ControlledJob, source: int) -> str:
    return f"{job.directory}/{job.job}/{source}"


def complete_ms(files: Files, job: ControlledJob, least_ms: int) -> int:
    """The event time before which all results are at the sinks, ms since the epoch.

    Args:
        files: of the sinks' hosts.
        job: must have ended; otherwise the answer may be too early.
        least_ms: the answer where nothing is complete.
    """
    marks = [_mark(files.read, node, f"{path}.complete") for node, path in job.results]
    if any(mark is None for mark in marks):
        return least_ms
    return max(least_ms, 1 + min(mark for mark in marks if mark is not None))


def _mark(read: Callable[[str, str], str | None], node: str, path: str) -> int | None:
    text = read(node, path)
    return None if text is None else int(text)
