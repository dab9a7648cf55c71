"""Makes a PyFlink job run where a plan says: ``pin(environment, "plan.json")`` before it executes.

It needs pyflink and the standard library only, so that it can be used in a job's own environment.
The cluster's TaskManagers have to offer their nodes' external resources
(`nova_flink.configuration`, or what `nova translate` writes).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nova_core.errors import NovaError
from nova_flink import names

VERSION = 2  # of plans; nova_core.io.plan_document needs more than pyflink has
# Flink requires both; they are taken from a budget and limit nothing.
CPU_CORES, HEAP_MB = 0.01, 1
# Transformations that become no operator.
VIRTUAL = ("UnionTransformation", "PartitionTransformation", "SideOutputTransformation")


class PinError(NovaError):
    """A job that does not match the plan."""


def slot_sharing_group(gateway: Any, node: str) -> Any:
    """The (Java) slot-sharing group that only a node's TaskManager can take."""
    builder = gateway.jvm.org.apache.flink.api.common.operators.SlotSharingGroup.newBuilder(
        names.group(node)
    )
    return (
        builder.setCpuCores(CPU_CORES)
        .setTaskHeapMemoryMB(HEAP_MB)
        .setExternalResource(names.resource(node), 1.0)
        .build()
    )


def free_group(gateway: Any, operator: str) -> Any:
    """The (Java) slot-sharing group of one operator that any TaskManager can take."""
    builder = gateway.jvm.org.apache.flink.api.common.operators.SlotSharingGroup.newBuilder(
        f"free {operator}"
    )
    return builder.setCpuCores(CPU_CORES).setTaskHeapMemoryMB(HEAP_MB).build()


def pin(job: Any, plan: str | Path | Mapping[str, Any]) -> dict[str, str]:
    """Pin every operator of a job to the node the plan gives it, and name it after the plan.

    Sources are found by their names, which are the plan's source ids; an operator with one source
    runs on the source's node. The first operator that two or more sources reach is a join: it runs
    on the node of the pair's instance. A pair that is cut has a join for each instance, with the
    instance's id in its name. Everything behind a join runs on the sink's node.

    Args:
        job: a StreamExecutionEnvironment with all its sinks, a StatementSet (which is attached to
            its environment, to be executed from there), or a DataStream (it and its inputs are
            pinned; Flink puts what follows it on the same node).
        plan: path of a plan as JSON, or its content.

    Returns:
        Node of every operator, by its name.

    Raises:
        PinError: for operators that the plan or the job lacks; nothing is pinned then.
    """
    expected = _Expected.of(plan)
    matching = _Matching(expected)
    for root in _roots(job):
        for transformation in _inputs_first(root, matching.seen):
            matching.visit(transformation)
    matching.complete()
    from pyflink.java_gateway import get_gateway

    gateway = get_gateway()
    groups = {node: slot_sharing_group(gateway, node) for node in set(matching.node.values())}
    for identifier, name in matching.name.items():
        matching.seen[identifier].setName(name)
    for identifier, node in matching.node.items():
        matching.seen[identifier].setSlotSharingGroup(groups[node])
    return {
        str(matching.seen[identifier].getName()): node for identifier, node in matching.node.items()
    }


@dataclass(frozen=True)
class _Instance:
    id: str
    left: str
    right: str
    node: str
    sink: str


@dataclass(frozen=True)
class _Expected:
    """What a plan says of a job."""

    where: str
    sources: Mapping[str, str]
    instances: list[_Instance]

    @classmethod
    def of(cls, plan: str | Path | Mapping[str, Any]) -> _Expected:
        where = "plan" if isinstance(plan, Mapping) else str(plan)
        document = plan if isinstance(plan, Mapping) else _read(Path(plan))
        for section in ("instances", "edges"):
            if not document.get(section):
                raise PinError(f"{where}: {section}: there are none; write the plan with nova plan")
        try:
            return cls._of(where, document)
        except (LookupError, TypeError, AttributeError) as error:
            raise PinError(f"{where}: is damaged: {type(error).__name__}: {error}") from error

    @classmethod
    def _of(cls, where: str, document: Mapping[str, Any]) -> _Expected:
        rows = document["instances"]
        sources: dict[str, str] = {}
        sinks: dict[str, str] = {}
        inputs: dict[tuple[str, str], str] = {}
        for edge in document["edges"]:
            if "consumer" in edge:
                operator = rows[edge["consumer"]]["operator"]
                inputs[operator, edge["input"]] = edge["carries"]
                sources[edge["carries"]] = edge["from"]
            else:
                sinks[rows[edge["producer"]]["operator"]] = edge["to"]
        instances = []
        for row in rows:
            operator = row["operator"]
            identifier = f"{operator}#{row.get('replica', 0)}"
            for flow in ("left_route", "right_route", "result_route"):
                if len(route := row.get(flow, ())) > 2:
                    raise PinError(
                        f"{where}: {identifier}: its tuples are relayed ({' > '.join(route)}), "
                        "which takes operators of its own; build the job with nova_flink.builder"
                    )
            left, right = (inputs[operator, side] for side in ("left", "right"))
            instances.append(
                _Instance(identifier, left, right, row["node"], sinks.get(operator, ""))
            )
        return cls(where, sources, instances)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise PinError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PinError(f"{path}: not JSON: {error}") from error
    if not isinstance(document, dict) or "nova_plan" not in document:
        raise PinError(f"{path}: nova_plan is missing: this is no plan")
    if document["nova_plan"] != VERSION or "rewriting" in document:
        what = "a plan of joins of pairs"
        raise PinError(f"{path}: {what} in format version {VERSION} is needed")
    return document


def _roots(job: Any) -> list[Any]:
    """A job's last transformations."""
    if hasattr(job, "_j_statement_set"):
        job.attach_as_datastream()
        return list(job._t_env._j_tenv.execEnv().getTransformations())
    if hasattr(job, "_j_stream_execution_environment"):
        return list(job._j_stream_execution_environment.getTransformations())
    if hasattr(job, "_j_data_stream"):
        return [job._j_data_stream.getTransformation()]
    raise PinError(
        f"{type(job).__name__}: cannot be pinned; give a StreamExecutionEnvironment, a "
        "StatementSet or a DataStream (of a Table: to_data_stream)"
    )


def _inputs_first(root: Any, seen: dict[int, Any]) -> Iterator[Any]:
    """A transformation and all its inputs, in the order in which tuples pass them."""
    stack = [(root, False)]
    while stack:
        one, ready = stack.pop()
        if ready:
            yield one
        elif one.getId() not in seen:
            seen[one.getId()] = one
            stack.append((one, True))
            stack += [(each, False) for each in one.getInputs()]


@dataclass
class _Matching:
    """Matches the operators of a job with those of the plan.

    Attributes:
        expected: by the plan.
        seen: transformations by id.
        node: where each runs.
        name: of those that the plan names.
        sources: ids of the sources that reach each.
        sink: of those behind a join: the node of the sink.
        matched: ids of instances that the job has.
    """

    expected: _Expected
    seen: dict[int, Any] = field(default_factory=dict)
    node: dict[int, str] = field(default_factory=dict)
    name: dict[int, str] = field(default_factory=dict)
    sources: dict[int, frozenset[str]] = field(default_factory=dict)
    sink: dict[int, str] = field(default_factory=dict)
    matched: set[str] = field(default_factory=set)

    def visit(self, one: Any) -> None:
        """Place one transformation whose inputs are placed."""
        me, inputs = one.getId(), [each.getId() for each in one.getInputs()]
        if not inputs:
            source = self.source_called(str(one.getName()))
            self.sources[me] = frozenset([source])
            self.node[me], self.name[me] = self.expected.sources[source], f"source {source}"
            return
        self.sources[me] = frozenset().union(*(self.sources[each] for each in inputs))
        sinks = {self.sink[each] for each in inputs if each in self.sink}
        if len(sinks) > 1:
            raise PinError(
                f"operator {one.getName()!r} receives results for different sinks: "
                f"{', '.join(sorted(sinks))}"
            )
        if sinks:
            self.node[me] = self.sink[me] = sinks.pop()
        elif len(self.sources[me]) == 1:
            (source,) = self.sources[me]
            self.node[me] = self.expected.sources[source]
        elif one.getClass().getSimpleName() not in VIRTUAL:
            self.join(one)

    def source_called(self, name: str) -> str:
        """The plan's source that an operator's name refers to."""
        words = {_folded(word) for word in re.findall(r"[\w.-]+", name)} | {_folded(name)}
        known = self.expected.sources
        matches = [source for source in known if _folded(source) in words]
        if len(matches) != 1:
            reason = f"means {' or '.join(matches)}" if matches else "is not in the plan"
            raise PinError(
                f"{self.expected.where}: the job's source {name!r} {reason}; "
                f"the plan's sources are {', '.join(known)}"
            )
        return matches[0]

    def join(self, one: Any) -> None:
        """Place the operator where sources meet."""
        name, sources = str(one.getName()), self.sources[one.getId()]
        instances = [
            each
            for each in self.expected.instances
            if each.left in sources and each.right in sources
        ]
        together = " and ".join(sorted(sources))
        idle = sources - {source for each in instances for source in (each.left, each.right)}
        if idle:
            raise PinError(
                f"{self.expected.where}: the job joins {together} in {name!r}; in the plan no join "
                f"receives {', '.join(sorted(idle))} and one of the others"
            )
        called = [each for each in instances if _names(each.id, name)]
        instances = called or instances
        nodes = {each.node for each in instances}
        if len(nodes) > 1:
            raise PinError(
                f"{self.expected.where}: the job's {name!r} joins {together} in one operator, the "
                f"plan on {', '.join(sorted(nodes))}; it needs a join for each of "
                f"{', '.join(each.id for each in instances)}, with that in its name"
            )
        for each in instances:
            if each.id in self.matched:
                raise PinError(f"{self.expected.where}: the job has {each.id} twice")
            self.matched.add(each.id)
        self.node[one.getId()] = nodes.pop()
        self.name[one.getId()] = "join " + " + ".join(each.id for each in instances)
        self.sink[one.getId()] = instances[0].sink

    def complete(self) -> None:
        """Refuse a job that lacks something."""
        present = frozenset().union(*self.sources.values()) if self.sources else frozenset()
        lacking = [f"source {one}" for one in self.expected.sources if one not in present]
        lacking += [f"join {e.id}" for e in self.expected.instances if e.id not in self.matched]
        if lacking:
            raise PinError(f"{self.expected.where}: the job lacks {', '.join(lacking)}")


def _folded(name: str) -> str:
    """A name as SQL may have to write it: ``pressure-1`` is a table ``pressure_1``."""
    return re.sub(r"\W", "_", name).lower()


def _names(identifier: str, name: str) -> bool:
    return re.search(rf"{re.escape(identifier)}(?!\d)", name) is not None
