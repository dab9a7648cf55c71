"""What ``nes-cli`` takes: a query with the part of the topology that it may use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from nova_core.errors import NovaError
from nova_nebulastream.queries import Input, Query

GRPC_PORT, DATA_PORT = 8080, 9090
HOST = re.compile(r"[A-Za-z0-9.-]+")
SCHEMA = Path(__file__).with_name("schema") / "topology.schema.json"

# Type, configuration and parser of a source.
Reads = Callable[[Input], tuple[str, dict[str, Any], dict[str, Any]]]


def worker(address: str) -> str:
    """What NebulaStream calls the worker at an address."""
    return f"{address}:{GRPC_PORT}"


def topology(
    query: Query,
    addresses: Mapping[str, str],
    reads: Reads,
    results: str,
    *,
    append: bool = False,
) -> dict[str, Any]:
    """The document of a query.

    Args:
        query: with its nodes.
        addresses: of these.
        reads: how its sources are read.
        results: file of the results, on the sink's node.
        append: whether what is in that file stays.
    """
    workers = []
    for node in query.nodes:
        one: dict[str, Any] = {
            "host": worker(addresses[node]),
            "data_address": f"{addresses[node]}:{DATA_PORT}",
        }
        if downstream := [worker(addresses[b]) for a, b in query.links if a == node]:
            one["downstream"] = downstream
        workers.append(one)
    sink = {
        "name": query.name,
        "host": worker(addresses[query.top.node]),
        "schema": _fields(query.fields),
        "type": "File",
        "config": {"file_path": results, "output_format": "CSV", "append": append},
        "parser_config": {"quote_strings": True},
    }
    return {
        "query": query.sql,
        "sinks": [sink],
        "logical": [{"name": one.stream, "schema": _fields(one.fields)} for one in query.inputs],
        "physical": [_physical(one, addresses, reads) for one in query.inputs],
        "workers": workers,
    }


def with_room(
    document: Mapping[str, Any], room: Mapping[str, int], addresses: Mapping[str, str]
) -> dict[str, Any]:
    """A topology whose workers may run so many operators, by node."""
    most = {worker(addresses[node]): count for node, count in room.items()}
    workers = [
        {**one, "max_operators": most[one["host"]]} if one.get("host") in most else one
        for one in document["workers"]
    ]
    return {**document, "workers": workers}


def _physical(one: Input, addresses: Mapping[str, str], reads: Reads) -> dict[str, Any]:
    kind, config, parser = reads(one)
    return {
        "logical": one.stream,
        "host": worker(addresses[one.node]),
        "type": kind,
        "source_config": config,
        "parser_config": {"type": "CSV", **parser},
    }


def _fields(fields: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    return [{"name": name, "type": kind} for name, kind in fields]


def text(document: Mapping[str, Any]) -> str:
    """A topology as YAML."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)


def placement(queries: list[Query], addresses: Mapping[str, str]) -> str:
    """For the hook in ``cpp/``: of each query, its sink and the workers of what is placed.

    These are joins and aggregates, from the sink down, left inputs first; the engine writes names
    in capitals.
    """
    lines = []
    for query in queries:
        workers = (worker(addresses[node]) for node in query.placed)
        lines.append(" ".join((query.name.upper(), *workers)) + "\n")
    return "".join(lines)


def distinct(addresses: Mapping[str, str]) -> dict[str, str]:
    """Network addresses of nodes, as NebulaStream can use them.

    Raises:
        NovaError: for one that cannot be part of ``address:port``, or that two nodes share.
    """
    taken: dict[str, str] = {}
    for node, address in addresses.items():
        if not HOST.fullmatch(address):
            raise NovaError(
                f"node {node!r}: address {address!r}: NebulaStream takes IPv4 addresses, and names "
                "of letters, digits, '-' and '.'"
            )
        other = taken.setdefault(address, node)
        if other != node:
            raise NovaError(
                f"node {node!r}: address {address!r}: is that of {other!r}; every worker "
                "needs one of its own"
            )
    return dict(addresses)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _string(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _string)
