"""The same small experiment on Storm and on Spark, on a virtual rack."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_core.errors import NovaError
from nova_harness.experiment.document import CapacityPart, Experiment, StrategyPart, WorkloadPart
from nova_harness.experiment.engine import prepare
from nova_harness.experiment.runner import Watcher, run_experiment
from nova_harness.report import make_report
from nova_storm.home import StormHome
from nova_testbed.hosts import connect
from nova_testbed.inventory import read_inventory
from nova_testbed.rack import VirtualRack
from nova_testbed.rack.requirements import missing

pytestmark = pytest.mark.e2e

INVENTORY = """
inventory: 1
name: {name}
virtual: true
defaults: {{cpu: 0.4, memory: 1280 MiB}}
hosts:
  - {{name: hub, role: sink, cpu: 1, memory: 2560 MiB}}
  - {{name: left, role: source}}
  - {{name: right, role: source}}
  - {{name: between, role: worker}}
network: {{rtt_ms: 20}}
"""


def skip_or_fail(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"in CI this must run, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the inventory of a rack that is up."""
    lacking = missing()
    if lacking:
        skip_or_fail(str(lacking))
    for engine in ("storm", "spark"):
        try:
            if engine == "storm" and os.environ.get("CI"):
                StormHome.default().install()
            prepare(engine, print)
        except NovaError as error:
            skip_or_fail(str(error))
    directory = tmp_path_factory.mktemp("engines")
    file = directory / "four.yaml"
    file.write_text(INVENTORY.format(name=f"novaeng-{os.getpid()}"))
    rack = VirtualRack(read_inventory(file))
    rack.up()
    try:
        yield directory
    finally:
        rack.down()


@pytest.mark.parametrize("engine", ["storm", "spark"])
def test_an_experiment_on_another_engine(base: Path, tmp_path: Path, engine: str) -> None:
    experiment = Experiment(
        name="small",
        inventory="four.yaml",
        engine=engine,
        # What a micro-batch costs leaves hosts less capacity than they need.
        strategies=[StrategyPart(name="nova", parameters={"on_full": "spread"}), "sink"],
        workload=WorkloadPart(regions=1),
        windows_ms=[100],
        rates=[100.0],
        duration_s=5,
        warm_up_s=6,
        drain_s=60,
        capacity=CapacityPart(safety=1.0, seconds=3, warm_up_s=6),
    )
    run = tmp_path / "run"
    reports = run_experiment(experiment, base, run, Watcher(phase=print))
    assert len(reports) == 2
    for report in reports:
        assert report.placed, report.name
        assert not report.broken, report.check
        assert report.check["finished"]
        assert report.check["expected"] == report.check["delivered"] == 11 * 100
        assert report.summary["results"] == 5 * 100
        # Two links of 10 ms; a busy machine takes its time.
        assert report.summary["latency_ms"]["p50"] > 10
        cell = run / "cells" / report.name
        verified = json.loads((cell / "verification.json").read_text())["rows"]
        operators = json.loads((cell / "operators.json").read_text())
        assert {row["operator"]: row["actual"] for row in verified} == {
            row["name"]: row["node"] for row in operators
        }
        assert any(row["records_in"] for row in operators)
    page = make_report([run])
    assert {group.setting.engine for group in page.groups} == {engine}
    reachable = VirtualRack(read_inventory(base / "four.yaml")).reachable()
    with connect(reachable) as hosts:
        assert all(not jobs for jobs in hosts.map(lambda host: host.jobs()).values())
