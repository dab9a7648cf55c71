"""Random plans in Real-Time Mode deliver what the reference join must, from the plan's nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from needs import skip_or_fail
from random_plans import NODES as NUMBER
from random_plans import flowing, random_plan, seeds, workload_of
from test_spark_e2e import QUICK, compare

from nova_core.model import Plan
from nova_engines.workload import Workload
from nova_spark import realtime
from nova_spark.driver import FAILED, FINISHED, READY, State
from nova_spark.engine import SPARK
from nova_spark.flow import Flow, from_plan
from nova_spark.local_cluster import LocalCluster
from nova_spark.rest import Rest
from nova_spark.verification import verify

pytestmark = pytest.mark.e2e
NODES = [f"n_{i}.x" for i in range(NUMBER)]
DONE_S = 150.0


@dataclass
class Driver:
    """The process that an experiment starts on the sink's host."""

    addresses: dict[str, str]
    orders: Path
    process: subprocess.Popen[bytes]
    numbers: Iterator[int]

    def await_state(self, name: str, *states: str) -> State:
        until = time.monotonic() + DONE_S
        while True:
            file = self.orders / name
            found = State.from_json(file.read_text()) if file.exists() else None
            if found is not None and found.state in states:
                return found
            assert found is None or found.state != FAILED, found.why
            assert self.process.poll() is None, (self.orders / "log").read_text()[-2000:]
            assert time.monotonic() < until, found
            time.sleep(0.1)

    def run(self, plan: Plan, workload: Workload, *states: str) -> tuple[Flow, State, Path]:
        number = next(self.numbers)
        flow = from_plan(plan, plan.problem, workload)
        results = self.orders / f"results-{number}"
        order = {
            "flow": flow.to_json(),
            "workload": workload.to_json(),
            "results": str(results),
            "checkpoints": str(self.orders / f"state-{number}"),
            "heaps": {},
        }
        unfinished = self.orders / "order.part"
        unfinished.write_text(json.dumps(order))
        unfinished.replace(self.orders / f"{number}.order.json")
        return flow, self.await_state(f"{number}.state.json", *states), results


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    if not SPARK.installed() and not os.environ.get("CI"):
        skip_or_fail("PySpark and Java are missing: pip install 'nova-placement[spark]'")
    settings = realtime.settings(512)
    directory = tmp_path_factory.mktemp("cluster")
    slots = realtime.SLOTS
    with LocalCluster(NODES, directory, python=sys.executable, slots=slots) as cluster:
        settings |= {
            **cluster.settings,
            "spark.driver.extraJavaOptions": f"{QUICK} -Xss8m",
            "spark.executor.extraJavaOptions": QUICK,
        }
        addresses = cluster.configuration.addresses
        orders = tmp_path_factory.mktemp("orders")
        command = [
            *(sys.executable, "-m", "nova_spark.driver", "--directory", str(orders)),
            *("--master", cluster.configuration.master_url, "--heaps", "{}"),
            *("--set", json.dumps(settings), "--real-time", json.dumps(addresses)),
        ]
        with (orders / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        made = Driver(addresses, orders, process, count())
        try:
            made.await_state("driver.json", READY)
            yield made
        finally:
            process.terminate()
            process.wait(30)


@pytest.mark.parametrize("seed", seeds(1))
def test_random_plans_without_relays_deliver_the_reference_from_their_nodes(
    driver: Driver, seed: int
) -> None:
    plan = random_plan(seed, nodes=NUMBER, sinks=1 + seed % 3 // 2)
    workload = flowing(seed, plan.problem, 0)
    flow, state, results = driver.run(plan, workload, FINISHED)
    compared = compare(plan, flow, workload, state.start_ms, results, on_time=False)
    assert compared.ok, compared
    assert compared.expected > 0

    told = driver.await_state("driver.json", READY)
    rest, planned = Rest(told.url, told.application), {s.name: s.node for s in flow.stages}
    found = verify(rest, state.steps, planned)
    assert found.ok, found
    assert len(found.rows) == len(flow.stages)
    assert all(row.actual for row in found.rows)
    # A wrong expectation is noticed.
    name, node = next(iter(planned.items()))
    other = next(one for one in NODES if one != node)
    wrong = verify(rest, state.steps, {**planned, name: other})
    assert [row.operator for row in wrong.rows if not row.ok] == [name]

    # A plan that leaves nodes out is not blamed for what the one before it ran there.
    alone = random_plan(seed, nodes=1, regions=1)
    assert alone.problem.nodes.ids.tolist() == NODES[:1] != sorted(set(planned.values()))
    flow, state, _ = driver.run(
        alone, workload_of(alone.problem, 0, seconds=1, window_ms=100), FINISHED
    )
    planned = {stage.name: stage.node for stage in flow.stages}
    found = verify(rest, state.steps, planned, driver.addresses)
    assert found.ok, found
    assert len(found.rows) == len(flow.stages)
    assert all(row.actual for row in found.rows)
    assert not verify(rest, state.steps, planned).ok


def test_an_order_that_cannot_run_leaves_the_driver(driver: Driver) -> None:
    plan = random_plan(2, nodes=NUMBER, routes=True)
    _, state, _ = driver.run(plan, flowing(2, plan.problem, 0), FAILED)
    assert "Real-Time Mode has no relays" in state.why
    assert driver.process.poll() is None
