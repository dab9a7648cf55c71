"""Paths of commands: every one has a type of `nova_core.paths`, whatever package it comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from nova_core.cli import cli
from nova_core.paths import InputPath, OutputPath


def commands(
    group: click.Command = cli, name: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(group, click.Group):
        yield name, group
        return
    context = click.Context(group)
    for one in group.list_commands(context):
        command = group.get_command(context, one)
        assert command is not None
        yield from commands(command, (*name, one))


ALL = dict(commands())
WRITTEN = [
    (name, parameter)
    for name, command in ALL.items()
    for parameter in command.params
    if isinstance(parameter.type, OutputPath)
]


def test_every_path_of_every_command_has_one_of_the_types() -> None:
    names = ("output", "problem_output", "journal", "sql", "plot", "pairs", "directory", "target")
    for name, command in ALL.items():
        for parameter in command.params:
            if isinstance(parameter.type, click.Path):
                assert isinstance(parameter.type, (InputPath, OutputPath)), (name, parameter)
            elif parameter.name in names and not isinstance(parameter.type, click.IntRange):
                pytest.fail(f"{' '.join(name)}: {parameter.name} is no path")
    assert len(WRITTEN) > 30


@pytest.mark.parametrize(
    ("name", "parameter"), WRITTEN, ids=[f"{' '.join(n)} {p.name}" for n, p in WRITTEN]
)
def test_no_command_writes_to_an_empty_path(
    nova, name, parameter: click.Parameter, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flag = [parameter.opts[0]] if isinstance(parameter, click.Option) else []
    result = nova(*name, *flag, "")
    assert result.exit_code == 2
    assert "the path is empty" in result.stderr
    assert not list(tmp_path.iterdir())


def test_what_is_read_is_not_written(refused, problem: Path, plan: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.hardlink_to(plan)
    events = tmp_path / "events.json"
    events.write_text("")
    for arguments in (
        ("plan", problem, "-o", problem),
        ("plan", "-o", tmp_path / "." / problem.name, problem),
        ("replan", problem, plan, events, "-o", plan),
        ("replan", problem, plan, events, "-o", link),
        ("replan", problem, plan, events, "-o", events),
        ("plot", plan, "-p", problem, "-o", plan),
        ("translate", plan, "-p", problem, "--engine", "flink", "-o", plan),
        ("workload", "replay", plan, "--to", plan),
    ):
        before = {path: path.read_bytes() for path in (problem, plan, events)}
        assert "is read as well; write somewhere else" in refused(*arguments)
        assert {path: path.read_bytes() for path in before} == before
    same = ("-o", tmp_path / "x.json", "--sql", tmp_path / "x.json")
    assert "is written as well" in refused("workload", "debs", *same)


def test_a_part_of_a_directory_that_is_read_is_not_written(nova, refused, tmp_path: Path) -> None:
    tables, plan = tmp_path / "tables", tmp_path / "tables" / "plan.json"
    assert nova("generate", "-n", "50", "-o", tables).exit_code == 0
    for _ in range(2):  # a plan beside its problem is no part of it
        assert nova("plan", tables, "--no-baselines", "-o", plan).exit_code == 0
    assert "is read as well" in refused("plan", tables, "-o", tables / "problem.yaml")
    assert "is read as well" in refused("plan", tables, "-o", tables)
    assert "is read as well" in refused("plan", tables / "problem.yaml", "-o", tables)


def test_a_pipe_is_not_waited_for(refused, problem: Path, plan: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    table = tmp_path / "nodes.csv"
    os.mkfifo(table)
    beside = tmp_path / "beside.yaml"
    text = problem.read_text()
    beside.write_text(text[: text.index("nodes:")] + text[text.index("sources:") :])
    with beside.open("a") as file:
        file.write("tables: {nodes: nodes.csv}\n")
    for arguments in (
        ("plan", pipe),
        ("check", plan, "-p", pipe),
        ("replan", problem, plan, pipe, "-o", tmp_path / "new.json"),
        ("live", problem, plan, "--events", pipe),
        ("topology", "measure", pipe),
        ("experiment", "cells", pipe),
        ("testbed", "status", "-i", pipe),
        ("plan", beside),
        ("plan", "/dev/zero"),
    ):
        assert "pipes and devices are not read" in refused(*arguments)


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    from nova_core.errors import NovaError
    from nova_core.io.safe_files import write_text

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(NovaError, match="would be replaced"):
        write_text(pipe, "text")
    assert pipe.is_fifo()
