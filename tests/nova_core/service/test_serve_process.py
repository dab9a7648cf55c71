"""`nova serve` as a process: signals, kill -9, streams, two clients, and what it needs to start."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from click.testing import CliRunner
from serving import PROBLEM, rate

from nova_core.cli import cli
from nova_core.model.files import read_plan, read_problem
from nova_core.model.plan_delta import PlanDelta
from nova_core.placement.live import LivePlacement, parse_event

NOVA = [sys.executable, "-c", "from nova_core.cli import main; main()"]
PATIENCE = 30.0


class Serving:
    """A process, and a client of it."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [*NOVA, "serve", str(directory), "--port", "0", "--json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = json.loads(self.process.stdout.readline())["url"]
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE)
        # Given one for every stream that has begun.
        self.streaming = threading.Semaphore(0)

    def begin(self) -> None:
        problem = self.client.post("/problems", json=PROBLEM).json()["id"]
        begun = self.client.post("/placements", json={"name": "field", "problem": problem})
        assert begun.status_code == 201, begun.text

    def follow(self, event: dict[str, Any], **headers: str) -> httpx.Response:
        return self.client.post("/placements/field/events", json=event, headers=headers)

    def stream(self, **headers: str) -> Iterator[tuple[int, PlanDelta]]:
        """Versions and deltas as they come, until the stream ends."""
        where = f"{self.url}/placements/field/deltas/stream"
        with httpx.stream("GET", where, headers=headers, timeout=PATIENCE) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            self.streaming.release()
            number = 0
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    number = int(line[4:])
                elif line.startswith("data: "):
                    yield number, msgspec.json.decode(line[6:], type=PlanDelta)

    def end(self, how: signal.Signals) -> int:
        self.client.close()
        self.process.send_signal(how)
        self.process.communicate(timeout=PATIENCE)
        return self.process.returncode


@contextmanager
def serving(directory: Path, *options: str) -> Iterator[Serving]:
    service = Serving(directory, *options)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.end(signal.SIGKILL)


def reference(events: list[dict[str, Any]], tmp_path: Path) -> LivePlacement:
    """What the same events lead to without a service."""
    from nova_core.strategies import place

    (tmp_path / "reference.json").write_text(json.dumps(PROBLEM))
    problem = read_problem(tmp_path / "reference.json")
    live = LivePlacement(problem, place(problem))
    for event in events:
        live.apply(parse_event(json.dumps(event)))
    return live


def test_kill_9_loses_nothing(tmp_path: Path) -> None:
    """State, versions and streams go on as if the process had not been killed."""
    events = [rate(25 + number / 10) for number in range(1, 31)]
    events[10] = {"event": "fail-node", "node": "A"}
    with serving(tmp_path / "data") as service:
        service.begin()
        for event in events[:20]:
            assert service.follow(event).status_code == 200
        service.process.send_signal(signal.SIGKILL)
        service.process.communicate()
    with serving(tmp_path / "data") as service:
        assert service.client.get("/placements/field").json()["version"] == 20
        seen = []
        reader = threading.Thread(
            target=lambda: seen.extend(service.stream(**{"Last-Event-ID": "3"}))
        )
        reader.start()
        for event in events[20:]:
            assert service.follow(event).status_code == 200
        files = {}
        for name in ("problem", "plan"):
            files[name] = tmp_path / f"{name}.json"
            files[name].write_bytes(service.client.get(f"/placements/field/{name}").content)
        assert service.streaming.acquire(timeout=PATIENCE)
        # An orderly end: streams are told everything first, and end.
        assert service.end(signal.SIGTERM) == 0
        reader.join(PATIENCE)
    assert [number for number, _ in seen] == list(range(4, 31))
    assert [delta.new_version for _, delta in seen] == list(range(4, 31))
    live = reference(events, tmp_path)
    plan = read_plan(files["plan"], read_problem(files["problem"]))
    assert plan.same_as(live.plan())


def test_two_clients_at_once_stay_consistent(tmp_path: Path) -> None:
    """Every event gets a version of its own, and the deltas in that order make the plan."""
    with serving(tmp_path / "data") as service:
        service.begin()
        first = read_back(service, tmp_path)
        answers: list[dict[str, Any]] = []

        def send(source: str, start: float) -> None:
            with httpx.Client(base_url=service.url, timeout=PATIENCE) as client:
                for number in range(40):
                    event = rate(start + number / 100, source)
                    answer = client.post("/placements/field/events", json=event)
                    answers.append(answer.json())

        followers = [[], []]  # type: list[list[tuple[int, PlanDelta]]]
        threads = [
            threading.Thread(target=send, args=("t1", 20.0)),
            threading.Thread(target=send, args=("h1", 21.0)),
            *(
                threading.Thread(
                    target=lambda one=one: one.extend(service.stream(**{"Last-Event-ID": "0"}))
                )
                for one in followers
            ),
        ]
        for thread in threads:
            thread.start()
        for thread in threads[:2]:
            thread.join(PATIENCE)
        last = read_back(service, tmp_path)
        for _ in followers:
            assert service.streaming.acquire(timeout=PATIENCE)
        # Ctrl-C ends it in the same way, with the exit code of an interruption.
        assert service.end(signal.SIGINT) == 130
        for thread in threads[2:]:
            thread.join(PATIENCE)
    assert sorted(answer["new_version"] for answer in answers) == list(range(1, 81))
    for told in followers:
        assert [number for number, _ in told] == list(range(1, 81))
        assert {number: msgspec.to_builtins(delta) for number, delta in told} == {
            answer["new_version"]: answer for answer in answers
        }
    assert {answer["old_version"] + 1 - answer["new_version"] for answer in answers} == {0}
    assert (first.notes["version"], last.notes["version"]) == (0, 80)


def read_back(service: Serving, tmp_path: Path) -> Any:
    for name in ("problem", "plan"):
        content = service.client.get(f"/placements/field/{name}").content
        (tmp_path / f"{name}.json").write_bytes(content)
    return read_plan(tmp_path / "plan.json", read_problem(tmp_path / "problem.json"))


def refused(*arguments: str, **environment: str) -> str:
    """Start a service that must not start; its one line."""
    done = CliRunner().invoke(cli, ["serve", *arguments], env=environment)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("nova: error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_what_keeps_it_from_starting(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    assert "anyone who reaches this address" in refused(data, "--host", "0.0.0.0", "--port", "0")
    assert "cannot be listened on" in refused(data, "--host", "203.0.113.1", "--port", "0")
    assert "missing: cannot be read" in refused(data, "--token-file", str(tmp_path / "missing"))
    assert not (tmp_path / "data").exists()


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "nova_core.service.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    said = refused(str(tmp_path / "data"))
    assert "uvicorn is not installed; pip install 'nova-placement[serve]'" in said


@pytest.mark.parametrize("text", ["", "\n", "two words", "schlüssel"])
def test_a_token_is_one_word(tmp_path: Path, text: str) -> None:
    data = str(tmp_path / "data")
    (tmp_path / "token").write_text(text)
    assert "holds no token" in refused(data, "--token-file", str(tmp_path / "token"))
    assert "$NOVA_TOKEN: holds no token" in refused(data, NOVA_TOKEN=text)


def test_one_service_per_directory_and_a_token_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    options = ("--host", "0.0.0.0", "--token-file", str(tmp_path / "token"))
    with serving(tmp_path / "data", *options) as service:
        assert "another nova serve uses it" in refused(str(tmp_path / "data"), "--port", "0")
        port = service.url.rpartition(":")[2]
        at = f"http://127.0.0.1:{port}/placements"
        assert httpx.get(at).status_code == 401
        assert httpx.get(at, headers={"Authorization": "Bearer secret"}).status_code == 200
        assert "cannot be listened on" in refused(str(tmp_path / "other"), "--port", port)
        service.process.send_signal(signal.SIGTERM)
        _, said = service.process.communicate(timeout=PATIENCE)
        assert "token and data cross the network unencrypted" in said
