"""Plans of queries with columns on an engine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from nova_core.errors import NovaError
from nova_engines.query_results import QueryRows, read_rows
from nova_engines.results import ResultRecords

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_harness.engines.base import Engine, Job, QueryEngine

POLL_S = 0.5


def query_engine(engine: Engine) -> QueryEngine:
    """The engine, if it runs queries.

    Raises:
        NovaError: for an engine that does not.
    """
    if not hasattr(engine, "start_queries"):
        raise NovaError(f"engine {engine.name}: runs joins of pairs only, no queries with columns")
    return cast("QueryEngine", engine)


def start_job(engine: Engine, plan: Plan, flow: Callable[[int], Any], name: str) -> Job:
    """Run a plan of joins or of queries.

    Args:
        engine: running.
        plan: what runs where.
        flow: what flows, for a start time: a workload, or readings of queries.
        name: of the job.

    Raises:
        NovaError: when the engine refuses it; then nothing of it runs.
    """
    if plan.problem.queries:
        return query_engine(engine).start_queries(plan, flow, name)
    return engine.start(plan, flow, name)


def query_records(fetch: Callable[[Path], Mapping[str, Path]], scratch: Path) -> ResultRecords:
    """Results of a job's sinks, as results of an experiment.

    Args:
        fetch: copies the sinks' files into a directory; returns the copies by query.
        scratch: directory for the copies, which are removed.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        files = fetch(Path(directory))
        rows: Any = QueryRows({query: read_rows(file) for query, file in files.items()})
    return ResultRecords(rows, 0, announced=len(rows) if rows.complete else None)


def await_end(job: Job) -> None:
    """Wait for the end of a job with finite readings.

    Raises:
        RunError: for a job that failed.
    """
    while not job.look():
        time.sleep(POLL_S)
