"""An experiment whose hosts are disturbed: under the plan, a controller, and the engine alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import skip_or_fail

from nova_core.errors import NovaError
from nova_harness.commands.experiment import succeeded
from nova_harness.engines.flink import ready_home
from nova_harness.experiment.document import read_experiment
from nova_harness.experiment.runner import Watcher, run_experiment
from nova_harness.report import make_report, write_report
from nova_testbed.inventory import read_inventory
from nova_testbed.rack import VirtualRack
from nova_testbed.rack.requirements import missing

pytestmark = pytest.mark.e2e

INVENTORY = """
inventory: 1
name: {name}
virtual: true
defaults: {{cpu: 0.25, memory: 512 MiB}}
hosts:
  - {{name: hub, role: sink, cpu: 0.6, memory: 1 GiB}}
  - {{name: left, role: source}}
  - {{name: right, role: source}}
  - {{name: near, role: worker}}
  - {{name: far, role: worker}}
network: {{rtt_ms: 20}}
"""
EXPERIMENT = """
experiment: 1
name: disturbed-small
workload: {regions: 1}
inventory: rack.yaml
strategies:
  - {name: top-c, scheduled_by: controller, label: controlled}
  - top-c
  - {name: top-c, scheduled_by: engine, label: engine-default}
rates: [200]
settings: {checkpoint_s: 2}
disturbances:
  - {at: 5, what: kill, host: near, for: 6}
duration_s: 28
warm_up_s: 6
drain_s: 8
capacity: {seconds: 2, warm_up_s: 4}
"""
HOSTS = {"hub", "left", "right", "near", "far"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A directory with the experiment, and the inventory of a rack that is up."""
    reason = str(missing() or "")
    try:
        ready_home(print)
    except NovaError as error:
        reason = str(error)
    if reason:
        skip_or_fail(reason)
    file = tmp_path / "rack.yaml"
    file.write_text(INVENTORY.format(name=f"novadis-{os.getpid()}"))
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    rack = VirtualRack(read_inventory(file))
    rack.up()
    try:
        yield tmp_path
    finally:
        rack.down()


def test_a_worker_is_killed(folder: Path) -> None:
    experiment = read_experiment(folder / "experiment.yaml")
    cells = run_experiment(experiment, folder, folder / "run", Watcher(phase=print))
    assert succeeded(experiment, cells)
    report = make_report([folder / "run"], subject="controlled")
    by = {course.cell.facts.strategy: course for course in report.courses}
    assert by.keys() == {"controlled", "top-c", "engine-default"}
    for name, course in by.items():
        (one,) = course.recoveries
        print(name, one, course.cell.check, course.cell.facts.restarts)
        assert one.text == "the worker on near is killed, for 6 s" and 4 < one.at_s < 7
        assert course.cell.check.lost == course.cell.check.wrong == 0
        assert course.cell.facts.events[-1].kind in ("over", "restarted")
    (felt,) = by["controlled"].recoveries
    assert felt.noticed_s is not None and felt.noticed_s < 3
    assert by["controlled"].cell.good and by["controlled"].cell.facts.restarts == 0
    # Pinned to the host that is gone, it has to wait for it, and Flink repeats some results.
    (waited,) = by["top-c"].recoveries
    assert by["top-c"].cell.facts.restarts > 0 and by["top-c"].cell.check.duplicated > 0
    assert waited.results_s is not None and felt.results_s is not None
    assert waited.results_s > felt.results_s
    # Where Flink has put the join is not known before.
    rows = by["engine-default"].cell.verification.rows
    assert {row.actual for row in rows if row.operator.startswith("join")} <= HOSTS
    page = folder / "report.html"
    write_report(report, page)
    assert "What hosts went through" in page.read_text()
