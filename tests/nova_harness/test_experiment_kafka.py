"""Experiments through Kafka, as far as that needs no broker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from report_runs import change, write_run

from nova_core.errors import NovaError
from nova_flink.home import FlinkHome
from nova_harness.control.disturbances import Disturbance
from nova_harness.engines.flink import FlinkDeployment
from nova_harness.engines.kafka import BROKER, KafkaDeployment
from nova_harness.experiment.cells import cells_of
from nova_harness.experiment.document import Experiment, StrategyPart, check_experiment
from nova_harness.experiment.measured import kafka_figures
from nova_harness.experiment.runner import default_folder
from nova_harness.report import make_report, tables
from nova_kafka.measures import Sample
from nova_testbed.hosts import Hosts
from nova_testbed.inventory import read_inventory

THROUGH = Experiment(
    name="a", strategies=["sink"], transport="kafka", windows_ms=[100], rates=[1000.0]
)


def test_an_experiment_says_how_readings_come() -> None:
    check_experiment(THROUGH, "x.yaml")
    assert cells_of(THROUGH)[0].facts(THROUGH).transport == "kafka"
    assert default_folder(THROUGH) == Path("runs/a-kafka")
    storm = Experiment(name="a", strategies=["sink"], transport="kafka", engine="storm")
    with pytest.raises(NovaError, match=r"x\.yaml: engine storm: runs no sources of kind 'kafka'"):
        check_experiment(storm, "x.yaml")
    controlled = StrategyPart(name="nova", scheduled_by="controller")
    check_experiment(msgspec.structs.replace(THROUGH, strategies=[controlled]), "x.yaml")
    surge = [Disturbance(1, "rate", "source1", times=2)]
    with pytest.raises(NovaError, match=r"rate: only with .* and transport direct"):
        check_experiment(msgspec.structs.replace(THROUGH, disturbances=surge), "x.yaml")
    with pytest.raises(NovaError, match="broker: only transport kafka has one"):
        check_experiment(Experiment(name="a", strategies=["sink"], broker="hub"), "x.yaml")


def test_the_broker_is_on_one_host() -> None:
    found = read_inventory("virtual-8")
    hosts = [replace(host, address=f"10.0.0.{i}") for i, host in enumerate(found.hosts, 1)]
    inventory = replace(found, hosts=tuple(hosts))
    assert list(KafkaDeployment(Hosts(inventory)).commands("sink")) == [BROKER]
    deployment = KafkaDeployment(Hosts(inventory), "worker1")
    assert deployment.broker.servers == "10.0.0.6:9092"
    assert deployment.commands("sink") == deployment.files("sink") == {}
    command = deployment.commands("worker1")[BROKER]
    # Less than a core: no time for the optimizing compiler.
    assert command.count("-XX:TieredStopAtLevel=1") == 2
    assert (
        "listeners=PLAINTEXT://10.0.0.6:9092," in deployment.files("worker1")["server.properties"]
    )
    with pytest.raises(NovaError, match="there is no host 'nowhere'; there are sink, source1"):
        KafkaDeployment(Hosts(inventory), "nowhere")
    with pytest.raises(NovaError, match="through Kafka need virtual hosts"):
        KafkaDeployment(Hosts(replace(inventory, virtual=False)))


def test_figures_are_of_the_measured_time() -> None:
    begin = np.full(5, 1_000_000)
    columns = {
        "left_emit_us": begin,
        "right_emit_us": begin + 1,
        "arrive_us": begin + np.array([20, 20, 20, 80, 999]) * 1000,
        "measured": [True, True, True, True, False],
    }
    results, waited_us = pa.table(columns), np.full(5, 15_000, np.int32)
    partition = ("pressure", 0)
    samples = [Sample(t, {partition: 100 * t}, {partition: 90 * t}) for t in range(10)]
    told = kafka_figures(results, waited_us, samples, (2_000_000, 6_000_000))
    assert told.processing_ms.p50 == 5
    assert told.end_to_end_ms.max == 80
    pressure = told.back_pressure
    assert pressure is not None
    assert pressure.samples == 4
    assert pressure.rate == pytest.approx(10)
    assert (pressure.occurred, pressure.backlog, pressure.most) == (True, 50, 50)
    few = kafka_figures(results, None, samples[:1], (0, 10))
    assert few.back_pressure is None
    assert (few.processing_ms.p50, few.end_to_end_ms.p50) == (None, 20)


def test_a_report_sets_what_came_through_kafka_apart(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", windows=(10,), stress=(False,))
    for cell in sorted((run / "cells").iterdir()):
        change(cell / "cell.json", engine="flink", transport="kafka")
        change(
            cell / "summary.json",
            kafka={
                "processing_ms": {"p50": 12.0, "p99": 30.0},
                "end_to_end_ms": {"p50": 18.0, "p99": None},
                "back_pressure": {"rate": 3.25, "occurred": True, "backlog": 7, "most": 1234},
            },
        )
    made = make_report([run])
    assert {group.setting.engine for group in made.groups} == {"flink through Kafka"}
    row = tables.carried_rows(made.runs)[0]
    assert row["setting"].endswith("Flink through Kafka")
    assert (row["p_p50"], row["e_p50"], row["e_p99"]) == ("12.0", "18.0", "")
    assert (row["rate"], row["most"]) == ("3.2", "1,234")


def test_real_hosts_get_copies_of_connectors(tmp_path: Path) -> None:
    found = read_inventory("virtual-8")
    hosts = [replace(host, address=f"10.0.0.{i}") for i, host in enumerate(found.hosts, 1)]
    inventory = replace(found, hosts=tuple(hosts), virtual=False)
    home, jar = FlinkHome(tmp_path / "flink"), tmp_path / "elsewhere" / "connector.jar"
    deployment = FlinkDeployment(Hosts(inventory), home, extra_jars=[jar])
    assert deployment.within(home.extension_jar) == home.extension_jar.relative_to(home.path)
    for host in inventory.hosts:
        copy = f"{deployment.place(host.name)}/{deployment.within(jar)}"
        assert copy != str(jar)
        for command in deployment.commands(host.name).values():
            assert copy in command and str(jar) not in command
