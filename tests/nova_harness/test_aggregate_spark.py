"""Many runs aggregated by Spark: the same figures as in one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from report_runs import Behaviour, write_run
from small_spark import OPTIONS

from nova_harness.report import make_report
from nova_harness.report.groups import LEVELS, Group, Latency

pytestmark = pytest.mark.e2e

TWO = {"nova": Behaviour(40), "sink": Behaviour(60, climb_ms=400)}


def latencies(group: Group) -> tuple[list[float], list[float]]:
    """Means, and levels."""
    both = [one for one in (group.latency, group.from_emit) if isinstance(one, Latency)]
    assert len(both) == 2
    return [one.mean for one in both], [level for one in both for level in one.levels]


def test_a_report_of_several_runs_is_that_of_one_process(tmp_path: Path) -> None:
    # Spark writes such names of files in its own way.
    place = tmp_path / "runs of märz, 100 % #1"
    place.mkdir()
    runs = [
        write_run(
            place / f"run {n}",
            TWO,
            windows=(10, 100),
            stress=(False,),
            duration_s=3,
            repetitions=2,
            seed=n,
        )
        for n in range(2)
    ]
    arguments = [*map(str, runs), "-o", str(tmp_path / "all.html"), "--json", "--memory", "1g"]
    # In a process of its own, as other tests keep a Spark of theirs in this one.
    nova = Path(sys.executable).parent / "nova"
    result = subprocess.run(
        [nova, "report", *arguments, "--master", "local[2]", *OPTIONS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert len(answer["groups"]) == 4
    assert any("2 runs are taken together" in note["text"] for note in answer["notes"])
    page = (tmp_path / "all.html").read_text()
    assert all(str(run).replace("&", "&amp;") in page for run in runs)

    told = json.loads((tmp_path / "all-files" / "aggregate.json").read_text())
    assert told["levels"] == list(LEVELS)
    by_spark = msgspec.convert(told["groups"], list[Group])
    for ours, theirs in zip(make_report(runs).groups, by_spark, strict=True):
        assert ours.results > 0
        for found, expected, rel in zip(
            latencies(theirs), latencies(ours), (1e-12, 1e-9), strict=True
        ):
            assert found == pytest.approx(expected, rel=rel)
        same = msgspec.structs.replace(theirs, latency=ours.latency, from_emit=ours.from_emit)
        assert same == ours
