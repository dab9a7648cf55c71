"""Throughput of one join cut by key over several hosts, with Flink on a virtual rack."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest
from needs_rack import require
from pytest_benchmark.fixture import BenchmarkFixture

from nova_core.errors import InfeasibleError
from nova_core.io.files import read_problem
from nova_core.io.syntax import dump
from nova_core.model.key_ranges import KEY_RANGES, required
from nova_core.model.plan import Plan
from nova_core.model.problem import Floats, Problem
from nova_core.strategies import place
from nova_engines.flow_of_plan import flow_of
from nova_harness.engines.base import await_end
from nova_harness.experiment.bed import engine_bed, hosts_up, prepare_engine
from nova_harness.experiment.document import Experiment
from nova_harness.experiment.engine_run import Bed
from nova_testbed.inventory import read_inventory
from nova_workloads.queries.replayed import ReplayedReadings

pytestmark = pytest.mark.e2e


class Case(NamedTuple):
    """A join.

    Attributes:
        skew: exponent of a Zipf distribution of the keys; 0 for equally frequent ones.
        window: its length, s.
        readings: of each of the two streams.
        hosts: over how many it is cut, one number after the other.
    """

    skew: float
    window: float
    readings: int
    hosts: tuple[int, ...] = (1, 2, 4, 8)


CASES = (Case(0.0, 0.1, 200_000), Case(1.2, 0.01, 150_000))
SMALL = Case(1.2, 0.1, 4000, (1, 2))
KEYS = 10_000
STREAMS = {"orders": "amount", "parts": "weight"}
# Length of event time; readings are replayed as fast as they are taken.
SECONDS = 6
SPEED = 100.0
START_MS = 1_700_000_000_000
# Cores: workers are slow, so that neither sources nor the sink limit the join.
WORKER, SOURCE, SINK = 0.05, 0.5, 0.4
# Warm-up runs, without CPU limits: Java compiles code that has run often.
WARMING = 3
# A host may take its even share times this; the first margin with a plan is used.
MARGINS = tuple(np.arange(1.0, 2.0, 0.02).tolist())


def test_hosts(benchmark: BenchmarkFixture, case: Case, tmp_path: Path) -> None:
    """One equality join of 10,000 keys over each number of equal hosts; all results are checked.

    `rate` is of tuples/s of both inputs, from the first reading to the last result. By the plan,
    `largest` is the share of all tuples that the busiest host receives, and `sent` says how many
    times inputs are sent.
    """
    require()
    (tmp_path / "inventory.yaml").write_text(_inventory(max(case.hosts)))
    shares = _write_readings(tmp_path, case)
    setup = _Setup(tmp_path, shares, case.readings / SECONDS, case.window)
    plans = [_plan(setup, count) for count in case.hosts]
    with _bed(tmp_path) as bed:
        for _ in range(WARMING):
            _seconds(bed, plans[-1], tmp_path, limited=False)
        took = benchmark.pedantic(
            lambda: [_seconds(bed, plan, tmp_path, limited=True) for plan in plans]
        )
    largest = [float(plan.load.max() / plan.graph.input_rate.sum()) for plan in plans]
    sent = [float(plan.load.sum() / plan.graph.input_rate.sum()) for plan in plans]
    rate = [2 * case.readings / seconds for seconds in took]
    benchmark.extra_info |= {"largest": largest, "sent": sent, "rate": rate}
    assert (largest[0], sent[0]) == (1, 1)
    assert largest[1] < 0.6 and sent[1] < 1.2


@contextmanager
def _bed(path: Path) -> Iterator[Bed]:
    experiment = Experiment(name="keys", strategies=["nova"])
    flink = prepare_engine(experiment, print)
    with (
        hosts_up(read_inventory(str(path / "inventory.yaml")), print) as inventory,
        engine_bed(experiment, inventory, flink, print, keep=False) as bed,
    ):
        yield bed


def _inventory(workers: int) -> str:
    hosts = [f"  - {{name: hub, role: sink, cpu: {SINK}, memory: 1 GiB}}"]
    hosts += [f"  - {{name: at-{one}, role: source, cpu: {SOURCE}}}" for one in STREAMS]
    hosts += [f"  - {{name: worker-{n + 1}, role: worker}}" for n in range(workers)]
    lines = ["inventory: 1", f"name: keys-{os.getpid()}", "virtual: true"]
    lines += [f"defaults: {{cpu: {WORKER}, memory: 400 MiB}}", "hosts:", *hosts]
    return "\n".join([*lines, "network: {rtt_ms: 4}", ""])


def _write_readings(path: Path, case: Case) -> list[Floats]:
    """Both streams' readings; the share of every key in each."""
    rng, readings = np.random.default_rng(0), case.readings
    weight = np.arange(1, KEYS + 1) ** -case.skew
    time = START_MS + np.arange(readings) * (SECONDS * 1000) // readings
    shares = []
    for stream, column in STREAMS.items():
        item = rng.choice(KEYS, readings, p=weight / weight.sum())
        value = rng.integers(0, 1000, readings)
        rows = zip(time.tolist(), item.tolist(), value.tolist(), strict=True)
        text = "\n".join([f"time,item,{column}", *(f"{t},{i},{v}" for t, i, v in rows), ""])
        (path / f"{stream}.csv").write_text(text, "utf-8")
        shares.append(np.bincount(item, minlength=KEYS) / readings)
    return shares


@dataclass(frozen=True)
class _Setup:
    """The join: where its files are, shares of keys, rate of each stream and window (s)."""

    path: Path
    shares: Sequence[Floats]
    rate: float
    window: float


def _plan(setup: _Setup, hosts: int) -> Plan:
    """The plan that shares the join most evenly over a number of hosts."""
    for margin in MARGINS:
        try:
            plan = place(_problem(setup, hosts, margin), "nova")
        except InfeasibleError:
            continue
        if _needed(setup, plan).max() <= _room(setup, hosts, margin) * (1 + 1e-9):
            return plan
    raise AssertionError(f"no plan for {hosts} hosts: the keys are too different")


def _room(setup: _Setup, hosts: int, margin: float) -> float:
    """What a host may take, tuples/s."""
    return 2 * setup.rate / hosts * margin


def _needed(setup: _Setup, plan: Plan) -> Floats:
    """(n,) what nodes need for their ranges of keys, tuples/s; frequent keys count as more."""
    join = plan.graph.joins[int(plan.graph.bodies[0])]
    i = plan.instances
    of_range = required(join, setup.rate, setup.rate, plan.partitions.rates(0, 0))
    ranges = zip(i.left_begin.tolist(), i.left_end.tolist(), strict=True)
    needed = np.array([of_range(begin, end) for begin, end in ranges])
    return np.bincount(i.node, needed).astype(np.float64)


def _problem(setup: _Setup, hosts: int, margin: float) -> Problem:
    (left, right), rate = setup.shares, setup.rate
    hot = np.flatnonzero(np.maximum(left, right) >= 1 / KEY_RANGES).tolist()
    nodes: list[dict[str, Any]] = [
        {"id": name, "position": [at, 0], "capacity": 1, "worker": False}
        for name, at in (("hub", 0), *((f"at-{one}", 8) for one in STREAMS))
    ]
    room = _room(setup, hosts, margin)
    nodes += [{"id": f"worker-{n + 1}", "position": [4, 0], "capacity": room} for n in range(hosts)]
    join = {
        "id": "match",
        "kind": "join",
        "inputs": list(STREAMS),
        "on": "orders.item = parts.item and orders.amount < parts.weight - 700",
        "window": setup.window,
        "selectivity": 0.01,
        "keys": KEYS,
        "hot": [
            {"values": [key], "left": float(left[key]), "right": float(right[key])} for key in hot
        ],
    }
    document = {
        "nova": 1,
        "name": "keys",
        "nodes": nodes,
        "sources": [
            {"id": one, "node": f"at-{one}", "stream": one, "rate": rate} for one in STREAMS
        ],
        "streams": [
            {"id": one, "columns": {"item": "int", column: "float"}}
            for one, column in STREAMS.items()
        ],
        "queries": [{"id": "pick", "sink": "hub", "operators": [join]}],
    }
    file = setup.path / "problem.yaml"
    file.write_text(dump(document, ".yaml"), "utf-8")
    return read_problem(file)


def _seconds(bed: Bed, plan: Plan, path: Path, limited: bool) -> float:
    """How long a plan takes for all readings, with or without the hosts' CPU limits; s."""
    with TemporaryDirectory(dir=path) as scratch:
        replay = ReplayedReadings(plan.problem, path, Path(scratch), SPEED)
        bed.limits.lift()
        job = bed.engine.start(flow_of(plan), replay.from_time, "nova keys")
        job.await_running()
        if limited:
            bed.limits.impose()
        await_end(job)
        bed.limits.lift()
        records: Any = job.results(Path(scratch)).records
        (compared,) = replay.compare(records).values()
    assert compared.ok, compared
    return float(records["arrive_us"].max() - records["oldest_us"].min()) / 1e6
