"""Jobs that clients of `nova serve` start, stop, pause and watch.

Each has a controller of its own, ``nova control run`` in a child process. Clients send a job's
name, which must be in the operator's file; nothing they send is part of a command line.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount

from nova_core.commands.serve import TOKEN
from nova_core.errors import NovaError
from nova_core.io.safe_files import atomic_write, make_directory
from nova_core.service.endpoints import Endpoints, operation, respond
from nova_core.service.refusals import RefusedError
from nova_harness.control import controller, page
from nova_harness.control.job_groups import ledgers_of, read_ledgers
from nova_harness.control.state import ControlState
from nova_harness.control.watching import STATE, read_state
from nova_harness.service.jobs_file import read_jobs

# Seconds that a request waits for a controller to end, and that the service does when it ends.
STOPPING_S, CLOSING_S = 10.0, 20.0
LOOK_S = 0.05
LINES, TAIL = 10, 4096
# A longer log is cut to its newest part when its controller starts.
MOST_LOG, KEPT_LOG = 4 << 20, 1 << 20

Status = Literal["never started", "running", "paused", "stopping", "stopped", "failed", "ended"]
Command = Callable[[Sequence[str]], list[str]]


class JobReport(msgspec.Struct):
    """A job."""

    name: str
    status: Annotated[
        Status,
        Meta(description="stopped: without control; the job keeps running on its hosts"),
    ]
    exit_code: Annotated[
        int | None,
        Meta(description="of the last controller since the service began; -9: by signal 9"),
    ]
    log: Annotated[list[str], Meta(description="last lines of its controllers")]


class JobList(msgspec.Struct):
    """All jobs."""

    jobs: list[JobReport]


def control_run(arguments: Sequence[str]) -> list[str]:
    """The command line of a controller that ends with this process."""
    child = [sys.executable, "-P", "-m", "nova_core.service.children", str(os.getpid())]
    return [*child, "control", "run", "--json", *arguments]


class HostedJob:
    """One job, and its controller while that runs."""

    def __init__(
        self, name: str, arguments: Sequence[str], directory: Path, command: Command = control_run
    ) -> None:
        """Prepare; nothing is started.

        Args:
            name: the job's.
            arguments: of `nova control run`, without ``--state``.
            directory: of all jobs.
            command: makes a command line of these.
        """
        self.name = name
        self._directory = directory / name
        self._log = directory / f"{name}.log"
        self._command = command([f"--state={self._directory.absolute()}", *arguments])
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False

    @property
    def running(self) -> bool:
        """Whether its controller runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def report(self) -> JobReport:
        """Its status."""
        code = None if self._process is None else self._process.poll()
        return JobReport(self.name, self._status(code), code, self._last_lines())

    def _status(self, code: int | None) -> Status:
        if self._process is not None and code is None:
            if self._stopping:
                return "stopping"
            return "paused" if (self._directory / controller.PAUSED).exists() else "running"
        if code and not self._stopping:
            return "failed"
        if not self._begun:
            return "never started"
        with suppress(NovaError):
            if all(one.end_ms is not None for one in read_ledgers(self._directory)):
                return "ended"
        return "stopped"

    @property
    def _begun(self) -> bool:
        return bool(ledgers_of(self._directory))

    def _last_lines(self) -> list[str]:
        return self._newest(TAIL).decode("utf-8", "replace").splitlines()[-LINES:]

    def _newest(self, most: int) -> bytes:
        """The newest whole lines of its log, ``most`` bytes at most."""
        try:
            with self._log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - most))
                data = file.read()
        except FileNotFoundError:
            return b""
        return data if size <= most else data.partition(b"\n")[2]

    def _shorten_log(self) -> None:
        with suppress(FileNotFoundError):
            if self._log.stat().st_size > MOST_LOG:
                newest = self._newest(KEPT_LOG)
                with atomic_write(self._log) as file:
                    file.write(newest)

    def start(self) -> None:
        """Start its controller, which resumes the job if there is one.

        Raises:
            RefusedError: when it runs.
        """
        if self.running:
            raise RefusedError(409, f"{self.name}: is already under control")
        make_directory(self._directory)
        # What the last controller saw.
        (self._directory / STATE).unlink(missing_ok=True)
        self._shorten_log()
        environment = {name: value for name, value in os.environ.items() if name != TOKEN}
        with self._log.open("ab") as log:
            # Not in another thread: the child ends with the thread that starts it.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the service, which ends its children itself.
                start_new_session=True,
                env=environment,
            )
        self._stopping = False

    def interrupt(self) -> None:
        """Have its controller end as by Ctrl-C; the job keeps running.

        Raises:
            RefusedError: when it does not run.
        """
        if self._process is None or not self.running:
            raise RefusedError(409, f"{self.name}: is not under control")
        # A second signal would interrupt what it does at its end.
        if not self._stopping:
            self._stopping = True
            self._process.terminate()

    async def ended(self, seconds: float) -> bool:
        """Whether its controller ends within that time."""
        until = time.monotonic() + seconds
        while self.running and time.monotonic() < until:
            await asyncio.sleep(LOOK_S)
        return not self.running

    async def close(self) -> None:
        """End its controller, by force if it takes too long."""
        with suppress(RefusedError):
            self.interrupt()
        if self._process is not None and not await self.ended(CLOSING_S):
            self._process.kill()
            self._process.wait()

    def pause(self, *, paused: bool) -> None:
        """Pause or resume its hand-overs by choice.

        Raises:
            RefusedError: when it has no job yet.
        """
        if not self._begun:
            raise RefusedError(
                409, f"{self.name}: has no job yet; start it, and wait until it runs"
            )
        controller.pause(self._directory, paused=paused)

    def state(self) -> ControlState | None:
        """What its controller sees; None before the first look, and without a controller."""
        return read_state(self._directory) if self.running else None


class Jobs(Endpoints):
    """Operations on the jobs of a file."""

    def __init__(self, jobs: Sequence[HostedJob]) -> None:
        """Serve these."""
        self._jobs = {job.name: job for job in jobs}

    def routes(self) -> list[BaseRoute]:
        """Those of operations, and every job's page."""
        pages = [
            Mount(f"/jobs/{name}/watch", routes=page.routes(job.state))
            for name, job in self._jobs.items()
        ]
        return [*super().routes(), *pages]

    async def close(self) -> None:
        """End all controllers; their jobs keep running."""
        await asyncio.gather(*(job.close() for job in self._jobs.values()))

    def _job(self, request: Request) -> HostedJob:
        name = request.path_params["job"]
        if name not in self._jobs:
            raise RefusedError(404, f"there is no job {name!r:.80}")
        return self._jobs[name]

    @operation("GET /jobs", JobList)
    async def jobs(self, _: Request) -> Response:
        """Jobs that follow the optimizer, or can be started to do so."""
        return respond(JobList([job.report for job in self._jobs.values()]))

    @operation("GET /jobs/{job}", JobReport)
    async def job(self, request: Request) -> Response:
        """One of them; a page that shows it is at watch/ below."""
        return respond(self._job(request).report)

    @operation("POST /jobs/{job}/start", JobReport, (409, 503))
    async def start_job(self, request: Request) -> Response:
        """Start a job under control, or resume control of the job that runs."""
        job = self._job(request)
        job.start()
        return respond(job.report)

    @operation("POST /jobs/{job}/stop", JobReport, (409,), statuses=(200, 202))
    async def stop_job(self, request: Request) -> Response:
        """End control; the job keeps running on its hosts. 202: its controller has yet to end."""
        job = self._job(request)
        job.interrupt()
        ended = await job.ended(STOPPING_S)
        return respond(job.report, 200 if ended else 202)

    @operation("POST /jobs/{job}/pause", JobReport, (409,))
    async def pause_job(self, request: Request) -> Response:
        """Make no voluntary moves; joins of lost hosts still move."""
        return self._paused(request, paused=True)

    @operation("POST /jobs/{job}/resume", JobReport, (409,))
    async def resume_job(self, request: Request) -> Response:
        """End a pause."""
        return self._paused(request, paused=False)

    def _paused(self, request: Request, *, paused: bool) -> Response:
        job = self._job(request)
        job.pause(paused=paused)
        return respond(job.report)


def jobs(file: Path, directory: Path) -> Jobs:
    """The entry point of `nova serve --jobs`.

    Raises:
        NovaError: for an invalid file.
    """
    return Jobs(
        [HostedJob(name, line, directory / "jobs") for name, line in read_jobs(file).items()]
    )
