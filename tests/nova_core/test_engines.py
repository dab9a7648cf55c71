"""Engines and how the command line shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nova_core.commands.engines import engines
from nova_core.engines import load, names
from nova_core.errors import NovaError


def test_flink_is_found_and_described() -> None:
    assert "flink" in names()
    engine = load("flink")
    assert engine.name == "flink"
    assert "Flink" in engine.describe()


def test_unknown_engine_names_those_there_are() -> None:
    with pytest.raises(NovaError, match=r"engine: unknown 'x'; there are adapters for .*flink"):
        load("x")


def test_list_says_what_is_installed(tmp_path: Path) -> None:
    told = CliRunner(env={"NOVA_HOME": str(tmp_path)}).invoke(engines, ["list", "--json"])
    rows = {row["name"]: row for row in json.loads(told.stdout)}
    assert rows["flink"]["installed"] is False
    assert rows["flink"]["path"].startswith(str(tmp_path))
    table = CliRunner(env={"NOVA_HOME": str(tmp_path)}).invoke(engines, ["list"])
    assert "flink" in table.stdout


def test_path_of_what_is_not_installed(tmp_path: Path) -> None:
    told = CliRunner(env={"NOVA_HOME": str(tmp_path)}).invoke(engines, ["path", "flink"])
    assert isinstance(told.exception, NovaError)
    assert "run `nova engines install flink`" in str(told.exception)
    assert told.stdout == ""
