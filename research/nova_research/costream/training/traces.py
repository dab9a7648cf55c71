"""Traces: one query of an executed plan each, a row of Parquet.

A growing corpus is a directory of part files, each complete. Files and directories are read alike.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nova_core.errors import NovaError, first_line
from nova_research.costream.learned.network import CLASSES, REGRESSIONS

if TYPE_CHECKING:
    import pyarrow as pa

    from nova_core.model.plan import Plan

STRUCTURES = ("linear", "linear-agg", "two-way", "two-way-agg", "three-way", "three-way-agg")
BEHIND = 0.02
"""A source that is behind by this share of the measured time, or more, means back-pressure."""
WARM_UP_S, MEASURED_S = 2.0, 6.0
"""Usual times of a run: warm-up and measurement."""
PART = "part-{batch:04d}-{number:06d}.parquet"


@dataclass(frozen=True)
class Labels:
    """Results of a run, see `Trace`."""

    success: bool
    back_pressure: bool
    throughput: float
    e2e_latency_ms: float | None
    processing_latency_ms: float | None
    results: int
    behind_s: float | None


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One query of an executed plan.

    Attributes:
        id: unique.
        query: name by which corpora are split; all traces of a generated problem share it.
        structure: one of `STRUCTURES`.
        problem: problem document, JSON.
        plan: plan document, JSON.
        operators: measured ``records_in`` and ``records_out`` (whole run) by operator, JSON; None
            where the engine does not report it.
        origin: a rack or the simulator.
        engine: that ran it, or that the simulator was fitted to.
        engine_version: of the engine.
        nova_version: version of Nova that made the trace.
        made: time when the trace was made, ISO 8601.
        seed: of the corpus.
        batch: number in the corpus; hosts keep their memory for a batch.
        repeat_of: id of the trace whose plan this one repeats.
        duration_s: measured time.
        success: whether any result arrived in it (Costream, Definition 5).
        back_pressure: whether a source fell behind by the share `BEHIND` (Definition 4).
        throughput: results/s that arrived in it (Definition 1); 0 if none.
        e2e_latency_ms: arrival minus due time of a result's oldest reading (Definition 3), median
            of these results; None if none.
        processing_latency_ms: the same from its emission on (Definition 2).
        results: number that arrived in the measured time.
        window_s: largest window; None where there is none.
        measured_query: id of the problem's query that the labels, the structure and the window are
            of; None where the problem has one query only.
        behind_s: lag of the slowest source at the end; None if unknown.
        idle: share of the machine's CPU time that was idle meanwhile; None if not measured.
    """

    id: str
    query: str
    structure: str
    problem: str
    plan: str
    operators: str | None
    origin: Literal["rack", "simulator"]
    engine: str
    engine_version: str
    nova_version: str
    made: str
    seed: int
    batch: int
    repeat_of: str | None
    duration_s: float
    success: bool
    back_pressure: bool
    throughput: float
    e2e_latency_ms: float | None
    processing_latency_ms: float | None
    results: int
    window_s: float | None
    measured_query: str | None = None
    behind_s: float | None = None
    idle: float | None = None


COLUMNS = tuple(field.name for field in fields(Trace))
OPTIONAL = ("behind_s", "idle", "measured_query")
"""Columns that a file may lack. Without a measured query, the problem has one only."""


def schema() -> pa.Schema:
    """The columns, with their types, in order."""
    import pyarrow as pa

    types: dict[str, Any] = {
        **dict.fromkeys(("seed", "batch", "results"), pa.int64()),
        **dict.fromkeys(CLASSES, pa.bool_()),
        **dict.fromkeys(REGRESSIONS, pa.float64()),
        **dict.fromkeys(("duration_s", "window_s", "behind_s", "idle"), pa.float64()),
    }
    missing = {"operators", "repeat_of", "window_s", *REGRESSIONS[1:], *OPTIONAL}
    return pa.schema(
        [pa.field(name, types.get(name, pa.string()), name in missing) for name in COLUMNS]
    )


def table_of(traces: Iterable[Trace]) -> pa.Table:
    """Traces as a table."""
    import pyarrow as pa

    return pa.Table.from_pylist([asdict(one) for one in traces], schema=schema())


def documents_of(plan: Plan) -> tuple[str, str]:
    """A plan's problem and the plan, as JSON."""
    from nova_core.io.plan_writing import plan_document
    from nova_core.io.problem_writing import problem_document

    return compact(problem_document(plan.problem)), compact(plan_document(plan, report=False))


def now() -> str:
    """The time in the format of `Trace.made`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def compact(document: Mapping[str, Any]) -> str:
    """A document as JSON without blanks."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


# --- files --------------------------------------------------------------------------------------


def write_traces(path: Path, table: pa.Table) -> None:
    """Write a file completely or not at all.

    Raises:
        NovaError: when it cannot be written.
    """
    import pyarrow.parquet as pq

    from nova_core.io.safe_files import atomic_write

    with atomic_write(path) as file:
        pq.write_table(table, file, compression="zstd", compression_level=15)


def append(directory: Path, batch: int, traces: Sequence[Trace]) -> None:
    """Add traces to a growing corpus.

    Raises:
        NovaError: when they cannot be written.
    """
    number = len(list(directory.glob("part-*.parquet")))
    while (path := directory / PART.format(batch=batch, number=number)).exists():
        number += 1
    write_traces(path, table_of(traces))


def read_traces(
    paths: Iterable[Path], columns: Sequence[str] = COLUMNS, *, begun: bool = False
) -> pa.Table:
    """Traces of files and directories; of several with one id, the first.

    Args:
        paths: files and directories.
        columns: names of the columns to read.
        begun: whether directories may have no traces yet.

    Raises:
        NovaError: naming a path that does not exist or holds no traces.
    """
    import pyarrow as pa

    tables, seen = [], set[str]()
    for path in paths:
        rows = 0
        for file in _files(path):
            table, fresh = _read(file, columns), []
            rows += len(table)
            for row, one in enumerate(table.column("id").to_pylist()):
                if one not in seen:
                    seen.add(one)
                    fresh.append(row)
            tables.append(table.take(pa.array(fresh, pa.int64())))
        if not rows and not begun:
            raise NovaError(f"{path}: holds no traces")
    expected = schema()
    empty = pa.schema([expected.field(name) for name in _with_id(columns)]).empty_table()
    return pa.concat_tables([empty, *tables])


def _with_id(columns: Sequence[str]) -> list[str]:
    return [name for name in COLUMNS if name in columns or name == "id"]


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.parquet"))
    if not path.is_file():
        raise NovaError(f"{path}: no such file or directory")
    return [path]


def _read(path: Path, columns: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    from nova_core.io.columnar import open_parquet
    from nova_core.io.packed import PackedError

    expected = schema()
    try:
        with open_parquet(path) as file:
            present = set(file.schema_arrow.names)
            missing = [name for name in COLUMNS if name not in present and name not in OPTIONAL]
            if missing:
                raise NovaError(f"{path}: holds no traces: column {missing[0]!r} is missing")
            table = file.read(columns=[name for name in _with_id(columns) if name in present])
        columns_ = {
            name: table.column(name).cast(expected.field(name).type)
            if name in present
            else pa.nulls(len(table), expected.field(name).type)
            for name in _with_id(columns)
        }
    except (OSError, KeyError, PackedError, pa.ArrowException) as error:
        raise NovaError(f"{path}: cannot be read as traces: {first_line(error)}") from None
    for name, column in columns_.items():
        if column.null_count and not expected.field(name).nullable:
            raise NovaError(f"{path}: holds no traces: column {name!r} has rows without a value")
    return pa.table(columns_, schema=pa.schema([expected.field(name) for name in columns_]))
