"""What the controller decides, from what it sees; what it reads of hosts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from control_hosts import ENDS, placed_join
from hypothesis import given
from hypothesis import strategies as st
from query_cases import asking, chain, topology

from nova_core import place
from nova_core.errors import NovaError
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.model.verify import verify
from nova_core.placement.live import (
    AddWorker,
    ChangeCapacity,
    ChangeRate,
    FailNode,
    LivePlacement,
    Rebalance,
)
from nova_engines.flow import JOIN, SINK, Flow, Operator
from nova_engines.flow_of_plan import flow_of
from nova_engines.source_orders import ControlledJob
from nova_flink.rest import Rest
from nova_harness.control.deciding import (
    Decider,
    Seen,
    Tuning,
    moves_of,
    node_row,
    rehearse,
)
from nova_harness.control.sensing import HostView, HostWatch, Processes, Rate
from nova_harness.engines.flink import FlinkEngine
from nova_harness.engines.flink_watch import BUSY, HELD_BACK, RECEIVED, FlinkWatch, JoinsWatch
from nova_testbed import probing
from nova_testbed.probing import ClockOffset

TUNING = Tuning(lasting_s=4, cooldown_s=10, stable_s=15, memory_s=60)
UP = Seen(up=True, share=1.0)
WORKERS = {"near": 18.0, "mid": 15.0, "far": 60.0}
HOSTS = (*ENDS, *WORKERS)


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Problem, Plan]:
    """One join of 400 tuples/s, which is on ``near``."""
    problem, plan = placed_join(tmp_path_factory.mktemp("decided"), WORKERS)
    assert at(plan) == ["near"]
    return problem, plan


def at(plan: Plan) -> list[str]:
    """Nodes of a plan's instances."""
    names = plan.problem.nodes.ids
    return [str(names[node]) for node in plan.instances.node.tolist()]


def seen(**others: Seen) -> dict[str, Seen]:
    return dict.fromkeys(HOSTS, UP) | others


class Watched:
    """A decider and its clock."""

    def __init__(self, placed: tuple[Problem, Plan], tuning: Tuning = TUNING) -> None:
        self.decider, self.now = Decider(*placed, tuning), 0.0

    def after(
        self,
        seconds: float,
        view: dict[str, Seen],
        every: float = 0.5,
        rates: dict[str, float] | None = None,
        noted_at: float | None = None,
    ) -> list[str]:
        """What is decided meanwhile; sources note their rates all the time, or did so once."""
        found = []
        for _ in range(round(seconds / every)):
            self.now += every
            known = {name: Rate(rate, noted_at or self.now) for name, rate in (rates or {}).items()}
            found += [each.what for each in self.decider.decide(view, self.now, known)]
        assert verify(self.decider.plan()).ok
        return found

    @property
    def at(self) -> list[str]:
        return at(self.decider.plan())


def test_load_that_lasts_moves_a_join_and_what_passes_does_not(
    placed: tuple[Problem, Plan],
) -> None:
    watched = Watched(placed)
    loaded = seen(near=Seen(up=True, share=0.4))
    assert watched.after(10, seen()) == []
    for _ in range(5):
        assert watched.after(3, loaded) == watched.after(1, seen()) == []
    assert watched.after(5, loaded) == ["near can do 60 % less"]
    assert watched.at == ["mid"]
    assert watched.decider.counted()["near"] == pytest.approx(0.4)
    # Little changes count as none; and what comes back does not move what is as good elsewhere.
    assert watched.after(20, seen(near=Seen(up=True, share=0.5))) == []
    assert watched.after(5, seen()) == ["near can do 60 % more"]
    assert watched.decider.counted()["near"] == 1


def test_whole_queries_are_decided_for() -> None:
    """A loaded host's operators move, and those of a lost one."""
    problem = asking(topology(3, 8, np.full(8, 300.0)), chain())
    plan = place(problem)
    ends = {*problem.sources.node.tolist(), *problem.sinks.tolist()}
    hosts = problem.nodes.ids.tolist()
    decider = Decider(problem, plan, TUNING)
    assert decider.fixed == {hosts[node] for node in ends}
    busy = int(np.argmax(plan.load))
    loaded = dict.fromkeys(hosts, UP) | {hosts[busy]: Seen(up=True, share=0.2)}
    found = [one for now in range(8) for one in decider.decide(loaded, float(now))]
    (decision,) = found
    assert decision.delta is not None and moves_of(decision.delta)
    now = decider.plan()
    assert verify(now).honest and now.load[busy] <= 60 * (1 + 1e-9)
    rehearse(problem, plan)


def test_decisions_of_every_kind_are_rehearsed(
    placed: tuple[Problem, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    applied: list[Any] = []
    apply = LivePlacement.apply

    def noted(live: LivePlacement, event: Any) -> Any:
        applied.append(event)
        delta = apply(live, event)
        applied.append(delta.empty)
        return delta

    monkeypatch.setattr(LivePlacement, "apply", noted)
    rehearse(*placed)
    lost, empty, back, _, slow, _, surge = applied[:7]
    host = at(placed[1])[0]
    # A join moves: it is this that takes kernels.
    assert isinstance(lost, FailNode) and lost.node == host and not empty
    assert [type(event) for event in back.events] == [AddWorker, Rebalance]
    assert isinstance(slow, ChangeCapacity) and slow.node == host
    assert [type(event) for event in surge.events] == [ChangeRate, Rebalance]
    # What no hosts have room for is refused, and taken back.
    assert [type(event) for event in applied[-1].events] == [ChangeRate, Rebalance]
    # It came to nothing.
    assert at(Decider(*placed, TUNING).plan()) == at(placed[1])


def test_nothing_is_changed_by_what_is_not_seen(placed: tuple[Problem, Plan]) -> None:
    watched = Watched(placed)
    assert watched.after(30, seen(near=Seen(up=True))) == []
    assert watched.after(30, {}) == []
    assert watched.at == ["near"]


def test_a_lost_host_is_left_at_once_and_used_again_later(placed: tuple[Problem, Plan]) -> None:
    watched = Watched(placed)
    gone = seen(near=Seen(up=False))
    assert watched.after(0.5, gone) == ["near is lost"]
    assert watched.at == ["mid"] and watched.decider.counted()["near"] == 0
    assert watched.after(14.5, seen()) == []
    assert watched.after(1, seen()) == ["near is back"]
    assert watched.decider.counted()["near"] == 1


def test_a_host_that_flaps_is_left_once(placed: tuple[Problem, Plan]) -> None:
    """Ten times down and up within a minute."""
    watched = Watched(placed)
    found = []
    for _ in range(10):
        found += watched.after(3, seen(near=Seen(up=False)))
        found += watched.after(3, seen())
    assert found == ["near is lost"]
    # Each time it is lost anew, it is waited for twice as long.
    assert watched.after(15, seen()) == ["near is back"]
    assert watched.after(1, seen(near=Seen(up=False))) == ["near is lost"]
    assert watched.after(29, seen()) == []
    assert watched.after(2, seen()) == ["near is back"]
    # After a calm hour, as at first.
    assert watched.after(3700, seen(), every=50) == []
    assert watched.after(1, seen(near=Seen(up=False))) == ["near is lost"]
    assert watched.after(14, seen()) == []
    assert watched.after(2, seen()) == ["near is back"]


def test_joins_that_fall_behind_move_and_their_host_is_not_tried_at_once(
    placed: tuple[Problem, Plan],
) -> None:
    watched = Watched(placed)
    slow = seen(near=Seen(up=True, share=1.0, saturated=200.0))
    assert watched.after(5, slow) == ["near can do 70 % less"]
    assert watched.at == ["mid"]
    # Now nothing is slow there, as nothing is there.
    assert watched.after(55, seen()) == []
    assert watched.after(10, seen()) == ["near can do 70 % more"]


def test_a_slow_join_counts_even_if_its_host_was_counted_as_little_better(
    placed: tuple[Problem, Plan],
) -> None:
    watched = Watched(placed)
    # It can do 600 tuples/s when nothing else runs there, and the join receives 400.
    loaded = Seen(up=True, share=0.7)
    assert watched.after(5, seen(near=loaded)) == ["near can do 30 % less"]
    assert watched.after(10, seen(near=loaded)) == []
    assert watched.at == ["near"]
    slow = Seen(up=True, share=0.7, saturated=400.0)
    assert watched.after(5, seen(near=slow)) == ["near can do 10 % less"]
    assert watched.at == ["mid"]


def test_a_slow_join_that_has_not_moved_yet_tells_nothing_new(
    placed: tuple[Problem, Plan],
) -> None:
    """Until a hand-over, its host reads as slow as before, with some noise."""
    watched, found = Watched(placed), []
    for second in range(60):
        slow = Seen(up=True, share=1.0, saturated=200.0 - 0.1 * second)
        found += watched.after(1, seen(near=slow))
    assert found == ["near can do 70 % less"]
    # It can do less now.
    slower = seen(near=Seen(up=True, share=1.0, saturated=150.0))
    assert watched.after(5, slower) == ["near can do 7 % less"]


def test_what_differs_lasts_only_while_it_is_looked_at(placed: tuple[Problem, Plan]) -> None:
    watched = Watched(placed)
    loaded = seen(near=Seen(up=True, share=0.4))
    assert watched.after(1, loaded) == []
    # A hand-over took half a minute.
    watched.now += 30
    assert watched.after(0.5, loaded) == []
    assert watched.after(1, seen()) == []
    assert watched.after(3.5, loaded) == []
    assert watched.after(1, loaded) == ["near can do 60 % less"]
    # Looks that are always far apart show it as well.
    assert watched.after(24, seen(), every=6) == ["near can do 60 % more"]


def test_sources_that_emit_more_have_their_joins_placed_anew(
    placed: tuple[Problem, Plan],
) -> None:
    watched = Watched(placed)
    names = placed[0].sources.ids.tolist()
    usual, surge = dict.fromkeys(names, 200.0), dict.fromkeys(names, 380.0)
    assert watched.after(10, seen(), rates=usual) == []
    for _ in range(5):
        assert watched.after(3, seen(), rates=surge) == watched.after(1, seen(), rates=usual) == []
    (decided,) = watched.after(5, seen(), rates=surge)
    assert decided == "; ".join(f"{name} emits 1.9 times as much" for name in sorted(names))
    # No host takes the join whole any more.
    assert len(watched.at) > 1
    assert watched.decider.plan().problem.sources.rate.tolist() == [380.0, 380.0]
    # Nobody knows of a source that is still for how long it is.
    assert watched.after(10, seen(), rates=dict.fromkeys(names, 0.0)) == []
    (decided,) = watched.after(5, seen(), rates=usual)
    assert "emits 0.5 times as much" in decided and watched.at == ["near"]


def test_a_surge_that_hosts_can_nearly_take_is_placed_as_if_it_were_less(
    placed: tuple[Problem, Plan],
) -> None:
    watched = Watched(placed)
    names = placed[0].sources.ids.tolist()
    surge = dict.fromkeys(names, 450.0)
    (decided,) = watched.after(5, seen(), rates=surge)
    assert decided.endswith("; placed as if it were 9 % less, as all of it fits nowhere")
    assert len(set(watched.at)) == 3
    sources = watched.decider.plan().problem.sources
    assert sources.rate.tolist() == pytest.approx([450 / 1.1] * 2)
    # It is not decided again, also where it varies; and its end does not wait.
    for rate in (450.0, 480.0, 420.0):
        assert watched.after(10, seen(), rates=dict.fromkeys(names, rate)) == []
    assert len(watched.after(5, seen(), rates=dict.fromkeys(names, 200.0))) == 1
    assert watched.at == ["near"]


def test_a_surge_for_which_there_is_no_room_is_refused(placed: tuple[Problem, Plan]) -> None:
    watched, decisions = Watched(placed), []
    surge = dict.fromkeys(placed[0].sources.ids.tolist(), 50_000.0)
    for _ in range(20):
        watched.now += 0.5
        noted = {name: Rate(rate, watched.now) for name, rate in surge.items()}
        decisions += watched.decider.decide(seen(), watched.now, noted)
    assert decisions[0].delta is None and "tuples/s are missing" in decisions[0].refused
    assert len(decisions) < 3 and watched.at == ["near"]


def test_what_has_no_room_is_refused_with_what_is_missing(placed: tuple[Problem, Plan]) -> None:
    watched = Watched(placed)
    everywhere = {name: Seen(up=True, share=0.1) for name in HOSTS}
    decisions = []
    for _ in range(20):
        watched.now += 0.5
        decisions += watched.decider.decide(everywhere, watched.now)
    refused = [one for one in decisions if one.refused]
    assert refused and "tuples/s are missing" in refused[0].refused
    assert all(one.delta is None for one in refused)
    # It is not tried at every look.
    assert len(decisions) < 12


def test_hosts_of_sources_and_sinks_are_waited_for(placed: tuple[Problem, Plan]) -> None:
    watched = Watched(placed)
    view = seen(left=Seen(up=False), hub=Seen(up=False))
    assert watched.after(5, view) == []
    assert watched.decider.waiting(view) == ["hub", "left"]


def test_a_lost_host_whose_joins_fit_nowhere_is_left_later(placed: tuple[Problem, Plan]) -> None:
    problem, _ = placed
    nodes = problem.nodes
    problem = replace(problem, nodes=replace(nodes, worker=np.isin(nodes.ids, ["near", "far"])))
    watched = Watched((problem, place(problem, "nova")))
    assert watched.after(1, seen(far=Seen(up=False))) == ["far is lost"]
    view = seen(near=Seen(up=False), far=Seen(up=False))
    (lost,) = watched.decider.decide(view, watched.now)
    assert lost.what == "near is lost" and "tuples/s are missing" in lost.refused
    # It is waited for, like a host of a source, and left once that is possible.
    assert watched.decider.waiting(view) == ["near"]
    assert watched.after(9, view) == [] and watched.after(2, view) == ["near is lost"]
    view = seen(near=Seen(up=False))
    assert watched.after(20, view) == ["near is lost", "far is back", "near is lost"]
    assert watched.at == ["far"] and watched.decider.waiting(view) == []
    # It may also come back before.
    other = Watched((problem, watched.decider.plan()))
    other.after(1, seen(far=Seen(up=False), near=Seen(up=False)))
    assert other.after(20, seen(near=Seen(up=False))) == []
    assert other.at == ["far"]


def test_another_controller_goes_on_with_what_was_decided(placed: tuple[Problem, Plan]) -> None:
    problem, _ = placed
    watched = Watched(placed)
    watched.after(1, seen(mid=Seen(up=False)))
    watched.after(5, seen(mid=Seen(up=False), near=Seen(up=True, share=0.5)))
    other = Watched((problem, watched.decider.plan()))
    assert other.decider.counted() == pytest.approx(watched.decider.counted())
    assert other.at == watched.at == ["far"]
    assert other.after(14, seen()) == ["near can do 50 % more"]
    assert other.after(2, seen()) == ["mid is back"]


def test_a_node_is_added_as_it_was(placed: tuple[Problem, Plan]) -> None:
    row = node_row(placed[0], "near")
    assert (row.id, row.capacity, row.worker, row.tags) == ("near", 600.0, True, ["worker"])


def test_a_delta_in_words(placed: tuple[Problem, Plan]) -> None:
    decider = Decider(*placed, TUNING)
    (lost,) = decider.decide(seen(near=Seen(up=False)), 1.0)
    assert lost.delta is not None
    assert moves_of(lost.delta) == ["join/pressure-1*humidity-1 from near to mid"]


# --- readings -------------------------------------------------------------------------------------


def stat(pid: int, name: str, session: int, ticks: int, start: int = 5) -> bytes:
    line = f"{pid} ({name}) S 1 {pid} {session} 0 -1 0 0 0 0 0 {ticks} 10 0 0 20 0 1 0 {start} 0"
    return line.encode()


def test_cpu_that_others_take() -> None:
    before = Processes.parse(
        [b"@ 10.00", stat(1, "init", 1, 0), stat(7, "java (x) y", 7, 100), stat(8, "sh", 7, 0)]
    )
    after = Processes.parse(
        [
            b"@ 12.00",
            stat(1, "init", 1, 100),
            stat(7, "java (x) y", 7, 900),
            stat(8, "sh", 7, 50),
            stat(9, "new", 9, 50),
            b"no process",
        ]
    )
    # init has used one second of two; of the new one all counts, the ten ticks of system time too.
    assert after.cores_since(before, [7]) == pytest.approx((1.0 + 0.6) / 2)
    # A process id that is another process's now.
    other = Processes.parse([b"@ 12.00", stat(1, "init", 1, 20, start=99)])
    assert other.cores_since(before, [7]) == pytest.approx(0.3 / 2)
    assert before.cores_since(after, []) == 0.0
    assert Processes.parse([]).cores_since(before, []) == 0.0


@given(st.data())
def test_lines_that_are_known_are_not_read_again_and_mean_the_same(data: st.DataObject) -> None:
    process = st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(0, 4), st.integers(1, 2))
    lines = st.lists(process, unique_by=lambda one: one[0])

    def told(at: int, rows: list[tuple[int, int, int, int]]) -> list[bytes]:
        rows_told = [stat(pid, "x", session, ticks, start) for pid, session, ticks, start in rows]
        return [b"@ %d.00" % at, *rows_told, b"3.arrived %d 7" % at]

    before = Processes.parse(told(10, data.draw(lines)))
    after = told(12, data.draw(lines))
    again = Processes.parse(after, before)
    assert again == Processes.parse(after)
    passed = {one.key: one.used_s for one in before.processes.values()}
    used = sum(
        one.used_s - passed.get(one.key, 0.0)
        for one in again.processes.values()
        if one.session != 2
    )
    assert again.cores_since(before, [2]) == pytest.approx(max(0.0, used / 2))


def vertex(number: str, name: str, busy: object, blocked: float, received: int) -> dict[str, Any]:
    metrics = {BUSY: busy, HELD_BACK: blocked, RECEIVED: received}
    return {"id": number, "name": name, "metrics": metrics}


def test_flink_is_asked_for_no_more_than_is_needed(placed: tuple[Problem, Plan]) -> None:
    """Its JobManager may have a fifth of a core."""
    _, plan = placed
    flow = flow_of(plan)
    (join,) = (one.name for one in flow.operators if one.kind == "join")
    asked: Counter[str] = Counter()
    state, now = "RUNNING", 0.0

    class Flink:
        def state(self, job: str) -> str:
            asked["state"] += 1
            return state

        def task_managers(self) -> dict[str, object]:
            asked["workers"] += 1
            return {"tm-near": {}, "tm-far": {}}

        def job(self, job: str) -> dict[str, Any]:
            asked["job"] += 1
            rows = [vertex("1", join, 1000 * now, 0, round(300 * now))]
            return {"jid": job, "state": state, "vertices": rows}

    job = ControlledJob("c0ffee", "orders", (), ())
    watch = FlinkWatch(cast(Rest, Flink()), [(job, flow)])
    for tick in range(40):
        now = tick / 2
        seen = watch.look(now)
        assert seen.states == {"c0ffee": "running"} and seen.workers == {"near", "far"}
        assert seen.saturated == ({} if now < 11 else {"near": 300})
    # A request in vain before each one for the metrics that it has the JobManager fetch.
    assert asked == {"state": 40, "workers": 10, "job": 4}
    state = "FAILED"
    assert watch.look(20.0).states == watch.look(20.5).states == {"c0ffee": "failed"}
    assert asked == {"state": 42, "workers": 12, "job": 4}


def test_joins_that_work_all_the_time(placed: tuple[Problem, Plan]) -> None:
    _, plan = placed
    flow = flow_of(plan)
    (join,) = (one.name for one in flow.operators if one.kind == "join")
    watch = JoinsWatch([flow])

    def job(busy: float, received: int) -> dict[str, Any]:
        return {
            "jid": "c0ffee",
            "vertices": [
                vertex("1", join, busy, 0, received),
                vertex("2", "Source: x", "NaN", 0, 0),
            ],
        }

    assert watch.look([job(0, 0)], 0.0) == {}
    assert watch.look([job(2000, 600)], 2.0) == {}
    assert watch.look([job(5000, 1500)], 5.0) == {"near": 300.0}
    assert watch.look([job(5000, 1500)], 7.0) == {"near": 300.0}
    assert watch.look([job(7000, 2500)], 10.0) == {}


@pytest.mark.parametrize(
    ("near_blocked", "far_blocked", "sink_busy", "slow"),
    [
        (4600, 0, 0, {"near": 300.0}),
        # It has time left.
        (4000, 0, 0, {}),
        # The sink holds all of them back.
        (4600, 4600, 0, {}),
        (4600, 0, 5000, {}),
    ],
)
def test_joins_that_are_held_back_all_the_time(
    near_blocked: float, far_blocked: float, sink_busy: float, slow: dict[str, float]
) -> None:
    flow = Flow(
        (
            Operator("join a", "near", JOIN),
            Operator("join b", "far", JOIN),
            Operator("sink", "hub", SINK, ("join a", "join b")),
        )
    )
    watch = JoinsWatch([flow])

    def job(part: float) -> dict[str, Any]:
        received = round(1500 * part)
        return {
            "jid": "c0ffee",
            "vertices": [
                vertex("1", "join a", 400 * part, near_blocked * part, received),
                vertex("2", "join b", 400 * part, far_blocked * part, received),
                vertex("3", "sink", sink_busy * part, 0, received),
            ],
        }

    assert watch.look([job(0)], 0.0) == {}
    assert watch.look([job(1)], 5.0) == slow


@pytest.mark.parametrize(
    ("cause", "hosts"),
    [
        ("Heartbeat of TaskManager with id tm-w2 timed out.", {"w2"}),
        ("Connection unexpectedly closed by remote task manager '10.0.0.9:6125 [ tm-w ] '.", {"w"}),
        ("The TaskExecutor tm-a-b.", {"a-b"}),
        ("recvAddress(..) failed: Connection reset by peer", set()),
    ],
)
def test_hosts_that_a_cause_names(cause: str, hosts: set[str]) -> None:
    job: Any = SimpleNamespace(job="c0ffee")
    engine: Any = SimpleNamespace(
        rest=SimpleNamespace(exceptions=lambda _: ["org.apache.flink.JobException: x", cause]),
        deployment=SimpleNamespace(nodes=["w", "w2", "w22", "a-b"]),
    )
    assert FlinkEngine.blames(engine, job) == hosts


def test_a_join_that_is_held_back_alone_in_its_job() -> None:
    """The joins of all jobs count: another one is not held back, so the sink's host is not slow."""
    flows = [
        Flow((Operator(f"join {node}", node, JOIN), Operator("sink", "hub", SINK)))
        for node in ("near", "far")
    ]
    watch = JoinsWatch(flows)

    def jobs(part: float) -> list[dict[str, Any]]:
        received = round(1500 * part)
        return [
            {"jid": jid, "vertices": [vertex("1", f"join {node}", 400 * part, held, received)]}
            for jid, node, held in (("a", "near", 4600 * part), ("b", "far", 0))
        ]

    assert watch.look(jobs(0), 0.0) == {}
    assert watch.look(jobs(1), 5.0) == {"near": 300.0}
    assert JoinsWatch(flows[:1]).look(jobs(1)[:1], 5.0) == {}


@pytest.mark.parametrize(
    ("offset_ms", "told"), [(2100.0, "far: its clock is 2.1 s ahead of"), (-900.0, "0.9 s behind")]
)
def test_clocks_that_are_off_are_refused(
    offset_ms: float, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(hosts: Any, *, count: int) -> list[ClockOffset]:
        # Over slow SSH, an offset is less sure.
        return [ClockOffset("near", 700.0, 300.0), ClockOffset("far", offset_ms, 100.0)]

    hosts: Any = None
    monkeypatch.setattr(probing, "clock_offsets", measured)
    with pytest.raises(NovaError, match=told):
        probing.refuse_clocks(hosts)
    offset_ms = 400.0
    probing.refuse_clocks(hosts)


def test_a_rate_that_more_than_doubles_has_to_last_less(placed: tuple[Problem, Plan]) -> None:
    names = placed[0].sources.ids.tolist()
    usual, double, triple = (dict.fromkeys(names, rate) for rate in (100.0, 200.0, 300.0))
    for surge, brief_s in ((double, 4), (triple, 1)):
        watched = Watched(placed)
        assert len(watched.after(5, seen(), rates=usual)) == 1
        assert watched.after(brief_s, seen(), rates=surge) == []
        assert len(watched.after(0.5, seen(), rates=surge)) == 1
        # What emits less is never late.
        assert watched.after(4, seen(), rates=usual) == []
        assert len(watched.after(0.5, seen(), rates=usual)) == 1


def test_a_rate_lasts_as_long_as_its_notes_say(placed: tuple[Problem, Plan]) -> None:
    watched = Watched(placed)
    names = placed[0].sources.ids.tolist()
    usual, surge, triple = (dict.fromkeys(names, rate) for rate in (200.0, 380.0, 600.0))
    # The last note of a surge counts until there is another one: these are 2 s of it.
    for rates, at_s in ((surge, 100.0), (surge, 102.0), (usual, 104.0)):
        assert watched.after(6, seen(), rates=rates, noted_at=at_s) == []
    # One note, however often it is seen, shows nothing that lasts.
    assert watched.after(10, seen(), rates=triple, noted_at=110.0) == []
    assert watched.after(0.5, seen(), rates=usual, noted_at=112.0) == []
    for at_s in (120.0, 122.0):
        assert watched.after(1, seen(), rates=surge, noted_at=at_s) == []
    assert len(watched.after(0.5, seen(), rates=surge, noted_at=124.0)) == 1


def test_rates_of_sources_are_read() -> None:
    watch = HostWatch(HostView(cores=0.5), {7})
    for at_ms, counts in ((1000, (0, 5)), (1000, (0, 5)), (3000, (400, 5)), (5000, (1600, 9))):
        noted = "".join(f"{n}.arrived {count} {at_ms}\n" for n, count in enumerate(counts))
        watch.take(f"@ {at_ms / 1000}\n{stat(7, 'java', 7, 0).decode()}\n{noted}.\n".encode())
        if at_ms == 1000:
            assert watch.view.rates == {}
        elif at_ms == 3000:
            assert watch.view.rates == {0: (200.0, 3.0), 1: (0.0, 3.0)}
    assert watch.view.rates == {0: (600.0, 5.0), 1: (2.0, 5.0)}
    # A source that notes nothing, as its job has failed, has no rate.
    watch.take(b"@ 7\n0.arrived 2000 7000\n1.arrived 9 5000\n.\n")
    assert watch.view.rates == {0: (200.0, 7.0)}


def test_readings_are_means_over_a_few_seconds() -> None:
    watch = HostWatch(HostView(cores=0.5), {7})
    for second, ticks in ((10, 0), (12, 40), (14, 80)):
        lines = [b"@ %d.00" % second, stat(1, "x", 1, ticks), stat(7, "java", 7, 0), b".", b""]
        for part in np.array_split(np.frombuffer(b"\n".join(lines), np.uint8), 3):
            watch.take(part.tobytes())
    assert watch.view.taken == pytest.approx(0.2)
    assert watch.view.share == pytest.approx(0.6)
    assert watch.view.alive
    watch.take(f"@ 16.00\n{stat(1, 'x', 1, 280).decode()}\n.\n".encode())
    assert watch.view.taken == pytest.approx((0.2 + 0.2 + 1.0) / 3)
    assert watch.view.alive is False
    # What was before three readings does not count: a plan is made for what is there now.
    for second, ticks in ((18, 480), (20, 680), (24, 1080)):
        watch.take(f"@ {second}.00\n{stat(1, 'x', 1, ticks).decode()}\n.\n".encode())
        assert watch.view.taken == pytest.approx(1.0 if second > 18 else (0.2 + 1.0 + 1.0) / 3)


@pytest.mark.parametrize(
    ("lines", "alive", "works"),
    [
        ([stat(7, "java", 7, 0), stat(8, "java", 7, 0)], True, True),
        ([stat(7, "java", 7, 0), stat(9, "java", 7, 0)], True, False),
        ([stat(8, "java", 8, 0)], False, True),
        ([stat(7, "java", 7, 0), stat(8, "java", 7, 0), b"one lost"], True, False),
        ([stat(7, "java", 7, 0), stat(8, "java", 7, 0), b"one-more lost"], True, True),
    ],
)
def test_processes_of_an_engine_and_of_its_job(
    lines: list[bytes], alive: bool, works: bool
) -> None:
    watch = HostWatch(HostView(cores=0.5), {7})
    watch.take(b"\n".join([b"@ 1.00", *lines, b".", b""]))
    assert (watch.view.alive, watch.works({"one"}, {8})) == (alive, works)
