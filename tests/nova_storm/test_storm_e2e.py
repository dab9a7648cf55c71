"""Random plans on a real cluster: exactly the reference's results, every executor on its node."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import random_plans
import yaml
from local_storm import LocalCluster
from needs_storm import require
from test_builder_e2e import compare

from nova_core.model import Plan
from nova_engines import results
from nova_engines.flow import Flow
from nova_engines.flow_of_plan import flow_of
from nova_engines.sources import Sources
from nova_storm.flux import topology
from nova_storm.nimbus import StormError
from nova_storm.verification import await_running, of_name

pytestmark = pytest.mark.e2e
NODES = [f"n_{i}.x" for i in range(random_plans.NODES)]
DONE_S = 120.0
# Of a file, where a sink is not to be able to write its results.
MOST_BYTES = 16 << 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("storm") / "cluster"
    with LocalCluster(require(), NODES, directory) as running:
        yield running


class Run:
    """A bounded plan on a cluster."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.name, self.file = f"plan-{seed}", directory / f"{seed}" / "results"
        self.plan: Plan = random_plans.plan_of(seed)
        # Half of what is to come is due at once, the other half while the topology runs.
        start_ms = (int(time.time()) + 2) * 1000
        self.sources: Sources = random_plans.sources_of(self.plan.problem, start_ms)
        self.flow: Flow = flow_of(self.plan, random_plans.match_of(seed))
        self.document = directory / f"{self.name}.yaml"
        made = topology(self.flow, self.sources, str(self.file), self.name)
        self.document.write_text(yaml.safe_dump(made, sort_keys=False))

    def await_end(self) -> None:
        """Until every sink has said that nothing more will come."""
        ends = [Path(f"{p}.end") for p in self.flow.result_files(str(self.file)).values()]
        until = time.monotonic() + DONE_S
        while not all(end.exists() for end in ends):
            assert time.monotonic() < until, f"{self.name}: not done after {DONE_S} s"
            time.sleep(0.2)

    def check(self) -> int:
        """What was delivered is what the reference has; how much that is."""
        compared = compare(self.plan, self.flow, self.sources, self.file)
        assert compared.ok, (self.name, compared)
        return compared.expected


def check_placed(cluster: LocalCluster, run: Run) -> None:
    """Once all executors run, nimbus has each where the plan has it."""
    until = time.monotonic() + DONE_S
    while True:
        nodes = run.flow.placement
        placed = await_running(cluster.nimbus, run.name, nodes, cluster.addresses, DONE_S)
        # Executors outlive a nimbus that ends; what the new one's scheduler says comes later.
        if placed.note or time.monotonic() > until:
            break
        time.sleep(1)
    assert placed.ok, placed
    assert placed.note == "Placed by its plan"


# Every worker of a plan is two processes: ten plans take minutes, and at once more than two cores.
@pytest.mark.parametrize("seed", random_plans.seeds(3))
def test_random_plans_deliver_the_reference(
    cluster: LocalCluster, tmp_path: Path, seed: int
) -> None:
    run = Run(seed, tmp_path)
    cluster.nimbus.submit(run.document)
    check_placed(cluster, run)
    run.await_end()
    cluster.nimbus.kill(run.name)
    assert run.check() > 0


def test_placement_outlives_nimbus(cluster: LocalCluster, tmp_path: Path) -> None:
    """Nimbus ends without warning and comes back while a plan runs."""
    run = Run(2, tmp_path)
    cluster.nimbus.submit(run.document)
    check_placed(cluster, run)
    before = executors(cluster, run.name)
    cluster.kill("nimbus")
    with pytest.raises(StormError, match="nimbus at 127"):
        cluster.nimbus.status()
    cluster.launch_one("nimbus")
    cluster.await_supervisors()
    check_placed(cluster, run)
    assert executors(cluster, run.name) == before
    run.await_end()
    run.check()
    cluster.nimbus.kill(run.name)
    with pytest.raises(StormError, match="nobody"):
        cluster.nimbus.kill("nobody")


def test_a_sink_that_cannot_write_says_so(cluster: LocalCluster, tmp_path: Path) -> None:
    run = Run(4, tmp_path)
    # Without end, so that there is always more to write.
    endless = replace(run.sources, count=None)
    document = topology(run.flow, endless, str(run.file), run.name)
    run.document.write_text(yaml.safe_dump(document, sort_keys=False))
    cluster.nimbus.submit(run.document)
    check_placed(cluster, run)
    until, failed = time.monotonic() + DONE_S, Path(f"{run.file}.failed")
    while not failed.exists():
        assert time.monotonic() < until, "the sink has not said so"
        # Again and again: a worker that ends for want of a file of its own is started anew.
        limit_files(cluster)
        time.sleep(0.2)
    cluster.nimbus.kill(run.name)
    found = results.read(run.file)
    assert "could not write its results" in str(found.loss(finished=False))


def limit_files(cluster: LocalCluster) -> None:
    """Keep the files of all workers small, but large enough for their heartbeats."""
    # A worker is started by the process that writes its log, which alone supervisors know.
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            command = line.read_bytes()
            if b"worker.Worker" in command and str(cluster.directory).encode() in command:
                process = int(line.parent.name)
                most = resource.prlimit(process, resource.RLIMIT_FSIZE)[1]
                resource.prlimit(process, resource.RLIMIT_FSIZE, (MOST_BYTES, most))


def executors(cluster: LocalCluster, name: str) -> dict[str, tuple[str, int]]:
    """Host and port of every component."""
    found = of_name(cluster.nimbus.status(), name)["executors"]
    return {one["component"]: (one["host"], one["port"]) for one in found}
