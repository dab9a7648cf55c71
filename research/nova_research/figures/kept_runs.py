"""Finished runs in a file, one JSON object per line, so that they do not run again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from nova_core.errors import NovaError

Run = TypeVar("Run")


class KeptRuns(Generic[Run]):
    """A file of runs; its first line has the parameters that they share.

    Args:
        path: the file, created if missing; None keeps nothing.
        kind: of its runs.
        common: the shared parameters, as JSON.

    Raises:
        NovaError: when the file's runs have other parameters.
    """

    def __init__(self, path: Path | None, kind: type[Run], common: bytes) -> None:
        self._path, self._kind = path, kind
        if path is None:
            return
        if not path.is_file():
            from nova_core.io.safe_files import make_directory, write_text

            make_directory(path.parent)
            write_text(path, common.decode() + "\n")
            return
        content = path.read_bytes()
        if content.partition(b"\n")[0] != common:
            raise NovaError(
                f"{path}: holds runs of other parameters; delete it, or name another --output"
            )
        if not content.endswith(b"\n"):
            # The last run was cut short by an interruption: begin a new line.
            with path.open("ab") as file:
                file.write(b"\n")

    def __iter__(self) -> Iterator[Run]:
        if self._path is None:
            return
        for line in self._path.read_bytes().splitlines()[1:]:
            try:
                yield msgspec.json.decode(line, type=self._kind)
            except (msgspec.MsgspecError, RecursionError):
                continue  # the run that an interruption cut short

    def add(self, run: Run) -> None:
        """Append a run."""
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(run) + b"\n")
