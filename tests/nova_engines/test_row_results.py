"""The file of a sink's rows, written by Java and read by Python."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from java_results import compiled
from result_rows import result_rows

from nova_core.errors import NovaError
from nova_engines import results
from nova_engines.installing import java

COLUMNS, TYPES = ("heat.value", "heat.n", "heat.at"), ("float", "int", "text")
Row = tuple[int, tuple[int, int, int, int], tuple[Any, ...]]
"""Event time, span, columns."""


class Sinks:
    """A Java process that writes results of queries."""

    def __init__(self, classes: Path) -> None:
        command = [java(), "-XX:TieredStopAtLevel=1", "-cp", str(classes), "WriteRows"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def write(
        self,
        file: Path,
        job: str,
        columns: Sequence[str],
        types: Sequence[str],
        rows: Sequence[Row],
        *,
        end: bool = True,
    ) -> str:
        """Have it write a file; what is wrong, or nothing."""
        assert self._process.stdin is not None and self._process.stdout is not None
        parts = [_text(str(file)), _text(job), struct.pack(">i", len(columns))]
        parts += [_text(one) for pair in zip(columns, types, strict=True) for one in pair]
        parts.append(struct.pack(">i", len(rows)))
        parts += [_row(number, *row) for number, row in enumerate(rows)]
        self._process.stdin.write(b"".join([*parts, struct.pack(">?", end)]))
        self._process.stdin.flush()
        return self._process.stdout.readline().decode().rstrip("\n")

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)


def _text(text: str) -> bytes:
    written = text.encode()
    return struct.pack(">i", len(written)) + written


def _row(number: int, time_ms: int, span: tuple[int, int, int, int], values: Any) -> bytes:
    """As `Row.write` of Java has it."""
    oldest_ms, oldest_us, newest_ms, newest_us = span
    parts = [struct.pack(">bqqq", 16, time_ms, number, newest_us)]
    parts.append(struct.pack(">qqqh", newest_ms, oldest_ms, oldest_us, len(values)))
    for value in values:
        if isinstance(value, int):
            parts.append(struct.pack(">bq", 0, value))
        elif isinstance(value, float):
            parts.append(struct.pack(">bd", 1, value))
        else:
            parts.append(b"\2" + _text(value))
    return b"".join(parts)


@pytest.fixture(scope="module")
def sinks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sinks]:
    made = Sinks(compiled(tmp_path_factory.mktemp("classes"), "WriteRows"))
    yield made
    made.close()


def made(*texts: str) -> list[Row]:
    """Rows with these texts."""
    return [(n, (n - 2, n - 1, n, n + 1), (n / 8, -n, text)) for n, text in enumerate(texts)]


def values(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return [(time_ms, *columns) for time_ms, _, columns in rows]


def test_rows_are_announced(sinks: Sinks, tmp_path: Path) -> None:
    file = tmp_path / "made" / "results"
    rows = made(*(f"at {n % 5}" for n in range(1000)))
    assert sinks.write(file, "a", COLUMNS, TYPES, rows) == ""
    found = results.read(file, results.row_fields(COLUMNS, TYPES))
    assert found.rows() == values(rows)
    assert (found.announced, found.starts, found.failure) == (1000, 1, None)
    assert found["newest_us"].tolist() == list(range(1, 1001))
    assert found["oldest_ms"][:3].tolist() == [-2, -1, 0]
    assert found["arrive_us"][:3].tolist() == [0, 7, 14]
    assert set(found["instance"].tolist()) == {-1}
    assert (tmp_path / "made" / "results.complete").read_text() == "70\n"
    # Each text was written once.
    assert (tmp_path / "made" / "results.texts").stat().st_size == 5 * (4 + len("at 0"))


def test_without_texts_there_is_no_file_for_them(sinks: Sinks, tmp_path: Path) -> None:
    file = tmp_path / "results"
    assert sinks.write(file, "a", ("made.n",), ("int",), [(5, (1, 2, 3, 4), (6,))]) == ""
    assert results.read(file).rows() == [(5, 6)]
    assert not (tmp_path / "results.texts").exists()


def test_texts_may_be_longer_than_what_is_kept_in_memory(sinks: Sinks, tmp_path: Path) -> None:
    letters = 'a\u00e4\u2028\U0001f600\0"\\\n'
    lengths = (0, 1, 1023, 1024, 1025, 65_531, 65_532, 65_533, 65_535, 65_536, 65_537, 1 << 20)
    texts = ["x" * length for length in lengths] + [letters * 9000, letters]
    # More than are known at a time, so that some are written again.
    texts += [f"{n}{letters}" for n in range(20_000)] * 2
    rows = made(*texts, *texts[:14])
    file = tmp_path / "results"
    assert sinks.write(file, "a", COLUMNS, TYPES, rows) == ""
    assert results.read(file).rows() == values(rows)


def test_a_job_that_is_started_again_goes_on(sinks: Sinks, tmp_path: Path) -> None:
    file = tmp_path / "results"
    before, after = made("a", "b", "c"), made("c", "d")
    sinks.write(file, "a", COLUMNS, TYPES, before, end=False)
    # It was killed in the midst of a text and of a record.
    for suffix in ("", ".texts"):
        with file.with_name(f"results{suffix}").open("ab") as half:
            half.write(b"\1" * 5)
    found = results.read(file)
    assert (found.announced, found.truncated_bytes, found.rows()) == (None, 5, values(before))
    sinks.write(file, "a", COLUMNS, TYPES, after)
    found = results.read(file)
    assert found.rows() == values(before) + values(after)
    assert (found.announced, found.starts, found.truncated_bytes) == (5, 2, 0)


def test_results_of_other_jobs_are_kept_with_their_texts(sinks: Sinks, tmp_path: Path) -> None:
    file = tmp_path / "results"
    sinks.write(file, "a", COLUMNS, TYPES, made("a", "b"))
    sinks.write(file, "b", ("made.t",), ("text",), [(1, (1, 1, 1, 1), ("c",))])
    assert results.read(tmp_path / "results.a").rows() == values(made("a", "b"))
    assert results.read(file).rows() == [(1, "c")]


@pytest.mark.parametrize(
    ("columns", "wrong"),
    [((1.0, 2), "2 columns; expected 3"), ((1, 2, "a"), "Long"), ((1.0, 2, 3), "Long")],
)
def test_rows_of_other_types_are_refused(
    sinks: Sinks, tmp_path: Path, columns: tuple[Any, ...], wrong: str
) -> None:
    file = tmp_path / "results"
    rows = [*made("a"), (1, (1, 1, 1, 1), columns)]
    assert wrong in sinks.write(file, "a", COLUMNS, TYPES, rows)
    # What was begun is not there.
    found = results.read(file)
    assert (found.rows(), found.truncated_bytes, found.announced) == (values(rows[:1]), 0, None)


LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
OF_TYPE: dict[str, st.SearchStrategy[Any]] = {"int": LONGS, "float": st.floats(), "text": TEXTS}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[str], list[Row]]:
    names = draw(st.lists(TEXTS.map(lambda name: f"made.{name}"), unique=True, max_size=5))
    types = [draw(st.sampled_from(list(OF_TYPE))) for _ in names]
    columns = st.tuples(*(OF_TYPE[one] for one in types))
    row = st.tuples(LONGS, st.tuples(LONGS, LONGS, LONGS, LONGS), columns)
    return names, types, draw(st.lists(row, max_size=20))


def exact(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Floats as their bits, but for those that are no number."""
    return [
        tuple(
            struct.pack("<d", one) if isinstance(one, float) and one == one else str(one)
            for one in row
        )
        for row in rows
    ]


@settings(max_examples=60, deadline=None)
@given(tables(), st.booleans())
def test_any_rows_come_back(
    sinks: Sinks,
    tmp_path_factory: pytest.TempPathFactory,
    table: tuple[list[str], list[str], list[Row]],
    end: bool,
) -> None:
    names, types, rows = table
    file = tmp_path_factory.mktemp("any") / "results"
    assert sinks.write(file, "job", names, types, rows, end=end) == ""
    found = results.read(file, results.row_fields(names, types))
    assert exact(found.rows()) == exact(values(rows))
    for name, at in (("oldest_ms", 0), ("oldest_us", 1), ("newest_ms", 2), ("newest_us", 3)):
        assert found[name].tolist() == [span[at] for _, span, _ in rows]
    assert found.announced == (len(rows) if end else None)


def test_damage_is_named(sinks: Sinks, tmp_path: Path) -> None:
    file, beside = tmp_path / "results", tmp_path / "results.fields"
    rows = made("a", "b")
    sinks.write(file, "a", COLUMNS, TYPES, rows)
    texts, fields = tmp_path / "results.texts", json.loads(beside.read_text())
    whole = texts.read_bytes()
    for damaged in (b"", whole[:-1], whole[:3], b"\xff" * len(whole), whole.replace(b"b", b"\xff")):
        texts.write_bytes(damaged)
        found = results.read(file)
        assert found["heat.n"].tolist() == [0, -1]
        with pytest.raises(NovaError, match=r"results.texts: no text at \d+, where a result"):
            found.rows()
    texts.unlink()
    with pytest.raises(NovaError, match=r"results.texts: No such file .*; it has the texts"):
        results.read(file)
    texts.write_bytes(whole)
    beside.write_text(json.dumps([*fields[:-1], ["heat.at", "i8"]]))
    with pytest.raises(NovaError, match=r"field 11 is 'heat.at i8'; expected heat.at text"):
        results.read(file, results.row_fields(COLUMNS, TYPES))
    assert results.read(file).loss(finished=True) is None
    for lie, why in ((fields[:-1], "16 bytes behind the last"), (fields[:-4], "the sink wrote 2")):
        # The records are of another size.
        beside.write_text(json.dumps(lie))
        assert why in str(results.read(file).loss(finished=True))


def test_what_sinks_of_jobs_wrote_one_after_the_other() -> None:
    """Each has texts of its own."""
    rows = [(9, 1.5, "a"), (20, 2.5, "b"), (29, 3.5, "c")]
    parts = [
        result_rows(some, [(0, 0, 0, 7)] * len(some), [0] * len(some), types=("float", "text"))
        for some in (rows, [], [(30, 4.5, "other"), (41, 5.5, "a")])
    ]
    whole = results.joined(parts)
    assert whole.rows() == [row for part in parts for row in part.rows()]
    assert len(whole) == whole.announced == 5 and whole.emitted_us.tolist() == [7] * 5
    assert [row[0] for row in whole.between(20, 41).rows()] == [20, 29, 30]
    of_all = results.together(results.QueryRows({"q": parts[0], "p": parts[2]}), parts)
    inside = of_all.between(29, None)
    assert inside.records.of_query["q"].rows() == rows[2:] and len(inside) == 3
    assert inside.emitted_us.tolist() == [7] * 3
