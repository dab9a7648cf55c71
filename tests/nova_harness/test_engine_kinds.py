"""What an engine cannot run is refused in a line, before anything is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nova_core.errors import NovaError
from nova_engines import flow, sources
from nova_flink.home import FlinkHome
from nova_harness.engines.base import ALL, PAIRS, ControlledEngine, names, require, runner
from nova_harness.engines.flink import FlinkDeployment, FlinkEngine, FlinkJob
from nova_harness.engines.spark import SparkJob
from nova_harness.engines.storm import StormJob
from nova_testbed.hosts import Hosts
from nova_testbed.inventory import read_inventory


def test_flink_runs_everything() -> None:
    require("flink", PAIRS, sources.KINDS)
    require("flink", flow.KINDS, [sources.READINGS, sources.KAFKA])


@pytest.mark.parametrize("engine", ["flink", "nebulastream", "spark", "storm"])
def test_own_engines_run_queries_of_readings(engine: str) -> None:
    require(engine, ALL, [sources.READINGS])
    if engine == "spark":
        require(engine, ALL, [sources.READINGS, sources.KAFKA])
    assert set(runner(engine).can.operators) == set(ALL)


@pytest.mark.parametrize(
    ("engine", "operators", "kinds", "message"),
    [
        ("spark", PAIRS, ["socket"], "spark: runs no sources of kind 'socket'; flink can"),
        ("storm", PAIRS, ["kafka"], "storm: runs no sources of kind 'kafka'; flink, spark can"),
        ("storm", PAIRS, ["socket"], "storm: runs no sources of kind 'socket'; flink can"),
        ("storm", ALL, ["kafka"], "storm: runs no sources of queries of kind 'kafka'; flink, "),
    ],
)
def test_others_do_not(engine: str, operators: list[str], kinds: list[str], message: str) -> None:
    with pytest.raises(NovaError, match=message):
        require(engine, operators, kinds)


@pytest.mark.parametrize("engine", names())
def test_every_engine_runs_replays_of_pairs(engine: str) -> None:
    require(engine, PAIRS, [sources.REPLAY])
    assert set(runner(engine).can.operators) <= set(flow.KINDS)
    assert set(runner(engine).can.sources) <= set(sources.KINDS)


def test_jobs_tell_what_they_have_read_where_engines_read_kafka() -> None:
    for name, job in (("flink", FlinkJob), ("spark", SparkJob), ("storm", StormJob)):
        assert hasattr(job, "read_offsets") == (sources.KAFKA in runner(name).can.sources)


def test_flink_is_all_that_it_says(tmp_path: Path) -> None:
    found = read_inventory("virtual-8")
    hosts = [replace(host, address=f"10.0.0.{i}") for i, host in enumerate(found.hosts, 1)]
    inventory = replace(found, hosts=tuple(hosts))
    engine = FlinkEngine(FlinkDeployment(Hosts(inventory), FlinkHome(tmp_path / "flink")))
    assert runner("flink").can.controlled and isinstance(engine, ControlledEngine)
