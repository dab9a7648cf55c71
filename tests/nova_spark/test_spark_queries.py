"""Stages, tasks and ways of queries with columns; that they run is in the end-to-end test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from random_queries import SEEDS, random_problem, random_query_plan

from nova_core.errors import NovaError
from nova_engines.flow import SINK, SOURCE, Flow
from nova_engines.flow_of_plan import flow_of
from nova_engines.sources import READINGS, REPLAY, Source, Sources
from nova_spark.pairs import job_of
from nova_spark.queries import job_of_queries
from nova_spark.tasks import Job

ADDRESSES = {f"n_{i}.x": f"10.0.0.{i}" for i in range(3)}


def random_flow(seed: int, directory: Path) -> tuple[Flow, Sources]:
    problem = random_problem(seed, directory)
    flow = flow_of(random_query_plan(seed, problem))
    made_of = [Source(one.source, kind=READINGS, path=one.source) for one in flow.of_kind(SOURCE)]
    return flow, Sources(tuple(made_of), first_ms=1000, speed=2.0)


def places(job: Job, flow: Flow) -> dict[str, tuple[int, int]]:
    """Stage and task of every operator, as the document has them."""
    found = {}
    for number, stage in enumerate(job.document["stages"]):
        for task, operators in enumerate(stage["tasks"]):
            for one in operators:
                name = flow.operators[one].name
                assert name not in found
                found[name] = number, task
                assert job.tasks[name] == (stage["name"], task)
                assert stage["hosts"][task] == ADDRESSES[flow.operators[one].node], name
            # Operators come behind those that they receive from.
            assert operators == sorted(operators)
    return found


def hosts_of(path: dict[str, Any], stages: list[dict[str, Any]]) -> list[str]:
    """Hosts that a way passes."""
    behind = stages[path["stage"] + 1 :]
    passed = zip(behind, path["slots"], strict=False)
    return [stage["hosts"][slot] for stage, slot in passed]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_operator_is_in_a_task_of_its_node_and_receives_its_inputs(
    seed: int, tmp_path: Path
) -> None:
    flow, sources = random_flow(seed, tmp_path)
    job = job_of_queries(flow, sources, ADDRESSES, "/results")
    stages, paths = job.document["stages"], job.document["paths"]
    found = places(job, flow)
    assert set(found) == set(job.tasks) == set(flow.placement)
    assert all(len(stage["tasks"]) == len(stage["hosts"]) > 0 for stage in stages)
    # A task of the first stage has one source, with which it begins.
    for operators in stages[0]["tasks"]:
        assert [flow.operators[one].kind for one in operators].count(SOURCE) == 1
        assert flow.operators[operators[0]].kind == SOURCE
    ends = set()
    for path in paths:
        producer = flow.operators[path["producer"]]
        begin, _ = found[producer.name]
        assert path["stage"] == begin
        last = begin + len(path["slots"])
        ends.add((producer.name, last, path["slots"][-1]))
        # What waits for a later stage waits where it is.
        hosts = hosts_of(path, stages)
        assert hosts[:-1] == [ADDRESSES[producer.node]] * (len(hosts) - 1)
    assert len(ends) == len(paths)
    needed = {
        (name, *found[one.name])
        for one in flow.operators
        for name in (*one.inputs, *one.right)
        if found[name] != found[one.name]
    }
    assert ends == needed


def test_a_document_has_what_tasks_need(tmp_path: Path) -> None:
    flow, sources = random_flow(SEEDS[0], tmp_path)
    job = job_of_queries(flow, sources, ADDRESSES, "/results")
    operators = job.document["operators"]
    names = [one["name"] for one in operators]
    for one, told in zip(flow.operators, operators, strict=True):
        assert [names[number] for number in told["inputs"]] == [*one.inputs, *one.right]
        assert (one.kind in (SOURCE, SINK)) == bool(told["file"])
    assert [one["file"] for one in operators if one["kind"] == SINK] == ["/results", "/results.1"]
    assert job.document["first_ms"] == 1000
    assert job.document["speed"] == 2.0
    assert [one.end for one in job.sources] == [1] * len(sources.sources)
    without = job_of_queries(flow, replace(sources, first_ms=None), ADDRESSES, "/results")
    assert "first_ms" not in without.document


def test_what_cannot_run_is_refused(tmp_path: Path) -> None:
    flow, sources = random_flow(SEEDS[0], tmp_path)
    with pytest.raises(NovaError, match=r"node 'n_\d\.x': it has no address"):
        job_of_queries(flow, sources, {}, "/results")
    replays = tuple(
        Source(one.source, rate=1.0, values=(1.0,), kind=REPLAY) for one in sources.sources
    )
    with pytest.raises(NovaError, match="kind 'replay': tuples with columns are readings"):
        job_of_queries(flow, Sources(replays), ADDRESSES, "/results")
    # The fast path of pairs does not take rows.
    with pytest.raises(NovaError, match="jobs of pairs have no tuples with columns"):
        job_of(flow, flow.sinks[0], sources, ADDRESSES)
