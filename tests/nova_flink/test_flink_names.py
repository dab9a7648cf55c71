from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from nova_flink import names

text = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)


@given(text)
def test_names_are_plain_and_come_back(node: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]*", names.sanitised(node))
    assert names.original(names.sanitised(node)) == node
    assert names.node_of_task_manager(names.task_manager(node)) == node


def test_task_managers_of_others_have_no_node() -> None:
    assert names.node_of_task_manager("localhost:6122-abc") is None
    assert names.node_of_task_manager("tm-a.b") is None
    assert names.node_of_task_manager("tm-_ffffffffff_") is None
