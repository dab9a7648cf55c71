"""Many runs aggregated by Spark: the same figures as in one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from report_runs import Behaviour, write_run
from small_spark import OPTIONS, SETTINGS

from nova_harness import aggregate
from nova_harness.commands.report import report
from nova_harness.report.groups import Latency, distributions, finished_cells
from nova_harness.report.run_folder import read_run
from nova_workloads.spark import SparkOptions, spark_session

pytestmark = pytest.mark.e2e

TWO = {"nova": Behaviour(40), "sink": Behaviour(60, climb_ms=400)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    # Spark writes such names of files in its own way.
    place = tmp_path_factory.mktemp("many") / "runs of märz, 100 % #1"
    place.mkdir()
    return [
        write_run(place / f"run {n}", TWO, windows=(10, 100), duration_s=3, repetitions=2, seed=n)
        for n in range(3)
    ]


def test_spark_and_one_process_agree(runs: list[Path]) -> None:
    cells = finished_cells([read_run(run) for run in runs])
    alone = distributions(cells)
    with spark_session(SparkOptions("local[2]", "1g", tuple(SETTINGS.items()))) as spark:
        found = aggregate.distributions(spark, cells)
        assert aggregate.distributions(spark, {}) == {}
    assert list(found) == list(alone)
    assert len(alone) == 8
    for key, (results, *latencies) in alone.items():
        assert found[key][0] == results > 0
        for theirs, ours in zip(found[key][1:], latencies, strict=True):
            assert isinstance(theirs, Latency) and isinstance(ours, Latency)
            assert theirs.mean == pytest.approx(ours.mean, rel=1e-12)
            assert theirs.levels == pytest.approx(ours.levels, rel=1e-9)


def test_a_report_of_several_runs(runs: list[Path], tmp_path: Path) -> None:
    arguments = [*map(str, runs), "-o", str(tmp_path / "all.html"), "--json", "--memory", "1g"]
    result = CliRunner().invoke(report, [*arguments, "--master", "local[2]", *OPTIONS])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert len(answer["groups"]) == 8
    assert any("3 runs are taken together" in note["text"] for note in answer["notes"])
    page = (tmp_path / "all.html").read_text()
    assert all(str(run).replace("&", "&amp;") in page for run in runs)
