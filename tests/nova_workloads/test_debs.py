from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_core.cli import cli
from nova_core.errors import ProblemError
from nova_core.io.files import read_problem
from nova_core.model.problem import Problem
from nova_core.strategies.base import place
from nova_workloads.debs import Debs
from nova_workloads.reference import Reference
from nova_workloads.schedule import Schedule, all_tuples
from nova_workloads.streams import synthetic


def problem_of(workload: Debs, directory: Path) -> Problem:
    path = directory / "problem.yaml"
    path.write_text(workload.text())
    return read_problem(path)


def test_shipped_document_is_the_default(tmp_path: Path) -> None:
    shipped = tmp_path / "shipped.yaml"
    shipped.write_bytes((files("nova_workloads") / "debs.yaml").read_bytes())
    assert read_problem(shipped).same_as(problem_of(Debs(), tmp_path))


def test_is_the_papers_workload(tmp_path: Path) -> None:
    problem = problem_of(Debs(), tmp_path)
    assert len(problem.nodes) == 14
    assert problem.sources.rate.tolist() == [1000.0] * 8
    assert len(problem.matrix) == 4
    regions = problem.sources.key
    assert regions is not None and len(set(regions.tolist())) == 4
    assert all(
        regions[m] == regions[n]
        for m, n in zip(problem.matrix.left, problem.matrix.right, strict=True)
    )
    # One tuple per 1 ms window and side, so one result per window and region.
    assert problem.matrix.output_rate.tolist() == [1000.0] * 4
    assert problem.required_capacity.tolist() == [2000.0] * 4
    # Neither the sink nor any sensor can hold a join; the whole topology can hold all.
    hosts = problem.nodes.capacity[problem.nodes.worker]
    assert hosts.sum() > 8000 > problem.nodes.capacity[0]


@settings(max_examples=30, deadline=None)
@given(
    window=st.sampled_from([1, 2, 5, 10, 100, 1000]),
    rate=st.sampled_from([100.0, 500.0, 1000.0, 2000.0]),
    regions=st.integers(1, 6),
    extra=st.integers(0, 5),
    keys=st.sampled_from([1, 2, 10]),
)
def test_every_variant_is_valid_and_its_output_is_what_the_join_delivers(
    tmp_path_factory: pytest.TempPathFactory,
    window: int,
    rate: float,
    regions: int,
    extra: int,
    keys: int,
) -> None:
    nodes = 1 + 3 * regions + extra
    workload = Debs(window_ms=window, rate=rate, regions=regions, nodes=nodes, keys=keys)
    problem = problem_of(workload, tmp_path_factory.mktemp("debs"))
    assert len(problem.nodes) == nodes
    streams = synthetic(2 * regions, regions=regions)
    tuples = all_tuples(Schedule(rate=rate, duration=1.0), streams)
    join = Reference(streams, tuples, window, keys=keys)
    per_window = rate * window / 1000
    if per_window < 1 or per_window % keys == 0:
        assert join.total == pytest.approx(workload.output_rate)
        assert join.total == pytest.approx(problem.matrix.output_rate.sum())
    named = dict(zip(problem.sources.ids.tolist(), problem.sources.stream.tolist(), strict=True))
    assert named == {s.sensor: s.stream for s in streams}


@pytest.mark.parametrize("keys", [1, 4])
def test_sql_gives_the_reference_results(keys: int) -> None:
    streams = synthetic(8)
    workload = Debs(window_ms=10, keys=keys)
    start = 1_735_689_600_003
    tuples = all_tuples(Schedule(rate=1000, duration=0.5, start_ms=start), streams)
    connection = duckdb.connect()
    for name in ("pressure", "humidity"):
        rows = np.flatnonzero([streams[s].stream == name for s in tuples.stream])
        table = pa.table(
            {
                "sensor": [streams[s].sensor for s in tuples.stream[rows]],
                "region": [streams[s].region for s in tuples.stream[rows]],
                "sequence": tuples.sequence[rows],
                "time_ms": tuples.time_ms[rows],
                "value": tuples.value[rows],
            }
        )
        connection.register(name, table)
    got = connection.execute(workload.sql()).fetchall()
    columns = [column[0] for column in connection.description or []]
    assert columns[:4] == ["window_ms", "region", "left_sensor", "left_sequence"]
    join = Reference(streams, tuples, 10, keys=keys)
    expected = [
        (int(w), streams[tuples.stream[a]].sensor, int(tuples.sequence[a]),
         streams[tuples.stream[b]].sensor, int(tuples.sequence[b]))
        for left, right in join.batches()
        for w, a, b in zip(join.window_of(left), left, right, strict=True)
    ]  # fmt: skip
    assert sorted((r[0], r[2], r[3], r[5], r[6]) for r in got) == sorted(expected)
    assert len(got) == join.total > 1000


def test_nova_places_it_without_overload(tmp_path: Path) -> None:
    problem = problem_of(Debs(), tmp_path)
    plan = place(problem)
    assert (plan.load <= problem.nodes.capacity).all()
    assert len(plan.instances) >= 4


def test_command_writes_problem_and_query(tmp_path: Path) -> None:
    path, sql = tmp_path / "debs.json", tmp_path / "debs.sql"
    arguments = ["--window", "100", "--nodes", "20", "--keys", "100", "--sql", str(sql)]
    done = CliRunner().invoke(cli, ["workload", "debs", "-o", str(path), *arguments, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["output_rate"] == 4000
    assert len(read_problem(path).nodes) == 20
    assert "% 100 = r.sequence % 100" in sql.read_text()
    done = CliRunner().invoke(cli, ["workload", "debs"])
    assert done.stdout == Debs().text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--window", "0"], "0 is not in the range"),
        (["--window", "2000"], "2000 is not in the range"),
        (["--nodes", "12"], "4 regions need 13 or more"),
        (["-o", "problem.txt"], "expected a .yaml or .json document"),
    ],
)
def test_bad_arguments(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, ["workload", "debs", *arguments])
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize("bad", [{"window_ms": 0}, {"rate": float("nan")}, {"keys": 0}])
def test_bad_parameters(bad: dict[str, float]) -> None:
    with pytest.raises(ProblemError, match=r"expected"):
        Debs(**bad)  # type: ignore[arg-type]
