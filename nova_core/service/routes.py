"""The operations of the service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import version as version_of
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from nova_core.commands.explain import find_node, find_pairs
from nova_core.errors import PlanError, ProblemError
from nova_core.explain import Explainer
from nova_core.model.document import document_text
from nova_core.model.plan import Plan
from nova_core.model.plan_text import plan_text
from nova_core.model.problem import Problem
from nova_core.placement.live import parse_event
from nova_core.service.documents import (
    DeltaList,
    Health,
    PlacementList,
    PlaceRequest,
    ProblemList,
)
from nova_core.service.intake import SMALL, MissingError, RefusedError
from nova_core.service.openapi import (
    AFTER,
    IF_MATCH,
    JSON,
    LAST_EVENT_ID,
    LIMIT,
    NAME,
    PROBLEM_ID,
    answers,
    body,
    parameter,
)
from nova_core.service.requests import (
    YAML,
    Receiver,
    document_of,
    expected_version,
    number_of,
)
from nova_core.service.store import Store

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
DELTAS = 1000
# Bytes of an event; a batch of some ten thousand has as many.
EVENTS = 2**20
PAIRS = 5
_TEXT = {"type": "string", "minLength": 1}


class _Route(APIRoute):
    """A route whose operation reads the request itself: nothing to be resolved or closed after."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.app = self._answered

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


def add_routes(router: APIRouter, store: Store, limit: int) -> None:
    """Add all operations on a store.

    Args:
        router: of the application.
        store: what they work on.
        limit: bytes that a request's body may have.
    """
    router.route_class = _Route
    receiver = Receiver(store.directory, limit)
    # The busiest first: a route is found by trying one after the other.
    _add_events(router, store, receiver)
    _add_problems(router, store, receiver)
    _add_placements(router, store, receiver)
    _add_state(router, store)


def _answer(content: Any, status: int = 200, version: int | None = None) -> Response:
    headers = None if version is None else {"ETag": f'"{version}"'}
    text = content if isinstance(content, bytes) else msgspec.json.encode(content)
    return Response(text, status, headers, JSON)


def _add_events(router: APIRouter, store: Store, receiver: Receiver) -> None:
    @router.post(
        "/placements/{name}/events",
        summary="Follow an event, or a batch of them as one; what changes",
        responses=answers(200, "delta", 404, 409, 412, 413, 415, 503, tagged=True),
        openapi_extra=body("event") | {"parameters": [NAME, IF_MATCH]},
    )
    async def follow(request: Request) -> Response:
        placement = store.placement(request.path_params["name"])
        expected = expected_version(request)
        content = await receiver.small(request, EVENTS)
        if len(content) <= SMALL:
            event = parse_event(content)
        else:
            event = await asyncio.to_thread(parse_event, content)
        try:
            text, version = await placement.follow(event, expected)
        except ProblemError as error:
            # Well written, but nothing that can happen to what is there.
            raise RefusedError(409, str(error)) from None
        return _answer(text, version=version)

    @router.get(
        "/placements/{name}/deltas",
        summary="Deltas after a version",
        responses=answers(200, "deltas", 404, 410, 503),
        openapi_extra={"parameters": [NAME, AFTER, LIMIT]},
    )
    async def deltas(request: Request) -> Response:
        placement = store.placement(request.path_params["name"])
        query = request.query_params
        after = number_of(query.get("after"), "after", 0)
        most = max(1, number_of(query.get("limit"), "limit", DELTAS, 10_000))
        found = placement.deltas(after, most)
        texts = [msgspec.Raw(text) for text in found]
        return _answer(DeltaList(version=after + len(found), deltas=texts))

    @router.get(
        "/placements/{name}/deltas/stream",
        summary="Deltas as server-sent events, from a version on or from now",
        responses={
            **answers(200, None, 404, 410, 503),
            200: {
                "description": "events `delta`, whose id is the version they lead to, without end",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
        },
        openapi_extra={"parameters": [NAME, AFTER, LAST_EVENT_ID]},
    )
    async def stream(request: Request) -> Response:
        placement = store.placement(request.path_params["name"])
        reached = request.headers.get("last-event-id")
        after = number_of(request.query_params.get("after"), "after", placement.version)
        after = number_of(reached, "Last-Event-ID", after)
        # Refused before the stream begins, while there is a status to tell it with.
        placement.deltas(after, 1)
        return StreamingResponse(
            placement.stream(after),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )


def _add_problems(router: APIRouter, store: Store, receiver: Receiver) -> None:
    @router.get("/problems", summary="Uploaded problems", responses=answers(200, "problems"))
    async def problems(request: Request) -> Response:
        return _answer(ProblemList(problems=store.problem_ids()))

    @router.post(
        "/problems",
        status_code=201,
        summary="Upload a problem; its id",
        responses={
            **answers(201, "problem", 408, 413, 415, 503),
            200: answers(200, "problem")[200],
        },
        openapi_extra=body("problem document", YAML),
    )
    async def upload(request: Request) -> Response:
        async with receiver.any(request, JSON, YAML) as (body, size):
            kept = await store.add_problem(body, size, request.headers["content-type"])
        return _answer(kept["summary"], 201 if kept["fresh"] else 200)

    @router.get(
        "/problems/{problem_id}",
        summary="An uploaded problem",
        responses=answers(200, "problem document", 404),
        openapi_extra={"parameters": [PROBLEM_ID]},
    )
    async def read_problem(request: Request) -> Response:
        problem = await store.problem(request.path_params["problem_id"])
        return _answer(await asyncio.to_thread(_problem_text, problem))

    @router.delete(
        "/problems/{problem_id}",
        status_code=204,
        summary="Forget a problem; placements of it stay",
        responses=answers(204, None, 404, 503),
        openapi_extra={"parameters": [PROBLEM_ID]},
    )
    async def remove_problem(request: Request) -> Response:
        store.remove_problem(request.path_params["problem_id"])
        return Response(status_code=204)

    @router.post(
        "/problems/{problem_id}/plan",
        summary="Place a problem; the plan is not kept",
        responses=answers(200, "plan document", 404, 409, 413, 415),
        openapi_extra=body("place request") | {"parameters": [PROBLEM_ID]},
    )
    async def place(request: Request) -> Response:
        asked = document_of(await receiver.small(request, SMALL), PlaceRequest, "request")
        plan = await store.place(
            request.path_params["problem_id"], asked.strategy, asked.parameters
        )
        return _answer(await asyncio.to_thread(_plan_text, plan))


def _add_placements(router: APIRouter, store: Store, receiver: Receiver) -> None:
    @router.get("/placements", summary="Live placements", responses=answers(200, "placements"))
    async def placements(request: Request) -> Response:
        return _answer(PlacementList(placements=[p.summary for p in store.placements.values()]))

    @router.post(
        "/placements",
        status_code=201,
        summary="Begin a live placement",
        responses=answers(201, "placement", 404, 408, 409, 413, 415, 503),
        openapi_extra=body("placement request"),
    )
    async def begin(request: Request) -> Response:
        async with receiver.any(request, JSON) as (body, size):
            placement = await store.begin(body, size)
        answer = _answer(placement.summary, 201, placement.version)
        answer.headers["Location"] = f"/placements/{placement.name}"
        return answer

    @router.get(
        "/placements/{name}",
        summary="A live placement in a few figures",
        responses=answers(200, "placement", 404, 503, tagged=True),
        openapi_extra={"parameters": [NAME]},
    )
    async def placement(request: Request) -> Response:
        found = store.placement(request.path_params["name"])
        return _answer(found.summary, version=found.version)

    @router.delete(
        "/placements/{name}",
        status_code=204,
        summary="End a live placement and drop what is kept of it",
        responses=answers(204, None, 404, 503),
        openapi_extra={"parameters": [NAME]},
    )
    async def end(request: Request) -> Response:
        await store.end(request.path_params["name"])
        return Response(status_code=204)

    @router.get(
        "/placements/{name}/plan",
        summary="The plan as it is",
        responses=answers(200, "plan document", 404, 409, 503, tagged=True),
        openapi_extra={"parameters": [NAME]},
    )
    async def read_plan(request: Request) -> Response:
        plan = await store.placement(request.path_params["name"]).plan()
        return _answer(await asyncio.to_thread(_plan_text, plan), version=_version(plan))

    @router.get(
        "/placements/{name}/problem",
        summary="The problem that the plan answers, as events have left it",
        responses=answers(200, "problem document", 404, 503, tagged=True),
        openapi_extra={"parameters": [NAME]},
    )
    async def read_problem(request: Request) -> Response:
        plan = await store.placement(request.path_params["name"]).plan()
        text = await asyncio.to_thread(_problem_text, plan.problem)
        return _answer(text, version=_version(plan))

    @router.get(
        "/placements/{name}/explain",
        summary="Why a join is where it is, or what a node does; else the pairs farthest off",
        responses=answers(200, "explanation", 404, 503, tagged=True),
        openapi_extra={
            "parameters": [
                NAME,
                parameter("join", "query", "a pair (tw/t1*w1), an operator or a source", _TEXT),
                parameter("node", "query", "a node", _TEXT),
            ]
        },
    )
    async def explain(request: Request) -> Response:
        plan = await store.placement(request.path_params["name"]).plan()
        query = request.query_params
        found = await asyncio.to_thread(_explanation, plan, query.get("join"), query.get("node"))
        return _answer(found, version=_version(plan))


def _add_state(router: APIRouter, store: Store) -> None:
    @router.get("/health", summary="Whether all is well", responses=answers(200, "health"))
    async def health(request: Request) -> Response:
        failing = [p.name for p in store.placements.values() if p.failed is not None]
        return _answer(
            Health(
                status="failing" if failing or store.damaged else "ok",
                version=version_of("nova-placement"),
                problems=len(store.problem_ids()),
                placements=len(store.placements),
                failing=failing,
                damaged=sorted(store.damaged),
            )
        )

    @router.get(
        "/metrics",
        summary="Figures for Prometheus",
        responses={
            **answers(200, None),
            200: {
                "description": "the metrics",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
        },
    )
    async def metrics(request: Request) -> Response:
        return Response(store.metrics.text(), media_type=PROMETHEUS)


def _version(plan: Plan) -> int:
    version = plan.notes["version"]
    assert isinstance(version, int)
    return version


def _problem_text(problem: Problem) -> bytes:
    return document_text(problem, ".json").encode()


def _plan_text(plan: Plan) -> bytes:
    try:
        return plan_text(plan, ".json").encode()
    except ValueError as error:
        # Sums over positions or rates near the largest number there is.
        raise RefusedError(409, f"the plan has figures that JSON cannot hold: {error}") from None


def _explanation(plan: Plan, join: str | None, node: str | None) -> bytes:
    """As `nova explain --json`; infinities are null."""
    if join is not None and node is not None:
        raise RefusedError(400, "join and node: give one of them")
    explainer = Explainer(plan)
    try:
        if node is not None:
            return msgspec.json.encode(explainer.node(find_node(plan.problem, node)))
        pairs = explainer.farthest(PAIRS) if join is None else find_pairs(plan.problem, join)
    except PlanError as error:
        raise MissingError(str(error).removeprefix("--")) from None
    found = [explainer.pair(pair) for pair in pairs]
    return msgspec.json.encode({"pairs": found})


__all__ = ["add_routes"]
