"""The deltas of a placement on disk, by version, so that streams go on where they ended.

A directory of segments: ``deltas-V.jsonl`` has a line for each delta after version V. The oldest
segments are dropped, so a directory does not grow without bound.
"""

from __future__ import annotations

import os
from array import array
from pathlib import Path

from nova_core.errors import NovaError
from nova_core.model.files import make_directory

# Segments kept: the one that is written and those before it.
SEGMENTS = 3
_PREFIX, _SUFFIX = "deltas-", ".jsonl"


class ForgottenError(NovaError):
    """Deltas that were asked for are no longer kept."""


class _Segment:
    """One file: deltas after version ``first``, and where each line ends."""

    def __init__(self, directory: Path, first: int) -> None:
        self.first = first
        self.path = directory / f"{_PREFIX}{first}{_SUFFIX}"
        self._file = self.path.open("a+b", buffering=0)
        self._ends = array("Q", [0])
        self._file.seek(0)
        for line in self._file.read().splitlines(keepends=True):
            # A line that a crash has cut short is written once more.
            if line.endswith(b"\n"):
                self._ends.append(self._ends[-1] + len(line))
        self._file.truncate(self._ends[-1])

    @property
    def last(self) -> int:
        return self.first + len(self._ends) - 1

    def append(self, text: bytes) -> None:
        self._file.write(text + b"\n")
        self._ends.append(self._ends[-1] + len(text) + 1)

    def read(self, after: int, limit: int) -> list[bytes]:
        begin = after - self.first
        end = min(begin + limit, len(self._ends) - 1)
        size = self._ends[end] - self._ends[begin]
        return os.pread(self._file.fileno(), size, self._ends[begin]).splitlines()

    def cut(self, version: int) -> None:
        """Drop deltas after a version."""
        del self._ends[version - self.first + 1 :]
        self._file.truncate(self._ends[-1])

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        self.close()
        self.path.unlink()


class DeltaLog:
    """Deltas of one placement, as JSON lines."""

    def __init__(self, directory: Path, version: int) -> None:
        """Open the log, or begin it.

        Args:
            directory: made if missing.
            version: of the placement's last checkpoint; what leads there may be read, what comes
                after is to be appended where it is missing.
        """
        self._directory = make_directory(directory)
        names = (path.name for path in directory.glob(f"{_PREFIX}*{_SUFFIX}"))
        firsts = (name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for name in names)
        self._segments = [
            _Segment(directory, first) for first in sorted(int(f) for f in firsts if f.isdecimal())
        ]
        # Without the delta that leads to it, a gap would go unnoticed.
        if not self._segments or self.last < version:
            self._drop(self._segments)
            self._segments = [_Segment(directory, version)]

    @property
    def first(self) -> int:
        """The version before the oldest delta kept."""
        return self._segments[0].first

    @property
    def last(self) -> int:
        """The version after the newest delta."""
        return self._segments[-1].last

    def append(self, text: bytes) -> None:
        """Add the delta that leads to the next version, as one line of JSON."""
        self._segments[-1].append(text)

    def read(self, after: int, limit: int) -> list[bytes]:
        """Up to ``limit`` deltas that follow a version; fewer at the end of a segment.

        Raises:
            ForgottenError: when the first of them is no longer kept, or not yet there.
        """
        if after < self.first:
            raise ForgottenError(
                f"deltas after version {after} are no longer kept, only those after {self.first}; "
                "read the plan and go on from its version"
            )
        if after > self.last:
            raise ForgottenError(f"version {after} has not been reached; the last is {self.last}")
        for segment in reversed(self._segments):
            if segment.first <= after and segment.last > after:
                return segment.read(after, limit)
        return []

    def cut(self, version: int) -> None:
        """Drop deltas after a version."""
        while len(self._segments) > 1 and self._segments[-1].first > version:
            self._segments.pop().remove()
        if self.last > version:
            self._segments[-1].cut(version)

    def rotate(self) -> None:
        """Begin a segment, and drop the oldest."""
        if self._segments[-1].first == self.last:
            return
        self._segments.append(_Segment(self._directory, self.last))
        old = self._segments[:-SEGMENTS]
        self._segments = self._segments[-SEGMENTS:]
        self._drop(old)

    @staticmethod
    def _drop(segments: list[_Segment]) -> None:
        for segment in segments:
            segment.remove()

    def close(self) -> None:
        """Close the files."""
        for segment in self._segments:
            segment.close()


__all__ = ["SEGMENTS", "DeltaLog", "ForgottenError"]
