"""The REST interface of a 0.x coordinator: submits a plan's queries, and asks where they run."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from nova_core.errors import NovaError
from nova_engines.json_interface import JsonInterface
from nova_nebulastream.legacy import PREFIX, Deployment, Link, Query, changes

POLL_S = 0.1
STARTED = ("RUNNING", "FINISHED", "STOPPED", "COMPLETED")
FAILED = ("FAILED", "MARKED_FOR_FAILURE")
URL = re.compile(r"https?://[^/\s:]+:[0-9]{1,5}/?")
# An operator as 0.x prints plans: `|--FILTER(opId: 3 ...`, a line each.
OPERATOR = re.compile(r"^[^A-Za-z]*([A-Za-z_]+)\s*\(")


class NebulaStreamError(NovaError):
    """The coordinator does not answer, or refuses."""


@dataclass(frozen=True)
class Row:
    """One operator of one instance.

    Attributes:
        instance: its name in the plan.
        operator: ``JOIN``, ``FILTER`` or ``SOURCE``.
        planned: workers that it should run on, in order.
        actual: its workers in the execution plan, in order.
    """

    instance: str
    operator: str
    planned: tuple[int, ...]
    actual: tuple[int, ...]

    @property
    def ok(self) -> bool:
        """Whether it is where it should be, and nowhere else."""
        return self.planned == self.actual


@dataclass(frozen=True)
class Placed:
    """A query that was submitted.

    Attributes:
        query: the coordinator's number of it.
        rows: where its operators are.
    """

    query: int
    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether all of it is where it should be."""
        return all(row.ok for row in self.rows)

    def to_plain(self) -> dict[str, Any]:
        """As a JSON document."""
        return {"query": self.query, "ok": self.ok, "rows": [asdict(row) for row in self.rows]}


class Coordinator(JsonInterface):
    """A running coordinator, by the URL of its REST interface.

    Raises:
        NebulaStreamError: for a URL without host and port.
    """

    engine = "NebulaStream"
    server = "NebulaStream's coordinator"
    failure = NebulaStreamError

    def __init__(self, url: str) -> None:
        if not URL.fullmatch(url):
            raise NebulaStreamError(f"coordinator {url!r}: expected http://HOST:PORT")
        super().__init__(url)

    def reason(self, text: str) -> str:
        """The coordinator's error message."""
        try:
            return str(json.loads(text)["message"]).strip()
        except (ValueError, KeyError, TypeError, RecursionError):
            return text

    def topology(self) -> tuple[dict[int, str], set[Link]]:
        """All workers with their addresses, and parent and child of each link."""
        answer = self.request("GET", f"{PREFIX}/topology")
        with _read(f"{self.url}{PREFIX}/topology"):
            nodes = {int(one["id"]): str(one.get("ip_address", "")) for one in answer["nodes"]}
            # Data flows from a link's source, the child, to its target.
            links = {(int(one["target"]), int(one["source"])) for one in answer["edges"] or ()}
        return nodes, links

    def add_link(self, parent: int, child: int, latency_ms: int = 0) -> None:
        """Make a worker the parent of another one."""
        body = {"parentId": parent, "childId": child, "latency": latency_ms}
        self.request("POST", f"{PREFIX}/topology/addAsChild", body)

    def remove_link(self, parent: int, child: int) -> None:
        """Undo `add_link`, or what the coordinator linked when a worker joined."""
        body = {"parentId": parent, "childId": child}
        self.request("DELETE", f"{PREFIX}/topology/removeAsChild", body)

    def execute(self, query: Query) -> int:
        """Submit a query; its number."""
        answer = self.request("POST", f"{PREFIX}/query/execute-query", query.body)
        with _read(f"{self.url}{PREFIX}/query/execute-query"):
            return int(answer["queryId"])

    def status(self, query: int) -> str:
        """Of a query, as the coordinator calls it."""
        answer = self.request("GET", f"{PREFIX}/query/query-status?queryId={query}")
        with _read(f"{self.url}{PREFIX}/query/query-status"):
            return str(answer["status"])

    def stop(self, query: int) -> None:
        """Stop a query."""
        self.request("DELETE", f"{PREFIX}/query/stop-query?queryId={query}")

    def execution_plan(self, query: int) -> dict[int, list[str]]:
        """Operators of a query on each worker, as printed lines.

        Both layouts are read: ``executionNodes`` of 0.2 to 0.5, ``ExecutionNodes`` of 0.6.
        """
        answer = self.request("GET", f"{PREFIX}/query/execution-plan?queryId={query}")
        with _read(f"{self.url}{PREFIX}/query/execution-plan"):
            # Of a query without operators, null.
            return _operators(answer or {})

    def wait(self, query: int, timeout_s: float) -> None:
        """Wait until a query runs.

        Raises:
            NebulaStreamError: when it has failed, or does not run in time.
        """
        until = time.monotonic() + timeout_s
        while (status := self.status(query)) not in STARTED:
            if status in FAILED:
                raise NebulaStreamError(f"{self.url}: query {query} is {status}; see the log")
            if time.monotonic() > until:
                raise NebulaStreamError(
                    f"{self.url}: query {query} is {status} after {timeout_s:g} s; it was to run"
                )
            time.sleep(POLL_S)


def deploy(
    coordinator: Coordinator,
    deployment: Deployment,
    timeout_s: float = 60.0,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Placed]:
    """Submit every query with its links, and compare the execution plan with the plan.

    Args:
        coordinator: running, with all workers.
        deployment: what `nova translate` wrote.
        timeout_s: in which each query has to run.
        progress: called with each query, as a line of text.

    Raises:
        NebulaStreamError: when a worker is missing, a query is refused or fails. Queries that were
            submitted before are stopped.
    """
    nodes, links = coordinator.topology()
    missing = [f"{node} ({id_})" for node, id_ in deployment.workers.items() if id_ not in nodes]
    if missing:
        raise NebulaStreamError(
            f"{coordinator.url}: no worker {', '.join(missing)}; there are "
            f"{', '.join(str(number) for number in sorted(nodes)) or 'none'}"
        )
    placed: list[Placed] = []
    running: list[int] = []
    try:
        for query in deployment.queries:
            added, removed = changes(links, query.links)
            for parent, child, latency in added:
                coordinator.add_link(parent, child, latency)
            for parent, child in removed:
                coordinator.remove_link(parent, child)
            links = (links | {(parent, child) for parent, child, _ in added}) - set(removed)
            running.append(coordinator.execute(query))
            coordinator.wait(running[-1], timeout_s)
            placed.append(Placed(running[-1], verify(coordinator, running[-1], query)))
            progress(f"{query.instance}: query {running[-1]}")
    except BaseException:
        for number in running:
            _stop_quietly(coordinator, number)
        raise
    return placed


def verify(coordinator: Coordinator, number: int, query: Query) -> tuple[Row, ...]:
    """Compare where a query's operators are with where they should be."""
    execution_plan = coordinator.execution_plan(number)
    planned = {
        "JOIN": (query.join,),
        "FILTER": query.filters,
        "SOURCE": tuple(sorted((query.left, query.right))),
    }
    return tuple(
        Row(query.instance, operator, workers, _workers(execution_plan, operator))
        for operator, workers in planned.items()
    )


def _workers(execution_plan: Mapping[int, list[str]], operator: str) -> tuple[int, ...]:
    """Workers an operator is on, once for each occurrence; network operators are left out."""
    places = []
    for worker, lines in execution_plan.items():
        for line in lines:
            match = OPERATOR.match(line)
            if match and match[1].upper() == operator and "network" not in line.lower():
                places.append(worker)
    return tuple(sorted(places))


def _operators(answer: Mapping[str, Any]) -> dict[int, list[str]]:
    operators: dict[int, list[str]] = {}
    for node in answer.get("executionNodes") or ():
        plans = [plan for query in node["ScheduledQueries"] for plan in query["querySubPlans"]]
        lines = [line for plan in plans for line in str(plan["operator"]).splitlines()]
        worker = node.get("topologyNodeId", node.get("topologyId", node["executionNodeId"]))
        operators.setdefault(int(worker), []).extend(lines)
    for node in answer.get("ExecutionNodes") or ():
        scheduled = node["ScheduledDecomposedQueries"]["DecomposedQueryPlans"]
        lines = [
            line for plan in scheduled for line in str(plan["DecomposedQueryPlan"]).splitlines()
        ]
        worker = node["WorkerId"] if "WorkerId" in node else node["ExecutionNodeId"]
        operators.setdefault(int(worker), []).extend(lines)
    return operators


def _stop_quietly(coordinator: Coordinator, number: int) -> None:
    try:
        coordinator.stop(number)
    except NebulaStreamError:
        # The error that led here is more informative.
        return


@contextmanager
def _read(where: str) -> Iterator[None]:
    """Turn errors in reading an answer into one that names its address."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NebulaStreamError(
            f"{where}: not an answer of NebulaStream 0.x ({error!r})"
        ) from error
