"""``nova cluster`` on a virtual rack: a plan, then another one on the same cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_commands import ask, query_plan
from needs_rack import require

from nova_core.errors import NovaError
from nova_core.io.files import write_plan
from nova_core.strategies.base import place
from nova_harness.experiment.problem import problem_document, problem_of
from nova_testbed.hosts import connect
from nova_testbed.inventory import read_inventory
from nova_testbed.rack import VirtualRack
from nova_workloads.base import Traffic
from nova_workloads.debs import DebsWorkload

pytestmark = pytest.mark.e2e

INVENTORY = """
inventory: 1
name: {name}
virtual: true
defaults: {{cpu: 0.15, memory: 512 MiB}}
hosts:
  - {{name: hub, role: sink, cpu: 0.5, memory: 1 GiB}}
  - {{name: left, role: source}}
  - {{name: right, role: source}}
  - {{name: between, role: worker}}
network: {{rtt_ms: 20}}
"""


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of a rack that is up."""
    require()
    file = tmp_path_factory.mktemp("flink") / "small.yaml"
    file.write_text(INVENTORY.format(name=f"novaflink-{os.getpid()}"))
    rack = VirtualRack(read_inventory(file))
    rack.up()
    try:
        yield file
    finally:
        rack.down()


def test_a_changed_plan_reuses_the_cluster(inventory: Path, tmp_path: Path) -> None:
    spec = read_inventory(inventory)
    capacity = {host.name: 10_000.0 for host in spec.hosts}
    file = tmp_path / "problem.yaml"
    problem = problem_of(
        problem_document(spec, capacity, DebsWorkload(regions=1), Traffic(200, 100)), file
    )
    for strategy in ("sink", "source"):
        write_plan(place(problem, strategy), tmp_path / f"{strategy}.json")

    first = ask("flink", inventory, "deploy", str(tmp_path / "sink.json"), "-p", str(file))
    assert first["ok"] and first["replaced"] == []
    assert not ask("flink", inventory, "up")["seconds"] > 30
    assert ask("flink", inventory, "up")["found"]
    second = ask("flink", inventory, "deploy", str(tmp_path / "source.json"), "-p", str(file))
    assert second["ok"] and second["replaced"] == [first["job"]]
    where = {row["operator"]: row["actual"] for row in second["rows"]}
    assert {node for name, node in where.items() if name.startswith("join")} == {"left"}

    assert ask("flink", inventory, "verify", second["job"])["ok"]
    # Held against the other plan it is not where it should be.
    other = ["--plan", str(tmp_path / "sink.json"), "-p", str(file)]
    assert not ask("flink", inventory, "verify", second["job"], *other, code=1)["ok"]

    status = ask("flink", inventory, "status")
    assert status["missing"] == []
    states = {job["job"]: job["state"] for job in status["jobs"]}
    assert states == {first["job"]: "CANCELED", second["job"]: "RUNNING"}
    assert ask("flink", inventory, "stop") == {second["job"]: "canceled"}
    assert "hub" in ask("flink", inventory, "down")["ended on"]
    limits = {host.name: host.cpu for host in VirtualRack(spec).status().hosts}
    assert limits == {host.name: host.cpu for host in spec.hosts}

    with pytest.raises(NovaError, match="no answer from Flink's JobManager"):
        ask("flink", inventory, "status")


def test_queries_with_columns_are_deployed_and_checked(inventory: Path, tmp_path: Path) -> None:
    arguments = query_plan(tmp_path)
    done = ask("flink", inventory, "deploy", *arguments, "--check")
    assert done["ok"]
    where = {row["operator"]: row["actual"] for row in done["rows"]}
    assert {node for name, node in where.items() if name.startswith("join hot/join")} == {"between"}
    compared = done["queries"]["hot"]
    assert compared["ok"]
    assert compared["delivered"] == 16
    # What it was is remembered.
    assert ask("flink", inventory, "verify", done["job"])["ok"]
    file = sorted((tmp_path / "readings").glob("heat-*.csv"))[0]
    with pytest.raises(NovaError, match="--readings is missing"):
        ask("flink", inventory, "deploy", *arguments[:3])
    file.unlink()
    with pytest.raises(NovaError, match="heat-north"):
        ask("flink", inventory, "deploy", *arguments)


def test_only_root_and_who_brought_it_up_reach_flink(inventory: Path) -> None:
    """On its JobManager's host, as any user of this machine who would upload a program."""
    ask("flink", inventory, "up")
    address = VirtualRack(read_inventory(inventory)).reachable().hosts[0].address
    upload = ["curl", "-s", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}"]
    upload += ["-F", "jarfile=@/etc/hostname;filename=x.jar", f"http://{address}:8081/jars/upload"]
    other = subprocess.run(["setpriv", "--reuid=65534", *upload], text=True, capture_output=True)
    assert (other.returncode, other.stdout) == (7, "000")
    assert subprocess.run(upload, text=True, capture_output=True).stdout == "400"
    with connect(VirtualRack(read_inventory(inventory)).reachable()) as hosts:
        for host in hosts:
            (job, *_) = host.jobs("nova_flink_task_manager")
            told = host.run(f"cat /proc/{job.pid}/status").stdout
            assert "NoNewPrivs:\t1\n" in told and "CapEff:\t0000000000000000\n" in told
            assert "Uid:\t0\t" not in told
