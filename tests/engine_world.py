"""An engine, its sources and hosts as a model in virtual time: for faults at every step.

What sources make of their orders is as in ``Orders.java`` and ``PacedSource.java``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nova_core.errors import NovaError
from nova_engines import handover, source_orders
from nova_engines.handover import FAILED, FINISHED, RUNNING, Ledger
from nova_engines.source_orders import ControlledJob, LocalFiles
from nova_engines.sources import Clock

WINDOW_MS = 100
TICK_MS = 50
EPOCH_MS = 1_700_000_000_000
SOURCES = ((0, "left"), (1, "right"))


class Killed(BaseException):
    """The controller's process has ended."""


@dataclass
class Source:
    """A source that takes orders.

    Attributes:
        begin: event time of its first tuple; None before it is told.
        reached: all its tuples before that have been emitted.
        end: they are before that.
        committed: whether that is final.
        ended: whether it has come to its end.
        last: the order it has taken.
        deaf_until: it does not look before that event time.
        ahead_ms: by how much its clock is, in event time.
    """

    begin: int | None = None
    reached: int = 0
    end: int | None = None
    committed: bool = False
    ended: bool = False
    last: str = ""
    deaf_until: int = 0
    ahead_ms: int = 0

    def step(self, now: int, order: str | None) -> str | None:
        """Look at its orders, emit what is due; an answer."""
        answer = None
        if order is not None and order != self.last and now >= self.deaf_until:
            answer = self._take(order)
        if self.begin is not None and not self.ended:
            until = now + self.ahead_ms
            self.reached = max(self.reached, until if self.end is None else min(until, self.end))
            self.ended = self.committed and self.end is not None and until >= self.end
        return answer

    def _take(self, order: str) -> str:
        self.last = order
        told = dict(line.split("=") for line in order.splitlines())
        end = int(told["end"]) if "end" in told else None
        if end is not None and self.begin is not None and end < self.reached:
            return f"{told['order']} late {self.reached}"
        if self.begin is None:
            self.begin = self.reached = int(told["begin"])
        self.end, self.committed = end, told.get("committed") == "true"
        return f"{told['order']} ok"


@dataclass
class Job:
    """What an engine knows of a job: its sources by number, and how it stands.

    One that is ``BROKEN`` has lost a part, and does nothing; an engine that ends no failed jobs
    says that it runs.

    Attributes:
        sources: by number.
        state: as the engine calls it.
        behind_ms: how long results take, in event time.
    """

    sources: dict[int, Source]
    state: str = "RUNNING"
    behind_ms: int = 0

    @property
    def complete(self) -> int:
        """All results of windows up to it are at the sink."""
        return min(one.reached for one in self.sources.values()) - self.behind_ms


@dataclass
class World:
    """Hosts' files and an engine's jobs, in virtual time; every use of them is a step.

    Attributes:
        now: ms since the epoch.
        clock: event times of the sources by it.
        history_ms: see `nova_engines.handover.Ledger`.
        steps: uses so far.
        fatal: the step in which the controller is killed; None for never.
        ends_failed_jobs, behind_ms: see `nova_engines.handover.Jobs`.
    """

    now: int = EPOCH_MS
    clock: Clock = handover.TIME_OF_DAY
    history_ms: int = 0
    steps: int = 0
    fatal: int | None = None
    ends_failed_jobs: bool = True
    behind_ms: int = 4000
    jobs_: dict[str, Job] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    at: dict[int, Callable[[], None]] = field(default_factory=dict)

    def deploy(self, name: str, **of_source: Any) -> ControlledJob:
        self.jobs_[name] = Job({number: Source(**of_source) for number, _ in SOURCES})
        return ControlledJob(name, "/orders", SOURCES, (("hub", f"/results/{name}"),))

    def pass_time(self, ms: int) -> None:
        for _ in range(ms // TICK_MS):
            self.now += TICK_MS
            for name, job in self.jobs_.items():
                if job.state != "RUNNING":
                    continue
                for number, source in job.sources.items():
                    path = f"/orders/{name}/{number}"
                    answer = source.step(self.clock.event_ms(self.now), self.files.get(path))
                    if answer is not None:
                        self.files[f"{path}.answer"] = answer
                self.files[f"/results/{name}.complete"] = str(job.complete - 1)
                if all(one.ended for one in job.sources.values()):
                    job.state = "FINISHED"

    def step(self) -> None:
        if self.fatal is not None and self.steps >= self.fatal:
            # From then on, nothing that it tries has any effect.
            raise Killed
        self.steps += 1
        self.at.pop(self.steps, lambda: None)()

    # Files of hosts.

    def write(self, node: str, path: str, text: str) -> None:
        self.step()
        self.files[path] = text

    def read(self, node: str, path: str) -> str | None:
        self.step()
        return self.files.get(path)

    ask = LocalFiles.ask

    # An engine's jobs.

    def state(self, job: ControlledJob) -> str:
        self.step()
        told = {"RUNNING": RUNNING, "BROKEN": RUNNING, "FINISHED": FINISHED}
        return told.get(self.jobs_[job.job].state, FAILED)

    def cancel(self, job: ControlledJob) -> None:
        self.end(job.job)

    def end(self, name: str) -> str:
        self.step()
        if self.jobs_[name].state in ("RUNNING", "BROKEN"):
            self.jobs_[name].state = "CANCELED"
        return self.jobs_[name].state

    def wait_ended(self, job: ControlledJob, timeout_s: float) -> str:
        until = self.now + 1000 * timeout_s
        while (state := self.state(job)) == RUNNING:
            if self.now > until and not self.ends_failed_jobs:
                self.cancel(job)
            elif self.now > until:
                raise NovaError(f"{job.job} is still there")
            self.pass_time(TICK_MS)
        return state


class Pool:
    """Runs what it is given at once, in order."""

    def __init__(self, at_once: int) -> None:
        pass

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    map = staticmethod(map)


@contextmanager
def worlds(
    monkeypatch: pytest.MonkeyPatch, modules: tuple[ModuleType, ...] = (), **facts: Any
) -> Iterator[Callable[[], World]]:
    """Makes worlds with these facts; for hand-overs, and other modules, time is the last one's."""
    made: list[World] = []

    class Time:
        @staticmethod
        def time_ns() -> int:
            # Orders have numbers of their own, although no time passes between them.
            return made[-1].now * 1_000_000 + made[-1].steps

        @staticmethod
        def time() -> float:
            return made[-1].now / 1000

        @staticmethod
        def monotonic() -> float:
            return made[-1].now / 1000

        @staticmethod
        def sleep(seconds: float) -> None:
            made[-1].pass_time(max(TICK_MS, round(1000 * seconds)))

    def make() -> World:
        made.append(World(**facts))
        return made[-1]

    for module in (handover, source_orders, *modules):
        monkeypatch.setattr(module, "time", Time)
    monkeypatch.setattr(source_orders, "ThreadPoolExecutor", Pool)
    write = Ledger.write

    def written(ledger: Ledger, path: Path) -> None:
        made[-1].step()
        write(ledger, path)

    monkeypatch.setattr(Ledger, "write", written)
    yield make


def check_exactly_once(world: World, ledger: Path, end: int) -> list[str]:
    """Every window is one job's alone, all of whose sources have emitted it; the jobs' names."""
    shares = Ledger.read(ledger).shares
    froms = [share.from_ms for share in shares] + [end]
    assert froms == sorted(froms) and end % WINDOW_MS == 0
    assert froms[0] == shares[0].begin_ms
    for number, (share, until) in enumerate(zip(shares, froms[1:], strict=True)):
        before = world.history_ms if number else 0
        for source in world.jobs_[share.job.job].sources.values():
            if share.from_ms < until:
                assert source.begin is not None and source.begin <= share.from_ms - before
                assert source.reached >= until
    others = world.jobs_.keys() - {share.job.job for share in shares}
    assert all(world.jobs_[name].state != "RUNNING" or name == "stray" for name in others)
    return [share.job.job for share in shares]
