"""Sends requests to nimbus' Thrift interface through Storm's own client."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nova_core.errors import NovaError
from nova_engines.installing import java
from nova_storm.configuration import NIMBUS_PORT, java_command
from nova_storm.home import EXTENSION, StormHome

TIMEOUT_S = 60
# Longest wait of one request; the caller may repeat it.
LONGEST_WAIT_S = 30.0
CLIENT_MB = 128


class StormError(NovaError):
    """Storm does not answer, or refuses."""


@dataclass(frozen=True)
class Nimbus:
    """A client of nimbus.

    Attributes:
        home: the engine home on this machine.
        host: of nimbus.
        port: of its Thrift interface.
        java: the program.
    """

    home: StormHome
    host: str
    port: int
    java: str

    @classmethod
    def at(cls, address: str) -> Nimbus:
        """The one that answers at HOST[:PORT], with this machine's Storm and Java.

        Raises:
            NovaError: for another form.
        """
        host, _, port = address.partition(":")
        if not host or (port and not port.isdecimal()):
            raise NovaError(f"address {address!r}: nimbus: expected HOST or HOST:PORT")
        return cls(StormHome.default(), host, int(port or NIMBUS_PORT), java("Storm"))

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{self.host}:{self.port}"

    def status(
        self, within_s: float = 0.0, supervisors: int = 0, running: str = ""
    ) -> dict[str, Any]:
        """``supervisors`` and ``topologies``, these with where each executor runs.

        Args:
            within_s: how long the Java program, which takes a second to start, waits for both:
            supervisors: number of them that must have registered.
            running: name of a topology, all executors of which must run.

        Raises:
            StormError: when nimbus does not answer.
        """
        until: list[str] = []
        if within_s > 0:
            within_s = min(within_s, LONGEST_WAIT_S)
            until = [f"{within_s:g}", str(supervisors), *([running] if running else [])]
        answer: dict[str, Any] = json.loads(self._ask("status", *until))
        return answer

    def kill(self, topology: str) -> None:
        """End a topology.

        Raises:
            StormError: when there is none of that name.
        """
        self._ask("kill", topology)

    def rebalance(self, topology: str, placement: Mapping[str, str], workers: int) -> None:
        """Reschedule a running topology by a placement that nimbus keeps.

        Args:
            topology: its name.
            placement: node of every component.
            workers: how many it gets.

        Raises:
            StormError: when there is none of that name, or nimbus refuses.
        """
        self._ask("rebalance", topology, json.dumps(dict(placement)), str(workers))

    def submit(self, document: Path, start_ms: int | None = None) -> None:
        """Submit a topology of Flux.

        Args:
            document: the YAML file.
            start_ms: when sources without a start begin, ms since the epoch.

        Raises:
            StormError: when Flux or nimbus refuses it.
        """
        environment = dict(os.environ)
        if start_ms is not None:
            environment["NOVA_START_MS"] = str(start_ms)
        self._java(["org.apache.storm.flux.Flux", "-e", "-n", "-q", str(document)], environment)

    def _ask(self, *arguments: str) -> str:
        output = self._java(["nova.storm.Ask", self.host, str(self.port), *arguments], None)
        # Storm's client may log in front of the answer.
        return output.strip().rpartition("\n")[2]

    def _java(self, arguments: Sequence[str], environment: dict[str, str] | None) -> str:
        self.home.check()
        command = client_command(str(self.home.path), self.host, self.port, self.java)
        try:
            completed = subprocess.run(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env=environment,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise StormError(f"nimbus at {self.address}: no answer in {TIMEOUT_S} s") from error
        if completed.returncode:
            raise StormError(f"nimbus at {self.address}: {_reason(completed.stderr)}")
        return completed.stdout


def client_command(home: str, host: str, port: int, java: str) -> list[str]:
    """Words of a command: Java with Storm's client, to be followed by a class and arguments."""
    options = [
        f'-Dstorm.options=nimbus.seeds=["{host}"],nimbus.thrift.port={port}',
        f"-Dstorm.jar={home}/extlib-daemon/{EXTENSION}",
    ]
    return java_command(home, java, CLIENT_MB, options)


def _reason(output: str) -> str:
    """The innermost cause in the output of a failed Java program, in a line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    thrown = [line for line in lines if line.startswith("Exception in thread")]
    chosen = (causes or thrown or lines or ["it says nothing"])[-1]
    for before in ("Caused by: ", 'Exception in thread "main" '):
        chosen = chosen.removeprefix(before)
    return chosen
