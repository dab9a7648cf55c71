"""NebulaStream on the hosts of a test bed: a worker on each.

It has no coordinator: ``nes-cli``, on this machine, gives every worker its part of each query. What
runs is noted on the sink's host, so that a later command finds it.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nova_core.errors import NovaError
from nova_engines import results
from nova_engines.documents import from_json, to_json
from nova_engines.flow import JOIN, SOURCE, Flow
from nova_engines.flow_of_plan import flow_of
from nova_engines.names import is_own_job
from nova_engines.sources import READINGS, REPLAY, Sources
from nova_engines.verification import RUNNING, Verification
from nova_harness.engines.base import (
    ALL,
    POLL_S,
    RUNNING_SECONDS,
    Abilities,
    JobState,
    Lead,
    RunError,
)
from nova_harness.engines.deployment import EngineDeployment
from nova_harness.results.schema import OperatorCounts
from nova_nebulastream import client, result_collector, source_server, topologies
from nova_nebulastream.client import FAILED, UNREACHABLE, Cli, Deployment
from nova_nebulastream.home import WORKER, NesHome
from nova_nebulastream.queries import Input, Query, identifier, queries

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_engines.results import ResultRecords
    from nova_harness.engines.deployment import Tell
    from nova_testbed.host import Host
    from nova_testbed.hosts import Hosts

WORKERS, SERVER, COLLECTOR = "nova_nes_worker", "nova_nes_sources", "nova_nes_results"
# More words of a worker's command.
OPTIONS = "NOVA_NES_OPTIONS"
RESULTS, JOBS = "results", "jobs"
# Of a host's first source; every other one has the next.
FIRST_PORT = 9400
LEAD_SECONDS = 10.0
READY_SECONDS = 30.0


class NesRunner:
    """See `nova_harness.engines.base.Runner`."""

    name = "nebulastream"
    can = Abilities(ALL, (REPLAY,), (READINGS,))

    def prepare(self, tell: Tell, source: str) -> None:
        """There is nothing to install: the user has built its programs."""
        NesHome.default().program(WORKER)

    def cluster(self, address: str, problem: Problem | None) -> NesCluster:
        """What ``nova nebulastream start`` has started from a bundle: its directory."""
        from nova_nebulastream.bundle import Bundle

        return NesCluster(Bundle(Path(address)), address)

    def engine(self, hosts: Hosts, source: str) -> NesEngine:
        """NebulaStream on the hosts."""
        return NesEngine(NesDeployment(hosts, NesHome.default()))


RUNNER = NesRunner()


class NesDeployment(EngineDeployment):
    """Workers on the hosts of an inventory.

    Args:
        hosts: connected; the inventory's with addresses.
        home: NebulaStream's programs.
    """

    ENGINE = "NebulaStream"
    NAME = "nebulastream"
    PROCESSES = (WORKERS, SERVER, COLLECTOR)
    NEEDS = ("python3",)

    def __init__(self, hosts: Hosts, home: NesHome) -> None:
        super().__init__(hosts)
        self.home = home
        self.addresses = {host.name: host.address for host in hosts.inventory.hosts}

    @property
    def version(self) -> str:
        """Its programs have none."""
        return "built by the user"

    @property
    def home_path(self) -> Path:
        """The home, or where the worker's program is."""
        return self.home.path or self.home.program(WORKER).parent

    @cached_property
    def runtime_files(self) -> Sequence[Path]:
        """All files of the home."""
        return self.home.files()

    def check(self) -> None:
        """Whether its programs are here."""
        self.home.program(WORKER)

    def files(self, name: str) -> dict[str, str]:
        """The programs for sources and results, which need Python alone."""
        modules = (source_server, result_collector)
        files = [Path(str(one.__file__)) for one in modules]
        return {file.name: file.read_text("utf-8") for file in files}

    def commands(self, name: str) -> dict[str, str]:
        """A worker."""
        address, work = self.addresses[name], self.work(name)
        program = self.home.program(WORKER)
        if not self.hosts.inventory.virtual:
            program = Path(self.place(name)) / self.within(program)
        words = [
            str(program),
            f"--grpc={address}:{topologies.GRPC_PORT}",
            f"--data_address={address}:{topologies.DATA_PORT}",
            *shlex.split(os.environ.get(OPTIONS, "")),
        ]
        return {WORKERS: f"cd {shlex.quote(work)} && exec {shlex.join(words)}"}

    def wait(self, timeout_s: float) -> None:
        """Until every worker listens."""
        until = time.monotonic() + timeout_s
        while silent := [name for name, there in self.listening().items() if not there]:
            if time.monotonic() > until:
                raise NovaError(f"no worker listens on {', '.join(silent)}")
            time.sleep(POLL_S)

    def listening(self) -> dict[str, bool]:
        """Whether each host's worker takes requests."""

        def one(host: Host) -> bool:
            with suppress(OSError):
                at = (self.addresses[host.name], topologies.GRPC_PORT)
                socket.create_connection(at, 1).close()
                return True
            return False

        return self.hosts.map(one)

    def start_program(self, name: str, process: str, module: Any, told: Any) -> None:
        """Start one of Nova's programs on a host, and wait until it is ready."""
        host, work = self.hosts[name], f"{self.work(name)}/{process}"
        program = f"{self.work(name)}/{Path(str(module.__file__)).name}"
        with tempfile.TemporaryDirectory(prefix="nova-nes-") as directory:
            file = Path(directory) / "configuration.json"
            file.write_text(json.dumps(told), "utf-8")
            host.run(f"mkdir -p {work} && rm -f {work}/ready")
            host.put(file, f"{work}/configuration.json")
        command = f"exec python3 -I {program} {work}/configuration.json"
        host.start(command, name=process, log=f"{self.work(name)}/{process}.out", keep=True)
        tries = f"$(seq {10 * READY_SECONDS:.0f})"
        wait = f"for i in {tries}; do [ -e {work}/ready ] && exit; sleep 0.1; done; exit 1"
        if host.run(wait, check=False, timeout=2 * READY_SECONDS).returncode:
            last = host.run(f"tail -n 1 {self.work(name)}/{process}.out", check=False).stdout
            raise NovaError(f"{process} on {name}: {last.strip() or 'does not begin'}")

    def end_programs(self) -> None:
        """End Nova's programs on all hosts."""
        self.hosts.map(lambda host: self._end(host, (SERVER, COLLECTOR)))

    def note(self, name: str) -> str:
        """The file on the sink's host that says what a job runs."""
        return f"{self.work(self.sink)}/{JOBS}/{identifier(name)}.json"


class Noted(Protocol):
    """What has been started, by the names of jobs."""

    def names(self) -> list[str]:
        """Of all jobs."""
        ...

    def read(self, job: str) -> Deployment:
        """What a job runs.

        Raises:
            NovaError: for an unknown one.
        """
        ...

    def forget(self, job: str) -> None:
        """Note that a job has ended."""
        ...


class NesCluster:
    """See `nova_harness.engines.base.Cluster`.

    Args:
        noted: keeps what has been started.
        address: where that is, for people.
    """

    def __init__(self, noted: Noted, address: str) -> None:
        self._noted, self.address = noted, address

    @cached_property
    def cli(self) -> Cli:
        """Of this machine."""
        return Cli(NesHome.default())

    def document(self, plan: Plan) -> str:
        """Its operators."""
        return flow_of(plan).to_json()

    def verify(self, job: str, document: str) -> Verification:
        """By what ``nes-cli`` says of the job's queries, and what their workers say."""
        return client.verification(self.cli, planned(self._noted.read(job), document))

    def hosts(self) -> dict[str, bool]:
        """Workers of all jobs, and whether they answer."""
        answers: dict[str, bool] = {}
        for name in self._noted.names():
            noted = self._noted.read(name)
            for one in noted.queries:
                states = client.worker_states(self.cli, one)
                for worker, (state, _) in states.items():
                    if worker:
                        answers[noted.hosts.get(worker, worker)] = state != UNREACHABLE
        return answers

    def jobs(self) -> list[JobState]:
        """Jobs that have been noted."""
        found = []
        for name in self._noted.names():
            noted = self._noted.read(name)
            state = client.verification(self.cli, noted).state
            runs = state in (RUNNING, UNREACHABLE)
            found.append(JobState(name, name, state, own=is_own_job(name), runs=runs))
        return found

    def stop(self, job: str) -> str:
        """Stop its queries."""
        client.stop(self.cli, self._noted.read(job).queries)
        self._noted.forget(job)
        return "stopped"


def planned(noted: Deployment, document: str) -> Deployment:
    """A job's queries, as a plan has them.

    Args:
        noted: what was started.
        document: the flow of the plan, see `NesCluster.document`.

    Raises:
        NovaError: where the plan has other queries.
    """
    expected = queries(Flow.from_json(document))
    if [one.query.result for one in noted.queries] != [one.result for one in expected]:
        raise NovaError(
            f"job {noted.name}: runs {len(noted.queries)} queries, and not those of the plan, "
            f"which are {len(expected)}"
        )
    pairs = zip(noted.queries, expected, strict=True)
    return replace(noted, queries=tuple(replace(one, query=query) for one, query in pairs))


class Notes:
    """See `Noted`: on the sink's host.

    Args:
        deployment: with its hosts.
    """

    def __init__(self, deployment: NesDeployment) -> None:
        self._deployment = deployment

    def names(self) -> list[str]:
        """See `Noted.names`."""
        d = self._deployment
        listed = d.hosts[d.sink].run(f"cat {d.work(d.sink)}/{JOBS}/names 2>/dev/null", check=False)
        return sorted(set(listed.stdout.splitlines()))

    def read(self, job: str) -> Deployment:
        """See `Noted.read`."""
        d = self._deployment
        text = d.hosts[d.sink].run(f"cat {d.note(job)} 2>/dev/null", check=False).stdout
        if not text:
            known = ", ".join(self.names()) or "none"
            raise NovaError(f"job {job!r}: NebulaStream runs no such job; there are: {known}")
        return from_json(text, Deployment, job)

    def write(self, job: Deployment) -> None:
        """Note a job."""
        d = self._deployment
        names = f"{d.work(d.sink)}/{JOBS}/names"
        command = f"mkdir -p {d.work(d.sink)}/{JOBS} && cat >{d.note(job.name)}"
        d.hosts[d.sink].run(
            f"{command} && echo {shlex.quote(job.name)} >>{names}", stdin=to_json(job).encode()
        )

    def forget(self, job: str) -> None:
        """See `Noted.forget`."""
        d = self._deployment
        names = f"{d.work(d.sink)}/{JOBS}/names"
        left = f"grep -vxF {shlex.quote(job)} {names} >{names}.new; mv {names}.new {names}"
        d.hosts[d.sink].run(f"rm -f {d.note(job)}; {left}", check=False)


class NesEngine(NesCluster):
    """See `nova_harness.engines.base.Engine`."""

    name = "nebulastream"
    # A worker with its buffers, and a program for sources.
    engine_bytes = 640 << 20
    stays_warm = True

    def __init__(self, deployment: NesDeployment) -> None:
        self.notes = Notes(deployment)
        super().__init__(self.notes, deployment.sink)
        self.deployment = deployment
        self.lead = Lead(LEAD_SECONDS)

    def up(self, tell: Tell) -> None:
        """Start the workers."""
        self.deployment.up(tell)

    def close(self) -> None:
        """Nothing of it is on this machine."""

    def down(self) -> list[str]:
        """End the workers."""
        return self.deployment.down()

    def hosts(self) -> dict[str, bool]:
        """Hosts by their workers."""
        return self.deployment.listening()

    def start(self, flow: Flow, sources: Callable[[int], Sources], name: str) -> NesJob:
        """Start a query for every join of pairs, or for every query with columns."""
        job = NesJob(self, name, flow, sources(self.lead.start_ms()))
        job.submit()
        return job

    def stop(self, job: str) -> str:
        """Stop its queries, and what serves them."""
        try:
            return super().stop(job)
        finally:
            self.deployment.end_programs()


class NesJob:
    """See `nova_harness.engines.base.Job`."""

    def __init__(self, engine: NesEngine, name: str, flow: Flow, sources: Sources) -> None:
        self.engine, self.name = engine, name
        self.flow, self.sources = flow, sources
        self.deployment = engine.deployment
        self.noted = Deployment(name, {}, ())
        self._seen = Verification(())

    @property
    def document(self) -> str:
        """Its operators."""
        return self.flow.to_json()

    # --- start ----------------------------------------------------------------------------------

    def submit(self) -> None:
        """Place all queries as planned, have sources and sinks ready, and start them.

        Raises:
            NovaError: naming what cannot be placed or started; then nothing runs.
        """
        d = self.deployment
        self.sources.require(self.flow)
        found = queries(self.flow, exact=True)
        ports = self._ports()
        d.end_programs()
        files = self._put_sources()
        try:
            self._serve(found, ports, files)
            pipes = self._collect(found)
            placed = []
            for query in found:
                document = topologies.topology(
                    query,
                    d.addresses,
                    lambda one: self._reads(one, ports),
                    pipes[query.name],
                    append=True,
                )
                placed.append(client.fitted(self.engine.cli, query, document, d.addresses))
            for _, verification in placed:
                for row in (row for row in verification.rows if not row.ok):
                    raise RunError(
                        f"NebulaStream: {row.operator} would run on {row.actual}, and the plan has "
                        f"it on {row.node}: build the engine with Nova's hook, see "
                        "docs/nebulastream.md"
                    )
            started = client.start(self.engine.cli, [one for one, _ in placed], d.addresses)
        except BaseException:
            d.end_programs()
            raise
        hosts = {topologies.worker(address): name for name, address in d.addresses.items()}
        self.noted = Deployment(self.name, hosts, tuple(started))
        self.engine.notes.write(self.noted)

    def _ports(self) -> dict[str, int]:
        """Port of each source on its host."""
        counts: Counter[str] = Counter()
        ports = {}
        for one in self.flow.of_kind(SOURCE):
            ports[one.source] = FIRST_PORT + counts[one.node]
            counts[one.node] += 1
        return ports

    def _reads(
        self, one: Input, ports: Mapping[str, int]
    ) -> tuple[str, dict[str, Any], dict[str, Any]]:
        config = {
            "socket_host": self.deployment.addresses[one.node],
            "socket_port": ports[one.source],
            "socket_buffer_size": 65536,
            # A buffer goes on as soon as something has come after that time.
            "flush_interval_ms": 1,
            "connect_timeout_seconds": 30,
        }
        return "TCP", config, {}

    def _put_sources(self) -> dict[str, str]:
        """Copy what sources emit to their hosts; the file of each there."""
        d, files = self.deployment, {}
        by_node = defaultdict(list)
        for one in self.flow.of_kind(SOURCE):
            by_node[one.node].append(one)

        def put(host: Host) -> None:
            if not by_node[host.name]:
                return
            with tempfile.TemporaryDirectory(prefix="nova-nes-") as directory:
                for number, one in enumerate(by_node[host.name]):
                    source = self.sources.sources[self.sources.index(one.source)]
                    (Path(directory) / str(number)).write_bytes(source.encoded())
                    files[one.source] = f"{d.work(host.name)}/sources/{number}"
                host.run(f"rm -rf {d.work(host.name)}/sources")
                host.put(directory, f"{d.work(host.name)}/sources")

        d.hosts.map(put)
        return files

    def _clock(self) -> list[float]:
        clock = self.sources.clock
        return [clock.first_ms, clock.start_ms, self.sources.speed]

    def _serve(
        self, found: Sequence[Query], ports: Mapping[str, int], files: Mapping[str, str]
    ) -> None:
        """Start the servers of sources."""
        d = self.deployment
        readers = Counter(one.source for query in found for one in query.inputs)
        columns = {one.source: one.fields for query in found for one in query.inputs}
        served: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for one in self.flow.of_kind(SOURCE):
            if not readers[one.source]:
                continue
            source = self.sources.sources[self.sources.index(one.source)]
            told: dict[str, Any] = {
                "port": ports[one.source],
                "file": files[one.source],
                "readers": readers[one.source],
            }
            if one.types:
                told["types"] = one.types
                letters = {name[0] for name, _ in columns[one.source]}
                told["numbered"], told["hashed"] = "S" in letters, "H" in letters
            else:
                told["pace"] = source.pace.numbers
                told["count"] = self.sources.count_of(self.sources.index(one.source))
            served[one.node].append(told)

        def serve(host: Host) -> None:
            if served[host.name]:
                document = {
                    "address": d.addresses[host.name],
                    "start_ms": self.sources.start_ms,
                    "clock": self._clock(),
                    "sources": served[host.name],
                }
                d.start_program(host.name, SERVER, source_server, document)

        d.hosts.map(serve)

    def _collect(self, found: Sequence[Query]) -> dict[str, str]:
        """Start what takes the results of sinks; the pipe of each query."""
        d = self.deployment
        files = self.flow.result_files(d.result_file(RESULTS))
        joins = {one.name: number for number, one in enumerate(self.flow.joins)}
        pipes = {}
        told: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for sink in self.flow.sinks:
            own = []
            for query in (one for one in found if one.sink == sink.name):
                pipe: dict[str, Any] = {"path": f"{d.work(sink.node)}/pipes/{query.name}"}
                pipes[query.name] = pipe["path"]
                if not sink.types:
                    join = next(one for one in query.top.walk() if one.kind == JOIN)
                    left, right = (self.sources.index(one.source) for one in query.inputs)
                    pipe |= {"instance": joins[join.name], "left": left, "right": right}
                own.append(pipe)
            told[sink.node].append(
                {
                    "file": files[sink.name],
                    "fields": results.fields_of(sink),
                    "types": sink.types,
                    "pipes": own,
                }
            )

        def collect(host: Host) -> None:
            if told[host.name]:
                document = {"clock": self._clock(), "sinks": told[host.name]}
                d.start_program(host.name, COLLECTOR, result_collector, document)

        d.hosts.map(collect)
        return pipes

    # --- run ------------------------------------------------------------------------------------

    def await_running(self) -> None:
        """Until every query runs on all its workers."""
        until = time.monotonic() + RUNNING_SECONDS
        while True:
            found = self.verify()
            if found.state == FAILED:
                raise RunError(f"NebulaStream: {found.note}")
            if found.runs:
                break
            if time.monotonic() > until:
                raise RunError(
                    f"NebulaStream: after {RUNNING_SECONDS:g} s the job is {found.state}"
                )
            time.sleep(POLL_S)
        self.engine.lead.runs()

    def verify(self) -> Verification:
        """By what ``nes-cli`` says of the queries, and what their workers say."""
        self._seen = client.verification(self.engine.cli, self.noted)
        return self._seen

    def look(self) -> bool:
        """Whether all its sinks have said that their results are complete."""
        d = self.deployment
        if gone := d.last_words(self.flow.nodes):
            raise RunError(f"NebulaStream{gone}")
        files = self.flow.result_files(d.result_file(RESULTS))
        ends = [
            d.hosts[one.node].run(f"test -e {files[one.name]}{results.END}", check=False).returncode
            for one in self.flow.sinks
        ]
        if not any(ends):
            return True
        found = self.verify()
        if found.state == FAILED:
            raise RunError(f"NebulaStream: {found.note or 'a query has failed'}")
        return False

    def counters(self) -> None:
        """NebulaStream counts no tuples of operators."""

    def operators(self, before: None, after: None) -> list[OperatorCounts]:
        """Where operators run; their counts are unknown."""
        places = {row.operator: row.actual for row in self._seen.rows}
        return [OperatorCounts(name=name, node=node) for name, node in places.items()]

    def end(self) -> None:
        """Stop it."""
        self.engine.stop(self.name)

    def results(self, scratch: Path) -> ResultRecords:
        """What has arrived at the sinks."""
        return self.deployment.read_results(self.flow, RESULTS, scratch)
