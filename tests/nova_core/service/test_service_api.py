"""The service's operations, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator
from needs import run_with_mounts
from serving import LIMIT, PROBLEM, Service, begin, rate
from starlette.testclient import TestClient

from nova_core.io.files import read_plan, read_problem
from nova_core.model.plan_delta import PlanDelta
from nova_core.placement.live import LivePlacement, parse_event
from nova_core.schemas import schema_of
from nova_core.service import hosted, intake
from nova_core.service.operations import Operations
from nova_core.service.settings import SMALL

FAIL_A = {"event": "fail-node", "node": "A"}


def test_problems_in_plans_out(client: TestClient, tmp_path: Path) -> None:
    uploaded = client.post("/problems", json=PROBLEM)
    assert uploaded.status_code == 201
    summary = uploaded.json()
    assert (summary["name"], summary["nodes"], summary["pairs"]) == ("field", 5, 1)
    again = client.post(
        "/problems",
        content=yaml.safe_dump(PROBLEM),
        headers={"Content-Type": "application/yaml"},
    )
    assert (again.status_code, again.json()) == (200, summary)
    where = f"/problems/{summary['id']}"
    (tmp_path / "problem.json").write_bytes(client.get(where).content)
    problem = read_problem(tmp_path / "problem.json")
    assert problem.digest == summary["id"]
    for strategy, node in (("nova", "A"), ("sink", "sink")):
        answer = client.post(f"{where}/plan", json={"strategy": strategy})
        assert answer.status_code == 200
        (tmp_path / "plan.json").write_bytes(answer.content)
        plan = read_plan(tmp_path / "plan.json", problem)
        assert [str(problem.nodes.ids[i]) for i in plan.instances.node] == [node]
    assert client.get("/problems").json() == {"problems": [summary["id"]]}
    assert client.delete(where).status_code == 204
    assert client.get(where).status_code == 404


def test_events_in_deltas_out(placed: TestClient, tmp_path: Path) -> None:
    schema = Draft202012Validator(schema_of("plan-delta"))

    def state() -> Any:
        files = {}
        for name in ("problem", "plan"):
            answer = placed.get(f"/placements/field/{name}")
            files[name] = tmp_path / f"{name}.json"
            files[name].write_bytes(answer.content)
        problem = read_problem(files["problem"])
        assert answer.headers["etag"] == f'"{placed.get("/placements/field").json()["version"]}"'
        return problem, read_plan(files["plan"], problem)

    _, old = state()
    for number, event in enumerate((rate(30), FAIL_A, rate(20)), 1):
        answer = placed.post("/placements/field/events", json=event)
        assert answer.status_code == 200
        assert answer.headers["etag"] == f'"{number}"'
        assert not list(schema.iter_errors(answer.json()))
        delta = msgspec.json.decode(answer.content, type=PlanDelta)
        problem, new = state()
        assert delta.apply(old, problem).same_as(new)
        old = new
    told = placed.get("/placements/field/deltas", params={"after": 1, "limit": 1}).json()
    assert told["version"] == 2
    assert [row["to"] for row in told["deltas"][0]["move"]] == ["B"]


def test_whole_queries_live(client: TestClient, tmp_path: Path) -> None:
    strain = {"id": "j", "kind": "join", "inputs": ["T", "H"], "selectivity": 0.2}
    document = {name: PROBLEM[name] for name in ("nova", "name", "nodes", "sources")}
    document["queries"] = [{"id": "climate", "sink": "sink", "operators": [strain]}]
    problem = client.post("/problems", json=document).json()["id"]
    begun = client.post("/placements", json={"name": "hall", "problem": problem})
    assert begun.status_code == 201, begun.text
    post = partial(client.post, "/placements/hall/events")
    more = {"id": "more", "sink": "B", "operators": [strain]}
    added = post(json={"event": "add-query", "query": more})
    assert added.status_code == 200, added.text
    assert added.json()["added"] == []  # both have the join in common
    moved = post(json=FAIL_A).json()["move"]
    assert [row["operator"] for row in moved] == ["climate/j(t1*h1)"]
    gone = post(json={"event": "remove-query", "query": "climate"}).json()
    assert gone["renamed"] == [{"operator": "climate/j(t1*h1)", "new": "more/j(t1*h1)"}]
    refused = post(json={"event": "remove-query", "query": "more"})
    assert refused.status_code == 409 and "\n" not in refused.json()["error"]
    told = client.get("/placements/hall/explain", params={"join": "more"}).json()
    assert [one["hosts"][0]["node"] for one in told["operators"]] == ["B"]
    for name in ("problem", "plan"):
        (tmp_path / f"{name}.json").write_bytes(client.get(f"/placements/hall/{name}").content)
    answered = read_problem(tmp_path / "problem.json")
    assert [one.id for one in answered.queries] == ["more"]
    assert read_plan(tmp_path / "plan.json", answered).operator_names().tolist() == [
        "more/j(t1*h1)"
    ]


def test_a_batch_takes_effect_as_a_whole(placed: TestClient) -> None:
    events = [rate(30), {"event": "fail-node", "node": "nix"}]
    answer = placed.post("/placements/field/events", json={"event": "batch", "events": events})
    assert answer.status_code == 409
    assert answer.json() == {"error": "events[1]: unknown node 'nix'; accepted are A, B, "
                             "hygrometer, sink, thermometer"}  # fmt: skip
    many = {"event": "batch", "events": [rate(26), *[rate(25 + i / 10) for i in range(20)]]}
    assert placed.post("/placements/field/events", json=many).json()["new_version"] == 1


def test_a_plan_may_be_given_and_a_policy(client: TestClient) -> None:
    problem = client.post("/problems", json=PROBLEM).json()["id"]
    plan = client.post(f"/problems/{problem}/plan", json={"parameters": {"sigma": 0.5}}).json()
    policy = {"pinned": ["climate"], "overload": True}
    begin(client, "given", plan=plan, policy=policy)
    assert client.get("/placements/given/plan").json()["parameters"]["sigma"] == 0.5
    begin(client, "sink", strategy="nova", policy=policy)
    assert client.post("/placements/sink/events", json=rate(500)).json()["new_breaks"]
    names = [each["name"] for each in client.get("/placements").json()["placements"]]
    assert names == ["given", "sink"]


def test_why_a_join_is_where_it_is(placed: TestClient) -> None:
    ask = placed.get
    by_join = ask("/placements/field/explain", params={"join": "climate"}).json()
    assert by_join["operators"][0]["hosts"][0]["node"] == "A"
    assert ask("/placements/field/explain").json() == by_join
    assert by_join.keys() == {"operators", "more", "left_out"}
    node = ask("/placements/field/explain", params={"node": "A"}).json()
    assert [each["operator"] for each in node["hosted"]] == ["climate/t1*h1"]
    unknown = ask("/placements/field/explain", params={"node": "AA"})
    assert (unknown.status_code, unknown.json()["error"]) == (
        404,
        "node AA: no such node; did you mean A?",
    )
    assert ask("/placements/field/explain?join=climate&node=A").status_code == 400


def test_a_version_can_be_asked_for(placed: TestClient) -> None:
    """Of two clients that have seen the same version, one is told that it has not."""
    first, second = (
        placed.post("/placements/field/events", json=rate(value), headers={"If-Match": '"0"'})
        for value in (26, 27)
    )
    assert (first.status_code, second.status_code) == (200, 412)
    assert second.json() == {"error": "field is at version 1, not 0"}
    headers = {"If-Match": "yesterday"}
    assert (
        placed.post("/placements/field/events", json=rate(27), headers=headers).status_code == 400
    )
    assert placed.get("/placements/field").json()["version"] == 1


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("nonsense", 400, "event: no JSON"),
        ("", 400, "event: no JSON"),
        ("[" * 5000, 400, "event: no JSON"),
        ("[]", 400, "event: an event is an object with a field 'event'"),
        ('{"event": ["batch"]}', 400, "event: event: ['batch'] is none"),
        ('{"event": "fail-nod", "node": "A"}', 400, "did you mean 'fail-node'?"),
        ('{"event": "fail-node"}', 400, "missing required field `node`"),
        ('{"event": "fail-node", "node": 3}', 400, "Expected `str`, got `int`"),
        ('{"event": "fail-node", "node": "A", "x": 1}', 400, "unknown field `x`"),
        ('{"event": "change-rate", "source": "t1", "rate": 0}', 400, "> 0"),
        ('{"event": "change-rate", "source": "t1", "rate": NaN}', 400, "no JSON"),
        ('{"event": "change-rate", "source": "t1", "rate": 1e999}', 400, "out of range"),
        ('{"event": "batch", "events": [{"event": "batch", "events": []}]}', 400, "no other batch"),
        (
            '{"event": "add-worker", "node": {"id": "\\u0000", "capacity": 1, "position": [1, 2]}}',
            400,
            "has control characters",
        ),
        (
            '{"event": "add-worker", "node": {"id": "C", "capacity": 1, "position": [1]}}',
            409,
            "2 numbers of ms are needed",
        ),
        ('{"event": "fail-node", "node": "sink"}', 409, "sink"),
        ('{"event": "remove-worker", "node": "thermometer"}', 409, "remove the sources first"),
        ('{"event": "change-rate", "source": "t9", "rate": 3}', 409, "accepted are h1, t1"),
        ('{"event": "change-rate", "source": "t1", "rate": 90}', 409, "tuples/s are missing"),
    ],
)
def test_bad_events_are_refused_with_the_reason(
    placed: TestClient, text: str, status: int, said: str
) -> None:
    answer = placed.post(
        "/placements/field/events", content=text, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == status, answer.text
    assert said in answer.json()["error"]
    assert "\n" not in answer.json()["error"]
    assert ("missing" in answer.json()) == ("tuples/s are missing" in said)
    assert placed.get("/placements/field").json()["version"] == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nova": 2}, "problem.json: nova: format version 2"),
        ({"nodes": 3}, "problem.json: nodes: 3 is not accepted"),
        ({"tables": {"nodes": "/etc/passwd"}}, "an uploaded problem names no files"),
        ({"latency": {"file": "/etc/passwd.csv"}}, "an uploaded problem names no files"),
        ({"sources": [PROBLEM["sources"][0] | {"node": "nix"}]}, "problem.json: sources[0].node"),
    ],
)
def test_bad_problems_are_refused_with_the_reason(
    client: TestClient, change: dict[str, Any], said: str
) -> None:
    answer = client.post("/problems", json=PROBLEM | change)
    assert answer.status_code == 400
    assert said in answer.json()["error"]
    assert client.get("/problems").json() == {"problems": []}


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"name": "../x"}, 400, "name"),
        ({"name": "field"}, 409, "there is a placement 'field' already"),
        ({"problem": "nix"}, 404, "there is no problem 'nix'"),
        ({"strategy": "nix"}, 400, "installed are nova"),
        ({"parameters": {"sigma": "much"}}, 400, "sigma=much"),
        ({"parameters": {"sigme": 1}}, 400, "unknown parameter 'sigme'"),
        ({"policy": {"pinned": ["nix"]}}, 400, "unknown operator 'nix'"),
        ({"policy": {"gain": -1}}, 400, "policy.gain"),
        ({"plan": {"nova_plan": 1}}, 400, "plan"),
        ({"plan": 3}, 400, "plan"),
        ({"strategy": "sink", "policy": {"pinned": 3}}, 400, "pinned"),
    ],
)
def test_bad_placements_are_refused_with_the_reason(
    placed: TestClient, change: dict[str, Any], status: int, said: str
) -> None:
    problem = placed.get("/problems").json()["problems"][0]
    answer = placed.post("/placements", json={"name": "new", "problem": problem} | change)
    assert answer.status_code == status, answer.text
    assert said in answer.json()["error"]
    assert len(placed.get("/placements").json()["placements"]) == 1


def test_requests_that_are_none(placed: TestClient) -> None:
    def said(answer: Any) -> tuple[int, str]:
        return answer.status_code, answer.json()["error"]

    events = "/placements/field/events"
    text = {"Content-Type": "text/plain"}
    assert said(placed.post(events, content="{}", headers=text))[0] == 415
    large = json.dumps(rate(26)) + " " * LIMIT
    kind = {"Content-Type": "application/json"}
    assert said(placed.post(events, content=large, headers=kind)) == (
        413,
        "the body has more than 20,000 bytes",
    )

    def pieces() -> Iterator[bytes]:
        yield large.encode()

    assert said(placed.post(events, content=pieces(), headers=kind))[0] == 413
    assert said(placed.get("/nowhere")) == (404, "GET /nowhere: Not Found")
    assert said(placed.put(events))[0] == 405
    assert said(placed.post("/placements/nix/events", json=rate(26)))[0] == 404
    for query in ("after=-1", "after=x", "limit=99999", "after=9999999999999999999"):
        assert said(placed.get(f"/placements/field/deltas?{query}"))[0] == 400
    assert said(placed.get("/placements/field/deltas/stream?after=7")) == (
        410,
        "version 7 has not been reached; the last is 0",
    )


def test_a_token_is_asked_for(service: Service) -> None:
    client = service(token="secret")
    assert client.get("/health").status_code == 200
    for given in (
        None,
        "Bearer wrong",
        "secret",
        "Bearer secre",
        "Bearer sécret".encode("latin-1"),
    ):
        headers = {} if given is None else {"Authorization": given}
        for path in ("/placements", "/metrics", "/openapi.json", "/nowhere"):
            refused = client.get(path, headers=headers)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
    right = {"Authorization": "Bearer secret"}
    assert client.get("/placements", headers=right).status_code == 200
    assert client.get("/openapi.json", headers=right).json()["security"] == [{"token": []}]


def test_pages_in_a_browser_cannot_call_it_by_their_own_name(service: Service) -> None:
    client = service(hosts=frozenset({"127.0.0.1", "localhost", "::1"}))
    for host in ("127.0.0.1:80", "localhost", "[::1]:8571"):
        assert client.get("/placements", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "127.0.0.1.evil.example", ""):
        assert client.get("/placements", headers={"Host": host}).status_code == 421


def test_metrics_and_health(placed: TestClient) -> None:
    placed.post("/placements/field/events", json=FAIL_A)
    placed.post("/placements/field/events", json=rate(90))
    lines = placed.get("/metrics").text.splitlines()
    for line in (
        'nova_events_total{kind="fail-node",outcome="followed",placement="field"} 1.0',
        'nova_events_total{kind="change-rate",outcome="refused",placement="field"} 1.0',
        'nova_moves_total{placement="field"} 1.0',
        'nova_placement_version{placement="field"} 1.0',
        'nova_http_requests_total{route="/placements/{name}/events",status="409"} 1.0',
    ):
        assert line in lines
    health = placed.get("/health").json()
    assert (health["status"], health["placements"], health["problems"]) == ("ok", 1, 1)


def test_everything_is_there_again(service: Service) -> None:
    with service() as client:
        begin(client)
        for value in (26, 27, 28):
            client.post("/placements/field/events", json=rate(value))
        before = [client.get(f"/placements/field/{what}").content for what in ("plan", "deltas")]
    client = service()
    assert before == [client.get(f"/placements/field/{w}").content for w in ("plan", "deltas")]
    assert client.post("/placements/field/events", json=rate(29)).json()["new_version"] == 4
    assert client.delete("/placements/field").status_code == 204
    assert client.get("/placements/field").status_code == 404
    begin(client)
    assert client.get("/placements/field").json()["version"] == 0


@pytest.mark.parametrize("left", ["", '{"nova_plan_delta":1,'])
def test_deltas_that_a_crash_has_kept_from_disk_are_made_again(
    service: Service, tmp_path: Path, left: str
) -> None:
    """Killed between the journal's entry and the delta's line, or in the middle of that."""
    with service() as client:
        begin(client)
        for value in (26, 27, 28):
            client.post("/placements/field/events", json=rate(value))
        before = client.get("/placements/field/deltas").content
    log = tmp_path / "data" / "placements" / "field" / "deltas" / "deltas-0.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:2]) + left)
    assert service().get("/placements/field/deltas").content == before
    assert log.read_text() == "".join(lines)


def test_old_deltas_are_dropped_in_the_end(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted, "CHECKPOINT", 5)
    client = service()
    begin(client)
    for number in range(40):
        answer = client.post("/placements/field/events", json=rate(25 + number / 10))
        assert answer.json()["new_version"] == number + 1
    summary = client.get("/placements/field").json()
    assert 20 <= summary["oldest"] < 40
    gone = client.get("/placements/field/deltas?after=3")
    assert gone.status_code == 410
    assert "read the plan and continue from its version" in gone.json()["error"]
    kept = client.get("/placements/field/deltas", params={"after": 35}).json()
    assert [each["new_version"] for each in kept["deltas"]] == [36, 37, 38, 39, 40]


@contextmanager
def full_disk(log: Any) -> Iterator[None]:
    """Have a log write to a device that takes nothing, nor can be cut back."""
    (segment,) = log._segments
    right, segment.descriptor = segment.descriptor, os.open("/dev/full", os.O_RDWR)
    try:
        yield
    finally:
        os.close(segment.descriptor)
        segment.descriptor = right


def test_a_log_that_cannot_be_cut_back_takes_no_more_events(service: Service) -> None:
    """What is not on disk is never acknowledged, and a restart goes on with what is."""
    with service() as client:
        begin(client)
        client.post("/placements/field/events", json=rate(26))
        placement = client.app_state["store"].placement("field")
        with full_disk(placement._journal._log):
            answer = client.post("/placements/field/events", json=rate(27))
            assert answer.status_code == 503
            assert "No space left on device" in answer.json()["error"]
        answer = client.post("/placements/field/events", json=rate(27))
        assert answer.status_code == 503
        assert "nothing is taken until it is opened again" in answer.json()["error"]
        # What was written for readers before it was refused is not to be seen.
        deltas = client.get("/placements/field/deltas").json()
        assert (deltas["version"], len(deltas["deltas"])) == (1, 1)
        assert client.get("/health").json()["failing"] == ["field"]
    client = service()
    assert client.get("/placements/field").json()["version"] == 1
    assert client.post("/placements/field/events", json=rate(27)).status_code == 200
    assert client.get("/health").json()["failing"] == []


def test_answers_and_restarts_agree_on_a_full_disk(tmp_path: Path) -> None:
    """200: there after a restart; 503: not there. At all fill levels of a small file system."""
    figures = json.loads(run_with_mounts(Path(__file__).with_name("full_disk.py"), str(tmp_path)))
    assert figures["levels"] == 32
    assert figures["refused"] == 3 * 32
    assert figures["followed"] > 32 * 4


def test_one_damaged_placement_keeps_no_other_down(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["empty", "field", "list", "log", "policy", "version"]
    with service() as client:
        for name in names:
            begin(client, name)
            client.post(f"/placements/{name}/events", json=rate(26))
    at = tmp_path / "data" / "placements"
    header = json.loads((at / "policy" / "state-0" / "live.json").read_text())
    (at / "empty" / "state-0" / "live.json").write_text("")
    (at / "list" / "state-0" / "live.json").write_text("[]")
    (at / "log" / "events-0.jsonl").write_text('{"entry": 1, "event": 3}\n')
    header["policy"]["gian"] = 1
    (at / "policy" / "state-0" / "live.json").write_text(json.dumps(header))
    header = {key: value for key, value in header.items() if key != "version"}
    (at / "version" / "state-0" / "live.json").write_text(json.dumps(header))
    (at / "nothing").mkdir()
    (at / "file").write_text("")
    damaged = sorted({*names, "nothing", "file"} - {"field"})
    capsys.readouterr()
    client = service()
    written = capsys.readouterr().err
    assert "Traceback" not in written
    assert written.count("\n") == len(damaged)
    for name in damaged:
        assert f"placement {name}: set aside, as it cannot be read: " in written
    health = client.get("/health").json()
    assert (health["status"], health["placements"], health["damaged"]) == ("failing", 1, damaged)
    assert client.post("/placements/field/events", json=rate(27)).status_code == 200
    for name in damaged:
        answer = client.post(f"/placements/{name}/events", json=rate(27))
        assert answer.status_code == 503
        assert f"{name} is set aside, as it cannot be read: " in answer.json()["error"]
        assert (at / name).exists()
    answer = client.post("/placements", json={"name": "list", "problem": "x"})
    assert answer.status_code == 409
    assert client.delete("/placements/list").status_code == 204
    begin(client, "list")
    assert client.get("/health").json()["damaged"] == [name for name in damaged if name != "list"]


def test_idle_placements_leave_the_memory(service: Service) -> None:
    """They are read from disk when they are used, and go on as if they had not been away."""
    client = service(idle=0.01)
    begin(client)
    answers = []
    placement = client.app_state["store"].placement("field")
    for number in range(1, 6):
        while client.get("/placements/field").json()["loaded"]:
            # The service works in a thread of its own.
            time.sleep(0.005)
        assert placement._journal._live is None
        # What is on disk is told without reading the rest.
        assert client.get("/placements/field").json()["version"] == number - 1
        assert client.get("/placements/field/deltas").json()["deltas"] == answers
        answer = client.post("/placements/field/events", json=rate(25 + number))
        assert answer.status_code == 200
        answers.append(answer.json())
    assert [answer["new_version"] for answer in answers] == [1, 2, 3, 4, 5]
    assert client.get("/placements/field/problem").json()["sources"][0]["rate"] == 30


def test_a_placement_that_cannot_be_read_again_says_so(service: Service, tmp_path: Path) -> None:
    client = service(idle=0.01)
    begin(client)
    while client.get("/placements/field").json()["loaded"]:
        time.sleep(0.005)
    (tmp_path / "data" / "placements" / "field" / "state-0" / "live.json").write_text("[]")
    for answer in (
        client.post("/placements/field/events", json=rate(26)),
        client.get("/placements/field/plan"),
    ):
        assert answer.status_code == 503
        assert "field: cannot be read: " in answer.json()["error"]
    assert client.get("/health").json()["failing"] == ["field"]


def large_problem() -> dict[str, Any]:
    """A problem whose document is read in a process of its own."""
    more = [{"id": f"more{n}", "capacity": 1, "position": [n, n]} for n in range(1000)]
    return PROBLEM | {"nodes": PROBLEM["nodes"] + more}


def test_large_bodies_are_taken_in_like_small_ones(service: Service) -> None:
    client = service(limit=2**20)
    problem = large_problem()
    assert len(json.dumps(problem)) > SMALL
    uploaded = client.post("/problems", json=problem)
    assert uploaded.status_code == 201, uploaded.text
    assert uploaded.json()["nodes"] == 1005
    assert client.post("/problems", json=problem).json() == uploaded.json()
    problem["nodes"][-1]["capacity"] = -1
    answer = client.post("/problems", json=problem)
    assert answer.status_code == 400
    assert "problem.json: nodes[1004]" in answer.json()["error"]
    where = f"/problems/{uploaded.json()['id']}"
    request = {
        "name": "large",
        "problem": uploaded.json()["id"],
        "policy": {"state_bytes": {"climate": 3}, "pinned": ["climate"] * 5000},
        "plan": client.post(f"{where}/plan", json={}).json(),
    }
    assert len(json.dumps(request)) > SMALL
    missing = client.post("/placements", json=request | {"problem": "nix"})
    assert (missing.status_code, missing.json()["error"][:24]) == (
        404,
        "there is no problem 'nix'"[:24],
    )
    assert client.post("/placements", json=request).status_code == 201
    assert client.post("/placements/large/events", json=rate(26)).status_code == 200
    taken = client.post("/placements", json=request)
    assert (taken.status_code, taken.json()["error"]) == (
        409,
        "there is a placement 'large' already",
    )


def test_a_body_that_takes_too_much_is_refused(service: Service) -> None:
    client = service(limit=2**26, body_memory=256 * 2**20)
    for kind, pieces in (("json", 20_000_000), ("yaml", 1_000_000)):
        answer = client.post(
            "/problems",
            content=b"[" + b"[]," * pieces + b"[]]",
            headers={"Content-Type": f"application/{kind}"},
        )
        assert answer.status_code == 413, answer.text
        assert "takes more than 256 MiB of memory" in answer.json()["error"]
    begin(client)


@pytest.mark.parametrize(("kept", "idle"), [(intake.KEPT, 1), (2**20, 0)])
def test_a_child_that_keeps_much_memory_is_ended(
    service: Service, monkeypatch: pytest.MonkeyPatch, kept: int, idle: int
) -> None:
    monkeypatch.setattr(intake, "_IDLE", children := dict[int, list[intake.Child]]())
    monkeypatch.setattr(intake, "KEPT", kept)
    begin(service())
    assert len(children[intake.PLACING]) == idle
    for child in children[intake.PLACING]:
        child.end()


def test_events_have_a_limit_of_their_own(service: Service) -> None:
    client = service(limit=2**26)
    begin(client)
    batch = {"event": "batch", "events": [rate(25 + n / 1000) for n in range(1000)]}
    assert len(json.dumps(batch)) > SMALL
    assert client.post("/placements/field/events", json=batch).json()["new_version"] == 1
    answer = client.post("/placements/field/events", json=batch | {"events": [rate(26)] * 30_000})
    assert (answer.status_code, answer.json()["error"]) == (
        413,
        "the body has more than 1,048,576 bytes",
    )


def test_the_description_is_complete(client: TestClient) -> None:
    """Each operation with its parameters and answers; all schemas it refers to."""
    described = client.get("/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    operations = {
        (method.upper(), path): operation
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }
    expected = {(each.method, each.path) for each in Operations.operations().values()}
    assert set(operations) == expected
    for (_, path), operation in operations.items():
        assert operation["summary"]
        places = {one["name"]: one["in"] for one in operation["parameters"]}
        assert [name for name, place in places.items() if place == "path"] == re.findall(
            r"{(\w+)}", path
        )
        assert {"400", "401", "421"} < set(operation["responses"])
        assert ("413" in operation["responses"]) == ("requestBody" in operation)
    follow = operations["POST", "/placements/{name}/events"]
    assert {one["name"] for one in follow["parameters"]} == {"name", "if-match"}
    stream = operations["GET", "/placements/{name}/deltas/stream"]
    assert {one["name"] for one in stream["parameters"]} == {"name", "after", "last-event-id"}
    upload = operations["POST", "/problems"]
    kinds = {"application/json", "application/yaml", "application/x-tar"}
    assert set(upload["requestBody"]["content"]) == kinds
    schemas = described["components"]["schemas"]
    referred = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(described)))
    assert {"PlanDelta", "Refusal", "ProblemDocument", "PlanDocument"} <= referred <= set(schemas)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("after=x", "after: 'x': Expected `int`"),
        ("limit=99999", "limit: '99999': Expected `int` <= 10000"),
        ("after=-1", "after: '-1': Expected `int` >= 0"),
    ],
)
def test_parameters_are_refused_by_name(placed: TestClient, query: str, said: str) -> None:
    answer = placed.get(f"/placements/field/deltas?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(said)


def test_nothing_reads_a_placement_while_a_thread_changes_it(
    placed: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How far an event reaches is estimated outside the lock, so only while nobody holds it."""
    assert placed.post("/placements/field/events", json=rate(26)).status_code == 200
    placement = placed.app_state["store"].placements["field"]
    monkeypatch.setattr(LivePlacement, "reach", lambda *_: pytest.fail("read meanwhile"))

    async def follow() -> tuple[bytes, int]:
        async with placement._lock:
            waiting = asyncio.create_task(placement.follow(parse_event(json.dumps(rate(27))), None))
            await asyncio.sleep(0.01)
        return await waiting

    assert placed.portal is not None
    assert placed.portal.call(follow)[1] == 2
