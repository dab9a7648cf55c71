"""What is told of hosts: their use of CPU, what joins cost there, their load and limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_core.errors import NovaError
from nova_core.io.files import read_problem
from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_harness.control.disturbances import Disturbance
from nova_harness.engines.warming import warming_plan
from nova_harness.experiment.calibration import (
    Calibrating,
    Setting,
    bottlenecks,
    calibration_plan,
    capacities,
    costliest,
    costs,
    find_rate,
    found_line,
    strongest,
)
from nova_harness.experiment.document import Experiment, ExperimentError
from nova_harness.experiment.limits import LEFT_CORES, Limits
from nova_harness.experiment.problem import problem_document, problem_of, rtt_csv
from nova_harness.experiment.stress import ROOM, profiles
from nova_harness.experiment.usage import Reading, engine_cores, mean_cores, noted, usage_table
from nova_harness.results.latencies import percentiles
from nova_harness.results.run_folder import CALIBRATIONS, read_calibrations, write_json
from nova_harness.results.schema import CalibratedSetting, Calibration, Calibrations
from nova_testbed.inventory import Inventory, read_inventory
from nova_workloads.base import Traffic
from nova_workloads.debs import DebsWorkload
from nova_workloads.joined_streams import JoinedStreams


@pytest.fixture(scope="module")
def inventory() -> Inventory:
    return read_inventory("virtual-14")


def placed(inventory: Inventory, directory: Path, regions: int = 4) -> Problem:
    capacity = {host.name: 10_000 * (host.cpu or 1) for host in inventory.hosts}
    capacity["sink"] = 10_000.0
    document = problem_document(
        inventory, capacity, DebsWorkload(regions=regions), Traffic(1000, 100)
    )
    return problem_of(document, directory / "problem.yaml")


def test_latencies_are_one_way(inventory: Inventory, tmp_path: Path) -> None:
    problem = placed(inventory, tmp_path)
    found = problem.measured
    assert found is not None and len(found) == 14 * 13 // 2
    asked = inventory.rtt()[found.source, found.target]
    assert np.allclose(2 * found.latency, asked, atol=0.002)
    assert [str(s) for s in problem.sources.ids[:2]] == ["pressure-1", "humidity-1"]
    assert len(problem.matrix) == 4
    lines = rtt_csv(inventory).splitlines()
    assert len(lines) == 15
    assert lines[0].startswith("sink,source1")


def test_too_few_sources_are_told(inventory: Inventory) -> None:
    capacity = {host.name: 1.0 for host in inventory.hosts}
    with pytest.raises(NovaError, match="8 hosts with the role source; 5 regions need 10"):
        problem_document(inventory, capacity, DebsWorkload(regions=5), Traffic(1000, 100))


@given(st.lists(st.integers(1, 10_000_000), min_size=1, max_size=300))
def test_percentiles_are_what_so_many_do_not_exceed(values: list[int]) -> None:
    found = percentiles(np.array(values))
    ordered = sorted(values)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p9999", 0.9999)):
        rank = max(1, math.ceil(share * len(values) - 1e-9))
        assert getattr(found, name) == ordered[rank - 1] / 1000
    assert found.mean == pytest.approx(np.mean(values) / 1000)
    assert found.max == ordered[-1] / 1000


def test_what_hosts_note_is_read_without_a_line_cut_short() -> None:
    text = (
        "100.5 cpu 100 0 50 1000 10 0 0 0 0 0 1000000 400000 20\n"
        "101.5 cpu 150 0 60 1040 10 0 0 0 0 0 1000000 300000 50\n"
        "102.5 cpu 151 0 6"
    )
    readings = noted(text)
    assert [r.cpu_seconds for r in readings] == [1.5, 2.1]
    assert readings[1].memory_bytes == 700_000 * 1024
    table = usage_table({"one": readings}, 100.0)
    assert table.column("cpu_cores").to_pylist() == [pytest.approx(0.6)]
    assert table.column("load_cores").to_pylist() == [pytest.approx(0.3)]
    assert engine_cores({"one": readings}, 100, 102)["one"] == pytest.approx(0.3)
    assert table.column("t_s").to_pylist() == [1.5]


def test_mean_use_is_of_the_measured_time() -> None:
    series = [Reading(float(t), 0.1 * t + (5 if t > 20 else 0), 0.0, 0) for t in range(40)]
    assert mean_cores({"h": series}, 5, 15)["h"] == pytest.approx(0.1)
    assert mean_cores({"h": series[:1]}, 5, 15) == {}


def flowing(plan: Plan) -> JoinedStreams:
    return JoinedStreams(plan.problem, [], Traffic(1000, 100, 100))


def sources(count: int) -> list[str]:
    return [f"source{number}" for number in range(1, count + 1)]


def outcome(used: dict[str, float], results: int) -> Any:
    series = {
        name: [Reading(float(t), cores * t, 0.0, 0) for t in range(12)]
        for name, cores in used.items()
    }
    arrive = np.linspace(0, 9_999_999, results).astype(np.int64)
    records = {"arrive_us": arrive, "instance": np.arange(results) % 4}
    return SimpleNamespace(series=series, records=records, measured_us=(0, 10_000_000))


def test_costs_come_from_what_hosts_with_one_kind_of_operator_used(
    inventory: Inventory, tmp_path: Path
) -> None:
    plan = calibration_plan(placed(inventory, tmp_path))
    hosts = [str(plan.problem.nodes.ids[n]) for n in plan.instances.node]
    assert hosts == ["worker1", "worker2", "worker3", "worker4"]
    used = {h.name: {"source": 0.05, "sink": 0.1}.get(h.role, 0.06) for h in inventory.hosts}
    used["worker5"] = 0.02
    found = costs(plan, outcome(used, 40_000), flowing(plan), Setting(1000), 100)
    assert found.idle_cores == pytest.approx(0.02)
    assert found.source_cores == pytest.approx(0.05)
    assert found.sink_cores == pytest.approx(0.1)
    assert found.join_us == pytest.approx(20.0)  # 0.04 cores for 2000 tuples/s
    assert found.results_per_s == 4000
    # What joins could not keep up with they have not used CPU for.
    behind = costs(plan, outcome(used, 20_000), flowing(plan), Setting(1000), 100)
    assert behind.kept_up == 0.5
    assert behind.join_us == pytest.approx(40.0)
    setting = CalibratedSetting(rate=1000, costs=found)
    write_json(tmp_path / CALIBRATIONS, Calibrations(rates=[setting]))
    assert read_calibrations(tmp_path).rates == [setting]
    (tmp_path / CALIBRATIONS).write_text("{")
    with pytest.raises(NovaError, match=r"calibration\.json: "):
        read_calibrations(tmp_path)
    used |= dict.fromkeys(hosts, 0.01)
    with pytest.raises(ExperimentError, match="no more CPU than one without"):
        costs(plan, outcome(used, 40_000), flowing(plan), Setting(1000), 100)
    del used["source3"]
    with pytest.raises(ExperimentError, match="source3: CPU use is not known"):
        costs(plan, outcome(used, 40_000), flowing(plan), Setting(1000), 100)


def test_capacity_is_what_is_left_of_the_limit(inventory: Inventory) -> None:
    found = Calibration(0.02, 0.035, 0.16, 20.0, 1000, 4000, 100, {})
    cores = {host.name: host.cpu or 1.0 for host in inventory.hosts}
    asked = {"rate": 1000.0, "safety": 0.8}
    capacity = capacities(found, inventory, cores, sources(8), **asked, output_rate=4000)
    assert capacity["worker1"] == pytest.approx((0.2 - 0.02) / 20e-6)
    # Beside a source there has to be room for sending all of it once more.
    assert capacity["source1"] == pytest.approx((0.08 - 0.05) / 20e-6)
    assert capacity["source8"] == 0
    assert capacity["sink"] == 4000  # it has no CPU left, but must be able to take the results
    idle = replace(found, sink_cores=0.02)
    roomy = capacities(idle, inventory, cores, sources(8), **asked, output_rate=4000)
    assert roomy["sink"] == pytest.approx((0.8 * 0.15 - 0.02) / 20e-6)
    # With fewer regions the last sources' hosts have none.
    fewer = capacities(found, inventory, cores, sources(6), **asked, output_rate=3000)
    assert fewer["source8"] == pytest.approx((0.04 - 0.02) / 20e-6)
    told = bottlenecks(replace(found, source_cores=0.055), inventory, cores, sources(8), 1000)
    assert [line.split(":")[0] for line in told] == ["source7", "source8", "sink"]
    # Sources that joins have held up need more than they have used.
    held_up = replace(found, kept_up=0.5)
    capacity = capacities(held_up, inventory, cores, sources(8), **asked, output_rate=4000)
    assert capacity["source1"] == 0
    assert held_up.source_at(500) == pytest.approx(0.035)


def test_load_leaves_hosts_less_capacity(inventory: Inventory, tmp_path: Path) -> None:
    loaded = {f"source{number}" for number in (7, 8)}
    problem = placed(inventory, tmp_path, regions=3)
    plan = calibration_plan(problem, loaded)
    hosts = [str(problem.nodes.ids[node]) for node in plan.instances.node]
    assert hosts == ["source7", "worker1", "source8"]
    # Where all hosts under load have sources, theirs are taken; what sources use is no join's.
    on_source = calibration_plan(problem, {"source1", "source3"})
    hosts = [str(problem.nodes.ids[node]) for node in on_source.instances.node]
    assert hosts == ["source1", "worker1", "source3"]
    used = {h.name: {"source": 0.05, "sink": 0.1}.get(h.role, 0.02) for h in inventory.hosts}
    used |= {"source7": 0.02, "source8": 0.02, "worker1": 0.04, "source1": 0.08, "source3": 0.06}
    limits = {"source1": 0.1, "source3": 0.08}
    # Of instance 2 half of the results came, of the others all.
    found = outcome(used, 25_000)
    found.records["instance"] = np.repeat([0, 1, 2], [10_000, 10_000, 5_000])
    told = costs(
        on_source, found, flowing(on_source), Setting(1000, stress=True), 100, limits=limits
    )
    assert told.left == pytest.approx(0.06 / 0.08)
    assert told.join_us == pytest.approx(1e6 * (0.03 + 0.02 + 0.01) / 5000)
    assert costs(on_source, found, flowing(on_source), Setting(1000), 100).left is None
    cores = {host.name: host.cpu or 1.0 for host in inventory.hosts}
    available = told.available(inventory, cores)
    assert available["source1"] == pytest.approx(0.075)
    assert available["worker1"] == cores["worker1"]


def test_a_rate_is_found_although_calibrations_scatter() -> None:
    """The loads that a rack had: the last two, close to each other, led to 84,300."""
    loads = {30000: 0.298, 45300: 0.31, 90600: 0.569, 69800: 0.411, 73800: 0.426}

    def takes(found: Calibration) -> tuple[str, float]:
        near = min(loads, key=lambda rate: abs(rate - found.rate))
        return "source5", 2 * found.rate / loads[near]

    found = find_rate(
        0.45, 30000, lambda rate: Calibration(0.01, 0.05, 0.1, 1.0, rate, 0, 100, {}), takes
    )
    assert found.rate == pytest.approx(76_000, rel=0.03) and found.settled


@pytest.mark.parametrize(
    ("start", "join_us", "rates"),
    [
        # Too far away: five are enough.
        (1000, lambda rate: 1 + 100_000 / rate, [1000, 1400, 2800, 5600, 11_200]),
        (9500, lambda rate: 15.0, [9500]),  # close to where it leads to
        (1000, lambda rate: 15.0, [1000, 9600]),
        (1000, lambda rate: 15 + rate / 1000, [1000, 9000, 6100, 6600]),
        # Mostly wake-ups at first: twice as much at most, up to where they do not matter.
        (8000, lambda rate: 1 + 20_000 / rate, [8000, 41_100, 82_200, 124_000]),
    ],
)
def test_a_rate_is_found_for_a_load(
    inventory: Inventory,
    tmp_path: Path,
    start: float,
    join_us: Callable[[float], float],
    rates: list[float],
) -> None:
    cores = {host.name: host.cpu or 1.0 for host in inventory.hosts}

    def measure(rate: float) -> Calibration:
        return Calibration(0.01, 0.05, 0.1, join_us(rate), rate, 0, 100, {})

    def takes(found: Calibration) -> tuple[str, float]:
        return strongest(found, inventory, cores, sources(8))

    found = find_rate(1.2, start, measure, takes)
    assert [one.rate for one in found.calibrations] == rates
    assert found.host == "worker1"
    assert found.takes == pytest.approx(0.24 / found.calibrations[-1].join_us * 1e6)
    assert found.settled == (len(rates) < 5)
    assert found_line(found).endswith("settled)") != found.settled
    if found.settled:
        # 1 % at most; floats add a little.
        assert found.load == pytest.approx(1.2, rel=0.01 + 1e-9)
    write_json(tmp_path / CALIBRATIONS, Calibrations(load=found))
    assert read_calibrations(tmp_path).load == found
    (tmp_path / CALIBRATIONS).unlink()
    assert read_calibrations(tmp_path).load is None


class Hosts(list[Any]):
    """Connected hosts with one core."""

    def __init__(self, inventory: Inventory) -> None:
        super().__init__(SimpleNamespace(spec=host) for host in inventory.hosts)
        self.inventory = inventory

    def run(self, command: str) -> dict[str, Any]:
        return {host.name: SimpleNamespace(stdout="1") for host in self.inventory.hosts}


def test_a_run_with_other_rates_keeps_what_it_knows_of_the_first(
    inventory: Inventory, tmp_path: Path
) -> None:
    bed: Any = SimpleNamespace(deployment=SimpleNamespace(hosts=Hosts(inventory), version="1"))
    workload = DebsWorkload()

    def write(rate: float) -> Problem:
        asked = Experiment(name="rates", strategies=["nova"], windows_ms=[100], rates=[rate])
        calibrating = Calibrating(bed, asked, workload, tmp_path, lambda text: None)
        cost = Calibration(0.01, 0.05, 0.1, 20.0, rate, 0, 100, {})
        return calibrating.write_problems({Setting(rate): cost})[Setting(rate)]

    problems = [write(rate) for rate in (1000, 2000, 2000)]
    assert [one.rate for one in read_calibrations(tmp_path).rates] == [1000, 2000]
    files = [tmp_path / "problem.yaml", tmp_path / "problem-r2000.yaml"]
    assert [read_problem(file).digest for file in files] == [one.digest for one in problems[:2]]
    assert problems[1].digest == problems[2].digest


@pytest.mark.parametrize(
    ("sink_cores", "allowed", "hosts"),
    [(0.02, True, True), (0.16, True, False), (0.02, False, False)],
)
def test_the_sinks_host_runs_joins_where_it_has_room_and_may(
    sink_cores: float, allowed: bool, hosts: bool, inventory: Inventory, tmp_path: Path
) -> None:
    bed: Any = SimpleNamespace(deployment=SimpleNamespace(hosts=Hosts(inventory), version="1"))
    asked = Experiment(
        name="x", strategies=["nova"], windows_ms=[100], rates=[1000.0], sink_hosts=allowed
    )
    calibrating = Calibrating(bed, asked, DebsWorkload(), tmp_path, lambda text: None)
    cost = Calibration(0.01, 0.03, sink_cores, 20.0, 1000, 4000, 100, {})
    (problem,) = calibrating.write_problems({Setting(1000): cost}).values()
    sink = problem.node_index["sink"]
    assert problem.nodes.worker.tolist() == [name != "sink" or hosts for name in problem.nodes.ids]
    assert problem.nodes.capacity[sink] >= 4000


def test_hosts_are_calibrated_at_the_highest_rate_of_a_script(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[float] = []

    def run(bed: Any, plan: Plan, *_: Any, **__: Any) -> Any:
        sent.extend(plan.problem.sources.rate.tolist())
        raise NovaError("enough is known")

    monkeypatch.setattr("nova_harness.experiment.engine_run.run_plan", run)
    bed: Any = SimpleNamespace(deployment=SimpleNamespace(hosts=Hosts(inventory)))
    surge = Disturbance(at=5, what="rate", host="source1", times=3)
    slower = Disturbance(at=9, what="rate", host="source2", times=0.5)
    cost = Calibration(0.01, 0.03, 0.1, 20.0, 1500, 0, 100, {})
    room = []
    for script, rate in (([], 500), ([slower], 500), ([surge, slower], 1500)):
        asked = Experiment(name="x", strategies=["nova"], windows_ms=[100], disturbances=script)
        calibrating = Calibrating(bed, asked, DebsWorkload(), tmp_path, lambda text: None)
        with pytest.raises(NovaError, match="enough is known"):
            calibrating.measure(Setting(500))
        assert set(sent) == {rate}
        sent.clear()
        room.append(calibrating.capacities(Setting(500), cost))
    assert room[0] == room[1]
    # Its host's source needs more; the sink, here without CPU left, must take more results.
    assert room[2]["source1"] < room[0]["source1"]
    assert room[2]["sink"] == pytest.approx(room[0]["sink"] + 8 / 2 * 1000)
    assert room[2]["worker1"] == room[0]["worker1"]


@pytest.mark.parametrize("regions", [1, 2, 4])
def test_the_engine_warms_up_on_every_host(
    inventory: Inventory, tmp_path: Path, regions: int
) -> None:
    problem = placed(inventory, tmp_path, regions)
    plan = warming_plan(problem)
    assert sorted(plan.instances.node.tolist()) == list(range(14))
    assert plan.partitions.rate.sum() == pytest.approx(2 * regions * 1000)
    for pair in range(regions):
        of_pair = plan.instances.pair == pair
        cut = plan.partitions.count[2 * pair]
        assert plan.instances.left_begin[of_pair].tolist() == list(range(cut))
    # Or on some hosts, of which each has one at least.
    names = problem.nodes.ids[[3, 5, 8]].tolist()
    used = warming_plan(problem, names).instances.node.tolist()
    assert set(used) == {3, 5, 8} and len(used) == max(3, regions)


def test_load_leaves_the_engine_its_memory(inventory: Inventory) -> None:
    engine = 200 << 20
    found = profiles(inventory, engine)
    assert sum(len(p.hosts) for p in found) == 8
    for profile in found:
        memory = inventory.host(profile.hosts[0]).memory
        assert memory is not None
        assert profile.cpu_percent == 100
        assert profile.memory_percent == pytest.approx(80 * (memory - engine - ROOM) / memory)
    assert all(p.memory_percent == 0 for p in profiles(inventory, 1 << 40))


def test_lifted_limits_leave_the_machine_something(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cores in (2, 8, 64):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        found = Limits(inventory).generous()
        own = {host.name: host.cpu or 0 for host in inventory.hosts}
        assert all(found[name] >= own[name] for name in own)
        # Only hosts whose own limit is above their share can exceed it.
        above = sum(max(0.0, found[n] - (cores - LEFT_CORES)) for n in own)
        assert above == 0
        if cores > 2:
            assert sum(found.values()) <= cores - LEFT_CORES + 1e-9
        # The fewer have something to do, the more each gets.
        few = Limits(inventory).generous(["sink", "source7", "worker5"])
        assert few["sink"] == max(own["sink"], found["sink"])
        assert few["source7"] == few["worker5"] > found["source7"]
        assert few["worker1"] == own["worker1"]


def test_hosts_are_calibrated_with_the_windows_that_cost_most() -> None:
    windows = (15, 1, 100)
    # With a match per tuple, however long they are, the shortest.
    assert costliest(DebsWorkload(), windows, 1064).window_ms == 1
    assert costliest(DebsWorkload(matches=0.1), windows, 1064).window_ms == 1
    every = costliest(DebsWorkload(matches="all"), windows, 100)
    assert (every.window_ms, every.keys, every.matches) == (100, 1, 10)


@given(
    st.sampled_from([1, 3, 0.1, "all"]),
    st.sampled_from([1, 10, 100, 1000]),
    st.floats(10, 2000),
    st.floats(1, 20),
)
def test_more_tuples_have_as_many_results_each(
    matches: Any, window_ms: int, rate: float, times: float
) -> None:
    asked = DebsWorkload(matches=matches).traffic(window_ms, rate)
    more = asked.at(times * rate)
    assert (more.rate, more.window_ms) == (times * rate, window_ms)
    assert more.keys % asked.every == 0
    assert more.every == asked.every
    # As near as whole numbers of keys allow.
    assert more.matches <= max(1 / asked.every, 1.5 * asked.matches)
    if rate * window_ms >= 1000:
        assert more.matches >= asked.matches / 1.5
