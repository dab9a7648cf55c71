"""Directories with nodes.csv and joins.csv, and the examples in the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nova_core.errors import ProblemError
from nova_core.io import read_problem
from nova_core.io.examples import example_names, load_example

NODES = """node,x,y,role,capacity_0,capacity_1
0,1.5,2,sink,100,90
1,0,0,source,5,6
2,3,4,source,7,8
3,1,1,worker,9,10
"""
JOINS = "left,right,left_rate,right_rate,output_rate\n1,2,10,20,3\n2,1,5,15,2\n"


def write(directory: Path, nodes: str = NODES, joins: str = JOINS) -> Path:
    (directory / "nodes.csv").write_text(nodes)
    (directory / "joins.csv").write_text(joins)
    return directory


def test_columns(tmp_path: Path) -> None:
    p = read_problem(write(tmp_path), "capacity_1")
    assert p.name == f"{tmp_path.name}/capacity_1"
    assert p.nodes.capacity.tolist() == [90, 6, 8, 10]
    assert p.nodes.worker.tolist() == [False, True, True, True]
    # Both nodes produce for both sides, so their sources are told apart.
    assert p.sources.ids.tolist() == ["1.left", "2.right", "2.left", "1.right"]
    assert p.sources.rate.tolist() == [10, 20, 5, 15]
    assert p.matrix.output_rate.tolist() == [3, 2]
    assert p.pair_name(1) == "join/2.left*1.right"
    assert np.isinf(read_problem(tmp_path, "unlimited").nodes.capacity).all()


def test_source_in_several_joins_is_one(tmp_path: Path) -> None:
    joins = "left,right,left_rate,right_rate,output_rate\n1,2,10,20,3\n1,3,10,15,2\n"
    p = read_problem(write(tmp_path, joins=joins), "capacity_0")
    assert p.sources.ids.tolist() == ["1", "2", "3"]
    assert p.matrix.left.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("nodes", "joins", "capacity", "expected"),
    [
        (NODES, JOINS, None, "nodes.csv: choose a capacity: capacity_0, capacity_1, unlimited"),
        (NODES, JOINS, "capacity_7", "unknown capacity column 'capacity_7'; did you mean"),
        (NODES.replace("worker", "cloud"), JOINS, "capacity_0", "row 4, column 'role': 'cloud' is"),
        (NODES.replace("sink", "source"), JOINS, "capacity_0", "'role': 0 nodes are sinks; one is"),
        (NODES.replace("node,x,y", "node,a,b"), JOINS, "capacity_0", "columns x and y, the coord"),
        (NODES, JOINS.replace("1,2,10", "9,2,10"), "capacity_0", "'left': unknown node '9'"),
        (NODES, JOINS.replace("1,2,10", "1,2,-1"), "capacity_0", "sources[0].rate of '1.left': -1"),
        (NODES, JOINS + "1,2,11,20,3\n", "capacity_0", "row 3, column 'left_rate': 11, but row 1"),
        (NODES, JOINS + "1,2,10,20,3\n", "capacity_0", "is already matrix[0]; each pair may"),
        (
            NODES,
            JOINS.replace("3\n", "300\n"),
            "capacity_0",
            "302 tuples/s arrive, 100 fit, 202 to",
        ),
        (NODES.replace("0,1.5", "1,1.5"), JOINS, "capacity_0", "'1' is already used by nodes[0]"),
        (NODES, "left,right\n1,2\n", "capacity_0", "joins.csv: column 'left_rate' is missing"),
        (NODES, "", "capacity_0", "joins.csv: empty; a table is expected"),
    ],
)
def test_bad_directories(
    tmp_path: Path, nodes: str, joins: str, capacity: str | None, expected: str
) -> None:
    with pytest.raises(ProblemError) as caught:
        read_problem(write(tmp_path, nodes, joins), capacity)
    assert expected in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "nodes", "joins"), [("sim1000", 1001, 300), ("atlas", 392, 117), ("fit", 433, 129)]
)
def test_shared_instances(shared_data: Path, name: str, nodes: int, joins: int) -> None:
    for capacity in [f"capacity_{column}" for column in range(6)] + ["unlimited"]:
        p = read_problem(shared_data / "instances" / name, capacity)
        assert (len(p.nodes), len(p.matrix), len(p.sources)) == (nodes, joins, 2 * joins)
        assert p.nodes.worker.sum() == nodes - 1
        assert not p.nodes.worker[0]
        assert (p.sink_node == 0).all()
        assert p.sources.ids.tolist() == p.nodes.ids[p.sources.node].tolist()


@pytest.mark.data
def test_shared_latencies(shared_data: Path) -> None:
    from nova_core.io.latencies import mended, read_latency

    file = shared_data / "latency" / "ripe-atlas-418.csv.gz"
    names, latency = read_latency(file)
    assert (len(names), latency.shape) == (419, (419, 419))
    assert np.array_equal(mended(names, latency, np.array(names[:50]), "x"), latency[:50, :50])
    names, latency = read_latency(shared_data / "latency" / "fit-iot-lab.csv.gz")
    assert (len(names), latency.shape) == (283, (283, 283))
    assert np.isnan(latency).any()


def test_examples_are_read() -> None:
    for name in example_names():
        assert len(load_example(name).matrix) > 0
    with pytest.raises(ProblemError, match="example: unknown 'nothing'"):
        load_example("nothing")
