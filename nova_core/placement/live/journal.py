"""State and event log on disk, so that a live placement goes on after a crash as if there was none.

A journal is a directory. ``state-N`` holds the problem, the plan and the rest of the state after N
log entries; ``events-N.jsonl`` has a line for each entry after that. An entry is on disk before its
delta is handed out. What is read back is exactly what was there: a checkpoint also compacts the
running state, so that both are made from the same documents, and events are deterministic.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from nova_core.errors import InfeasibleError, NovaError, ProblemError
from nova_core.model.files import (
    make_directory,
    read_plan,
    read_problem,
    write_plan,
    write_problem,
    write_text,
)
from nova_core.model.plan_delta import PlanDelta
from nova_core.placement.live.events import Event, convert_event
from nova_core.placement.live.live_placement import LivePlacement
from nova_core.placement.live.policy import Policy

VERSION = 1
_STATE, _LOG = "state-", "events-"


class Journal:
    """A live placement whose every event is on disk before its delta is handed out.

    Attributes:
        live: the placement.
        entries: events seen since the beginning, those refused included.
        resumed: whether it was read from disk.
    """

    def __init__(
        self,
        directory: Path,
        live: LivePlacement,
        entries: int,
        origin: str,
        *,
        sync: bool,
        resumed: bool,
    ) -> None:
        """Use `create`, `resume` or `open`."""
        self.directory = directory
        self.live = live
        self.entries = entries
        self.resumed = resumed
        self._origin = origin
        self._sync = sync
        self._log: IO[bytes] | None = None
        self._checkpoint = entries

    @property
    def since_checkpoint(self) -> int:
        """Entries since the state was written last."""
        return self.entries - self._checkpoint

    # --- beginning --------------------------------------------------------------------------------

    @classmethod
    def create(cls, directory: Path, live: LivePlacement, *, sync: bool = False) -> Self:
        """Begin a journal.

        Args:
            directory: made if missing; must hold no journal.
            live: what to keep; it is compacted.
            sync: whether to wait until the disk has an entry, so that it survives a power cut too;
                without, it survives the death of the process.

        Raises:
            NovaError: when there is a journal, or the directory cannot be written.
        """
        make_directory(directory)
        if _states(directory):
            raise NovaError(f"{directory}: holds a journal already; resume it or use another")
        journal = cls(directory, live, 0, live.problem().digest, sync=sync, resumed=False)
        journal.checkpoint()
        return journal

    @classmethod
    def resume(
        cls,
        directory: Path,
        *,
        sync: bool = False,
        heard: Callable[[PlanDelta], None] | None = None,
    ) -> Self:
        """Go on with a journal: its last checkpoint, and the events after it once more.

        A last line that is cut short was never acknowledged and is dropped.

        Args:
            directory: where it is.
            sync: as in `create`.
            heard: called with the delta of each event that is followed once more.

        Raises:
            NovaError: when there is no journal, or what it holds does not fit together.
        """
        states = _states(directory) if directory.is_dir() else []
        if not states:
            raise NovaError(f"{directory}: holds no journal")
        entries = states[-1]
        state = directory / f"{_STATE}{entries}"
        header = _read_header(state / "live.json")
        problem = read_problem(state / "problem")
        plan = read_plan(state / "plan", problem)
        policy = Policy(**header["policy"] | {"pinned": tuple(header["policy"]["pinned"])})
        live = LivePlacement.restore(problem, plan, policy, header["version"], header["moved"])
        journal = cls(directory, live, entries, header["origin"], sync=sync, resumed=True)
        journal._replay(directory / f"{_LOG}{entries}.jsonl", heard)
        return journal

    @classmethod
    def open(cls, directory: Path, live: LivePlacement, *, sync: bool = False) -> Self:
        """Resume the journal of a placement, or begin it.

        Raises:
            NovaError: when the journal began with another problem.
        """
        if not directory.is_dir() or not _states(directory):
            return cls.create(directory, live, sync=sync)
        journal = cls.resume(directory, sync=sync)
        digest = live.problem().digest
        if journal._origin != digest:
            raise NovaError(
                f"{directory}: the journal began with problem {journal._origin}, not with "
                f"{live.problem().name!r} ({digest})"
            )
        return journal

    def _replay(self, log: Path, heard: Callable[[PlanDelta], None] | None) -> None:
        good = 0
        for number, (line, end) in enumerate(_lines(log), 1):
            where = f"{log}: line {number}"
            try:
                entry: Any = msgspec.json.decode(line)
            except msgspec.DecodeError:
                raise NovaError(f"{where}: no JSON; the journal is damaged") from None
            if entry.get("entry") != self.entries + 1:
                raise NovaError(f"{where}: entry {entry.get('entry')}, not {self.entries + 1}")
            if "event" in entry:
                event = convert_event(entry["event"], where)
                delta = self.live.apply(event, overload=entry["overload"])
                if heard is not None:
                    heard(delta)
            self.entries += 1
            good = end
        if log.exists() and log.stat().st_size > good:
            with log.open("r+b") as file:
                file.truncate(good)

    # --- going on ---------------------------------------------------------------------------------

    def apply(self, event: Event, *, overload: bool | None = None) -> PlanDelta:
        """`LivePlacement.apply`, and the event is on disk when it returns.

        Raises:
            InfeasibleError: as it does; the refusal is noted.
            ProblemError: as it does; the refusal is noted.
        """
        try:
            delta = self.live.apply(event, overload=overload)
        except (InfeasibleError, ProblemError):
            self.note_refusal()
            raise
        self._write({"event": event, "overload": overload})
        return delta

    def note_refusal(self) -> None:
        """Count an event that was refused, so that a resumed stream goes on after it."""
        self._write({"refused": True})

    def _write(self, entry: dict[str, Any]) -> None:
        line = msgspec.json.encode({"entry": self.entries + 1, **entry}) + b"\n"
        if self._log is None:
            path = self.directory / f"{_LOG}{_states(self.directory)[-1]}.jsonl"
            self._log = path.open("ab", buffering=0)
        self._log.write(line)
        if self._sync:
            os.fsync(self._log.fileno())
        self.entries += 1

    def checkpoint(self) -> None:
        """Write the state anew and begin another log, so that resuming is quick.

        Raises:
            NovaError: when it cannot be written; the journal is as it was then.
        """
        problem, plan = self.live.compact()
        target = self.directory / f"{_STATE}{self.entries}"
        before = [entries for entries in _states(self.directory) if entries != self.entries]
        if not target.exists():
            temporary = self.directory / f".{target.name}.{os.getpid()}.tmp"
            shutil.rmtree(temporary, ignore_errors=True)
            make_directory(temporary)
            write_problem(problem, make_directory(temporary / "problem"))
            write_plan(plan, make_directory(temporary / "plan"))
            header = {
                "nova_live": VERSION,
                "version": self.live.version,
                "origin": self._origin,
                "policy": asdict(self.live.policy),
                "moved": self.live.moved(),
            }
            write_text(temporary / "live.json", msgspec.json.encode(header).decode() + "\n")
            if self._sync:
                _sync_tree(temporary)
            temporary.rename(target)
            if self._sync:
                _sync_path(self.directory)
        self.close()
        self._checkpoint = self.entries
        for entries in before:
            (self.directory / f"{_LOG}{entries}.jsonl").unlink(missing_ok=True)
            shutil.rmtree(self.directory / f"{_STATE}{entries}", ignore_errors=True)

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _states(directory: Path) -> list[int]:
    """Entries before each complete checkpoint, ascending."""
    numbers = (path.name.removeprefix(_STATE) for path in directory.glob(f"{_STATE}*"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def _lines(log: Path) -> Iterator[tuple[bytes, int]]:
    """Complete lines and where each ends; what a crash cut short is left out."""
    if not log.exists():
        return
    end = 0
    with log.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            end += len(line)
            yield line, end


def _read_header(path: Path) -> dict[str, Any]:
    try:
        header: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise NovaError(f"{path}: cannot be read: {error}") from None
    if header.get("nova_live") != VERSION:
        raise NovaError(f"{path}: format version {header.get('nova_live')}; {VERSION} is read here")
    return header


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(directory: Path) -> None:
    for path in (*directory.rglob("*"), directory):
        _sync_path(path)


__all__ = ["Journal"]
