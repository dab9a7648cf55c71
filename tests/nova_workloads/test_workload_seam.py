"""Workloads as experiments see them: one from another package, and whole queries over readings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_packages import installed
from result_rows import result_rows

from nova_core.errors import NovaError
from nova_core.model.problem import Problem
from nova_core.strategies.base import place
from nova_engines.flow_of_plan import flow_of
from nova_engines.results import PAIR, QueryRows, dtype
from nova_engines.sources import READINGS
from nova_harness.experiment.problem import problem_document, problem_of
from nova_testbed.inventory import Inventory, read_inventory
from nova_workloads.base import Traffic, Workload, names, workload
from nova_workloads.queries.readings import connection, load
from nova_workloads.queries.reference import expected

START_MS = 1_700_000_000_000
QUERIES = """
streams:
  - {id: heat, columns: {place: text, value: float}, key: place}
  - {id: strain, columns: {place: text, value: float, n: int}, key: place}
sources:
  - {id: heat-north, stream: heat, key: north}
  - {id: heat-south, stream: heat, key: south, node: source3}
  - {id: strain-north, stream: strain, key: north}
  - {id: strain-south, stream: strain, key: south}
queries:
  - id: wear
    sql: >-
      SELECT h.place AS place, count(*) AS n, max(s.value) AS most
      FROM heat h JOIN strain s ON h.place = s.place
      WHERE h.value > 10 GROUP BY h.place WINDOW TUMBLE(1 s)
"""


@pytest.fixture(scope="module")
def inventory() -> Inventory:
    return read_inventory("virtual-14")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Queries, and readings of 3 s: strain twice as often as heat."""
    random = np.random.default_rng(0)
    (tmp_path / "queries.yaml").write_text(QUERIES)
    (tmp_path / "readings").mkdir()
    for stream, rate in (("heat", 10), ("strain", 20)):
        for key in ("north", "south"):
            n = ",n" if stream == "strain" else ""
            lines = [f"time,place,value{n}"]
            for k in range(3 * rate):
                time = START_MS + k * 1000 // rate
                lines.append(f"{time},{key},{random.integers(0, 400) / 8}{n and ',7'}")
            (tmp_path / "readings" / f"{stream}-{key}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def on(inventory: Inventory, made: Workload, traffic: Traffic, directory: Path) -> Problem:
    capacity = {host.name: 1000.0 for host in inventory.hosts}
    document = problem_document(inventory, capacity, made, traffic)
    return problem_of(document, directory / "problem.yaml")


def test_a_workload_from_another_package(inventory: Inventory, tmp_path: Path) -> None:
    with installed(tmp_path / "installed", "tiny_workload"):
        assert names() == ["debs", "machines", "queries"]
        made = workload({"kind": "machines", "machines": 3, "hot": 90})
        with pytest.raises(NovaError, match="machines: 0 is not accepted"):
            workload({"kind": "machines", "machines": 0})
    traffic = made.traffic(100, 50.0)
    problem = on(inventory, made, traffic, tmp_path)
    assert len(problem.sources) == 6 and len(problem.matrix) == 3
    plan = place(problem, "nova")
    streams: Any = made.streams(problem, traffic, 0)
    assert abs(streams.streams[1].value.mean() - 90) < 1
    sources = streams.sources(START_MS, 2.0)
    assert sources.count == 100
    assert streams.expected_rate == 3 * 50
    reference = streams.reference(sources)
    assert reference.total == 2 * streams.expected_rate
    assert streams.compare(plan, sources, empty_records(), finished=True).lost == reference.total


def empty_records() -> Any:
    return np.empty(0, dtype(PAIR))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"kind": "rain"}, "workload.kind: unknown 'rain'; installed are debs, queries"),
        ({"regions": 0}, "workload: regions: 0 is not accepted"),
        ({"region": 1}, "did you mean 'regions'"),
        ({"kind": "queries", "file": "q.yaml"}, "readings"),
    ],
)
def test_mistakes(content: dict[str, Any], message: str) -> None:
    with pytest.raises(NovaError, match=message):
        workload(content)


def test_queries_are_placed_on_an_inventory(
    inventory: Inventory, folder: Path, tmp_path: Path
) -> None:
    made = workload({"kind": "queries", "file": "queries.yaml", "readings": "readings"}).at(folder)
    assert (made.windows_ms(), made.rates()) == ([1000], [pytest.approx(20, rel=0.05)])
    made.check([1000])
    with pytest.raises(NovaError, match="queries have windows of their own, up to 1000 ms"):
        made.check([100])
    problem = on(inventory, made, made.traffic(1000, made.rates()[0]), tmp_path)
    node = {str(s): str(problem.nodes.ids[n]) for s, n in zip(
        problem.sources.ids, problem.sources.node, strict=True
    )}  # fmt: skip
    assert node["heat-south"] == "source3" and node["heat-north"] == "source1"
    assert problem.sources.rate.tolist() == pytest.approx([10, 10, 20, 20], rel=0.05)
    assert [query.sink for query in problem.queries] == ["sink"]
    for strategy in ("nova", "sink", "source"):
        assert flow_of(place(problem, strategy)).sinks


def test_readings_are_repeated_and_results_compared(
    inventory: Inventory, folder: Path, tmp_path: Path
) -> None:
    made = workload({"kind": "queries", "file": "queries.yaml", "readings": "readings"}).at(folder)
    traffic = made.traffic(1000, 2 * made.rates()[0])
    problem = on(inventory, made, traffic, tmp_path)
    streams: Any = made.streams(problem, traffic, 0)
    assert streams.speed == pytest.approx(2)
    sources = streams.sources(START_MS + 5000, 4.0)
    assert sources.kinds == {READINGS} and sources.first_ms == START_MS
    # 8 s of event time are replayed of readings of 3 s.
    assert streams.expected_rate == pytest.approx(2 * 2)
    plan = place(problem, "nova")
    database = connection()
    load(database, problem, folder / "readings")
    once = expected(database, problem, problem.queries[0])
    rows = [
        (time + 3000 * again, *rest)
        for again in range(3)
        for time, *rest in once
        if time + 3000 * again < START_MS + 8000
    ]

    def came(rows: list[Any]) -> QueryRows:
        event = [START_MS + 1000 * k for k, _ in enumerate(rows)]
        # Emitted a ms after they were due, at twice their own speed; two ms later they arrive.
        emit = [1000 * (START_MS + 5000) + 500_000 * k + 1000 for k, _ in enumerate(rows)]
        moments = zip(event, emit, strict=True)
        spans = [(time - 100, at - 50_000, time, at) for time, at in moments]
        late = [at + 2000 for at in emit]
        return QueryRows({"wear": result_rows(rows, spans, late)})

    found = streams.compare(plan, sources, came(rows), finished=True)
    assert found.ok and found.expected == len(rows) == 16, found
    found = streams.compare(plan, sources, came([*rows[1:], rows[3]]), finished=False)
    assert (found.lost, found.duplicated, found.cut_off) == (1, 1, 0)
    found = streams.compare(plan, sources, came(rows[:-4]), finished=False)
    assert (found.lost, found.cut_off) == (0, 4)
    table = streams.samples(plan, sources, came(rows), (0, 2**60))
    assert table.column("measured").to_pylist() == [True] * 16
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    due = columns["right_due_us"]
    for what, us in (("right_emit", 1000), ("arrive", 3000), ("left_due", -50_000)):
        assert np.abs(columns[f"{what}_us"] - due - us).max() < 10
