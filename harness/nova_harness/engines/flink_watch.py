"""Flink's reports of controlled jobs: states, workers, and joins that fall behind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nova_engines.flow import PLACED, SINK
from nova_flink.controlled_jobs import state_of
from nova_flink.names import node_of_task_manager
from nova_flink.verification import operators_in
from nova_harness.engines.base import JobsSeen

if TYPE_CHECKING:
    from nova_engines.flow import Flow
    from nova_engines.source_orders import ControlledJob
    from nova_flink.rest import Rest

BUSY, HELD_BACK, RECEIVED = (
    "accumulated-busy-time",
    "accumulated-backpressured-time",
    "read-records",
)
# A join that is busy for such a share of the time, for so long, is overloaded.
SATURATED = 0.97
LEAST_S = 5.0
# How often Flink is asked for its workers. A lost one that a job uses ends the job at once.
WORKERS_S = 2.0
# How often it is asked for joins.
JOINS_S = 10.0


class FlinkWatch:
    """See `nova_harness.engines.base.JobsWatch`.

    Weak hosts feel each request: to answer for a job's joins, the JobManager fetches all metrics of
    all TaskManagers, once a second at most. With that at every look, a sink's host
    used 0.16 of its 0.2 cores, instead of 0.10 without a controller.

    Args:
        rest: of the cluster.
        running: jobs, and what runs where in each.
    """

    def __init__(self, rest: Rest, running: Sequence[tuple[ControlledJob, Flow]]) -> None:
        self._rest, self._jobs = rest, [job.job for job, _ in running]
        self._joins = JoinsWatch([flow for _, flow in running])
        self._slow: Mapping[str, float] = {}
        self._workers: set[str] = set()
        # When workers and joins were last looked at.
        self._counted_at = self._joins_at = -math.inf
        # When the JobManager was made to fetch metrics that were not looked at yet.
        self._fetched_at: float | None = None

    def look(self, now: float) -> JobsSeen:
        """As Flink reports it; while all jobs run, workers and joins are looked at less often."""
        states = {job: self._rest.state(job) for job in self._jobs}
        if now - self._counted_at >= WORKERS_S or set(states.values()) != {"RUNNING"}:
            managers = self._rest.task_managers()
            self._workers = {node_of_task_manager(one) or one for one in managers}
            self._counted_at = now
        if self._fetched_at is not None or now - self._joins_at >= JOINS_S:
            # A first request makes the JobManager fetch metrics, the next answers with them.
            running = [self._rest.job(job) for job in self._jobs if states[job] == "RUNNING"]
            if self._fetched_at is None:
                self._fetched_at = now
            else:
                self._slow, self._joins_at = self._joins.look(running, self._fetched_at), now
                self._fetched_at = None
        seen = {job: state_of(state) for job, state in states.items()}
        return JobsSeen(seen, self._workers, saturated=self._slow)


class JoinsWatch:
    """Finds joins and aggregates that are too slow, and the rate that their hosts reach.

    A join is too slow if it is busy all the time. It is also too slow if it is held back all the
    time: its host has too little CPU, or its link is too slow, to send its results. But if joins
    of all hosts are held back, or a sink is busy all the time, then the sink's host is too slow.

    Args:
        flows: what runs where, in each of the jobs that run at the same time.
    """

    def __init__(self, flows: Sequence[Flow]) -> None:
        operators = [one for flow in flows for one in flow.operators]
        parts = [one for one in operators if one.kind in (*PLACED, SINK)]
        self._nodes = {one.name: one.node for one in parts}
        self._sinks = {one.name for one in parts if one.kind == SINK}
        # By job and vertex: Flink gives vertices of similar jobs the same ids.
        self._before: dict[tuple[str, str], tuple[float, float, float, int]] = {}
        self._slow: dict[str, float] = {}

    def look(self, jobs: Sequence[Mapping[str, Any]], at: float) -> dict[str, float]:
        """Hosts whose joins are too slow, and the tuples/s that these received.

        Args:
            jobs: as in Flink's REST interface.
            at: `time.monotonic`, when the JobManager fetched their metrics.
        """
        received: dict[str, float] = {}
        busy_hosts: set[str] = set()
        held_hosts: set[str] = set()
        whole, sink_busy = True, False
        vertices = [(str(job["jid"]), vertex) for job in jobs for vertex in job["vertices"]]
        for job, vertex in vertices:
            held = operators_in(str(vertex["name"]), self._nodes)
            metrics = vertex["metrics"]
            if not held or str(metrics[BUSY]) == "NaN":
                continue
            name, node = (job, str(vertex["id"])), self._nodes[held[0]]
            busy, records = float(metrics[BUSY]), int(metrics[RECEIVED])
            blocked = float(metrics[HELD_BACK])
            before = self._before.setdefault(name, (at, busy, blocked, records))
            then, busy_then, blocked_then, records_then = before
            if at - then < LEAST_S:
                whole = False
                continue
            self._before[name] = at, busy, blocked, records
            working, most = busy - busy_then, SATURATED * 1000 * (at - then)
            if held[0] in self._sinks:
                sink_busy |= working > most
                continue
            received[node] = received.get(node, 0.0) + (records - records_then) / (at - then)
            if working > most:
                busy_hosts.add(node)
            if working + blocked - blocked_then > most:
                held_hosts.add(node)
        if whole:
            if sink_busy or held_hosts == received.keys():
                held_hosts = set()
            slow = busy_hosts | held_hosts
            self._slow = {node: rate for node, rate in received.items() if node in slow}
        return self._slow
