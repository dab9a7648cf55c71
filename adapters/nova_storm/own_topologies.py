"""Places users' own topologies: a plan gives nodes to components, one rebalancing applies them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_engines.documents import read_plain
from nova_storm.verification import POLL_S, of_name, verify

if TYPE_CHECKING:
    from nova_core.io.plan_document import PlanDocument
    from nova_engines.verification import Verification
    from nova_storm.nimbus import Nimbus

# Storm's own components: ackers, event loggers, consumers of metrics.
SYSTEM = "__"
MOVE_S = 90.0


def placement(
    plan: Path,
    components: Iterable[str],
    chosen: Mapping[str, str] | None = None,
    sources: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The node of every component of a topology.

    A spout is named like a source of the plan, a bolt like an operator, or like a query whose
    results it takes; any other is in ``chosen``. Storm's own components run with the first spout
    unless ``chosen`` says otherwise, so that acknowledgements reach it soon.

    Args:
        plan: of whole queries, as JSON.
        components: of the topology.
        chosen: nodes of components, whatever the plan says.
        sources: nodes of the problem's sources; a plan omits those whose tuples an operator on the
            same node sends on.

    Raises:
        NovaError: for a plan that cannot be read, or that cuts or lacks a component; or one that
            has an operator that the topology lacks.
    """
    spouts = sources or {}
    document = _document(plan)
    known = _nodes(document) | {name: {node} for name, node in spouts.items()}
    overrides = dict(chosen or {})
    present = list(components)
    for name in overrides:
        if name not in present:
            raise NovaError(
                f"component {name!r}: is not in the topology, which has {_listed(present)}"
            )
    placed: dict[str, str] = {}
    for name in (one for one in present if not one.startswith(SYSTEM)):
        nodes = {overrides[name]} if name in overrides else known.get(name, set())
        if not nodes:
            raise NovaError(
                f"{plan}: component {name!r} is not in the plan, which has {_listed(known)}; is it "
                f"a plan of another topology? --node {name}=NODE places it"
            )
        if len(nodes) > 1:
            raise NovaError(
                f"{plan}: component {name!r} is in pieces on {_listed(sorted(nodes))}: a component "
                f"of a topology has one node; --node {name}=NODE chooses it"
            )
        placed[name] = next(iter(nodes))
    missing = [name for name in _operators(document) if name not in placed]
    if missing:
        raise NovaError(
            f"{plan}: its operator {missing[0]!r} is not in the topology, which has "
            f"{_listed(present)}; is it a plan of another topology?"
        )
    first = next(
        placed[one] for candidates in (spouts, known, placed) for one in placed if one in candidates
    )
    for name in (one for one in present if one.startswith(SYSTEM)):
        placed[name] = overrides.get(name, first)
    return placed


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _document(plan: Path) -> PlanDocument:
    from nova_core.io.plan_document import PlanDocument
    from nova_core.io.syntax import convert

    document = read_plain(plan)
    if not isinstance(document, dict) or "rewriting" not in document or "edges" not in document:
        raise NovaError(
            f"{plan}: not a plan of whole queries with edges; write it with "
            "`nova plan -o FILE.json` from a problem with queries"
        )
    typed = convert(document, plan, PlanDocument, NovaError)
    known = range(len(typed.instances))
    for number, edge in enumerate(typed.edges or ()):
        if not isinstance(edge.consumer, int) and edge.producer not in known:
            raise NovaError(f"{plan}: edges[{number}]: producer: is no row of instances")
    return typed


def _called(operator: str) -> str:
    """An operator's id, of ``query/id(inputs)``."""
    name = operator.partition("/")[2].partition("(")[0]
    return name.replace("%2F", "/").replace("%2A", "*").replace("%25", "%")


def _operators(document: PlanDocument) -> list[str]:
    return list(dict.fromkeys(_called(row.operator) for row in document.instances))


def _nodes(document: PlanDocument) -> dict[str, set[str]]:
    """Nodes of sources, operators and sinks, by name."""
    nodes: dict[str, set[str]] = {}
    rows = document.instances
    for edge in document.edges or ():
        if edge.carries:
            nodes.setdefault(edge.carries, set()).add(edge.source)
        if not isinstance(edge.consumer, int):
            assert isinstance(edge.producer, int)
            query = edge.sink or rows[edge.producer].operator.partition("/")[0]
            nodes.setdefault(query, set()).add(edge.target)
    for row in rows:
        nodes.setdefault(_called(row.operator), set()).add(row.node)
        for name in row.runs or ():
            nodes.setdefault(_called(f"/{name}"), set()).add(row.node)
    return nodes


def components(status: Mapping[str, Any], topology: str) -> list[str]:
    """Names of a topology's components, Storm's own included, whether it is scheduled yet or not.

    Raises:
        NovaError: for a topology that nimbus does not know.
    """
    return [str(one) for one in of_name(status, topology)["components"]]


def move(
    nimbus: Nimbus, topology: str, nodes: Mapping[str, str], addresses: Mapping[str, str]
) -> Verification:
    """Move a running topology by one rebalancing; it continues on its new nodes.

    Args:
        nimbus: of its cluster.
        topology: its name.
        nodes: of every component.
        addresses: of every node.

    Returns:
        Where its executors are once all run on their nodes, or after `MOVE_S`.

    Raises:
        StormError: when nimbus refuses, or does not answer.
    """
    nimbus.rebalance(topology, nodes, len(set(nodes.values())))
    until = time.monotonic() + MOVE_S
    while True:
        status = nimbus.status(until - time.monotonic(), running=topology)
        seen = verify(status, topology, nodes, addresses)
        if seen.ok or time.monotonic() > until:
            return seen
        time.sleep(POLL_S)
