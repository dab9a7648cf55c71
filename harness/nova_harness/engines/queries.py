"""Plans of queries with columns on an engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from nova_core.errors import NovaError

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


def await_end(job: Job) -> None:
    """Wait for the end of a job with finite readings.

    Raises:
        RunError: for a job that failed.
    """
    while not job.look():
        time.sleep(POLL_S)
