"""Placement at scale on Spark: the plan, and what is wrong with worse ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from scale_runs import checked, edited, placed, quiet

from nova_core.errors import NovaError
from nova_core.io.files import read_plan, read_problem
from nova_core.model.requirements import NOTHING, Asks, RequiresPart
from nova_core.model.verify import verify
from nova_core.strategies.nova import Nova
from nova_core.strategies.nova_parameters import NovaParameters
from nova_workloads.scale import check
from nova_workloads.scale import plan as planning
from nova_workloads.scale.generate import Shape, generate
from nova_workloads.scale.part import Query
from nova_workloads.scale.plan import Scale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.e2e


def test_the_core_agrees_with_a_plan_and_its_sums(
    small: Path, small_plan: tuple[Path, dict[str, Any]]
) -> None:
    output, report = small_plan
    problem = read_problem(small)
    read = read_plan(output, problem)  # compares the digest and every total
    assert verify(read).ok and report["report"]["ok"]
    assert report["totals"]["nodes_used"] == (read.load > 0).sum()
    paths = read.path_latency
    assert report["latency"]["greatest"] == pytest.approx(paths.max())
    assert report["rounds"]["round-1"]["waiting"] > 0
    assert report["rounds"]["last"]["waiting"] == 0
    single = Nova(NovaParameters(refine=False)).place(problem)
    base, found = single.objective_value("latency"), report["totals"]["objective"]
    assert 0.98 < found / base < 1.1
    assert (output / "space.png").stat().st_size > 10_000
    assert not output.with_name("plan.stages").exists()


@pytest.mark.parametrize("some_are_cut", [True, False])
def test_broken_plans_are_found_as_the_core_finds_them(
    spark: SparkSession,
    small: Path,
    small_plan: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    some_are_cut: bool,
) -> None:
    """Instances that are missing, twice, on the sink and all on one node."""
    problem, (plan, report) = small, small_plan
    if not some_are_cut:
        problem, plan = tmp_path / "problem", tmp_path / "plan"
        generate(spark, Shape(300, rate_max=10), problem)
        report = placed(spark, problem, plan)
    assert some_are_cut == (report["cut_joins"] > 0)

    def worse(instances: pa.Table) -> pa.Table:
        nodes = instances["node"].to_pylist()
        nodes[5] = "n0"
        nodes[6:9] = [nodes[6]] * 3
        at = instances.column_names.index("node")
        instances = instances.set_column(at, "node", pa.array(nodes))
        return pa.concat_tables([instances.slice(0, 3), instances.slice(4), instances.slice(20, 2)])

    broken = edited(plan, tmp_path / "broken", "instances", worse)
    header = json.loads((broken / "plan.json").read_text())
    del header["totals"]
    (broken / "plan.json").unlink()
    (broken / "plan.json").write_text(json.dumps(header))
    found = checked(spark, problem, broken)["report"]
    expected = verify(read_plan(broken, read_problem(problem)))
    assert not found["ok"] and expected.counts["complete"] == 3
    counts = {name: one["violations"] for name, one in found["constraints"].items()}
    assert counts == dict(expected.counts)
    where = {(v["constraint"], v["where"]) for v in found["violations"]}
    assert where == {(v.constraint, v.where) for v in expected.violations}


def test_a_check_that_was_ended_does_not_answer_for_another_plan(
    spark: SparkSession, small: Path, small_plan: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    output = edited(small_plan[0], tmp_path / "plan", "instances", lambda table: table)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(planning, "locate", ended)
        checked(spark, small, output)
    edited(small_plan[0], tmp_path / "other", "instances", lambda table: table.slice(1))
    (output / "instances" / "part-000000.parquet").unlink()
    (tmp_path / "other" / "instances" / "part-000000.parquet").rename(
        output / "instances" / "part-000000.parquet"
    )
    with pytest.raises(NovaError, match=r"other files: .*part-000000\.parquet"):
        checked(spark, small, output)


def ended(*_: object) -> None:
    raise KeyboardInterrupt


def test_the_driver_takes_samples_and_what_is_left_only(
    spark: SparkSession, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 3,000 nodes and 900 joins."""
    from pyspark.sql.classic.dataframe import DataFrame

    taken: list[int] = []

    def watch(name: str) -> None:
        whole = getattr(DataFrame, name)

        def watched(frame: Any) -> Any:
            rows = whole(frame)
            taken.append(len(rows))
            return rows

        monkeypatch.setattr(DataFrame, name, watched)

    for name in ("collect", "toArrow"):
        watch(name)
    for name in ("toPandas", "toLocalIterator"):
        monkeypatch.setattr(DataFrame, name, ended)
    for name in ("LAST_NODES", "LARGE_NODES"):
        monkeypatch.setattr(planning, name, 200)
    monkeypatch.setattr(check, "GRID", 16)  # squares of the picture
    scale = Scale(NovaParameters(refine=False), cells=4, sample=300)
    problem = planning.open_problem(small, tmp_path / "plan")
    report = planning.plan(spark, problem, tmp_path / "plan", scale, quiet)
    left = report["rounds"]["last"]
    assert left["instances"] > 0
    assert max(taken) <= 450, "a tenth of the nodes, and what is drawn varies"


# Nodes: row, capacity, tags. Every second of the large ones is as large as all others.
HOSTS = [(row, 50.0 if row % 2 else 60.0, "") for row in range(300)] + [
    (300 + row, 1.0 + row, "gpu") for row in range(60)
]


@pytest.mark.parametrize("operators", [[0], [0, 1]])
def test_nodes_with_most_room_are_chosen_for_every_requirement(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, operators: list[int]
) -> None:
    monkeypatch.setattr(planning, "LAST_NODES", 100)
    hosts = spark.createDataFrame(HOSTS, "row long, capacity double, tags string").repartition(3)
    joins = spark.createDataFrame([(row,) for row in operators], "join int")
    names, asks = np.array(["", "gpu"]), (NOTHING, Asks(requires=RequiresPart(tags=["gpu"])))
    query = Query("test", NovaParameters(), names, asks, ("tags",))
    able = planning.has_most_room(hosts, len(HOSTS), joins, query)
    chosen = sorted(tuple(row) for row in hosts.where(able).collect())
    anywhere = [capacity for _, capacity, tags in chosen if not tags]
    assert set(anywhere) == {60.0} and 0.6 < len(anywhere) * len(operators) / 100 < 1.4
    if len(operators) == 2:
        tagged = [capacity for _, capacity, tags in chosen if tags]
        assert sorted(tagged) == [float(one) for one in range(11, 61)]
    again = hosts.repartition(5).where(able)
    assert sorted(tuple(row) for row in again.collect()) == chosen
