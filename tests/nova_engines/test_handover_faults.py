"""Hand-overs whose controller is killed at every step, whose sources answer late, whose jobs fail.

The engine is a model here (``engine_world.py``); a real one is in ``test_handover_e2e.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_world import EPOCH_MS, WINDOW_MS, Killed, World, check_exactly_once, worlds

from nova_core.errors import NovaError
from nova_engines import source_orders
from nova_engines.handover import Handover, HandoverError, Ledger, next_multiple
from nova_engines.source_orders import ControlledJob
from nova_engines.sources import Clock

# Of replays; of readings that run faster, with windows across boundaries.
WORLDS = {
    "replays": {},
    "readings": {"clock": Clock(7_000, EPOCH_MS - 500, 1.5), "history_ms": 250},
}


@pytest.fixture(params=WORLDS)
def world(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], World]]:
    """Makes worlds."""
    with worlds(monkeypatch, **WORLDS[request.param]) as make:
        yield make


def control_of(world: World, ledger: Path) -> Handover:
    return Handover(world, world, ledger, world.clock)


def begun(world: World, ledger: Path) -> Handover:
    """A job that has run for a while."""
    control = control_of(world, ledger)
    begin = next_multiple(world.clock.event_ms(EPOCH_MS + 1000), WINDOW_MS)
    control.first(world.deploy("first"), WINDOW_MS, begin, world.history_ms)
    world.pass_time(5000)
    return control


def settled(control: Handover) -> None:
    """As a controller's loop does: it tries again."""
    for _ in range(5):
        try:
            control.settle()
            return
        except NovaError:
            continue
    raise AssertionError("it cannot be settled")


def is_killed(call: Callable[[ControlledJob], int], job: ControlledJob) -> bool:
    """Whether the controller is killed meanwhile."""
    try:
        call(job)
    except Killed:
        return True
    return False


def test_killed_at_every_step_of_a_hand_over(world: Callable[[], World], tmp_path: Path) -> None:
    ways = set()
    for fatal in range(200):
        w, ledger = world(), tmp_path / f"ledger-{fatal}"
        control = begun(w, ledger)
        w.fatal = w.steps + fatal
        killed = is_killed(control.plan, w.deploy("second"))
        w.fatal = None
        w.pass_time(3000)
        control = control_of(w, ledger)
        if w.jobs_["second"].state == "RUNNING" and "second" not in Ledger.read(ledger).jobs:
            # The controller ends it, as no ledger names it.
            w.end("second")
        settled(control)
        control.plan(w.deploy("third"))
        w.pass_time(2000)
        ways.add(tuple(check_exactly_once(w, ledger, control.end())))
        if not killed:
            break
    # Some steps are before it is final, and some after it.
    assert ways == {("first", "third"), ("first", "second", "third")}
    assert not killed and fatal > 15


def test_killed_at_every_step_of_an_end(world: Callable[[], World], tmp_path: Path) -> None:
    resumed = 0
    for fatal in range(200):
        w, ledger = world(), tmp_path / f"ledger-{fatal}"
        control = begun(w, ledger)
        w.fatal = w.steps + fatal
        try:
            end = control.end()
            killed = False
        except Killed:
            killed = True
        w.fatal = None
        w.pass_time(3000)
        if killed:
            control = control_of(w, ledger)
            final = Ledger.read(ledger).end_ms
            if final is None:
                source_orders.tell(w, Ledger.read(ledger).shares[-1].job, source_orders.Order(0))
                w.pass_time(1000)
            end = control.end()
            resumed += final is not None
            assert final in (None, end)
        assert check_exactly_once(w, ledger, end) == ["first"]
        if not killed:
            break
    assert not killed and fatal > resumed > 1


def test_killed_at_every_step_after_a_failure(world: Callable[[], World], tmp_path: Path) -> None:
    for fatal in range(200):
        w, ledger = world(), tmp_path / f"ledger-{fatal}"
        control = begun(w, ledger)
        w.jobs_["first"].state = "FAILED"
        w.pass_time(2000)
        w.fatal = w.steps + fatal
        killed = is_killed(control.after_failure, w.deploy("second"))
        w.fatal = None
        control = control_of(w, ledger)
        settled(control)
        if len(Ledger.read(ledger).shares) == 1:
            w.end("second")
            control.after_failure(w.deploy("third"))
        w.pass_time(2000)
        names = check_exactly_once(w, ledger, control.end())
        assert names in (["first", "second"], ["first", "third"])
        if not killed:
            break
    assert not killed and fatal > 5


def test_killed_at_every_step_of_a_hand_over_of_a_job_that_is_behind(
    world: Callable[[], World], tmp_path: Path
) -> None:
    """Its backlog becomes the new job's, which begins in the past."""
    ways = set()
    for fatal in range(200):
        w, ledger = world(), tmp_path / f"ledger-{fatal}"
        control = begun(w, ledger)
        w.jobs_["first"].behind_ms = w.clock.event_span_ms(w.behind_ms + 500)
        w.pass_time(4000)
        incomplete, w.fatal = control.incomplete(), w.steps + fatal
        killed = is_killed(control.plan, w.deploy("second"))
        assert killed or Ledger.read(ledger).shares[-1].from_ms == incomplete
        w.fatal = None
        control = control_of(w, ledger)
        settled(control)
        if len(Ledger.read(ledger).shares) == 1:
            w.end("second")
            failed = w.jobs_["first"].state == "CANCELED"
            (control.after_failure if failed else control.plan)(w.deploy("third"))
        assert w.jobs_["first"].state == "CANCELED"
        w.pass_time(2000)
        ways.add(tuple(check_exactly_once(w, ledger, control.end())))
        if not killed:
            break
    assert ways == {("first", "third"), ("first", "second")}
    assert not killed and fatal > 8


@pytest.mark.parametrize("ends_failed_jobs", [True, False])
@pytest.mark.parametrize("which", ["first", "second"])
def test_a_job_fails_at_every_step_of_a_hand_over(
    which: str, ends_failed_jobs: bool, world: Callable[[], World], tmp_path: Path
) -> None:
    for step in range(1, 60):
        w, ledger = world(), tmp_path / f"ledger-{step}"
        w.ends_failed_jobs = ends_failed_jobs
        control = begun(w, ledger)
        second = w.deploy("second")

        def fail(w: World = w) -> None:
            if w.jobs_[which].state == "RUNNING":
                w.jobs_[which].state = "FAILED" if ends_failed_jobs else "BROKEN"

        w.at[w.steps + step] = fail
        try:
            control.plan(second)
        except NovaError:
            settled(control)
        w.pass_time(1000)
        if w.jobs_["second"].state == "RUNNING" and "second" not in Ledger.read(ledger).jobs:
            w.end("second")
        last = Ledger.read(ledger).shares[-1]
        if w.jobs_[last.job.job].state == "BROKEN":
            # Hosts have told so.
            w.cancel(last.job)
        if w.jobs_[last.job.job].state in ("FAILED", "CANCELED"):
            control.after_failure(w.deploy("third"))
        w.pass_time(1000)
        check_exactly_once(w, ledger, control.end())


def test_sources_that_answer_too_late_keep_their_job(
    world: Callable[[], World], tmp_path: Path
) -> None:
    w, ledger = world(), tmp_path / "ledger"
    control = begun(w, ledger)
    w.jobs_["first"].sources[1].deaf_until = w.clock.event_ms(w.now + 12_000)
    with pytest.raises(NovaError, match="no answer from 1 of its sources, on right"):
        control.plan(w.deploy("second"))
    # It could not even be taken back; nothing else is begun before that.
    with pytest.raises(HandoverError, match="has to be settled first"):
        control.plan(w.deploy("stray"))
    w.pass_time(10_000)
    settled(control)
    assert w.jobs_["second"].state == "CANCELED"
    control.plan(w.deploy("third"))
    w.pass_time(1000)
    assert check_exactly_once(w, ledger, control.end()) == ["first", "third"]


@pytest.mark.parametrize("ahead_ms", [-2000, 2000, 10_000])
def test_a_source_whose_clock_is_off_costs_time_but_no_result(
    ahead_ms: int, world: Callable[[], World], tmp_path: Path
) -> None:
    w, ledger = world(), tmp_path / "ledger"
    control = begun(w, ledger)
    w.jobs_["first"].sources[0].ahead_ms = ahead_ms
    w.pass_time(1000)
    control.plan(w.deploy("second", ahead_ms=ahead_ms))
    w.pass_time(2000)
    assert check_exactly_once(w, ledger, control.end()) == ["first", "second"]


def test_sources_that_have_ended_by_themselves(world: Callable[[], World], tmp_path: Path) -> None:
    """Nobody can tell them when to end any more, and nothing is missing."""
    w, ledger = world(), tmp_path / "ledger"
    control = begun(w, ledger)
    for one in w.jobs_["first"].sources.values():
        one.ended = True
    w.pass_time(1000)
    end = control.end()
    assert Ledger.read(ledger).end_ms == end == control.end()
    assert end % WINDOW_MS == 0 and end >= w.clock.event_ms(w.now)
