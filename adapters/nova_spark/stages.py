"""Rules that place a user's own query as a plan says, stage by stage (`Stages.scala`).

A stage is identified by what it reads, and by whether it scans, joins or aggregates. A scan's
partitions go to the nodes of the stream's sources, in their order, and those of a join or an
aggregate to the nodes of its instances: Spark divides by its own hash, not by the plan's cuts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem

README = """\
# Where the stages of a Spark query run

Give this file to a query of batches or streams that reads {streams}:

    spark-submit --jars nova-spark.jar --conf spark.locality.wait=1h \\
      --conf spark.sql.extensions=org.apache.spark.sql.nova.Extensions \\
      --conf spark.nova.stages=stages.yaml job.py

`nova engines install spark` says where `nova-spark.jar` is. Streams are known by words in the names
of tables, topics and directories: change `reads` where yours are called otherwise.
"""
RULE = "  - {{reads: {reads}, kind: {kind}, hosts: [{hosts}]}}"


def files(plan: Plan, problem: Problem) -> dict[str, str]:
    """A bundle with the rules of a plan."""
    nodes, sources = problem.nodes, problem.sources
    hosts = nodes.ids if nodes.host is None else np.where(nodes.host == "", nodes.ids, nodes.host)
    at: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for stream, node in zip(sources.stream.tolist(), sources.node.tolist(), strict=True):
        at.setdefault(("scan", (stream,)), []).append(node)
    for pair, node in zip(plan.instances.pair.tolist(), plan.instances.node.tolist(), strict=True):
        at.setdefault(_stage(plan, pair), []).append(node)
    lines = [
        RULE.format(
            reads=f"[{', '.join(map(_quoted, streams))}]",
            kind=kind,
            hosts=", ".join(_quoted(str(hosts[node])) for node in placed),
        )
        for (kind, streams), placed in at.items()
    ]
    sinks = np.unique(problem.sinks).tolist()
    last = f'  - {{reads: "*", hosts: [{", ".join(_quoted(str(hosts[node])) for node in sinks)}]}}'
    streams = ", ".join(dict.fromkeys(sources.stream.tolist()))
    return {
        "stages.yaml": "\n".join(["stages:", *lines, last, ""]),
        "README.md": README.format(streams=streams),
    }


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


def _stage(plan: Plan, pair: int) -> tuple[str, tuple[str, ...]]:
    """What a stage does, and the streams that it reads, for an operator of a plan."""
    body = int(plan.graph.bodies[pair])
    kind = plan.graph[body].kind
    return kind if kind in ("join", "aggregate") else "other", _streams(plan, body)


def _streams(plan: Plan, number: int) -> tuple[str, ...]:
    operator = plan.graph[number]
    if operator.kind == "source":
        return (str(plan.problem.sources.stream[plan.graph.source[number]]),)
    streams = (stream for one in operator.inputs for stream in _streams(plan, one))
    return tuple(dict.fromkeys(streams))
