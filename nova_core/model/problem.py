"""The placement problem in memory: columns of nodes, sources, joins and the join matrix.

Everything is an array, so that a million nodes cost megabytes; people write the same thing as YAML
(`nova_core.io.problem_document`), machines as CSV, Arrow or Parquet.
Units throughout: latencies (one way) and coordinates in ms, rates and capacities in tuples/s, sizes
in bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from nova_core.errors import ProblemError

# Whoever takes a problem's columns takes their types from here, too.
from nova_core.model.arrays import Bools as Bools
from nova_core.model.arrays import Floats as Floats
from nova_core.model.arrays import Ints as Ints
from nova_core.model.arrays import Strings as Strings
from nova_core.model.name_index import NameIndex, code_points, joined
from nova_core.model.requirements import (
    ANY_NODE,
    NOTHING,
    Asks,
    Rule,
    ZonesPart,
    asked_columns,
    parts_of,
    rule_of,
)
from nova_core.model.requirements import Nodes as Nodes

if TYPE_CHECKING:
    from nova_core.model.queries import Query, Stream

# ms, for latencies and coordinates: far beyond any path on Earth. A larger value means a wrong unit
# or measurement, and its squares and sums overflow.
GREATEST_LATENCY = 1e9

# Distances worked out at a time: they stay in the processor's cache.
_BLOCK = 2**15


# Columns that a digest mentions even where they are missing; others add nothing then.
_MENTIONED = {"memory", "cost", "tags", "host", "height", "penalty", "cpu", "tuple_bytes", "key"}


def column_names(table: object) -> list[str]:
    """Names of a table's columns, in order."""
    return [f.name for f in fields(table)]  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Sources:
    """Physical streams, one row per producing sensor.

    Attributes:
        ids: (s,) unique names.
        node: (s,) index of the producing node.
        stream: (s,) name of the logical stream the source belongs to.
        rate: (s,) dr, tuples/s.
        tuple_bytes: (s,) bytes per tuple, or None where it is not known.
        key: (s,) region or key a derived join matrix compares, or None.
    """

    ids: Strings
    node: Ints
    stream: Strings
    rate: Floats
    tuple_bytes: Floats | None = None
    key: Strings | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Joins:
    """The query's logical joins, one row per operator (usually one).

    Attributes:
        ids: (q,) unique names.
        left: (q,) logical stream on the left.
        right: (q,) logical stream on the right.
        sink: (q,) index of the node that consumes the result; the operator is pinned there.
        asks: (q,) what each asks of its hosts, or None if none asks anything.
    """

    ids: Strings
    left: Strings
    right: Strings
    sink: Ints
    asks: tuple[Asks, ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class JoinMatrix:
    """The join matrix M, sparse: one row per pair of sources that may join (paper, section 2.1).

    Attributes:
        join: (p,) index of the logical join.
        left: (p,) index of the left source.
        right: (p,) index of the right source.
        output_rate: (p,) tuples/s the pair's join emits.
    """

    join: Ints
    left: Ints
    right: Ints
    output_rate: Floats

    def __len__(self) -> int:
        return len(self.left)


@dataclass(frozen=True, eq=False)
class Links:
    """Bandwidth budgets b(i, j) of directed node pairs; a pair without a row is unlimited.

    Attributes:
        source: (l,) node index traffic leaves.
        target: (l,) node index traffic enters.
        budget: (l,) tuples/s.
    """

    source: Ints
    target: Ints
    budget: Floats

    @classmethod
    def none(cls) -> Self:
        """No budgets at all."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, eq=False)
class PairLatencies:
    """Measured latencies of some node pairs, for topologies too large for a dense matrix.

    Attributes:
        source: (m,) node index at one end.
        target: (m,) node index at the other end.
        latency: (m,) ms; a pair is measured once, in either direction.
        mbit: (m,) Mbit/s that fit through in each direction, NaN where it is not known, or None.
            It limits nothing: `Links` has budgets.
    """

    source: Ints
    target: Ints
    latency: Floats
    mbit: Floats | None = None

    def __len__(self) -> int:
        return len(self.latency)


@dataclass(frozen=True, eq=False)
class Problem:
    """What is to be placed.

    Attributes:
        nodes: the topology.
        sources: the physical streams.
        joins: the logical joins.
        matrix: which pairs of sources each join combines.
        links: bandwidth budgets per node pair.
        latency: (n, n) measured latencies, ms, symmetric, or None; used to evaluate, not to place.
        name: what people call it.
        measured: sparse measured latencies, or None; kept for building a cost space.
        metrics: names of the last coordinates of every position, which measure something else than
            latency (energy, money; paper, section 3.6), weighted so that 1 counts as much as 1 ms.
            Placement minimizes distances over all coordinates; latencies use the others only.
        queries: whole queries in place of joins of pairs: then `joins` and `matrix` are empty.
        streams: what the tuples of logical streams hold, where queries have expressions.
        zones: where the tuples of logical streams may be, by the stream's name.
    """

    nodes: Nodes
    sources: Sources
    joins: Joins
    matrix: JoinMatrix
    links: Links = field(default_factory=Links.none)
    latency: Floats | None = None
    name: str = "problem"
    measured: PairLatencies | None = None
    metrics: tuple[str, ...] = ()
    queries: tuple[Query, ...] = ()
    streams: tuple[Stream, ...] = ()
    zones: Mapping[str, ZonesPart] = field(default_factory=dict)

    # --- columns of the pairs, as the optimizer wants them -------------------------------------

    @property
    def left_node(self) -> Ints:
        """(p,) node that produces each pair's left stream."""
        return self.pair_ends[:, 0]

    @property
    def right_node(self) -> Ints:
        """(p,) node that produces each pair's right stream."""
        return self.pair_ends[:, 1]

    @property
    def sink_node(self) -> Ints:
        """(p,) node that consumes each pair's result."""
        return self.pair_ends[:, 2]

    @property
    def sinks(self) -> Ints:
        """Nodes that consume the results of joins or queries."""
        if not self.queries:
            return self.joins.sink
        return np.array([self.node_index[query.sink] for query in self.queries], np.int64)

    @cached_property
    def pair_ends(self) -> Ints:
        """(p, 3) nodes at the ends of each pair's legs: left source, right source, sink."""
        m, node = self.matrix, self.sources.node
        return np.stack([node[m.left], node[m.right], self.joins.sink[m.join]], axis=1)

    @cached_property
    def left_rate(self) -> Floats:
        """(p,) dr(s) of each pair, tuples/s."""
        return self.sources.rate[self.matrix.left]

    @cached_property
    def right_rate(self) -> Floats:
        """(p,) dr(t) of each pair, tuples/s."""
        return self.sources.rate[self.matrix.right]

    @cached_property
    def required_capacity(self) -> Floats:
        """(p,) C_r = dr(s) + dr(t) of each pair, tuples/s (paper, section 2.2)."""
        return self.left_rate + self.right_rate

    @property
    def latency_position(self) -> Floats:
        """(n, d - metrics) the coordinates that measure latency, ms."""
        position = self.nodes.position
        return position[:, : position.shape[1] - len(self.metrics)]

    def distance(self, a: Ints, b: Ints) -> Floats:
        """(k,) estimated latency between nodes, ms: distance, and both heights if they differ.

        Args:
            a: (k,) node indices.
            b: (k,) node indices.
        """
        position, height = np.ascontiguousarray(self.nodes.position), self.nodes.height
        a, b = np.broadcast_arrays(a, b)
        distance = np.empty(a.shape)
        for begin in range(0, len(a), _BLOCK):
            part = slice(begin, begin + _BLOCK)
            # `take` copies whole rows, several times faster than an index does.
            away = position.take(a[part], axis=0)
            away -= position.take(b[part], axis=0)
            away *= away
            axes = np.moveaxis(away, -1, 0)
            distance[part] = np.sqrt(sum(axes[: len(axes) - len(self.metrics)]))
        if height is not None:
            distance += np.where(a == b, 0.0, height[a] + height[b])
        return distance

    @property
    def requires(self) -> bool:
        """Whether joins of pairs require more of nodes than room."""
        return bool(self.zones) or self.joins.asks is not None

    @cached_property
    def stream_rules(self) -> Mapping[str, Rule]:
        """The rule of each logical stream that has one: of every node where its tuples are."""
        return {name: rule_of(zones=zones) for name, zones in self.zones.items()}

    def join_rules(self) -> list[Rule]:
        """(q,) the rule of each logical join of pairs: its own, and those of both streams."""
        joins, streams = self.joins, self.stream_rules
        asks = (NOTHING,) * len(joins) if joins.asks is None else joins.asks
        own = [rule_of(**parts_of(one)) for one in asks]
        if not streams:
            return own
        sides = zip(joins.left.tolist(), joins.right.tolist(), strict=True)
        return [
            rule & streams.get(left, ANY_NODE) & streams.get(right, ANY_NODE)
            for rule, (left, right) in zip(own, sides, strict=True)
        ]

    @cached_property
    def node_index(self) -> NameIndex:
        """Node id to index."""
        return NameIndex(self.nodes.ids)

    def pair_name(self, pair: int) -> str:
        """The name of a pair, see `pair_name`; no two pairs have the same."""
        m, s = self.matrix, self.sources.ids
        return pair_name(self.joins.ids[m.join[pair]], s[m.left[pair]], s[m.right[pair]])

    def pair_names(self) -> Strings:
        """(p,) names of all pairs, see `pair_name`."""
        m, ids = self.matrix, self.sources.ids
        join, left = _all_escaped(self.joins.ids, "/"), _all_escaped(ids, "*")

        def some(rows: slice) -> Strings:
            names = join[m.join[rows]]
            for part in ("/", left[m.left[rows]], "*", ids[m.right[rows]]):
                names = np.strings.add(names, part)
            return names

        # In blocks, as all of them several times over would take more memory than most else.
        names = np.empty(len(m), some(slice(0)).dtype)
        for begin in range(0, len(m), _BLOCK):
            rows = slice(begin, begin + _BLOCK)
            names[rows] = some(rows)
        return names

    @cached_property
    def graphs(self) -> dict[Any, Any]:
        """What is placed, by how queries were rewritten; `expansion.graph_of` fills it."""
        return {}

    # --- identity -------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """Digest of everything a placement depends on; the name does not count."""
        h = hashlib.blake2b(digest_size=16)
        for table in (self.nodes, self.sources, self.joins, self.matrix, self.links):
            hash_table(h, table)
        h.update(f"metrics:{self.metrics};".encode())
        hash_array(h, "latency", self.latency)
        for column in column_names(PairLatencies):
            values = None if self.measured is None else getattr(self.measured, column)
            hash_array(h, f"measured.{column}", values)
        if self.queries or self.zones:
            import msgspec

        if self.zones:
            h.update(b"zones:" + msgspec.json.encode(self.zones, order="sorted"))
        if self.queries:
            h.update(msgspec.json.encode(self.queries))
            if self.streams:
                h.update(msgspec.json.encode(self.streams))
        return h.hexdigest()

    def same_as(self, other: Problem) -> bool:
        """Whether both problems hold exactly the same columns."""
        return self.digest == other.digest

    def with_capacity(self, capacity: Floats) -> Problem:
        """The same problem with other node capacities ((n,), tuples/s)."""
        return replace(self, nodes=replace(self.nodes, capacity=np.asarray(capacity, np.float64)))

    def require_pairs(self, what: str) -> None:
        """Refuse whole queries where only joins of pairs are supported.

        Args:
            what: the caller that errors name, such as ``nova live``.

        Raises:
            ProblemError: for a problem of queries.
        """
        if self.queries:
            raise ProblemError(
                f"{self.name}: holds whole queries; {what} takes joins of pairs (`query`) only"
            )


def pair_name(join: str, left: str, right: str) -> str:
    """The name of a pair of sources of a join, such as ``tw/t1*w1``.

    A ``/`` in the join's id is written ``%2F``, a ``*`` in the left source's ``%2A``, and a ``%``
    in either ``%25``.
    """
    return f"{_escaped(str(join), '/')}/{_escaped(str(left), '*')}*{right}"


def _escaped(name: str, separator: str) -> str:
    """A name in which a separator that follows it is escaped."""
    if "%" not in name and separator not in name:
        return name
    return name.replace("%", "%25").replace(separator, f"%{ord(separator):02X}")


def _all_escaped(names: Strings, separator: str) -> Strings:
    """`_escaped` of every name."""
    points = code_points(names)
    if ((points == ord("%")) | (points == ord(separator))).any():
        return np.array([_escaped(name, separator) for name in names.tolist()], np.str_)
    return names


def hash_table(h: hashlib.blake2b, table: Nodes | Sources | Joins | JoinMatrix | Links) -> None:
    """Add all columns of a table in memory to a `Problem.digest`."""
    columns = {name: getattr(table, name) for name in column_names(table)}
    if isinstance(table, Joins):
        asked = asked_columns(columns.pop("asks") or ())
        columns |= {name: column for (_, name), column in asked.items()}
    for name, column in columns.items():
        if column is not None or name in _MENTIONED:
            hash_array(h, f"{type(table).__name__}.{name}", column)


def hash_array(h: hashlib.blake2b, name: str, array: NDArray[np.generic] | None) -> None:
    """Add a column in memory to a `Problem.digest`; None stands for a missing column."""
    if array is None:
        hash_column(h, name, None, (), ())
    elif array.dtype.kind == "U":
        hash_column(h, name, "U", array.shape, [joined(np.asarray(array, np.str_))])
    else:
        chunk = np.ascontiguousarray(array).data
        hash_column(h, name, array.dtype.str, array.shape, [chunk])


def hash_column(
    h: hashlib.blake2b,
    name: str,
    kind: str | None,
    shape: tuple[int, ...],
    chunks: Iterable[bytes | memoryview],
) -> None:
    """Add a column to a `Problem.digest`.

    Args:
        h: of the problem.
        name: of the table and the column, as in ``Nodes.capacity``.
        kind: numpy's name of its type, ``U`` for text of any width, None for no column.
        shape: of the whole column.
        chunks: its bytes, in order; of text, UTF-8 with a NUL between two rows.
    """
    # The width of a fixed-width string column is an accident of its longest value.
    h.update(f"{name}:none;".encode() if kind is None else f"{name}:{kind}{shape};".encode())
    for chunk in chunks:
        h.update(chunk)
