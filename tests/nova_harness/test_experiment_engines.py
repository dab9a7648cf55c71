"""Engines of experiments, as far as that needs none of them to run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from report_runs import change, write_run

from nova_core.errors import NovaError
from nova_engines.documents import from_json, write_json
from nova_harness.engines.base import Lead
from nova_harness.engines.flink import FlinkEngine, FlinkJob
from nova_harness.engines.spark import DRIVER, MASTER, WORKER, SparkDeployment
from nova_harness.engines.storm import JOBS, StormDeployment, StormJob
from nova_harness.report import make_report, summary, tables
from nova_spark.driver import FLOWING, State
from nova_spark.verification import Step
from nova_storm.home import StormHome
from nova_testbed.hosts import Hosts
from nova_testbed.inventory import Inventory, read_inventory


@pytest.fixture(scope="module")
def inventory() -> Inventory:
    found = read_inventory("virtual-8")
    hosts = [replace(host, address=f"10.0.0.{i}") for i, host in enumerate(found.hosts, 1)]
    return replace(found, hosts=tuple(hosts))


def test_storm_on_hosts(inventory: Inventory, tmp_path: Path) -> None:
    deployment = StormDeployment(Hosts(inventory), StormHome(tmp_path))
    assert list(deployment.commands("sink")) == list(JOBS.values())
    assert list(deployment.commands("worker1")) == [JOBS["supervisor"]]
    assert deployment.files("worker1").keys() == {"supervisor.yaml"}
    told = yaml.safe_load(deployment.files("worker3")["supervisor.yaml"])
    assert told["supervisor.scheduler.meta"] == {"nova.node": "worker3"}
    assert told["nimbus.seeds"] == ["10.0.0.1"]
    assert told["storm.local.hostname"] == "10.0.0.8"


def test_flink_has_a_worker_again_once_it_was_heard_from() -> None:
    """As Flink lists it: the last heartbeat is 0 before the first one, else in ms."""
    beats = {"kept": 90_000, "again": 99_000, "heard": 101_000, "new": 0}
    listed = {f"tm-{name}": {"timeSinceLastHeartbeat": beat} for name, beat in beats.items()}
    deployment = MagicMock(nodes=[*beats, "gone"])
    deployment.started = dict.fromkeys(("again", "heard", "new", "gone"), 100.0)
    deployment.rest.task_managers.return_value = listed
    assert FlinkEngine(deployment).hosts() == {
        "kept": True, "again": False, "heard": True, "new": True, "gone": False,
    }  # fmt: skip


def test_spark_on_hosts(inventory: Inventory) -> None:
    deployment = SparkDeployment(Hosts(inventory))
    assert list(deployment.commands("sink")) == [MASTER, WORKER, DRIVER]
    assert list(deployment.commands("worker1")) == [WORKER]
    command = deployment.commands("sink")[DRIVER]
    assert deployment.orders in command and "spark://10.0.0.1:7077" in command
    # What Master and driver take on the sink's host is not its executor's.
    heaps = deployment.configuration.heaps
    assert heaps["worker1"] == heaps["source1"] == 656
    assert heaps["sink"] == 2560 - 1000 - 864
    with pytest.raises(NovaError, match="experiments on Spark need virtual hosts"):
        SparkDeployment(Hosts(replace(inventory, virtual=False)))


def test_a_driver_says_how_an_order_stands(tmp_path: Path) -> None:
    state = State(FLOWING, start_ms=1000, steps=(Step("join a", "n", (3, 7)),))
    write_json(tmp_path / "0.state.json", state)
    text = (tmp_path / "0.state.json").read_text()
    assert from_json(text, State, "state") == state


def test_a_report_says_what_was_not_joined(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", windows=(100,), stress=(False,), duration_s=4)
    report = make_report([run])
    quiet = [note.text for note in summary.notes(report.runs, report.groups, report.ratios, "nova")]
    cell = sorted(run.glob("cells/*/cell.json"))[0]
    change(cell, dead_letters=3, restarts=1, truncated_bytes=79)
    report = make_report([run])
    told = summary.notes(report.runs, report.groups, report.ratios, "nova")
    name = cell.parent.name
    assert [(note.kind, note.text) for note in told if note.text not in quiet] == [
        (
            "bad",
            f"3 dead letters came for sources and were no tuples of theirs ({name}).",
        ),
        ("bad", f"1 restart of a sink by its engine, which may deliver results again ({name})."),
        ("bad", f"79 bytes of results that were not written in full ({name})."),
    ]


def test_later_jobs_get_the_time_the_last_one_took() -> None:
    lead = Lead(20.0, 9.0)
    for expected in (9.0, 5.0):
        lead.start_ms()
        lead.runs()
        assert lead.seconds == expected


@pytest.mark.parametrize("kind", [FlinkJob, StormJob])
def test_a_job_that_takes_over_tells_nothing_of_the_first_one(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{kind.__module__}.await_running", lambda *_: None)
    lead = Lead(20.0)
    lead.start_ms()
    job = kind(MagicMock(lead=lead), "job", MagicMock(), MagicMock())
    job.await_running()
    assert lead.seconds == 20.0
    job.lead = lead
    job.await_running()
    assert lead.seconds == 5.0


def test_a_report_sets_engines_apart(tmp_path: Path) -> None:
    runs = []
    for engine in ("flink", "spark"):
        run = write_run(tmp_path / engine, windows=(100,), stress=(False,), duration_s=4)
        for cell in run.glob("cells/*/cell.json"):
            change(cell, engine=engine)
        runs.append(run)
    report = make_report(runs)
    assert {group.setting.engine for group in report.groups} == {"flink", "spark"}
    assert len(report.ratios) == 2 * 3
    blocks = tables.comparison_table(report.groups, report.strategies, report.subject)
    assert [block["name"] for block in blocks] == [
        "100 ms windows, calm, Flink",
        "100 ms windows, calm, Spark",
    ]
    told = [n.text for n in summary.notes(runs=report.runs, groups=report.groups,
                                       ratios=report.ratios, subject="nova")]  # fmt: skip
    assert any("ends a batch every 5 s" in text for text in told)
    assert any(text.startswith("2 engines ran the plans") for text in told)
