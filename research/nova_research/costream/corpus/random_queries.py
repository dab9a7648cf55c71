"""Random whole queries with known selectivities, and readings that produce these.

Queries are those of Costream's benchmark (section VI, Table II) as far as Nova's language goes: a
stream with filters, or two or three joined ones, half of them with a final aggregate. Windows are
by time; ``!=`` is ``<>``, ``startswith`` is a range of texts, and there is no ``endswith``. Four
queries of other benchmarks (section VII-F) are drawn with random rates, on streams of the same
columns: their own data is not to be had.

Every column has uniform values, independent of all others. So a condition passes the share of
values it holds for, two columns of k values are equal for one pair in k, and rates follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_research.costream.corpus.ranges import MOST_SECONDS, RACK, Ranges
from nova_research.costream.training.traces import STRUCTURES

if TYPE_CHECKING:
    from numpy.typing import NDArray

STRUCTURE_SHARES = (0.175, 0.175, 0.17, 0.17, 0.155, 0.155)
FILTER_SHARES = (0.35, 0.34, 0.24, 0.07)
"""Of queries with 1, 2, 3 and 4 filters."""
FILTERED = (0.05, 0.95)
"""Least and greatest selectivity that a filter's constant is chosen for."""
AFTER_JOIN = 0.2
"""Share of filters that follow the last join."""
WIDTH = (3, 10)
"""Fewest and most columns of a stream."""
SLIDES = (0.4, 0.5)
"""Slides as shares of the window's length. Few, so that one measured time can hold a whole number
of slides; windows of more than 1 s use only the second."""
GROUPS = (2, 5, 10, 50, 200)
OWN_WINDOW = 0.3
"""Share of aggregates after joins whose windows differ from the joins'."""
GRID_WINDOW = {"window": 3.0, "slide": 1.5}
"""Of the smart grid's queries, s: a length that random queries do not have."""
HOUSES = 40
"""Of the smart grid."""
VALUES = 1000
"""Different values of a column that is neither a join key nor a group."""
TEXT = (4, 12)
"""Shortest and longest texts."""
USUAL_BYTES = 45
"""Bytes of the columns that a query reads; rates are limited such that their readings fit."""
FIRST_MS = 1_600_000_000_000
"""Event time of the first readings: a window of every length begins then."""
TYPES = ("int", "float", "text")


@dataclass(frozen=True)
class RandomColumn:
    """A column of uniform values.

    Attributes:
        name: of it.
        type: ``int``, ``float`` or ``text``.
        values: number of different values: 0, 1, ... as an int; divided by their number as a float;
            with leading zeros and trailing ``x`` as a text.
        width: of texts, characters.
    """

    name: str
    type: str
    values: int
    width: int = 0

    @property
    def digits(self) -> int:
        """Number of digits in a text."""
        return len(str(self.values - 1))

    def literal(self, number: int) -> str:
        """A value as a literal in a condition; a text without its ``x``."""
        if self.type == "int":
            return str(number)
        if self.type == "float":
            return repr(number / self.values)
        return f"'{number:0{self.digits}d}'"

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[Any]:
        """Values: whole numbers, floats or bytes of texts."""
        numbers = rng.integers(0, self.values, count)
        if self.type == "int":
            return numbers.astype("<i8")
        if self.type == "float":
            return (numbers / self.values).astype("<f8")
        texts = np.array(
            [f"{n:0{self.digits}d}".ljust(self.width, "x") for n in range(self.values)]
        )
        return texts.astype(f"S{self.width}")[numbers]


@dataclass(frozen=True)
class RandomStream:
    """A stream with one source.

    Attributes:
        id: of the stream.
        rate: tuples/s.
        columns: of its tuples.
        phase: when its first tuple comes, as a share of the time between two.
    """

    id: str
    rate: float
    columns: tuple[RandomColumn, ...]
    phase: float

    @property
    def source(self) -> str:
        """Its source's id."""
        return f"{self.id}-1"

    @property
    def tuple_bytes(self) -> int:
        """Bytes of an encoded tuple (`nova_workloads.queries.readings.encode`)."""
        return 8 + sum(8 if one.type != "text" else 4 + one.width for one in self.columns)

    def times_ms(self, seconds: float) -> NDArray[np.int64]:
        """Event times of so many seconds."""
        count = int(np.ceil(self.rate * seconds - self.phase))
        times = np.floor((np.arange(count) + self.phase) * 1000 / self.rate)
        return np.asarray(FIRST_MS + times, np.int64)


@dataclass(frozen=True)
class RandomQuery:
    """A query, its streams and its expected rates.

    Attributes:
        id: of the query, unique among those of a problem; so are its streams' and sources'.
        structure: one of `nova_research.costream.training.traces.STRUCTURES`.
        streams: that it reads.
        operators: as in the query document.
        rates: tuples/s that each operator is expected to emit.
        seed: of the values of its readings.
    """

    id: str
    structure: str
    streams: tuple[RandomStream, ...]
    operators: list[dict[str, Any]]
    rates: dict[str, float]
    seed: tuple[int, ...]

    @property
    def slides_s(self) -> set[float]:
        """Distances between the starts of its windows."""
        windowed = [one for one in self.operators if "window" in one]
        return {float(one.get("slide", one["window"])) for one in windowed}

    @property
    def sources(self) -> list[str]:
        """Ids of its sources."""
        return [one.source for one in self.streams]

    @property
    def window_s(self) -> float | None:
        """Its longest window."""
        return max(
            (float(one["window"]) for one in self.operators if "window" in one), default=None
        )

    def document(self, nodes: Sequence[str], sink: str) -> dict[str, Any]:
        """The query's part of a problem document.

        Args:
            nodes: of the sources.
            sink: node of the sink.
        """
        columns = [{column.name: column.type for column in one.columns} for one in self.streams]
        return {
            "streams": [
                {"id": one.id, "columns": types}
                for one, types in zip(self.streams, columns, strict=True)
            ],
            "sources": [
                {"id": one.source, "node": node, "stream": one.id, "rate": one.rate}
                | {"tuple_bytes": one.tuple_bytes}
                for one, node in zip(self.streams, nodes, strict=True)
            ],
            "queries": [{"id": self.id, "sink": sink, "operators": self.operators}],
        }

    def _values(self, seconds: float) -> list[tuple[RandomStream, dict[str, NDArray[Any]]]]:
        streams = []
        for number, stream in enumerate(self.streams):
            rng = np.random.default_rng([*self.seed, number])
            times = stream.times_ms(seconds)
            drawn = {one.name: one.draw(rng, len(times)) for one in stream.columns}
            streams.append((stream, {"time": times, **drawn}))
        return streams

    def emitted(self, seconds: float) -> dict[str, int]:
        """Readings of each source in so many seconds."""
        return {one.source: len(one.times_ms(seconds)) for one in self.streams}

    def write_encoded(self, directory: Path, seconds: float) -> dict[str, str]:
        """Write readings in the format of engines' sources.

        Returns:
            The file of each source.
        """
        files = {}
        for number, (stream, values) in enumerate(self._values(seconds)):
            path = directory / f"{self.id}-{number}.readings"
            path.write_bytes(_encoded(stream, values))
            files[stream.source] = str(path)
        return files


def _encoded(stream: RandomStream, values: Mapping[str, NDArray[Any]]) -> bytes:
    """Concatenated tuples, as `nova_workloads.queries.readings.encode` makes them."""
    layout: list[tuple[str, str]] = [("time", "<i8")]
    for one in stream.columns:
        if one.type == "text":
            layout += [(f"{one.name} length", "<i4"), (one.name, f"S{one.width}")]
        else:
            layout.append((one.name, "<i8" if one.type == "int" else "<f8"))
    rows = np.zeros(len(values["time"]), layout)
    for name, column in values.items():
        rows[name] = column
    for one in stream.columns:
        if one.type == "text":
            rows[f"{one.name} length"] = one.width
    return rows.tobytes()


# --- random queries -----------------------------------------------------------------------------


def random_query(
    seed: Sequence[int], load: float = 1.0, ranges: Ranges = RACK, number: int = 1
) -> RandomQuery:
    """Draw a query.

    Args:
        seed: one seed gives one query.
        load: factor of its rates, beside one of the ranges' loads.
        ranges: that it is drawn from.
        number: of the query in its problem, from 1: names of a second one differ from the first's.
    """
    return _Growing(tuple(seed), load, ranges).query("" if number == 1 else str(number))


def random_queries(
    seed: Sequence[int], count: int, load: float = 1.0, ranges: Ranges = RACK
) -> list[RandomQuery]:
    """Draw the queries of a problem.

    Args:
        seed: one seed gives one set of queries.
        count: of queries. They share the bytes of readings that one of them would have.
        load: factor of their rates, beside one of the ranges' loads for each. The more queries, the
            lower are the rates of each, and the higher those of all.
        ranges: that they are drawn from.
    """
    shared = replace(ranges, most_bytes=ranges.most_bytes / count)
    load /= count**0.5
    return [
        random_query([*seed, *([number] if number > 1 else [])], load, shared, number)
        for number in range(1, count + 1)
    ]


def document_of(
    queries: Sequence[RandomQuery], ends: Sequence[tuple[Sequence[str], str]]
) -> dict[str, Any]:
    """The queries' part of a problem document.

    Args:
        queries: of the problem.
        ends: nodes of the sources of each, and of its sink.
    """
    parts = [one.document(*of_one) for one, of_one in zip(queries, ends, strict=True)]
    return {name: [row for part in parts for row in part[name]] for name in parts[0]}


@dataclass
class _Draft:
    """A stream under construction, and the operators on it so far.

    Attributes:
        id: of the stream.
        rate: of its source, tuples/s.
        flow: operator or stream that currently emits its tuples.
        emitted: tuples/s of that.
        columns: so far.
        needed: how many of them the query reads.
    """

    id: str
    rate: float
    flow: str
    emitted: float
    columns: list[RandomColumn] = field(default_factory=list)
    needed: int = 0


class _Growing:
    def __init__(self, seed: tuple[int, ...], load: float, ranges: Ranges) -> None:
        self._seed, self._ranges = seed, ranges
        self._rng = np.random.default_rng(seed)
        low, high = np.log(ranges.loads)
        self._load = load * float(np.exp(self._rng.uniform(low, high)))
        self._operators: list[dict[str, Any]] = []
        self._rates: dict[str, float] = {}

    def query(self, suffix: str) -> RandomQuery:
        benchmark = self._ranges.benchmark
        grown = BENCHMARKS[benchmark] if benchmark else _Growing._random
        structure, drafts = grown(self, suffix)
        for draft in drafts:
            draft.needed = len(draft.columns)
        return RandomQuery(
            f"q{suffix}",
            structure,
            tuple(self._stream(draft, len(drafts)) for draft in drafts),
            self._operators,
            self._rates,
            self._seed,
        )

    def _random(self, suffix: str) -> tuple[str, list[_Draft]]:
        """A random query; its structure and streams."""
        rng = self._rng
        structure = str(rng.choice(STRUCTURES, p=STRUCTURE_SHARES))
        streams = 1 + STRUCTURES.index(structure) // 2
        drafts = [self._draft("abc"[number] + suffix, streams) for number in range(streams)]
        filters = 1 + int(rng.choice(len(FILTER_SHARES), p=FILTER_SHARES))
        behind = 0 if streams == 1 else int(rng.binomial(filters, AFTER_JOIN))
        for _ in range(filters - behind):
            draft = drafts[int(rng.integers(streams))]
            draft.flow, draft.emitted = self._filter(draft, draft.flow, draft.emitted)
        window = self._window()
        flow, emitted = drafts[0].flow, drafts[0].emitted
        for number in range(1, streams):
            left = drafts[0] if number == 1 else drafts[int(rng.integers(number))]
            flow, emitted = self._join(number, left, flow, emitted, drafts[number], window)
        for _ in range(behind):
            flow, emitted = self._filter(drafts[int(rng.integers(streams))], flow, emitted)
        if structure.endswith("-agg"):
            shared = streams > 1
            if shared and rng.random() < OWN_WINDOW:
                window, shared = self._window(), False
            self._aggregate(drafts[int(rng.integers(streams))], flow, emitted, window, shared)
        return structure, drafts

    def _advertisement(self, suffix: str) -> tuple[str, list[_Draft]]:
        """Clicks of one kind, joined with impressions of the same advertisement."""
        clicks, impressions = drafts = [self._draft(name + suffix, 2) for name in "ab"]
        for draft in drafts:
            for kind in ("text", "int", "int", "text"):  # of user, query, advertiser and page
                self._column(draft, kind)
        clicks.flow, clicks.emitted = self._filter(clicks, clicks.flow, clicks.emitted)
        flow, emitted = clicks.flow, clicks.emitted
        self._join(1, clicks, flow, emitted, impressions, self._window())
        return "two-way", drafts

    def _spikes(self, suffix: str) -> tuple[str, list[_Draft]]:
        """Readings of a sensor network that are valid, and spikes."""
        draft = self._draft("a" + suffix, 1)
        for kind in ("int", "float", "float"):  # device, humidity, light
            self._column(draft, kind)
        voltage, temperature = self._column(draft, "float"), self._column(draft, "float")
        flow, emitted = draft.flow, draft.emitted
        for column, share in ((voltage, 0.95), (temperature, 0.05)):
            least = column.literal(round(column.values * (1 - share)))
            where = f"{draft.id}.{column.name} >= {least}"
            flow, emitted = self._keep(flow, emitted, where, share)
        return "linear", [draft]

    def _grid(self, suffix: str, groups: int) -> tuple[str, list[_Draft]]:
        """The mean load of smart plugs, or of each house's (DEBS Grand Challenge 2014)."""
        draft = self._draft("a" + suffix, 1)
        load, house = self._column(draft, "float"), self._column(draft, "int", groups)
        for kind in ("int", "int", "int"):  # of reading, plug and household
            self._column(draft, kind)
        # A plug reports its load and its work in turn.
        what = self._column(draft, "int", 2)
        where = f"{draft.id}.{what.name} = 1"
        flow, emitted = self._keep(draft.flow, draft.emitted, where, 0.5)
        compute = {"x0": f"mean({draft.id}.{load.name})"}
        by = f"{draft.id}.{house.name}" if groups > 1 else None
        self._compute(flow, emitted, GRID_WINDOW, False, compute, by, groups)
        return "linear-agg", [draft]

    def _draft(self, name: str, streams: int) -> _Draft:
        most = self._ranges.most_bytes / streams / MOST_SECONDS / USUAL_BYTES
        rate = min(float(self._rng.choice(self._ranges.rates[streams])) * self._load, most)
        rate = float(f"{rate:.4g}")
        return _Draft(name, rate, name, rate)

    def _stream(self, draft: _Draft, streams: int) -> RandomStream:
        phase = float(self._rng.uniform(0, 1))
        room = self._ranges.most_bytes / streams / MOST_SECONDS / draft.rate
        if not self._ranges.benchmark:
            for _ in range(int(self._rng.integers(WIDTH[0], WIDTH[1] + 1)) - len(draft.columns)):
                self._column(draft)
        while True:
            stream = RandomStream(draft.id, draft.rate, tuple(draft.columns), phase)
            if stream.tuple_bytes <= room or len(draft.columns) <= draft.needed:
                return stream
            del draft.columns[-1]

    def _column(self, draft: _Draft, kind: str = "", values: int = VALUES) -> RandomColumn:
        kind = kind or str(self._rng.choice(TYPES))
        width = 0
        if kind == "text":
            width = max(int(self._rng.integers(TEXT[0], TEXT[1] + 1)), len(str(values - 1)))
        column = RandomColumn(f"c{len(draft.columns)}", kind, values, width)
        draft.columns.append(column)
        return column

    def _window(self) -> dict[str, float]:
        rng = self._rng
        size = float(rng.choice(self._ranges.windows_s, p=self._ranges.window_shares))
        if rng.random() < 0.5:
            return {"window": size}
        share = float(rng.choice(SLIDES)) if size <= 1 else SLIDES[-1]
        return {"window": size, "slide": round(size * share, 3)}

    def _add(self, operator: dict[str, Any], rate: float) -> tuple[str, float]:
        self._operators.append(operator)
        self._rates[operator["id"]] = rate
        return operator["id"], rate

    def _filter(self, draft: _Draft, flow: str, rate: float) -> tuple[str, float]:
        column = self._column(draft)
        where, share = self._condition(f"{draft.id}.{column.name}", column)
        return self._keep(flow, rate, where, share)

    def _keep(self, flow: str, rate: float, where: str, share: float) -> tuple[str, float]:
        """A filter with a condition that holds for a share of its input."""
        number = 1 + sum(one["kind"] == "filter" for one in self._operators)
        operator = {"id": f"f{number}", "kind": "filter", "input": flow, "where": where}
        return self._add(operator | {"selectivity": float(f"{share:.6g}")}, rate * share)

    def _condition(self, name: str, column: RandomColumn) -> tuple[str, float]:
        """A condition and the share of values it holds for."""
        functions = ["<", "<=", ">", ">=", "<>", *(["startswith"] if column.type == "text" else [])]
        function = str(self._rng.choice(functions))
        many = column.values
        if function == "startswith":
            # The first digit is one of 0 to 8; the next character ends the range.
            first = int(self._rng.integers(0, 9))
            return f"{name} >= '{first}' AND {name} < '{first + 1}'", 0.1
        number = min(max(round(float(self._rng.uniform(*FILTERED)) * many), 1), many - 2)
        # A text continues after its number, so it is greater than the number alone.
        at_most = number + (column.type != "text")
        share = {
            "<": number / many,
            "<=": at_most / many,
            ">": 1 - at_most / many,
            ">=": 1 - number / many,
            "<>": 1 - (column.type != "text") / many,
        }[function]
        return f"{name} {function} {column.literal(number)}", share

    def _join(
        self,
        number: int,
        left: _Draft,
        flow: str,
        rate: float,
        right: _Draft,
        window: Mapping[str, float],
    ) -> tuple[str, float]:
        size = window["window"]
        slide = window.get("slide", size)
        # Inputs of the first join are in all overlapping windows; its results stay in their own.
        pairs = rate * right.emitted * (size * size / slide if number == 1 else size)
        low, high = np.log(self._ranges.results)
        target = float(np.exp(self._rng.uniform(low, high)))
        keys = min(max(round(pairs / target), 1), 100_000)
        kind = str(self._rng.choice(("int", "text")))
        one = self._column(left, kind, keys)
        other = RandomColumn(f"c{len(right.columns)}", kind, keys, one.width)
        right.columns.append(other)
        emitted = pairs / keys
        operator = {
            "id": f"j{number}",
            "kind": "join",
            "inputs": [flow, right.flow],
            "on": f"{left.id}.{one.name} = {right.id}.{other.name}",
            **window,
            "keys": keys,
            "selectivity": float(f"{emitted / min(rate, right.emitted):.6g}"),
        }
        return self._add(operator, emitted)

    def _aggregate(
        self, draft: _Draft, flow: str, rate: float, window: Mapping[str, float], shared: bool
    ) -> None:
        rng = self._rng
        kind = str(rng.choice((*TYPES[::2], "none")))
        group, groups = None, 1
        if kind != "none":
            groups = int(rng.choice(GROUPS))
            group = self._column(draft, kind, groups)
        value = self._column(draft, str(rng.choice(("int", "float"))))
        functions = rng.choice(
            ("count", "sum", "mean", "min", "max"), int(rng.integers(1, 4)), replace=False
        )
        compute = {
            f"x{i}": "count()" if one == "count" else f"{one}({draft.id}.{value.name})"
            for i, one in enumerate(functions.tolist())
        }
        by = None if group is None else f"{draft.id}.{group.name}"
        self._compute(flow, rate, window, shared, compute, by, groups)

    def _compute(
        self,
        flow: str,
        rate: float,
        window: Mapping[str, float],
        shared: bool,
        compute: Mapping[str, str],
        by: str | None,
        groups: int,
    ) -> None:
        """An aggregate; `shared` if its windows are those of the join before it."""
        size = window["window"]
        slide = window.get("slide", size)
        # Tuples of a window.
        many = rate * (slide if shared else size)
        met = groups * -np.expm1(many * np.log1p(-1 / groups)) if groups > 1 else min(many, 1.0)
        operator = {"id": "agg", "kind": "aggregate", "input": flow, **window, "compute": compute}
        if by is not None:
            operator["group_by"] = [by]
        operator["groups"] = max(1, round(float(met)))
        self._add(operator, float(met) / slide)


BENCHMARKS: Mapping[str, Callable[[_Growing, str], tuple[str, list[_Draft]]]] = {
    "advertisement": _Growing._advertisement,
    "spikes": _Growing._spikes,
    "grid, global": partial(_Growing._grid, groups=1),
    "grid, local": partial(_Growing._grid, groups=HOUSES),
}
"""Queries of other benchmarks, by their names in `Ranges.benchmark`."""
