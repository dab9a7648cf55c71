"""``nes-cli``: it places, starts and stops queries, and says what has become of them."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nova_core.errors import NovaError
from nova_engines.verification import FINISHED, MISSING, RUNNING, Row, Verification
from nova_nebulastream import topologies
from nova_nebulastream.explained import Explained, explained, rooms, verify
from nova_nebulastream.home import CLI, NesHome
from nova_nebulastream.queries import Query

# The hook in ``cpp/`` reads places from the file that this variable names.
PLACEMENT = "NOVA_NES_PLACEMENT"
TIMEOUT_S = 300.0
AT_ONCE = 2
FAILED, UNREACHABLE = "FAILED", "UNREACHABLE"
_STATES = {"Running": RUNNING, "Started": RUNNING, "Stopped": FINISHED, "Failed": FAILED}


@dataclass(frozen=True)
class Started:
    """A query that has been started.

    Attributes:
        query: as planned.
        topology: as ``nes-cli`` took it, YAML.
        dump: what it said of the places.
        id: its own name for the query.
        state: what it keeps of the query, JSON.
    """

    query: Query
    topology: str
    dump: str
    id: str = ""
    state: str = ""


@dataclass(frozen=True)
class Deployment:
    """Queries that run together: a job.

    Attributes:
        name: of the job.
        hosts: node of every worker.
        queries: in the order of the flow.
    """

    name: str
    hosts: dict[str, str]
    queries: tuple[Started, ...]


class Cli:
    """Runs ``nes-cli``.

    Args:
        home: has it.
    """

    def __init__(self, home: NesHome) -> None:
        self.program = home.program(CLI)

    def dump(self, topology: str, placement: str) -> str:
        """What it says of a query's operators and their workers, without starting it."""
        return self._run(topology, ["dump"], placement)[0]

    def start(self, topology: str, placement: str) -> tuple[str, str]:
        """Start a query: its id, and what `nes-cli` keeps of it."""
        printed, state = self._run(topology, ["start"], placement)
        return printed.split()[-1], state

    def stop(self, one: Started) -> None:
        """Stop a query."""
        self._run(one.topology, ["stop", one.id], "", {one.id: one.state})

    def status(self, one: Started) -> list[tuple[str, str, str]]:
        """Worker (empty for all of it), state and error of each part of a query."""
        text, _ = self._run(one.topology, ["status", one.id], "", {one.id: one.state})
        try:
            rows = json.loads(text[text.index("[") :])
            return [
                (
                    str(row.get("grpc_addr") or row.get("worker") or ""),
                    str(row["query_status"]),
                    str(row.get("error") or ""),
                )
                for row in rows
            ]
        except (ValueError, KeyError, AttributeError) as error:
            raise NovaError(f"{CLI} status: {text[:200]!r}: expected a list of states") from error

    def _run(
        self,
        topology: str,
        words: Sequence[str],
        placement: str,
        states: Mapping[str, str] | None = None,
    ) -> tuple[str, str]:
        """What it prints, and what it keeps of a query that it has started.

        Raises:
            NovaError: with its own words.
        """
        # It writes a log where it is started, and keeps queries in a directory of the user's.
        with tempfile.TemporaryDirectory(prefix="nova-nes-") as scratch:
            kept = Path(scratch) / "nebucli"
            kept.mkdir()
            for name, text in (states or {}).items():
                (kept / f"{name}.json").write_text(text, "utf-8")
            file = Path(scratch) / "topology.yaml"
            file.write_text(topology, "utf-8")
            env = {**os.environ, "XDG_STATE_HOME": scratch}
            env.pop(PLACEMENT, None)
            if placement:
                (Path(scratch) / "placement.txt").write_text(placement, "utf-8")
                env[PLACEMENT] = f"{scratch}/placement.txt"
            command = [str(self.program), "-t", str(file), *words]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, env=env, cwd=scratch, timeout=TIMEOUT_S
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise NovaError(f"{self.program}: {error}") from error
            if done.returncode:
                raise NovaError(f"{CLI} {words[0]}: {_last_words(done.stderr or done.stdout)}")
            files = [one.read_text("utf-8") for one in kept.glob("*.json")]
        return done.stdout, files[0] if files else ""


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "exception" in line.lower() or "error" in line.lower()]
    return (told or lines or ["without output"])[0][:500]


def fitted(
    cli: Cli,
    query: Query,
    document: Mapping[str, Any],
    addresses: Mapping[str, str],
) -> tuple[Started, Verification]:
    """A query's topology in which it is placed as planned, and how it is placed.

    Nova's hook in the engine does as it is told. Otherwise the engine has places of its own; where
    these are not the planned ones, workers get room for just the operators of the plan.

    Args:
        cli: to ask.
        query: as planned.
        document: its topology.
        addresses: of nodes.
    """
    placement = topologies.placement([query], addresses)
    hosts = {topologies.worker(addresses[node]): node for node in query.nodes}

    def asked(topology: Mapping[str, Any]) -> tuple[Started, Explained, Verification]:
        text = topologies.text(topology)
        dump = cli.dump(text, placement)
        read = explained(dump)
        return Started(query, text, dump), read, verify(query, read, hosts)

    started, read, found = asked(document)
    if not found.placed:
        started, _, found = asked(topologies.with_room(document, rooms(query, read), addresses))
    return started, found


def start(cli: Cli, wanted: Sequence[Started], addresses: Mapping[str, str]) -> list[Started]:
    """Start queries; all or none of them run.

    Raises:
        NovaError: naming the one that cannot be started.
    """
    running: list[Started] = []
    try:
        for one in wanted:
            placement = topologies.placement([one.query], addresses)
            try:
                name, state = cli.start(one.topology, placement)
            except NovaError as error:
                raise NovaError(f"{one.query.result}: {error}") from None
            running.append(replace(one, id=name, state=state))
    except BaseException as error:
        try:
            stop(cli, running)
        except NovaError as left:
            raise NovaError(f"{error}; and of those before it {left}") from error
        raise
    return running


def stop(cli: Cli, queries: Sequence[Started]) -> None:
    """Stop queries; those that have ended by themselves are none any more.

    Raises:
        NovaError: naming those that could not be stopped; all others have been.
    """
    failed: list[str] = []
    for one in queries:
        try:
            if any(state == RUNNING for state, _ in worker_states(cli, one).values()):
                cli.stop(one)
        except NovaError as error:
            failed.append(f"{one.query.result}: {error}")
    if failed:
        raise NovaError(
            f"{len(failed)} of {len(queries)} queries could not be stopped: {'; '.join(failed[:3])}"
        )


def worker_states(cli: Cli, one: Started) -> dict[str, tuple[str, str]]:
    """State and error of a query on each of its workers; that of all of it under ""."""
    worst = [FINISHED, RUNNING, UNREACHABLE, FAILED]
    states: dict[str, tuple[str, str]] = {}
    for worker, told, error in cli.status(one):
        state = _STATES.get(told, UNREACHABLE if "Err" in told or "Unr" in told else RUNNING)
        before = states.get(worker, (FINISHED, ""))
        states[worker] = max(before, (state, error), key=lambda each: worst.index(each[0]))
    return states


def verification(cli: Cli, deployment: Deployment) -> Verification:
    """Where the operators of a job run: by the dump, and by what its workers say."""
    rows: list[Row] = []
    notes: list[str] = []

    def looked(one: Started) -> dict[str, tuple[str, str]]:
        return worker_states(cli, one)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        all_states = list(pool.map(looked, deployment.queries))
    for one, states in zip(deployment.queries, all_states, strict=True):
        found = verify(one.query, explained(one.dump), deployment.hosts)
        notes += [found.note] if found.note else []
        of_node = {deployment.hosts.get(worker, worker): told for worker, told in states.items()}
        for row in found.rows:
            state, error = of_node.get(row.actual or "", (MISSING, ""))
            rows.append(replace(row, status=MISSING if row.actual is None else state))
            if error and error not in notes:
                notes.append(error)
    whole = [state for states in all_states for worker, (state, _) in states.items() if worker]
    state = next((each for each in (FAILED, UNREACHABLE, RUNNING) if each in whole), FINISHED)
    return Verification(tuple(rows), "; ".join(notes), state)
