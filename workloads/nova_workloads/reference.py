"""The expected results of a windowed join: computed in one process, and compared with a run.

Tuples of two streams match when their sensors are joined and their event times lie in the same
tumbling window. The results need not be enumerated to be counted or compared: tuples of one sensor
in one window form a cell, a pair of cells has the product of their sizes as results, and so every
result has a number of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from nova_core.errors import NovaError
from nova_workloads.comparison import EXAMPLES, Comparison

if TYPE_CHECKING:
    from nova_core.model.problem import Ints, Problem
    from nova_workloads.schedule import Tuples
    from nova_workloads.streams import Stream

BATCH = 1 << 20  # results worked on at once


@dataclass(frozen=True, eq=False)
class Results:
    """Some results of a join; all arrays are (k,).

    Attributes:
        left: index of the left tuple's stream, -1 where there is none of that name.
        left_sequence: number of the left tuple.
        right: index of the right tuple's stream, or -1.
        right_sequence: number of the right tuple.
        window_ms: begin of their window, ms since the epoch, or None where it is not known.
        instance: that delivered each, where that counts.
    """

    left: Ints
    left_sequence: Ints
    right: Ints
    right_sequence: Ints
    window_ms: Ints | None
    instance: Ints | None = None

    def __len__(self) -> int:
        return len(self.left)


class Reference:
    """The join of two logical streams over tumbling windows of event time."""

    def __init__(
        self,
        streams: Sequence[Stream],
        tuples: Tuples,
        window_ms: int,
        *,
        left: str = "pressure",
        right: str = "humidity",
        keys: int = 1,
        every: int = 1,
        pairs: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Index the tuples.

        Args:
            streams: those the tuples' indices mean.
            tuples: everything that was emitted.
            window_ms: length of the windows, which begin at its multiples since the epoch.
            left: logical stream on the left.
            right: logical stream on the right.
            keys: sequence numbers have to be equal modulo this as well.
            every: their remainder, the key, has to be a multiple of this.
            pairs: streams to join, as indices, whatever their names; all of equal region when
                None.

        Raises:
            NovaError: when a sensor has two tuples of one number.
        """
        self.streams, self.tuples, self.window_ms = streams, tuples, window_ms
        self.keys, self.every = keys, every
        self.left_stream, self.right_stream = left, right
        for name in (left, right) if pairs is None else ():
            if not any(s.stream == name for s in streams):
                known = ", ".join(sorted({s.stream for s in streams}))
                raise NovaError(f"no sensor is in stream {name!r}; there are {known}")
        self.pairs = _equal_regions(streams, left, right) if pairs is None else list(pairs)
        self._index_numbers()
        self._index_cells()
        self._match_cells()

    # --- indexes --------------------------------------------------------------------------------

    def _index_numbers(self) -> None:
        """Find a tuple by its stream and sequence number."""
        t = self.tuples
        self._least = int(t.sequence.min()) if len(t) else 0
        self._span = int(t.sequence.max()) - self._least + 1 if len(t) else 1
        if self._span * max(len(self.streams), 1) >= 2**63:
            raise NovaError("sequence numbers are too far apart")
        code = t.stream * self._span + (t.sequence - self._least)
        self._by_number = np.argsort(code, kind="stable")
        self._numbers = code[self._by_number]
        again = np.flatnonzero(np.diff(self._numbers) == 0)
        if len(again):
            row = self._by_number[again[0]]
            name = self.streams[int(t.stream[row])].name
            raise NovaError(
                f"sensor {name}: two tuples of sequence number {t.sequence[row]}; "
                "a result must say which one it means"
            )

    def _index_cells(self) -> None:
        """Group each stream's tuples by window and key: `_order` lists them cell by cell."""
        t = self.tuples
        window = t.time_ms // self.window_ms
        first, last = (int(window.min()), int(window.max())) if len(t) else (0, 0)
        if (last - first + 1) * self.keys >= 2**63:
            raise NovaError(f"{self.keys} keys in windows of {self.window_ms} ms are too many")
        cell = (window - first) * self.keys + t.sequence % self.keys
        self._order = np.lexsort((t.sequence, cell, t.stream))
        self._rank = np.empty(len(t), np.int64)
        self._rank[self._order] = np.arange(len(t))
        stream, cell = t.stream[self._order], cell[self._order]
        new = (np.diff(stream, prepend=-1) != 0) | (np.diff(cell, prepend=-1) != 0)
        self._start = np.flatnonzero(new)
        self._count = np.diff(self._start, append=len(t))
        self._cell_of = np.cumsum(new) - 1  # by rank
        self._cell_stream, self._cell = stream[self._start], cell[self._start]

    def _match_cells(self) -> None:
        """Pairs of cells that join, and the number of the first result of each."""
        bounds = np.searchsorted(self._cell_stream, np.arange(len(self.streams) + 1))
        none = np.empty(0, np.int64)
        pair, left, right = [none], [none], [none]
        for number, (a, b) in enumerate(self.pairs):
            _, i, j = np.intersect1d(
                self._cell[bounds[a] : bounds[a + 1]],
                self._cell[bounds[b] : bounds[b + 1]],
                assume_unique=True,
                return_indices=True,
            )
            i, j = bounds[a] + i, bounds[b] + j
            matching = self._cell[i] % self.keys % self.every == 0
            pair.append(np.full(int(matching.sum()), number))
            left.append(i[matching])
            right.append(j[matching])
        self._pair = np.concatenate(pair)
        self._left, self._right = np.concatenate(left), np.concatenate(right)
        size = self._count[self._left] * self._count[self._right]
        self._first = np.concatenate(([0], np.cumsum(size)))
        self._group_code = self._pair * max(len(self._start), 1) + self._left

    # --- expected results -----------------------------------------------------------------------

    @property
    def total(self) -> int:
        """How many results are expected."""
        return int(self._first[-1])

    @property
    def windows(self) -> int:
        """How many windows have results."""
        return len(np.unique(self._cell[self._left] // self.keys))

    @cached_property
    def per_pair(self) -> Ints:
        """(p,) results of each pair."""
        ends = np.searchsorted(self._pair, np.arange(len(self.pairs) + 1))
        return np.diff(self._first[ends])

    def pair_name(self, pair: int) -> str:
        """Such as ``pressure-1*humidity-1``."""
        a, b = self.pairs[pair]
        return f"{self.streams[a].sensor}*{self.streams[b].sensor}"

    def rows(self, number: Ints) -> tuple[Ints, Ints]:
        """((k,), (k,)) rows of the left and right tuples of results by their numbers."""
        group = np.searchsorted(self._first, number, side="right") - 1
        rest = number - self._first[group]
        width = self._count[self._right[group]]
        left = self._order[self._start[self._left[group]] + rest // width]
        right = self._order[self._start[self._right[group]] + rest % width]
        return left, right

    def batches(self) -> Iterator[tuple[Ints, Ints]]:
        """All results, as rows of their left and right tuples, pair by pair."""
        for first in range(0, self.total, BATCH):
            yield self.rows(np.arange(first, min(first + BATCH, self.total)))

    def window_of(self, rows: Ints) -> Ints:
        """(k,) begin of the tuples' windows, ms since the epoch."""
        return self.tuples.time_ms[rows] // self.window_ms * self.window_ms

    def describe(self, number: int) -> str:
        """A result, for people."""
        left, right = self.rows(np.array([number]))
        t = self.tuples
        one = Results(
            t.stream[left], t.sequence[left], t.stream[right], t.sequence[right],
            self.window_of(left),
        )  # fmt: skip
        return self._text(one, 0)

    def _text(self, results: Results, row: int) -> str:
        ends = []
        for index, sequence in (
            (results.left[row], results.left_sequence[row]),
            (results.right[row], results.right_sequence[row]),
        ):
            ends.append(f"{self.streams[index].sensor if index >= 0 else None} {sequence}")
        window = "" if results.window_ms is None else f" in window {results.window_ms[row]}"
        return " with ".join(ends) + window

    # --- delivered results ----------------------------------------------------------------------

    def _find(self, stream: Ints, sequence: Ints) -> Ints:
        """(k,) rows of tuples, -1 where there is none."""
        offset = sequence - self._least
        known = (stream >= 0) & (offset >= 0) & (offset < self._span)
        code = np.where(known, stream * self._span + offset, -1)
        place = np.minimum(np.searchsorted(self._numbers, code), max(len(self._numbers) - 1, 0))
        if not len(self._numbers):
            return np.full(len(stream), -1)
        return np.where(self._numbers[place] == code, self._by_number[place], -1)

    @cached_property
    def _pair_codes(self) -> tuple[Ints, Ints]:
        code = np.array([a * len(self.streams) + b for a, b in self.pairs], np.int64)
        order = np.argsort(code)
        return code[order], order

    def numbers(self, results: Results) -> Ints:
        """(k,) number of each result, -1 for one that is not expected."""
        number = np.full(len(results), -1, np.int64)
        if self.total == 0:
            return number
        left = self._find(results.left, results.left_sequence)
        right = self._find(results.right, results.right_sequence)
        codes, order = self._pair_codes
        code = results.left * len(self.streams) + results.right
        place = np.minimum(np.searchsorted(codes, code), len(codes) - 1)
        good = (left >= 0) & (right >= 0) & (codes[place] == code)
        if results.window_ms is not None:
            good &= np.where(good, self.window_of(left) == results.window_ms, False)
        rows = np.flatnonzero(good)
        rank = self._rank[left[rows]], self._rank[right[rows]]
        cell = self._cell_of[rank[0]], self._cell_of[rank[1]]
        group_codes = order[place[rows]] * len(self._start) + cell[0]
        group = np.minimum(np.searchsorted(self._group_code, group_codes), len(self._pair) - 1)
        match = (self._group_code[group] == group_codes) & (self._right[group] == cell[1])
        rows, group = rows[match], group[match]
        row = rank[0][match] - self._start[self._left[group]]
        column = rank[1][match] - self._start[self._right[group]]
        number[rows] = self._first[group] + row * self._count[self._right[group]] + column
        return number

    def compare(
        self, delivered: Iterable[Results], *, due: Ints | None = None, finished: bool = True
    ) -> Comparison:
        """Compare delivered results with expected ones.

        A missing result may have been on its way when the run was ended: it is *cut off* when its
        instance had delivered nothing of a later window. All other missing results are *lost*.
        Memory: a byte per expected result.

        Args:
            delivered: all results of the run, in any order and in batches.
            due: (`total`,) the instance that must deliver each result, where results name theirs.
            finished: whether the run ended by itself.
        """
        seen = np.zeros(self.total, np.bool_)
        latest = np.full(0 if due is None else int(due.max(initial=-1)) + 1, -1, np.int64)
        came = twice = wrong = 0
        examples: dict[str, list[str]] = {"lost": [], "duplicated": [], "wrong": []}
        for results in delivered:
            number = self.numbers(results)
            known = number >= 0
            good = known.copy()
            if due is not None and self.total:
                assert results.instance is not None
                assert results.window_ms is not None
                good &= due[np.where(known, number, 0)] == results.instance
                inside = (results.instance >= 0) & (results.instance < len(latest))
                np.maximum.at(latest, results.instance[inside], results.window_ms[inside])
            came += len(number)
            bad = np.flatnonzero(~good)
            wrong += len(bad)
            for row in bad[: EXAMPLES - len(examples["wrong"])].tolist():
                where = "" if results.instance is None else f"instance {results.instance[row]}: "
                examples["wrong"].append(where + self._text(results, row))
            distinct, count = np.unique(number[known], return_counts=True)
            more = count - ~seen[distinct]
            twice += int(more.sum())
            again = distinct[more > 0][: EXAMPLES - len(examples["duplicated"])]
            examples["duplicated"] += [self.describe(n) for n in again.tolist()]
            seen[distinct] = True
        missing = np.flatnonzero(~seen)
        lost = missing
        if due is not None and not finished and len(missing):
            left, _ = self.rows(missing)
            lost = missing[self.window_of(left) < latest[due[missing]]]
        examples["lost"] = [self.describe(n) for n in lost[:EXAMPLES].tolist()]
        ends = np.cumsum(self.per_pair)
        of_pair = np.bincount(np.searchsorted(ends, lost, side="right"), minlength=len(ends))
        return Comparison(
            expected=self.total,
            delivered=came,
            lost=len(lost),
            duplicated=twice,
            wrong=wrong,
            cut_off=len(missing) - len(lost),
            finished=finished,
            lost_per_pair={
                self.pair_name(pair): lost_here
                for pair, lost_here in enumerate(of_pair.tolist())
                if lost_here
            },
            examples=examples,
        )


def _equal_regions(streams: Sequence[Stream], left: str, right: str) -> list[tuple[int, int]]:
    rights: dict[str, list[int]] = {}
    for index, stream in enumerate(streams):
        if stream.stream == right:
            rights.setdefault(stream.region, []).append(index)
    return [
        (index, other)
        for index, stream in enumerate(streams)
        if stream.stream == left
        for other in rights.get(stream.region, [])
    ]


def pairs_of(
    problem: Problem, streams: Sequence[Stream], left: str, right: str
) -> list[tuple[int, int]]:
    """The pairs a problem's join matrix allows, as indices of streams.

    A stream is the source that has its name (``sensor-stream``) or, failing that, its sensor's.

    Raises:
        NovaError: for a source of the join without a stream.
    """
    index = {s.name: i for i, s in reversed(list(enumerate(streams)))}
    by_sensor = {(s.sensor, s.stream): i for i, s in enumerate(streams)}
    ids, names = problem.sources.ids, problem.sources.stream

    def stream_of(source: int) -> int:
        name = str(ids[source])
        stream = index.get(name, by_sensor.get((name, str(names[source]))))
        if stream is None:
            raise NovaError(f"source {name!r} of problem {problem.name!r}: no input is called so")
        return stream

    m, joins = problem.matrix, problem.joins
    chosen = np.flatnonzero((joins.left[m.join] == left) & (joins.right[m.join] == right))
    return [(stream_of(int(m.left[row])), stream_of(int(m.right[row]))) for row in chosen.tolist()]
