"""What a run through Kafka starts and ends beside its job."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nova_core.errors import NovaError
from nova_engines.flow import Flow, Operator
from nova_engines.sources import Source, Sources
from nova_harness.engines.base import ReadingJob, RunError
from nova_harness.experiment import feed as feeds
from nova_harness.experiment.feed import Feed, KafkaFeed, feed_of, topics_for
from nova_testbed.hosts import Hosts
from nova_testbed.inventory import read_inventory

FLOW = Flow(
    (
        Operator("source a", "source1", "source", source="a"),
        Operator("source b", "source1", "source", source="b"),
        Operator("join", "sink", "join", ("source a",), ("source b",)),
        Operator("sink", "sink", "sink", ("join",)),
    )
)
REPLAYS = Sources(
    (Source("a", 10, stream="left", values=(1,)), Source("b", 10, stream="right", values=(2,)))
)


class Job(SimpleNamespace):
    """One that has read two messages of each source."""

    name = document = "job"
    await_running = verify = look = counters = operators = results = lambda *_: None

    def read_offsets(self) -> dict[tuple[str, int], int]:
        return {(one.topic, one.partition): 2 for one in self.sources.sources}

    def end(self) -> None:
        self.did.append("job ended")


class Kafka:
    """A deployment that notes what is asked of it."""

    broker = SimpleNamespace(servers="broker:9092")

    def __init__(self, did: list[Any]) -> None:
        self.did = did
        self.lines: list[str] = []
        self.fails = False

    def produce(self, flow: Flow, sources: Sources) -> None:
        self.did.append(("produce", flow is FLOW, sources.kinds))
        if self.fails:
            raise NovaError("no Python there")

    def end_producers(self) -> None:
        self.did.append("producers ended")

    def complaints(self) -> list[str]:
        return self.lines


@pytest.fixture
def did(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was done, in order."""
    did: list[Any] = []
    monkeypatch.setattr("nova_kafka.topics.create", lambda _, made: did.append(sorted(made)))
    monkeypatch.setattr("nova_kafka.topics.delete", lambda _, names: did.append("topics dropped"))
    monkeypatch.setattr(
        "nova_kafka.measures.end_offsets", lambda _, partitions: dict.fromkeys(partitions, 3)
    )
    monkeypatch.setattr(feeds, "SAMPLE_SECONDS", 0.01)
    return did


@pytest.fixture
def kafka(did: list[Any]) -> Kafka:
    return Kafka(did)


@pytest.fixture
def through(kafka: Kafka) -> KafkaFeed:
    inventory = read_inventory("virtual-8")
    hosts = [replace(host, address=f"10.0.0.{i}") for i, host in enumerate(inventory.hosts, 1)]
    found = feed_of("kafka", Hosts(replace(inventory, hosts=tuple(hosts))), "worker1")
    assert isinstance(found, KafkaFeed) and found.kafka.on == "worker1"
    found.kafka = cast("Any", kafka)
    return found


def starting(did: list[Any]) -> Callable[[Flow, Callable[[int], Sources], str], Any]:
    """Starts jobs whose sources begin now."""

    def start(flow: Flow, sources: Callable[[int], Sources], name: str) -> Any:
        did.append(name)
        job = Job(sources=sources(round(time.time() * 1000)), did=did)
        assert isinstance(job, ReadingJob)
        return job

    return start


def test_a_run_has_topics_producers_and_samples_of_its_own(
    through: KafkaFeed, kafka: Kafka, did: list[Any]
) -> None:
    job: Any = through.start(starting(did), FLOW, lambda ms: replace(REPLAYS, start_ms=ms), "one")
    (left, right), *others = did
    assert others == ["one", ("produce", True, {"kafka"})]
    assert [one.kind for one in job.sources.sources] == ["kafka", "kafka"]
    assert [one.topic for one in job.sources.sources] == [left, right]
    assert left.startswith("left-") and right.startswith("right-")
    until = time.monotonic() + 20
    while not through.samples and time.monotonic() < until:
        time.sleep(0.01)
    sample = through.samples[0]
    assert sample.backlog((left, 0)) == sample.backlog((right, 0)) == 1
    job.end()
    through.end()
    through.end()
    assert did[3:] == ["job ended", "producers ended", "topics dropped"]
    through.check_sent()
    kafka.lines = ["source1: Kafka: a: cannot be sent"]
    with pytest.raises(RunError, match="producer on source1: Kafka: a: cannot be sent"):
        through.check_sent()


def test_topics_are_streams_with_names_that_kafka_takes() -> None:
    streams = ["süd", "s_d", "süd", "", "x" * 300]
    made = tuple(Source(f"ö{i}", 1, stream=s, values=(1,)) for i, s in enumerate(streams))
    found = list(topics_for(Sources(made), 1234).values())
    assert found == [
        ("s_d-0-1234", 0),
        ("s_d-1-1234", 0),
        ("s_d-0-1234", 1),
        ("_3-2-1234", 0),
        ("x" * 200 + "-3-1234", 0),
    ]


def test_nothing_stays_of_a_run_that_cannot_start(
    through: KafkaFeed, kafka: Kafka, did: list[Any]
) -> None:
    kafka.fails = True
    with pytest.raises(NovaError, match="no Python there"):
        through.start(starting(did), FLOW, lambda ms: REPLAYS, "one")
    assert did[3:] == ["job ended", "producers ended", "topics dropped"]
    did.clear()

    def refuse(flow: Flow, sources: Callable[[int], Sources], name: str) -> Any:
        raise NovaError("refused")

    with pytest.raises(NovaError, match="refused"):
        through.start(refuse, FLOW, lambda ms: REPLAYS, "two")
    assert did[1:] == ["topics dropped"]


def test_without_a_broker_a_job_is_only_started(did: list[Any]) -> None:
    direct = feed_of("direct", Hosts(read_inventory("virtual-8")))
    assert type(direct) is Feed and direct.samples is None
    job: Any = direct.start(starting(did), FLOW, lambda ms: REPLAYS, "one")
    assert job.sources is REPLAYS
    with direct.running(print, keep=False):
        direct.await_up(print)
        direct.end()
        direct.check_sent()
    assert did == ["one"]
