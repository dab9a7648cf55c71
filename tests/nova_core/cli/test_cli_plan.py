"""`nova plan`."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_core.io.files import read_plan, read_problem
from nova_core.strategies import place


def test_tells_what_was_decided_what_it_costs_and_the_baselines(nova, problem: Path) -> None:
    result = nova("plan", problem, "--sigma", "0")
    assert result.exit_code == 0
    out = result.stdout
    assert "two regions: 11 nodes" in out
    assert "tw/n1*nw" in out
    assert "of 625" in out  # the join that is cut
    assert "[red]$G$" in out  # ids are not markup
    for strategy in ("sink", "source", "top-c", "tree"):
        assert f"\n{strategy} " in out
    assert "The plan keeps all" in out


def test_json_has_the_documented_keys(ask, problem: Path) -> None:
    answer = ask("plan", problem, "--sigma", "0")
    assert set(answer) == {
        "problem",
        "strategy",
        "objective",
        "parameters",
        "seconds",
        "compile_seconds",
        "evaluation",
        "verification",
        "notes",
        "decisions",
        "decisions_total",
        "left_out",
        "baselines",
        "written",
    }
    assert answer["problem"]["pairs"] == 3
    assert answer["problem"]["capacity"] is None  # unlimited
    assert answer["verification"]["ok"]
    assert answer["parameters"]["sigma"] == 0
    assert set(answer["baselines"]) == {"sink", "source", "top-c", "tree"}
    row = answer["decisions"][0]
    assert set(row) == {
        "operator",
        "node",
        "pieces",
        "pieces_of_operator",
        "rate",
        "virtual_distance",
        "latency",
    }


def test_decisions_add_up(ask, problem: Path) -> None:
    answer = ask("plan", problem, "--sigma", "0", "--no-baselines")
    plan = place(read_problem(problem), "nova", sigma=0.0)
    rows = answer["decisions"]
    assert answer["decisions_total"] == len(rows)
    pieces: dict[str, int] = {}
    for row in rows:
        pieces[row["operator"]] = pieces.get(row["operator"], 0) + row["pieces"]
    assert pieces == {row["operator"]: row["pieces_of_operator"] for row in rows}
    assert sum(row["rate"] for row in rows) == pytest.approx(plan.load.sum())
    assert max(row["latency"] for row in rows) == pytest.approx(
        answer["evaluation"]["estimated"]["maximum"]
    )


def test_writes_the_plan(nova, problem: Path, tmp_path: Path) -> None:
    for name in ("plan.json", "plan.yaml", "plan"):
        path = tmp_path / name
        result = nova("plan", problem, "-o", path, "--no-baselines")
        assert result.exit_code == 0
        assert str(path) in result.stderr
        assert read_plan(path, read_problem(problem)).strategy == "nova"


def test_every_option_reaches_the_strategy(ask, problem: Path) -> None:
    answer = ask(
        *("plan", problem, "--no-baselines", "--objective", "source-latency"),
        *("--bandwidth", "50", "--c-min", "1", "--index", "kdtree", "--on-full", "spread"),
        *("--no-refine", "--seed", "3", "--set", "k=4", "--set", "cut-gain=0.5"),
    )
    assert answer["objective"] == "source-latency"
    given = {
        "objective": "source-latency",
        "bandwidth": 50,
        "c_min": 1,
        "index": "kdtree",
        "on_full": "spread",
        "refine": False,
        "seed": 3,
        "k": 4,
        "cut_gain": 0.5,
    }
    assert answer["parameters"].items() >= given.items()
    assert answer["parameters"]["sigma"] is None


def test_a_plan_that_breaks_constraints_says_so(nova, ask, problem: Path) -> None:
    result = nova("plan", problem, "--strategy", "sink", "--no-baselines")
    assert result.exit_code == 0
    assert "The plan knowingly breaks capacity" in result.stdout
    answer = ask("plan", problem, "--strategy", "sink", "--no-baselines")
    assert answer["verification"]["honest"]
    assert not answer["verification"]["ok"]


def test_long_tables_are_cut_short(nova, ask, problem: Path) -> None:
    assert "2 more rows" in nova("plan", problem, "--sigma", "0", "--rows", "2").stdout
    answer = ask("plan", problem, "--sigma", "0", "--rows", "2")
    assert len(answer["decisions"]) == 2
    assert answer["decisions_total"] == 4
    latencies = [row["latency"] for row in answer["decisions"]]
    everything = ask("plan", problem, "--sigma", "0")["decisions"]
    assert latencies == sorted((row["latency"] for row in everything), reverse=True)[:2]
    assert "more rows" not in nova("plan", problem, "--sigma", "0", "--rows", "0").stdout


def test_reads_instance_directories(ask, shared_data: Path) -> None:
    where = shared_data / "instances" / "sim1000"
    answer = ask("plan", where, "--capacity", "capacity_5", "--no-baselines")
    assert answer["problem"]["pairs"] == 300
    assert answer["evaluation"]["load"]["overloaded_count"] == 0
    unlimited = ask("plan", where, "--capacity", "unlimited", "--no-baselines")
    assert unlimited["problem"]["capacity"] is None


def test_bad_problems_are_refused(refused, tmp_path: Path) -> None:
    assert "nix.yaml" in refused("plan", tmp_path / "nix.yaml")
    (tmp_path / "x.yaml").write_text("nova: 1\nnodes: [")
    assert "x.yaml" in refused("plan", tmp_path / "x.yaml", "-o", tmp_path / "p.json")
    assert "nodes.csv" in refused("plan", tmp_path)


def test_bad_options_are_refused(refused, problem: Path, tmp_path: Path) -> None:
    def told(*options: str | Path) -> str:
        return refused("plan", problem, *options, "-o", tmp_path / "p.json")

    assert "sigma is 2; expected 0 to 1" in told("--sigma", "2")
    assert "sigma is nan" in told("--sigma", "nan")
    assert "KEY=VALUE" in told("--set", "sigma")
    assert "sigma=fine" in told("--set", "sigma=fine")
    assert "given twice" in told("--sigma", "0.1", "--set", "sigma=0.2")
    assert "unknown parameter 'sigmas'" in told("--set", "sigmas=1")
    assert "takes no parameters" in told("--strategy", "sink", "--sigma", "1")
    assert "installed are nova" in told("--strategy", "hope")
    assert "'beauty'" in told("--objective", "beauty")
    assert "capacity_9" in told("--capacity", "capacity_9")


def test_places_where_no_plan_can_go_are_refused(refused, problem: Path, tmp_path: Path) -> None:
    before = problem.read_text()
    assert "no directory" in refused("plan", problem, "-o", tmp_path / "nix" / "p.json")
    assert "is read as well" in refused("plan", problem, "-o", problem)
    assert ".txt" in refused("plan", problem, "-o", tmp_path / "p.txt")
    assert problem.read_text() == before


def test_an_infeasible_problem_is_refused(refused, problem: Path, tmp_path: Path) -> None:
    text = problem.read_text().replace("unlimited", "1").replace("capacity: 200", "capacity: 20")
    problem.write_text(text)
    told = refused("plan", problem, "-o", tmp_path / "p.json")
    assert "tuples/s" in told


def test_set_understands_every_type(ask, problem: Path) -> None:
    answer = ask(
        *("plan", problem, "--no-baselines", "--set", "refine=false", "--set", "bandwidth=null")
    )
    assert answer["parameters"]["refine"] is False
    assert answer["parameters"]["bandwidth"] is None


def test_large_documents_are_warned_of_and_tables_are_not(
    nova, problem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nova_core.commands.plan.LARGE_DOCUMENT", 2)
    result = nova("plan", problem, "-o", tmp_path / "plan.json")
    assert f"tables do not: --output {tmp_path / 'plan'}" in result.stderr.replace("\n", "")
    assert read_plan(tmp_path / "plan.json", read_problem(problem))
    assert "warning" not in nova("plan", problem, "-o", tmp_path / "plan").stderr
