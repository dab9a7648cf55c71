"""Topics: one for every logical stream, with a partition for every source of it."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from nova_core import extras
from nova_core.errors import NovaError
from nova_engines.sources import host_and_port

if TYPE_CHECKING:
    from nova_engines.sources import Source

RETRY_S = 0.2
CREATE_S = 30.0
CONNECT_S = 5.0
ASK_MS = 5000


def kafka() -> Any:
    """The module of kafka-python.

    Raises:
        NovaError: where it is not installed.
    """
    with extras.needed("Kafka"):
        import kafka
    # It also raises the important part of what it logs; the rest must not reach the terminal.
    logger = logging.getLogger("kafka")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return kafka


@contextmanager
def errors_named(servers: str, what: str) -> Iterator[None]:
    """Turn errors of Kafka's client into a `NovaError` that names the broker and the request."""
    try:
        yield
    except kafka().errors.KafkaError as error:
        raise NovaError(f"Kafka at {servers}: {what}: {error}") from error


@contextmanager
def consumer(servers: str, what: str) -> Iterator[Any]:
    """A consumer that commits nothing; errors as of `errors_named`."""
    options = {"bootstrap_servers": servers, "enable_auto_commit": False}
    with errors_named(servers, what), closing(kafka().KafkaConsumer(**options)) as client:
        yield client


def topics_of(sources: Sequence[Source]) -> dict[str, int]:
    """Topics that some sources read, and how many partitions each needs."""
    partitions: dict[str, int] = {}
    for one in sources:
        if one.kind == "kafka":
            partitions[one.topic] = max(partitions.get(one.topic, 0), one.partition + 1)
    return partitions


def wait_ready(servers: str, timeout_s: float, check: Callable[[], None] = lambda: None) -> None:
    """Wait until a broker answers.

    Args:
        servers: bootstrap servers.
        timeout_s: longest wait.
        check: called repeatedly; an exception from it ends the wait.

    Raises:
        NovaError: when it does not answer in time.
    """
    module = kafka()
    until = time.monotonic() + timeout_s
    while True:
        check()
        try:
            # The client would try with longer and longer pauses, and log each time.
            socket.create_connection(host_and_port(servers), CONNECT_S).close()
            with closing(_admin(module, servers)) as admin:
                admin.list_topics()
                return
        except (OSError, module.errors.KafkaError) as error:
            if time.monotonic() > until:
                raise NovaError(
                    f"Kafka's broker at {servers} does not answer after {timeout_s:g} s: {error}"
                ) from error
        time.sleep(RETRY_S)


def create(servers: str, topics: Mapping[str, int]) -> None:
    """Create empty topics, and wait until they can be written to.

    Args:
        servers: bootstrap servers.
        topics: number of partitions by name.

    Raises:
        NovaError: when the broker refuses, e.g. because a topic exists.
    """
    what = f"topics {', '.join(topics)}"
    with errors_named(servers, what), closing(_admin(kafka(), servers)) as admin:
        from kafka.admin import NewTopic

        admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()])
    with consumer(servers, what) as client:
        until = time.monotonic() + CREATE_S
        for name, count in topics.items():
            while len(client.partitions_for_topic(name) or ()) < count:
                if time.monotonic() > until:
                    raise NovaError(f"Kafka: topic {name}: not there after {CREATE_S:g} s")
                time.sleep(RETRY_S)


def delete(servers: str, topics: Sequence[str]) -> None:
    """Drop topics and all that is in them.

    Raises:
        NovaError: when the broker refuses.
    """
    what = f"topics {', '.join(topics)}"
    with errors_named(servers, what), closing(_admin(kafka(), servers)) as admin:
        admin.delete_topics(list(topics))


def _admin(module: Any, servers: str) -> Any:
    return module.KafkaAdminClient(bootstrap_servers=servers, bootstrap_timeout_ms=ASK_MS)
