"""What the command line does with bad values, closed streams, and errors of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOVA = [str(Path(sys.executable).parent / "nova")]
FAULT = """
import sys
from nova_core import cli
from nova_core.commands import shared
def load_problem(*_, **__):
    raise RuntimeError("two\\nlines")
shared.load_problem = load_problem
sys.argv = ["nova", "plan", sys.argv[1]]
cli.main()
"""


def test_an_internal_error_is_one_line_and_exit_code_70(problem: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", FAULT, str(problem)],
        env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 70
    assert run.stderr.count("\n") == 1
    assert "internal error: RuntimeError: two lines" in run.stderr
    (trace,) = tmp_path.glob("nova-*.traceback")
    assert str(trace) in run.stderr
    text = trace.read_text()
    assert text.startswith(f"nova plan {problem}\n")
    assert "in load_problem" in text


@pytest.mark.parametrize("closed", [">&-", "<&- 2>&-", "> /dev/full"])
def test_closed_streams(closed: str, problem: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    command = f'"$0" plan "$1" --no-baselines -o "$2" {closed}'
    run = subprocess.run(
        ["sh", "-c", command, *NOVA, str(problem), str(plan)],
        capture_output=True,
        text=True,
        check=False,
    )
    if closed == ">&-":
        # The answer would be lost, so nothing is begun; the plan would else have taken its place.
        assert run.returncode == 2
        assert run.stderr.startswith("nova: error: standard output is closed")
        assert run.stderr.count("\n") == 1
        assert not plan.exists()
    elif closed == "> /dev/full":
        assert run.returncode == 2
        assert "No space left on device" in run.stderr
        assert "Traceback" not in run.stderr
    else:
        assert run.returncode == 0
        assert "The plan keeps all" in run.stdout
        assert plan.read_text().startswith("{")


def test_seeds(refused, problem: Path) -> None:
    assert "-1 is not in the range" in refused("plan", problem, "--seed", "-1")
    assert "seed is -1; expected 0 to" in refused("plan", problem, "--set", "seed=-1")
    assert "not in the range" in refused("plan", problem, "--seed", str(10**30))
    for strategy in ("cl-sf", "ifcop", "sbon-relaxation"):
        options = ("--strategy", strategy, "--set", "seed=-1")
        assert "seed" in refused("plan", problem, *options)


QUERIES = """\
queries:
  - id: q
    sink: sink
    operators:
      - {{id: a, kind: aggregate, input: T, window: 1, groups: {groups}}}
"""


def test_more_groups_than_can_be(refused, problem: Path, tmp_path: Path) -> None:
    asked = problem.read_text().partition("query:")[0] + QUERIES.format(groups=10**30)
    (tmp_path / "queries.yaml").write_text(asked)
    message = refused("plan", tmp_path / "queries.yaml")
    assert "groups: 1000000000000000000000000000000 is not accepted" in message


def test_translation_of_what_are_no_sources(refused, problem: Path, plan: Path) -> None:
    for engine in ("flink", "storm", "spark"):
        command = ("translate", plan, "-p", problem, "--engine", engine, "-o", plan.parent / "d")
        binary = refused(*command, "--set", f"sources={sys.executable}")
        assert "cannot be read as text" in binary
        assert "is no file" in refused(*command, "--set", "sources=/dev/zero")
        assert "window_ms" in refused(*command, "--set", f"window_ms={10**30}")
    command = (
        "translate",
        plan,
        "-p",
        problem,
        "--engine",
        "nebulastream",
        "-o",
        plan.parent / "d",
    )
    assert "window_ms" in refused(*command, "--set", f"window_ms={10**30}")


def test_as_slow_as_never(refused, tmp_path: Path) -> None:
    command = ("data", "fetch", "sensor-community", tmp_path / "d", "--from", "2025-01-01")
    for speed in ("1e-300", "nan", "0"):
        message = refused(*command, "--sensors", "1", "--per-second", speed)
        assert "--per-second" in message


def test_a_document_of_ten_million_nodes(refused, tmp_path: Path) -> None:
    message = refused("workload", "debs", "--nodes", "10000000", "-o", tmp_path / "d.yaml")
    assert "nodes 10000000: expected 10,000 at most" in message


def test_an_inventory_of_seventy_thousand_hosts(refused, tmp_path: Path) -> None:
    hosts = ",".join(f'{{"name": "h{i}", "role": "worker"}}' for i in range(70_000))
    inventory = tmp_path / "large.json"
    inventory.write_text(
        f'{{"inventory": 1, "name": "large", "virtual": true, "hosts": [{hosts}]}}'
    )
    assert "hosts: 70,000; 1,000 are accepted" in refused("testbed", "status", "-i", inventory)


EXPERIMENT = "experiment: 1\nname: small\nstrategies: [nova]\n"


def test_experiments_without_readings_or_with_a_foreign_broker(refused, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.csv").touch()
    (tmp_path / "bmp280_1.csv").write_text("1,north,0,100\n")
    place = tmp_path / "experiment.yaml"
    for data, message in (
        ("nowhere", "there is no such file or directory"),
        ('""', "workload: data: '' is not accepted"),
        ("empty", "workload.data"),
        ("empty.csv", "workload.data"),
        ("bmp280_1.csv", "no readings of 'humidity'"),
    ):
        place.write_text(EXPERIMENT + f"workload: {{data: {data}}}\n")
        assert message in refused("experiment", "cells", place)
    place.write_text(EXPERIMENT + "transport: kafka\nbroker: zz\n")
    assert "broker: inventory virtual-14: unknown host 'zz'" in refused(
        "experiment", "cells", place
    )


def test_a_name_that_is_not_utf_8_stands_in_json(
    nova: Any, problem: Path, plan: Path, tmp_path: Path
) -> None:
    written = tmp_path / os.fsdecode(b"out\xff.json")
    events = tmp_path / os.fsdecode(b"\xfe.jsonl")
    events.write_text("nonsense\n")
    made = nova("replan", problem, plan, os.devnull, "-o", written, "--json")
    assert made.exit_code == 0 and written.exists()
    assert json.loads(made.stdout)["written"].startswith(f"{tmp_path}/out\N{REPLACEMENT CHARACTER}")
    told = nova("live", problem, plan, "--events", events)
    assert told.exit_code == 1
    assert "\N{REPLACEMENT CHARACTER}.jsonl: line 1: no JSON" in json.loads(told.stdout)["error"]
