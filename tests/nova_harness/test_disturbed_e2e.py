"""An experiment whose hosts are disturbed: under the plan, a controller, and the engine alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from needs import skip_or_fail
from query_experiment import WORKLOAD, write_queries

import nova_testbed
from nova_core.errors import NovaError
from nova_harness.commands.experiment import succeeded
from nova_harness.control.disturbances import Disturbance
from nova_harness.engines.flink import ready_home
from nova_harness.experiment.document import StrategyPart, find_experiment, read_experiment
from nova_harness.experiment.runner import Watcher, run_experiment
from nova_harness.report import make_report, write_report
from nova_testbed.inventory import read_inventory
from nova_testbed.rack import VirtualRack
from nova_testbed.rack.requirements import missing

pytestmark = pytest.mark.e2e

HOSTS = {"hub", "left", "right", "near", "far"}
NETWORK = "network: {rtt_ms: 20}"
# Operators cost least on the workers, which are on everybody's way, and not beside the sources.
BETWEEN = [
    f"{{between: [{host}, {worker}], rtt_ms: {rtt}}}"
    for worker, rtt in (("near", 4), ("far", 6))
    for host in ("hub", "left", "right")
]


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory with the inventory of a rack that is up: virtual-5, with faster workers.

    A parameter is its network.
    """
    reason = str(missing() or "")
    try:
        ready_home(print)
    except NovaError as error:
        reason = str(error)
    if reason:
        skip_or_fail(reason)
    file = tmp_path / "rack.yaml"
    shipped = Path(nova_testbed.__file__).parent / "inventories" / "virtual-5.yaml"
    # A rack of its own, whatever else runs on this machine. With a quarter of a slow core, a worker
    # takes longer to start than the test may wait.
    text = shipped.read_text().replace("virtual-5", f"novadis-{os.getpid()}")
    assert text.count("role: worker}") == 2 and NETWORK in text
    text = text.replace(NETWORK, getattr(request, "param", NETWORK))
    file.write_text(text.replace("role: worker}", "role: worker, cpu: 0.5}"))
    rack = VirtualRack(read_inventory(file))
    rack.up()
    try:
        yield tmp_path
    finally:
        rack.down()


def test_a_worker_is_killed(folder: Path) -> None:
    shipped = read_experiment(find_experiment("disturbed"))
    # Before that, a host is added, and both sources emit twice as much for three seconds.
    surge = [Disturbance(1, "rate", host, 3, times=2) for host in ("left", "right")]
    added = Disturbance(1, "add", "far")
    (killed,) = shipped.disturbances
    experiment = msgspec.structs.replace(
        shipped,
        inventory="rack.yaml",
        settings=msgspec.structs.replace(shipped.settings, miss_after_s=40),
        disturbances=[added, *surge, *shipped.disturbances],
    )
    seconds = shipped.warm_up_s + shipped.duration_s + 3
    cells = run_experiment(experiment, folder, folder / "run", Watcher(phase=print))
    assert succeeded(experiment, cells)
    assert "40000 ms" in (folder / "run" / "environment.json").read_text()
    report = make_report([folder / "run"], subject="controlled")
    by = {course.cell.facts.strategy: course for course in report.courses}
    assert by.keys() == {"controlled", "top-c", "engine-default"}
    for name, course in by.items():
        first, one = course.recoveries
        assert first.text == "; ".join(map(str, [added, *surge]))
        print(name, one, course.cell.check, course.cell.facts.restarts)
        assert one.text == str(killed) == "the worker on near is killed, for 6 s"
        assert 4 < one.at_s < 7
        assert course.cell.check.lost == course.cell.check.wrong == 0
        assert course.cell.check.expected >= seconds * shipped.rates[0]
        assert ("over", one.text) in {(e.kind, e.text) for e in course.cell.facts.events}
    _, felt = by["controlled"].recoveries
    assert "recovered" in {event.kind for event in by["controlled"].cell.facts.events}
    said = [event.text for event in by["controlled"].cell.facts.events if event.kind == "noticed"]
    lost, back = (
        next(n for n, text in enumerate(said) if text.startswith(f"far is {what}"))
        for what in ("lost", "back")
    )
    assert lost < back
    assert by["controlled"].cell.good and by["controlled"].cell.facts.restarts == 0
    # Pinned to the host that is gone, it has to wait for it.
    _, waited = by["top-c"].recoveries
    assert by["top-c"].cell.facts.restarts > 0
    assert waited.results_s is not None and felt.results_s is not None
    assert waited.results_s > felt.results_s
    # Its results are back because the controller has noticed, not the engine.
    assert felt.noticed_s is not None and felt.noticed_s < min(3, felt.results_s)
    # Where Flink has put the join is not known before.
    rows = by["engine-default"].cell.verification.rows
    assert {row.actual for row in rows if row.operator.startswith("join")} <= HOSTS
    page = folder / "report.html"
    write_report(report, page)
    assert "What hosts went through" in page.read_text()


@pytest.mark.parametrize(
    "folder", [f"network: {{rtt_ms: 20, links: [{', '.join(BETWEEN)}]}}"], indirect=True, ids=["-"]
)
def test_whole_queries_go_on_under_the_controller(folder: Path) -> None:
    """Whichever worker has operators is killed."""
    write_queries(folder)
    shipped = read_experiment(find_experiment("disturbed"))
    killed = [Disturbance(at, "kill", host, 5) for at, host in ((4, "near"), (14, "far"))]
    experiment = msgspec.structs.replace(
        shipped,
        inventory="rack.yaml",
        workload=WORKLOAD,
        strategies=[StrategyPart(name="nova", scheduled_by="controller")],
        windows_ms=[],
        rates=[],
        duration_s=24,
        settings=msgspec.structs.replace(shipped.settings, checkpoint_s=0, miss_after_s=40),
        disturbances=killed,
    )
    (cell,) = run_experiment(experiment, folder, folder / "run", Watcher(phase=print))
    said = [event.text for event in cell.facts.events]
    print(cell.check, said)
    assert cell.check.ok and cell.check.expected == cell.check.delivered > 500
    kinds = {event.kind for event in cell.facts.events}
    assert "recovered" in kinds and cell.facts.restarts == 0
    assert make_report([folder / "run"]).courses
