"""Everything the service keeps: problems and live placements, in a directory.

``problems/ID`` holds an uploaded problem, ``placements/NAME`` a journal and its deltas.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import shutil
from pathlib import Path
from typing import IO

from nova_core import console
from nova_core.errors import NovaError
from nova_core.model.files import make_directory, read_problem, write_problem
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.placement.live import LivePlacement, Policy
from nova_core.service.hosted import HostedPlacement
from nova_core.service.metrics import Metrics

_LEAVING = ".leaving-"


class MissingError(NovaError):
    """There is nothing of that name."""


class TakenError(NovaError):
    """There is something of that name already."""


class Store:
    """Problems and placements by name.

    Attributes:
        placements: by name.
        metrics: of everything here.
    """

    def __init__(self, directory: Path, *, sync: bool) -> None:
        """Open a directory and reload what is there.

        Args:
            directory: made if missing.
            sync: whether events wait for the disk itself (power cuts).

        Raises:
            NovaError: when another service uses it, or a journal cannot be read.
        """
        self.metrics = Metrics()
        self.placements: dict[str, HostedPlacement] = {}
        self._sync = sync
        self._problems_at = make_directory(directory / "problems")
        self._placements_at = make_directory(directory / "placements")
        self._lock = _locked(directory)
        self._loaded: dict[str, Problem] = {}
        self._busy: set[str] = set()
        # Both take all of a core and much memory: one at a time.
        self.uploading = asyncio.Lock()
        self.placing = asyncio.Lock()
        for path in sorted(self._placements_at.iterdir()):
            if path.name.startswith(_LEAVING):
                shutil.rmtree(path, ignore_errors=True)
            elif not any(path.glob("state-*")):
                console.warn(f"{path}: holds no complete placement; it is left alone")
            else:
                self.placements[path.name] = HostedPlacement.resume(
                    path.name, path, sync, self.metrics
                )
        _settle()

    # --- problems ---------------------------------------------------------------------------------

    def problem_ids(self) -> list[str]:
        """Ids of uploaded problems."""
        return sorted(p.name for p in self._problems_at.iterdir() if not p.name.startswith("."))

    def problem(self, problem_id: str) -> Problem:
        """An uploaded problem.

        Raises:
            MissingError: when there is none of that id.
        """
        if problem_id not in self._loaded:
            self._require_problem(problem_id)
            self._loaded[problem_id] = read_problem(self._problems_at / problem_id)
        return self._loaded[problem_id]

    def _require_problem(self, problem_id: str) -> None:
        if problem_id not in self.problem_ids():
            raise MissingError(f"there is no problem {problem_id!r:.80}; upload it first")

    def add_problem(self, problem: Problem) -> bool:
        """Keep a problem; False when it was there."""
        target = self._problems_at / problem.digest
        if target.exists():
            return False
        temporary = self._problems_at / f".{problem.digest}"
        shutil.rmtree(temporary, ignore_errors=True)
        write_problem(problem, make_directory(temporary))
        temporary.rename(target)
        self._loaded[problem.digest] = problem
        return True

    def remove_problem(self, problem_id: str) -> None:
        """Forget a problem; placements of it stay.

        Raises:
            MissingError: when there is none of that id.
        """
        self._require_problem(problem_id)
        self._loaded.pop(problem_id, None)
        _remove(self._problems_at / problem_id)

    # --- placements -------------------------------------------------------------------------------

    def placement(self, name: str) -> HostedPlacement:
        """A live placement.

        Raises:
            MissingError: when there is none of that name.
        """
        found = self.placements.get(name)
        if found is None:
            raise MissingError(f"there is no placement {name!r:.80}")
        return found

    async def begin(self, name: str, problem: Problem, plan: Plan, policy: Policy) -> None:
        """Begin a live placement; it is on disk then.

        Raises:
            TakenError: when there is one of that name.
            NovaError: as `LivePlacement`, or when it cannot be written.
        """
        self.require_free(name)
        self._busy.add(name)
        try:
            target = self._placements_at / name

            def create() -> HostedPlacement:
                shutil.rmtree(target, ignore_errors=True)
                live = LivePlacement(problem, plan, policy)
                return HostedPlacement.create(name, target, live, self._sync, self.metrics)

            self.placements[name] = await asyncio.shield(asyncio.to_thread(create))
        finally:
            self._busy.discard(name)
        _settle()

    def require_free(self, name: str) -> None:
        """Refuse a name that is in use.

        Raises:
            TakenError: naming it.
        """
        if name in self.placements or name in self._busy:
            raise TakenError(f"there is a placement {name!r} already")

    async def end(self, name: str) -> None:
        """Drop a placement and all it has on disk.

        Raises:
            MissingError: when there is none of that name.
        """
        found = self.placement(name)
        del self.placements[name]
        self._busy.add(name)
        try:
            await found.close("it has been removed")
            await asyncio.to_thread(_remove, self._placements_at / name)
        finally:
            self._busy.discard(name)

    def end_streams(self) -> None:
        """End all streams."""
        for placement in self.placements.values():
            placement.end_streams("the service ends")

    async def close(self) -> None:
        """Close everything."""
        for placement in self.placements.values():
            await placement.close("the service ends")
        self._lock.close()


def _locked(directory: Path) -> IO[bytes]:
    """A file that only one service holds at a time."""
    path = directory / "lock"
    try:
        file = path.open("wb")
    except OSError as error:
        raise NovaError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise NovaError(f"{directory}: another nova serve uses it") from None
    return file


def _remove(path: Path) -> None:
    """Remove a directory; what a crash leaves of it does not count."""
    leaving = path.with_name(f"{_LEAVING}{path.name}")
    shutil.rmtree(leaving, ignore_errors=True)
    path.rename(leaving)
    shutil.rmtree(leaving, ignore_errors=True)


def _settle() -> None:
    """Spare the collector what lives long: looking through it would hold up requests."""
    gc.collect()
    gc.freeze()


__all__ = ["MissingError", "Store", "TakenError"]
