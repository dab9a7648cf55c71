"""What ``nova storm`` refuses, and the engine as others see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from nova_core.engines import load
from nova_core.errors import NovaError
from nova_harness.commands.storm import storm


def test_engine_is_found() -> None:
    engine = load("storm")
    assert engine.name == "storm"
    assert "Apache Storm 2" in engine.describe()


@pytest.mark.parametrize("address", [":6627", "host:door", ""])
def test_bad_addresses(address: str) -> None:
    told = CliRunner().invoke(storm, ["status", "--nimbus", address])
    assert isinstance(told.exception, NovaError)
    assert f"--nimbus {address}: expected HOST or HOST:PORT" in str(told.exception)


def test_storm_that_is_not_installed(tmp_path: Path) -> None:
    told = CliRunner(env={"NOVA_HOME": str(tmp_path)}).invoke(
        storm, ["status", "--nimbus", "127.0.0.1:9"]
    )
    assert isinstance(told.exception, NovaError)
    assert "run `nova engines install storm`" in str(told.exception)
