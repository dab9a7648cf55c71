"""The JobManager's REST interface (standard library only)."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nova_core.errors import NovaError
from nova_engines.json_interface import JsonInterface
from nova_flink import names

POLL_S = 0.1
SAVEPOINT_S = 300.0
CANCEL_S = 30.0
# What fetching a job's counters from the TaskManagers takes, with some to spare.
SETTLE_S = 0.5
COUNTERS = (
    "numRecordsIn",
    "numRecordsOut",
    "accumulateBusyTimeMs",
    "accumulateBackPressuredTimeMs",
)
# A source's metric for a partition, of Flink's connector for Kafka.
OFFSET = re.compile(r"\.topic\.(?P<topic>.+)\.partition\.(?P<partition>\d+)\.currentOffset$")
# States a job does not leave.
ENDED = ("FINISHED", "CANCELED", "FAILED")


class FlinkError(NovaError):
    """Flink does not answer, or refuses."""


@dataclass(frozen=True)
class Counters:
    """What a vertex has done since it started, summed over its subtasks.

    Flink's own rates lag by many seconds: use differences of these counters. They are None until
    the JobManager has fetched a vertex's metrics for the first time.

    Attributes:
        records_in: tuples received.
        records_out: tuples sent.
        busy_ms: time spent working; stays None for sources, where Flink does not measure it.
        back_pressured_ms: time spent waiting for room to send.
    """

    records_in: int | None = None
    records_out: int | None = None
    busy_ms: int | None = None
    back_pressured_ms: int | None = None

    @property
    def known(self) -> bool:
        """Whether they have been fetched."""
        return None not in (self.records_in, self.records_out, self.back_pressured_ms)


def host_and_port(url: str) -> tuple[str, int]:
    """Both parts of a URL such as ``http://10.0.0.1:8081``.

    Raises:
        FlinkError: for a URL without them.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        # Brackets without an IPv6 address in them, a port that is no number.
        host = port = None
    if not host or not port:
        raise FlinkError(f"{url}: expected http://HOST:PORT")
    return host, port


class Rest(JsonInterface):
    """A running cluster; its URL is the JobManager's."""

    engine = "Flink"
    server = "Flink's JobManager"
    failure = FlinkError

    @classmethod
    def at(cls, address: str) -> Rest:
        """The cluster at a URL or HOST:PORT."""
        return cls(address if "://" in address else f"http://{address}")

    def reason(self, text: str) -> str:
        """Flink's errors end with the reason; it may be followed by a stack trace."""
        try:
            lines = [str(line).strip() for line in json.loads(text)["errors"]]
            return next(filter(None, reversed(lines)), "").partition("\n")[0]
        except (ValueError, KeyError, TypeError, RecursionError):
            return ""

    def task_managers(self) -> dict[str, dict[str, Any]]:
        """All registered TaskManagers by resource id."""
        return {str(one["id"]): one for one in self.get("/taskmanagers")["taskmanagers"]}

    def jobs(self) -> dict[str, dict[str, Any]]:
        """All jobs, ended ones included, by id."""
        return {str(one["jid"]): one for one in self.get("/jobs/overview")["jobs"]}

    def job(self, job_id: str) -> dict[str, Any]:
        """A job with its vertices.

        Raises:
            FlinkError: also for an unknown job.
        """
        return dict(self.get(f"/jobs/{job_id}"))

    def state(self, job_id: str) -> str:
        """A job's state: costs the JobManager much less than `job`, which has it fetch metrics.

        Raises:
            FlinkError: also for an unknown job.
        """
        return str(self.get(f"/jobs/{job_id}/status")["status"])

    def subtasks(self, job_id: str, vertex_id: str) -> list[dict[str, Any]]:
        """A vertex's subtasks: status and TaskManager of each."""
        return list(self.get(f"/jobs/{job_id}/vertices/{vertex_id}")["subtasks"])

    def exceptions(self, job_id: str) -> list[str]:
        """First lines of what went wrong in a job, the last failure first, causes after it."""
        history = self.get(f"/jobs/{job_id}/exceptions").get("exceptionHistory", {})
        reasons: dict[str, None] = {}
        for entry in history.get("entries", ()):
            # What failed at about the same time may be the cause.
            for failure in (*entry.get("concurrentExceptions", ()), entry):
                for line in str(failure.get("stacktrace", "")).splitlines():
                    if line and not line.startswith(("\t", " ")):
                        reason = line.removeprefix("Caused by: ")
                        reasons.pop(reason, None)  # each once, and the cause last
                        reasons[reason] = None
        return list(reasons)

    def accumulators(self, job_id: str) -> dict[str, str]:
        """A job's accumulators, merged over its subtasks; exact once it has ended."""
        rows = self.get(f"/jobs/{job_id}/accumulators")["user-task-accumulators"]
        return {str(one["name"]): str(one["value"]) for one in rows}

    def counters(self, job_id: str) -> dict[str, Counters]:
        """Counters of every vertex of a job, by vertex name; takes `SETTLE_S`.

        They are at most `SETTLE_S` and the cluster's ``metrics.fetcher.update-interval`` old.
        """
        # The first request makes the JobManager fetch them; it answers with those fetched before.
        self._counters(job_id)
        time.sleep(SETTLE_S)
        return self._counters(job_id)

    def _counters(self, job_id: str) -> dict[str, Counters]:
        counters = {}
        for vertex in self.job(job_id)["vertices"]:
            path = f"/jobs/{job_id}/vertices/{vertex['id']}/subtasks/metrics"
            rows = self.get(f"{path}?get={','.join(COUNTERS)}&agg=sum")
            values = {row["id"]: _whole(row) for row in rows}
            counters[str(vertex["name"])] = Counters(*(values.get(name) for name in COUNTERS))
        return counters

    def read_offsets(self, job_id: str) -> dict[tuple[str, int], int]:
        """Per topic and partition that a job reads, the offset it has not read yet.

        Takes `SETTLE_S`; the offsets are as old as what `counters` returns.
        """
        self._read_offsets(job_id)
        time.sleep(SETTLE_S)
        return self._read_offsets(job_id)

    def _read_offsets(self, job_id: str) -> dict[tuple[str, int], int]:
        offsets = {}
        for vertex in self.job(job_id)["vertices"]:
            # Only sources: each vertex has hundreds of metrics, which must be listed first.
            if not str(vertex["name"]).startswith("Source: "):
                continue
            path = f"/jobs/{job_id}/vertices/{vertex['id']}/metrics"
            metrics = [str(row["id"]) for row in self.get(path)]
            known = {name: match for name in metrics if (match := OFFSET.search(name)) is not None}
            if known:
                requested = ",".join(urllib.parse.quote(name) for name in known)
                for row in self.get(f"{path}?get={requested}"):
                    match = known[str(row["id"])]
                    offsets[match["topic"], int(match["partition"])] = int(row["value"]) + 1
        return offsets

    def stop_with_savepoint(self, job_id: str, directory: str | None) -> str:
        """End a job with a savepoint; the savepoint's path.

        Args:
            job_id: of a running job.
            directory: where every process of the cluster can write; None is the cluster's own
                setting (``execution.checkpointing.savepoint-dir``).

        Raises:
            FlinkError: when Flink cannot; according to Flink, the job keeps running.
        """
        body: dict[str, Any] = {"drain": False}
        if directory is not None:
            body["targetDirectory"] = directory
        trigger = self.request("POST", f"/jobs/{job_id}/stop", body)["request-id"]
        until = time.monotonic() + SAVEPOINT_S
        while True:
            reply = self.get(f"/jobs/{job_id}/savepoints/{trigger}")
            if reply["status"]["id"] == "COMPLETED":
                operation = reply["operation"]
                if "location" in operation:
                    return str(operation["location"])
                cause = str(operation.get("failure-cause", {}).get("stack-trace", "no reason"))
                raise FlinkError(f"{self.url}: job {job_id}: no savepoint: {_root(cause)}")
            if time.monotonic() > until:
                raise FlinkError(f"{self.url}: job {job_id}: no savepoint after {SAVEPOINT_S:g} s")
            time.sleep(POLL_S)

    def cancel(self, job_id: str) -> str:
        """Cancel a job and wait until it has ended and its slots are free; its final state.

        Raises:
            FlinkError: when it does not end in time.
        """
        if self.state(job_id) not in ENDED:
            try:
                self.request("PATCH", f"/jobs/{job_id}?mode=cancel")
            except FlinkError:
                # It may have ended in between.
                if self.state(job_id) not in ENDED:
                    raise
        return self.wait_ended(job_id, CANCEL_S)

    def wait_ended(self, job_id: str, timeout_s: float) -> str:
        """Wait until a job is finished, cancelled or failed, and its slots are free; its state.

        Flink reports a job as ended before its TaskManagers have freed its slots; the next job
        could lack them.

        Raises:
            FlinkError: when it still runs, or has slots, after ``timeout_s``.
        """
        until = time.monotonic() + timeout_s
        while True:
            state, holding = self.state(job_id), []
            if state in ENDED:
                holding = self.holding(job_id)
                if not holding:
                    return state
            if time.monotonic() > until:
                what = f"{state}, with slots on {', '.join(holding)}," if holding else state
                raise FlinkError(f"{self.url}: job {job_id} is still {what} after {timeout_s:g} s")
            time.sleep(POLL_S)

    def holding(self, job_id: str) -> list[str]:
        """TaskManagers on which a job has slots, as far as the JobManager knows."""
        managers = []
        for manager in self.task_managers():
            try:
                slots = self.get(f"/taskmanagers/{manager}")["allocatedSlots"]
            except FlinkError:
                # The TaskManager may have left in between; otherwise nothing answers.
                if manager in self.task_managers():
                    raise
                continue
            if any(slot["jobId"] == job_id for slot in slots):
                managers.append(manager)
        return managers

    def wait_task_managers(self, nodes: Iterable[str], timeout_s: float) -> None:
        """Wait until the TaskManagers of all these nodes have registered.

        Raises:
            FlinkError: naming the nodes that are missing, or saying that nothing answers.
        """
        required = {names.task_manager(node): node for node in nodes}
        until = time.monotonic() + timeout_s
        while True:
            silence: FlinkError | None = None
            missing = required
            try:
                registered: Mapping[str, Any] = self.task_managers()
                missing = {tm: node for tm, node in required.items() if tm not in registered}
            except FlinkError as error:
                silence = error
            if not missing:
                return
            if time.monotonic() > until:
                if silence is not None:
                    raise silence
                raise FlinkError(
                    f"{self.url}: no TaskManager of {', '.join(missing.values())} has registered "
                    f"within {timeout_s:g} s; see log/taskmanager.log on the host"
                )
            time.sleep(POLL_S)


def _root(stack_trace: str) -> str:
    """The last cause in a stack trace, in a line."""
    lines = [line for line in stack_trace.splitlines() if line and not line.startswith("\t")]
    return lines[-1].removeprefix("Caused by: ") if lines else "no reason"


def _whole(row: Mapping[str, Any]) -> int | None:
    value = float(row["sum"])
    return int(value) if value == value else None
