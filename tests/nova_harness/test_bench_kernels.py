from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nova_core import console
from nova_core.cli import cli
from nova_core.errors import NovaError
from nova_harness.bench import kernels
from nova_harness.bench.base import measured as measure
from nova_harness.bench.kernels import (
    PLACE,
    REFINE,
    STEPS,
    Case,
    Measurement,
    exponents,
    instance_cases,
    summary_table,
    write_plot,
)


def measurement(nodes: int, median: float, *, synthetic: bool = True) -> Measurement:
    return Measurement(
        problem=f"synthetic {nodes}",
        synthetic=synthetic,
        nodes=nodes,
        joins=nodes // 3,
        step=REFINE,
        median=median,
        best=median,
        cpu=median,
        runs=1,
        peak_bytes=None,
    )


def run_case(case: Case) -> list[Measurement]:
    return measure(kernels.__name__, [case], Measurement)


@pytest.fixture(scope="module")
def measured() -> list[Measurement]:
    return run_case(Case(nodes=400, repeat=1))


def test_every_step_is_measured(measured: list[Measurement]) -> None:
    assert [m.step for m in measured] == list(STEPS)
    for m in measured:
        assert m.nodes == 400 and m.joins == 120
        assert 0 < m.best <= m.median
        assert m.runs >= 1
        assert (m.objective is not None) == (m.step in (PLACE, REFINE))


def test_kernels_are_measured_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where small problems run as plain Python, which takes 0.14 s for this one."""
    monkeypatch.setenv("NOVA_KERNELS", "interpret")
    steps = {m.step: m for m in run_case(Case(nodes=400, repeat=1))}
    assert steps[REFINE].cpu < 0.05


def test_plans_measured_are_good_ones(measured: list[Measurement]) -> None:
    by_step = {m.step: m for m in measured}
    plain, refined = by_step[PLACE], by_step[REFINE]
    assert plain.overloaded == refined.overloaded == 0
    assert plain.objective is not None and refined.objective is not None
    assert refined.objective < plain.objective


def test_memory_counts_the_plan_but_not_the_inputs() -> None:
    """100 000 nodes take tens of MB to describe; a tree over them takes some megabytes."""
    by_step = {m.step: m for m in run_case(Case(nodes=100_000, repeat=1))}
    tree, plan = by_step["capacity tree"].peak_bytes, by_step[PLACE].peak_bytes
    if tree is None or plan is None:
        pytest.skip("this system does not tell a process's peak memory")
    assert 100_000 * 3 * 8 <= tree <= 30e6
    assert tree < plan < 1e9


def test_exponent_is_the_slope_between_sizes() -> None:
    rows = [measurement(10**k, 1e-6 * 10 ** (1.25 * k)) for k in (3, 4, 5)]
    off = measurement(433, 99.0, synthetic=False)
    assert exponents([*rows, off]) == {REFINE: pytest.approx(1.25)}
    assert exponents(rows[:1]) == {}


def test_a_failing_measurement_names_its_case(tmp_path: Path) -> None:
    with pytest.raises(NovaError, match=r"^bench: missing\.yaml: .*missing\.yaml: "):
        run_case(Case(path=str(tmp_path / "missing.yaml")))


def test_instances_are_found_with_their_extreme_capacities(tmp_path: Path) -> None:
    for name, header in (
        ("one", "node,x,y,role,capacity"),
        ("two", "node,x,capacity_0,capacity_1"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "nodes.csv").write_text(header + "\n")
        (tmp_path / name / "joins.csv").touch()
    (tmp_path / "other").mkdir()
    cases = [(Path(c.path or "").name, c.capacity) for c in instance_cases(tmp_path, 1)]
    assert cases == [("one", "capacity"), ("two", "capacity_0"), ("two", "capacity_1")]
    with pytest.raises(NovaError, match=r"no directory with nodes\.csv and joins\.csv"):
        instance_cases(tmp_path / "other", 1)


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_plot(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"bench.{suffix}"
    rows = [
        measurement(1000, 0.01),
        measurement(10000, 0.1),
        measurement(433, 0.005, synthetic=False),
    ]
    write_plot(rows, path)
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


def test_command_writes_table_plot_and_json(tmp_path: Path) -> None:
    table, plot = tmp_path / "b.csv", tmp_path / "b.png"
    arguments = ["bench", "kernels", "--sizes", "100,150", "--repeat", "1", "--json"]
    done = CliRunner().invoke(cli, [*arguments, "-o", str(table), "--plot", str(plot)])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert set(answer["exponents"]) == set(STEPS)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == 2 * list(STEPS)
    assert [m["nodes"] for m in answer["measurements"]] == 6 * [100] + 6 * [150]
    assert float(rows[0]["median"]) == answer["measurements"][0]["median"]
    assert plot.stat().st_size > 1000


def test_table_shows_every_step(
    measured: list[Measurement], capsys: pytest.CaptureFixture[str]
) -> None:
    console.show(summary_table([*measured, measurement(1000, 2.5)]))
    shown = capsys.readouterr().out
    assert all(step in shown for step in STEPS)
    assert "2.50 s" in shown
    assert "Time grows" in shown and "(optimize, refined)" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sizes", "3"], "'3'; expected numbers of nodes >= 4"),
        (["--sizes", "many"], "'many'; expected numbers of nodes"),
        (["--sizes", "inf"], "'inf'; expected numbers of nodes"),
        (["--sizes", ""], "nothing to measure"),
        (["--plot", "bench.txt"], "bench.txt: unknown image format '.txt'"),
        (["--instances", "nowhere"], "nowhere: no directory with nodes.csv"),
    ],
)
def test_bad_arguments_end_before_measuring(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, ["bench", "kernels", *arguments])
    assert done.exit_code == 2
    assert message in done.stderr
    assert "measuring" not in done.stderr
