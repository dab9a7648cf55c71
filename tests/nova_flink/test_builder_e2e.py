"""Random plans on a real cluster deliver exactly what the reference join must."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from needs_flink import SHARED_NODES, require
from random_plans import match_of, plan_of, random_plan, seeds, sources_of

from nova_core.errors import NovaError
from nova_core.model import Plan
from nova_engines import results
from nova_engines.flow import Flow, Match, Operator
from nova_engines.flow_of_plan import flow_of
from nova_engines.sources import Sources
from nova_flink.client import Client
from nova_flink.home import FlinkHome
from nova_flink.local_cluster import LocalCluster
from nova_flink.verification import verify
from nova_workloads.reference import Comparison, Reference, Results
from nova_workloads.schedule import Schedule, Tuples, all_tuples
from nova_workloads.streams import Stream

pytestmark = pytest.mark.e2e
NODES = SHARED_NODES
DONE_S = 120


def run(cluster: LocalCluster, client: Client, flow: Flow, sources: Sources, file: Path) -> str:
    """Run a bounded job to its end; its state."""
    job = client.submit(flow, sources, file, f"test {file.parent}")
    until = time.monotonic() + DONE_S
    while time.monotonic() < until:
        state = str(cluster.rest.job(job)["state"])
        if state in ("FINISHED", "FAILED", "CANCELED"):
            return state
        time.sleep(0.2)
    cluster.rest.cancel(job)
    raise AssertionError(f"not done after {DONE_S} s")


def tuples_of(sources: Sources) -> tuple[list[Stream], Tuples]:
    """What the sources must emit, by the reference's own schedule."""
    streams, blocks = [], []
    for number, one in enumerate(sources.sources):
        value = np.array(one.values)
        stream = Stream(one.sensor, one.region, one.stream, np.arange(len(value)), value)
        schedule = Schedule(rate=one.rate, start_ms=sources.start_ms, count=sources.count)
        emitted = all_tuples(schedule, [stream])
        streams.append(stream)
        blocks.append((np.full(len(emitted), number), emitted))
    return streams, Tuples(
        np.concatenate([number for number, _ in blocks]),
        *(
            np.concatenate([getattr(emitted, name) for _, emitted in blocks])
            for name in ("sequence", "time_ms", "value", "due")
        ),
    )


def compare(plan: Plan, flow: Flow, sources: Sources, file: Path) -> Comparison:
    """All that was delivered against the reference; every field of a result is looked at."""
    p = plan.problem
    streams, tuples = tuples_of(sources)
    pairs = list(zip(p.matrix.left.tolist(), p.matrix.right.tolist(), strict=True))
    keys, every = flow.joins[0].match
    reference = Reference(
        streams,
        tuples,
        flow.boundary_ms,
        keys=keys,
        every=every,
        pairs=pairs,
    )
    index = {one.name: i for i, one in enumerate(flow.sinks)}
    delivered = []
    for sink, path in flow.result_files(str(file)).items():
        found = results.read(Path(path))
        assert found.truncated_bytes == 0
        r = found.records
        node = p.nodes.ids[p.sink_node[plan.instances.pair[r["instance"]]]]
        assert set(node.tolist()) <= {flow.sinks[index[sink]].node}
        instance = plan.instances.pair[r["instance"]]
        assert (r["left_source"] == p.matrix.left[instance]).all()
        assert (r["right_source"] == p.matrix.right[instance]).all()
        if sources.sources[0].kind == "replay":
            assert (r["waited_us"] == 0).all()
        for side in ("left", "right"):
            assert (
                r[f"{side}_value"] == 1000 * r[f"{side}_source"] + r[f"{side}_sequence"] % 7
            ).all()
            assert (r[f"{side}_emit_us"] <= r["arrive_us"]).all()
        delivered.append(
            Results(
                r["left_source"].astype(np.int64),
                r["left_sequence"],
                r["right_source"].astype(np.int64),
                r["right_sequence"],
                r["time_ms"],
            )
        )
    return reference.compare(delivered)


@pytest.mark.parametrize("seed", seeds(4))
def test_random_plans_deliver_the_reference_from_their_nodes(
    cluster: LocalCluster, client: Client, tmp_path: Path, seed: int
) -> None:
    plan = plan_of(seed)
    # Half of what is to come is due at once, the other half while the job runs.
    sources = sources_of(plan.problem, (int(time.time()) - 1) * 1000)
    flow = flow_of(plan, match_of(seed))
    file = tmp_path / "results"
    assert run(cluster, client, flow, sources, file) == "FINISHED"
    compared = compare(plan, flow, sources, file)
    assert compared.ok, compared
    assert compared.expected > 0
    (job,) = (
        job for job, facts in cluster.rest.jobs().items() if facts["name"] == f"test {file.parent}"
    )
    assert verify(cluster.rest, job, flow).ok


def test_nothing_is_emitted_before_it_is_due(
    cluster: LocalCluster, client: Client, tmp_path: Path
) -> None:
    plan = random_plan(5, regions=1)
    start = (int(time.time()) + 8) * 1000
    sources = sources_of(plan.problem, start, seconds=3)
    flow = flow_of(plan, Match(10))
    file = tmp_path / "results"
    assert run(cluster, client, flow, sources, file) == "FINISHED"
    found = results.read(file)
    rate = np.array([one.rate for one in sources.sources])
    for side in ("left", "right"):
        due = np.floor(found[f"{side}_sequence"] * 1e6 / rate[found[f"{side}_source"]])
        assert (found[f"{side}_emit_us"] >= start * 1000 + due).all()
    # Windows are not joined before they end.
    assert (found["arrive_us"] >= (found["time_ms"] + 10) * 1000).mean() == 1


def test_what_java_refuses_is_said_in_a_line(
    cluster: LocalCluster, client: Client, tmp_path: Path
) -> None:
    plan = random_plan(1)
    sources = sources_of(plan.problem, 0, seconds=1)
    with pytest.raises(NovaError, match=r"^job 'empty': .*No operators defined"):
        client.submit(Flow(()), sources, tmp_path / "results", "empty")
    unknown = Flow((Operator("source x", NODES[0], "source", source="x"),))
    with pytest.raises(NovaError, match="sources: 'x' is not there"):
        client.submit(unknown, sources, tmp_path / "results", "unknown")


def test_a_cluster_that_is_not_there_is_said(tmp_path: Path) -> None:
    home = FlinkHome.default()
    require(home)
    plan = random_plan(1)
    sources = sources_of(plan.problem, 0, seconds=1)
    with (
        Client(home, "http://127.0.0.1:9") as client,
        pytest.raises(NovaError, match="Connection refused"),
    ):
        client.submit(flow_of(plan, Match(10)), sources, tmp_path / "results", "nowhere")
