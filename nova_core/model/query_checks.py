"""Rules between the values of a problem's queries: names mean something, and all is used."""

from __future__ import annotations

from collections.abc import Mapping, Set

from msgspec import UNSET

from nova_core.errors import ProblemError
from nova_core.model.problem import Problem
from nova_core.model.queries import Aggregate, Filter, Join, Query, inputs_of
from nova_core.model.requirements import bad_labels
from nova_core.suggestions import unknown


def check_queries(problem: Problem, where: str = "problem") -> None:
    """Check a problem's queries: every name means something, and every operator is used.

    Args:
        problem: with the queries.
        where: what errors begin with.

    Raises:
        ProblemError: naming the field, the value and what would be accepted.
    """
    streams = set(problem.sources.stream.tolist())
    seen: set[str] = set()
    for number, query in enumerate(problem.queries):
        place = f"{where}: queries[{number}]"
        if query.id in seen:
            raise ProblemError(f"{place}.id: {query.id!r} is there twice; names must be unique")
        seen.add(query.id)
        check_query(query, streams, problem.node_index, place)


def check_query(query: Query, streams: Set[str], nodes: Mapping[str, int], place: str) -> None:
    """Check one query, see `check_queries`.

    Args:
        query: the query.
        streams: logical streams that have sources.
        nodes: index of the nodes.
        place: what errors begin with.

    Raises:
        ProblemError: as `check_queries`.
    """
    if query.sink not in nodes:
        raise ProblemError(f"{place}.sink: {unknown('node', query.sink, nodes)}")
    if not query.operators:
        raise ProblemError(f"{place}: neither operators nor sql; give one")
    _check_operators(query, streams, place)


def _check_operators(query: Query, streams: Set[str], place: str) -> None:
    known: dict[str, set[str]] = {}
    for row, operator in enumerate(query.operators):
        here = f"{place}.operators[{row}]"
        if operator.id in known:
            raise ProblemError(f"{here}.id: {operator.id!r} is there twice in {query.id!r}")
        if operator.id in streams:
            raise ProblemError(f"{here}.id: {operator.id!r} is the name of a stream as well")
        if isinstance(operator, Aggregate) and (
            (operator.window is UNSET) == (operator.output_rate is UNSET)
        ):
            both = "neither" if operator.window is UNSET else "both"
            raise ProblemError(
                f"{here} of {operator.id!r}: {both} of window and output_rate; give one"
            )
        if isinstance(operator, Filter) and operator.selectivity is UNSET:
            raise ProblemError(
                f"{here} of {operator.id!r}: selectivity is missing: expected more than 0, at "
                "most 1"
            )
        if (
            isinstance(operator, Aggregate | Join)
            and operator.slide is not UNSET
            and (operator.window is UNSET or float(operator.slide) > float(operator.window))
        ):
            raise ProblemError(
                f"{here}.slide of {operator.id!r}: {operator.slide:g}: expected a window, and "
                "at most its length"
            )
        if isinstance(operator, Join) and operator.hot:
            _check_hot(operator, f"{here}.hot of {operator.id!r}")
        for field, why in bad_labels(operator.requires):
            raise ProblemError(f"{here}.requires.{field} of {operator.id!r}: {why}")
        above = set()
        for side, name in enumerate(inputs_of(operator)):
            field = f"inputs[{side}]" if isinstance(operator, Join) else "input"
            if name not in streams and name not in known:
                message = unknown("stream or operator above", name, {*streams, *known})
                raise ProblemError(f"{here}.{field} of {operator.id!r}: {message}")
            above |= {name} | known.get(name, set())
        reads = operator.reads if isinstance(operator, Filter) else UNSET
        if reads is not UNSET and reads not in above:
            message = unknown("stream or operator above it", reads, above)
            raise ProblemError(f"{here}.reads of {operator.id!r}: {message}")
        known[operator.id] = above
    used = {name for operator in query.operators for name in inputs_of(operator)}
    for row, operator in enumerate(query.operators[:-1]):
        if operator.id not in used:
            raise ProblemError(
                f"{place}.operators[{row}] of {operator.id!r}: nothing reads it; only the last "
                "operator feeds the sink"
            )


def _check_hot(join: Join, where: str) -> None:
    if len(join.hot) >= join.keys:
        raise ProblemError(
            f"{where}: {len(join.hot)}, but keys is {join.keys}: there must be others"
        )
    for side in ("left", "right"):
        total = sum(getattr(one, side) for one in join.hot)
        if total >= 1:
            raise ProblemError(
                f"{where}: {side}: shares add up to {total:g}: less than 1 is expected"
            )
