"""Placement at scale on Spark: the plan, and what is wrong with worse ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from scale_runs import checked, edited

from nova_core.model.files import read_plan, read_problem
from nova_core.model.verify import verify
from nova_core.strategies.nova import Nova, NovaParameters

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


def test_broken_plans_are_found_as_the_core_finds_them(
    spark: SparkSession, small: Path, small_plan: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """Instances that are missing, twice, on the sink and all on one node."""

    def worse(instances: pa.Table) -> pa.Table:
        nodes = instances["node"].to_pylist()
        nodes[5] = "n0"
        nodes[6:9] = [nodes[6]] * 3
        at = instances.column_names.index("node")
        instances = instances.set_column(at, "node", pa.array(nodes))
        return pa.concat_tables([instances.slice(0, 3), instances.slice(4), instances.slice(20, 2)])

    broken = edited(small_plan[0], tmp_path / "broken", "instances", worse)
    header = json.loads((broken / "plan.json").read_text())
    del header["totals"]
    (broken / "plan.json").unlink()
    (broken / "plan.json").write_text(json.dumps(header))
    found = checked(spark, small, broken)["report"]
    expected = verify(read_plan(broken, read_problem(small)))
    assert not found["ok"] and expected.counts["complete"] == 3
    counts = {name: one["violations"] for name, one in found["constraints"].items()}
    assert counts == dict(expected.counts)
    where = {(v["constraint"], v["where"]) for v in found["violations"]}
    assert where == {(v.constraint, v.where) for v in expected.violations}
