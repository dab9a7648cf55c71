"""How the sources of a run get their tuples: by themselves, or from producers through a broker."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from nova_core.errors import NovaError
from nova_engines.sources import KAFKA, partitions_of, through
from nova_harness.engines.base import ReadingJob, RunError

if TYPE_CHECKING:
    from nova_engines.flow import Flow
    from nova_engines.sources import Sources
    from nova_harness.engines.base import Job, Starter
    from nova_harness.engines.deployment import Tell
    from nova_kafka.measures import Sample
    from nova_testbed.hosts import Hosts

DIRECT = "direct"
TRANSPORTS = (DIRECT, KAFKA)
# Least time between two looks at the broker; each costs broker and coordinator some CPU.
SAMPLE_SECONDS = 2.0
# Kafka's names of topics have up to 249 of the other characters.
ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")
MOST_LETTERS = 200


def check(transport: str) -> None:
    """Whether what a transport needs beside the engine is installed on this machine.

    Raises:
        NovaError: saying what to do.
    """
    if transport == KAFKA:
        from nova_kafka.home import broker_home

        broker_home().check()


def feed_of(transport: str, hosts: Hosts, broker: str = "") -> Feed:
    """The feed of an experiment's transport; nothing is started yet.

    Args:
        transport: one of `TRANSPORTS`.
        hosts: connected; the inventory's with addresses.
        broker: name of the broker's host; the sink's by default.

    Raises:
        NovaError: for hosts that cannot have a broker or producers.
    """
    return KafkaFeed(hosts, broker) if transport == KAFKA else Feed()


class Feed:
    """Sources that need no feed: their engine makes the tuples.

    Attributes:
        samples: looks at the broker while producers sent for the last job; None without a broker.
    """

    samples: Sequence[Sample] | None = None

    @contextmanager
    def running(self, tell: Tell, *, keep: bool) -> Iterator[None]:
        """Have its processes on the hosts inside the block, and afterwards if ``keep``.

        They are only started then, so that an engine starts beside them; see `await_up`.

        Raises:
            NovaError: naming the host that cannot run them.
        """
        yield

    def await_up(self, tell: Tell) -> None:
        """Wait for its processes.

        Raises:
            NovaError: naming what does not answer.
        """

    def start(
        self, start: Starter, flow: Flow, sources: Callable[[int], Sources], name: str
    ) -> Job:
        """Start a job, and what its sources need.

        Args:
            start: starts it, as `Engine.start`.
            flow: as of `Engine.start`, as all that follow.
            sources: those that make their tuples themselves.
            name: of the job.

        Raises:
            NovaError: when the job or a producer cannot be started; then nothing of them runs.
        """
        return start(flow, sources, name)

    def end(self) -> None:
        """End what was started with the last job, which has ended."""

    def check_sent(self) -> None:
        """Check that the last job's sources could get everything.

        Raises:
            RunError: when a producer could not send everything.
        """


class KafkaFeed(Feed):
    """A broker on one of the hosts, and producers where the sensors are.

    Each job has topics of its own.

    Attributes:
        kafka: the broker and the producers.
    """

    def __init__(self, hosts: Hosts, broker: str) -> None:
        from nova_harness.engines.kafka import KafkaDeployment

        self.kafka = KafkaDeployment(hosts, broker)
        self.samples: list[Sample] = []
        self._undo = ExitStack()

    @contextmanager
    def running(self, tell: Tell, *, keep: bool) -> Iterator[None]:
        """See `Feed.running`."""
        try:
            self.kafka.up(tell, wait=False)
            yield
        finally:
            try:
                self.kafka.end_producers()
            finally:
                if not keep:
                    self.kafka.down()

    def await_up(self, tell: Tell) -> None:
        """See `Feed.await_up`."""
        self.kafka.await_up(tell)

    def start(
        self, start: Starter, flow: Flow, sources: Callable[[int], Sources], name: str
    ) -> Job:
        """See `Feed.start`."""
        from nova_kafka import topics

        servers, now_ms = self.kafka.broker.servers, time.time_ns() // 1_000_000

        def read(start_ms: int) -> Sources:
            given = sources(start_ms)
            return through(given, servers, topics_for(given, now_ms))

        partitions = topics.topics_of(read(0).sources)
        topics.create(servers, partitions)
        with ExitStack() as undo:
            undo.callback(self._drop, sorted(partitions))
            job = start(flow, read, name)
            undo.callback(self.kafka.end_producers)
            with ExitStack() as running:
                running.callback(job.end)
                assert isinstance(job, ReadingJob)
                self.kafka.produce(flow, job.sources)
                running.pop_all()
            sampling = _Sampling(job, servers)
            undo.callback(sampling.end)
            sampling.start()
            self.samples = sampling.samples
            self._undo = undo.pop_all()
        return job

    def _drop(self, names: Sequence[str]) -> None:
        """Drop topics; one that cannot be dropped stays."""
        from nova_kafka import topics

        with suppress(NovaError):
            topics.delete(self.kafka.broker.servers, names)

    def end(self) -> None:
        """See `Feed.end`."""
        self._undo.close()

    def check_sent(self) -> None:
        """See `Feed.check_sent`."""
        complaints = self.kafka.complaints()
        if complaints:
            raise RunError(f"producer on {complaints[0]}")


def topics_for(sources: Sources, now_ms: int) -> dict[str, tuple[str, int]]:
    """Topic and partition of every source, in topics that no other job has.

    A topic is a logical stream, and named after it as far as Kafka allows.

    Args:
        sources: any.
        now_ms: ms since the epoch.
    """
    placed = partitions_of([one.stream or one.source for one in sources.sources])
    numbers = {stream: n for n, stream in enumerate(dict.fromkeys(stream for stream, _ in placed))}
    names = {
        stream: f"{ILLEGAL.sub('_', stream)[:MOST_LETTERS]}-{n}-{now_ms}"
        for stream, n in numbers.items()
    }
    return {
        one.source: (names[stream], number)
        for one, (stream, number) in zip(sources.sources, placed, strict=True)
    }


class _Sampling(threading.Thread):
    """Looks at the broker, until producers have finished or it is ended.

    Attributes:
        samples: by time since the epoch.
    """

    def __init__(self, job: ReadingJob, servers: str) -> None:
        super().__init__(daemon=True)
        self._job, self._servers = job, servers
        self.samples: list[Sample] = []
        self._over = threading.Event()

    def run(self) -> None:
        """Sample from the sources' start on."""
        from nova_kafka.measures import Sample, end_offsets

        sources = self._job.sources
        partitions = [(one.topic, one.partition) for one in sources.sources]
        begin = sources.start_ms / 1000
        end = math.inf if sources.count is None else begin + sources.count / sources.sources[0].rate
        while not self._over.wait(SAMPLE_SECONDS) and time.time() < end:
            if time.time() < begin:
                continue
            try:
                read = self._job.read_offsets()
                had = end_offsets(self._servers, partitions)
            except NovaError:
                continue  # reported where the job is awaited
            self.samples.append(Sample(time.time(), had, read))

    def end(self) -> None:
        """Stop, after the current look."""
        self._over.set()
        self.join()
