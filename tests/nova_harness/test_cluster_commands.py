"""What ``nova cluster`` refuses, and the engines it finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from cluster_commands import query_plan

from nova_core.engines import load
from nova_core.errors import NovaError
from nova_harness.commands.cluster import cluster
from nova_harness.engines.base import names, runner


def refused(*arguments: str, home: Path | None = None) -> str:
    environment = {} if home is None else {"NOVA_HOME": str(home)}
    done = CliRunner(env=environment).invoke(cluster, arguments)
    assert isinstance(done.exception, NovaError), done.output
    return str(done.exception)


def test_engines_are_found() -> None:
    assert "Apache Storm 2" in load("storm").describe()
    assert {"flink", "spark", "storm"} <= set(names())
    for name in names():
        assert runner(name).name == name
    with pytest.raises(NovaError, match=r"engine: unknown 'heron'; installed are .*flink"):
        runner("heron")


@pytest.mark.parametrize("address", [":6627", "host:door", ""])
def test_bad_addresses(address: str) -> None:
    told = refused("status", "--engine", "storm", "--at", address)
    assert f"address {address!r}: nimbus: expected HOST or HOST:PORT" in told


def test_storm_that_is_not_installed(tmp_path: Path) -> None:
    told = refused("status", "--engine", "storm", "--at", "127.0.0.1:9", home=tmp_path)
    assert "run `nova engines install storm`" in told


def test_nothing_answers() -> None:
    told = refused("status", "--engine", "flink", "--at", "127.0.0.1:9")
    assert "http://127.0.0.1:9: no answer from Flink's JobManager" in told


def test_what_spark_knows_only_by_a_record() -> None:
    assert "by its record" in refused("status", "--engine", "spark", "--at", "record")
    assert "end the program" in refused("stop", "x", "--engine", "spark", "--at", "record")


def test_what_is_not_known_of_a_job() -> None:
    told = refused("verify", "job", "--at", "127.0.0.1:9")
    assert told == "job job: not deployed from here; give --plan and --problem"
    assert "give both, or neither" in refused("verify", "job", "--plan", __file__)
    assert "JOB and --all: give one" in refused("stop", "job", "--all")


def test_what_flows_in_a_plan_of_queries_is_its_readings(tmp_path: Path) -> None:
    arguments = query_plan(tmp_path, seconds=1, rate=2)
    assert "--for: is for plans of joins of pairs" in refused("deploy", *arguments, "--for", "3")
    assert "--readings is missing" in refused("deploy", *arguments[:3])
