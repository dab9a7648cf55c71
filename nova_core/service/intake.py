"""Reading problems and placements that clients send; large ones in a process of their own.

Reading a document takes many times its size of memory, and the parsers block other threads
meanwhile. So a body of more than a few KiB is read by a child process with limited memory and time:
whatever the body holds, the service survives and answers other requests.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import msgspec

from nova_core.errors import InfeasibleError, NovaError, UnwritableError
from nova_core.service.children import end_with

# Bytes of a body that the service reads itself.
SMALL = 16 * 2**10
# Seconds that reading a large one may take.
SECONDS = 300


class RefusedError(NovaError):
    """A request that gets an HTTP status of its own.

    Attributes:
        status: 404 for a name that means nothing, 409 for what cannot take effect, 410 for deltas
            that are not kept, 412 for another version, 503 for what cannot be read or has ended.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def status_of(error: NovaError) -> int:
    """The HTTP status of a refusal."""
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, UnwritableError):
        return 503
    return 409 if isinstance(error, InfeasibleError) else 400


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
    from nova_core.model.directories import new_directory
    from nova_core.model.files import make_directory, write_problem
    from nova_core.service.requests import problem_of

    problem = problem_of(content, content_type)
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

    from nova_core.model.directories import new_directory
    from nova_core.model.plan_reading import plan_of
    from nova_core.placement.live import Journal, LivePlacement
    from nova_core.service.documents import PlacementRequest
    from nova_core.service.requests import document_of

    request = document_of(content, PlacementRequest, "request")
    target = Path(placements) / request.name
    if target.exists():
        raise RefusedError(409, f"there is a placement {request.name!r} already")
    problem = read_kept(Path(problems), request.problem)
    problem.require_pairs("a live placement")
    if request.plan is UNSET:
        plan = place(problem, request.strategy, request.parameters)
    else:
        plan = plan_of(request.plan, problem, Path("request.json: plan"))
    live = LivePlacement(problem, plan, request.policy)
    with new_directory(target) as directory:
        Journal.create(directory, live).close()
    return {"name": request.name}


def read_kept(problems: Path, problem_id: str) -> Any:
    """An uploaded problem.

    Raises:
        RefusedError: when there is none of that id.
    """
    from nova_core.model.files import read_problem

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
    """Place a problem."""
    from nova_core.strategies import create
    from nova_core.strategies.parameters import typed_parameters

    return create(strategy, **typed_parameters(strategy, parameters)).solve(problem)


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "problem": take_problem,
    "placement": take_placement,
}


# --- in a process of its own --------------------------------------------------------------------


class Intake:
    """Takes in bodies, large ones in a child of limited memory, one at a time."""

    def __init__(self, memory: int) -> None:
        """Prepare.

        Args:
            memory: bytes that reading a large body may take.
        """
        self._memory = memory
        self._child = asyncio.Lock()

    async def run(self, job: str, body: IO[bytes], size: int, *arguments: str) -> dict[str, Any]:
        """Do one of `JOBS` with a body.

        Raises:
            NovaError: as the job; with the status 413 when the body takes too much to read.
        """
        body.seek(0)
        if size <= SMALL:
            return await asyncio.to_thread(JOBS[job], body.read(), *arguments)
        async with self._child:
            code, output = await self._in_child(job, body, *arguments)
        if code != 0:
            raise RefusedError(
                413,
                f"the body takes more than {self._memory // 2**20:,} MiB of memory or {SECONDS} s "
                "to read; JSON takes less than YAML, and nova serve --body-memory allows more",
            )
        answer: dict[str, Any] = msgspec.json.decode(output)
        if "error" not in answer:
            return answer
        if "missing" in answer:
            raise InfeasibleError(answer["error"], answer["missing"])
        raise RefusedError(answer["status"], answer["error"])

    async def _in_child(self, job: str, body: IO[bytes], *arguments: str) -> tuple[int, bytes]:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "nova_core.service.intake",
            str(os.getpid()),
            str(self._memory),
            job,
            *arguments,
            stdin=body,
            stdout=asyncio.subprocess.PIPE,
            # Ctrl-C is for the service, which ends its child itself.
            start_new_session=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        try:
            async with asyncio.timeout(SECONDS):
                output, _ = await child.communicate()
        except TimeoutError:
            return -1, b""
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        assert child.returncode is not None
        return child.returncode, output


def _main(parent: str, memory: str, job: str, *arguments: str) -> int:
    # The child must not write to the store after the service has ended.
    end_with(int(parent), signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Requests to the service have priority.
    os.nice(5)
    try:
        answer = JOBS[job](sys.stdin.buffer.read(), *arguments)
    except MemoryError:
        return 1
    except NovaError as error:
        answer = {"status": status_of(error), "error": str(error)}
        if isinstance(error, InfeasibleError):
            answer["missing"] = error.missing
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return 0


if __name__ == "__main__":
    # Imported by name, so that error classes are the ones that the jobs raise.
    from nova_core.service import intake

    sys.exit(intake._main(*sys.argv[1:]))
