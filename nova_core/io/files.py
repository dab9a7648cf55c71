"""Reading and writing problems and plans: which format a path means.

A problem is a YAML or JSON document, a directory with such a document and tables beside it, or a
directory with ``nodes.csv`` and ``joins.csv``. A plan is a JSON or YAML document, or a directory
with a header and tables. Formats' modules are imported when used: they bring in msgspec, YAML and
Arrow.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nova_core.errors import NovaError, PlanError, ProblemError
from nova_core.io.safe_files import (
    DOCUMENT_SUFFIXES,
    UNLIMITED,
    make_directory,
    write_text,
)
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem

if TYPE_CHECKING:
    from nova_core.io.assembly import Locate

TABLE_FORMATS = ("parquet", "arrow", "csv")
PLAN_TABLE_FORMATS = ("parquet", "arrow")


def _is_directory(path: str | os.PathLike[str], tables: str | None, error: type[NovaError]) -> bool:
    """Whether a path to write to means a directory of tables rather than a document."""
    place = Path(path)
    if place.is_dir() or os.fspath(path).endswith(("/", os.sep)):
        return True
    if tables is not None and place.suffix in DOCUMENT_SUFFIXES:
        raise error(f"{place}: {tables} tables need a directory, not a {place.suffix} document")
    return tables is not None or place.suffix == ""


def document_in(directory: Path, stem: str, error: type[NovaError]) -> Path:
    """The document of a directory: ``STEM.yaml``, ``STEM.yml`` or ``STEM.json``.

    Raises:
        NovaError: of the given class, where there is none.
    """
    for suffix in DOCUMENT_SUFFIXES:
        if (directory / f"{stem}{suffix}").is_file():
            return directory / f"{stem}{suffix}"
    raise error(
        f"{directory}: holds no {stem}.yaml or {stem}.json"
        + (", nor nodes.csv with joins.csv" if stem == "problem" else "")
    )


def _document_suffix(path: Path, what: str, error: type[NovaError]) -> str:
    if path.suffix.lower() not in DOCUMENT_SUFFIXES:
        raise error(
            f"{path}: a {what} is a .yaml or .json document or a directory of tables, "
            f"not {path.suffix!r}"
        )
    return path.suffix.lower()


def read_problem(
    path: str | os.PathLike[str], capacity: str | None = None, locate: Locate | None = None
) -> Problem:
    """Read a problem and check it.

    Nodes without positions get them from the measured latencies, with a warning that says so; the
    same document gives the same positions each time.

    Args:
        path: a ``.yaml``, ``.yml`` or ``.json`` document, or a directory.
        capacity: for a directory with ``nodes.csv`` and ``joins.csv``, the column of capacities,
            e.g. ``capacity_0``; for every problem, ``unlimited`` lifts all limits.
        locate: works out positions and heights where nodes have none; None does it with the
            defaults of `nova_core.costspace`.

    Raises:
        ProblemError: naming the file, the field, the value and what would be accepted.
    """
    place = Path(path)
    if place.is_dir() and (place / "joins.csv").is_file():
        from nova_core.io.instances import read_instance

        return read_instance(place, capacity)
    document = _problem_document(place)
    if capacity not in (None, UNLIMITED):
        raise ProblemError(
            f"{place}: capacity column {capacity!r}: only a directory with nodes.csv and joins.csv "
            f"has a choice of capacities; here use {UNLIMITED!r} or none"
        )
    from nova_core.io.assembly import read_document

    problem = read_document(document, locate)
    if capacity == UNLIMITED:
        problem = problem.with_capacity(np.full(len(problem.nodes), np.inf))
    return problem


def _problem_document(place: Path) -> Path:
    if place.is_dir():
        return document_in(place, "problem", ProblemError)
    if place.exists():
        _document_suffix(place, "problem", ProblemError)
    return place


def read_addresses(path: str | os.PathLike[str]) -> dict[str, str]:
    """Addresses (``host``) of a problem's nodes by their names, empty where it has none.

    Args:
        path: as of `read_problem`; the document may have nodes alone.

    Raises:
        ProblemError: naming the file, the field, the value and what would be accepted.
    """
    from nova_core.io.assembly import read_addresses as read

    return read(_problem_document(Path(path)))


def write_problem(
    problem: Problem, path: str | os.PathLike[str], tables: str | None = None
) -> None:
    """Write a problem: a document, or a directory of tables for a path without suffix.

    Args:
        problem: what to write.
        path: ``.yaml``, ``.yml`` or ``.json`` for a document; else a directory, made if missing.
        tables: format of the tables in a directory: ``parquet`` (default), ``arrow`` or ``csv``.

    Raises:
        ProblemError: for a suffix or format that is not known.
        NovaError: when it cannot be written.
    """
    from nova_core.io.problem_writing import document_text, write_problem_tables

    _write(
        "problem",
        path,
        tables,
        TABLE_FORMATS,
        ProblemError,
        partial(document_text, problem),
        partial(write_problem_tables, problem),
    )


def read_plan(path: str | os.PathLike[str], problem: Problem) -> Plan:
    """Read a plan and check it against the problem it answers.

    Args:
        path: a ``.json``, ``.yaml`` or ``.yml`` document, or a directory.
        problem: the problem it was made for.

    Raises:
        PlanError: when it cannot be read, was made for another problem, names what the problem does
            not have, or contradicts itself.
    """
    place = Path(path)
    if place.is_dir():
        from nova_core.io.plan_reading import read_plan_tables

        return read_plan_tables(document_in(place, "plan", PlanError), problem)
    if place.exists():
        _document_suffix(place, "plan", PlanError)
    from nova_core.io.plan_reading import read_plan_document

    return read_plan_document(place, problem)


def write_plan(plan: Plan, path: str | os.PathLike[str], tables: str | None = None) -> None:
    """Write a plan: a document, or a directory of tables for a path without suffix.

    Args:
        plan: what to write.
        path: ``.json``, ``.yaml`` or ``.yml`` for a document; else a directory, made if missing.
        tables: format of the tables in a directory: ``parquet`` (default) or ``arrow``.

    Raises:
        PlanError: for a suffix or format that is not known, or what JSON cannot hold.
        NovaError: when it cannot be written.
    """
    from nova_core.io.plan_writing import plan_text, write_plan_tables

    _write(
        "plan",
        path,
        tables,
        PLAN_TABLE_FORMATS,
        PlanError,
        partial(plan_text, plan),
        partial(write_plan_tables, plan),
    )


def _write(
    what: str,
    path: str | os.PathLike[str],
    tables: str | None,
    formats: tuple[str, ...],
    error: type[NovaError],
    text: Callable[[str], str],
    write_tables: Callable[[Path, str], None],
) -> None:
    """Write a document with what ``text`` makes for a suffix, or a directory of tables."""
    if tables is not None and tables not in formats:
        raise error(f"format: unknown {tables!r}; use one of {', '.join(formats)}")
    if _is_directory(path, tables, error):
        write_tables(make_directory(Path(path)), tables or "parquet")
    else:
        write_text(path, text(_document_suffix(Path(path), what, error)))
