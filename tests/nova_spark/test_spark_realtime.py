"""What Real-Time Mode is given, and what it cannot run; that it runs is in the end-to-end test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from random_plans import NODES, flowing, random_plan

from nova_core.errors import NovaError
from nova_core.model.partitioner import partition_of
from nova_spark.flow import from_plan
from nova_spark.realtime import job_of

ADDRESSES = {f"n_{i}.x": f"10.0.0.{i}" for i in range(NODES)}


def test_every_join_gets_its_partitions_from_its_sources_hosts() -> None:
    plan = random_plan(1, nodes=NODES)
    workload = flowing(1, plan.problem, 0)
    flow = from_plan(plan, plan.problem, workload)
    job = job_of(flow, 0, workload, ADDRESSES)
    assert job["host"] == ADDRESSES[flow.sinks[0].node]
    assert [one["host"] for one in job["joins"]] == [
        ADDRESSES[join.stages[0].node] for join in flow.joins
    ]
    outputs = {
        (output["join"], output["left"]): (source, output)
        for source in job["sources"]
        for output in source["outputs"]
    }
    assert len(outputs) == 2 * len(flow.joins)
    sequence = np.arange(500)
    for number, join in enumerate(flow.joins):
        for left, side in ((True, join.left), (False, join.right)):
            source, output = outputs[number, left]
            assert source["number"] == workload.index(side.source)
            assert source["host"] == ADDRESSES[side.stages[0].node]
            part = partition_of(sequence, np.array(side.rates))
            wanted = [any(a <= one < b for a, b in side.ranges) for one in part.tolist()]
            assert np.array(output["passes"])[part].tolist() == wanted
            assert len(output["reached"]) == len(side.rates)


def test_what_cannot_run_is_refused() -> None:
    plan = random_plan(2, nodes=NODES, routes=True)
    workload = flowing(2, plan.problem, 0)
    flow = from_plan(plan, plan.problem, workload)
    with pytest.raises(NovaError, match="Real-Time Mode has no relays; plan without routes"):
        job_of(flow, 0, workload, ADDRESSES)
    plan = random_plan(2, nodes=NODES)
    flow = from_plan(plan, plan.problem, workload)
    with pytest.raises(NovaError, match=r"node 'n_\d\.x': it has no address"):
        job_of(flow, 0, workload, {})
    sockets = tuple(replace(one, kind="socket", address="a:1") for one in workload.sources)
    with pytest.raises(NovaError, match="kind 'socket': Real-Time Mode replays only"):
        job_of(flow, 0, replace(workload, sources=sockets), ADDRESSES)
