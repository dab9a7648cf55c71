"""Everything the service keeps: problems and live placements, in a directory.

``problems/ID`` holds an uploaded problem, ``placements/NAME`` a journal and its deltas.
"""

from __future__ import annotations

import asyncio
import gc
from io import BytesIO
from tempfile import TemporaryDirectory
from typing import IO, Any

import msgspec

from nova_core import console
from nova_core.errors import NovaError
from nova_core.io.directories import lock_directory, remove_directory, remove_leftovers
from nova_core.io.safe_files import make_directory
from nova_core.model.problem import Problem
from nova_core.service.archives import TAR
from nova_core.service.hosted import HostedPlacement
from nova_core.service.intake import Intake, read_kept, require_problem
from nova_core.service.metrics import Metrics
from nova_core.service.refusals import RefusedError
from nova_core.service.settings import Settings


class Store:
    """Problems and placements by name.

    Attributes:
        settings: how the service runs.
        placements: by name.
        damaged: why placements could not be read, by name; they are left alone.
        metrics: of everything here.
    """

    def __init__(self, settings: Settings) -> None:
        """Open the directory and reload what is there.

        Raises:
            NovaError: when another service uses it, or it cannot be written.
        """
        self.settings = settings
        directory = make_directory(settings.directory)
        self._lock = lock_directory(directory)
        self.metrics = Metrics()
        self.placements: dict[str, HostedPlacement] = {}
        self.damaged: dict[str, str] = {}
        self._problems_at = make_directory(directory / "problems")
        self._placements_at = make_directory(directory / "placements")
        self._intake = Intake(settings.body_memory, settings.job_seconds)
        # A large one takes much memory: one at a time.
        self._reading = asyncio.Lock()
        for folder in (self._problems_at, self._placements_at):
            remove_leftovers(folder)
        for path in sorted(self._placements_at.iterdir()):
            try:
                self.placements[path.name] = self._resume(path.name)
            except Exception as error:
                # A damaged placement does not affect the others.
                reason = str(error) if isinstance(error, NovaError) else repr(error)
                self.damaged[path.name] = reason
                console.warn(f"placement {path.name}: set aside, as it cannot be read: {reason}")
        _settle()

    def _resume(self, name: str) -> HostedPlacement:
        return HostedPlacement(name, self._placements_at / name, self.settings.sync, self.metrics)

    # --- problems ---------------------------------------------------------------------------------

    def problem_ids(self) -> list[str]:
        """Ids of uploaded problems."""
        return sorted(p.name for p in self._problems_at.iterdir() if not p.name.startswith("."))

    async def problem(self, problem_id: str) -> Problem:
        """An uploaded problem.

        Raises:
            RefusedError: when there is none of that id.
        """
        async with self._reading:
            return await asyncio.to_thread(read_kept, self._problems_at, problem_id)

    async def add_problem(self, body: IO[bytes], size: int, content_type: str) -> Any:
        """Keep a problem; see `intake.take_problem` and `take_tables`.

        Raises:
            NovaError: when it is not a problem, or cannot be written.
        """
        problems = str(self._problems_at)
        if not content_type.lower().startswith(TAR):
            answer = await self._intake.run("problem", body, size, content_type, problems)
        else:
            # The process that unpacks may be ended at any time; after a crash, the next start
            # removes what has such a name.
            with TemporaryDirectory(prefix=".", suffix=".tmp", dir=problems) as unpacked:
                answer = await self._intake.run("tables", body, size, unpacked, problems)
        return msgspec.json.decode(answer)

    def remove_problem(self, problem_id: str) -> None:
        """Forget a problem; placements of it stay.

        Raises:
            RefusedError: when there is none of that id.
        """
        require_problem(self._problems_at, problem_id)
        remove_directory(self._problems_at / problem_id)

    async def place(self, problem_id: str, how: bytes) -> bytes:
        """Place an uploaded problem as a `PlaceRequest` says; the plan, which is not kept.

        Raises:
            RefusedError: when there is none of that id, or it takes too long.
            NovaError: when it cannot be placed so.
        """
        require_problem(self._problems_at, problem_id)
        arguments = str(self._problems_at), problem_id
        return await self._intake.run("plan", BytesIO(how), len(how), *arguments)

    # --- placements -------------------------------------------------------------------------------

    def placement(self, name: str) -> HostedPlacement:
        """A live placement.

        Raises:
            RefusedError: when there is none of that name, or it is set aside.
        """
        placement = self.placements.get(name)
        if placement is not None:
            return placement
        if name in self.damaged:
            raise RefusedError(
                503,
                f"{name} is set aside, as it cannot be read: {self.damaged[name]}; mend it and "
                "start again, or DELETE it",
            )
        raise RefusedError(404, f"there is no placement {name!r:.80}")

    async def begin(self, body: IO[bytes], size: int) -> HostedPlacement:
        """Begin the live placement that a request describes; it is on disk then.

        Raises:
            RefusedError: when there is one of that name.
            NovaError: when it cannot be placed so, or written.
        """
        try:
            answer = await self._intake.run(
                "placement", body, size, str(self._problems_at), str(self._placements_at)
            )
        finally:
            # Also what a child made just before it had to end.
            await asyncio.shield(self._adopt())
        return self.placement(msgspec.json.decode(answer)["name"])

    async def _adopt(self) -> None:
        """Resume placements that are on disk only."""
        async with self._reading:
            for path in sorted(self._placements_at.iterdir()):
                known = path.name in self.placements or path.name in self.damaged
                if not known and not path.name.startswith("."):
                    self.placements[path.name] = await asyncio.to_thread(self._resume, path.name)
        _settle()

    async def end(self, name: str) -> None:
        """Drop a placement and all it has on disk.

        Raises:
            RefusedError: when there is none of that name.
        """
        if name in self.damaged:
            del self.damaged[name]
        else:
            placement = self.placement(name)
            del self.placements[name]
            await placement.close("it has been removed")
        await asyncio.to_thread(remove_directory, self._placements_at / name)
        self.metrics.forget(name)

    async def unload_idle(self) -> None:
        """Unload unused placements from memory, in an endless loop."""
        idle = self.settings.idle
        while idle is not None:
            await asyncio.sleep(min(60.0, idle / 4))
            for each in [*self.placements.values()]:
                await each.unload(idle)

    def end_streams(self) -> None:
        """End all streams."""
        for placement in self.placements.values():
            placement.end_streams("the service ends")

    async def close(self) -> None:
        """Close everything."""
        for placement in self.placements.values():
            await placement.close("the service ends")
        self._lock.close()


def _settle() -> None:
    """Exclude long-lived objects from garbage collection, which would delay requests."""
    gc.collect()
    gc.freeze()
