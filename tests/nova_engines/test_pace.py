"""When tuples of a replay are due, with and without surges."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_core.errors import NovaError
from nova_engines.sources import Pace, Source, Sources, Surge
from nova_workloads.joined_streams import due_us, emitted
from nova_workloads.streams import Stream

RATES = st.floats(0.1, 100_000)
SURGES = st.lists(
    st.tuples(st.floats(0, 50), st.floats(0.001, 50), st.floats(0.1, 10)).map(
        lambda one: (one[0], one[0] + one[1], one[2])
    ),
    max_size=4,
)


@given(rate=RATES, surges=SURGES, us=st.integers(-10_000, 100_000_000))
def test_what_is_due_before_a_time(rate: float, surges: list[Surge], us: int) -> None:
    pace = Pace.of(rate, surges)
    count = pace.before(us)
    assert pace.due(count) >= us or us < 0
    assert count == 0 or pace.due(count - 1) < us
    near = np.arange(max(0, count - 50), count + 50)
    due = due_us(pace, near)
    assert due.tolist() == [pace.due(one) for one in near.tolist()]
    assert (np.diff(due) >= 0).all()


@given(rate=RATES, sequence=st.integers(0, 10_000_000))
def test_without_surges_it_is_one_sum(rate: float, sequence: int) -> None:
    assert Pace.of(rate).due(sequence) == int(sequence * 1e6 / rate)


def test_a_surge_in_the_middle() -> None:
    pace = Pace.of(100, [(10, 20, 3)])
    assert [pace.before(s * 1_000_000) for s in (10, 15, 20, 25)] == [1000, 2500, 4000, 4500]
    assert pace.due(1300) == 11_000_000
    twice = Pace.of(100, [(10, 20, 3), (15, 25, 2)])
    assert twice.rate == (100, 300, 600, 200, 100)
    assert struct.unpack("<15d", twice.pack())[:6] == (0, 0, 100, 1000, 10_000_000, 300)


def test_sources_with_surges_end_when_others_do() -> None:
    made = [
        Source(f"s{n}", 50.0, surges=surges, values=(1.0, 2.0))
        for n, surges in enumerate([(), ((2.0, 4.0, 3.0),)])
    ]
    sources = Sources(tuple(made), start_ms=7_000, count=500)
    assert [sources.count_of(n) for n in (0, 1)] == [500, 700]
    assert Sources.from_json(sources.to_json()) == sources
    values = np.array([1.0, 2.0])
    streams = [Stream(f"s{n}", "", "", np.arange(2), values) for n in (0, 1)]
    found = emitted(sources, streams)
    assert np.bincount(found.stream).tolist() == [500, 700]
    assert found.time_ms.max() < 7_000 + 10_000
    some = emitted(sources, streams, 9_000, 10_000)
    assert np.bincount(some.stream).tolist() == [50, 150]
    assert some.time_ms.min() == 9_000 and some.time_ms.max() < 10_000
    assert some.value.tolist() == values[some.sequence % 2].tolist()


@pytest.mark.parametrize("surge", [(1.0, 1.0, 2.0), (-1.0, 1.0, 2.0), (0.0, 1.0, 0.0)])
def test_surges_that_are_none(surge: Surge) -> None:
    with pytest.raises(NovaError, match=r"source 's': surge .*: expected a begin, a later end"):
        Source("s", 1.0, surges=(surge,), values=(1.0,))


def test_only_replays_have_surges() -> None:
    with pytest.raises(NovaError, match=r"source 's': surges: only a replay has any"):
        Source("s", 1.0, surges=((0.0, 1.0, 2.0),), kind="socket", address="h:1")
