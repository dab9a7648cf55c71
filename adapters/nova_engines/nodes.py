"""Hosts of an engine's cluster, as its configuration knows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nova_core.errors import NovaError
from nova_core.io.validation import is_host

if TYPE_CHECKING:
    from nova_core.model.problem import Problem

MB = 1 << 20
COORDINATOR = "coordinator"


class ConfigurationError(NovaError):
    """Hosts on which an engine cannot be configured as requested."""


@dataclass(frozen=True)
class Node:
    """A host of a cluster.

    Attributes:
        name: unique; as in the plan.
        address: what the other hosts reach it by.
        memory: bytes the engine's processes may use in all; None is no limit.
        cpu: cores it may use; None is no limit.
        role: ``coordinator`` for the one host that also runs the engine's master process.
    """

    name: str
    address: str
    memory: int | None = None
    cpu: float | None = None
    role: str = "worker"


def coordinator_of(nodes: Sequence[Node]) -> Node:
    """The one coordinator.

    Raises:
        ConfigurationError: where there is none, or more than one; or for two hosts of one name, or
            one without address.
    """
    coordinators = [node for node in nodes if node.role == COORDINATOR]
    if len(coordinators) != 1:
        listed = ", ".join(node.name for node in coordinators) or "none"
        raise ConfigurationError(f"hosts: exactly one must be the coordinator, found {listed}")
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            raise ConfigurationError(f"hosts: {node.name!r} is there twice")
        if not node.address:
            raise ConfigurationError(f"host {node.name}: address is missing")
        seen.add(node.name)
    return coordinators[0]


def bracketed(address: str) -> str:
    """An address as it stands before a port: IPv6 addresses need brackets."""
    return f"[{address}]" if ":" in address else address


def addresses(problem: Problem, nodes: Iterable[str]) -> dict[str, str]:
    """Where nodes of a problem are reached: at their ``host``, or their name.

    Raises:
        NovaError: for a node that is not in the problem, or that has neither.
    """
    known, index = problem.nodes, problem.node_index
    reached: dict[str, str] = {}
    for node in nodes:
        host = "" if known.host is None else str(known.host[index[node]])
        address = host or node
        if not is_host(address):
            what = f"host {host!r}" if host else "its name"
            raise NovaError(
                f"node {node!r}: {what} is no host name or IP address; give the node a host"
            )
        reached[node] = address
    return reached


def nodes_of(problem: Problem, coordinator: str, names: Iterable[str]) -> list[Node]:
    """Nodes of a problem as hosts of a cluster, the coordinator first.

    Raises:
        NovaError: for a coordinator that is no node, and as `addresses`.
    """
    index, memory = problem.node_index, problem.nodes.memory
    if coordinator not in index:
        raise NovaError(f"option coordinator: {coordinator!r} is no node of the problem")
    hosts = []
    for name, address in addresses(problem, dict.fromkeys((coordinator, *names))).items():
        most = 0 if memory is None else int(memory[index[name]])
        role = COORDINATOR if name == coordinator else "worker"
        hosts.append(Node(name, address, memory=most if most > 0 else None, role=role))
    return hosts


def write_files(files: Mapping[str, str | bytes], directory: Path) -> None:
    """Write files below a directory, each whole or not at all; scripts can be run."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.new")
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        if path.suffix == ".sh":
            temporary.chmod(0o755)
        temporary.replace(path)
