"""Topologies of anybody's: a plan becomes nodes of their components, and one rebalancing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_storm.verification import POLL_S, held_against, of_name

if TYPE_CHECKING:
    from nova_engines.verification import Verification
    from nova_storm.nimbus import Nimbus

# Storm's own components: ackers, event loggers, consumers of metrics.
SYSTEM = "__"


def placement(
    plan: Path,
    components: Iterable[str],
    chosen: Mapping[str, str] | None = None,
    sources: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The node of every component of a topology.

    A spout is called like a source of the plan, a bolt like an operator, or like a query whose
    results it takes; any other is in ``chosen``. Storm's own components are with the first spout
    unless ``chosen`` says otherwise, so that it hears soon what has been done.

    Args:
        plan: of whole queries, as JSON.
        components: of the topology.
        chosen: nodes of components, whatever the plan says.
        sources: nodes of the problem's sources; a plan does not name those with which something
            else runs that sends their tuples on.

    Raises:
        NovaError: for a plan that cannot be read, or that cuts or lacks a component; or one that
            has an operator which the topology has not.
    """
    spouts = sources or {}
    known = _nodes(plan) | {name: {node} for name, node in spouts.items()}
    given = dict(chosen or {})
    there = list(components)
    for name in given:
        if name not in there:
            raise NovaError(f"component {name!r}: is not in the topology, which has {_told(there)}")
    found: dict[str, str] = {}
    for name in (one for one in there if not one.startswith(SYSTEM)):
        nodes = {given[name]} if name in given else known.get(name, set())
        if not nodes:
            raise NovaError(
                f"{plan}: component {name!r} is not in the plan, which has {_told(known)}; is it a "
                f"plan of another topology? --node {name}=NODE places it"
            )
        if len(nodes) > 1:
            raise NovaError(
                f"{plan}: component {name!r} is in pieces on {_told(sorted(nodes))}: a component "
                f"of a topology has one node; --node {name}=NODE chooses it"
            )
        found[name] = next(iter(nodes))
    missing = [name for name in _operators(plan) if name not in found]
    if missing:
        raise NovaError(
            f"{plan}: its operator {missing[0]!r} is not in the topology, which has "
            f"{_told(there)}; is it a plan of another topology?"
        )
    first = next(found[one] for wanted in (spouts, known, found) for one in found if one in wanted)
    for name in (one for one in there if one.startswith(SYSTEM)):
        found[name] = given.get(name, first)
    return found


def _told(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _document(plan: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(plan.read_text("utf-8"))
    except OSError as error:
        raise NovaError(f"{plan}: {error.strerror}") from error
    except ValueError as error:
        raise NovaError(f"{plan}: not JSON: {error}") from error
    if not isinstance(document, dict) or "rewriting" not in document or "edges" not in document:
        raise NovaError(
            f"{plan}: not a plan of whole queries with edges; write it with "
            "`nova plan -o FILE.json` from a problem with queries"
        )
    return document


def _called(operator: str) -> str:
    """An operator's id, of ``query/id(inputs)``."""
    name = operator.partition("/")[2].partition("(")[0]
    return name.replace("%2F", "/").replace("%2A", "*").replace("%25", "%")


def _operators(plan: Path) -> list[str]:
    return list(dict.fromkeys(_called(str(r["operator"])) for r in _document(plan)["instances"]))


def _nodes(plan: Path) -> dict[str, set[str]]:
    """Nodes of sources, operators and sinks, by name."""
    document = _document(plan)
    found: dict[str, set[str]] = {}
    rows = document["instances"]
    for edge in document["edges"]:
        if edge.get("producer") is None or edge.get("carries") is not None:
            found.setdefault(str(edge["carries"]), set()).add(str(edge["from"]))
        if edge.get("consumer") is None:
            query = str(rows[edge["producer"]]["operator"]).partition("/")[0]
            found.setdefault(query, set()).add(str(edge["to"]))
    for row in rows:
        found.setdefault(_called(str(row["operator"])), set()).add(str(row["node"]))
        for name in row.get("runs", ()):
            found.setdefault(_called(f"/{name}"), set()).add(str(row["node"]))
    return found


def components(status: Mapping[str, Any], topology: str) -> list[str]:
    """Names of a topology's components, Storm's own included, whether it is scheduled yet or not.

    Raises:
        NovaError: for a topology that nimbus does not know.
    """
    return [str(one) for one in of_name(status, topology)["components"]]


def move(nimbus: Nimbus, topology: str, nodes: Mapping[str, str]) -> None:
    """Have a running topology placed anew, by one rebalancing; it goes on at its new places.

    Raises:
        StormError: when nimbus refuses, or does not answer.
    """
    nimbus.rebalance(topology, nodes, len(set(nodes.values())))


def await_placed(
    nimbus: Nimbus,
    topology: str,
    nodes: Mapping[str, str],
    addresses: Mapping[str, str],
    timeout_s: float = 90.0,
) -> Verification:
    """Wait until all executors of a topology run on their nodes; how it is then or at the end."""
    until = time.monotonic() + timeout_s
    while True:
        status = nimbus.status(until - time.monotonic(), running=topology)
        seen = held_against(status, topology, nodes, addresses)
        if seen.ok or time.monotonic() > until:
            return seen
        time.sleep(POLL_S)
