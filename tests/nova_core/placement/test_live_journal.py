"""What a journal reads back is exactly what was there, whatever cut it short."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from nova_core.errors import InfeasibleError, NovaError, ProblemError
from nova_core.model import Problem
from nova_core.placement.live import (
    ChangeRate,
    Event,
    Journal,
    LivePlacement,
    Pin,
    Policy,
)
from nova_core.strategies import place
from nova_harness.live_events import RandomEvents
from nova_workloads.topology import generate


@pytest.fixture(scope="module")
def problem() -> Problem:
    return generate(120, heterogeneity=1.0, seed=4)


@pytest.fixture
def live(problem: Problem) -> LivePlacement:
    return LivePlacement(problem, place(problem, "nova"), Policy(cooldown=10, gain_share=0.01))


def some_events(problem: Problem, count: int) -> list[Event]:
    """Events that a placement without a journal has followed."""
    live = LivePlacement(problem, place(problem, "nova"), Policy(cooldown=10, gain_share=0.01))
    draw, events = RandomEvents(problem, 9), []
    while len(events) < count:
        event = draw.next()
        try:
            live.apply(event)
        except (InfeasibleError, ProblemError):
            continue
        draw.happened(event)
        events.append(event)
    return events


def same(a: LivePlacement, b: LivePlacement) -> bool:
    return (
        a.plan().same_as(b.plan())
        and a.version == b.version
        and a.moved() == b.moved()
        and a.pinned == b.pinned
        and a.free_capacity() == b.free_capacity()
    )


def test_it_goes_on_as_if_nothing_had_happened(
    live: LivePlacement, problem: Problem, tmp_path: Path
) -> None:
    """The same state to the last bit, and the same deltas from then on."""
    events = some_events(problem, 90)
    events[20:20] = [Pin(operator="join"), Pin(operator="join", pinned=False)]
    deltas, resumed = [], []
    with Journal.create(tmp_path / "a", live) as journal:
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        for number, event in enumerate(events):
            deltas.append(journal.apply(event))
            if number == 40:
                journal.checkpoint()
    other = Journal.resume(tmp_path / "b", sync=True)
    for number, event in enumerate(events):
        if number % 17 == 0:
            # As after a crash: from the disk alone.
            other.close()
            other = Journal.resume(tmp_path / "b", sync=True)
        resumed.append(other.apply(event))
        if number == 40:
            other.checkpoint()
    assert deltas == resumed
    assert same(live, other.live)
    assert same(live, Journal.resume(tmp_path / "a").live)
    assert other.entries == len(events)


def test_an_entry_that_is_cut_short_was_never_acknowledged(
    live: LivePlacement, problem: Problem, tmp_path: Path
) -> None:
    events = some_events(problem, 6)
    states = []
    with Journal.create(tmp_path / "j", live) as journal:
        for event in events:
            states.append(live.plan())
            journal.apply(event)
    log = tmp_path / "j" / "events-0.jsonl"
    whole = log.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in (last + 1, last + 20, len(whole) - 1):
        log.write_bytes(whole[:end])
        again = Journal.resume(tmp_path / "j")
        assert again.live.plan().same_as(states[-1])
        assert again.entries == 5
        assert log.read_bytes() == whole[:last]
        again.apply(events[-1])
        again.close()
        assert log.read_bytes() == whole
        assert same(live, Journal.resume(tmp_path / "j").live)


def test_refusals_count_but_change_nothing(live: LivePlacement, tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j", live) as journal:
        for event in (ChangeRate(source="nix", rate=1.0), ChangeRate(source="s1", rate=1e9)):
            with pytest.raises((InfeasibleError, ProblemError)):
                journal.apply(event)
        journal.apply(ChangeRate(source="s1", rate=30.0))
    again = Journal.resume(tmp_path / "j")
    assert (again.entries, again.live.version) == (3, 1)
    assert same(again.live, live)


def test_a_checkpoint_that_was_not_finished_does_not_count(
    live: LivePlacement, tmp_path: Path
) -> None:
    with Journal.create(tmp_path / "j", live) as journal:
        journal.apply(ChangeRate(source="s1", rate=30.0))
        shutil.copytree(tmp_path / "j", tmp_path / "before")
        shutil.copytree(tmp_path / "j" / "state-0", tmp_path / "before" / ".state-1.tmp")
        journal.checkpoint()
    assert same(Journal.resume(tmp_path / "before").live, live)
    assert sorted(os.listdir(tmp_path / "before")) == ["events-0.jsonl", "lock", "state-0"]
    assert sorted(os.listdir(tmp_path / "j")) == ["events-1.jsonl", "lock", "state-1"]
    assert same(Journal.resume(tmp_path / "j").live, live)
    # A crash between the new state and the removal of the old one leaves both.
    shutil.copytree(tmp_path / "j" / "state-1", tmp_path / "before" / "state-1")
    with Journal.resume(tmp_path / "before") as both:
        assert same(both.live, live)
        both.apply(ChangeRate(source="s1", rate=31.0))
        both.checkpoint()
    assert sorted(os.listdir(tmp_path / "before")) == ["events-2.jsonl", "lock", "state-2"]


def test_a_journal_of_something_else_is_refused(
    live: LivePlacement, problem: Problem, tmp_path: Path
) -> None:
    with pytest.raises(NovaError, match="holds no journal"):
        Journal.resume(tmp_path / "j")
    Journal.create(tmp_path / "j", live).close()
    with pytest.raises(NovaError, match="holds a journal already"):
        Journal.create(tmp_path / "j", live)
    other = generate(50, seed=1)
    with pytest.raises(NovaError, match="began with problem"):
        Journal.open(tmp_path / "j", LivePlacement(other, place(other)))
    log = tmp_path / "j" / "events-0.jsonl"
    entry = {"entry": 1, "event": ChangeRate(source="s1", rate=30.0), "overload": None}
    good = msgspec.json.encode(entry) + b"\n"
    for bad, said in (
        (b"{\n" + good, "entry 1: .*; the journal is damaged"),
        (good + good, "entry 2: says it is entry 1; the journal is damaged"),
    ):
        log.write_bytes(bad)
        with pytest.raises(NovaError, match=said):
            Journal.resume(tmp_path / "j")
    log.unlink()
    header = tmp_path / "j" / "state-0" / "live.json"
    header.write_text(json.dumps({"nova_live": 99}))
    with pytest.raises(NovaError, match="format version 99"):
        Journal.resume(tmp_path / "j")


def test_a_state_can_be_compacted_at_any_time(live: LivePlacement, problem: Problem) -> None:
    for number, event in enumerate(some_events(problem, 60)):
        live.apply(event)
        if number % 20 == 0:
            plan = live.plan()
            live.compact()
            assert live.plan().same_as(plan)
