"""A plan as a topology in Flux, Storm's own YAML of topologies."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from nova_core.errors import NovaError
from nova_engines.flow import CUT, JOIN, RELAY, SELECT, SINK, SOURCE, Flow, Operator
from nova_engines.sources import READINGS, REPLAY, Sources
from nova_storm.configuration import CONTROL, PLACEMENT

# Replaced at submission: a synthetic stream begins some time after it.
START = "${ENV-NOVA_START_MS}"
# How often idle spouts and bolts look again.
PARK_US = {"spout": 2000, "bolt": 1000}
FORBIDDEN = "./:\\"
# The class of tuples with columns, and its serializer.
SERIALIZERS = [{"nova.engines.query.Row": "nova.storm.query.Rows"}]


def topology(flow: Flow, sources: Sources, results: str, name: str = "nova") -> dict[str, Any]:
    """The document.

    Components are named like the flow's operators, and have one executor each. Files of sources are
    read when it is submitted.

    Args:
        flow: what runs where.
        sources: where its tuples come from; with ``start_ms`` 0 they begin as the submission says.
        results: file of the first sink, on its node (`Flow.result_files`).
        name: of the topology.

    Raises:
        NovaError: for sources other than replays and readings, or a name that Storm does not take.
    """
    if not name or any(sign in name for sign in FORBIDDEN):
        raise NovaError(f"topology {name!r}: expected a name without any of {' '.join(FORBIDDEN)}")
    spouts = [_source(one, flow, sources) for one in flow.of_kind(SOURCE)]
    others = [one for one in flow.operators if one.kind != SOURCE]
    files = flow.result_files(results)
    own: dict[str, Any] = {CONTROL: sources.control} if sources.control else {}
    if flow.has_columns:
        own["topology.kryo.register"] = SERIALIZERS
        bolts = [
            _component(one, "query.QueryBolt", [json.dumps(asdict(one)), files.get(one.name, "")])
            for one in others
        ]
    else:
        numbers = {one.name: number for number, one in enumerate(flow.joins)}
        bolts = [_bolt(one, flow, numbers, files) for one in others]
    streams = [
        {"from": sender, "to": one.name, "grouping": {"type": "GLOBAL"}}
        for one in flow.operators
        for sender in (*one.inputs, *one.right)
    ]
    return {
        "name": name,
        "config": {
            PLACEMENT: flow.placement,
            "topology.workers": len(flow.nodes),
            # Nothing is replayed, so tuples need no acknowledgements.
            "topology.acker.executors": 0,
            "topology.eventlogger.executors": 0,
            "topology.spout.wait.strategy": "org.apache.storm.policy.WaitStrategyPark",
            "topology.spout.wait.park.microsec": PARK_US["spout"],
            "topology.bolt.wait.strategy": "org.apache.storm.policy.WaitStrategyPark",
            "topology.bolt.wait.park.microsec": PARK_US["bolt"],
            **own,
        },
        "spouts": spouts,
        "bolts": bolts,
        "streams": streams,
    }


def _component(one: Operator, kind: str, arguments: list[Any]) -> dict[str, Any]:
    """One of Nova's spouts or bolts."""
    return {
        "id": one.name,
        "className": f"nova.storm.{kind}",
        "parallelism": 1,
        "constructorArgs": arguments,
    }


def _source(one: Operator, flow: Flow, sources: Sources) -> dict[str, Any]:
    number = sources.index(one.source)
    stream, count = sources.sources[number], sources.count_of(number)
    if stream.kind != (READINGS if one.types else REPLAY):
        raise NovaError(
            f"source {stream.source!r}: kind {stream.kind!r}: on Storm sources replay; "
            "Flink reads from Kafka and sockets, Spark from Kafka"
        )
    if one.types:
        arguments: list[Any] = [
            number,
            stream.path,
            list(one.types),
            sources.begin_ms or START,
            sources.start_ms or START,
            float(sources.speed),
            sources.watermark_ms,
            sources.last_ms or 0,
        ]
        return _component(one, "query.RowSpout", arguments)
    arguments = [
        number,
        [] if stream.path else list(stream.values),
        stream.path or "",
        stream.pace.numbers,
        sources.start_ms or START,
        -1 if count is None else count,
        flow.boundary_ms,
        sources.watermark_ms,
    ]
    return _component(one, "PacedSpout", arguments)


def _bolt(
    one: Operator, flow: Flow, numbers: dict[str, int], files: dict[str, str]
) -> dict[str, Any]:
    """A bolt of tuples without columns."""
    if one.kind in (CUT, SELECT):
        return _component(one, "PartitionFilter", [list(one.low), list(one.high)])
    if one.kind == RELAY:
        return _component(one, "Relay", [flow.origin(one.name).kind == JOIN])
    if one.kind == JOIN:
        arguments = [numbers[one.name], list(one.inputs), one.window[0], *one.match]
        return _component(one, "WindowJoin", arguments)
    if one.kind == SINK:
        return _component(one, "ResultSink", [files[one.name]])
    raise NovaError(f"{one.name}: a {one.kind} of tuples without columns")
