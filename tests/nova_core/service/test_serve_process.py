"""`nova serve` as a process: signals, kill -9, streams, two clients, and what it needs to start."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from click.testing import CliRunner
from serving import PROBLEM, rate

from nova_core.cli import cli
from nova_core.io.files import read_plan, read_problem
from nova_core.model.plan_delta import PlanDelta
from nova_core.placement.live import LivePlacement, parse_event

NOVA = [sys.executable, "-c", "from nova_core.cli import main; main()"]
PATIENCE = 30.0


class Serving:
    """A process, and a client of it."""

    def __init__(self, directory: Path, *options: str, program: Sequence[str] = NOVA) -> None:
        self.process = subprocess.Popen(
            [*program, "serve", str(directory), "--port", "0", "--json", *options],
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
def serving(directory: Path, *options: str, program: Sequence[str] = NOVA) -> Iterator[Serving]:
    service = Serving(directory, *options, program=program)
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


# How often the service is killed, and what decides when: more by hand.
KILLS = int(os.environ.get("NOVA_KILLS", "3"))
SEED = int(os.environ.get("NOVA_SEED", "1"))
# Writes its state often enough to be killed while it does.
OFTEN = [
    sys.executable,
    "-c",
    "from nova_core.service import hosted; hosted.CHECKPOINT = 40\n"
    "from nova_core.cli import main; main()",
]
ROOMY: dict[str, Any] = PROBLEM | {
    "nodes": [node | {"capacity": "unlimited"} for node in PROBLEM["nodes"]]
}


class Writers:
    """Clients that add sources, each of its own, and remember which were acknowledged.

    An event that got no answer is not sent again: it has happened or not.
    """

    def __init__(self, count: int) -> None:
        self.acknowledged: dict[str, int] = {}
        self.sent: set[str] = set()
        self._url: str | None = None
        self._changed = threading.Condition()
        self._ending = False
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def use(self, url: str | None) -> None:
        """Go on with a service at another address; None waits for one."""
        with self._changed:
            self._url = url
            self._changed.notify_all()

    def wait_for(self, more: int) -> None:
        """Until so many more events are acknowledged."""
        with self._changed:
            goal = len(self.acknowledged) + more
            assert self._changed.wait_for(lambda: len(self.acknowledged) >= goal, PATIENCE)

    def end(self) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _write(self, client: int) -> None:
        number = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ending or self._url is not None)
                if self._ending:
                    return
                url = self._url
            try:
                with httpx.Client(base_url=url, timeout=PATIENCE) as http:
                    while self._url == url and not self._ending:
                        number += 1
                        self._add(http, f"s{client}x{number}")
            except httpx.TransportError:
                with self._changed:
                    if self._url == url:
                        self._url = None

    def _add(self, http: httpx.Client, name: str) -> None:
        self.sent.add(name)
        source = {"id": name, "node": "thermometer", "stream": "T", "rate": 0.001}
        join = {"operator": "climate", "with": "h1", "output_rate": 0.001}
        event = {"event": "add-source", "source": source, "joins": [join]}
        answer = http.post("/placements/field/events", json=event)
        assert answer.status_code == 200, answer.text
        with self._changed:
            self.acknowledged[name] = answer.json()["new_version"]
            self._changed.notify_all()


def test_kills_under_four_clients_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    happened: dict[str, int] = {}
    writers = Writers(4)

    def look(service: Serving) -> None:
        """Read the deltas that came since; each source is added once, at the version answered."""
        after = len(happened)
        page = service.client.get(f"/placements/field/deltas?after={after}&limit=10000").json()
        for delta in page["deltas"]:
            (pair,) = delta["added"]
            source = pair.partition("/")[2].partition("*")[0]
            assert source not in happened
            happened[source] = delta["new_version"]
        assert list(happened.values()) == list(range(1, page["version"] + 1))

    try:
        for kill in range(KILLS + 1):
            with serving(tmp_path / "data", program=OFTEN) as service:
                if kill == 0:
                    problem = service.client.post("/problems", json=ROOMY).json()["id"]
                    request = {"name": "field", "problem": problem}
                    assert service.client.post("/placements", json=request).status_code == 201
                look(service)
                for name, version in writers.acknowledged.items():
                    assert happened[name] == version, f"{name} is lost after {kill} kills"
                writers.use(service.url)
                if kill < KILLS:
                    writers.wait_for(draw.randint(1, 60))
                    service.end(signal.SIGKILL)
                    writers.use(None)
                    continue
                writers.wait_for(10)
                writers.end()
                look(service)
                sources = service.client.get("/placements/field/problem").json()["sources"]
    finally:
        writers.end()
    assert sorted(source["id"] for source in sources) == sorted([*happened, "t1", "h1"])
    assert writers.acknowledged.items() <= happened.items()
    assert happened.keys() <= writers.sent
    print(f"{KILLS} kills: {len(writers.acknowledged)} of {len(writers.sent)} acknowledged, all "
          f"there; {len(happened)} happened, none twice")  # fmt: skip


def memory_of(process: int) -> float:
    """What a process and its children take, MiB; shared pages count in part."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    own = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return own / 1024 + sum(memory_of(int(child)) for child in children)


@pytest.mark.e2e
def test_hostile_bodies_at_once_take_little_memory_and_hold_nobody_up(tmp_path: Path) -> None:
    """Many times their size when they are read: aliases of aliases, and lists of empty lists."""
    first = b"a: &a [" + b"x," * 9 + b"x]\n"
    names = [bytes([letter]) for letter in range(ord("a"), ord("z"))]
    rest = b"".join(
        b"%s: &%s [%s*%s]\n" % (name, name, b"*%s," % before * 9, before)
        for before, name in pairwise(names)
    )
    bodies = [first + rest + b" " * 220_000, b"[" + b"[]," * 200_000 + b"[]]"]
    count = 20
    answers: list[int] = []
    with serving(tmp_path / "data", "--body-memory", "256") as service:
        service.begin()

        def upload(content: bytes) -> None:
            kind = {"Content-Type": "application/yaml"}
            url = f"{service.url}/problems"
            answers.append(httpx.post(url, content=content, headers=kind, timeout=None).status_code)

        threads = [threading.Thread(target=upload, args=(bodies[n % 2],)) for n in range(count)]
        for thread in threads:
            thread.start()
        peak, followed = 0.0, 0
        while any(thread.is_alive() for thread in threads):
            followed += service.follow(rate(25 + followed / 1e6)).status_code == 200
            peak = max(peak, memory_of(service.process.pid))
    assert len(answers) == count
    assert set(answers) <= {400, 413}
    assert peak < 1000
    # Other clients were answered meanwhile, many times for each body.
    assert followed > 10 * count


def test_a_service_without_a_token_says_so(tmp_path: Path) -> None:
    for options, says in (((), True), (("--token-file", str(tmp_path / "token")), False)):
        (tmp_path / "token").write_text("secret\n")
        with serving(tmp_path / "data", *options) as service:
            service.process.send_signal(signal.SIGTERM)
            _, written = service.process.communicate(timeout=PATIENCE)
        assert ("there is no token" in written) == says
        assert ("every client of a proxy" in written) == says


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
    assert "serve: needs the module uvicorn; pip install 'nova-placement[serve]'" in said


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
        said = refused(str(tmp_path / "data"), "--port", "0")
        assert f"data: process {service.process.pid} uses it" in said
        port = service.url.rpartition(":")[2]
        at = f"http://127.0.0.1:{port}/placements"
        assert httpx.get(at).status_code == 401
        assert httpx.get(at, headers={"Authorization": "Bearer secret"}).status_code == 200
        assert "cannot be listened on" in refused(str(tmp_path / "other"), "--port", port)
        service.process.send_signal(signal.SIGTERM)
        _, said = service.process.communicate(timeout=PATIENCE)
        assert "token and data cross the network unencrypted" in said
