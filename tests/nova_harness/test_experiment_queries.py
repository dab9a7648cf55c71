"""A cell of whole queries from problem to check, on an engine that delivers what DuckDB does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from query_experiment import WORKLOAD, write_queries
from result_rows import result_rows

from nova_core.errors import NovaError
from nova_engines.flow import Flow
from nova_engines.results import QueryRows, ResultRecords, together
from nova_engines.sources import Sources
from nova_engines.verification import RUNNING, Verification, compare
from nova_harness.control.disturbances import Disturbance
from nova_harness.experiment.cell_run import run_cell
from nova_harness.experiment.cells import cells_of
from nova_harness.experiment.document import (
    EnginePart,
    Experiment,
    StrategyPart,
    check_experiment,
)
from nova_harness.experiment.engine_run import Bed
from nova_harness.experiment.problem import problem_document, problem_of
from nova_harness.results.run_folder import CellFolder
from nova_testbed.inventory import read_inventory
from nova_workloads.queries.readings import connection

DELAY_US = 5000


class Exact:
    """A job whose sinks have what DuckDB makes of its readings, some ms later."""

    name = "exact"

    def __init__(self, flow: Flow, sources: Sources, streams: Any) -> None:
        self.flow, self.sources, self.streams = flow, sources, streams
        self.document = flow.to_json()

    def await_running(self) -> None:
        pass

    def verify(self) -> Verification:
        nodes = {one.name: one.node for one in self.flow.operators}
        return compare(nodes, [(name, node, RUNNING) for name, node in nodes.items()])

    def look(self) -> bool:
        return time.time() > self.sources.start_ms / 1000 + 2.2

    def counters(self) -> None:
        pass

    def operators(self, before: None, after: None) -> list[Any]:
        return []

    def end(self) -> None:
        pass

    def results(self, scratch: Path) -> ResultRecords:
        ((replayed, _),) = self.streams._replays.values()
        r, of_query = self.sources, {}
        for query in self.streams.problem.queries:
            rows = replayed.expected(query)
            emit = [round(1000 * r.start_ms + r.due_us(t)) for t, *_ in rows]
            arrive = [one + DELAY_US for one in emit]
            spans = [(t, at, t, at) for (t, *_), at in zip(rows, emit, strict=True)]
            of_query[query.id] = result_rows(rows, spans, arrive)
        return together(QueryRows(of_query), list(of_query.values()))


def test_a_cell_of_whole_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_queries(tmp_path)
    inventory = read_inventory("virtual-8")
    asked = Experiment(
        name="queries", strategies=["nova"], workload=WORKLOAD, duration_s=1, warm_up_s=1,
        drain_s=1,
    ).filled(tmp_path)  # fmt: skip
    check_experiment(asked, "x.yaml")
    (cell,) = cells_of(asked)
    workload = asked.workload_in(tmp_path)
    traffic = workload.traffic(cell.window_ms, cell.rate)
    capacity = {host.name: 500.0 for host in inventory.hosts}
    document = problem_document(inventory, capacity, workload, traffic)
    problem = problem_of(document, tmp_path / "problem.yaml")
    streams = workload.streams(problem, traffic, 0)

    def start(flow: Flow, sources: Callable[[int], Sources], name: str) -> Exact:
        return Exact(flow, sources(round(1000 * time.time()) + 500), streams)

    engine: Any = SimpleNamespace(
        name="exact",
        engine_bytes=1,
        start=start,
        deployment=SimpleNamespace(
            hosts=SimpleNamespace(inventory=inventory), prepare_results=lambda: None
        ),
    )
    limits: Any = SimpleNamespace(lift=lambda *_: None, impose=lambda: None)
    recorder = SimpleNamespace(series={}, start=lambda: None, stop=lambda: None)
    monkeypatch.setattr(Bed, "recorder", lambda *_, **__: recorder)
    folder = CellFolder(tmp_path / "cell")
    run_cell(Bed(engine, limits, asked.settings), asked, cell, problem, streams, folder, print)
    assert folder.check.ok and folder.check.finished
    assert folder.check.expected == folder.check.delivered > 20
    assert folder.verification.ok
    assert folder.summary.latency_ms.p50 == DELAY_US / 1000
    assert folder.summary.source_lateness_ms.max <= 0.001
    assert folder.facts.sources == 3 and folder.facts.expected_rate == pytest.approx(24, abs=1)


def test_every_strategy_may_place_queries() -> None:
    asked = Experiment(name="q", strategies=["tree", "cl-sf", "ilp"], workload=WORKLOAD)
    check_experiment(asked, "x.yaml")


def test_what_queries_need_is_looked_up_with_the_engine() -> None:
    alone = StrategyPart(name="nova", scheduled_by="engine")
    asked = Experiment(name="q", strategies=[alone], workload=WORKLOAD, transport="kafka")
    check_experiment(asked, "x.yaml")
    assert asked.source == "kafka"
    assert replace(asked, transport="direct").source == "readings"
    for change, message in (
        (
            {"engine": "storm"},
            "storm: runs no sources of queries of kind 'kafka'; flink, spark can",
        ),
        ({"engine": "spark"}, "engine: only with engine flink"),
        ({"engine": "storm", "transport": "direct"}, "engine: only with engine flink"),
        ({"settings": EnginePart(checkpoint_s=1)}, "settings.checkpoint_s: only for joins"),
        (
            {"settings": EnginePart(miss_after_s=5)},
            r"miss_after_s: only with .* transport direct",
        ),
        (
            {"strategies": [StrategyPart(name="nova", scheduled_by="controller")]},
            r"controller: only with .* transport direct",
        ),
    ):
        with pytest.raises(NovaError, match=message):
            check_experiment(replace(asked, **change), "x.yaml")


def test_without_duckdb_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(NovaError, match=r"readings of queries: .* 'nova-placement\[queries\]'"):
        connection()


def test_what_disturbs_whole_queries() -> None:
    """Under the controller, what hosts go through; but readings come when they come."""
    alone = StrategyPart(name="nova", scheduled_by="controller")
    asked = Experiment(name="q", strategies=[alone], workload=WORKLOAD)
    kill = Disturbance(1, "kill", "worker1", 2)
    for engine in ("flink", "storm"):
        controlled = msgspec.structs.replace(asked, engine=engine, disturbances=[kill])
        check_experiment(controlled, "x.yaml")
    rate = Disturbance(1, "rate", "worker1", 2, times=2)
    settings = msgspec.structs.replace(asked.settings, checkpoint_s=2)
    for changes, why in (
        ({"disturbances": [rate]}, "readings of queries have times of their own"),
        ({"disturbances": [kill], "strategies": ["nova"]}, "go on under the controller only"),
        ({"settings": settings}, "checkpoint_s: only for joins"),
    ):
        with pytest.raises(NovaError, match=why):
            check_experiment(msgspec.structs.replace(asked, **changes), "x.yaml")
