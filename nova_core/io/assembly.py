"""From a document's rows and tables to the columns of a problem: names become indices."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET

from nova_core.errors import ProblemError, ProblemWarning
from nova_core.io.columnar import Columns, known_columns, read_columns
from nova_core.io.latencies import ONE_WAY, mended, read_latency
from nova_core.io.problem_document import (
    ROWS,
    VERSION,
    OperatorRow,
    ProblemDocument,
    StreamRow,
)
from nova_core.io.rows import Rows
from nova_core.io.syntax import read_typed
from nova_core.io.validation import check_hosts, check_ids, validate_problem
from nova_core.model import matching
from nova_core.model.name_index import NameIndex
from nova_core.model.problem import (
    Floats,
    Ints,
    JoinMatrix,
    Joins,
    Links,
    Nodes,
    PairLatencies,
    Problem,
    Sources,
    Strings,
)
from nova_core.model.queries import Join, Query, Stream
from nova_core.model.requirements import parts_of, some_asked
from nova_core.model.zone_checks import unknown_zones
from nova_core.suggestions import unknown

# Tables in memory, whose columns without a value by default documents may leave out.
IN_MEMORY = {"nodes": Nodes, "sources": Sources, "latency_pairs": PairLatencies}
Table = Rows | Columns
# From node names, measured latencies as a matrix and as pairs, and the place errors name, to
# positions (n, d) and heights (n,).
Locate = Callable[[Strings, Floats | None, PairLatencies | None, str], tuple[Floats, Floats | None]]


def read_document(path: Path, locate: Locate | None = None) -> Problem:
    """Read and check a problem document.

    Args:
        path: a ``.yaml``, ``.yml`` or ``.json`` file.
        locate: see `nova_core.io.files.read_problem`.

    Raises:
        ProblemError: naming the file, the field, the value and what would be accepted.
    """
    document = read_typed(path, ProblemDocument, "nova", VERSION, ProblemError)
    return Assembly(document, path, locate).problem()


def read_addresses(path: Path) -> dict[str, str]:
    """Addresses of a document's nodes by their names, empty where there are none.

    Args:
        path: a ``.yaml``, ``.yml`` or ``.json`` file, whose nodes are read; of a whole problem,
            everything is checked.

    Raises:
        ProblemError: naming the file, the field, the value and what would be accepted.
    """
    document = read_typed(path, ProblemDocument, "nova", VERSION, ProblemError)
    return Assembly(document, path).addresses()


def joins_of(operators: list[OperatorRow], nodes: Mapping[str, int], path: Path) -> Joins:
    """A document's joins of logical streams.

    Args:
        operators: as the document has them.
        nodes: rows by name, of sinks at least.
        path: the document, which errors name.

    Raises:
        ProblemError: for names that are no names or used twice, and unknown sinks.
    """
    table = Rows(path, "query.operators", operators)
    ids = table.text("id")
    check_ids("query.operators", ids, str(path))
    return Joins(
        ids=ids,
        left=table.text("left"),
        right=table.text("right"),
        sink=table.find("sink", nodes, "node"),
        asks=some_asked(operators),
    )


class Assembly:
    """Builds a problem from a document and the files it names."""

    def __init__(self, document: ProblemDocument, path: Path, locate: Locate | None = None) -> None:
        self._document = document
        self._path = path
        self._locate = locate
        self._files: dict[str, str] = {}

    def problem(self) -> Problem:
        """The problem, checked.

        Raises:
            ProblemError: naming the file, the field, the value and what would be accepted.

        Warns:
            ProblemWarning: for each zone that a rule names and no node has.
        """
        document = self._document
        if document.query is UNSET and document.queries is UNSET:
            raise ProblemError(
                f"{self._path}: neither of fields 'query' (joins of pairs) and 'queries'; give one"
            )
        nodes, joins = self._nodes, self._joins
        matrix = self._matrix()
        problem = Problem(
            nodes=nodes,
            sources=self._sources,
            joins=joins,
            matrix=matrix,
            links=self._links(),
            latency=self._latency,
            name=document.name,
            measured=self._measured,
            metrics=() if document.metrics is UNSET else tuple(document.metrics),
            queries=self._queries(),
            streams=self._columns_of_streams(),
            zones={row.id: row.zones for row in self._streams if row.zones is not UNSET},
        )
        if problem.streams and not problem.queries:
            raise ProblemError(f"{self._path}: streams: only `queries` can use their columns")
        if problem.queries:
            from nova_core.io.binding import bound_queries

            problem = replace(problem, queries=bound_queries(problem, str(self._path)))
        validate_problem(problem, str(self._path), self._files, ids_checked=True)
        for line in unknown_zones(problem):
            warnings.warn(f"{self._path}: {line}", ProblemWarning, stacklevel=2)
        return problem

    def addresses(self) -> dict[str, str]:
        """Addresses of the nodes, see `read_addresses`."""
        if self._document.query is not UNSET or self._document.queries is not UNSET:
            self.problem()
        ids, table = self._node_ids.tolist(), self._node_table
        hosts = table.text("host", "").tolist() if "host" in table else [""] * len(ids)
        check_hosts(hosts, str(table.path))
        return dict(zip(ids, hosts, strict=True))

    @cached_property
    def _streams(self) -> list[StreamRow]:
        rows = [] if self._document.streams is UNSET else self._document.streams
        known, seen = dict.fromkeys(self._sources.stream.tolist()), set[str]()
        for row, one in enumerate(rows):
            place = f"{self._path}: streams[{row}]"
            if one.id in seen:
                raise ProblemError(f"{place}.id: {one.id!r} is there twice")
            seen.add(one.id)
            if one.id not in known:
                raise ProblemError(f"{place}.id: {unknown('stream', one.id, known)}")
            if one.key is not UNSET and one.columns is UNSET:
                raise ProblemError(f"{place}.key of {one.id!r}: columns are missing; give them")
        return rows

    def _columns_of_streams(self) -> tuple[Stream, ...]:
        return tuple(
            Stream(id=row.id, columns=row.columns, key=row.key)
            for row in self._streams
            if row.columns is not UNSET
        )

    # --- tables ---------------------------------------------------------------------------------

    def _table(self, name: str, rows: Any, required: str | None = None) -> Table:
        tables = self._document.tables
        file = UNSET if tables is UNSET else getattr(tables, name)
        if file is UNSET:
            if rows is UNSET and required:
                raise ProblemError(f"{self._path}: field {name!r} is missing; {required}")
            shown = "latency.pairs" if name == "latency_pairs" else name
            return Rows(self._path, shown, [] if rows is UNSET else rows)
        if rows is not UNSET:
            raise ProblemError(
                f"{self._path}: tables.{name}: {name} are in the document as well; give them once"
            )
        columns = read_columns(self._path.parent / file, known_columns(ROWS[name]), ProblemError)
        self._files["latency.pairs" if name == "latency_pairs" else name] = str(columns.path)
        return columns

    @staticmethod
    def _optional(name: str, table: Table) -> dict[str, Any]:
        """Columns that may be left out, None for one that is; NaN or no text without a value."""
        kinds = known_columns(ROWS[name])
        return {
            column: table.text(column, "")
            if kinds[column] == "text"
            else table.floats(column, 0.0 if column == "penalty" else np.nan)
            for column, default in ((one.name, one.default) for one in fields(IN_MEMORY[name]))
            if default is None and column in table
        }

    # --- nodes, sources, query --------------------------------------------------------------------

    @cached_property
    def _node_table(self) -> Table:
        table = self._table("nodes", self._document.nodes, "give nodes, or tables.nodes")
        if len(table) == 0:
            raise ProblemError(f"{table.path}: nodes: none; at least one worker is needed")
        return table

    @cached_property
    def _node_index(self) -> NameIndex:
        return NameIndex(self._node_ids)

    @cached_property
    def _node_ids(self) -> Strings:
        ids = self._node_table.text("id")
        check_ids("nodes", ids, str(self._node_table.path))
        return ids

    @cached_property
    def _nodes(self) -> Nodes:
        table = self._node_table
        position, others = table.position(), self._optional("nodes", table)
        if position is None:
            position, others["height"] = self._embedded("height" in table)
        may_host = np.ones(len(table), bool)
        return Nodes(
            ids=self._node_ids,
            position=position,
            capacity=table.capacity("capacity"),
            worker=table.flags("worker", may_host) if "worker" in table else may_host,
            **others,
        )

    def _embedded(self, has_heights: bool) -> tuple[Floats, Floats | None]:
        """Coordinates and heights from the measured latencies of a problem that has no others."""
        path, document = self._node_table.path, self._document
        if self._latency is None and self._measured is None:
            raise ProblemError(
                f"{path}: nodes: none has a position; joins are placed by coordinates in a cost "
                "space, whose distances estimate latencies in ms. Give every node a position, or "
                "measured latencies (latency: a file, a matrix or pairs) to work them out"
            )
        if has_heights or document.metrics is not UNSET:
            what = "height" if has_heights else "metrics"
            raise ProblemError(f"{path}: {what} without positions; give nodes positions as well")
        from nova_core.costspace.automatic import locate

        measured = self._node_ids, self._latency, self._measured, str(self._path)
        return (self._locate or locate)(*measured)

    @cached_property
    def _sources(self) -> Sources:
        table = self._table("sources", self._document.sources, "give sources, or tables.sources")
        ids = table.text("id")
        check_ids("sources", ids, str(table.path))
        return Sources(
            ids=ids,
            node=table.find("node", self._node_index, "node"),
            stream=table.text("stream"),
            rate=table.floats("rate"),
            **self._optional("sources", table),
        )

    @cached_property
    def _operators(self) -> list[OperatorRow]:
        """Joins of pairs; beside whole queries they are such queries, too."""
        query = self._document.query
        whole = self._document.queries is not UNSET
        return [] if query is UNSET or whole else query.operators

    def _queries(self) -> tuple[Query, ...]:
        document = self._document
        if document.queries is UNSET:
            return ()
        rows = [] if document.query is UNSET else document.query.operators
        return (*document.queries, *(self._query_of(row, one) for row, one in enumerate(rows)))

    def _query_of(self, row: int, one: OperatorRow) -> Query:
        """A join of pairs as a query of one operator."""
        match = one.match
        if match == "matrix":
            place = f"{self._path}: query.operators[{row}].match of {one.id!r}"
            raise ProblemError(f"{place}: matrix; beside `queries`, joins take key or all")
        join = Join(
            id=one.id,
            inputs=[one.left, one.right],
            match=match,
            selectivity=one.selectivity,
            **parts_of(one),
        )
        return Query(id=one.id, sink=one.sink, operators=[join])

    @cached_property
    def _joins(self) -> Joins:
        return joins_of(self._operators, self._node_index, self._path)

    # --- join matrix ------------------------------------------------------------------------------

    def _matrix(self) -> JoinMatrix:
        table = self._table("matrix", self._document.matrix)
        if len(table) and self._document.queries is not UNSET:
            raise ProblemError(
                f"{table.path}: matrix: beside `queries`, joins take no pairs; give match: key or "
                "all"
            )
        sources = self._sources
        source_index, join_index = NameIndex(sources.ids), NameIndex(self._joins.ids)
        join = table.find("join", join_index, "join")
        left = table.find("left", source_index, "source")
        right = table.find("right", source_index, "source")
        rate = np.full(len(table), np.nan)
        derived = np.ones(len(table), bool)
        if "output_rate" in table:
            derived = table.empty("output_rate")
            rate = table.floats("output_rate", 1.0)
        listed = set(np.flatnonzero(np.bincount(join)).tolist())
        parts = [(join, left, right)]
        for row, operator in enumerate(self._operators):
            pairs = self._derive(row, operator, row in listed)
            if pairs is not None:
                parts.append((np.full(len(pairs[0]), row), *pairs))
        join, left, right = (np.concatenate(column) for column in zip(*parts, strict=True))
        selectivity = np.array([operator.selectivity for operator in self._operators])
        emitted = matching.output_rate(sources.rate[left], sources.rate[right], selectivity[join])
        emitted[: len(rate)] = np.where(derived, emitted[: len(rate)], rate)
        return JoinMatrix(join, left, right, emitted)

    def _derive(self, row: int, operator: OperatorRow, is_listed: bool) -> tuple[Ints, Ints] | None:
        place = f"{self._path}: query.operators[{row}].match of {operator.id!r}"
        match = operator.match
        if match == "matrix" or (match is UNSET and is_listed):
            return None
        if is_listed:
            raise ProblemError(f"{place}: {match}, but pairs of this join are given as well")
        left, right = self._stream_sources(operator.left), self._stream_sources(operator.right)
        if len(left) == 0 or len(right) == 0:
            return None  # validation names the stream that no source has
        key = self._sources.key
        both = np.concatenate([left, right])
        keyless = both if key is None else both[key[both] == ""]
        try:
            if match == "all" or (match is UNSET and len(keyless)):
                return matching.all_pairs(left, right)
            if len(keyless) or key is None:
                name = str(self._sources.ids[keyless[0]])
                raise ProblemError(f"source {name!r} has no key, but equal keys are asked for")
            pairs = matching.pairs_by_key(left, right, key)
        except ProblemError as error:
            raise ProblemError(f"{place}: {error}") from None
        if len(pairs[0]) == 0:
            raise ProblemError(
                f"{place}: key, but no source of {operator.left!r} has the key of one of "
                f"{operator.right!r}: the join matrix is empty"
            )
        return pairs

    @cached_property
    def _by_stream(self) -> tuple[Ints, Strings]:
        order = np.argsort(self._sources.stream, kind="stable")
        return order, self._sources.stream[order]

    def _stream_sources(self, stream: str) -> Ints:
        order, streams = self._by_stream
        begin, end = (int(np.searchsorted(streams, stream, side)) for side in ("left", "right"))
        return order[begin:end]

    # --- links and latencies ---------------------------------------------------------------------

    def _links(self) -> Links:
        table = self._table("links", self._document.links)
        if len(table) == 0:
            return Links.none()
        return Links(*self._ends(table), table.floats("budget"))

    def _ends(self, table: Table) -> tuple[Ints, Ints]:
        return (
            table.find("from", self._node_index, "node"),
            table.find("to", self._node_index, "node"),
        )

    @cached_property
    def _measured(self) -> PairLatencies | None:
        part, tables = self._document.latency, self._document.tables
        rows = UNSET if part is UNSET else part.pairs
        if rows is UNSET and (tables is UNSET or tables.latency_pairs is UNSET):
            return None
        table = self._table("latency_pairs", rows)
        more = self._optional("latency_pairs", table)
        ms = table.floats("ms") * self._one_way
        return PairLatencies(*self._ends(table), ms, **more)

    @property
    def _one_way(self) -> float:
        """What latencies are multiplied by, to be one-way ones."""
        part = self._document.latency
        return 1.0 if part is UNSET else ONE_WAY[part.is_]

    @cached_property
    def _latency(self) -> Floats | None:
        part = self._document.latency
        if part is UNSET:
            return None
        place = f"{self._path}: latency"
        if part.file is not UNSET:
            if part.matrix is not UNSET or part.nodes is not UNSET:
                raise ProblemError(f"{place}: a file and a matrix; give one of them")
            file = self._path.parent / part.file
            names, values = read_latency(file)
            self._files["latency"] = str(file)
            return mended(names, values * self._one_way, self._node_ids, str(file))
        if part.matrix is UNSET and part.nodes is UNSET:
            return None
        if part.matrix is UNSET or part.nodes is UNSET:
            raise ProblemError(f"{place}: `nodes` and `matrix` belong together; one is missing")
        count = len(part.nodes)
        for row, values_of_row in enumerate(part.matrix):
            if len(values_of_row) != count:
                raise ProblemError(
                    f"{place}.matrix[{row}]: {len(values_of_row)} values, {count} are needed, one "
                    "per node"
                )
        if len(part.matrix) != count:
            raise ProblemError(f"{place}.matrix: {len(part.matrix)} rows, {count} are needed")
        values = np.array(part.matrix, np.float64).reshape(count, count)
        return mended(part.nodes, values * self._one_way, self._node_ids, str(self._path))
