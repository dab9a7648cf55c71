from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nes_plans import moved, nes_plan

from nova_core.errors import NovaError
from nova_nebulastream.engine import NEBULASTREAM
from nova_nebulastream.translate import translate


@pytest.mark.parametrize("version", ["current", "0.x"])
def test_files_are_those_told_and_scripts_are_shell(version: str, tmp_path: Path) -> None:
    plan = nes_plan(2)
    target = tmp_path / "out"
    options = {"nes_version": version, "window_ms": "250"}
    written = NEBULASTREAM.translate(plan, plan.problem, target, options)
    assert sorted(p for p in target.rglob("*") if p.is_file()) == written
    for script in target.rglob("*.sh"):
        subprocess.run(["sh", "-n", script], check=True)
    assert "250 ms" in (target / "README.md").read_text()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"window": 1}, "option 'window': unknown; NebulaStream takes nes_version, window_ms"),
        ({"window_ms": "a"}, "option window_ms: 'a': expected a whole number"),
        ({"window_ms": 0}, "window_ms: 0: expected 1 to "),
        ({"nes_version": "1"}, "option nes_version: '1': expected current or 0.x"),
        ({"source": "tcp"}, "option source: 'tcp': expected generator or file"),
        ({"nes_version": "0.x", "source": "generator"}, "source: 'generator': expected file"),
        ({"file": "/data/x.csv"}, r"file: '/data/x.csv': expected a path with \{source\} in it"),
        ({"results": '/d"{instance}'}, "option results: .*expected a path"),
    ],
)
def test_bad_options_leave_nothing(tmp_path: Path, options: dict[str, Any], complaint: str) -> None:
    plan = nes_plan(2)
    with pytest.raises(NovaError, match=complaint):
        translate(plan, plan.problem, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    plan = nes_plan(2)
    (tmp_path / "mine").write_text("x")
    with pytest.raises(NovaError, match="is there already"):
        translate(plan, plan.problem, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def refused(plan: Any, tmp_path: Path, complaint: str, version: str = "current") -> None:
    with pytest.raises(NovaError, match=complaint):
        translate(plan, plan.problem, tmp_path / "out", nes_version=version)
    assert list(tmp_path.iterdir()) == []


def test_data_that_comes_back_is_refused(tmp_path: Path) -> None:
    """A source beside the sink and a join elsewhere: the topology would have a cycle."""
    plan = nes_plan(0)
    problem = replace(plan.problem, joins=replace(plan.problem.joins, sink=np.array([0])))
    plan = moved(replace(plan, problem=problem), 5)
    refused(plan, tmp_path, r"climate/p/1\*select#0: data would go around \(.*n 5.*\)")
    translate(moved(plan, 0), problem, tmp_path / "out")


def test_what_only_0x_refuses(tmp_path: Path) -> None:
    plan = moved(nes_plan(0, together=True), 5)
    refused(plan, tmp_path, "both inputs come from n 0 and are to be joined on n 5", "0.x")
    translate(plan, plan.problem, tmp_path / "current")
    both = nes_plan(0)
    problem = both.problem
    joins = problem.joins
    several = replace(
        problem,
        joins=replace(
            joins,
            ids=np.array(["a", "b"]),
            left=np.repeat(joins.left, 2),
            right=np.repeat(joins.right, 2),
            sink=np.array([6, 7]),
        ),
        matrix=replace(problem.matrix, join=np.array([0, 1])),
    )
    with pytest.raises(NovaError, match=r"results go to n 6, n 7: NebulaStream 0\.x keeps"):
        translate(
            moved(replace(both, problem=several), 5), several, tmp_path / "x", nes_version="0.x"
        )


def test_relays_are_kept_or_refused_in_0x(tmp_path: Path) -> None:
    """Never placed otherwise in silence."""
    outcomes = set()
    for seed in range(12):
        plan = nes_plan(seed, routes=True)
        try:
            translate(plan, plan.problem, tmp_path / str(seed), nes_version="0.x")
            outcomes.add("kept")
        except NovaError as error:
            assert "relayed" in str(error)
            outcomes.add("refused")
    assert outcomes == {"kept", "refused"}


def test_addresses_and_names_that_cannot_be(tmp_path: Path) -> None:
    plan = nes_plan(0)
    nodes = plan.problem.nodes
    for host, complaint in (
        (np.full(len(nodes), ""), r"node .n \d.: its name is no host name"),
        (np.full(len(nodes), "same"), "address 'same': is that of 'n"),
    ):
        problem = replace(plan.problem, nodes=replace(nodes, host=host))
        refused(replace(plan, problem=problem), tmp_path, complaint)
    ids = np.array(["p/1", "p.1", "select"])
    problem = replace(plan.problem, sources=replace(plan.problem.sources, ids=ids))
    refused(replace(plan, problem=problem), tmp_path, "source 'p.1': in NebulaStream called 'p_1'")


def test_engine_without_a_binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not NEBULASTREAM.installed()
    assert NEBULASTREAM.path == Path("nes-cli")
    with pytest.raises(NovaError, match="no nes-cli on the PATH"):
        NEBULASTREAM.install(print)
    (tmp_path / "nes-cli").write_text("#!/bin/sh\n")
    (tmp_path / "nes-cli").chmod(0o755)
    told: list[str] = []
    NEBULASTREAM.install(told.append)
    assert told == [f"{tmp_path / 'nes-cli'} is there"]
    assert "NebulaStream" in NEBULASTREAM.describe()
