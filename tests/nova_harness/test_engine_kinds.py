"""What an engine cannot run is refused in a line, before anything is started."""

from __future__ import annotations

import pytest

from nova_core.errors import NovaError
from nova_engines import flow, sources
from nova_harness.engines.base import ALL, PAIRS, names, require, runner


def test_flink_runs_everything() -> None:
    require("flink", flow.KINDS, sources.KINDS)


@pytest.mark.parametrize("engine", ["flink", "spark", "storm"])
def test_own_engines_run_queries_of_readings(engine: str) -> None:
    require(engine, ALL, [sources.READINGS])
    assert set(runner(engine).operators) == set(ALL)


@pytest.mark.parametrize(
    ("engine", "operators", "kinds", "message"),
    [
        ("spark", PAIRS, ["socket"], "spark: runs no sources of kind 'socket'; flink can"),
        ("storm", PAIRS, ["kafka"], "storm: runs no sources of kind 'kafka'; flink, spark can"),
        ("storm", PAIRS, ["socket"], "storm: runs no sources of kind 'socket'; flink can"),
    ],
)
def test_others_do_not(engine: str, operators: list[str], kinds: list[str], message: str) -> None:
    with pytest.raises(NovaError, match=message):
        require(engine, operators, kinds)


@pytest.mark.parametrize("engine", names())
def test_every_engine_runs_replays_of_pairs(engine: str) -> None:
    require(engine, PAIRS, [sources.REPLAY])
    assert set(runner(engine).operators) <= set(flow.KINDS)
    assert set(runner(engine).sources) <= set(sources.KINDS)
