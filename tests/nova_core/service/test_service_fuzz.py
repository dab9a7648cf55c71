"""No request is a fault of the service: schemathesis, and events of extreme values."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serving import Service, begin

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
# Without end: tested in test_serve_process.py.
STREAM = "/placements/{name}/deltas/stream"
SOME = settings(
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def attack(service: Service, examples: int) -> set[str]:
    """Send requests made from the service's own description; which operations were tried."""
    client = service(limit=2**20)
    begin(client)
    problem = client.get("/problems").json()["problems"][0]
    there = {"name": "field", "problem_id": problem}
    schema = schemathesis.openapi.from_asgi("/openapi.json", client.app)
    tried = set()
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path == STREAM:
            continue
        tried.add(operation.label)
        for mode in GenerationMode:

            @settings(SOME, max_examples=examples)
            @given(case=operation.as_strategy(generation_mode=mode), real=st.booleans())
            def try_one(case: Any, real: bool) -> None:
                if real and case.method != "DELETE":
                    for name in case.path_parameters or ():
                        case.path_parameters[name] = there[name]
                answer = case.call(base_url="http://127.0.0.1")
                case.validate_response(answer, checks=CHECKS)

            # Of some operations nothing can be wrong: they have neither parameters nor a body.
            with suppress(*([Unsatisfiable] if mode.is_negative else [])):
                try_one()
    return tried


def test_no_request_is_a_fault_of_the_service(service: Service) -> None:
    tried = attack(service, examples=3)
    assert len(tried) == 16


@pytest.mark.e2e
def test_no_request_of_many_is_a_fault_of_the_service(service: Service) -> None:
    attack(service, examples=60)


NUMBERS = st.sampled_from([0, 1, 25, 60.5, 5e-324, 1e-9, 1e18, 1e300, 1.7e308, -1, -1.7e308])
NODES = st.sampled_from(["thermometer", "hygrometer", "A", "B", "sink", "C"])
SOURCES = st.sampled_from(["t1", "h1", "s"])
OPERATORS = st.sampled_from(["climate", "other"])
POSITIONS = st.lists(NUMBERS, min_size=1, max_size=3)


def event(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    flags = {"overload": st.booleans()}
    return st.fixed_dictionaries({"event": st.just(kind), **fields}, optional=flags)


NODE = st.fixed_dictionaries(
    {"id": NODES, "capacity": st.just("unlimited") | NUMBERS, "position": POSITIONS},
    optional={"height": NUMBERS, "penalty": NUMBERS, "worker": st.booleans(), "cost": NUMBERS},
)
SOURCE = st.fixed_dictionaries(
    {"id": SOURCES, "node": NODES, "stream": st.sampled_from(["T", "H"]), "rate": NUMBERS},
    optional={"tuple_bytes": NUMBERS, "key": st.text(max_size=2)},
)
JOINS = st.lists(
    st.fixed_dictionaries({"operator": OPERATORS, "with": SOURCES, "output_rate": NUMBERS}),
    max_size=2,
)
PAIR = st.fixed_dictionaries({"left": SOURCES, "right": SOURCES, "output_rate": NUMBERS})
OPERATOR = st.fixed_dictionaries(
    {
        "id": OPERATORS,
        "left": st.sampled_from(["T", "H"]),
        "right": st.sampled_from(["T", "H"]),
        "sink": NODES,
    },
    optional={"requires": st.fixed_dictionaries({"memory": NUMBERS})},
)
EVENTS = st.one_of(
    event("add-worker", node=NODE),
    event("remove-worker", node=NODES),
    event("fail-node", node=NODES),
    event("add-source", source=SOURCE, joins=JOINS),
    event("remove-source", source=SOURCES),
    event("add-pair", operator=OPERATORS, left=SOURCES, right=SOURCES, output_rate=NUMBERS),
    event("remove-pair", operator=OPERATORS, left=SOURCES, right=SOURCES),
    event("add-operator", operator=OPERATOR, pairs=st.lists(PAIR, max_size=2)),
    event("remove-operator", operator=OPERATORS),
    event("change-rate", source=SOURCES, rate=NUMBERS),
    event("change-capacity", node=NODES, capacity=NUMBERS),
    event("move-node", node=NODES, position=POSITIONS),
    event("move-sink", operator=OPERATORS, node=NODES),
    event("change-link", **{"from": NODES, "to": NODES}, budget=NUMBERS),
    event("pin", operator=OPERATORS),
    event("rebalance", moves=st.sampled_from([0, 1, 10, 2**70])),
)


def attack_with_events(service: Service, examples: int) -> None:
    """Follow events of extreme values, and read out what they lead to."""
    client = service()
    names = iter(range(10**9))

    @settings(SOME, max_examples=examples)
    @given(
        events=st.lists(EVENTS | event("batch", events=st.lists(EVENTS, max_size=4)), max_size=8)
    )
    def try_some(events: list[dict[str, Any]]) -> None:
        name = f"p{next(names)}"
        begin(client, name)
        for one in events:
            answer = client.post(f"/placements/{name}/events", json=one)
            assert answer.status_code in (200, 400, 409), (events, answer.text)
        for what in ("plan", "problem", "explain"):
            answer = client.get(f"/placements/{name}/{what}")
            # Figures may add up to what JSON has no number for.
            allowed = (200, 409) if what == "plan" else (200,)
            assert answer.status_code in allowed, (events, what, answer.text)
        client.delete(f"/placements/{name}")

    try_some()


def test_no_event_is_a_fault_of_the_service(service: Service) -> None:
    attack_with_events(service, examples=15)


@pytest.mark.e2e
def test_no_event_of_many_is_a_fault_of_the_service(service: Service) -> None:
    attack_with_events(service, examples=200)
