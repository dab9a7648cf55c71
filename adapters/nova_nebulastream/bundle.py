"""A plan as files for NebulaStream, and what has been started from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from nova_core.errors import NovaError
from nova_core.io.safe_files import write_text
from nova_core.io.syntax import parse
from nova_engines.documents import from_json, read, to_json
from nova_engines.names import OWN_JOBS
from nova_engines.verification import Verification
from nova_nebulastream import client, topologies
from nova_nebulastream.client import Cli, Deployment, Started
from nova_nebulastream.queries import Query, identifier

PLANNED, STARTED = "queries.json", "started.json"


@dataclass(frozen=True)
class Planned:
    """The queries of a bundle.

    Attributes:
        addresses: of their nodes.
        queries: in the order of the plan.
    """

    addresses: dict[str, str]
    queries: tuple[Query, ...]


def file_name(query: Query, number: int) -> str:
    """Of a query's topology, without suffix."""
    return f"{number:04d}-{identifier(query.result)}"


class Bundle:
    """A directory that ``nova translate --engine nebulastream`` has written.

    It is also what `nova_harness.engines.nebulastream` reads of jobs that somebody has started.

    Args:
        directory: of the bundle.

    Raises:
        NovaError: where it is none.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.planned = read(directory / PLANNED, Planned)
        self.name = OWN_JOBS + directory.absolute().name
        self._started = directory / STARTED

    def topology(self, number: int) -> dict[str, Any]:
        """The topology of a query, as its file has it: sources and sinks may have been changed."""
        name = f"{file_name(self.planned.queries[number], number)}.yaml"
        path = self.directory / "topologies" / name
        document = parse(path, NovaError)
        if not isinstance(document, dict) or not isinstance(document.get("workers"), list):
            raise NovaError(f"{path}: expected the topology of a query, with workers")
        return document

    def hosts(self) -> dict[str, str]:
        """Node of every worker."""
        return {topologies.worker(at): node for node, at in self.planned.addresses.items()}

    def fitted(self, cli: Cli, report: Callable[[int], None]) -> list[tuple[Started, Verification]]:
        """All queries with workers' room, and where ``nes-cli`` places them.

        Args:
            cli: to ask.
            report: called with the number of queries so far.
        """
        found = []
        for number, query in enumerate(self.planned.queries):
            document = self.topology(number)
            found.append(client.fitted(cli, query, document, self.planned.addresses))
            report(number + 1)
        return found

    # --- what runs ------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The bundle's job, where it has been started."""
        return [self.name] if self._started.exists() else []

    def read(self, job: str) -> Deployment:
        """What has been started.

        Args:
            job: its name, which the bundle knows.

        Raises:
            NovaError: where nothing has been.
        """
        if not self._started.exists():
            raise NovaError(f"{self.directory}: nothing has been started from it")
        return from_json(self._started.read_text("utf-8"), Deployment, str(self._started))

    def write(self, job: Deployment) -> None:
        """Note what has been started."""
        write_text(self._started, to_json(job))

    def forget(self, job: str) -> None:
        """Note that it has been stopped."""
        self._started.unlink(missing_ok=True)

    def start(self, cli: Cli, wanted: Sequence[Started], before: Bundle | None) -> tuple[int, int]:
        """Start queries in place of those of another bundle; what is the same there goes on.

        Args:
            cli: to start them.
            wanted: of this bundle, as placed.
            before: the bundle that is replaced; None for none.

        Returns:
            How many go on, and how many have been stopped.

        Raises:
            NovaError: naming the query that cannot be started; those of the other bundle that go
                on do so all the same, others have ended.
        """
        running = {} if before is None else {_same(one): one for one in before.read("").queries}
        kept = {_same(one): running[_same(one)] for one in wanted if _same(one) in running}
        ended = [one for key, one in running.items() if key not in kept]
        client.stop(cli, ended)
        new = [one for one in wanted if _same(one) not in kept]
        try:
            started = iter(client.start(cli, new, self.planned.addresses))
        except BaseException:
            if before is not None:
                left = tuple(running[key] for key in kept)
                before.write(Deployment(before.name, before.hosts(), left))
            raise
        all_of_them = tuple(
            replace(kept[_same(one)], query=one.query) if _same(one) in kept else next(started)
            for one in wanted
        )
        self.write(Deployment(self.name, self.hosts(), all_of_them))
        if before is not None and before.directory.absolute() != self.directory.absolute():
            before.forget("")
        return len(kept), len(ended)


def _same(one: Started) -> str:
    """What two queries have in common that do the same in the same places."""
    document = yaml.safe_load(one.topology)
    text = json.dumps([document, one.query.placed], sort_keys=True)
    return text.replace(one.query.name, "")
