"""Scripted disturbances of hosts while a job runs: load, longer links, surges, lost workers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta

from nova_core.errors import NovaError
from nova_core.io.syntax import read_typed
from nova_engines.sources import LONGEST_S

if TYPE_CHECKING:
    from nova_core.model.problem import Problem
    from nova_engines.sources import Sources, Surge
    from nova_harness.engines.base import ControlledEngine, Engine
    from nova_harness.engines.deployment import EngineDeployment
    from nova_testbed.inventory import Inventory

VERSION: Final = 1
# In random scripts, s: how long a disturbance lasts, and the time until the next one.
LASTS_S, CALM_S = (5.0, 30.0), (10.0, 40.0)
JOB = "disturbance"
LOAD = "while :; do :; done"
SIGNALS: Final = {"kill": "KILL", "hang": "STOP"}
# Until an engine has lost a worker, or got it back; a busy machine takes long to start one.
WORKER_S, LOOK_S = 180.0, 1.0
# So long before a worker is killed or stopped, a command that does it waits on its host.
AHEAD_S = 5.0
# Most that such a command may take.
SIGNAL_S = 60.0
# What fails, such as the end of a disturbance, is tried again after so long.
AGAIN_S = 2.0
_Seconds = Annotated[float, Meta(ge=0, le=LONGEST_S)]


class ScriptError(NovaError):
    """An invalid script of disturbances."""


class Disturbance(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"last": "for"}):
    """One thing that happens to one host, or to the link between two.

    Attributes:
        at: s after the first tuples.
        what: ``load`` keeps a core busy; ``cpu`` gives the host so many cores; ``rtt`` makes the
            link to ``to`` so long; ``cut`` loses all packets between the host and ``to``, or all
            others; ``rate`` changes the rate of the sources there; ``kill`` ends the engine's
            worker; ``hang`` stops it; ``add`` starts it, for the first time in the run.
        host: the disturbed host.
        last: s after which it is over; None for ever. A killed worker is started again then, as a
            host's own supervisor would, unless it already runs.
        cores: of ``cpu``; virtual hosts only.
        to: the other host, of ``rtt`` and ``cut``; virtual hosts only.
        ms: round trip of ``rtt``.
        times: factor of ``rate``.
    """

    at: _Seconds
    what: Literal["load", "cpu", "rtt", "cut", "rate", "kill", "hang", "add"]
    host: str
    last: _Seconds | None = None
    cores: Annotated[float, Meta(gt=0)] | None = None
    to: str | None = None
    ms: Annotated[float, Meta(ge=0)] | None = None
    times: Annotated[float, Meta(gt=0, le=1000)] | None = None

    def __str__(self) -> str:
        what = {
            "load": f"load on {self.host}",
            "cpu": f"{self.host} has {self.cores or 0:g} cores",
            "rtt": f"{self.host} to {self.to} takes {self.ms or 0:g} ms",
            "cut": f"{self.host} is cut off from {self.to or 'all others'}",
            "rate": f"sources on {self.host} emit {self.times or 0:g} times as much",
            "kill": f"the worker on {self.host} is killed",
            "hang": f"the worker on {self.host} hangs",
            "add": f"{self.host} is added",
        }[self.what]
        return what if self.last is None else f"{what}, for {self.last:g} s"


class Script(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Disturbances by time.

    Attributes:
        nova_disturbances: version of this format.
        events: in any order.
    """

    nova_disturbances: Literal[1]
    events: list[Disturbance]

    @classmethod
    def read(cls, path: Path, inventory: Inventory) -> Script:
        """Read a script's file.

        Args:
            path: YAML or JSON.
            inventory: whose hosts it names.

        Raises:
            NovaError: naming the event, and what it lacks.
        """
        script = read_typed(path, cls, "nova_disturbances", VERSION, ScriptError)
        check_events(script.events, inventory, str(path))
        return script


def random_script(inventory: Inventory, seconds: float, seed: int) -> Script:
    """Consecutive random disturbances of hosts without sources and sinks, all of which end.

    Args:
        inventory: of the hosts; real ones are neither cut off nor changed.
        seconds: until the last one is over.
        seed: one seed gives one script.

    Raises:
        ScriptError: for an inventory without such hosts, or too short a time.
    """
    chance = random.Random(seed)
    workers = [host for host in inventory.hosts if host.role == "worker"]
    if not workers:
        raise ScriptError(f"inventory {inventory.name}: has no host of role worker to disturb")
    kinds = ["load", "kill", "hang", *(("cpu", "rtt", "cut") if inventory.virtual else ())]
    events: list[Disturbance] = []
    at = chance.uniform(*CALM_S)
    while True:
        last = round(chance.uniform(*LASTS_S), 1)
        if at + last > seconds:
            break
        host, what = chance.choice(workers), chance.choice(kinds)
        event = Disturbance(round(at, 1), what, host.name, last)
        if what == "cpu":
            cores = round((host.cpu or 1.0) * chance.uniform(0.2, 0.8), 3)
            event = msgspec.structs.replace(event, cores=cores)
        elif what == "rtt":
            other = chance.choice([one.name for one in inventory.hosts if one.name != host.name])
            ms = round(chance.uniform(50, 300), 1)
            event = msgspec.structs.replace(event, to=other, ms=ms)
        events.append(event)
        at += last + chance.uniform(*CALM_S)
    if not events:
        raise ScriptError(
            f"{seconds:g} s: too short for a disturbance; take {CALM_S[1] + LASTS_S[1]:g} s"
        )
    return Script(VERSION, events)


def check_events(events: Sequence[Disturbance], inventory: Inventory, where: str) -> None:
    """Check what the types of fields do not express.

    Args:
        events: of a script.
        inventory: whose hosts they name.
        where: the place that errors name.

    Raises:
        NovaError: naming the event, and what it lacks.
    """
    for number, event in enumerate(events):
        place = f"{where}: events[{number}]"
        needs = {"cpu": ("cores",), "rtt": ("to", "ms"), "rate": ("times",)}.get(event.what, ())
        for name in ("cores", "to", "ms", "times"):
            if (event.what, name) == ("cut", "to"):
                continue
            if (getattr(event, name) is not None) != (name in needs):
                text = "is missing" if name in needs else "does not belong"
                raise ScriptError(f"{place}: {name} {text} to what: {event.what}")
        for host in filter(None, (event.host, event.to)):
            inventory.host(host)
        if event.what in ("cpu", "rtt", "cut") and not inventory.virtual:
            raise ScriptError(f"{place}: {event.what}: only virtual hosts can be changed")
        if event.what == "add" and inventory.host(event.host).role != "worker":
            raise ScriptError(f"{place}: add: {event.host} is no host of role worker")


def added_hosts(events: Sequence[Disturbance]) -> list[str]:
    """Hosts that a script adds: until then, nothing runs there."""
    return sorted({event.host for event in events if event.what == "add"})


def touched_hosts(events: Sequence[Disturbance]) -> list[str]:
    """Hosts that a script disturbs."""
    return sorted({host for event in events for host in (event.host, event.to) if host})


@contextmanager
def without_workers(engine: ControlledEngine, names: Sequence[str]) -> Iterator[None]:
    """Have no worker on some hosts when the block begins; they are started when it ends.

    Raises:
        ScriptError: where the engine still counts one.
    """
    for name in names:
        engine.deployment.end_worker(name)
    until = time.monotonic() + WORKER_S
    while left := [name for name in names if not engine.misses(name)]:
        if time.monotonic() > until:
            raise ScriptError(f"{', '.join(left)}: the worker has not gone in {WORKER_S:g} s")
        time.sleep(LOOK_S)
    try:
        yield
    finally:
        for name in names:
            # What was measured stands; who needs all workers, waits for them.
            _quietly(partial(engine.deployment.start_worker, name))


def await_workers(engine: Engine, names: Sequence[str], miss_after_s: float) -> None:
    """Wait until the engine has a worker on some hosts; one that does not run is started.

    Args:
        engine: that runs.
        names: of the hosts.
        miss_after_s: when hosts count as lost; it may take until then to get a new worker.

    Raises:
        ScriptError: naming hosts without one, and why, as far as it is known.
    """
    deployment, missing, most_s = engine.deployment, list(names), WORKER_S + miss_after_s
    until = time.monotonic() + most_s
    while True:
        why = ""
        try:
            there = engine.hosts()
            missing = [name for name in names if not there[name]]
            if not missing:
                return
            for name in missing:
                deployment.start_worker(name)
        except NovaError as error:
            why = f"; {error}"
        if time.monotonic() > until:
            break
        time.sleep(LOOK_S)
    raise ScriptError(
        f"{', '.join(missing)}: no worker of {deployment.ENGINE} has come back in {most_s:g} s"
        f"{why or deployment.last_words(missing)}"
    )


def with_surges(
    sources: Sources, problem: Problem, events: Sequence[Disturbance], begin_s: float
) -> Sources:
    """The same streams with a script's changes of rates.

    Args:
        sources: replays, of the problem's sources.
        problem: with the hosts of these.
        events: of the script.
        begin_s: when it begins, s after the sources.

    Raises:
        ScriptError: for a host without sources, or sources that are no replays.
    """
    if all(event.what != "rate" for event in events):
        return sources
    if "kafka" in sources.kinds:
        raise ScriptError("disturbances: rate: sensors that send to Kafka have their own rates")
    nodes = problem.nodes.ids[problem.sources.node].tolist()
    host = dict(zip(problem.sources.ids.tolist(), nodes, strict=True))
    surges: dict[str, list[Surge]] = {}
    for event in events:
        if event.what == "rate":
            if event.host not in nodes:
                raise ScriptError(f"disturbances: rate: {event.host} has no source")
            begin = begin_s + event.at
            end = begin + (LONGEST_S if event.last is None else event.last)
            surges.setdefault(event.host, []).append((begin, end, event.times or 1.0))
    surging = [
        replace(one, surges=tuple(surges.get(host[one.source], ()))) for one in sources.sources
    ]
    return replace(sources, sources=tuple(surging))


class Disturbing:
    """Follows a script in the background; `close` undoes lasting disturbances.

    Args:
        events: what happens.
        deployment: of the engine, on connected hosts.
        note: callback with each event: ``disturbed``, ``over`` or ``failed``, and a text.
    """

    def __init__(
        self,
        events: Sequence[Disturbance],
        deployment: EngineDeployment,
        note: Callable[[str, str], None],
    ) -> None:
        self.events, self.deployment, self._note = events, deployment, note
        self.hosts = deployment.hosts
        self._ended = threading.Event()
        self._lasting: dict[int, Callable[[], object]] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._begun = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        # For what takes seconds where CPUs are busy; what is due meanwhile does not wait for it.
        self._beside = ThreadPoolExecutor()
        # By the number of an event: what gives the order (False: never), and what came of it.
        self._waiting: dict[int, tuple[Future[bool], Future[set[int]]]] = {}

    def start(self, begin: float | None = None) -> None:
        """Begin.

        Args:
            begin: what its times count from, s since the epoch; now by default. What takes long
                on a busy host is done before a disturbance is due, if there is time.
        """
        self._begun = time.monotonic() + (0.0 if begin is None else begin - time.time())
        for number, event in enumerate(self.events):
            self._add_due(event.at, number, partial(self._happen, number, event))
            if (signal := SIGNALS.get(event.what)) is not None:
                act = partial(self._prepare, number, event.host, signal)
                self._add_due(event.at - AHEAD_S, number, act)
        self._thread.start()

    def close(self) -> None:
        """End the script, and undo lasting disturbances."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        for order, _ in self._waiting.values():
            order.set_result(False)
        self._beside.shutdown()
        for undo in reversed(self._lasting.values()):
            # On a lost host, nothing needs to be undone.
            _quietly(undo)
        self._lasting.clear()

    def _add_due(self, at: float, number: int, act: Callable[[], None]) -> None:
        self._due.append((at, number, act))
        self._due.sort(key=lambda one: one[:2])

    def _run(self) -> None:
        while self._due and not self._ended.is_set():
            at, _, act = self._due[0]
            if self._ended.wait(max(0.0, self._begun + at - time.monotonic())):
                return
            self._due.pop(0)
            try:
                act()
            except NovaError as error:
                self._note("failed", f"not disturbed: {error}")

    def _happen(self, number: int, event: Disturbance) -> None:
        undo = self._do(number, event)
        self._note("disturbed", str(event))
        self._lasting[number] = undo
        if event.last is not None:
            self._later(event.last, lambda: self._over(number, event))

    def _over(self, number: int, event: Disturbance) -> None:
        try:
            self._lasting[number]()
        except NovaError as error:
            self._note("failed", f"not over: {event}: {error}")
            self._later(AGAIN_S, lambda: self._over(number, event))
        else:
            del self._lasting[number]
            self._note("over", str(event))

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._add_due(time.monotonic() - self._begun + seconds, -1, act)

    def _do(self, number: int, event: Disturbance) -> Callable[[], object]:
        """Disturb; returns what undoes it."""
        host = self.hosts[event.host]
        if event.what == "rate":
            # Sources apply it themselves: see `with_surges`.
            return lambda: None
        if event.what == "load":
            job = host.start(LOAD, name=JOB)
            return job.end
        if event.what == "add":
            self._beside.submit(self._add, event.host)
            return lambda: None
        if event.what in SIGNALS:
            pids = self._signal(number, event.host, SIGNALS[event.what])
            if event.what == "kill":
                return lambda: self.deployment.start_worker(event.host)
            return lambda: host.run(_send("CONT", pids), check=False)
        return self._rack(event)

    def _add(self, name: str) -> None:
        while True:
            try:
                return self.deployment.start_worker(name)
            except NovaError as error:
                self._note("failed", f"not added: {error}")
            if self._ended.wait(AGAIN_S):
                return None

    def _prepare(self, number: int, name: str, signal: str) -> None:
        """Have a command on a host that looks up the worker, and signals it when it is ordered to.

        Where CPUs are busy, a command takes seconds to begin.
        """
        order: Future[bool] = Future()

        def feed(write: Callable[[bytes], None]) -> None:
            if order.result():
                write(b"\n")

        def wait() -> set[int]:
            pids = self.deployment.worker_processes(name)
            if pids:
                command = f"read -r order && {{ {_send(signal, pids)}; }}"
                code, _, _ = self.hosts[name].stream(command, feed, bytes, AHEAD_S + SIGNAL_S)
                pids = set() if code else pids
            return pids

        self._waiting[number] = order, self._beside.submit(wait)

    def _signal(self, number: int, name: str, signal: str) -> set[int]:
        """Send a signal to the processes of the engine's worker on a host; returns their ids."""
        order, sent = self._waiting.pop(number)
        order.set_result(True)
        with suppress(NovaError):
            if pids := sent.result():
                return pids
        # The worker has come, or been replaced, since.
        pids = self.deployment.worker_processes(name)
        if not pids:
            raise NovaError(f"{name}: {self.deployment.ENGINE} has no worker there")
        self.hosts[name].run(_send(signal, pids), check=False)
        return pids

    def _rack(self, event: Disturbance) -> Callable[[], object]:
        from nova_testbed.rack import VirtualRack

        inventory = self.hosts.inventory
        rack = VirtualRack(inventory)
        if event.what == "cpu":
            before: Mapping[str, float | None] = {event.host: inventory.host(event.host).cpu}
            rack.set_limits(cpu={event.host: event.cores})
            return lambda: rack.set_limits(cpu=before)
        others = [event.to] if event.to else [host.name for host in inventory.hosts]
        links = {name: inventory.link(event.host, name) for name in others if name != event.host}
        changed = {"loss_percent": 100.0} if event.what == "cut" else {"rtt_ms": event.ms or 0.0}

        def back() -> None:
            for name, link in links.items():
                rack.set_link(event.host, name, link)

        try:
            for name, link in links.items():
                rack.set_link(event.host, name, replace(link, **changed))
        except BaseException:
            _quietly(back)
            raise
        return back


def _send(signal: str, pids: set[int]) -> str:
    """A command that sends a signal to processes; it fails if none of them is there."""
    ids = " ".join(map(str, sorted(pids)))
    return f"sent=; for p in {ids}; do kill -{signal} $p && sent=1; done; [ $sent ]"


def _quietly(undo: Callable[[], object]) -> None:
    """Undo, ignoring errors."""
    with suppress(NovaError):
        undo()
