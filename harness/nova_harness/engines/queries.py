"""Plans of queries with columns on an engine: readings they replay, and what must come of them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from nova_core.errors import NovaError
from nova_engines.query_flow import QueryFlow, Readings
from nova_engines.query_results import QueryRows, read_rows
from nova_engines.results import ResultRecords

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_core.model.query_plan import QueryPlan
    from nova_harness.engines.base import Engine, Job, QueryEngine
    from nova_workloads.comparison import Comparison

POLL_S = 0.5


def query_engine(engine: Engine) -> QueryEngine:
    """An engine that runs queries.

    Raises:
        NovaError: for one that does not.
    """
    if not hasattr(engine, "start_queries"):
        raise NovaError(f"engine {engine.name}: runs joins of pairs only, no queries with columns")
    return cast("QueryEngine", engine)


def start_job(engine: Engine, plan: Plan, flow: Callable[[int], Any], name: str) -> Job:
    """Have a plan run, of joins or of queries.

    Args:
        engine: that is up.
        plan: what runs where.
        flow: what flows from a time on: a workload, or readings of queries.
        name: of the job.

    Raises:
        NovaError: when the engine refuses it; nothing of it runs then.
    """
    if plan.problem.queries:
        return query_engine(engine).start_queries(cast("QueryPlan", plan), flow, name)
    return engine.start(plan, flow, name)


class Replay:
    """Readings of a problem's sources, encoded for an engine, and what must come of them.

    Args:
        problem: has streams with columns.
        folder: of the readings, as ``nova query reference`` reads them.
        scratch: directory for the encoded ones, which has to last until the job is submitted.
        speed: ms of event time per ms; 0 emits everything as fast as it is taken.

    Raises:
        NovaError: for a problem without streams, and for readings that are missing or wrong.
    """

    def __init__(self, problem: Problem, folder: Path, scratch: Path, speed: float) -> None:
        from nova_workloads.queries.readings import connection, first_ms, load, write_encoded

        if not problem.streams:
            raise NovaError("problem: streams are missing: give the columns of every stream")
        self.problem, self.speed = problem, speed
        self.database: Any = connection()
        load(self.database, problem, folder)
        self.first_ms = first_ms(self.database, problem)
        self.files = write_encoded(self.database, problem, scratch)

    def begin(self, start_ms: int) -> Readings:
        """The readings, the first of which is emitted at that time, ms since the epoch."""
        return Readings(self.files, self.first_ms, start_ms, self.speed)

    def compare(self, engine: QueryEngine, flow: QueryFlow) -> dict[str, Comparison]:
        """What came of a job that has ended, beside what must, by query."""
        from nova_core.model.query_binding import bind
        from nova_workloads.queries.reference import compare, expected, read_delivered

        queries = {one.id: one for one in self.problem.queries}
        found = {}
        with tempfile.TemporaryDirectory(prefix="nova-results-") as scratch:
            for name, file in engine.query_results(flow, Path(scratch)).items():
                one = queries[name]
                columns = bind(one, self.problem)[one.operators[-1].id].columns
                wanted = expected(self.database, self.problem, one)
                found[name] = compare(wanted, read_delivered(file, columns))
        return found


def query_records(engine: QueryEngine, flow: QueryFlow, scratch: Path) -> ResultRecords:
    """What the sinks of a job have written, as results of an experiment."""
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        files = engine.query_results(flow, Path(directory))
        rows: Any = QueryRows({query: read_rows(file) for query, file in files.items()})
    return ResultRecords(rows, 0, announced=len(rows) if rows.complete else None)


def await_end(job: Job, look: Callable[[], None] = lambda: None) -> None:
    """Wait until a job has come to its end.

    Args:
        job: of readings that end.
        look: called now and then.

    Raises:
        RunError: for a job that failed.
    """
    while not job.look():
        look()
        time.sleep(POLL_S)
