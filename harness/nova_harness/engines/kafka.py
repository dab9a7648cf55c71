"""Kafka on the hosts of a test bed, as a transport of engines that can read it.

A broker on one of the hosts, producers where the sensors are.
"""

from __future__ import annotations

import math
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from nova_core.errors import NovaError
from nova_engines.flow import SOURCE
from nova_engines.sources import through
from nova_harness.engines.base import Job, RunError
from nova_harness.engines.deployment import EngineDeployment
from nova_kafka import topics
from nova_kafka.broker import Broker
from nova_kafka.home import VERSION, broker_home
from nova_kafka.measures import Sample, end_offsets

if TYPE_CHECKING:
    from nova_engines.flow import Flow
    from nova_engines.results import ResultRecords
    from nova_engines.sources import Sources
    from nova_harness.engines.base import Engine, Starter
    from nova_harness.engines.deployment import Tell
    from nova_testbed.hosts import Hosts

BROKER, PRODUCER = "nova_kafka_broker", "nova_kafka_producer"
COMPLAINT = "nova_kafka.produce: "
# Least time between two looks at the broker; each costs broker and coordinator some CPU.
SAMPLE_SECONDS = 2.0


class KafkaDeployment(EngineDeployment):
    """A broker, and the producers that send to it.

    Attributes:
        broker: its configuration.
        on: name of its host.
    """

    ENGINE = "Kafka"
    NAME = "kafka"
    PROCESSES = (BROKER, PRODUCER)

    def __init__(self, hosts: Hosts, on: str = "") -> None:
        """Configure it.

        Args:
            hosts: connected; the inventory's with addresses.
            on: name of the broker's host; the sink's by default.

        Raises:
            NovaError: for real hosts, or an unknown host.
        """
        super().__init__(hosts)
        inventory = hosts.inventory
        if not inventory.virtual:
            raise NovaError(
                f"inventory {inventory.name}: experiments through Kafka need virtual hosts, whose "
                "producers share this machine's Python"
            )
        self.on = on or self.sink
        host = next((one for one in inventory.hosts if one.name == self.on), None)
        if host is None:
            known = ", ".join(one.name for one in inventory.hosts)
            raise NovaError(f"broker: there is no host {self.on!r}; there are {known}")
        libraries = str(self.home_path / "lib")
        self.broker = Broker(host.address, self.work(self.on), libraries, cpu=host.cpu)

    @property
    def version(self) -> str:
        """Of the broker."""
        return VERSION

    @property
    def home_path(self) -> Path:
        """Of the broker's jars."""
        return broker_home().path

    @property
    def runtime_files(self) -> Sequence[Path]:
        """The jars, and the producers' Python packages."""
        import kafka

        import nova_kafka

        python = [Path(sys.executable), Path(str(nova_kafka.__file__)), Path(str(kafka.__file__))]
        return [*broker_home().jars, *python]

    def check(self) -> None:
        """Whether Kafka's jars and its client are installed here."""
        broker_home().check()
        topics.kafka()

    def files(self, name: str) -> dict[str, str]:
        """The broker's configuration, on its host."""
        return self.broker.files() if name == self.on else {}

    def commands(self, name: str) -> dict[str, str]:
        """The broker, on its host."""
        return {BROKER: self.broker.command()} if name == self.on else {}

    def wait(self, timeout_s: float) -> None:
        """Until the broker answers."""
        topics.wait_ready(self.broker.servers, timeout_s)

    # --- producers ------------------------------------------------------------------------------

    def produce(self, sources: Sources, ids: Mapping[str, Sequence[str]]) -> None:
        """Replay sources into the broker.

        Args:
            sources: of kind ``kafka``.
            ids: theirs, by host.
        """
        with tempfile.TemporaryDirectory(prefix="nova-kafka-") as directory:
            file = Path(directory) / "sources.json"
            file.write_text(sources.to_json())

            def start(name: str) -> None:
                host, remote = self.hosts[name], f"{self.work(name)}/sources.json"
                host.put(file, remote)
                words = [sys.executable, "-P", "-m", "nova_kafka.produce", remote, *ids[name]]
                command = f"exec {shlex.join(words)}"
                host.start(
                    command, name=PRODUCER, log=f"{self.work(name)}/{PRODUCER}.out", keep=True
                )

            self.hosts.map(lambda host: start(host.name) if host.name in ids else None)

    def end_producers(self) -> None:
        """End producers that still send."""

        def end(name: str) -> None:
            for job in self.hosts[name].jobs(PRODUCER):
                job.stop(grace=0)
                job.discard()

        self.hosts.map(lambda host: end(host.name))

    def complaints(self) -> list[str]:
        """Errors of producers, a line each."""
        outputs = self.hosts.map(
            lambda host: (
                host.run(
                    f"cat {self.work(host.name)}/{PRODUCER}.out 2>/dev/null", check=False
                ).stdout
            )
        )
        return [
            f"{name}: {line.removeprefix(COMPLAINT)}"
            for name, text in outputs.items()
            for line in text.splitlines()
            if line.startswith(COMPLAINT)
        ]


class ReadingJob(Job, Protocol):
    """A job of an engine that can read Kafka."""

    @property
    def sources(self) -> Sources:
        """Its sources, with their start time."""
        ...

    def read_offsets(self) -> Mapping[tuple[str, int], int]:
        """Messages read per topic and partition."""
        ...


def through_kafka(engine: Engine, kafka: KafkaDeployment) -> Engine:
    """An engine whose sources read what producers on their hosts send to a broker.

    Args:
        engine: whose jobs can read Kafka (`ReadingJob`).
        kafka: the broker.
    """
    return cast("Engine", KafkaEngine(engine, kafka))


class KafkaEngine:
    """Delegates everything else to the engine.

    Attributes:
        engine: without Kafka.
        kafka: the broker.
    """

    # A warm-up would need producers, too.
    stays_warm = False

    def __init__(self, engine: Engine, kafka: KafkaDeployment) -> None:
        self.engine, self.kafka = engine, kafka

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def up(self, tell: Tell) -> None:
        """Start the engine and the broker in parallel."""
        self.kafka.up(tell, wait=False)
        self.engine.up(tell)
        self.kafka.await_up(tell)

    def close(self) -> None:
        """Close the engine, and end producers that still send."""
        self.engine.close()
        self.kafka.end_producers()

    def down(self) -> list[str]:
        """End the engine and the broker."""
        return sorted({*self.engine.down(), *self.kafka.down()})

    def start(self, flow: Flow, sources: Callable[[int], Sources], name: str) -> Job:
        """See `Engine.start`."""
        return self.start_by(self.engine.start, flow, sources, name)

    def start_by(
        self, start: Starter, flow: Flow, sources: Callable[[int], Sources], name: str
    ) -> Job:
        """Create the job's topics, start the job and then the producers.

        Args:
            start: starts a job that reads Kafka, as `Engine.start`.
            flow: as of `Engine.start`, as all that follow.
            sources: replays, which producers send.
            name: of the job.
        """
        servers, suffix = self.kafka.broker.servers, f"-{time.time_ns() // 1_000_000}"

        def read(start_ms: int) -> Sources:
            return through(sources(start_ms), servers, suffix=suffix)

        created = read(0).sources
        topics.create(servers, topics.topics_of(created))
        hosts: dict[str, list[str]] = {}
        for one in flow.of_kind(SOURCE):
            hosts.setdefault(one.node, []).append(one.source)
        with ExitStack() as undo:
            undo.callback(_drop, servers, created)
            job = cast("ReadingJob", start(flow, read, name))
            started = _KafkaJob(job, self.kafka)
            undo.callback(started.end)
            self.kafka.produce(job.sources, hosts)
            started.watch()
            undo.pop_all()
        return cast("Job", started)


def _drop(servers: str, sources: Sequence[Any]) -> None:
    """Drop sources' topics; one that cannot be dropped stays."""
    with suppress(NovaError):
        topics.delete(servers, sorted(topics.topics_of(sources)))


class _KafkaJob:
    """A job that reads from Kafka; delegates everything else to the engine's job.

    Attributes:
        samples: looks at the broker while producers send, by time since the epoch.
    """

    def __init__(self, job: ReadingJob, kafka: KafkaDeployment) -> None:
        self._job, self._kafka = job, kafka
        self.samples: list[Sample] = []
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)

    def watch(self) -> None:
        """Sample the broker from now on, until producers have finished or the job has ended."""
        self._watching.start()

    def _watch(self) -> None:
        w = self._job.sources
        partitions = [(one.topic, one.partition) for one in w.sources]
        begin = w.start_ms / 1000
        end = math.inf if w.count is None else begin + w.count / w.sources[0].rate
        while not self._over.wait(SAMPLE_SECONDS) and time.time() < end:
            if time.time() < begin:
                continue
            try:
                read = self._job.read_offsets()
                had = end_offsets(self._kafka.broker.servers, partitions)
            except NovaError:
                continue  # reported where the job is awaited
            self.samples.append(Sample(time.time(), had, read))

    def end(self) -> None:
        """End the job and its producers, and drop its topics."""
        try:
            self._job.end()
        finally:
            self._end_producers()

    def _end_producers(self) -> None:
        if self._over.is_set():
            return
        self._over.set()
        if self._watching.is_alive():
            self._watching.join()
        self._kafka.end_producers()
        _drop(self._kafka.broker.servers, self._job.sources.sources)

    def results(self, scratch: Path) -> ResultRecords:
        """Results that its sink has written.

        Raises:
            RunError: when a producer could not send everything.
        """
        complaints = self._kafka.complaints()
        if complaints:
            raise RunError(f"producer on {complaints[0]}")
        return self._job.results(scratch)
