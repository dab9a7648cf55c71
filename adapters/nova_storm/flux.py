"""A plan as a topology in Flux, Storm's own YAML of topologies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_engines.dataflow import FILTER, JOIN, RELAY, SELECT, SINK, SOURCE, Dataflow, Operator
from nova_storm.configuration import CONTROL, PLACEMENT

if TYPE_CHECKING:
    from nova_engines.query_flow import QueryFlow
    from nova_engines.workload import Workload

# Replaced at submission: a synthetic stream begins some time after it.
START = "${ENV-NOVA_START_MS}"
# How often idle spouts and bolts look again.
PARK_US = {"spout": 2000, "bolt": 1000}
FORBIDDEN = "./:\\"


def topology(
    dataflow: Dataflow,
    workload: Workload,
    results: str,
    name: str = "nova",
) -> dict[str, Any]:
    """The document.

    Components are named like the dataflow's operators, and have one executor each.

    Args:
        dataflow: what runs where.
        workload: what its sources emit; with ``start_ms`` 0 the start is given at submission.
        results: file of the first sink, on its node.
        name: of the topology.

    Raises:
        NovaError: for sources other than replays, or a name that Storm does not take.
    """
    known = {one.name: one for one in dataflow.operators}
    files = dataflow.result_files(results)
    numbers = {one.name: number for number, one in enumerate(dataflow.joins)}
    spouts = [
        component(one.name, "PacedSpout", _source(one, workload))
        for one in dataflow.of_kind(SOURCE)
    ]
    bolts = []
    for one in dataflow.operators:
        if one.kind in (FILTER, SELECT):
            low, high = zip(*one.intervals, strict=True)
            bolts.append(component(one.name, "PartitionFilter", [list(low), list(high)]))
        elif one.kind == RELAY:
            bolts.append(component(one.name, "Relay", [_carries_results(one, known)]))
        elif one.kind == JOIN:
            window, keys, every = workload.window_ms, workload.keys, workload.every
            arguments = [numbers[one.name], list(one.inputs), window, keys, every]
            bolts.append(component(one.name, "WindowJoin", arguments))
        elif one.kind == SINK:
            bolts.append(component(one.name, "ResultSink", [files[one.name]]))
    control = {CONTROL: workload.control} if workload.control else {}
    return document(name, dataflow, spouts, bolts, control)


def document(
    name: str,
    flow: Dataflow | QueryFlow,
    spouts: list[dict[str, Any]],
    bolts: list[dict[str, Any]],
    configuration: dict[str, Any],
) -> dict[str, Any]:
    """A topology of the given components, each with one executor on its node.

    Raises:
        NovaError: for a name that Storm does not take.
    """
    if not name or any(sign in name for sign in FORBIDDEN):
        raise NovaError(f"topology {name!r}: expected a name without any of {' '.join(FORBIDDEN)}")
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
            **configuration,
        },
        "spouts": spouts,
        "bolts": bolts,
        "streams": streams,
    }


def component(name: str, kind: str, arguments: list[Any]) -> dict[str, Any]:
    """One of Nova's spouts or bolts."""
    return {
        "id": name,
        "className": f"nova.storm.{kind}",
        "parallelism": 1,
        "constructorArgs": arguments,
    }


def _source(one: Operator, workload: Workload) -> list[Any]:
    number = workload.index(one.source)
    stream, count = workload.sources[number], workload.count_of(number)
    if stream.kind != "replay":
        raise NovaError(
            f"workload: source {stream.source!r}: kind {stream.kind!r}: on Storm sources replay; "
            "Flink reads from Kafka and sockets, Spark from Kafka"
        )
    return [
        number,
        [] if stream.path else list(stream.values),
        stream.path or "",
        stream.pace.numbers,
        workload.start_ms or START,
        -1 if count is None else count,
        workload.window_ms,
        workload.watermark_ms,
    ]


def _carries_results(relay: Operator, known: dict[str, Operator]) -> bool:
    """Whether what a relay passes on comes from a join."""
    one = relay
    while one.kind == RELAY:
        one = known[one.inputs[0]]
    return one.kind == JOIN
