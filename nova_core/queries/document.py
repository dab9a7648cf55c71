"""Queries as people write them: filters, projections, aggregates and joins over logical streams."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from nova_core.errors import ProblemError
from nova_core.model.document import VERSION as PROBLEM_VERSION
from nova_core.model.document import Name, Positive, ProblemDocument
from nova_core.model.files import DOCUMENT_SUFFIXES, read_problem
from nova_core.model.problem import Problem
from nova_core.model.syntax import convert, parse, typed, unknown

if TYPE_CHECKING:
    from nova_core.model.assembly import Locate

VERSION = 1
KINDS = ("filter", "project", "aggregate", "join")

Input = Annotated[Name, Meta(description="a logical stream, or an operator above")]


class _Operator(
    msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True, tag_field="kind"
):
    """What all operators have."""

    id: Name


class Filter(_Operator, tag="filter", frozen=True):
    """Drops tuples; runs with what it reads from, at no cost (paper, section 3.6)."""

    input: Input
    selectivity: Annotated[float, Meta(gt=0, le=1, description="share of tuples that pass")]
    reads: Annotated[
        Name | UnsetType,
        Meta(
            description="the stream or operator further up whose attributes alone it looks at; it "
            "may run right behind that, before the joins between"
        ),
    ] = UNSET


class Project(_Operator, tag="project", frozen=True):
    """Makes tuples of tuples, without state; where it emits more, it is placed by itself."""

    input: Input
    selectivity: Annotated[float, Meta(gt=0, description="tuples emitted per tuple")] = 1.0


class Aggregate(_Operator, tag="aggregate", frozen=True):
    """Emits a tuple per group and window; at most as many as it receives."""

    input: Input
    by: Annotated[
        Literal["all", "key"],
        Meta(description="one result of all that the input holds, or one per key of its sources"),
    ] = "all"
    window: Annotated[Positive | UnsetType, Meta(description="s between results")] = UNSET
    groups: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000_000,
            description="groups per result; as many parts can it be cut into",
        ),
    ] = 1
    output_rate: Annotated[
        Positive | UnsetType,
        Meta(description="tuples/s each result emits; in place of window"),
    ] = UNSET
    decomposable: Annotated[
        bool, Meta(description="can be computed of partial results, as sums and counts can")
    ] = False


class Join(_Operator, tag="join", frozen=True):
    """Joins two inputs; more are joined by a sequence of joins."""

    inputs: Annotated[list[Input], Meta(min_length=2, max_length=2)]
    match: Annotated[
        Literal["key", "all"] | UnsetType,
        Meta(
            description="which sources may join: those of equal keys, or each with each. Left out: "
            "by key if all have one"
        ),
    ] = UNSET
    selectivity: Annotated[
        float,
        Meta(gt=0, description="results per tuple of the slower input, of each pair"),
    ] = 1.0


LogicalOperator = Filter | Project | Aggregate | Join


class Query(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """One query: operators after their inputs; what the last emits goes to the sink."""

    id: Name
    sink: Annotated[Name, Meta(description="the node that consumes the result")]
    operators: Annotated[list[LogicalOperator], Meta(min_length=1)]


class QueryDocument(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Queries over the streams of a problem."""

    nova_queries: Annotated[Literal[1], Meta(description="version of this format")]
    queries: Annotated[list[Query], Meta(min_length=1)]
    name: str = "queries"


@dataclass(frozen=True, eq=False)
class Queries:
    """Checked queries.

    Attributes:
        queries: in the order of the document.
        name: what people call them.
        where: the place errors name, e.g. the document.
    """

    queries: tuple[Query, ...]
    name: str = "queries"
    where: str = "queries"

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def digest(self) -> str:
        """Digest of all that a placement depends on; the name does not count."""
        return hashlib.blake2b(msgspec.json.encode(self.queries), digest_size=16).hexdigest()


def inputs_of(operator: LogicalOperator) -> list[str]:
    """Names of what an operator reads."""
    return list(operator.inputs) if isinstance(operator, Join) else [operator.input]


def read_queries(path: Path) -> Queries:
    """Read a query document.

    Raises:
        ProblemError: naming the file, the field, the value and what would be accepted.
    """
    return queries_of(parse(path, ProblemError), path)


def queries_of(document: Any, path: Path = Path("queries")) -> Queries:
    """Queries from a document's plain content.

    Raises:
        ProblemError: naming the file, the field, the value and what would be accepted.
    """
    _check_kinds(document, path)
    found = typed(document, path, QueryDocument, "nova_queries", VERSION, ProblemError)
    queries = Queries(tuple(found.queries), found.name, str(path))
    _check(queries)
    return queries


def query_of(document: Mapping[str, Any]) -> Query:
    """One query from plain content; it is checked once it is part of `Queries`."""
    return convert(document, Path("query"), Query, ProblemError)


def read_topology(path: Path, locate: Locate | None = None) -> Problem:
    """Nodes and sources for queries: any problem, or a problem document without a `query`.

    Args:
        path: see `nova_core.model.files.read_problem`.
        locate: see there.

    Raises:
        ProblemError: naming the file, the field, the value and what would be accepted.
    """
    if not path.is_dir() and path.suffix.lower() in DOCUMENT_SUFFIXES:
        raw = parse(path, ProblemError)
        if isinstance(raw, dict) and "query" not in raw:
            from nova_core.model.assembly import Assembly

            raw = {**raw, "query": {"operators": []}}
            document = typed(raw, path, ProblemDocument, "nova", PROBLEM_VERSION, ProblemError)
            return Assembly(document, path, locate).topology()
    return read_problem(path, locate=locate)


def _check_kinds(document: Any, path: Path) -> None:
    """Name a kind that does not exist: it decides what an operator's other fields mean."""
    queries = document.get("queries") if isinstance(document, dict) else None
    for number, query in enumerate(queries if isinstance(queries, list) else []):
        operators = query.get("operators") if isinstance(query, dict) else None
        for row, operator in enumerate(operators if isinstance(operators, list) else []):
            if isinstance(operator, dict) and operator.get("kind") not in KINDS:
                raise ProblemError(
                    f"{path}: queries[{number}].operators[{row}].kind: "
                    f"{operator.get('kind')!r} is not accepted; one of {', '.join(KINDS)} is "
                    "expected"
                )


def _check(queries: Queries) -> None:
    seen: set[str] = set()
    for number, query in enumerate(queries.queries):
        place = f"{queries.where}: queries[{number}]"
        if query.id in seen:
            raise ProblemError(f"{place}.id: {query.id!r} is there twice; names must be unique")
        seen.add(query.id)
        ids: set[str] = set()
        for row, operator in enumerate(query.operators):
            here = f"{place}.operators[{row}]"
            if operator.id in ids:
                raise ProblemError(f"{here}.id: {operator.id!r} is there twice in {query.id!r}")
            ids.add(operator.id)
            if isinstance(operator, Aggregate) and (
                (operator.window is UNSET) == (operator.output_rate is UNSET)
            ):
                both = "neither" if operator.window is UNSET else "both"
                raise ProblemError(
                    f"{here} of {operator.id!r}: {both} of window and output_rate; give one"
                )


def check_against(problem: Problem, queries: Queries) -> None:
    """Check that all names mean something in a problem, and that every operator is used.

    Raises:
        ProblemError: naming the field, the value and what would be accepted.
    """
    streams = set(problem.sources.stream.tolist())
    for number, query in enumerate(queries.queries):
        place = f"{queries.where}: queries[{number}]"
        if query.sink not in problem.node_index:
            raise ProblemError(f"{place}.sink: {unknown('node', query.sink, problem.node_index)}")
        known: dict[str, set[str]] = {}
        for row, operator in enumerate(query.operators):
            here = f"{place}.operators[{row}]"
            if operator.id in streams:
                raise ProblemError(f"{here}.id: {operator.id!r} is the name of a stream as well")
            above = set()
            for side, name in enumerate(inputs_of(operator)):
                field = f"inputs[{side}]" if isinstance(operator, Join) else "input"
                if name not in streams and name not in known:
                    said = unknown("stream or operator above", name, {*streams, *known})
                    raise ProblemError(f"{here}.{field} of {operator.id!r}: {said}")
                above |= {name} | known.get(name, set())
            reads = operator.reads if isinstance(operator, Filter) else UNSET
            if reads is not UNSET and reads not in above:
                said = unknown("stream or operator above it", reads, above)
                raise ProblemError(f"{here}.reads of {operator.id!r}: {said}")
            known[operator.id] = above
        used = {name for operator in query.operators for name in inputs_of(operator)}
        for row, operator in enumerate(query.operators[:-1]):
            if operator.id not in used:
                raise ProblemError(
                    f"{place}.operators[{row}] of {operator.id!r}: nothing reads it; only the last "
                    "operator feeds the sink"
                )
