"""The file of jobs that clients of `nova serve` may start: what `nova control run` takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import click
import msgspec
from msgspec import UNSET, Meta, UnsetType

from nova_core.errors import NovaError
from nova_core.io.syntax import convert, read_typed
from nova_harness.commands.control import require_controlled, run
from nova_testbed.commands import shared as testbed

VERSION: Final = 1
FILES = ("problem", "plan", "sources", "readings", "inventory")
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")

_File = Annotated[str, Meta(min_length=1)]


class JobsError(NovaError):
    """An invalid file of jobs."""


class Job(
    msgspec.Struct,
    forbid_unknown_fields=True,
    frozen=True,
    kw_only=True,
    rename={"seconds": "for", "back_after": "back-after", "miss_after": "miss-after"},
):
    """A job.

    Attributes:
        problem: file, like all files relative to that of the jobs.
        plan: file.
        inventory: file, or the name of one that comes with Nova.
        engine: its name.
        sources: file.
        readings: directory.

    The others are options of `nova control run` as well, which knows their bounds and defaults.
    """

    problem: _File
    plan: _File
    inventory: _File
    engine: str = "flink"
    sources: _File | UnsetType = UNSET
    window: int | UnsetType = UNSET
    keys: int | UnsetType = UNSET
    readings: _File | UnsetType = UNSET
    speed: float | UnsetType = UNSET
    seconds: float | UnsetType = UNSET
    cooldown: float | UnsetType = UNSET
    step: float | UnsetType = UNSET
    back_after: float | UnsetType = UNSET
    miss_after: float | UnsetType = UNSET
    jobs: int | UnsetType = UNSET


class _Document(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    nova_jobs: Literal[1]
    jobs: dict[str, Any]


def read_jobs(path: Path) -> dict[str, list[str]]:
    """Arguments of `nova control run` by the names of jobs.

    Raises:
        NovaError: naming the job, the field and what would be accepted.
    """
    document = read_typed(path, _Document, "nova_jobs", VERSION, JobsError)
    for name in document.jobs:
        if not NAME.fullmatch(name):
            raise JobsError(
                f"{path}: jobs: {name!r:.80} is no name; a-z, 0-9 and - are expected, at most 64"
            )
    return {name: _arguments(path, name, raw) for name, raw in document.jobs.items()}


def _arguments(path: Path, name: str, raw: Any) -> list[str]:
    where = f"{path}: jobs: {name}"
    values = msgspec.to_builtins(convert(raw, Path(where), Job, JobsError))
    for field in [one for one in FILES if one in values]:
        file = path.parent.absolute() / values[field]
        if file.exists():
            values[field] = str(file)
        elif field != "inventory":
            raise JobsError(f"{where}: {field}: {file}: no such file or directory")
    files = [values.pop("problem"), values.pop("plan")]
    options = [f"--{option}={value}" for option, value in values.items()]
    try:
        require_controlled(values["engine"])
        testbed.read(values["inventory"])
        # What it accepts.
        run.make_context("run", [*options, "--", *files]).close()
    except click.UsageError as error:
        raise JobsError(f"{where}: {error.format_message().rstrip('.')}") from None
    except NovaError as error:
        raise JobsError(f"{where}: {error}") from None
    return [*options, "--", *files]
