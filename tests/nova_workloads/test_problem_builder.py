"""Problems of prepared sensors, without Spark: the tables are written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from nova_core.cli import cli
from nova_core.errors import NovaError
from nova_core.io.files import read_problem
from nova_workloads.commands.build import build
from nova_workloads.problem_builder import Build, build_problem

TOPOLOGY = """id,capacity,x,y,lat,lon
cloud,unlimited,0,0,,
munich,100,3,1,48.14,11.58
berlin,50.5,1,4,52.52,13.40
paris,80,8,8,48.86,2.35
"""


def prepared(place: Path, sensors: list[tuple[Any, ...]], pairs: list[tuple[str, str]]) -> Path:
    """What `nova workload prepare` would write of sensors (stream, number, region, lat, lon)."""
    for stream in ("pressure", "humidity"):
        own = [row for row in sensors if row[0] == stream]
        table = pa.table(
            {
                "id": pa.array([f"{row[0]}-{row[1]}" for row in own], pa.string()),
                "sensor": pa.array([row[1] for row in own], pa.int64()),
                "region": pa.array([row[2] for row in own], pa.string()),
                "lat": pa.array([row[3] for row in own], pa.float64()),
                "lon": pa.array([row[4] for row in own], pa.float64()),
                "rate_median": pa.array([0.5] * len(own), pa.float64()),
                "rate_peak": pa.array([2.0] * len(own), pa.float64()),
                "tuple_bytes": pa.array([30.0] * len(own), pa.float64()),
            }
        )
        (place / "sensors" / f"stream={stream}").mkdir(parents=True)
        pq.write_table(table, place / "sensors" / f"stream={stream}" / "part-0.parquet")
    (place / "join_matrix").mkdir()
    (place / "join_matrix" / "_SUCCESS").touch()
    columns = {"left": [pair[0] for pair in pairs], "right": [pair[1] for pair in pairs]}
    matrix = pa.table({name: pa.array(ids, pa.string()) for name, ids in columns.items()})
    pq.write_table(matrix, place / "join_matrix" / "part-0.parquet")
    (place / "manifest.json").write_text("{}")
    return place


@pytest.fixture
def sensors(tmp_path: Path) -> Path:
    return prepared(
        tmp_path / "prepared",
        [
            ("pressure", 1, "a", 48.0, 11.0),
            ("pressure", 2, "b", 52.0, 13.0),
            ("humidity", 3, "a", 48.5, 2.0),
            ("humidity", 4, "b", 52.1, 13.1),
            ("humidity", 5, "c", 52.1, 13.1),
        ],
        [("pressure-1", "humidity-3"), ("pressure-2", "humidity-4")],
    )


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    path = tmp_path / "topology.csv"
    path.write_text(TOPOLOGY)
    return path


@pytest.mark.parametrize("name", ["problem.yaml", "problem.json", "problem"])
def test_sources_go_to_their_nearest_nodes(
    sensors: Path, topology: Path, tmp_path: Path, name: str
) -> None:
    summary = build_problem(sensors, topology, tmp_path / name, Build(sink="cloud"))
    problem = read_problem(tmp_path / name)
    assert problem.digest == summary["digest"]
    nodes = problem.nodes.ids[problem.sources.node].tolist()
    assert dict(zip(problem.sources.ids.tolist(), nodes, strict=True)) == {
        "pressure-1": "munich",
        "pressure-2": "berlin",
        "humidity-3": "paris",
        "humidity-4": "berlin",
    }
    assert summary["unmatched"] == 1
    assert problem.sources.rate.tolist() == [0.5] * 4
    assert problem.sources.key is not None
    assert set(problem.sources.key.tolist()) == {"a", "b"}
    assert problem.nodes.capacity.tolist() == [np.inf, 100, 50.5, 80]
    assert problem.nodes.worker.all()
    pairs = zip(problem.left_node, problem.right_node, strict=True)
    named = {tuple(problem.nodes.ids[list(pair)].tolist()) for pair in pairs}
    assert named == {("munich", "paris"), ("berlin", "berlin")}
    # 52 N 13 E to 52.52 N 13.4 E, as a great circle
    assert summary["nearest"]["km_max"] == pytest.approx(63.9, abs=0.1)
    assert not list(tmp_path.glob(f".{name}*"))


def test_rates_and_output(sensors: Path, topology: Path, tmp_path: Path) -> None:
    plan = Build(sink="cloud", rate="peak", rate_scale=3, selectivity=0.5)
    build_problem(sensors, topology, tmp_path / "p.yaml", plan)
    problem = read_problem(tmp_path / "p.yaml")
    assert problem.sources.rate.tolist() == [6.0] * 4
    assert problem.matrix.output_rate.tolist() == [3.0] * 2
    build_problem(sensors, topology, tmp_path / "p", Build(sink="cloud", fixed_rate=10))
    build_problem(sensors, topology, tmp_path / "p", Build(sink="cloud", fixed_rate=20))
    assert read_problem(tmp_path / "p").sources.rate.tolist() == [20.0] * 4


@pytest.mark.parametrize("by", ["source", "sensor"])
def test_given_nodes(sensors: Path, topology: Path, tmp_path: Path, by: str) -> None:
    name = {"source": "humidity-4", "sensor": "4"}[by]
    (tmp_path / "nodes.csv").write_text(f"{by},node\n{name},cloud\nhumidity-77,paris\n")
    summary = build_problem(
        sensors, topology, tmp_path / "p", Build(sink="cloud", nodes_of=tmp_path / "nodes.csv")
    )
    problem = read_problem(tmp_path / "p")
    at = dict(zip(problem.sources.ids.tolist(), problem.sources.node.tolist(), strict=True))
    assert problem.nodes.ids[at["humidity-4"]] == "cloud"
    assert summary["nearest"]["sources"] == 4  # those of the fifth sensor, without partner, too


def test_latencies_instead_of_coordinates(sensors: Path, tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(
        "id,capacity,lat,lon\nc,unlimited,0,0\nm,99,48,11\nb,99,52,13\np,99,48,2\n"
    )
    (tmp_path / "pairs.csv").write_text(
        "source,target,latency\nc,m,10\nc,b,20\nc,p,30\nm,b,15\nm,p,25\nb,p,22\nz,c,1\n"
    )
    build_problem(
        sensors,
        tmp_path / "nodes.csv",
        tmp_path / "p",
        Build(sink="c", latencies=tmp_path / "pairs.csv"),
    )
    with pytest.warns(UserWarning, match="no positions"):
        problem = read_problem(tmp_path / "p")
    assert problem.measured is not None
    assert sorted(problem.measured.latency.tolist()) == [10, 15, 20, 22, 25, 30]


def test_the_nodes_of_another_problem(sensors: Path, topology: Path, tmp_path: Path) -> None:
    build_problem(sensors, topology, tmp_path / "one", Build(sink="cloud"))
    numbers = "".join(f"{n},munich\n" for n in range(1, 6))
    (tmp_path / "nodes.csv").write_text(f"sensor,node\n{numbers}")
    plan = Build(sink="paris", nodes_of=tmp_path / "nodes.csv")
    build_problem(sensors, tmp_path / "one", tmp_path / "two", plan)
    one, two = read_problem(tmp_path / "one"), read_problem(tmp_path / "two")
    assert one.nodes.ids.tolist() == two.nodes.ids.tolist()
    assert two.nodes.ids[two.sources.node].tolist() == ["munich"] * 4


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ("", ["--sink", "moon"], "--sink 'moon': topology.csv has no such node"),
        (
            ("lat,lon", "memory,cost"),
            [],
            "source 'humidity-3' has no node: topology.csv has no lat",
        ),
        (("capacity", "tags"), [], "column 'capacity' is missing; there are id, tags, x"),
        (("x,y", "memory,cost"), [], "neither coordinates (x, y, …) nor latencies"),
        (("berlin", "paris"), [], "node 'paris' is there twice"),
        (("52.52", "152.52"), [], "row 3, column 'lat': [152.52, 13.4]: no degrees of a place"),
        (("unlimited", "0.1"), [], "topology.csv: nodes[0].capacity of 'cloud': the sink cannot"),
        ("", ["--nodes-of", "nodes.csv"], "nodes.csv: column 'node': 'rome': topology.csv has no"),
        ("", ["--rate-scale", "0"], "rate scale 0: expected more than 0"),
        ("", ["--latencies", "pairs.csv"], "pairs.csv: none of its pairs is of two nodes"),
        ("", ["--sensors", "."], ".: no manifest.json; give what `nova workload prepare` wrote"),
    ],
)
def test_bad_input(
    sensors: Path,
    topology: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: tuple[str, str] | str,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if change:
        topology.write_text(TOPOLOGY.replace(*change))
    Path("nodes.csv").write_text("source,node\npressure-1,rome\n")
    Path("pairs.csv").write_text("source,target,latency\na,b,1\n")
    fixed = {"--sensors": "prepared", "--topology": "topology.csv", "--sink": "cloud", "-o": "p"}
    fixed |= dict(zip(arguments[::2], arguments[1::2], strict=True))
    line = ["workload", "build", *(part for option in fixed.items() for part in option)]
    done = CliRunner().invoke(cli, line)
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert not list(tmp_path.glob(".p*"))
    assert not Path("p").exists()


def test_sensors_without_a_position_need_a_node(tmp_path: Path, topology: Path) -> None:
    place = prepared(
        tmp_path / "prepared",
        [("pressure", 1, "a", None, None), ("humidity", 2, "a", None, None)],
        [("pressure-1", "humidity-2")],
    )
    line = ["--sensors", str(place), "--topology", str(topology), "--sink", "cloud", "-o", "p"]
    done = CliRunner().invoke(build, line)
    assert "source 'humidity-2' has no position; give its node with --nodes-of" in str(
        done.exception
    )


def test_another_directory_is_not_replaced(sensors: Path, topology: Path, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "letter.txt").touch()
    line = ["--sensors", str(sensors), "--topology", str(topology), "--sink", "cloud"]
    done = CliRunner().invoke(cli, ["workload", "build", *line, "-o", str(tmp_path / "p")])
    assert "already there, and no problem; give another name" in done.stderr
    assert (tmp_path / "p" / "letter.txt").exists()


def test_a_hundred_thousand_sensors(tmp_path: Path, topology: Path) -> None:
    random = np.random.default_rng(0)
    count = 100_000
    lat, lon = random.uniform(42, 56, count), random.uniform(-1, 24, count)
    rows = [
        (("pressure", "humidity")[n % 2], n, f"r{n // 2 % 997}", lat[n], lon[n])
        for n in range(count)
    ]
    pairs = [(f"pressure-{n}", f"humidity-{n + 1}") for n in range(0, count, 2)]
    place = prepared(tmp_path / "prepared", rows, pairs)
    line = ["--sensors", str(place), "--topology", str(topology), "--sink", "cloud", "--json"]
    done = CliRunner().invoke(cli, ["workload", "build", *line, "-o", str(tmp_path / "p")])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["sources"] == {"pressure": count // 2, "humidity": count // 2}
    assert summary["pairs"] == count // 2
    assert summary["regions"] == 997


@pytest.mark.parametrize(
    ("table", "change", "complaint"),
    [
        ("sensors/stream=pressure", lambda t: None, "cannot be read"),
        ("sensors/stream=humidity", lambda t: t.drop_columns("lat"), "no column 'lat'"),
        (
            "sensors/stream=pressure",
            lambda t: t.set_column(0, "id", pa.array([None, "b"])),
            "'id': a row has no value",
        ),
        ("join_matrix", lambda t: t.drop_columns("left"), "no column 'left'"),
        (
            "join_matrix",
            lambda t: t.set_column(0, "left", pa.array(["x", "y"])),
            "left 'x' is no sensor",
        ),
    ],
)
def test_damaged_tables_are_refused(
    sensors: Path, topology: Path, tmp_path: Path, table: str, change: Any, complaint: str
) -> None:
    path = sensors / table / "part-0.parquet"
    changed = change(pq.ParquetFile(path).read())
    if changed is None:
        path.write_bytes(path.read_bytes()[:-20])
    else:
        pq.write_table(changed, path)
    with pytest.raises(NovaError, match=complaint):
        build_problem(sensors, topology, tmp_path / "problem.yaml", Build(sink="cloud"))
