"""Reading files of results, whatever they hold."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.errors import NovaError
from nova_engines import results
from nova_engines.results import FIRST, PAIR, PAIR_BYTES, ROW

SCALA = Path(__file__).parents[2] / "adapters" / "nova_spark" / "scala" / "RealTimeJoin.scala"


def written(path: Path, data: bytes, fields: Any = PAIR, **beside: str) -> Path:
    """A file, and those beside it."""
    path.write_bytes(data)
    path.with_name(f"{path.name}.fields").write_text(json.dumps(fields))
    for suffix, text in beside.items():
        path.with_name(f"{path.name}.{suffix}").write_text(text)
    return path


def test_records_are_read_and_a_cut_one_is_counted(tmp_path: Path) -> None:
    record = struct.pack("<2i2q2i4q2d", 1, 0, 4, 9, 2, 3, 5, 6, 7, 8, 1.5, -2.5)
    assert len(record) == results.dtype(PAIR).itemsize == PAIR_BYTES
    found = results.read(written(tmp_path / "results", 2 * record + record[:33]))
    assert len(found) == 2
    assert found.truncated_bytes == 33
    assert found.records[1].tolist() == (1, 0, 4, 9, 2, 3, 5, 6, 7, 8, 1.5, -2.5)
    assert found["arrive_us"].tolist() == [9, 9]


def test_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(NovaError, match="No such file"):
        results.read(tmp_path / "results")


def test_a_sink_says_how_many_there_are(tmp_path: Path) -> None:
    three, two = 3 * bytes(PAIR_BYTES), 2 * bytes(PAIR_BYTES)
    found = results.read(written(tmp_path / "a", three, job="x\nx\n", end="3\n"))
    assert (found.announced, found.starts, found.failure) == (3, 2, None)
    assert found.loss(finished=True) is None
    found = results.read(written(tmp_path / "b", two, end="3\n"))
    assert found.loss(finished=True) == "the sink wrote 3 results, 2 are there"
    # What is no number, or none that can be true, announces nothing.
    for end in ("", "\n", "\u00b2", "9" * 5000):
        found = results.read(written(tmp_path / "c", two, end=end))
        assert found.loss(finished=False) is None
        assert found.loss(finished=True) == "the sink has not said that its results are complete"
    for failed, why in (("No space left on device\n", "No space left"), ("", "is the disk full?")):
        found = results.read(written(tmp_path / "d", two, failed=failed, end="2\n"))
        assert why in str(found.loss(finished=False))


def test_what_several_sinks_wrote(tmp_path: Path) -> None:
    one = results.read(written(tmp_path / "a", bytes(PAIR_BYTES), job="x\nx\n", end="1\n"))
    other = results.read(written(tmp_path / "b", bytes(PAIR_BYTES), end="1\n"))
    both = results.together(np.concatenate([one.records, other.records]), [one, other])
    assert (both.announced, both.starts, both.truncated_bytes) == (2, 2, 0)
    assert both.loss(finished=True) is None
    other = results.read(written(tmp_path / "c", bytes(PAIR_BYTES + 1), failed="full"))
    both = results.together(np.concatenate([one.records, other.records]), [one, other])
    assert (both.announced, both.truncated_bytes) == (None, 1)
    assert both.loss(finished=False) == "the sink could not write its results: full"


def test_a_sink_that_was_never_started_has_no_results(tmp_path: Path) -> None:
    (tmp_path / "results").touch()
    found = results.read(tmp_path / "results", PAIR)
    assert len(found) == 0 and len(found["left_value"]) == 0
    with pytest.raises(NovaError, match=r"results.fields: No such file"):
        results.read(tmp_path / "results")
    (tmp_path / "results").write_bytes(bytes(PAIR_BYTES))
    with pytest.raises(NovaError, match=r"fields: No such file .*; it says what the fields"):
        results.read(tmp_path / "results", PAIR)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([], "field 1 is 'nothing'; expected instance i4"),
        (FIRST[:3], "field 4 is 'nothing'; expected arrive_us i8"),
        ([*FIRST[:3], ["arrive_us", "f8"]], "field 4 is 'arrive_us f8'; expected arrive_us i8"),
        ([*FIRST, ["x", "i16"]], "expected a list of fields"),
        ([*FIRST, ["x", "i8"], ["x", "i8"]], "expected a list of fields"),
        ([*FIRST, ["", "i8"]], "expected a list of fields"),
        ([*FIRST, ["x", []]], "expected a list of fields"),
        ([*FIRST, "ab"], "expected a list of fields"),
        ([*FIRST, ["x"]], "expected a list of fields"),
        ({"instance": "i4"}, "expected a list of fields"),
        (7, "expected a list of fields"),
        (None, "expected a list of fields"),
    ],
)
def test_fields_that_are_none_are_named(tmp_path: Path, fields: Any, why: str) -> None:
    for data in (b"", bytes(160)):
        file = written(tmp_path / "results", data, fields)
        with pytest.raises(NovaError, match=re.escape(f"results.fields: {why}")) as caught:
            results.read(file)
        assert "\n" not in str(caught.value)


def test_other_fields_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "results", b"", ROW)
    with pytest.raises(NovaError, match="field 5 is 'oldest_ms i8'; expected left_source i4"):
        results.read(file, PAIR)
    with pytest.raises(NovaError, match="has 8 fields; expected 4"):
        results.read(file, FIRST)


def test_spark_writes_the_same_fields() -> None:
    text = SCALA.read_text("utf-8")
    begin = text.index('"""', text.index("val Fields")) + 3
    said = text[begin : text.index('"""', begin)].replace("|", "")
    assert tuple(map(tuple, json.loads(said))) == PAIR


FIELDS = st.lists(st.tuples(st.text(), st.sampled_from(list(results.TYPES))), max_size=4)


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(FIELDS.map(lambda own: json.dumps([*FIRST, *own]).encode()), st.binary()),
    st.binary(max_size=300),
    st.binary(max_size=60),
    st.binary(max_size=8),
)
def test_damaged_files_are_read_or_refused_in_a_line(
    tmp_path_factory: pytest.TempPathFactory, fields: bytes, data: bytes, texts: bytes, end: bytes
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "results"
    path.write_bytes(data)
    for suffix, content in (("fields", fields), ("texts", texts), ("end", end)):
        path.with_name(f"results.{suffix}").write_bytes(content)
    try:
        found = results.read(path)
        assert len(found) * found.records.dtype.itemsize + found.truncated_bytes == len(data)
        for name in found.records.dtype.names or ():
            assert len(found[name]) == len(found)
    except NovaError as error:
        assert str(path) in str(error) and "\n" not in str(error)
