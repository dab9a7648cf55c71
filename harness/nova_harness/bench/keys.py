"""Throughput of one join cut by key over several hosts, with Flink on a virtual rack."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core.errors import InfeasibleError, NovaError
from nova_core.model.key_ranges import KEY_RANGES, required

if TYPE_CHECKING:
    from rich.table import Table

    from nova_core.model.problem import Floats, Problem
    from nova_core.model.query_plan import QueryPlan
    from nova_harness.experiment.engine_run import Bed

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


@dataclass(frozen=True)
class Measurement:
    """Throughput with a number of hosts.

    Attributes:
        hosts: that the join is cut over.
        largest: share of all tuples that the busiest of them receives, by the plan.
        sent: how many times inputs are sent, by the plan.
        rate: tuples/s of both inputs, from the first reading to the last result.
        ratio: of that to the rate of the first measurement, per host.
    """

    hosts: int
    largest: float
    sent: float
    rate: float
    ratio: float


def measure(
    counts: Sequence[int],
    skew: float,
    window: float,
    readings: int,
    seed: int,
    tell: Callable[[str], None],
) -> list[Measurement]:
    """Run one equality join of 10,000 keys over each number of equal hosts in turn.

    Args:
        counts: of hosts.
        skew: exponent of a Zipf distribution of the keys; 0 for equally frequent ones.
        window: its length, s.
        readings: of each of the two streams.
        seed: of the readings.
        tell: progress callback, gets each step as text.

    Raises:
        NovaError: naming what failed; for results that differ from the reference.
    """
    from nova_core.model.safe_files import write_text
    from nova_harness.engines.base import DIRECT
    from nova_harness.experiment.bed import engine_bed, hosts_up, prepare_engine
    from nova_harness.experiment.document import Experiment
    from nova_testbed.inventory import read_inventory
    from nova_workloads.queries.readings import connection

    connection().close()  # a missing extra is named before minutes of measuring
    experiment = Experiment(name="keys", strategies=["nova"], transport=DIRECT)
    flink = prepare_engine(experiment, tell)
    with tempfile.TemporaryDirectory(prefix="nova-keys-") as directory:
        path = Path(directory)
        write_text(path / "inventory.yaml", _inventory(max(counts)))
        shares = _write_readings(path, skew, readings, seed)
        setup = _Setup(path, shares, readings / SECONDS, window)
        plans = {count: _plan(setup, count) for count in counts}
        rates: dict[int, float] = {}
        with (
            hosts_up(read_inventory(str(path / "inventory.yaml")), tell) as inventory,
            engine_bed(experiment, inventory, flink, tell, keep=False) as bed,
        ):
            for _ in range(WARMING):
                tell("warming up")
                _seconds(bed, plans[max(counts)], path, limited=False)
            for count, plan in plans.items():
                tell(f"{count} hosts, measuring")
                rates[count] = 2 * readings / _seconds(bed, plan, path, limited=True)
    each = rates[counts[0]] / counts[0]
    return [
        Measurement(
            hosts=count,
            largest=float(plan.load.max() / plan.graph.input_rate.sum()),
            sent=float(plan.load.sum() / plan.graph.input_rate.sum()),
            rate=rates[count],
            ratio=rates[count] / count / each,
        )
        for count, plan in plans.items()
    ]


def _inventory(workers: int) -> str:
    hosts = [f"  - {{name: hub, role: sink, cpu: {SINK}, memory: 1 GiB}}"]
    hosts += [f"  - {{name: at-{one}, role: source, cpu: {SOURCE}}}" for one in STREAMS]
    hosts += [f"  - {{name: worker-{n + 1}, role: worker}}" for n in range(workers)]
    lines = ["inventory: 1", f"name: keys-{os.getpid()}", "virtual: true"]
    lines += [f"defaults: {{cpu: {WORKER}, memory: 400 MiB}}", "hosts:", *hosts]
    return "\n".join([*lines, "network: {rtt_ms: 4}", ""])


def _write_readings(path: Path, skew: float, readings: int, seed: int) -> list[Floats]:
    """Both streams' readings; the share of every key in each."""
    rng = np.random.default_rng(seed)
    weight = np.arange(1, KEYS + 1) ** -skew
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


def _plan(setup: _Setup, hosts: int) -> QueryPlan:
    """The plan that shares the join most evenly over a number of hosts."""
    from nova_core.model.query_plan import QueryPlan
    from nova_core.strategies import place

    for margin in MARGINS:
        try:
            plan = place(_problem(setup, hosts, margin), "nova")
        except InfeasibleError:
            continue
        assert isinstance(plan, QueryPlan)
        if _needed(setup, plan).max() <= _room(setup, hosts, margin) * (1 + 1e-9):
            return plan
    raise NovaError(f"bench: no plan for {hosts} hosts: the keys are too different")


def _room(setup: _Setup, hosts: int, margin: float) -> float:
    """What a host may take, tuples/s."""
    return 2 * setup.rate / hosts * margin


def _needed(setup: _Setup, plan: QueryPlan) -> Floats:
    """(n,) what nodes need for their ranges of keys, tuples/s; frequent keys count as more."""
    join = plan.graph.joins[int(plan.graph.bodies[0])]
    i = plan.instances
    of_range = required(join, setup.rate, setup.rate, plan.partitions.rates(0, 0))
    ranges = zip(i.left_begin.tolist(), i.left_end.tolist(), strict=True)
    needed = np.array([of_range(begin, end) for begin, end in ranges])
    return np.bincount(i.node, needed).astype(np.float64)


def _problem(setup: _Setup, hosts: int, margin: float) -> Problem:
    from nova_core.model.files import read_problem
    from nova_core.model.syntax import dump

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


def _seconds(bed: Bed, plan: QueryPlan, path: Path, limited: bool) -> float:
    """How long a plan takes for all readings, with or without the hosts' CPU limits; s.

    Raises:
        NovaError: for a job that fails, and results that differ from the reference.
    """
    from nova_engines.query_flow import from_plan
    from nova_harness.engines.queries import await_end, query_engine, query_records
    from nova_workloads.queries.replayed import ReplayedReadings

    engine = query_engine(bed.engine)
    with tempfile.TemporaryDirectory(dir=path) as scratch:
        replay = ReplayedReadings(plan.problem, path, Path(scratch), SPEED)
        bed.limits.lift()
        job = engine.start_queries(plan, replay.from_time, "nova keys")
        job.await_running()
        if limited:
            bed.limits.impose()
        await_end(job)
        bed.limits.lift()
        fetch = partial(engine.query_results, from_plan(plan))
        records: Any = query_records(fetch, Path(scratch)).records
        (compared,) = replay.compare(records).values()
    if not compared.ok:
        raise NovaError(f"bench: other results than those of the reference: {compared}")
    return float(records["arrive_us"].max() - records["oldest_us"].min()) / 1e6


def summary_table(measurements: list[Measurement]) -> Table:
    """For people."""
    from nova_core import console

    return console.table(
        "A join cut by key",
        [">hosts", ">largest part", ">inputs sent", ">tuples/s", ">per host, to the first"],
        [
            (
                str(one.hosts),
                f"{one.largest:.1%}",
                f"{one.sent:.2f}",
                f"{one.rate:,.0f}",
                f"{one.ratio:.2f}",
            )
            for one in measurements
        ],
    )
