"""What an engine cannot run is refused in a line, before anything is started."""

from __future__ import annotations

import pytest

from nova_core.errors import NovaError
from nova_engines import flow, sources
from nova_harness.engines.base import ALL, PAIRS, names, require, runner


def test_flink_runs_everything() -> None:
    require("flink", flow.KINDS, sources.KINDS)
    assert set(runner("flink").can.operators) == set(ALL)


@pytest.mark.parametrize(
    ("engine", "operators", "kinds", "message"),
    [
        (
            "spark",
            ALL,
            ["replay"],
            "spark: runs no operators of kind 'aggregate'; flink, storm",
        ),
        ("spark", PAIRS, ["readings"], "spark: runs no sources of kind 'readings'; flink, storm"),
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
    assert set(runner(engine).can.operators) <= set(flow.KINDS)
    assert set(runner(engine).can.sources) <= set(sources.KINDS)
