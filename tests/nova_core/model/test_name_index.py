"""Rows by name: a dictionary's answers, and Arrow's where there are many names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.errors import ProblemError
from nova_core.model import name_index
from nova_core.model.columnar import Columns
from nova_core.model.name_index import NameIndex, find_rows

NAMES = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
    unique=True,
)


@settings(deadline=None)
@given(NAMES, NAMES)
def test_few_and_many_names_are_found_alike(ids: list[str], wanted: list[str]) -> None:
    wanted = [*wanted, *ids[::2]]
    expected = [ids.index(name) if name in ids else -1 for name in wanted]
    index = NameIndex(np.array(ids, np.str_))
    assert dict(index) == {name: row for row, name in enumerate(ids)}
    text = pa.array(wanted, pa.string())
    for many in (10**9, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(name_index, "MANY", many)
            for names in (wanted, text, text.cast(pa.large_string())):
                assert find_rows(names, index).tolist() == expected
                assert find_rows(names, dict(index)).tolist() == expected


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
