"""Numbered lines on disk, each written completely or not at all."""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nova_core.errors import NovaError, UnwritableError
from nova_core.io.directories import sync_path
from nova_core.io.safe_files import make_directory

_SUFFIX = ".jsonl"


class _Segment:
    """One file: the lines after line ``first``, and where each ends."""

    def __init__(self, path: Path, first: int) -> None:
        self.path = path
        self.first = first
        self.descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self.ends = array("Q", [0])
        with open(self.descriptor, "rb", closefd=False) as file:
            for line in file:
                # A line that a crash cut short was never acknowledged.
                if line.endswith(b"\n"):
                    self.ends.append(self.ends[-1] + len(line))

    @property
    def last(self) -> int:
        return self.first + len(self.ends) - 1

    def read(self, after: int, limit: int) -> list[bytes]:
        begin = after - self.first
        end = min(begin + limit, len(self.ends) - 1)
        size = self.ends[end] - self.ends[begin]
        return os.pread(self.descriptor, size, self.ends[begin]).splitlines()

    def close(self) -> None:
        os.close(self.descriptor)


class SegmentLog:
    """Lines with numbers, in files of a directory: ``PREFIX-N.jsonl`` has those after line N.

    A line is written completely, or the file is truncated to its previous end and the line refused.
    If that fails, too, the content of the file is unknown, and the log refuses lines until it is
    opened again. One thread writes; others may read meanwhile.

    Attributes:
        broken: why it refuses lines until it is opened again; None if it accepts them.
    """

    def __init__(self, directory: Path, prefix: str, number: int, *, sync: bool = False) -> None:
        """Open a log, or begin it.

        Args:
            directory: created if missing.
            prefix: of the names of its files.
            number: least number of the last line; a log that ends before it begins anew there, as
                the gap would go unnoticed otherwise.
            sync: whether to wait for the disk after each line.

        Raises:
            NovaError: when it cannot be read.
            UnwritableError: when it cannot be written.
        """
        self.broken: str | None = None
        self._directory = make_directory(directory)
        self._prefix = prefix
        self._sync = sync
        self._guard = threading.Lock()
        self._segments: list[_Segment] = []
        numbers = (path.name[len(prefix) : -len(_SUFFIX)] for path in self._files())
        try:
            for first in sorted(int(text) for text in numbers if text.isdecimal()):
                segment = _Segment(self._path(first), first)
                if self._segments and self.last != first:
                    # Lines between the two are missing: only the later ones count.
                    self.close()
                self._segments.append(segment)
            if self._segments and self.last >= number:
                newest = self._segments[-1]
                os.truncate(newest.path, newest.ends[-1])
                return
        except OSError as error:
            self.close()
            raise NovaError(
                f"{directory}: {prefix}*{_SUFFIX}: cannot be read: {error.strerror or error}"
            ) from error
        self.close()
        self._begin(number, keep=0)

    def _path(self, first: int) -> Path:
        return self._directory / f"{self._prefix}{first}{_SUFFIX}"

    def _files(self) -> Iterator[Path]:
        return self._directory.glob(f"{self._prefix}*{_SUFFIX}")

    # --- reading ----------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """The number before the oldest line kept."""
        return self._segments[0].first

    @property
    def last(self) -> int:
        """The number of the newest line."""
        return self._segments[-1].last

    @property
    def newest(self) -> int:
        """How many lines the newest file has."""
        return len(self._segments[-1].ends) - 1

    def read(self, after: int, limit: int) -> list[bytes]:
        """Up to ``limit`` lines that follow a number; fewer at the end of a file."""
        with self._guard:
            for segment in reversed(self._segments):
                if segment.first <= after < segment.last:
                    return segment.read(after, limit)
        return []

    def lines(self, after: int) -> Iterator[bytes]:
        """All lines that follow a number."""
        while batch := self.read(after, 1000):
            yield from batch
            after += len(batch)

    # --- writing ----------------------------------------------------------------------------------

    def append(self, line: bytes) -> None:
        """Add a line completely or not at all.

        Raises:
            UnwritableError: when it could not be written, or the log is broken.
        """
        self._require_sound()
        segment, data = self._segments[-1], line + b"\n"
        try:
            written = 0
            while written < len(data):
                # A full file system first writes the part that fits; only the next write fails.
                written += os.write(segment.descriptor, data[written:])
            if self._sync:
                os.fsync(segment.descriptor)
        except BaseException as error:
            self._cut_back(segment)
            if isinstance(error, OSError):
                raise UnwritableError(_unwritable(segment.path, error)) from error
            raise
        segment.ends.append(segment.ends[-1] + len(data))

    def cut(self, number: int) -> None:
        """Drop lines after a number.

        Raises:
            UnwritableError: when that fails; the log is broken then.
        """
        if self.last <= number:
            return
        self._require_sound()
        with self._guard:
            while len(self._segments) > 1 and self._segments[-1].first > number:
                dropped = self._segments.pop()
                dropped.close()
                dropped.path.unlink(missing_ok=True)
            segment = self._segments[-1]
            del segment.ends[max(0, number - segment.first) + 1 :]
        self._cut_back(segment)
        self._require_sound()

    def sync(self) -> None:
        """Wait until the disk has all lines.

        Raises:
            UnwritableError: when it fails.
        """
        segment = self._segments[-1]
        try:
            os.fsync(segment.descriptor)
        except OSError as error:
            raise UnwritableError(_unwritable(segment.path, error)) from error

    def rotate(self, keep: int) -> None:
        """Begin another file, and drop all others but the newest ``keep``.

        Raises:
            UnwritableError: when it cannot be created; the log stays as it was.
        """
        if self.newest:
            self._begin(self.last, keep)

    def _begin(self, first: int, keep: int) -> None:
        path = self._path(first)
        try:
            path.unlink(missing_ok=True)
            segment = _Segment(path, first)
            try:
                # A power cut would lose a file whose directory entry is not on disk.
                sync_path(self._directory)
            except OSError:
                segment.close()
                path.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise UnwritableError(_unwritable(path, error)) from error
        with self._guard:
            split = max(0, len(self._segments) - keep)
            dropped, self._segments = self._segments[:split], [*self._segments[split:], segment]
        for old in dropped:
            old.close()
        current = {each.path for each in self._segments}
        for file in set(self._files()) - current:
            # A file that stays does no harm; the next call removes it.
            with suppress(OSError):
                file.unlink()

    def _cut_back(self, segment: _Segment) -> None:
        try:
            os.ftruncate(segment.descriptor, segment.ends[-1])
            if self._sync:
                os.fsync(segment.descriptor)
        except OSError as error:
            self.break_off(f"{_unwritable(segment.path, error)}, nor cut back")

    def break_off(self, reason: str) -> None:
        """Refuse lines until the log is opened again."""
        self.broken = reason

    def _require_sound(self) -> None:
        if self.broken is not None:
            raise UnwritableError(f"{self.broken}; nothing is taken until it is opened again")

    def close(self) -> None:
        """Close the files."""
        for segment in self._segments:
            segment.close()
        self._segments = []


def _unwritable(path: Path, error: OSError) -> str:
    return f"{path}: cannot be written: {error.strerror or error}"
