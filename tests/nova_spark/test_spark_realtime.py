"""What Real-Time Mode is given, and what it cannot run; that it runs is in the end-to-end test."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import NODES, match_of, random_plan, sources_of

from nova_core.errors import NovaError
from nova_engines.flow import CUT, RELAY, SELECT, Flow, Operator
from nova_engines.flow_of_plan import flow_of
from nova_engines.sources import Sources
from nova_spark.pairs import job_of
from nova_spark.tasks import Job

ADDRESSES = {f"n_{i}.x": f"10.0.0.{i}" for i in range(NODES)}
SEQUENCES = range(300)


def place(sequence: int) -> float:
    """By the text of the rule ``sequence-share``."""
    return float((sequence * 0x9E3779B97F4A7C15 % 2**64) >> 11) / float(2**53)


def passes(sequence: int, low: list[float], high: list[float]) -> bool:
    at = place(sequence)
    return not low or any(a <= at < b for a, b in zip(low, high, strict=True))


def sent_by(flow: Flow, name: str) -> tuple[str, set[int]]:
    """The source, and the tuples of it that an operator hands on."""
    one = {each.name: each for each in flow.operators}[name]
    if not one.inputs:
        return one.source, set(SEQUENCES)
    before = [sent_by(flow, each) for each in one.inputs]
    tuples = set(chain.from_iterable(each for _, each in before))
    if one.kind in (CUT, SELECT):
        tuples = {each for each in tuples if passes(each, list(one.low), list(one.high))}
    return before[0][0], tuples


def received(job: Job, piece: dict[str, Any], side: str, sources: Sources) -> tuple[str, set[int]]:
    """The same, of a side of a piece of a job."""
    document, tuples, names = job.document, [], set()
    for source in document["sources"]:
        for output in source["outputs"]:
            if output["path"] in piece[side]:
                assert document["paths"][output["path"]]["left"] == (side == "left")
                names.add(sources.sources[source["number"]].source)
                tuples += [one for one in SEQUENCES if passes(one, output["low"], output["high"])]
    (name,) = names
    # None comes twice: what instances share is sent once.
    assert len(tuples) == len(set(tuples))
    bounds = piece[f"{side}_low"], piece[f"{side}_high"]
    return name, {one for one in tuples if passes(one, *bounds)}


@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 2))
@settings(max_examples=30, deadline=None)
def test_a_job_is_what_the_dataflow_is(seed: int, routes: bool, sinks: int) -> None:
    plan = random_plan(seed, nodes=NODES, routes=routes, sinks=sinks)
    sources, match = sources_of(plan.problem, 0), match_of(seed)
    flow = flow_of(plan, match)
    jobs = [job_of(flow, sink, sources, ADDRESSES) for sink in flow.sinks]
    instances = []
    for job, sink in zip(jobs, flow.sinks, strict=True):
        document = job.document
        assert document["host"] == ADDRESSES[sink.node]
        told = document["window_ms"], document["keys"], document["every"]
        assert told == (match.window_ms, match.keys, match.every)
        for group in job.document["groups"]:
            for piece in group["pieces"]:
                instances.append(piece["instance"])
                join = flow.joins[piece["instance"]]
                assert group["host"] == ADDRESSES[join.node]
                for side, inputs in (("left", join.inputs), ("right", join.right)):
                    sent = [sent_by(flow, one) for one in inputs]
                    wanted = sent[0][0], set(chain.from_iterable(each for _, each in sent))
                    assert received(job, piece, side, sources) == wanted
        _tasks_are_at_their_nodes(job, flow)
    assert sorted(instances) == list(range(len(flow.joins)))
    assert {name for job in jobs for name in job.tasks} == {one.name for one in flow.operators}


def _tasks_are_at_their_nodes(job: Job, flow: Flow) -> None:
    d = job.document
    hosts = {
        "source": [one["host"] for one in d["sources"]],
        "join": [one["host"] for one in d["groups"]],
        "sink": [d["host"]],
        **{hop["name"]: hop["hosts"] for hop in (*d["inputs"], *d["results"])},
    }
    nodes = {one.name: one for one in flow.operators}
    for name, (part, task) in job.tasks.items():
        assert hosts[part][task] == ADDRESSES[nodes[name].node], name
        assert part.startswith("hop ") == (nodes[name].kind == RELAY)
    # Rows pass the relays of their way in its order, and wait where they are when it has no more.
    for number, path in enumerate(d["paths"]):
        begin = next(
            one["host"]
            for one in d["sources"]
            if any(output["path"] == number for output in one["outputs"])
        )
        _passes(flow, begin, [hop["hosts"][hop["slots"][number]] for hop in d["inputs"]])
        assert 0 <= path["group"] < len(d["groups"])


def _passes(flow: Flow, begin: str, hosts: list[str]) -> None:
    if not hosts:
        return
    known = {each.name: each for each in flow.operators}

    def walk(one: Operator) -> list[str]:
        if one.kind != RELAY:
            return [ADDRESSES[one.node]]
        (before,) = one.inputs
        return [*walk(known[before]), ADDRESSES[one.node]]

    ways = [walk(one) for one in flow.operators]
    assert any(
        way[0] == begin and way[1:] + [way[-1]] * (len(hosts) - len(way) + 1) == hosts
        for way in ways
    )


def test_what_cannot_run_is_refused() -> None:
    plan = random_plan(2, nodes=NODES)
    sources, flow = sources_of(plan.problem, 0), flow_of(plan, match_of(2))
    with pytest.raises(NovaError, match=r"node 'n_\d\.x': it has no address"):
        job_of(flow, flow.sinks[0], sources, {})
    sockets = tuple(replace(one, kind="socket", address="a:1") for one in sources.sources)
    with pytest.raises(NovaError, match="kind 'socket': Spark replays, or reads Kafka"):
        job_of(flow, flow.sinks[0], replace(sources, sources=sockets), ADDRESSES)
    surging = tuple(replace(one, surges=((1.0, 2.0, 3.0),)) for one in sources.sources)
    with pytest.raises(NovaError, match="surges: Spark replays at one rate"):
        job_of(flow, flow.sinks[0], replace(sources, sources=surging), ADDRESSES)
    crowded = random_plan(3, nodes=1, regions=60)
    sources, flow = sources_of(crowded.problem, 0), flow_of(crowded, match_of(3))
    with pytest.raises(
        NovaError, match=r"host 10\.0\.0\.0: \d+ tasks of Spark's; it has 128 slots"
    ):
        job_of(flow, flow.sinks[0], sources, ADDRESSES)
