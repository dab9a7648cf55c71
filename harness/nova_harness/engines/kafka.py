"""Kafka on the hosts of a test bed: a broker on one of them, producers where the sensors are."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nova_core.errors import NovaError
from nova_engines.flow import SOURCE
from nova_harness.engines.deployment import EngineDeployment
from nova_kafka import topics
from nova_kafka.broker import Broker
from nova_kafka.home import VERSION, broker_home

if TYPE_CHECKING:
    from nova_engines.flow import Flow
    from nova_engines.sources import Sources
    from nova_testbed.hosts import Hosts

BROKER, PRODUCER = "nova_kafka_broker", "nova_kafka_producer"
COMPLAINT = "nova_kafka.produce: "


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

    def produce(self, flow: Flow, sources: Sources) -> None:
        """Replay sources into the broker.

        Args:
            flow: says on which hosts they are, and the columns of readings.
            sources: of kind ``kafka``.
        """
        ids: dict[str, list[str]] = {}
        for one in flow.of_kind(SOURCE):
            ids.setdefault(one.node, []).append(one.source)
        with tempfile.TemporaryDirectory(prefix="nova-kafka-") as directory:

            def put(name: str, file: str, text: str) -> None:
                local = Path(directory) / f"{name}-{file}"
                local.write_text(text)
                self.hosts[name].put(local, f"{self.work(name)}/{file}")

            def start(name: str) -> None:
                host, work = self.hosts[name], self.work(name)
                there = []
                for number, one in enumerate(sources.sources):
                    if one.path is not None and one.source in ids[name]:
                        host.put(Path(one.path), f"{work}/{number}.tuples")
                        there.append(replace(one, path=f"{work}/{number}.tuples"))
                    else:
                        there.append(one)
                put(name, "sources.json", replace(sources, sources=tuple(there)).to_json())
                put(name, "flow.json", flow.to_json())
                words = [sys.executable, "-P", "-m", "nova_kafka.produce", f"{work}/sources.json"]
                words += [*ids[name], "--flow", f"{work}/flow.json"]
                command = f"exec {shlex.join(words)}"
                host.start(command, name=PRODUCER, log=f"{work}/{PRODUCER}.out", keep=True)

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
