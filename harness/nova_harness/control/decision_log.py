"""The log of a controller: what it noticed, decided and did, in a file and for those who watch."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

DECISIONS = "decisions.jsonl"


@dataclass(frozen=True)
class Entry:
    """A line of the log.

    Attributes:
        at: when, s since the epoch.
        kind: ``warmed-up``, ``deployed``, ``resumed``, ``disturbed``, ``over``, ``noticed``,
            ``refused``, ``would``, ``handed-over``, ``failed``, ``waiting``, ``restarted``,
            ``recovered``, ``ended``.
        text: what happened, for people.
        figures: the same for programs.
    """

    at: float
    kind: str
    text: str
    figures: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """As a line."""
        when = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"at": when, "kind": self.kind, "text": self.text, **self.figures})


class DecisionLog:
    """Writes entries; several threads may use it.

    Args:
        directory: of the file.
        note: callback with every entry.
    """

    def __init__(self, directory: Path, note: Callable[[Entry], None]) -> None:
        self._file, self._note = directory / DECISIONS, note
        self._last: dict[object, str] = {}
        self._lock = threading.Lock()

    def say(self, kind: str, text: str, **figures: Any) -> None:
        """Log an entry."""
        entry = Entry(time.time(), kind, text, figures)
        with self._lock:
            # A full disk does not end control.
            with suppress(OSError), self._file.open("a", encoding="utf-8") as file:
                file.write(entry.to_json() + "\n")
            self._note(entry)

    def once(self, about: object, kind: str, text: str) -> None:
        """Log an entry unless it equals the last such one about the same thing."""
        if text != self._last.get(about):
            self._last[about] = text
            self.say(kind, text)

    def forget(self, *about: object) -> None:
        """Log the next entry about these things in any case."""
        for one in about:
            self._last.pop(one, None)


def clock(time_ms: int) -> str:
    """A time, ms since the epoch, as the log's texts have it."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
