"""Experiments on Flink that reads from Kafka."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from nova_core.errors import NovaError
from nova_flink.dataflow import Dataflow, from_plan
from nova_harness.experiment.engine import Lead, RunError
from nova_harness.experiment.on_flink import RESULTS, FlinkEngine, FlinkJob, ready_home
from nova_kafka import topics
from nova_kafka.measures import Sample, end_offsets

if TYPE_CHECKING:
    from pathlib import Path

    from nova_core.model.plan import Plan
    from nova_flink.client import Client
    from nova_flink.results import ResultRecords
    from nova_flink.workload import Workload
    from nova_harness.deployment import Tell
    from nova_harness.experiment.engine import Engine, Opener
    from nova_harness.flink_deployment import FlinkDeployment
    from nova_harness.kafka_deployment import KafkaDeployment
    from nova_testbed.hosts import Hosts

# Nothing warms up before the first job.
FIRST_LEAD_SECONDS = 20.0
# Looks at the broker are so far apart at least; each costs broker and coordinator some CPU.
SAMPLE_SECONDS = 2.0


def prepare(tell: Tell, broker: str = "") -> Opener:
    """See `nova_harness.experiment.engine.prepare`.

    Args:
        tell: is told what is being done.
        broker: name of the broker's host; the sink's by default.

    Raises:
        NovaError: when Flink, its connector or Kafka is not installed.
    """
    from nova_kafka.home import broker_home, connectors_home

    home, connectors = ready_home(tell), connectors_home()
    connectors.check()
    broker_home().check()

    @contextmanager
    def opener(hosts: Hosts, tell: Tell, keep: bool) -> Iterator[Engine]:
        from nova_flink.client import Client
        from nova_harness.flink_deployment import FlinkDeployment
        from nova_harness.kafka_deployment import KafkaDeployment

        kafka = KafkaDeployment(hosts, broker)
        deployment = FlinkDeployment(hosts, home, extra_jars=connectors.jars)
        try:
            kafka.up(tell, wait=False)
            deployment.up(tell)
            kafka.await_up(tell)
            with Client(home, deployment.rest.url, connectors.jars) as client:
                yield CarriedEngine(deployment, client, kafka)
        finally:
            kafka.end_producers()
            if not keep:
                tell("ending Flink and Kafka")
                deployment.down()
                kafka.down()

    return opener


class CarriedEngine(FlinkEngine):
    """Flink, with sources that read what producers on their hosts send to a broker."""

    # Producers would have to send, too.
    stays_warm = False

    def __init__(self, deployment: FlinkDeployment, client: Client, kafka: KafkaDeployment) -> None:
        super().__init__(deployment, client)
        self.kafka = kafka
        self.lead = Lead(FIRST_LEAD_SECONDS)

    def start(self, plan: Plan, workload: Callable[[int], Workload], name: str) -> CarriedJob:
        """Make topics, submit a job and start producers."""
        made = self._carried(workload(self.lead.start_ms()))
        dataflow = from_plan(plan, plan.problem, made)
        topics.create(self.kafka.broker.servers, topics.topics_of(made.sources))
        job = self.client.submit(dataflow, made, self.deployment.result_file(RESULTS), name)
        started = CarriedJob(self, job, dataflow, made)
        sources = plan.problem.sources
        hosts: dict[str, list[str]] = {}
        for source, node in zip(sources.ids.tolist(), sources.node.tolist(), strict=True):
            hosts.setdefault(str(plan.problem.nodes.ids[node]), []).append(source)
        try:
            self.kafka.produce(made, hosts)
            started.watch()
        except BaseException:
            started.end()
            raise
        return started

    def _carried(self, workload: Workload) -> Workload:
        """The workload from topics of its own."""
        placed = topics.partitions_of([one.stream for one in workload.sources])
        run, servers = workload.start_ms, self.kafka.broker.servers
        return replace(
            workload,
            sources=tuple(
                replace(
                    one, kind="kafka", address=servers, topic=f"{topic}-{run}", partition=number
                )
                for one, (topic, number) in zip(workload.sources, placed, strict=True)
            ),
        )


class CarriedJob(FlinkJob):
    """A job that reads from Kafka.

    Attributes:
        samples: looks at the broker while producers send, on the clock of the epoch.
    """

    engine: CarriedEngine

    def __init__(
        self, engine: CarriedEngine, name: str, dataflow: Dataflow, workload: Workload
    ) -> None:
        super().__init__(engine, name, dataflow, workload)
        self.samples: list[Sample] = []
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)

    @property
    def _partitions(self) -> Sequence[tuple[str, int]]:
        return [(one.topic, one.partition) for one in self.workload.sources]

    def watch(self) -> None:
        """Look at the broker from now on, until producers are done or the job is ended."""
        self._watching.start()

    def _watch(self) -> None:
        w = self.workload
        begin = w.start_ms / 1000
        end = math.inf if w.count is None else begin + w.count / w.sources[0].rate
        while not self._over.wait(SAMPLE_SECONDS) and time.time() < end:
            if time.time() < begin:
                continue
            try:
                read = self.rest.read_offsets(self.name)
                had = end_offsets(self.engine.kafka.broker.servers, self._partitions)
            except NovaError:
                continue  # whoever waits for the job is told
            self.samples.append(Sample(time.time(), had, read))

    def end(self) -> None:
        """End the job and its producers, and drop its topics."""
        super().end()
        if self._over.is_set():
            return
        self._over.set()
        if self._watching.is_alive():
            self._watching.join()
        self.engine.kafka.end_producers()
        try:
            names = sorted(topics.topics_of(self.workload.sources))
            topics.delete(self.engine.kafka.broker.servers, names)
        except NovaError:
            return

    def results(self, scratch: Path) -> ResultRecords:
        """What its sink has written.

        Raises:
            RunError: when a producer could not send all.
        """
        complaints = self.engine.kafka.complaints()
        if complaints:
            raise RunError(f"producer on {complaints[0]}")
        return super().results(scratch)
