"""A working directory of stages: each exists whole or not at all, and is made once.

A killed run is resumed after its last whole stage. Every stage records its duration and the memory
of all processes of the run together.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nova_core import console
from nova_core.errors import NovaError
from nova_core.io.directories import (
    lock_directory,
    new_directory,
    remove_directory,
    remove_leftovers,
)
from nova_core.io.safe_files import make_directory, write_text

SETTINGS, FACTS = "settings.json", "stage.json"
PAUSE = 0.5  # s between two looks at memory, at least
LOOKING = 0.03  # share of the time that looks may take: one takes 0.1 s with much memory in use


class Stages:
    """The stages of one run; a context that one process holds at a time."""

    def __init__(
        self, root: Path, settings: Mapping[str, Any], step: Callable[[str], None]
    ) -> None:
        """Open a working directory.

        Args:
            root: the directory; made if missing.
            settings: all that the results depend on, as JSON values.
            step: called with the name of every stage that begins.

        Raises:
            NovaError: when another process holds it, or it was begun with other settings.
        """
        # Absolute: workers of a cluster use it from other directories.
        self.root = make_directory(root.absolute())
        self.timings: dict[str, dict[str, float]] = {}
        self._step = step
        self._lock = lock_directory(self.root)
        try:
            self._check(json.loads(json.dumps(settings)))
        except BaseException:
            self._lock.close()
            raise
        remove_leftovers(self.root)
        remove_leftovers(self.root.parent, f"{root.name}.leaving")

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def _check(self, settings: Mapping[str, Any]) -> None:
        file = self.root / SETTINGS
        if not file.exists():
            write_text(file, json.dumps(settings, indent=2) + "\n")
            return
        earlier = json.loads(file.read_text())
        for name in sorted({*settings, *earlier}):
            if settings.get(name) != earlier.get(name):
                raise NovaError(
                    f"{self.root}: begun with {_difference(name, earlier, settings)}; "
                    "remove it, or use the same settings"
                )

    def path(self, name: str) -> Path:
        """The directory of a stage."""
        return self.root / name

    def once(self, name: str, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
        """The facts of a stage, which is made unless it exists.

        Args:
            name: of the stage and its directory.
            make: fills a directory, which is renamed to the stage's when it returns, and returns
                the stage's facts, as JSON values.
        """
        target = self.path(name)
        if not target.exists():
            self._step(name)
            began = time.monotonic()
            with memory_of_tree() as memory, new_directory(target) as place:
                facts = make(place)
                seconds = round(time.monotonic() - began, 2)
                stage = {"facts": facts, "seconds": seconds, "peak_mib": memory()}
                write_text(place / FACTS, json.dumps(stage) + "\n")
            console.say(f"{name}: {seconds:.1f} s, {stage['peak_mib']:,} MiB")
        stage = json.loads((target / FACTS).read_text())
        self.timings[name] = {"seconds": stage["seconds"], "peak_mib": stage["peak_mib"]}
        return dict(stage["facts"])

    def remove(self) -> None:
        """Remove the whole directory at the end; a half removed one would look like a run."""
        remove_directory(self.root)


def beside(path: Path, ending: str) -> Path:
    """A directory beside another, with a longer name."""
    whole = path.resolve() if path.name in ("", "..") else path
    return whole.with_name(f"{whole.name}.{ending}")


def _difference(name: str, earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """A message on one setting that differs; of several files, on the first that does."""
    one, other = earlier.get(name), now.get(name)
    if isinstance(one, dict) and isinstance(other, dict):
        inner = next(key for key in sorted({*one, *other}) if one.get(key) != other.get(key))
        if name == "files":
            return f"other files: {inner} has changed, is new or is gone"
        return _difference(inner, one, other)
    return f"{name} {one}, not {other}"


@contextmanager
def memory_of_tree() -> Iterator[Callable[[], int]]:
    """Watch this process and all below it; yields a function of the greatest MiB so far.

    Pages that several of them share count once (proportional set size). Short peaks between two
    looks are missed; slow looks are less frequent.
    """
    ended, peak = threading.Event(), [0]

    def look() -> int:
        peak[0] = max(peak[0], sum(map(_pss, _tree())) // 1024)
        return peak[0]

    def watch() -> None:
        pause = PAUSE
        while not ended.wait(pause):
            began = time.monotonic()
            look()
            pause = max(PAUSE, (time.monotonic() - began) / LOOKING)

    thread = threading.Thread(target=watch, daemon=True, name="stage-memory")
    thread.start()
    try:
        yield look
    finally:
        ended.set()
        thread.join()


def _tree() -> Iterator[int]:
    """This process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    waiting = [os.getpid()]
    while waiting:
        yield (process := waiting.pop())
        waiting += children.get(process, [])


def _pss(process: int) -> int:
    """Proportional set size, KiB; 0 where unknown."""
    with suppress(OSError, IndexError, ValueError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
