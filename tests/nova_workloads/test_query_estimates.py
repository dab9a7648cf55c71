"""What readings say of a problem's queries: selectivities, and keys of joins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nova_core.io.files import read_problem
from nova_core.model.queries import Join
from nova_workloads.queries.estimate import estimated
from nova_workloads.queries.readings import load, table_of

PROBLEM = """
nova: 1
name: items
nodes:
  - {id: a, position: [0, 0], capacity: 9}
  - {id: b, position: [1, 0], capacity: 9}
sources:
  - {id: orders, node: a, stream: orders, rate: 1}
  - {id: parts, node: b, stream: parts, rate: 1}
streams:
  - {id: orders, columns: {item: int, amount: float}}
  - {id: parts, columns: {item: int, weight: float}}
queries:
  - id: pick
    sink: a
    operators:
      - id: match
        kind: join
        inputs: [orders, parts]
        on: orders.item = parts.item and orders.amount < parts.weight
        window: 1
"""


def test_keys_of_a_join_are_counted_and_the_frequent_ones_named(tmp_path: Path) -> None:
    database = pytest.importorskip("duckdb").connect()
    rng = np.random.default_rng(1)
    for name, column in (("orders", "amount"), ("parts", "weight")):
        # Every fourth tuple is of item 7; the others are of one each.
        item = np.where(np.arange(2000) % 4 == 0, 7, 100 + np.arange(2000))
        rows = [f"{1000 + 5 * i},{n},{rng.integers(0, 9)}" for i, n in enumerate(item.tolist())]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"time,item,{column}", *rows]))
    (tmp_path / "problem.yaml").write_text(PROBLEM)
    problem = read_problem(tmp_path / "problem.yaml")
    load(database, problem, tmp_path)
    found, (told,) = estimated(problem, database)
    assert (told.keys, told.hot) == (1501, 1)
    (join,) = found.queries[0].operators
    assert isinstance(join, Join)
    assert join.keys == 1501
    assert [(one.values, one.left, one.right) for one in join.hot] == [([7], 0.25, 0.25)]
    assert found.sources.rate.tolist() == pytest.approx([200, 200], rel=0.01)


def test_readings_of_prepared_archives(tmp_path: Path) -> None:
    database = pytest.importorskip("duckdb").connect()
    table = pa.table(
        {
            "sensor": [29791, 29791, 64394, 64394],
            "region": ["x", "x", "x", "x"],
            "timestamp": pa.array([2000, 1000, 1500, 2500], pa.timestamp("ms", "UTC")),
            "value": [3.0, 1.0, 20.0, 10.0],
            "stream": ["pressure", "pressure", "pressure", "pressure"],
            "day": ["1970-01-01", "1970-01-01", "1970-01-01", "1970-01-02"],
        }
    )
    pq.write_to_dataset(table, tmp_path / "readings", partition_cols=["day", "stream"])
    problem = """
nova: 1
name: archive
nodes:
  - {id: a, position: [0, 0], capacity: 9}
  - {id: b, position: [1, 0], capacity: 9}
sources:
  - {id: 29791-pressure, node: a, stream: pressure, rate: 1, key: x}
  - {id: 64394-pressure, node: a, stream: pressure, rate: 1, key: x}
streams: [{id: pressure, columns: {sensor: int, region: text, value: float}, key: region}]
queries:
  - id: q
    sink: a
    operators: [{id: high, kind: filter, input: pressure, where: value > 2}]
"""
    (tmp_path / "problem.yaml").write_text(problem)
    load(database, read_problem(tmp_path / "problem.yaml"), tmp_path)
    rows = database.execute(f"SELECT * FROM {table_of('pressure')} ORDER BY t").fetchall()
    assert rows == [
        (1000, "29791-pressure", 29791, "x", 1.0),
        (1500, "64394-pressure", 64394, "x", 20.0),
        (2000, "29791-pressure", 29791, "x", 3.0),
        (2500, "64394-pressure", 64394, "x", 10.0),
    ]
