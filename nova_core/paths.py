"""Paths on the command line: inputs, outputs, and a check that they differ.

Every path of every command has one of the types here, so that no command takes an empty path, waits
for a pipe that nobody writes to, or overwrites its input.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

# Key of a context's paths, each with whether it is written.
_PATHS = "nova_core.paths"
_SUFFIXES = (".yaml", ".yml", ".json", ".parquet", ".arrow", ".csv")


class _NovaPath(click.Path):
    """A path that is not empty; `written` says whether it is read or written.

    With ``text`` the value stays text, as it may also be a name, ``-`` or an address with ``://``.
    """

    written = False

    def __init__(self, *, text: bool = False, **options: Any) -> None:
        super().__init__(path_type=Path, **options)
        self.text = text

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """The path, after a check that no path is read and written, or written twice."""
        if not os.fspath(value):
            self.fail("the path is empty; name a file or directory", param, ctx)
        if self.text and (value == "-" or "://" in os.fspath(value)):
            return value
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        known = path.is_file() or path.is_dir() or os.fspath(value) == os.devnull
        if not self.written and path.exists() and not known:
            self.fail(f"{path}: no file or directory; pipes and devices are not read", param, ctx)
        if ctx is not None:
            paths: list[tuple[Path, bool]] = ctx.meta.setdefault(_PATHS, [])
            for other, written in paths:
                if (self.written or written) and _same(path, other):
                    output = path if self.written else other
                    use = "written" if self.written and written else "read"
                    self.fail(f"{output}: is {use} as well; write somewhere else", param, ctx)
            paths.append((path, self.written))
        return os.fspath(value) if self.text else path


class InputPath(_NovaPath):
    """A file or directory that is read."""


class OutputPath(_NovaPath):
    """A file or directory that is written."""

    written = True


def _same(one: Path, other: Path) -> bool:
    """Whether two paths are the same, or one is a part of the problem or plan at the other."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    if one.exists() and other.exists() and one.samefile(other):
        return True
    return _is_part(one, other) or _is_part(other, one)


def _is_part(file: Path, directory: Path) -> bool:
    """Whether a file is a part of the problem or plan in a directory."""
    if not (file.is_file() and directory.is_dir() and file.parent.samefile(directory)):
        return False
    from nova_core.io import plan_document, problem_document

    # A plan beside its problem is no part of it.
    parts = {"plan", *plan_document.ROWS}
    if {path.stem for path in directory.iterdir()} & {"problem", "joins"}:
        parts = {"problem", "joins", "latency", *problem_document.ROWS}
    return file.suffix in _SUFFIXES and file.stem in parts


INPUT = InputPath()
OUTPUT = OutputPath()
