"""0.x, the generation of the paper: configuration of coordinator and workers, queries, REST calls.

The coordinator has one topology for all queries. Its bottom-up placement looks at the paths from
the sources to the root only, and puts a join where they meet first. So the links of an instance's
nodes are set to those of its view just before its query is submitted: both sources' nodes are
children of the join's, which is a child of the root: the coordinator's own worker, where 0.x keeps
every sink. Changed links affect later queries only, not running ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_nebulastream.current import file_name
from nova_nebulastream.views import Input, View, identifier

if TYPE_CHECKING:
    from nova_core.model.problem import Problem

REST_PORT = 8081
COORDINATOR_PORT = 4000
RPC_PORT = 4001
DATA_PORT = 4002
ROOT = 1
SLOTS = 65_535
# A buffer is sent when it is full, so it is filled in this time.
BUFFER_MS = 100
FIELDS = {"timestamp": "UINT64", "sequence": "UINT64", "key": "UINT64", "value": "FLOAT64"}
PREFIX = "/v1/nes"

Link = tuple[int, int]


@dataclass(frozen=True)
class Query:
    """One instance, as 0.x gets it.

    Attributes:
        instance: its name in the plan.
        text: the query.
        links: parent and child of each link of its view, and its latency in whole ms.
        join: worker that should join.
        left: worker of its left source.
        right: worker of its right source.
        filters: workers that should filter in front of the network; one twice for both inputs.
    """

    instance: str
    text: str
    links: tuple[tuple[int, int, int], ...]
    join: int
    left: int
    right: int
    filters: tuple[int, ...] = ()

    @property
    def body(self) -> dict[str, str]:
        """Of ``execute-query``."""
        return {"userQuery": self.text, "placement": "BottomUp"}


@dataclass(frozen=True)
class Deployment:
    """What is submitted to a coordinator.

    Attributes:
        rest: URL of its REST interface.
        workers: number of each node's worker; the sink's is `ROOT`.
        queries: one per instance.
    """

    rest: str
    workers: dict[str, int]
    queries: tuple[Query, ...]


def check(views: Sequence[View]) -> str:
    """The node all results go to, which must run the coordinator.

    Raises:
        NovaError: where there are several, or for a placement that 0.x cannot enforce.
    """
    sinks = list(dict.fromkeys(view.sink for view in views))
    if len(sinks) > 1:
        raise NovaError(
            f"plan: results go to {', '.join(sinks)}: NebulaStream 0.x keeps every sink on its "
            "coordinator's node; translate each join on its own, or use nes-version=current"
        )
    for view in views:
        if view.one_producer:
            raise NovaError(
                f"plan: {view.instance}: both inputs come from {view.left.node} and are to be "
                f"joined on {view.node}: NebulaStream 0.x joins them where their paths meet first, "
                f"on {view.left.node}; use nes-version=current"
            )
        for leg, other in ((view.left, view.right), (view.right, view.left)):
            if other.node in leg.route[1:-1]:
                raise NovaError(
                    f"plan: {view.instance}: {leg.source} is relayed by {other.node}, which "
                    f"produces {other.source}: NebulaStream 0.x joins them there; "
                    "use nes-version=current"
                )
        meeting = set(view.left.route[1:-1]) & set(view.right.route[1:-1])
        if meeting:
            raise NovaError(
                f"plan: {view.instance}: both inputs are relayed by {sorted(meeting)[0]}: "
                "NebulaStream 0.x joins them there; use nes-version=current"
            )
    return sinks[0]


def numbers(views: Sequence[View], root: str) -> dict[str, int]:
    """Workers' numbers: the sink's node is the root, all others follow."""
    nodes = dict.fromkeys(node for view in views for node in view.nodes)
    others = [node for node in nodes if node != root]
    return {root: ROOT} | {node: number for number, node in enumerate(others, ROOT + 1)}


def logical_names(views: Sequence[View]) -> dict[str, str]:
    """A logical source for every source, so that a query reads no other."""
    sources = dict.fromkeys(one.source for view in views for one in view.inputs)
    return {source: f"s{at}_{identifier(source)}" for at, source in enumerate(sources)}


def query_text(view: View, names: Mapping[str, str], window_ms: int, results: str) -> str:
    """The C++ query of an instance."""

    def stream(one: Input) -> str:
        condition = one.share.cpp("sequence")
        return f'Query::from("{names[one.source]}")' + (
            f".filter({condition})" if condition else ""
        )

    return (
        f"{stream(view.left)}.joinWith({stream(view.right)})"
        '.where(Attribute("key") == Attribute("key"))'
        f'.window(TumblingWindow::of(EventTime(Attribute("timestamp")), Milliseconds({window_ms})))'
        f'.sink(FileSinkDescriptor::create("{results}", "CSV_FORMAT", "APPEND"));'
    )


def deployment(
    views: Sequence[View],
    problem: Problem,
    addresses: Mapping[str, str],
    window_ms: int,
    results: str,
) -> Deployment:
    """Everything that is submitted.

    Args:
        views: checked (`check`).
        problem: has the latencies of links.
        addresses: of all nodes.
        window_ms: length of the windows.
        results: file on the sink's node; ``{instance}`` stands for the instance.
    """
    root = check(views)
    workers, names, index = numbers(views, root), logical_names(views), problem.node_index

    def latency(child: str, parent: str) -> int:
        import numpy as np

        ends = (np.array([index[child]]), np.array([index[parent]]))
        return round(float(problem.distance(*ends)[0]))

    queries = tuple(
        Query(
            view.instance,
            query_text(view, names, window_ms, results.replace("{instance}", file_name(view))),
            tuple((workers[up], workers[down], latency(down, up)) for down, up in view.links),
            workers[view.node],
            workers[view.left.node],
            workers[view.right.node],
            tuple(sorted(workers[one.node] for one in view.inputs if not one.share.whole)),
        )
        for view in views
    )
    return Deployment(f"http://{addresses[root]}:{REST_PORT}", workers, queries)


def coordinator(
    views: Sequence[View], addresses: Mapping[str, str], root: str, file: str
) -> dict[str, Any]:
    """The document ``coordinator.yaml``, for the sink's node."""
    worker = {"numberOfSlots": SLOTS, **_physical(views, root, file)}
    return {
        "restIp": addresses[root],
        "restPort": REST_PORT,
        "coordinatorHost": addresses[root],
        "rpcPort": COORDINATOR_PORT,
        "logicalSources": [
            {
                "logicalSourceName": name,
                "fields": [{"name": field, "type": kind} for field, kind in FIELDS.items()],
            }
            for name in logical_names(views).values()
        ],
        # The plan has cut and placed joins already.
        "optimizer": {"distributedJoinOptimizationMode": "NONE"},
        "worker": worker,
    }


def worker(
    views: Sequence[View],
    addresses: Mapping[str, str],
    workers: Mapping[str, int],
    node: str,
    file: str,
) -> dict[str, Any]:
    """The document ``worker.yaml`` of any other node."""
    root = next(name for name, number in workers.items() if number == ROOT)
    return {
        "localWorkerHost": addresses[node],
        "coordinatorHost": addresses[root],
        "coordinatorPort": COORDINATOR_PORT,
        "rpcPort": RPC_PORT,
        "dataPort": DATA_PORT,
        "numberOfSlots": SLOTS,
        "workerId": workers[node],
        "parentId": ROOT,
        **_physical(views, node, file),
    }


def _physical(views: Sequence[View], node: str, file: str) -> dict[str, Any]:
    names = logical_names(views)
    inputs = {one.source: one for view in views for one in view.inputs if one.node == node}
    sources = []
    for one in inputs.values():
        tuples = max(1, round(one.rate * BUFFER_MS / 1000))
        sources.append(
            {
                "logicalSourceName": names[one.source],
                "physicalSourceName": f"{names[one.source]}_physical",
                "type": "CSV_SOURCE",
                "configuration": {
                    "filePath": file.replace("{source}", identifier(one.source)),
                    "skipHeader": False,
                    "delimiter": ",",
                    "inputFormat": "CSV",
                    "numberOfBuffersToProduce": 0,
                    "numberOfTuplesToProducePerBuffer": tuples,
                    "sourceGatheringInterval": max(1, round(1000 * tuples / one.rate)),
                },
            }
        )
    return {"physicalSources": sources} if sources else {}


def changes(
    present: Iterable[Link], required: Sequence[tuple[int, int, int]]
) -> tuple[list[tuple[int, int, int]], list[Link]]:
    """Links to add to a topology and to remove, so that a view's nodes have its links only.

    Args:
        present: parent and child of each existing link.
        required: parent, child and latency of each of the view's links.
    """
    existing, links = set(present), {(parent, child) for parent, child, _ in required}
    children = {child for _, child in links}
    added = [one for one in required if one[:2] not in existing]
    removed = sorted(link for link in existing - links if link[1] in children)
    return added, removed
