"""What one client can do to others, and to the machine: `nova serve` as a process."""

from __future__ import annotations

import resource
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from needs import skip_or_fail
from serving import PROBLEM, rate
from test_serve_process import PATIENCE, Serving, memory_of, serving

from nova_core.service import requests
from nova_core.strategies.base import load, names

# A request that takes longer than anybody waits.
ENDLESS = {
    "strategy": "whitewater-annealing",
    "parameters": {"steps": 200_000, "temperatures": 100_000},
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path / "data") as service:
        service.begin()
        yield service


def problem_of(service: Serving) -> str:
    problem: str = service.client.post("/problems", json=PROBLEM).json()["id"]
    return problem


# --- files of the server --------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["/dev/zero", "/etc/passwd", "model.npz", "../x", ""])
def test_a_request_names_no_file_of_the_server(service: Serving, file: str) -> None:
    request = {"strategy": "costream", "parameters": {"model": file}}
    begin = service.client.post(
        "/placements", json=request | {"name": "n", "problem": problem_of(service)}
    )
    place = service.client.post(f"/problems/{problem_of(service)}/plan", json=request)
    for answer in (begin, place):
        assert answer.status_code == 400
        # The same of files that are there, and of others.
        assert answer.json() == {
            "error": "strategy costream: model is a file of this machine; requests name none"
        }
    assert memory_of(service.process.pid) < 1000


def test_every_parameter_that_is_a_file_is_declared() -> None:
    """Another parameter that is a text is either a file, or has to be named here."""
    texts = {
        (name, field)
        for name in names()
        for field, kind in load(name).Parameters.__annotations__.items()
        if "str" in str(kind) and field not in load(name).files
    }
    assert {field for _, field in texts} == {"objective"}  # one of a few names


# --- what takes for ever --------------------------------------------------------------------------


def ask(service: Serving, request: dict[str, object]) -> threading.Thread:
    """Ask for a plan, and do not wait."""
    url = f"{service.url}/problems/{problem_of(service)}/plan"

    def post() -> None:
        with suppress(httpx.TransportError):
            httpx.post(url, json=request, timeout=PATIENCE)

    thread = threading.Thread(target=post)
    thread.start()
    return thread


def test_endless_placing_ends_with_the_service(service: Serving) -> None:
    threads = [ask(service, ENDLESS) for _ in range(3)]
    time.sleep(2)
    begin = time.monotonic()
    assert service.client.get("/health").json()["status"] == "ok"
    assert service.follow(rate(26)).status_code == 200
    assert time.monotonic() - begin < 1
    begin = time.monotonic()
    service.end(signal.SIGTERM)
    assert time.monotonic() - begin < 5
    for thread in threads:
        thread.join(PATIENCE)


def test_endless_placing_ends_in_time_and_when_its_client_leaves(tmp_path: Path) -> None:
    request = ENDLESS | {"name": "field"}
    with serving(tmp_path / "data", "--job-seconds", "0.2") as service:
        problem = problem_of(service)
        request["problem"] = problem
        for path, body in ((f"/problems/{problem}/plan", ENDLESS), ("/placements", request)):
            answer = service.client.post(path, json=body)
            assert answer.status_code == 413
            assert answer.json()["error"].startswith("it takes more than 0.2 s; nova serve --job-s")
        assert service.client.get("/placements").json() == {"placements": []}
    with serving(tmp_path / "data") as service:
        service.begin()  # the name is free
    with serving(tmp_path / "other") as service:
        problem = problem_of(service)
        for _ in range(4):
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{service.url}/problems/{problem}/plan", json=ENDLESS, timeout=0.3)
        # Four clients have left: their places are free again.
        answer = service.client.post(f"/problems/{problem}/plan", json={})
        assert answer.status_code == 200
        service.process.send_signal(signal.SIGTERM)
        _, written = service.process.communicate(timeout=PATIENCE)
        assert "Traceback" not in written


# --- connections ----------------------------------------------------------------------------------


@contextmanager
def open_files(count: int) -> Iterator[None]:
    """Let this process have more files open than usual."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        skip_or_fail(f"{count} open files are needed; the limit is {hard} (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def address(service: Serving) -> tuple[str, int]:
    host, _, port = service.url.removeprefix("http://").partition(":")
    return host, int(port)


def test_half_open_connections_and_slow_bodies_hold_nobody_up(tmp_path: Path) -> None:
    with open_files(4000), ExitStack() as stack, serving(tmp_path / "data") as service:
        service.begin()
        opened = []
        for number in range(1500):
            one = stack.enter_context(socket.create_connection(address(service), timeout=5))
            if number % 2:
                one.sendall(b"GET /health HT")
            opened.append(one)
        slow = []
        for _ in range(20):
            one = stack.enter_context(socket.create_connection(address(service), timeout=5))
            one.sendall(
                b"POST /problems HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 30000000\r\n\r\n" + b"[" * 20_000
            )
            slow.append(one)
        ending = threading.Event()
        acknowledged: list[int] = []

        def client(number: int) -> None:
            with httpx.Client(base_url=service.url, timeout=PATIENCE) as http:
                while not ending.is_set():
                    event = rate(20 + len(acknowledged) / 1e6, "t1" if number % 2 else "h1")
                    answer = http.post("/placements/field/events", json=event)
                    assert answer.status_code == 200, answer.text
                    acknowledged.append(answer.json()["new_version"])

        clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
        for thread in clients:
            thread.start()
        longest, until = 0.0, time.monotonic() + requests.PART_SECONDS + 5
        while time.monotonic() < until:
            begin = time.monotonic()
            assert httpx.get(f"{service.url}/health", timeout=PATIENCE).status_code == 200
            longest = max(longest, time.monotonic() - begin)
            for one in slow:
                with suppress(OSError):
                    one.send(b"[")
            time.sleep(0.3)
        ending.set()
        for thread in clients:
            thread.join(PATIENCE)
        print(f"longest /health {longest:.3f} s, {len(acknowledged)} events acknowledged")
        assert sorted(acknowledged) == list(range(1, len(acknowledged) + 1))
        # Those that never sent a request, or too slowly, have been closed.
        for one in (*opened, *slow):
            one.settimeout(1)
            try:
                text = one.recv(1000)
            except ConnectionError:
                text = b""
            assert text == b"" or b" 408 " in text
        begin = time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        service.process.communicate(timeout=PATIENCE)
        print(f"ended after {time.monotonic() - begin:.2f} s")
    with serving(tmp_path / "data") as service:
        assert service.client.get("/placements/field").json()["version"] == len(acknowledged)


def test_a_client_that_leaves_is_no_fault(service: Serving) -> None:
    with socket.create_connection(address(service)) as one:
        one.sendall(
            b"POST /problems HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100000\r\n\r\n[[["
        )
        time.sleep(0.3)
    time.sleep(0.3)
    service.process.send_signal(signal.SIGTERM)
    _, written = service.process.communicate(timeout=PATIENCE)
    assert "Traceback" not in written


# --- what is kept ---------------------------------------------------------------------------------


def test_what_is_kept_is_for_its_user_alone(service: Serving, tmp_path: Path) -> None:
    assert service.follow(rate(26)).status_code == 200
    kept = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    assert len(kept) > 5
    for path in kept:
        assert not path.lstat().st_mode & (stat.S_IRWXG | stat.S_IRWXO), path


def test_names_do_not_end_in_a_newline(service: Serving) -> None:
    request = {"name": "n\n", "problem": problem_of(service)}
    answer = service.client.post("/placements", json=request)
    assert answer.status_code == 400
    assert "name" in answer.json()["error"]
    assert service.follow(rate(26), **{"If-Match": "0"}).status_code == 200


def test_metrics_of_a_placement_end_with_it(service: Serving) -> None:
    assert service.follow(rate(26)).status_code == 200
    assert 'placement="field"' in service.client.get("/metrics").text
    assert service.client.delete("/placements/field").status_code == 204
    assert "field" not in service.client.get("/metrics").text
