"""Topologies of the current generation: what ``nes-cli`` takes, one per join instance.

Its placement is an integer program over the topology of the call (bottom-up): sources and sinks sit
on their hosts and take no room, every other operator takes one unit of its worker's
``max_operators``, an operator's input is on its worker or upstream of it, and operators are drawn
towards their sources. Below a join, each input has a watermark assigner, and a selection where it
is cut, in either order. In a view the join's worker has room, and a source's worker with a cut
input has room for just the operators of its inputs: the uncut stream is not sent, and the join fits
nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nova_nebulastream.views import Input, View, identifier

GRPC_PORT = 8080
DATA_PORT = 9090
# What the engine's own examples give workers that are to take everything.
ROOM = 10_000
SCHEMA = Path(__file__).with_name("schema") / "topology.schema.json"


@dataclass(frozen=True)
class Streams:
    """The properties of the streams that a query needs.

    Attributes:
        window_ms: length of the tumbling windows over event time.
        source: ``generator`` for synthetic tuples at the source's rate, or ``file``.
        file: CSV file on the source's node, for ``file``; ``{source}`` stands for its name.
        results: file on the sink's node; ``{instance}`` stands for the instance.
    """

    window_ms: int
    source: str
    file: str
    results: str


def stream_name(one: Input) -> str:
    """The logical source of an input; never a word of the language."""
    return f"{one.side}_{identifier(one.source)}"


def sink_name(view: View) -> str:
    """The sink of an instance's results, by which the hook in ``cpp/`` identifies the query."""
    return f"nova_results_{view.number}"


def query(view: View, window_ms: int) -> str:
    """The SQL of an instance."""
    inputs = []
    for one in view.inputs:
        condition = one.share.sql(f"{one.side}_sequence")
        where = f" WHERE {condition}" if condition else ""
        inputs.append(f"(SELECT * FROM {stream_name(one)}{where})")
    return (
        f"SELECT {', '.join(_RESULT)}\n"
        "FROM (\n"
        f"  SELECT * FROM {inputs[0]}\n"
        f"  INNER JOIN {inputs[1]}\n"
        "  ON left_key = right_key\n"
        f"  WINDOW TUMBLING (left_timestamp, right_timestamp, size {window_ms} ms)\n"
        ")\n"
        f"INTO {sink_name(view)};\n"
    )


def topology(view: View, addresses: Mapping[str, str], streams: Streams) -> dict[str, Any]:
    """The document of an instance.

    Args:
        view: its view of the topology.
        addresses: of the view's nodes.
        streams: what flows.
    """
    hosts = {node: f"{addresses[node]}:{GRPC_PORT}" for node in view.nodes}
    results = streams.results.replace("{instance}", file_name(view))
    return {
        "query": query(view, streams.window_ms),
        "sinks": [
            {
                "name": sink_name(view),
                "host": hosts[view.sink],
                "schema": _fields(_RESULT),
                "type": "File",
                "config": {"file_path": results, "output_format": "CSV"},
                "parser_config": {},
            }
        ],
        "logical": [
            {"name": stream_name(one), "schema": _fields(_schema(one.side))} for one in view.inputs
        ],
        "physical": [_physical(one, hosts[one.node], streams) for one in view.inputs],
        "workers": [_worker(view, node, addresses, hosts) for node in view.nodes],
    }


def text(document: Mapping[str, Any]) -> str:
    """A topology as YAML."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)


def file_name(view: View) -> str:
    """Name of an instance's files, without suffix; starts with its number."""
    return f"{view.number:04d}-{identifier(view.instance)}"


def _schema(side: str) -> dict[str, str]:
    return {
        f"{side}_timestamp": "UINT64",
        f"{side}_sequence": "UINT64",
        f"{side}_key": "UINT64",
        f"{side}_value": "FLOAT64",
    }


def _fields(schema: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "type": kind} for name, kind in schema.items()]


# In the order of the query's SELECT.
_RESULT = {
    "start": "UINT64",
    "end": "UINT64",
    "left_key": "UINT64",
    "left_sequence": "UINT64",
    "left_value": "FLOAT64",
    "right_sequence": "UINT64",
    "right_value": "FLOAT64",
}


def _physical(one: Input, host: str, streams: Streams) -> dict[str, Any]:
    config: dict[str, Any] = {"file_path": streams.file.replace("{source}", identifier(one.source))}
    if streams.source == "generator":
        step = max(1, round(1000 / one.rate))
        config = {
            "generator_rate_type": "FIXED",
            "generator_rate_config": f"emit_rate {one.rate:g}",
            "stop_generator_when_sequence_finishes": "NONE",
            "seed": 1,
            # Event time in whole ms; keys are sequence numbers, so that tuples join one to one.
            "generator_schema": f"SEQUENCE UINT64 0 {10**15} {step}\n"
            f"SEQUENCE UINT64 0 {10**15} 1\n"
            f"SEQUENCE UINT64 0 {10**15} 1\n"
            "NORMAL_DISTRIBUTION FLOAT64 0 1\n",
        }
    return {
        "logical": stream_name(one),
        "host": host,
        "parser_config": {"type": "CSV"},
        "type": "Generator" if streams.source == "generator" else "File",
        "source_config": config,
    }


def _worker(
    view: View, node: str, addresses: Mapping[str, str], hosts: Mapping[str, str]
) -> dict[str, Any]:
    worker: dict[str, Any] = {
        "host": hosts[node],
        "data_address": f"{addresses[node]}:{DATA_PORT}",
        "max_operators": ROOM if node == view.node else view.room.get(node, 0),
    }
    downstream = [hosts[target] for source, target in view.links if source == node]
    if downstream:
        worker["downstream"] = downstream
    return worker


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _string(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _string)
