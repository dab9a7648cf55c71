"""A broker: one node in KRaft mode, for any host; and one on this machine for tests and trials."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nova_core.errors import NovaError
from nova_engines.installing import java
from nova_engines.local_processes import LocalProcesses, free_ports
from nova_engines.nodes import bracketed, write_files
from nova_kafka.home import broker_home
from nova_kafka.topics import wait_ready

# MiB of Java's heap. Messages are in the kernel's page cache, not here.
HEAP = 256
LEAST_HEAP = 128
START_S = 90.0
STOP_S = 20.0
# Every broker is a cluster by itself, so all can have the same cluster id.
CLUSTER = "Mk3yVJ4uQkyvmd5vDyr7jA"

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{address}:{controller_port}
listeners=PLAINTEXT://{address}:{port},CONTROLLER://{address}:{controller_port}
advertised.listeners=PLAINTEXT://{address}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}/data
auto.create.topics.enable=false
default.replication.factor=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=2
background.threads=2
num.recovery.threads.per.data.dir=1
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.io.buffer.size=131072
log.segment.bytes=67108864
# Messages have event times, which may be of last year: they would be deleted within minutes.
log.retention.ms=-1
"""
LOGGING = """\
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = Console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c - %m%n
"""


@dataclass(frozen=True)
class Broker:
    """A broker on a host.

    Attributes:
        address: what producers and engines reach it by; it listens there only.
        directory: on the host, absolute; holds configuration and messages, and nothing else.
        libraries: directory of its jars on the host (`nova engines install kafka`).
        port: for producers and engines.
        controller_port: for itself.
        heap: of Java, MiB.
        cpu: cores it may use; None is no limit.
        java: the Java program on the host.
    """

    address: str
    directory: str
    libraries: str
    port: int = 9092
    controller_port: int = 9093
    heap: int = HEAP
    cpu: float | None = None
    java: str = "java"

    def __post_init__(self) -> None:
        for what, path in (("directory", self.directory), ("libraries", self.libraries)):
            if not PurePosixPath(path).is_absolute():
                raise NovaError(f"Kafka: {what}: {path!r}: expected an absolute path")
        if self.heap < LEAST_HEAP:
            raise NovaError(f"Kafka: heap: {self.heap} MiB: expected {LEAST_HEAP} or more")

    @property
    def servers(self) -> str:
        """Kafka's bootstrap servers."""
        return f"{bracketed(self.address)}:{self.port}"

    def files(self) -> dict[str, str]:
        """The host's files: path relative to the directory, text."""
        return {
            "server.properties": PROPERTIES.format(
                address=bracketed(self.address),
                port=self.port,
                controller_port=self.controller_port,
                directory=self.directory,
            ),
            "log4j2.properties": LOGGING,
        }

    def command(self) -> str:
        """The shell command that formats an empty storage and starts the broker."""
        properties = f"{self.directory}/server.properties"
        options = [
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            "-Xss512k",
            f"-Dlog4j2.configurationFile={self.directory}/log4j2.properties",
            *("-cp", f"{self.libraries}/*"),
        ]
        # Optimizing takes seconds of a core, which a small host lacks.
        quick = ["-XX:TieredStopAtLevel=1"]
        compiler = quick if self.cpu is not None and self.cpu < 1 else []
        tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", properties]
        format_it = [self.java, *quick, "-Xmx64m", *options, *tool]
        become = [self.java, *compiler, f"-Xmx{self.heap}m", *options, "kafka.Kafka", properties]
        data = shlex.quote(f"{self.directory}/data")
        return f"rm -rf {data} && {shlex.join(format_it)} && exec {shlex.join(become)}"


@contextmanager
def local_broker(directory: Path, heap: int = HEAP, timeout_s: float = START_S) -> Iterator[Broker]:
    """A broker on this machine's loopback; its directory is removed at the end.

    Args:
        directory: is created.
        heap: of Java, MiB.
        timeout_s: until it must answer.

    Raises:
        EngineError: where Kafka is not installed, or no Java.
        NovaError: when it ends or does not answer in time; nothing of it is left running then.
    """
    home = broker_home()
    home.check()
    port = free_ports(2)
    broker = Broker(
        "127.0.0.1",
        str(directory.absolute()),
        str(home.path / "lib"),
        port,
        port + 1,
        heap,
        java=java("Kafka"),
    )
    directory.mkdir(parents=True)
    processes = LocalProcesses(STOP_S)
    try:
        write_files(broker.files(), directory)
        processes.run("Kafka's broker", broker.command(), directory / "broker.log")
        wait_ready(broker.servers, timeout_s, processes.check)
        yield broker
    finally:
        processes.stop()
        shutil.rmtree(directory)
