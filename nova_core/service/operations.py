"""The operations of the service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version as version_of

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from nova_core.errors import PlanError, ProblemError
from nova_core.explain import Explainer, find_node
from nova_core.io.plan_document import PlanDocument
from nova_core.io.problem_document import ProblemDocument
from nova_core.io.problem_writing import document_text
from nova_core.left_out import left_out
from nova_core.model.plan import Plan
from nova_core.model.plan_delta import PlanDelta
from nova_core.model.problem import Problem
from nova_core.placement.live import Event, parse_event
from nova_core.service.archives import TAR
from nova_core.service.documents import (
    DeltaList,
    DeltaQuery,
    EventHeaders,
    ExplainQuery,
    Explanation,
    Health,
    PlacementList,
    PlacementRequest,
    PlacementSummary,
    PlaceRequest,
    ProblemList,
    ProblemSummary,
    StreamHeaders,
    StreamQuery,
)
from nova_core.service.endpoints import Endpoints, operation, respond
from nova_core.service.hosted import HostedPlacement
from nova_core.service.intake import text_of
from nova_core.service.openapi import JSON
from nova_core.service.refusals import RefusedError
from nova_core.service.requests import YAML, Receiver, parameters_of, until_left
from nova_core.service.settings import SMALL
from nova_core.service.store import Store

# Bytes of an event; a batch of some ten thousand has as many.
EVENTS = 2**20


class Operations(Endpoints):
    """All operations on a store."""

    def __init__(self, store: Store) -> None:
        """Prepare to work on a store."""
        self._store = store
        self._receiver = Receiver(store.settings.directory, store.settings.limit)

    def _placement(self, request: Request) -> HostedPlacement:
        return self._store.placement(request.path_params["name"])

    # --- events and what they change --------------------------------------------------------------

    @operation(
        "POST /placements/{name}/events",
        PlanDelta,
        (409, 412, 503),
        body=Event,
        headers=EventHeaders,
        tagged=True,
    )
    async def follow(self, request: Request) -> Response:
        """Follow an event, or a batch of them as one; what changes."""
        placement = self._placement(request)
        tag = parameters_of(request.headers, EventHeaders).if_match
        expected = None if tag == "*" else int(tag.strip('"'))
        content = await self._receiver.small(request, EVENTS)
        if len(content) <= SMALL:
            event = parse_event(content)
        else:
            event = await asyncio.to_thread(parse_event, content)
        try:
            text, version = await placement.follow(event, expected)
        except ProblemError as error:
            # Valid, but impossible in the placement's current state.
            raise RefusedError(409, str(error)) from None
        return respond(text, version=version)

    @operation("GET /placements/{name}/deltas", DeltaList, (410, 503), query=DeltaQuery)
    async def deltas(self, request: Request) -> Response:
        """Deltas after a version."""
        placement = self._placement(request)
        query = parameters_of(request.query_params, DeltaQuery)
        texts = [msgspec.Raw(text) for text in placement.deltas(query.after, query.limit)]
        return respond(DeltaList(version=query.after + len(texts), deltas=texts))

    @operation(
        "GET /placements/{name}/deltas/stream",
        "text/event-stream",
        (410, 503),
        query=StreamQuery,
        headers=StreamHeaders,
    )
    async def stream(self, request: Request) -> Response:
        """Deltas as server-sent events, from a version on or from now, without end.

        The id of an event ``delta`` is the version that it leads to.
        """
        placement = self._placement(request)
        after = parameters_of(request.query_params, StreamQuery).after
        reached = parameters_of(request.headers, StreamHeaders).last_event_id
        after = next((v for v in (reached, after) if v is not UNSET), placement.version)
        # Refused before the stream begins, while a status can be sent.
        placement.deltas(after, 1)
        return StreamingResponse(
            placement.stream(after),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    # --- problems ---------------------------------------------------------------------------------

    @operation("GET /problems", ProblemList)
    async def problems(self, _: Request) -> Response:
        """Uploaded problems."""
        return respond(ProblemList(problems=self._store.problem_ids()))

    @operation(
        "POST /problems",
        ProblemSummary,
        (408, 503),
        statuses=(201, 200),
        body=ProblemDocument,
        other_kinds=(YAML, TAR),
    )
    async def upload(self, request: Request) -> Response:
        """Upload a problem; its id."""
        async with self._receiver.any(request, JSON, YAML, TAR) as (body, size):
            kind = request.headers["content-type"]
            answer = await until_left(request, self._store.add_problem(body, size, kind))
        return respond(answer["summary"], 201 if answer["fresh"] else 200)

    @operation("GET /problems/{problem_id}", ProblemDocument)
    async def read_problem(self, request: Request) -> Response:
        """An uploaded problem."""
        problem = await self._store.problem(request.path_params["problem_id"])
        return respond(await asyncio.to_thread(_problem_text, problem))

    @operation("DELETE /problems/{problem_id}", None, (503,), statuses=(204,))
    async def remove_problem(self, request: Request) -> Response:
        """Forget a problem; placements of it stay."""
        self._store.remove_problem(request.path_params["problem_id"])
        return Response(status_code=204)

    @operation("POST /problems/{problem_id}/plan", PlanDocument, (409,), body=PlaceRequest)
    async def place(self, request: Request) -> Response:
        """Place a problem; the plan is not kept."""
        how = await self._receiver.small(request, SMALL)
        problem_id = request.path_params["problem_id"]
        return respond(await until_left(request, self._store.place(problem_id, how)))

    # --- placements -------------------------------------------------------------------------------

    @operation("GET /placements", PlacementList)
    async def placements(self, _: Request) -> Response:
        """Live placements."""
        summaries = [placement.summary for placement in self._store.placements.values()]
        return respond(PlacementList(placements=summaries))

    @operation(
        "POST /placements",
        PlacementSummary,
        (404, 408, 409, 503),
        statuses=(201,),
        body=PlacementRequest,
    )
    async def begin(self, request: Request) -> Response:
        """Begin a live placement."""
        async with self._receiver.any(request, JSON) as (body, size):
            placement = await until_left(request, self._store.begin(body, size))
        answer = respond(placement.summary, 201, placement.version)
        answer.headers["Location"] = f"/placements/{placement.name}"
        return answer

    @operation("GET /placements/{name}", PlacementSummary, (503,), tagged=True)
    async def placement(self, request: Request) -> Response:
        """A live placement in a few figures."""
        placement = self._placement(request)
        return respond(placement.summary, version=placement.version)

    @operation("DELETE /placements/{name}", None, (503,), statuses=(204,))
    async def end(self, request: Request) -> Response:
        """End a live placement and drop what is kept of it."""
        await self._store.end(request.path_params["name"])
        return Response(status_code=204)

    @operation("GET /placements/{name}/plan", PlanDocument, (409, 503), tagged=True)
    async def placement_plan(self, request: Request) -> Response:
        """The plan as it is."""
        return await self._read_out(request, text_of)

    @operation("GET /placements/{name}/problem", ProblemDocument, (503,), tagged=True)
    async def placement_problem(self, request: Request) -> Response:
        """The problem that the plan answers, as events have left it."""
        return await self._read_out(request, lambda plan: _problem_text(plan.problem))

    @operation(
        "GET /placements/{name}/explain",
        Explanation,
        (503,),
        query=ExplainQuery,
        tagged=True,
    )
    async def explain(self, request: Request) -> Response:
        """Why an operator is where it is, or what a node does; else the operators farthest off."""
        query = parameters_of(request.query_params, ExplainQuery)
        return await self._read_out(request, lambda plan: _explanation(plan, query))

    async def _read_out(self, request: Request, text: Callable[[Plan], bytes]) -> Response:
        """A text made, in a thread, of a placement's plan as it is."""
        plan = await self._placement(request).plan()
        version = plan.notes["version"]
        assert isinstance(version, int)
        return respond(await asyncio.to_thread(text, plan), version=version)

    # --- the service ------------------------------------------------------------------------------

    @operation("GET /health", Health)
    async def health(self, _: Request) -> Response:
        """Whether all is well."""
        store = self._store
        failing = [p.name for p in store.placements.values() if p.failed is not None]
        return respond(
            Health(
                status="failing" if failing or store.damaged else "ok",
                version=version_of("nova-placement"),
                problems=len(store.problem_ids()),
                placements=len(store.placements),
                failing=failing,
                damaged=sorted(store.damaged),
            )
        )

    @operation("GET /metrics", "text/plain")
    async def metrics(self, _: Request) -> Response:
        """Figures for Prometheus."""
        content = self._store.metrics.text()
        return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")


def _problem_text(problem: Problem) -> bytes:
    return document_text(problem, ".json").encode()


def _explanation(plan: Plan, query: ExplainQuery) -> bytes:
    """As `nova explain --json`; infinities are null."""
    join, node = query.join, query.node
    if join is not UNSET and node is not UNSET:
        raise RefusedError(400, "join and node: give one of them")
    explainer = Explainer(plan)
    try:
        if node is not UNSET:
            answer = asdict(explainer.node(find_node(plan.problem, node)))
        else:
            operators, more = explainer.explain(None if join is UNSET else join)
            answer = {"operators": operators, "more": more}
    except PlanError as error:
        raise RefusedError(404, str(error)) from None
    return msgspec.json.encode(answer | {"left_out": left_out(plan)})
