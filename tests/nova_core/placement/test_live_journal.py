"""What a journal reads back is exactly what was there, whatever cut it short."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from largest_file import largest_file
from needs import run_with_mounts
from oracles.live_placement import free_capacity

from nova_core.errors import InfeasibleError, NovaError, ProblemError, UnwritableError
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
from nova_workloads.live_events import RandomEvents
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
        and free_capacity(a) == free_capacity(b)
    )


@pytest.mark.parametrize("kind", ["change-capacity", "change-rate"])
def test_what_keeps_c_min_is_read_back(problem: Problem, tmp_path: Path, kind: str) -> None:
    """A state that breaks C_min is none that a journal resumes from."""
    draw = RandomEvents(problem, 2, [kind])
    live = LivePlacement(problem, place(problem, "nova", c_min=100.0))
    with Journal.create(tmp_path / "journal", live) as journal:
        for _ in range(10):
            for _ in range(5):
                with suppress(InfeasibleError):
                    journal.apply(draw.next())
            journal.checkpoint()
            before = journal.live
            journal.unload()
            assert same(journal.live, before)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_it_goes_on_as_if_nothing_had_happened(
    live: LivePlacement, problem: Problem, tmp_path: Path
) -> None:
    """The same state to the last bit, and the same deltas from then on."""
    events = some_events(problem, 90)
    events[20:20] = [Pin(operator="join"), Pin(operator="join", pinned=False)]
    deltas, resumed = [], []
    Journal.create(tmp_path / "b", live, compact=False).close()  # as the service begins one
    with Journal.create(tmp_path / "a", live) as journal:
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
    assert names(tmp_path / "before") == ["events-0.jsonl", "lock", "state-0"]
    assert names(tmp_path / "j") == ["events-1.jsonl", "lock", "state-1"]
    assert same(Journal.resume(tmp_path / "j").live, live)
    # A crash between the new state and the removal of the old one leaves both.
    shutil.copytree(tmp_path / "j" / "state-1", tmp_path / "before" / "state-1")
    with Journal.resume(tmp_path / "before") as both:
        assert same(both.live, live)
        both.apply(ChangeRate(source="s1", rate=31.0))
        both.checkpoint()
    assert names(tmp_path / "before") == ["events-2.jsonl", "lock", "state-2"]


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
    # One of the version before, too, whose state and events are called otherwise.
    for version in (1, 99):
        header.write_text(json.dumps({"nova_live": version}))
        with pytest.raises(NovaError, match=f"format version {version}") as caught:
            Journal.resume(tmp_path / "j")
        assert "\n" not in str(caught.value)


def test_what_cannot_be_written_has_not_happened(
    live: LivePlacement, problem: Problem, tmp_path: Path
) -> None:
    """Every second event is refused by a disk that takes no more; memory and disk agree on it."""
    events = some_events(problem, 60)
    journal = Journal.create(tmp_path / "j", live)
    twin = LivePlacement(problem, place(problem, "nova"), live.policy)
    twin.compact()
    log = tmp_path / "j" / "events-0.jsonl"
    for number, event in enumerate(events):
        before = log.read_bytes()
        with largest_file(len(before) + number), pytest.raises(UnwritableError):
            journal.apply(event)
        assert log.read_bytes() == before
        assert journal.apply(event) == twin.apply(event)
    assert same(live, twin)
    journal.close()
    again = Journal.resume(tmp_path / "j")
    assert (again.entries, again.live.version) == (60, 60)
    assert same(again.live, twin)


def test_a_checkpoint_that_cannot_be_written_changes_nothing(
    live: LivePlacement, tmp_path: Path
) -> None:
    with Journal.create(tmp_path / "j", live) as journal:
        journal.apply(ChangeRate(source="s1", rate=30.0))
        state = live._state
        with largest_file(2000), pytest.raises(UnwritableError):
            journal.checkpoint()
        assert live._state is state
        assert names(tmp_path / "j") == ["events-0.jsonl", "lock", "state-0"]
        journal.apply(ChangeRate(source="s1", rate=31.0))
        journal.checkpoint()
    assert same(Journal.resume(tmp_path / "j").live, live)


@pytest.mark.parametrize("sync", ["sync", "process"])
def test_a_power_cut_takes_nothing_that_a_checkpoint_had(tmp_path: Path, sync: str) -> None:
    """On a real file system, whose disk is looked at whenever something is renamed or removed."""
    script = Path(__file__).with_name("power_cut.py")
    assert json.loads(run_with_mounts(script, str(tmp_path), sync))["cuts"] > 20


def test_one_process_at_a_time(live: LivePlacement, tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j", live) as journal:
        for use in (Journal.resume, lambda directory: Journal.open(directory, live)):
            with pytest.raises(NovaError, match=f"j: process {os.getpid()} uses it"):
                use(tmp_path / "j")
        journal.apply(ChangeRate(source="s1", rate=30.0))
    assert same(Journal.resume(tmp_path / "j").live, live)


def test_a_placement_may_leave_the_memory(
    live: LivePlacement, problem: Problem, tmp_path: Path
) -> None:
    events = some_events(problem, 20)
    twin = LivePlacement(problem, place(problem, "nova"), live.policy)
    twin.compact()
    with Journal.create(tmp_path / "j", live) as journal:
        for number, event in enumerate(events):
            if number % 4 == 0:
                journal.unload()
                assert not journal.loaded
            assert journal.apply(event) == twin.apply(event)
        assert same(journal.live, twin)


GOOD = {"entry": 1, "event": {"event": "change-rate", "source": "s1", "rate": 30.0}}
BAD_LINES = [
    b"",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"entry": 1}',
    b'{"entry": "1", "refused": true}',
    b'{"entry": 1, "event": 7}',
    b'{"entry": 1, "event": {"event": "nix"}}',
    b'{"entry": 1, "event": {"event": "fail-node"}}',
    b'{"entry": 1, "event": {"event": "fail-node", "node": "nix"}}',
    b'{"entry": 1, "refused": true, "more": 1}',
    b'{"entry": 1, "event": {"event": "change-rate", "source": "s1", "rate": 1e12}}',
    b'{"entry": 1, "overload": "much", "event": {"event": "fail-node", "node": "s1"}}',
]
HEADERS: list[Any] = [
    "",
    "[]",
    "null",
    "{",
    '"text"',
    "{}",
    {"version": -1},
    {"version": None},
    {"version": 10**30},
    {"origin": 3},
    {"policy": []},
    {"policy": {"gian": 1}},
    {"policy": {"gain": -1}},
    {"policy": {"gain": "much"}},
    {"policy": {"pinned": ["nix"]}},
    {"policy": {"pinned": [3]}},
    {"policy": {"state_bytes": {"nix": 1}}},
    {"moved": []},
    {"moved": {"x": 1}},
    {"moved": {"-1": 1}},
    {"moved": {"9999999": 0}},
    {"moved": {"0": 7}},
    {"moved": {"0": -1}},
    {"moved": {"0": 10**30}},
    {"more": 1},
]


def refused(directory: Path) -> str:
    """The one line that says why a journal cannot be resumed."""
    with pytest.raises(NovaError) as caught:
        Journal.resume(directory)
    assert str(directory) in str(caught.value)
    return str(caught.value)


def test_damaged_journals_are_refused_in_one_line(live: LivePlacement, tmp_path: Path) -> None:
    Journal.create(tmp_path / "j", live).close()
    log = tmp_path / "j" / "events-0.jsonl"
    for line in BAD_LINES:
        log.write_bytes(line + b"\n")
        assert "damaged" in refused(tmp_path / "j")
    log.write_text(json.dumps(GOOD) + "\n")
    header = tmp_path / "j" / "state-0" / "live.json"
    whole = json.loads(header.read_text())
    assert Journal.resume(tmp_path / "j").live.version == 1
    for change in HEADERS:
        text = change if isinstance(change, str) else json.dumps(whole | change)
        header.write_text(text)
        refused(tmp_path / "j")
    for missing in whole:
        header.write_text(json.dumps({key: whole[key] for key in whole if key != missing}))
        assert missing in refused(tmp_path / "j")
    header.write_text(json.dumps(whole))
    files = [path for path in (tmp_path / "j" / "state-0").rglob("*") if path.is_file()]
    assert len(files) > 3
    for file in files:
        content = file.read_bytes()
        for left in (b"", content[: len(content) // 2]):
            file.write_bytes(left)
            refused(tmp_path / "j")
        file.write_bytes(content)
    # Entries that should be there are not.
    log.rename(log.with_name("events-1.jsonl"))
    assert "entries 1 to 1 are missing" in refused(tmp_path / "j")
    log.with_name("events-1.jsonl").unlink()
    assert Journal.resume(tmp_path / "j").live.version == 0


def test_a_state_can_be_compacted_at_any_time(live: LivePlacement, problem: Problem) -> None:
    for number, event in enumerate(some_events(problem, 60)):
        live.apply(event)
        if number % 20 == 0:
            plan = live.plan()
            live.compact()
            assert live.plan().same_as(plan)
