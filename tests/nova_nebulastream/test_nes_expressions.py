from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.errors import NovaError
from nova_core.model.partitioner import partition_of, reached
from nova_engines.flow_of_plan import interval
from nova_nebulastream.expressions import END, FLOAT, INT, TEXT, Value, expression, within

COLUMNS = [Value("C0_1", INT), Value("C1_1", FLOAT), Value("C2_1", TEXT)]


class Unsigned(int):
    """A UINT64 of NebulaStream, which is one of C++: products wrap."""

    def __mul__(self, other: int) -> Unsigned:
        return Unsigned(int(self) * int(other) % END)


def holds(condition: str, sequence: int) -> bool:
    text = re.sub(r"UINT64\((\d+)\)", r"\1", condition)
    text = text.replace("AND", "and").replace("OR", "or")
    return bool(eval(text or "True", {"seq": Unsigned(sequence)}))


@settings(max_examples=60)
@given(
    st.lists(st.floats(0.01, 1e6), min_size=1, max_size=6),
    st.lists(st.integers(0, 2**63 - 1), max_size=30),
    st.data(),
)
def test_partitions_are_those_of_the_plan(
    rates: list[float], drawn: list[int], data: st.DataObject
) -> None:
    """Interior ones, too, and several apart."""
    ends = reached(np.array(rates)).tolist()
    runs = []
    at = 0
    while at < len(rates):
        begin = data.draw(st.integers(at, len(rates) - 1))
        end = data.draw(st.integers(begin + 1, len(rates)))
        runs.append((begin, end))
        at = end + 1
        if data.draw(st.booleans()):
            break
    low, high = zip(*(interval(ends, begin, end) for begin, end in runs), strict=True)
    condition = within("seq", low, high)
    sequence = np.array([*range(40), *drawn], np.int64)
    partition = partition_of(sequence, np.array(rates))
    for number, found in zip(sequence.tolist(), partition.tolist(), strict=True):
        assert holds(condition, number) == any(begin <= found < end for begin, end in runs)


def test_texts_of_partitions() -> None:
    step = "(seq * UINT64(11400714819323198485))"
    assert within("seq", [0.0], [2.0]) == ""
    assert within("seq", [0.25], [0.5]) == (
        f"({step} >= UINT64({2**62}) AND {step} < UINT64({2**63}))"
    )
    assert within("seq", [0.0, 0.5], [0.25, 2.0]) == (
        f"(({step} < UINT64({2**62})) OR ({step} >= UINT64({2**63})))"
    )


@pytest.mark.parametrize(
    ("program", "sql", "kind"),
    [
        (("c:0", "i:3", "+"), "(C0_1 + INT64(3))", INT),
        (("c:0", "i:3", "/"), "(CASTTOTYPE(C0_1 AS FLOAT64) / FLOAT64(3))", FLOAT),
        (("c:0", "c:1", "*"), "(CASTTOTYPE(C0_1 AS FLOAT64) * C1_1)", FLOAT),
        (("c:1", "negative"), "(FLOAT64(0) - C1_1)", FLOAT),
        (("c:1", "abs", "f:2.5", "<="), "(ABS(C1_1) <= FLOAT64(2.5))", "BOOLEAN"),
        (("c:2", "t:it's", "="), "(C2_1 = 'it\\'s')", "BOOLEAN"),
        (("c:0", "i:1", "<>", "NOT"), "(NOT (NOT (C0_1 = INT64(1))))", "BOOLEAN"),
    ],
)
def test_expressions(program: tuple[str, ...], sql: str, kind: str) -> None:
    assert expression(program, COLUMNS) == Value(sql, kind)


def test_texts_have_no_order() -> None:
    with pytest.raises(NovaError, match="texts with <: NebulaStream compares texts with = and <>"):
        expression(("c:2", "t:a", "<"), COLUMNS)
