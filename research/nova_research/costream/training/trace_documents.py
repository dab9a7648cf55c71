"""Problems and plans of traces, from the documents that traces hold as JSON."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from nova_core.errors import NovaError, PlanError, ProblemError
from nova_core.model.plan import Plan

if TYPE_CHECKING:
    from nova_core.model.problem import Problem

# Parts that follow from a plan's decisions need no check.
_DERIVED = ("edges", "loads", "totals", "virtual")


def problem_of_trace(text: str, trace: str) -> Problem:
    """A trace's problem.

    Args:
        text: the document.
        trace: id of the trace, which errors name.

    Raises:
        ProblemError: for a document that is not a valid problem.
    """
    from nova_core.io.assembly import Assembly
    from nova_core.io.problem_document import VERSION, ProblemDocument
    from nova_core.io.syntax import parse_bytes, typed

    path = Path(f"problem of trace {trace}.json")
    raw = parse_bytes(text.encode(), path, ProblemError)
    return Assembly(
        typed(raw, path, ProblemDocument, "nova", VERSION, ProblemError), path
    ).problem()


def plan_of_trace(text: str, problem: Problem, trace: str) -> Plan:
    """A trace's plan.

    Args:
        text: the document.
        problem: of the trace.
        trace: its id, which errors name.

    Raises:
        NovaError: for a document that is not a plan of the problem, or not of whole queries.
    """
    from nova_core.io.plan_document import VERSION, PlanDocument
    from nova_core.io.plan_reading import plan_of
    from nova_core.io.syntax import parse_bytes, typed

    path = Path(f"plan of trace {trace}.json")
    raw = parse_bytes(text.encode(), path, PlanError)
    if isinstance(raw, dict):
        for derived in _DERIVED:
            raw.pop(derived, None)
    plan = plan_of(typed(raw, path, PlanDocument, "nova_plan", VERSION, PlanError), problem, path)
    if not problem.queries:
        raise NovaError(f"trace {trace}: its plan is of joins of pairs; one of queries is needed")
    return plan


def measured_query(name: str | None, queries: Collection[str], trace: str) -> str:
    """The query of a trace's problem that its labels are of.

    Args:
        name: of the query, as the trace has it; None if it has none.
        queries: ids of the problem's queries.
        trace: its id, which errors name.

    Raises:
        NovaError: where the problem has no such query, or several and none is named.
    """
    if name is None and len(queries) == 1:
        (name,) = queries
    if name is None or name not in queries:
        listed = ", ".join(sorted(queries))
        raise NovaError(f"trace {trace}: measured_query: {name!r}; expected one of {listed}")
    return name
