from __future__ import annotations

import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.model.partitioner import partition_of
from nova_nebulastream.partitions import END, Share, share


class Unsigned(int):
    """A UINT64 of NebulaStream, which is one of C++: products wrap."""

    def __mul__(self, other: int) -> Unsigned:
        return Unsigned(int(self) * int(other) % END)


def holds_in_sql(condition: str, sequence: int) -> bool:
    text = re.sub(r"UINT64\((\d+)\)", r"\1", condition).replace("AND", "and")
    return bool(eval(text or "True", {"seq": Unsigned(sequence)}))


def holds_in_cpp(condition: str, sequence: int) -> bool:
    text = re.sub(r'Attribute\("seq"\)', "seq", re.sub(r"(\d)u\b", r"\1", condition))
    return bool(eval(text.replace("&&", "and") or "True", {"seq": Unsigned(sequence)}))


@settings(max_examples=60)
@given(
    st.lists(st.floats(0.01, 1e6), min_size=1, max_size=6),
    st.lists(st.integers(0, 2**63 - 1), max_size=30),
    st.data(),
)
def test_a_share_is_what_the_plan_says(
    rates: list[float], drawn: list[int], data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(rates) - 1))
    end = data.draw(st.integers(begin + 1, len(rates)))
    sequence = np.array([*range(40), *drawn], np.int64)
    partition = partition_of(sequence, np.array(rates))
    made = share(np.array(rates), begin, end)
    for number, found in zip(sequence.tolist(), partition.tolist(), strict=True):
        assert made.holds(number) == (begin <= found < end)
        assert holds_in_sql(made.sql("seq"), number) == made.holds(number)
        assert holds_in_cpp(made.cpp("seq"), number) == made.holds(number)


@given(st.integers(0, 2**53), st.integers(0, 2**53 - 1))
def test_a_bound_is_exact_to_the_last_bit(bound: int, top: int) -> None:
    """The plan compares top / 2^53 with a sum; the share compares integers."""
    low = bound << 11
    for spread in (top << 11, (top << 11) + 2047):
        assert (spread >= low) == (top / 2**53 >= bound / 2**53)


def test_texts() -> None:
    assert Share().sql("a") == "" == Share().cpp("a")
    assert Share(5, 9).sql("a") == (
        "(a * UINT64(11400714819323198485)) >= UINT64(5) AND "
        "(a * UINT64(11400714819323198485)) < UINT64(9)"
    )
    assert Share(0, 9).cpp("a") == '((Attribute("a") * 11400714819323198485u) < 9u)'
