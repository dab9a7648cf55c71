"""Hands a running job over to a new plan's job at a window boundary, every result exactly once.

The new job is deployed beside the old one. Its sources begin a little before the boundary, the old
one's end there, and of each job only the results of its own windows count. A file holds the state
of the hand-over: if the controller is killed, another one can finish it or take it back.

All times of ledgers and orders are event times. A window that lies across a boundary is the new
job's, whose sources begin so much earlier.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from nova_core.errors import NovaError
from nova_engines.documents import from_json, write_json
from nova_engines.source_orders import ControlledJob, Files, Order, complete_ms, tell
from nova_engines.sources import Clock

if TYPE_CHECKING:
    from nova_engines.results import ResultRecords

# New sources begin this long before the boundary: connections and classes are warm by then.
OVERLAP_MS = 2000
# Until they begin, and from there on until the old sources must have answered.
AHEAD_MS = 1000
ATTEMPTS = 4
ENDED_S = 60.0


TIME_OF_DAY = Clock()
# States of a job; there are no others.
RUNNING, FINISHED, FAILED = "running", "finished", "failed"


class Jobs(Protocol):
    """The jobs of an engine, as far as hand-overs need them."""

    @property
    def ends_failed_jobs(self) -> bool:
        """Whether it ends a job that lost a worker; otherwise it restarts the worker's part.

        A restarted part does nothing, so such a job counts as running for ever.
        """
        ...

    @property
    def behind_ms(self) -> int:
        """A job that is further behind is ended at a hand-over; about as long as ending one takes.

        It would have to work off what it has not done yet, on hosts that are too slow.
        """
        ...

    def state(self, job: ControlledJob) -> str:
        """`RUNNING`; `FINISHED` once it has ended by itself; `FAILED` if it has ended otherwise.

        Raises:
            NovaError: where the engine does not answer.
        """
        ...

    def cancel(self, job: ControlledJob) -> None:
        """End it at once unless it has ended; no process of it is left, and it writes no results.

        Some engines keep the processes of a finished job.

        Raises:
            NovaError: where the engine does not answer, or refuses.
        """
        ...

    def wait_ended(self, job: ControlledJob, timeout_s: float) -> str:
        """Wait until it has ended; its state then.

        An engine that ends no failed jobs ends a job that has not ended in time.

        Raises:
            NovaError: where it has not ended in time.
        """
        ...


class HandoverError(NovaError):
    """A hand-over that was taken back, or cannot be done."""


@dataclass(frozen=True)
class Share:
    """The windows of a job that count.

    Attributes:
        job: whose results they are.
        from_ms: results count whose `time_ms` (begin of a pair's window, event time of a row) is
            not before it, and before the next share's.
        begin_ms: when its sources began, as ordered.
    """

    job: ControlledJob
    from_ms: int
    begin_ms: int


@dataclass(frozen=True)
class Handing:
    """A hand-over that is not finished.

    Attributes:
        share: of the new job.
        committed: whether it can only be finished; otherwise it can only be taken back.
    """

    share: Share
    committed: bool


@dataclass(frozen=True)
class Ledger:
    """Which job delivers the results of each window.

    Attributes:
        boundary_ms: jobs are handed over at its multiples, where all windows begin
            (`nova_engines.flow.Flow.boundary_ms`).
        history_ms: sources begin so long before the results that count
            (`nova_engines.flow.Flow.history_ms`).
        shares: by time; the last one's job runs.
        handing: the hand-over in progress.
        end_ms: when the last one's sources end, once that is final; ms since the epoch.
    """

    boundary_ms: int
    shares: tuple[Share, ...]
    history_ms: int = 0
    handing: Handing | None = None
    end_ms: int | None = None

    @property
    def jobs(self) -> set[str]:
        """Ids of all its jobs, also of the one that is handed over to."""
        handing = () if self.handing is None else (self.handing.share,)
        return {share.job.job for share in (*self.shares, *handing)}

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """From its file.

        Raises:
            NovaError: where the file is missing or no ledger.
        """
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise HandoverError(f"{path}: cannot be read: {error}") from error
        ledger = from_json(text, cls, str(path))
        if not ledger.shares or ledger.boundary_ms < 1:
            raise HandoverError(f"{path}: expected a job and how often windows begin")
        return ledger

    def write(self, path: Path) -> None:
        """Replace its file.

        Raises:
            NovaError: where it cannot be written; the old one remains then.
        """
        try:
            write_json(path, self)
        except OSError as error:
            raise HandoverError(f"{path}: cannot be written: {error.strerror}") from error

    def own(self, records: Sequence[ResultRecords]) -> list[ResultRecords]:
        """The results that count, of each share; all others are dropped.

        Args:
            records: what each share's job delivered, in the order of shares.
        """
        ends = [*(share.from_ms for share in self.shares[1:]), None]
        return [
            delivered.between(share.from_ms, end)
            for share, end, delivered in zip(self.shares, ends, records, strict=True)
        ]


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Lock a ledger's file; released after the block, and when the process ends.

    Raises:
        HandoverError: where another process has it.
    """
    with path.with_name(path.name + ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HandoverError(f"{path}: another controller uses it") from None
        yield


class Handover:
    """Hand-overs of one job after the other; used under `only_one`.

    Args:
        jobs: of the cluster.
        files: of its hosts.
        path: of the ledger.
        clock: event times by the time of day.

    Attributes:
        told_s: how long the old job's sources took, in the last hand-over, to be told the boundary
            and to agree to it; s.
    """

    def __init__(self, jobs: Jobs, files: Files, path: Path, clock: Clock = TIME_OF_DAY) -> None:
        self.jobs, self.files, self.path = jobs, files, path
        self.clock = clock
        self.told_s = 0.0

    def first(
        self, job: ControlledJob, boundary_ms: int, begin_ms: int, history_ms: int = 0
    ) -> None:
        """Begin the sources of the first job, which runs; see `Ledger`.

        Raises:
            NovaError: for a time inside a window, a ledger that exists, or sources that do not
                answer.
        """
        if begin_ms % boundary_ms:
            raise HandoverError(f"begin {begin_ms}: expected a multiple of {boundary_ms} ms")
        if self.path.exists():
            raise HandoverError(f"{self.path}: is there already, and says which results count")
        Ledger(boundary_ms, (Share(job, begin_ms, begin_ms),), history_ms).write(self.path)
        tell(self.files, job, Order(begin_ms))

    def plan(self, new: ControlledJob) -> int:
        """Hand over to a new job, which runs completely and whose sources wait for an order.

        A job that is further behind than `Jobs.behind_ms` is ended at once: the new one, which has
        another plan, begins with the first window that is not complete.

        Returns:
            The boundary, ms since the epoch.

        Raises:
            NovaError: with the reason; the ledger says whether it was taken back or has to be
                settled. A job that was ended meanwhile has failed, see `after_failure`.
        """
        ledger = self._quiet()
        step, old = ledger.boundary_ms, ledger.shares[-1]
        behind_ms = self._now() - self._complete(ledger)
        if behind_ms > self.clock.event_span_ms(self.jobs.behind_ms):
            self.told_s = 0.0
            self.jobs.cancel(old.job)
            return self.after_failure(new)
        early = self.clock.event_span_ms(OVERLAP_MS) + ledger.history_ms
        least = self._now(AHEAD_MS) + early
        from_ms = max(next_multiple(least, step), old.from_ms + step)
        begin = from_ms - early
        share = Share(new, from_ms, begin)
        replace(ledger, handing=Handing(share, committed=False)).write(self.path)
        try:
            tell(self.files, new, Order(begin))
            asked = time.monotonic()
            share = self._agreed(ledger, share)
            self.told_s = time.monotonic() - asked
        except BaseException:
            self.settle()
            raise
        replace(ledger, handing=Handing(share, committed=True)).write(self.path)
        self.settle()
        return Ledger.read(self.path).shares[-1].from_ms

    def _agreed(self, ledger: Ledger, share: Share, *, keep: bool = True) -> Share:
        """The share with the first boundary that no old source has passed; ``keep`` writes it."""
        old = ledger.shares[-1]
        for _ in range(ATTEMPTS):
            late = tell(self.files, old.job, Order(old.begin_ms, share.from_ms))
            if late is None:
                return share
            later = max(late, self._now()) + self.clock.event_span_ms(OVERLAP_MS)
            later = next_multiple(later, ledger.boundary_ms)
            share = replace(share, from_ms=later)
            if keep:
                replace(ledger, handing=Handing(share, committed=False)).write(self.path)
        raise HandoverError(f"job {old.job.job}: {ATTEMPTS} boundaries had passed when it was told")

    def after_failure(self, new: ControlledJob) -> int:
        """Take over from a job that has failed, or ended too early otherwise.

        Args:
            new: runs completely; its sources wait for an order.

        Returns:
            The begin of the first window that is the new job's, ms since the epoch.

        Raises:
            NovaError: where the old job still runs, or the new one's sources do not answer.
        """
        ledger = self._quiet()
        old = ledger.shares[-1]
        state = self.jobs.state(old.job)
        if state != FAILED:
            raise HandoverError(f"job {old.job.job}: is {state}, has not failed")
        begin = self._first_incomplete(ledger)
        share = Share(new, begin, begin - ledger.history_ms)
        replace(ledger, handing=Handing(share, committed=True)).write(self.path)
        self.settle()
        return begin

    def incomplete(self) -> int:
        """Begin of the first window whose results are not complete, ms since the epoch.

        Once the running job has ended, `after_failure` begins there. Before, it is too early.

        Raises:
            NovaError: where the sinks' hosts do not answer.
        """
        return self._first_incomplete(Ledger.read(self.path))

    def _first_incomplete(self, ledger: Ledger) -> int:
        step = ledger.boundary_ms
        return max(ledger.shares[-1].from_ms, self._complete(ledger) // step * step)

    def _complete(self, ledger: Ledger) -> int:
        """Event time before which all results of the last job are at its sinks."""
        last = ledger.shares[-1]
        return complete_ms(self.files, last.job, last.from_ms)

    def _now(self, ahead_ms: int = 0) -> int:
        """Event time in so many ms."""
        return self.clock.event_ms(now_ms() + ahead_ms)

    def end(self) -> int:
        """End the running job at a window boundary, with complete results.

        An end that a killed controller had made final stays. So does one that its sources have come
        to by themselves.

        Returns:
            The boundary, ms since the epoch.

        Raises:
            NovaError: where its sources do not answer, or the job fails before.
        """
        ledger = self._quiet()
        old, end = ledger.shares[-1], ledger.end_ms
        if end is None and self.jobs.state(old.job) == FINISHED:
            end = next_multiple(self._now(), ledger.boundary_ms)
            replace(ledger, end_ms=end).write(self.path)
        if end is None:
            end = self._now() + self.clock.event_span_ms(OVERLAP_MS)
            end = max(next_multiple(end, ledger.boundary_ms), old.from_ms + ledger.boundary_ms)
            end = self._agreed(ledger, Share(old.job, end, old.begin_ms), keep=False).from_ms
            replace(ledger, end_ms=end).write(self.path)
        if self.jobs.state(old.job) == RUNNING:
            self.tell_end(old, end)
        state = self.jobs.wait_ended(old.job, ENDED_S)
        if state != FINISHED:
            replace(ledger, end_ms=None).write(self.path)
            raise HandoverError(f"job {old.job.job}: {state} before its end")
        self.jobs.cancel(old.job)
        return end

    def settle(self) -> bool:
        """Finish or take back the hand-over in progress; whether there was one.

        Raises:
            NovaError: with the reason where it cannot; another call may succeed.
        """
        ledger = Ledger.read(self.path)
        if ledger.handing is None:
            return False
        old, new = ledger.shares[-1], ledger.handing.share
        if not ledger.handing.committed:
            lives = self.tell_again(old)
            self._drop(ledger, new)
            if not lives:
                raise HandoverError(f"job {old.job.job}: a source of it is lost; it was ended")
            return True
        lives = self.tell_again(new)
        state = self.jobs.state(old.job)
        if state == RUNNING:
            # The old sources have agreed, and wait at the boundary.
            self.tell_end(old, new.from_ms)
            state = self.jobs.wait_ended(old.job, ENDED_S)
        # Otherwise nothing waits for its slots: the new job has its own.
        if state != FINISHED:
            new = replace(new, from_ms=min(self._first_incomplete(ledger), new.from_ms))
            if new.from_ms < new.begin_ms + ledger.history_ms:
                self._drop(ledger, new)
                raise HandoverError(
                    f"job {old.job.job}: {state} before its windows were complete; "
                    "its sources have to begin anew"
                )
        else:
            self.jobs.cancel(old.job)
        replace(ledger, shares=(*ledger.shares, new), handing=None).write(self.path)
        if not lives:
            raise HandoverError(f"job {new.job.job}: a source of it is lost; it was ended")
        return True

    def tell_again(self, share: Share) -> bool:
        """Let a running job's sources begin or continue; false where the job was ended instead.

        With an engine that ends no failed jobs, a job that does not answer may have lost a source
        for good. It is ended, and counts as failed.

        Raises:
            NovaError: where its sources do not answer.
        """
        if self.jobs.state(share.job) == RUNNING:
            try:
                tell(self.files, share.job, Order(share.begin_ms))
            except NovaError:
                if self.jobs.ends_failed_jobs:
                    raise
                self.jobs.cancel(share.job)
                return False
        return True

    def tell_end(self, old: Share, end_ms: int) -> None:
        """Make final an end that all sources have agreed to.

        Raises:
            NovaError: where sources do not answer and the job goes on.
        """
        try:
            tell(self.files, old.job, Order(old.begin_ms, end_ms, committed=True))
        except NovaError:
            # Sources that reached the end after an earlier committed order have ended.
            if self.jobs.state(old.job) == RUNNING and self._now() < end_ms:
                raise

    def _drop(self, ledger: Ledger, new: Share) -> None:
        self.jobs.cancel(new.job)
        replace(ledger, handing=None).write(self.path)

    def _quiet(self) -> Ledger:
        ledger = Ledger.read(self.path)
        if ledger.handing is not None:
            raise HandoverError(f"{self.path}: a hand-over was begun and has to be settled first")
        return ledger


def next_multiple(time_ms: int, step_ms: int) -> int:
    """The first multiple of a step that is not before a time."""
    return -(-time_ms // step_ms) * step_ms


def now_ms() -> int:
    """The time, ms since the epoch."""
    return time.time_ns() // 1_000_000
