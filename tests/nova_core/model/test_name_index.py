"""Rows by name: a dictionary's answers, and a hash table's where there are many names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.errors import ProblemError
from nova_core.io.columnar import Columns
from nova_core.model import name_index
from nova_core.model.name_index import (
    NameIndex,
    arrow_numbers,
    arrow_text,
    find_rows,
    joined,
    numbers_of,
    repeated,
    text_of,
)

NAMES = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
    unique=True,
)


HASHES = name_index._hashes


# Of the hashes all bits; a few; only the lower ones, so that all names begin in one slot.
@pytest.mark.parametrize("kept", [2**64 - 1, 3 << 62, 2**32 - 1])
@settings(deadline=None)
@given(NAMES, NAMES)
def test_few_and_many_names_are_found_alike(kept: int, ids: list[str], wanted: list[str]) -> None:
    wanted = [*wanted, *ids[::2]]
    expected = [ids.index(name) if name in ids else -1 for name in wanted]
    names = np.array(wanted, np.str_)
    assert dict(NameIndex(np.array(ids, np.str_))) == {name: row for row, name in enumerate(ids)}
    for many in (10**9, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(name_index, "MANY", many)
            patch.setattr(name_index, "_hashes", lambda text: HASHES(text) & np.uint64(kept))
            index = NameIndex(np.array(ids, np.str_))
            assert find_rows(names, index).tolist() == expected
            assert find_rows(names, dict(index)).tolist() == expected
            assert repeated(names) == (len(set(wanted)) < len(wanted))
            assert not repeated(index.ids)


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
def test_names_are_the_same_in_numpy_and_in_arrow(names: list[str]) -> None:
    array = np.array(names, np.str_)
    assert arrow_text(array).to_pylist() == names
    padded = np.array(["", *names, "a name longer than others"], np.str_)[:-1]
    assert arrow_text(padded).to_pylist() == ["", *names]
    text = pa.array([None, *names, "other"], pa.string())
    for kind in (pa.string(), pa.large_string()):
        assert text_of(text.cast(kind)[1:-1]).tolist() == names
    assert joined(array) == "\0".join(names).encode()


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(-9, 9), st.floats(-1, 1))))
def test_numbers_are_the_same_in_numpy_and_in_arrow(
    rows: list[tuple[bool, bool, int, float]],
) -> None:
    valid = np.array([row[0] for row in rows], bool)
    for column, kind in ((1, np.bool_), (2, np.int64), (3, np.float64)):
        values = np.array([row[column] for row in rows], kind)
        arrow = arrow_numbers(values)
        assert arrow.equals(pa.array(values))
        arrow.validate(full=True)
        assert np.array_equal(numbers_of(arrow[1:]), values[1:])
        missing = arrow_numbers(values, valid)
        assert missing.to_pylist() == [row[column] if row[0] else None for row in rows]


@pytest.mark.parametrize("many", [10**9, 0])
@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (pa.array(["b", "a", "b"]), None),
        (pa.array(["b", "a", "b"]).dictionary_encode(), None),
        (pa.array(["b", "c", "d"]), "row 2, column 'node': unknown node 'c'"),
        (pa.array(["b", None]), "row 2, column 'node': no value"),
        (pa.array([1, 2]), "holds int64; text is needed"),
    ],
)
def test_columns_are_looked_up_or_refused_alike(
    monkeypatch: pytest.MonkeyPatch, many: int, cells: pa.Array, message: str | None
) -> None:
    monkeypatch.setattr(name_index, "MANY", many)
    table = Columns(Path("nodes.parquet"), pa.table({"node": cells}), ProblemError)
    index = NameIndex(np.array(["a", "b"]))
    if message is None:
        assert table.find("node", index, "node").tolist() == [1, 0, 1]
    else:
        with pytest.raises(ProblemError, match=message):
            table.find("node", index, "node")
