"""State and event log on disk, from which a live placement resumes after a crash.

A journal is a directory that one process uses at a time. ``state-N`` holds the problem, the plan
and the rest of the state after N log entries; ``events-N.jsonl`` has a line for each later entry.
An entry is on disk before its delta is returned, or the event does not take effect. The state that
is read back equals the running one: a checkpoint also compacts the running state, so that both come
from the same documents, and events are deterministic.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from nova_core.errors import InfeasibleError, NovaError, ProblemError
from nova_core.io.directories import lock_directory, new_directory, remove_leftovers
from nova_core.io.files import read_plan, read_problem, write_plan, write_problem
from nova_core.io.safe_files import make_directory, write_text
from nova_core.io.syntax import read_typed
from nova_core.model.plan import Plan
from nova_core.model.plan_delta import PlanDelta
from nova_core.model.problem import Problem
from nova_core.placement.live.events import Event, convert_event
from nova_core.placement.live.live_placement import LivePlacement
from nova_core.placement.live.policy import Policy
from nova_core.placement.live.segment_log import SegmentLog

VERSION = 2
_STATE, _LOG = "state-", "events-"
_Count = Annotated[int, Meta(ge=0, le=2**62)]


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    """A state without problem and plan."""

    nova_live: int
    version: _Count
    # Digest of the problem that the journal began with.
    origin: str
    policy: Policy
    # By row of the pair, as text: keys of JSON are texts.
    moved: dict[str, _Count]


class _Entry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A line of the log: an event that took effect, or that one was refused."""

    entry: int
    event: Any = None
    overload: bool | None = None
    refused: bool = False


class Journal:
    """A live placement whose every event is on disk before its delta is returned.

    Attributes:
        directory: where it is.
        resumed: whether it was read from disk.
    """

    def __init__(self, directory: Path, *, sync: bool) -> None:
        """Use `create`, `resume` or `open`."""
        self.directory = directory
        self.resumed = False
        self._origin = ""
        self._live: LivePlacement | None = None
        self._lock = lock_directory(directory)
        try:
            remove_leftovers(directory, f"{_STATE}*")
            # Entries when the state was written last.
            self._checkpoint = max(_states(directory), default=0)
            self._log = SegmentLog(directory, _LOG, self._checkpoint, sync=sync)
        except BaseException:
            self._lock.close()
            raise

    @property
    def live(self) -> LivePlacement:
        """The placement, read from disk if it is not in memory."""
        if self._live is None:
            self._live = self._restored(None)
        return self._live

    @property
    def loaded(self) -> bool:
        """Whether the placement is in memory."""
        return self._live is not None

    @property
    def entries(self) -> int:
        """Events since the beginning, including refused ones."""
        return self._log.last

    @property
    def since_checkpoint(self) -> int:
        """Entries since the state was written last."""
        return self.entries - self._checkpoint

    @property
    def broken(self) -> str | None:
        """Why it refuses events until it is resumed; None if it accepts them."""
        return self._log.broken

    # --- beginning --------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, directory: Path, live: LivePlacement, *, sync: bool = False, compact: bool = True
    ) -> Self:
        """Begin a journal.

        Args:
            directory: created if missing; must hold no journal.
            live: the placement; it is compacted.
            sync: whether to wait until an entry is on disk, so that it survives a power cut, too;
                otherwise it only survives the death of the process.
            compact: False for a placement that another process resumes, which takes half the
                memory; no event may follow here.

        Raises:
            NovaError: when there is a journal, or another process uses the directory.
            UnwritableError: when the directory cannot be written.
        """
        journal = cls(make_directory(directory), sync=sync)
        try:
            if _states(directory) or journal.entries:
                raise NovaError(f"{directory}: holds a journal already; resume it or use another")
            journal._live = live
            if compact:
                journal._origin = live.problem().digest
                journal._write_state(0)
            else:
                recorded = live.recorded()
                journal._origin = recorded[0].digest
                journal._write_documents(0, *recorded)
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def resume(
        cls,
        directory: Path,
        *,
        sync: bool = False,
        heard: Callable[[PlanDelta], None] | None = None,
    ) -> Self:
        """Resume a journal: read its last checkpoint, and replay the events after it.

        A last line that is cut short was never acknowledged and is dropped.

        Args:
            directory: where it is.
            sync: as in `create`.
            heard: called with the delta of each replayed event.

        Raises:
            NovaError: when there is no journal, another process uses it, or its files are
                inconsistent.
        """
        if not directory.is_dir() or not _states(directory):
            raise NovaError(f"{directory}: holds no journal")
        journal = cls(directory, sync=sync)
        try:
            journal.resumed = True
            journal._live = journal._restored(heard)
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def open(cls, directory: Path, live: LivePlacement, *, sync: bool = False) -> Self:
        """Resume the journal of a placement, or begin it.

        Raises:
            NovaError: as `create` and `resume`, and when the journal began with another problem.
        """
        if not directory.is_dir() or not _states(directory):
            return cls.create(directory, live, sync=sync)
        journal = cls.resume(directory, sync=sync)
        digest = live.problem().digest
        if journal._origin != digest:
            journal.close()
            raise NovaError(
                f"{directory}: the journal began with problem {journal._origin}, not with "
                f"{live.problem().name!r} ({digest})"
            )
        return journal

    def _restored(self, heard: Callable[[PlanDelta], None] | None) -> LivePlacement:
        """The last checkpoint, with the events after it replayed."""
        state = self.directory / f"{_STATE}{self._checkpoint}"
        path = state / "live.json"
        header = read_typed(path, _Header, "nova_live", VERSION, NovaError)
        if not all(pair.isdecimal() and pair.isascii() for pair in header.moved):
            raise NovaError(f"{path}: moved: names rows that are no numbers")
        problem = read_problem(state / "problem")
        plan = read_plan(state / "plan", problem)
        moved = {int(pair): when for pair, when in header.moved.items()}
        try:
            live = LivePlacement.restore(problem, plan, header.policy, header.version, moved)
        except NovaError as error:
            raise NovaError(f"{path}: {error}") from None
        self._origin = header.origin
        if self._log.first > self._checkpoint:
            raise NovaError(
                f"{self.directory}: entries {self._checkpoint + 1} to {self._log.first} are missing"
            )
        for number, line in enumerate(self._log.lines(self._checkpoint), self._checkpoint + 1):
            delta = _follow(live, line, number, f"{self.directory}: entry {number}")
            if delta is not None and heard is not None:
                heard(delta)
        return live

    # --- applying ---------------------------------------------------------------------------------

    def apply(
        self,
        event: Event,
        *,
        overload: bool | None = None,
        record: Callable[[PlanDelta], None] | None = None,
    ) -> PlanDelta:
        """`LivePlacement.apply`, and the event is on disk when it returns.

        Args:
            event: as there.
            overload: as there.
            record: as there; it is called before the event is on disk.

        Raises:
            InfeasibleError: as it does; the refusal is noted.
            ProblemError: as it does; the refusal is noted.
            UnwritableError: when it cannot be written; it does not take effect then.
        """

        def write(delta: PlanDelta) -> None:
            if record is not None:
                record(delta)
            self._write(_Entry(self.entries + 1, event, overload))

        try:
            return self.live.apply(event, overload=overload, record=write)
        except (InfeasibleError, ProblemError):
            self.note_refusal()
            raise

    def note_refusal(self) -> None:
        """Record a refused event, so that a resumed stream continues after it.

        Raises:
            UnwritableError: when it cannot be written.
        """
        self._write(_Entry(self.entries + 1, refused=True))

    def _write(self, entry: _Entry) -> None:
        self._log.append(msgspec.json.encode(entry))

    def checkpoint(self) -> None:
        """Write the state and begin a new log, so that resuming is quick.

        Raises:
            UnwritableError: when it cannot be written; the journal stays as it was then.
        """
        before, entries = self._checkpoint, self.entries
        if entries == before:
            return
        try:
            self._write_state(entries)
        except BaseException:
            if (self.directory / f"{_STATE}{entries}").exists():
                # Only the disk has the new state; disk and memory would diverge.
                self._log.break_off(f"{self.directory}: a checkpoint failed halfway")
            raise
        self._checkpoint = entries
        # Both are on disk, so that older files can be removed.
        self._log.rotate(keep=0)
        for older in _states(self.directory)[:-1]:
            shutil.rmtree(self.directory / f"{_STATE}{older}", ignore_errors=True)

    def _write_state(self, entries: int) -> None:
        """Write the state, and continue from the written documents."""
        self.live.compact(lambda *recorded: self._write_documents(entries, *recorded))

    def _write_documents(self, entries: int, problem: Problem, plan: Plan, policy: Policy) -> None:
        live = self.live
        moved = {str(pair): when for pair, when in live.moved().items()}
        header = _Header(VERSION, live.version, self._origin, policy, moved)
        with new_directory(self.directory / f"{_STATE}{entries}") as state:
            write_problem(problem, make_directory(state / "problem"))
            write_plan(plan, make_directory(state / "plan"))
            write_text(state / "live.json", msgspec.json.encode(header).decode() + "\n")

    def unload(self) -> None:
        """Drop the placement from memory; the next use reads it from disk."""
        self._live = None

    def close(self) -> None:
        """Close the log and let another process use the journal."""
        self._log.close()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _follow(live: LivePlacement, line: bytes, number: int, where: str) -> PlanDelta | None:
    """Replay the event in a line of the log; None for a refusal."""
    try:
        entry = msgspec.json.decode(line, type=_Entry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NovaError(f"{where}: {error}; the journal is damaged") from None
    if entry.entry != number:
        raise NovaError(f"{where}: says it is entry {entry.entry}; the journal is damaged")
    if entry.refused:
        return None
    try:
        return live.apply(convert_event(entry.event, where), overload=entry.overload)
    except (InfeasibleError, ProblemError) as error:
        reason = str(error).removeprefix(f"{where}: ")
        raise NovaError(f"{where}: {reason}; the journal is damaged") from None


def _states(directory: Path) -> list[int]:
    """Entries before each complete checkpoint, ascending."""
    numbers = (path.name.removeprefix(_STATE) for path in directory.glob(f"{_STATE}*"))
    return sorted(int(number) for number in numbers if number.isdecimal())
