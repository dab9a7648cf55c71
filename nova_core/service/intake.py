"""What is done with problems and placements that clients send, in processes of their own.

Reading a document takes many times its size of memory, and placing takes as long as its parameters
ask for; both block other threads meanwhile. So a child process of limited memory and time does it:
whatever a request holds, the service survives, answers others, and ends when it is told to.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from nova_core.errors import InfeasibleError, NovaError, ProblemError
from nova_core.service.children import end_with
from nova_core.service.refusals import RefusedError, status_of
from nova_core.service.settings import SMALL

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem

# Children at the same time; other requests wait.
CHILDREN = 2
# Bytes that placing, or reading tables, may take, unless reading large bodies may take more.
PLACING = 2 * 2**30
# Bytes that a child may keep in memory while it has nothing to do: programs and compiled kernels.
KEPT = 400 * 2**20


# --- what is done with a body -------------------------------------------------------------------


def take_problem(content: bytes, content_type: str, problems: str) -> dict[str, Any]:
    """Keep a problem, on disk.

    Args:
        content: the document.
        content_type: as its sender says.
        problems: directory of all problems.

    Returns:
        ``summary``: a `ProblemSummary`; ``fresh``: whether it was not there.
    """
    from nova_core.service.requests import problem_of

    return _kept(problem_of(content, content_type), problems)


def take_tables(content: bytes, unpacked: str, problems: str) -> dict[str, Any]:
    """`take_problem` for an archive of tables.

    Args:
        content: the archive.
        unpacked: an empty directory for its files, which the service removes, whatever happens.
        problems: directory of all problems.
    """
    from nova_core.service.archives import problem_of_tables

    return _kept(problem_of_tables(content, Path(unpacked)), problems)


def _kept(problem: Problem, problems: str) -> dict[str, Any]:
    from nova_core.io.directories import new_directory
    from nova_core.io.files import write_problem
    from nova_core.io.safe_files import make_directory

    target = Path(problems) / problem.digest
    fresh = not target.exists()
    if fresh:
        with new_directory(target) as directory:
            write_problem(problem, make_directory(directory))
    summary = {
        "id": problem.digest,
        "name": problem.name,
        "nodes": len(problem.nodes),
        "sources": len(problem.sources),
        "operators": len(problem.joins) + sum(len(query.operators) for query in problem.queries),
        "pairs": len(problem.matrix),
    }
    return {"summary": summary, "fresh": fresh}


def take_placement(content: bytes, problems: str, placements: str) -> dict[str, Any]:
    """Begin a live placement, on disk.

    Args:
        content: the request.
        problems: directory of all problems.
        placements: directory of all placements.

    Returns:
        Its ``name``.
    """
    from msgspec import UNSET

    from nova_core.io.directories import new_directory
    from nova_core.io.plan_reading import plan_of
    from nova_core.placement.live import Journal, LivePlacement
    from nova_core.service.documents import PlacementRequest
    from nova_core.service.requests import document_of

    request = document_of(content, PlacementRequest, "request")
    target = Path(placements) / request.name
    if target.exists():
        raise RefusedError(409, f"there is a placement {request.name!r} already")
    problem = read_kept(Path(problems), request.problem)
    if request.plan is UNSET:
        plan = place(problem, request.strategy, request.parameters)
    else:
        plan = plan_of(request.plan, problem, Path("request.json: plan"))
    live = LivePlacement(problem, plan, request.policy)
    del problem, plan  # of a million nodes, a quarter of a GB
    with new_directory(target) as directory:
        Journal.create(directory, live, compact=False).close()
    return {"name": request.name}


def make_plan(content: bytes, problems: str, problem_id: str) -> msgspec.Raw:
    """Place a problem that is kept.

    Args:
        content: a `PlaceRequest`.
        problems: directory of all problems.
        problem_id: of the problem.

    Returns:
        The plan, as its document.
    """
    from nova_core.service.documents import PlaceRequest
    from nova_core.service.requests import document_of

    how = document_of(content, PlaceRequest, "request")
    plan = place(read_kept(Path(problems), problem_id), how.strategy, how.parameters)
    return msgspec.Raw(text_of(plan))


def text_of(plan: Plan) -> bytes:
    """A plan as its document.

    Raises:
        RefusedError: for sums over positions or rates near the largest number there is.
    """
    from nova_core.errors import PlanError
    from nova_core.io.plan_writing import plan_text

    try:
        return plan_text(plan, ".json").encode()
    except PlanError as error:
        raise RefusedError(409, str(error)) from None


def read_kept(problems: Path, problem_id: str) -> Any:
    """An uploaded problem.

    Raises:
        RefusedError: when there is none of that id.
    """
    from nova_core.io.files import read_problem

    require_problem(problems, problem_id)
    return read_problem(problems / problem_id)


def require_problem(problems: Path, problem_id: str) -> None:
    """Refuse the id of a problem that is not kept.

    Raises:
        RefusedError: naming it.
    """
    if problem_id.startswith(".") or problem_id not in (path.name for path in problems.iterdir()):
        raise RefusedError(404, f"there is no problem {problem_id!r:.80}; upload it first")


def place(problem: Any, strategy: str, parameters: dict[str, Any]) -> Any:
    """Place a problem, by parameters of a request, which name no files.

    Raises:
        ProblemError: for a parameter that is a file's name.
    """
    from nova_core.strategies import create
    from nova_core.strategies.base import load
    from nova_core.strategies.parameters import typed_parameters

    for name in load(strategy).files:
        if parameters.get(name) is not None:
            raise ProblemError(
                f"strategy {strategy}: {name} is a file of this machine; requests name none"
            )
    return create(strategy, **typed_parameters(strategy, parameters)).solve(problem)


JOBS: dict[str, Callable[..., Any]] = {
    "problem": take_problem,
    "tables": take_tables,
    "placement": take_placement,
    "plan": make_plan,
}


# --- in a process of its own --------------------------------------------------------------------


class Answer(msgspec.Struct):
    """What a job has led to: its result, or why it is refused."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
    status: int = 400
    missing: float | None = None


class Job(msgspec.Struct):
    """What a child is asked for; a body of so many bytes follows."""

    name: str
    arguments: tuple[str, ...]
    size: int


class Child:
    """A process that does one of `JOBS` after the other."""

    def __init__(self, memory: int) -> None:
        """Start it.

        Args:
            memory: bytes that it may take.
        """
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "nova_core.service.intake"),
                *(str(os.getpid()), str(memory)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the service, which ends its children itself.
            start_new_session=True,
            # Arrow's own allocator would reserve a GiB, which counts.
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"},
        )

    def do(self, job: Job, body: IO[bytes]) -> bytes:
        """Do a job; b"" when it ends before it answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            _send(self._process.stdin, msgspec.json.encode(job))
            shutil.copyfileobj(body, self._process.stdin, 2**20)
            self._process.stdin.flush()
            return _received(self._process.stdout)
        except BrokenPipeError:
            return b""

    def resident(self) -> int:
        """Bytes that it has in memory; 0 when it has ended."""
        try:
            pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        except OSError:
            return 0
        return int(pages) * resource.getpagesize()

    def end(self) -> int:
        """End it, whatever it does; its exit status."""
        self._process.kill()
        return self._process.wait()


# Children that have nothing to do, by the memory they may take: to start one takes a second.
_IDLE: dict[int, list[Child]] = {}
# A child ends with the thread that has started it, and this one ends with the process.
_STARTER = ThreadPoolExecutor(1)


async def _started(memory: int) -> Child:
    starting = _STARTER.submit(Child, memory)
    try:
        return await asyncio.shield(asyncio.wrap_future(starting))
    except asyncio.CancelledError:
        starting.add_done_callback(lambda ready: _IDLE[memory].append(ready.result()))
        raise


class Intake:
    """Does jobs in children, a few at a time, each with limited memory and time."""

    def __init__(self, memory: int, seconds: float) -> None:
        """Prepare.

        Args:
            memory: bytes that reading a large body may take.
            seconds: that a job may take.
        """
        self._body_memory = memory
        self._seconds = seconds
        self._slots = asyncio.Semaphore(CHILDREN)

    async def run(self, job: str, body: IO[bytes], size: int, *arguments: str) -> bytes:
        """Do one of `JOBS` with a body; its result as JSON.

        Raises:
            NovaError: as the job; with the status 413 when it takes too much memory or time.
        """
        body.seek(0)
        if job == "problem" and size <= SMALL:
            return msgspec.json.encode(await asyncio.to_thread(JOBS[job], body.read(), *arguments))
        async with self._slots:
            output = await self._in_child(Job(job, arguments, size), body)
        answer = msgspec.json.decode(output, type=Answer)
        if answer.error is None:
            return bytes(answer.result)
        if answer.missing is not None:
            raise InfeasibleError(answer.error, answer.missing)
        raise RefusedError(answer.status, answer.error)

    async def _in_child(self, job: Job, body: IO[bytes]) -> bytes:
        small = job.size <= SMALL
        more = small or job.name == "tables"
        memory = max(self._body_memory, PLACING) if more else self._body_memory
        idle = _IDLE.setdefault(memory, [])
        child = idle.pop() if small and idle else await _started(memory)
        output = b""
        try:
            async with asyncio.timeout(self._seconds):
                output = await asyncio.to_thread(child.do, job, body)
        except TimeoutError:
            raise RefusedError(
                413,
                f"it takes more than {self._seconds:g} s; nova serve --job-seconds allows more",
            ) from None
        finally:
            # What it has read or placed may keep its memory.
            if small and output and child.resident() <= KEPT:
                idle.append(child)
            else:
                status = child.end()
        if not output:
            raise RefusedError(413, _why(status, memory))
        return output


def _why(status: int, memory: int) -> str:
    if status == _NO_MEMORY:
        return (
            f"it takes more than {memory // 2**20:,} MiB of memory; JSON takes less than YAML, "
            "tables less than both, and nova serve --body-memory allows more"
        )
    return f"a fault of the service, which its log tells: its child ended with {status}"


_NO_MEMORY = 3
_LENGTH = 8


def _send(to: IO[bytes], text: bytes) -> None:
    to.write(len(text).to_bytes(_LENGTH, "big") + text)


def _received(source: IO[bytes]) -> bytes:
    """The next text; b"" when there is no whole one."""
    length = int.from_bytes(source.read(_LENGTH), "big")
    text = source.read(length)
    return text if len(text) == length else b""


def _main(parent: str, memory: str) -> int:
    # The child must not write to the store after the service has ended.
    end_with(int(parent), signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Requests to the service have priority.
    os.nice(5)
    # What libraries print is no answer.
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    while text := _received(sys.stdin.buffer):
        job = msgspec.json.decode(text, type=Job)
        try:
            result = JOBS[job.name](sys.stdin.buffer.read(job.size), *job.arguments)
            answer = Answer(msgspec.Raw(msgspec.json.encode(result)))
        except MemoryError:
            return _NO_MEMORY
        except NovaError as error:
            missing = error.missing if isinstance(error, InfeasibleError) else None
            answer = Answer(error=str(error), status=status_of(error), missing=missing)
        _send(answers, msgspec.json.encode(answer))
        answers.flush()
    return 0


if __name__ == "__main__":
    # Imported by name, so that error classes are the ones that the jobs raise.
    from nova_core.service import intake

    sys.exit(intake._main(*sys.argv[1:]))
