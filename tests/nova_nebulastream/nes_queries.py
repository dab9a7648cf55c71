"""Random queries with columns whose data never goes around, for NebulaStream."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml
from random_queries import random_problem, random_query_plan

from nova_core import read_problem
from nova_core.model import Plan


def forward_plan(seed: int, directory: Path) -> Plan:
    """A random plan whose data only goes to later nodes; sinks are on the last one."""
    random_problem(seed, directory, nodes=4)
    path = directory / "problem.yaml"
    document = yaml.safe_load(path.read_text())
    names = [node["id"] for node in document["nodes"]]
    for number, node in enumerate(document["nodes"]):
        node["host"] = f"127.0.0.{11 + number}"
    for query in document["queries"]:
        query["sink"] = names[-1]
    for source in document["sources"]:
        source["node"] = names[names.index(source["node"]) % 2]
    path.write_text(yaml.safe_dump(document, allow_unicode=True))
    plan = random_query_plan(seed, read_problem(path))
    node = plan.instances.node.copy()
    at_sources = plan.graph.node
    producers = plan.graph.links[0].tolist()
    begin, end, logical = (column.tolist() for column in plan.links[:3])
    for _ in range(len(node)):
        for a, b, link in zip(begin, end, logical, strict=True):
            if b >= 0:
                least = int(node[a]) if a >= 0 else int(at_sources[producers[link]])
                node[b] = max(int(node[b]), least)
    return replace(plan, instances=replace(plan.instances, node=np.asarray(node)))
