"""Placement at scale on Spark: plans that hold, ends by force, other clusters, broken plans."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
import yaml
from ports import free_port
from scale_runs import checked, edited, placed, quiet
from small_spark import OPTIONS

from nova_core.costspace.embedding import embed as solve
from nova_core.errors import InfeasibleError, NovaError, PlanError, ProblemError
from nova_core.io.files import read_plan, read_problem, write_problem
from nova_core.model.problem import PairLatencies
from nova_core.model.verify import verify
from nova_core.strategies.nova_parameters import NovaParameters
from nova_workloads.scale import tables
from nova_workloads.scale.embed import embed, open_measured
from nova_workloads.scale.generate import Shape, generate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.e2e

NOVA = str(Path(sys.executable).parent / "nova")
QUICK = NovaParameters(refine=False)
STAGES = ("nodes", "sinks", "sources", "pairs", "digest")
STAGES += ("cut", "round-1", "last", "tables", "check")


def rows(plan_directory: Path, table: str) -> pa.Table:
    return pq.read_table(plan_directory / table)


# --- plans ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["network-usage", "source-latency"])
def test_other_objectives_and_refined_cells(
    spark: SparkSession, small: Path, tmp_path: Path, objective: str
) -> None:
    """Some joins are larger than any node."""
    report = placed(spark, small, tmp_path / "plan", objective=objective, refine=True)
    read = read_plan(tmp_path / "plan", read_problem(small))
    assert verify(read).ok and report["report"]["ok"]
    nodes = read.problem.nodes
    large = read.problem.required_capacity > nodes.capacity[nodes.worker].max()
    assert report["rounds"]["cut"]["instances"] >= 2 * large.sum() > 0
    assert read.objective == objective


def test_heights_memory_tags_and_rare_requirements(spark: SparkSession, tmp_path: Path) -> None:
    """A tenth of the joins need what three nodes have."""
    generate(spark, Shape(1500, sinks=10), tmp_path / "plain")

    def richer(nodes: pa.Table) -> pa.Table:
        count = len(nodes)
        nodes = nodes.append_column("height", pa.array([k % 7 / 2 for k in range(count)]))
        nodes = nodes.append_column("memory", pa.array(range(count), pa.uint32()))
        tags = pa.array(["gpu,arm" if k in (700, 900, 1100) else "arm" for k in range(count)])
        known = nodes["capacity"].to_pylist()
        rich = [1e6 if k in (700, 900, 1100) else known[k] for k in range(count)]
        at = nodes.column_names.index("capacity")
        nodes = nodes.append_column("tags", tags.dictionary_encode())
        return nodes.set_column(at, "capacity", pa.array(rich))

    problem = edited(tmp_path / "plain", tmp_path / "problem", "nodes", richer)
    header = yaml.safe_load((problem / "problem.yaml").read_text())
    header["query"]["operators"][3]["requires"] = {"tags": ["gpu"], "memory": 500.0}
    (problem / "problem.yaml").unlink()
    (problem / "problem.yaml").write_text(json.dumps(header))
    report = placed(spark, problem, tmp_path / "plan")
    assert report["rounds"]["required"]["instances"] == 45
    read = read_plan(tmp_path / "plan", read_problem(problem))
    assert verify(read).ok


def test_overload_is_accepted_or_refused_with_what_is_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    generate(spark, Shape(600, rate_max=250), tmp_path / "problem")
    with pytest.raises(InfeasibleError, match=r"tuples/s are missing; add capacity") as raised:
        placed(spark, tmp_path / "problem", tmp_path / "plan")
    problem = read_problem(tmp_path / "problem")
    needed = problem.required_capacity.sum()
    assert raised.value.missing == needed - problem.nodes.capacity[problem.nodes.worker].sum()
    report = placed(spark, tmp_path / "problem", tmp_path / "spread", on_full="spread")
    assert not report["report"]["ok"] and report["report"]["honest"]
    found = verify(read_plan(tmp_path / "spread", problem))
    assert found.honest and found.counts["capacity"] > 0
    broken = report["report"]["constraints"]["capacity"]["violations"]
    assert broken == found.counts["capacity"]


# --- what is broken or refused --------------------------------------------------------------------


def test_a_plan_of_another_problem_is_refused(
    spark: SparkSession, small_plan: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    generate(spark, Shape(100), tmp_path / "other")
    with pytest.raises(PlanError, match="made for 'synthetic-3000"):
        checked(spark, tmp_path / "other", small_plan[0])


@pytest.mark.parametrize(
    ("table", "column", "row", "value", "message"),
    [
        ("nodes", "id", 7, "n8", "'n8' is there 2 times"),
        ("nodes", "x", 7, None, r"nodes\[7\].position: .* is not numbers of ms from"),
        ("nodes", "capacity", 7, -1.0, r"nodes\[7\].capacity: -1.0 is not a number of tuples/s"),
        ("sources", "node", 3, "m9", r"sources\[3\].node: 'm9' is no node"),
        ("sources", "rate", 3, 0.0, r"sources\[3\].rate: 0.0 is not a positive number"),
        ("sources", "id", 3, "s4", "'s4' is there 2 times"),
        ("matrix", "left", 2, "s999", r"matrix\[2\].left: 's999' is no source"),
        ("matrix", "left", 2, "s299", r"matrix\[2\].left: 's299' belongs to stream 'right'"),
        ("matrix", "join", 2, "k", r"matrix\[2\].join: 'k' is no operator"),
        ("matrix", "output_rate", 2, -3.0, "-3.0 of join/s2.* is not a positive number"),
        ("matrix", "output_rate", 2, 1e9, r"nodes\[0\].capacity: the sink cannot take the output"),
    ],
)
def test_bad_tables_are_refused_in_one_line(
    spark: SparkSession, tmp_path: Path, table: str, column: str, row: int, value: Any, message: str
) -> None:
    generate(spark, Shape(500), tmp_path / "good")

    def worse(rows: pa.Table) -> pa.Table:
        values = rows[column].to_pylist()
        values[row] = value
        at = rows.column_names.index(column)
        return rows.set_column(at, column, pa.array(values, rows[column].type))

    problem = edited(tmp_path / "good", tmp_path / "bad", table, worse)
    with pytest.raises(ProblemError, match=message) as raised:
        placed(spark, problem, tmp_path / "plan")
    assert "\n" not in str(raised.value)


# --- latencies ------------------------------------------------------------------------------------


def test_nodes_are_located_about_as_well_as_by_the_solver(
    spark: SparkSession, tmp_path: Path
) -> None:
    generate(spark, Shape(2000, landmarks=60), tmp_path / "measured")
    problem, header = open_measured(tmp_path / "measured", tmp_path / "located")
    facts = embed(spark, problem, header, tmp_path / "located", 2, True, 0, quiet)
    located = read_problem(tmp_path / "located")
    measured = pq.read_table(tmp_path / "measured" / "latency_pairs")
    ends = [
        np.array([located.node_index[name] for name in measured[side].to_pylist()])
        for side in ("from", "to")
    ]
    latency = measured["ms"].to_numpy()
    everything = solve(PairLatencies(*ends, latency), nodes=2000, dimensions=2, height=True)
    own = np.abs(located.distance(*ends) - latency).mean()
    best = np.abs(everything.distance(*ends) - latency).mean()
    assert own < 1.15 * best
    assert facts["landmarks"] == 60 and facts["nodes"] == 2000
    placed(spark, tmp_path / "located", tmp_path / "plan")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.slice(0, len(t) - 20), "has measured fewer than 4 landmarks"),
        (lambda t: t.set_column(1, "to", t["from"]), "more than 1000 different nodes"),
        (lambda t: t.slice(1770), "have measured each other 0 times"),
        (lambda t: t.set_column(2, "ms", pa.array([-1.0] * len(t))), "-1.0 ms; two names and 0"),
    ],
)
def test_latencies_that_are_refused(
    spark: SparkSession, tmp_path: Path, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    generate(spark, Shape(1200, landmarks=60), tmp_path / "good")
    measured = edited(tmp_path / "good", tmp_path / "measured", "latency_pairs", change)
    problem, header = open_measured(measured, tmp_path / "located")
    with pytest.raises(ProblemError, match=message):
        embed(spark, problem, header, tmp_path / "located", 2, True, 0, quiet)


# --- the same plan everywhere ---------------------------------------------------------------------


def command(problem: Path, output: Path) -> list[str]:
    few = ["--cells", "4", "--sample", "1000", "--memory", "512m", *OPTIONS]
    return [NOVA, "scale", "plan", str(problem), "-o", str(output), "--master", "local[1]", *few]


def same_tables(one: Path, other: Path) -> bool:
    names = sorted(path.name for path in one.iterdir() if path.is_dir())
    assert names == sorted(path.name for path in other.iterdir() if path.is_dir())
    return all(rows(one, name).equals(rows(other, name)) for name in names)


class EnoughError(Exception):
    """The stage that is looked at is whole."""


def facts_and_rows(stage: Path) -> tuple[Any, dict[str, pa.Table]]:
    """What a stage has, but for how long it took."""
    facts = json.loads((stage / "stage.json").read_text())["facts"]
    places = sorted({file.parent for file in stage.rglob("*.parquet")})
    return facts, {str(at.relative_to(stage)): pq.read_table(at) for at in places}


def test_after_kill_9_in_every_stage_two_threads_make_the_plan_that_one_began(
    spark: SparkSession, small: Path, small_plan: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """A run on one thread is stopped in every stage, and what kill -9 leaves there is on disk.

    In the last one it is killed. The session, which has two threads, makes each stage again from
    there, as the one that went on did, and the plan from the last.
    """
    output, work = tmp_path / "plan", tmp_path / "plan.stages"
    # A process group of its own has Java and the workers in it.
    process = subprocess.Popen(command(small, output), start_new_session=True)
    give_up = time.monotonic() + 300
    try:
        for stage in STAGES:
            while not (work / f".{stage}.tmp").exists() and not (work / stage).exists():
                assert process.poll() is None, stage
                assert time.monotonic() < give_up, stage
                time.sleep(0.005)
            os.killpg(process.pid, signal.SIGSTOP)
            shutil.copytree(work, tmp_path / stage / "plan.stages", symlinks=True)
            os.killpg(process.pid, signal.SIGCONT)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not output.exists()
    for stage, following in pairwise(STAGES):

        def step(name: str, following: str = following) -> None:
            if name == following:
                raise EnoughError

        left = {path.name for path in (tmp_path / stage / "plan.stages").iterdir()}
        assert {f".{stage}.tmp", stage} & left, stage
        with pytest.raises(EnoughError):
            placed(spark, small, tmp_path / stage / "plan", step=step)
        made, went_on = (tmp_path / one / "plan.stages" / stage for one in (stage, following))
        (facts, tables_made), (expected, tables_expected) = map(facts_and_rows, (made, went_on))
        assert facts == expected, stage
        assert tables_made.keys() == tables_expected.keys(), stage
        assert all(one.equals(tables_expected[at]) for at, one in tables_made.items()), stage
    placed(spark, small, output)
    assert same_tables(output, small_plan[0])


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """Spark's own cluster of two workers with a core each, on loopback; yields its address."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    own = [*here, "--cores", "1", "--memory", "700m", "--work-dir"]
    processes, run = [], str(Path(pyspark.__file__).parent / "bin" / "spark-class")

    def start(name: str, *arguments: str) -> None:
        command = [run, f"org.apache.spark.deploy.{name}", *arguments]
        with (directory / f"{len(processes)}.log").open("w") as log:
            # A process group of its own has the executors in it.
            processes.append(subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            ))  # fmt: skip

    try:
        start("master.Master", *here, "--port", str(port))
        for one in ("a", "b"):
            start("worker.Worker", *own, str(directory / one), address)
        give_up = time.monotonic() + 120
        while (directory / "0.log").read_text().count("Registering worker") < 2:
            assert time.monotonic() < give_up and all(p.poll() is None for p in processes)
            time.sleep(0.1)
        yield address
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_a_cluster_of_two_workers_makes_the_same_plan(
    small: Path, small_plan: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "cluster").mkdir()
    with standalone_cluster(tmp_path / "cluster") as address:
        # Workers are elsewhere: what is written where this process stands, they do not see.
        words = command(small, Path("plan"))
        words[words.index("local[1]")] = address
        loopback = ["--spark-conf", "spark.driver.host=127.0.0.1"]
        done = subprocess.run(
            [*words, *loopback, "--json"],
            env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        executors = list((tmp_path / "cluster").glob("[ab]/app-*/*"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(executors) == 2
    assert same_tables(tmp_path / "plan", small_plan[0])


def test_tables_of_many_blocks_and_plans_made_over_again(
    spark: SparkSession,
    small: Path,
    small_plan: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark joins small partitions while it runs; blocks keep their order all the same."""
    monkeypatch.setattr(tables, "BLOCK", 70)
    adaptive = "spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions"
    before = [str(spark.conf.get(name)) for name in adaptive]
    for name, value in zip(adaptive, ("true", "8"), strict=True):
        spark.conf.set(name, value)
    try:
        report = placed(spark, small, tmp_path / "plan")
    finally:
        for name, value in zip(adaptive, before, strict=True):
            spark.conf.set(name, value)
    assert len(list((tmp_path / "plan" / "instances").iterdir())) == -(-report["pairs"] // 70)
    assert same_tables(tmp_path / "plan", small_plan[0])


def test_a_run_that_earlier_code_began_is_refused(
    spark: SparkSession, small: Path, tmp_path: Path
) -> None:
    (tmp_path / "plan.stages").mkdir()
    (tmp_path / "plan.stages" / "settings.json").write_text("{}")
    with pytest.raises(NovaError, match=r"begun with .* None, not .*; remove it"):
        placed(spark, small, tmp_path / "plan")


def test_a_place_that_is_taken_is_refused(spark: SparkSession, small: Path, tmp_path: Path) -> None:
    write_problem(read_problem(small), tmp_path / "there")
    with pytest.raises(NovaError, match="already there"):
        placed(spark, small, tmp_path / "there")
