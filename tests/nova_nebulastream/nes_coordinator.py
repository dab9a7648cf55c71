"""A stand-in of a 0.x coordinator: REST and bottom-up placement, as read in its sources.

It is no NebulaStream: it runs nothing. It keeps a topology, checks requests as the engine's
controllers do, places operators by the links there are when a query comes, and tells where.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

PLACEMENTS = ("BottomUp", "TopDown", "IFCOP", "ILP", "Manual")


@dataclass
class StandIn:
    """State of the coordinator.

    Attributes:
        producer: worker of each logical source's one physical source.
        parents: of each worker; the root, 1, has none.
        layout: ``old`` or ``new``, of the execution plan.
        ends: status a query ends up with.
        requests: what was asked for: method and path.
    """

    producer: dict[str, int]
    parents: dict[int, set[int]]
    layout: str = "new"
    ends: str = "RUNNING"
    queries: dict[int, dict[int, list[str]]] = field(default_factory=dict)
    polls: dict[int, int] = field(default_factory=dict)
    stopped: list[int] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @classmethod
    def started_from(cls, directory: Path, **how: Any) -> StandIn:
        """With the workers whose configuration a translation has written."""
        top = yaml.safe_load((directory / "coordinator.yaml").read_text())
        workers = [yaml.safe_load(f.read_text()) for f in (directory / "workers").iterdir()]
        assert all(w["coordinatorHost"] == top["coordinatorHost"] for w in workers)
        assert all(w["coordinatorPort"] == top["rpcPort"] for w in workers)
        logical = {one["logicalSourceName"] for one in top["logicalSources"]}
        producer: dict[str, int] = {}
        for number, sources in [(1, top["worker"]), *((w["workerId"], w) for w in workers)]:
            for one in sources.get("physicalSources", ()):
                assert one["logicalSourceName"] in logical
                assert one["logicalSourceName"] not in producer
                producer[one["logicalSourceName"]] = number
        assert set(producer) == logical
        return cls(producer, {1: set()} | {w["workerId"]: {w["parentId"]} for w in workers}, **how)

    def answer(self, method: str, path: str, query: dict[str, int], body: Any) -> tuple[int, Any]:
        """Status and document of a request."""
        if (method, path) == ("GET", "/topology"):
            edges = [
                {"source": c, "target": p} for c, up in self.parents.items() for p in sorted(up)
            ]
            nodes = [
                {"id": w, "ip_address": f"10.0.0.{w}", "available_resources": 65535, "location": {}}
                for w in self.parents
            ]
            return 200, {"nodes": nodes, "edges": edges}
        if path in ("/topology/addAsChild", "/topology/removeAsChild"):
            return self.link(path.endswith("addAsChild"), body["parentId"], body["childId"])
        if (method, path) == ("POST", "/query/execute-query"):
            return self.execute(body)
        number = query["queryId"]
        if number not in self.queries:
            return 404, {"code": 404, "message": f"No query with given ID: {number}"}
        if (method, path) == ("DELETE", "/query/stop-query"):
            self.stopped.append(number)
            return 202, {"success": True}
        if (method, path) == ("GET", "/query/query-status"):
            self.polls[number] = self.polls.get(number, 0) + 1
            status = self.ends if self.polls[number] > 1 else "OPTIMIZING"
            return 200, {"queryId": number, "status": status}
        if (method, path) == ("GET", "/query/execution-plan"):
            return 200, self.execution_plan(number)
        return 404, {"code": 404, "message": f"no endpoint {method} {path}"}

    def link(self, add: bool, parent: int, child: int) -> tuple[int, Any]:
        """Add or remove one."""
        for name, worker in (("childId", child), ("parentId", parent)):
            if worker not in self.parents:
                message = f"Could not add/remove parent: Node with {name}={worker} not found."
                return 400, {"code": 400, "message": message}
        if (parent in self.parents[child]) == add:
            state = "already" if add else "not"
            return 400, {"code": 400, "message": f"childId={child} is {state} a child of {parent}"}
        (self.parents[child].add if add else self.parents[child].remove)(parent)
        return 200, {"success": True}

    def execute(self, body: Any) -> tuple[int, Any]:
        """Place a query's operators, bottom up."""
        if "userQuery" not in body or body.get("placement") not in PLACEMENTS:
            return 400, {"code": 400, "message": "Invalid Placement Strategy"}
        text = body["userQuery"]
        names = re.findall(r'Query::from\("(\w+)"\)', text)
        if len(names) != 2 or any(name not in self.producer for name in names):
            return 400, {"code": 400, "message": f"logical source not found: {names}"}
        number = len(self.queries) + 1
        placed: dict[int, list[str]] = {}
        ends = [self.producer[name] for name in names]
        ancestors = [self.up(worker) for worker in ends]
        join = next(worker for worker in ancestors[0] if worker in ancestors[1])
        placed[1] = ["SINK(1: FileSinkDescriptor)"]
        if join != 1:
            placed[1].append("  |--SOURCE(9: NetworkSourceDescriptor)")
            placed[join] = ["SINK(10: NetworkSinkDescriptor)"]
        placed[join].append("  |--Join(2)")
        parts = text.split(".joinWith(")
        for name, worker, part in zip(names, ends, parts, strict=True):
            lines = placed.setdefault(worker, ["SINK(11: NetworkSinkDescriptor)"])
            if worker != join:
                placed[join].append("  |  |--SOURCE(12: NetworkSourceDescriptor)")
            lines.append("  |  |--WATERMARKASSIGNER(3)")
            if ".filter(" in part:
                lines.append("  |  |  |--FILTER(opId: 4: ...)")
            lines.append(f"  |  |  |--SOURCE(opId: 5: LogicalSourceDescriptor({name}))")
        self.queries[number] = placed
        return 202, {"queryId": number}

    def up(self, worker: int) -> list[int]:
        """A worker and all above it, nearest first."""
        found = [worker]
        for one in found:
            found += [parent for parent in sorted(self.parents[one]) if parent not in found]
        return found

    def execution_plan(self, number: int) -> Any:
        """As 0.5 (old) and 0.6 (new) tell it."""
        placed = {worker: "\n".join(lines) + "\n" for worker, lines in self.queries[number].items()}
        if self.layout == "old":
            nodes = [
                {
                    "executionNodeId": worker,
                    "topologyNodeId": worker,
                    "topologyNodeIpAddress": "10.0.0.1",
                    "ScheduledQueries": [
                        {
                            "queryId": number,
                            "querySubPlans": [{"querySubPlanId": 1, "operator": text}],
                        }
                    ],
                }
                for worker, text in placed.items()
            ]
            return {"executionNodes": nodes}
        new = [
            {
                "WorkerId": worker,
                "ScheduledDecomposedQueries": {
                    "SharedQueryId": number,
                    "DecomposedQueryPlans": [{"DecomposedQueryId": 1, "DecomposedQueryPlan": text}],
                },
            }
            for worker, text in placed.items()
        ]
        return {"ExecutionNodes": new}

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Answer requests; its URL."""
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                url = urlsplit(self.path)
                path = url.path.removeprefix("/v1/nes")
                stand_in.requests.append(f"{self.command} {path}")
                text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                query = {key: int(value[0]) for key, value in parse_qs(url.query).items()}
                body = json.loads(text) if text else {}
                status, document = stand_in.answer(self.command, path, query, body)
                payload = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            do_GET = do_POST = do_DELETE = handle_any  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
