"""A small experiment through Kafka on a virtual rack: nothing lost, the wait measured."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nova_core.errors import NovaError
from nova_harness.experiment.bed import prepare_engine
from nova_harness.experiment.document import CapacityPart, Experiment, WorkloadPart
from nova_harness.experiment.runner import Watcher, run_experiment
from nova_testbed.hosts import connect
from nova_testbed.inventory import read_inventory
from nova_testbed.rack import VirtualRack
from nova_testbed.rack.requirements import missing

pytestmark = pytest.mark.e2e

INVENTORY = """
inventory: 1
name: novakaf-{pid}
virtual: true
defaults: {{cpu: 0.4, memory: 1 GiB}}
hosts:
  - {{name: hub, role: sink, cpu: 1, memory: 2 GiB}}
  - {{name: left, role: source}}
  - {{name: right, role: source}}
  - {{name: between, role: worker}}
network: {{rtt_ms: 20}}
"""


def skip_or_fail(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"in CI this must run, but {reason}")
    pytest.skip(reason)


def test_an_experiment_through_kafka(tmp_path: Path) -> None:
    if os.environ.get("CI") and not os.environ.get("NOVA_LONG"):
        pytest.skip("takes two minutes or so: in CI with NOVA_LONG=1 only")
    if lacking := missing():
        skip_or_fail(str(lacking))
    experiment = Experiment(
        name="small",
        inventory="four.yaml",
        transport="kafka",
        strategies=["sink"],
        workload=WorkloadPart(regions=1),
        windows_ms=[100],
        rates=[100.0],
        duration_s=6,
        warm_up_s=4,
        drain_s=30,
        capacity=CapacityPart(safety=1.0, seconds=2, warm_up_s=2),
    )
    try:
        prepare_engine(experiment, print)
    except NovaError as error:
        skip_or_fail(str(error))
    file = tmp_path / "four.yaml"
    file.write_text(INVENTORY.format(pid=os.getpid()))
    rack = VirtualRack(read_inventory(file))
    rack.up()
    try:
        (report,) = run_experiment(experiment, tmp_path, tmp_path / "run", Watcher(phase=print))
        with connect(VirtualRack(read_inventory(file)).reachable()) as hosts:
            assert all(not jobs for jobs in hosts.map(lambda host: host.jobs()).values())
    finally:
        rack.down()
    assert report.placed
    assert not report.broken, report.check
    assert report.check["finished"]
    assert report.check["expected"] == report.check["delivered"] == 10 * 100
    told = report.summary["kafka"]
    # A reading crosses from its host to the broker and back, and its result from host to sink.
    assert told["end_to_end_ms"]["p50"] > told["processing_ms"]["p50"] + 10 > 20
    assert told["back_pressure"]["samples"] >= 2
    print(told)
