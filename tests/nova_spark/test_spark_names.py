from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_spark import names


@given(st.text(max_size=12))
def test_a_name_comes_back(node: str) -> None:
    resource = names.resource(node)
    assert re.fullmatch(r"node_[A-Za-z0-9_]*", resource)
    assert names.node_of_resource(resource) == node


@pytest.mark.parametrize("other", ["gpu", "node_a-b", "node_a_110000_", "node_a_ffffffffff_"])
def test_other_resources_are_of_no_node(other: str) -> None:
    assert names.node_of_resource(other) is None
