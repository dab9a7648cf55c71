"""Folders of runs that never took place, in the format of real ones, for tests of reports.

Latencies are drawn from distributions; a strategy's `Behaviour` says which. Plans are real.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from nova_core.io.files import read_problem, write_plan
from nova_core.io.safe_files import write_text
from nova_core.strategies.base import create
from nova_harness.results.run_folder import CellFolder, write_json
from nova_harness.results.schema import (
    CellFacts,
    HostRow,
    HostUse,
    OperatorCounts,
    Percentiles,
    RunState,
    Summary,
    Verification,
    VerifiedRow,
)
from nova_workloads.comparison import Comparison
from nova_workloads.debs import Debs

START_US = 1_700_000_000_000_000
DRAIN_S = 1.0


@dataclass(frozen=True)
class Behaviour:
    """How a strategy behaves in a run that never took place.

    Attributes:
        base_ms: latency when hosts are at ease.
        spread: of a log-normal part.
        climb_ms: by how much latency climbs per second, for hosts that cannot keep up.
        load: of hosts, share of their limit.
        strategy: that places; the behaviour's name where empty.
        scheduled_by: what decides where joins run.
    """

    base_ms: float
    spread: float = 0.4
    climb_ms: float = 0.0
    load: float = 0.5
    strategy: str = ""
    scheduled_by: Literal["plan", "controller", "engine"] = "plan"


BEHAVIOURS: Mapping[str, Behaviour] = {
    "nova": Behaviour(40, 0.25),
    "sink": Behaviour(60, 0.5, climb_ms=700, load=0.99),
    "source": Behaviour(48, 0.6, climb_ms=90, load=0.9),
    "top-c": Behaviour(90, 0.5, climb_ms=300, load=0.8),
    "tree": Behaviour(180, 0.7, climb_ms=40, load=0.7),
}


def write_run(
    path: Path,
    behaviours: Mapping[str, Behaviour] = BEHAVIOURS,
    *,
    windows: Sequence[int] = (10, 100),
    rate: float = 20,
    stress: Sequence[bool] = (False, True),
    repetitions: int = 1,
    duration_s: float = 10,
    seed: int = 0,
    state: str = "finished",
) -> Path:
    """Write the folder of a run."""
    path.mkdir(parents=True)
    random = np.random.default_rng(seed)
    experiment = {
        "name": "Reports are tested",
        "engine": "flink",
        "strategies": [
            {"name": one.strategy, "label": name, "scheduled_by": one.scheduled_by}
            if one.strategy
            else name
            for name, one in behaviours.items()
        ],
        "windows_ms": list(windows),
        "rates": [rate],
        "stress": "both" if len(stress) == 2 else stress[0],
        "repetitions": repetitions,
        "duration_s": duration_s,
    }
    write_json(path / "experiment.yaml", experiment)
    environment = {"time": "2026-01-01T00:00:00Z", "cpu": "made up", "cores": 2, "kernel": "6"}
    write_json(path / "environment.json", environment)
    write_json(path / "run.json", RunState(state=state))
    write_text(path / "problem.yaml", Debs(rate=rate).text())
    problem = read_problem(path / "problem.yaml")
    names = problem.nodes.ids.tolist()
    hosts = [HostRow(name=n, role=n.split("-")[0], cpu=0.1, memory=2**29) for n in names]
    write_json(path / "hosts.json", hosts)
    for name, behaviour in behaviours.items():
        plan = create(behaviour.strategy or name).place(problem)
        for window in windows:
            for load in stress:
                for repetition in range(1, repetitions + 1):
                    kind = "stress" if load else "calm"
                    cell = CellFolder(
                        path / "cells" / f"{name}-w{window}ms-r{rate:g}-{kind}-{repetition}"
                    )
                    facts = CellFacts(
                        strategy=name,
                        scheduled_by=behaviour.scheduled_by,
                        engine="flink",
                        transport="direct",
                        window_ms=window,
                        rate=rate,
                        stress=load,
                        repetition=repetition,
                        seed=seed,
                        duration_s=duration_s,
                        warm_up_s=1.0,
                        drain_s=DRAIN_S,
                        sources=8,
                        expected_rate=4 * rate,
                        counted_s=duration_s + 0.5,
                    )
                    cell.begin(facts)
                    write_plan(plan, cell.path / "plan.json")
                    _write_cell(cell, facts, behaviour, names, len(plan.instances), random)
    return path


def _write_cell(
    cell: CellFolder,
    facts: CellFacts,
    behaviour: Behaviour,
    hosts: Sequence[str],
    instances: int,
    random: np.random.Generator,
) -> None:
    warm_up, duration, expected_rate = facts.warm_up_s, facts.duration_s, facts.expected_rate
    expected = int(expected_rate * (warm_up + duration))
    due_s = np.arange(expected) / expected_rate
    slow = 1.6 if facts.stress else 1.0
    drawn = behaviour.base_ms * slow * random.lognormal(0, behaviour.spread, expected)
    latency_ms = drawn + behaviour.climb_ms * slow * due_s + facts.window_ms / 2
    arrive_s = due_s + latency_ms / 1000
    came = arrive_s < warm_up + duration + DRAIN_S
    due = START_US + (due_s[came] * 1e6).astype(np.int64)
    arrive = START_US + (arrive_s[came] * 1e6).astype(np.int64)
    instance = np.arange(expected)[came] % instances
    columns = {
        "instance": instance.astype(np.int32),
        "pair": (instance % 4).astype(np.int32),
        "window_ms": due // 1000 // facts.window_ms * facts.window_ms,
        "left_sequence": np.arange(expected)[came],
        "right_sequence": np.arange(expected)[came],
        "left_emit_us": due + 900,
        "right_emit_us": due + 1200,
        "left_due_us": due,
        "right_due_us": due - 100,
        "arrive_us": arrive,
        "measured": due_s[came] >= warm_up,
    }
    cell.write_table("samples", pa.table(columns))
    measured_latency = (arrive - due)[columns["measured"]] / 1000
    inside = columns["measured"] & (arrive_s[came] < warm_up + duration)
    results_per_s = float(inside.sum() / duration)
    use = min(0.99, behaviour.load * (1.1 if facts.stress else 1.0)) * 0.1
    host_use = {
        name: HostUse(cpu_cores_mean=use * (0.2 + 0.8 * (number % 5 == 0)), limit_cores=0.1)
        for number, name in enumerate(hosts)
    }
    mean = float(measured_latency.mean()) if len(measured_latency) else None
    summary = Summary(
        latency_ms=Percentiles(mean=mean),
        throughput_results_per_s=results_per_s,
        throughput_tuples_per_s=2 * results_per_s,
        results=int(columns["measured"].sum()),
        hosts=host_use,
    )
    check = Comparison(
        expected=expected,
        delivered=int(came.sum()),
        lost=0,
        duplicated=0,
        wrong=0,
        cut_off=int((~came).sum()),
        finished=bool(came.all()),
    )
    joins = [f"join {i}" for i in range(instances)]
    rows = [VerifiedRow(operator=name, node="fog-1", actual="fog-1") for name in joins]
    operators = [
        OperatorCounts(
            name=name,
            node="fog-1",
            records_in=2 * expected,
            records_out=expected,
            busy_ms=1000 * duration * behaviour.load,
            back_pressured_ms=10.0 * i,
        )
        for i, name in enumerate(joins)
    ]
    cell.write("summary", summary)
    cell.write("check", check)
    cell.write("verification", Verification(ok=True, rows=rows))
    cell.write("operators", operators)
    cell.finish()


def change(path: Path, **fields: Any) -> None:
    """Change fields of a JSON document."""
    write_json(path, json.loads(path.read_text()) | fields)
