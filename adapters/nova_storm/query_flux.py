"""A flow of queries as a topology in Flux, Storm's own YAML of topologies."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from nova_engines.query_flow import SINK, SOURCE
from nova_storm.flux import component, document

if TYPE_CHECKING:
    from nova_engines.query_flow import QueryFlow, Readings

# The class of the tuples, and its serializer.
SERIALIZERS = [{"nova.engines.query.Row": "nova.storm.query.Rows"}]


def topology(flow: QueryFlow, readings: Readings, results: str, name: str) -> dict[str, Any]:
    """The document; its readings are read from their files when it is submitted.

    Args:
        flow: what runs where.
        readings: what its sources replay.
        results: file of the first sink, on its node (`QueryFlow.result_files`).
        name: of the topology.

    Raises:
        NovaError: for a source without readings, or a name that Storm does not take.
    """
    files = flow.result_files(results)
    spouts, bolts = [], []
    for one in flow.operators:
        if one.kind == SOURCE:
            arguments = [
                readings.file(one.source),
                list(one.types),
                readings.first_ms,
                readings.start_ms,
                float(readings.speed),
                readings.watermark_ms,
            ]
            spouts.append(component(one.name, "query.RowSpout", arguments))
        else:
            path = files[one.name] if one.kind == SINK else ""
            arguments = [json.dumps(asdict(one)), path]
            bolts.append(component(one.name, "query.QueryBolt", arguments))
    registered = {"topology.kryo.register": SERIALIZERS}
    return document(name, flow, spouts, bolts, registered)
