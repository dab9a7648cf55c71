"""The REST client against answers that are none; those of a cluster are in test_verification."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from nova_flink.rest import FlinkError, Rest, host_and_port

TRACE = "Recovery is suppressed\n\tat a.B(B.java:1)\nCaused by: {}\n\t... 12 more\n"
# The coordinator failed first; a task's failure, at about the same time, is why.
FAILURES = {
    "exceptionHistory": {
        "entries": [
            {
                "stacktrace": TRACE.format("a coordinator failed"),
                "concurrentExceptions": [{"stacktrace": TRACE.format("a message of 0 bytes")}],
            }
        ]
    }
}


class Answers(BaseHTTPRequestHandler):
    """What stands at Flink's address when it is not Flink, or refuses."""

    known: ClassVar = {
        "/overview": (200, b'{"taskmanagers": 2}'),
        "/taskmanagers": (200, b'{"taskmanagers": [{"id": "tm-a"}]}'),
        "/taskmanagers/tm-a": (200, b'{"allocatedSlots": [{"jobId": "held"}]}'),
        "/jobs/held/status": (200, b'{"status": "CANCELED"}'),
        "/jobs/free/status": (200, b'{"status": "FINISHED"}'),
        "/jobs/failed/exceptions": (200, json.dumps(FAILURES).encode()),
        "/html": (200, b"<html>not Flink</html>"),
        "/refused": (404, b'{"errors": ["not found.", "Job x not found\\n\\tat java.Lang"]}'),
        "/broken": (500, b"<html>"),
        "/deep": (200, b"[" * 100_000),
        "/deeply-broken": (500, b"[" * 100_000),
    }

    def do_GET(self) -> None:
        code, body = self.known.get(self.path, (404, b""))
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture(scope="module")
def rest() -> Iterator[Rest]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Rest(f"http://127.0.0.1:{server.server_port}/")
    server.shutdown()
    server.server_close()


def test_answers(rest: Rest) -> None:
    assert rest.get("/overview") == {"taskmanagers": 2}
    assert list(rest.task_managers()) == ["tm-a"]


def test_proxies_of_the_environment_are_not_asked(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert Rest(rest.url).get("/overview") == {"taskmanagers": 2}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/html", "not Flink's REST interface"),
        ("/refused", "Job x not found$"),
        ("/broken", "HTTP 500"),
        ("/deep", "not Flink's REST interface"),
        ("/deeply-broken", "HTTP 500"),
        ("/nothing", "HTTP 404"),
    ],
)
def test_refusals_name_the_url_in_one_line(rest: Rest, path: str, message: str) -> None:
    with pytest.raises(FlinkError, match=message) as caught:
        rest.get(path)
    assert rest.url + path in str(caught.value)
    assert "\n" not in str(caught.value)


def test_silence_says_what_to_look_at() -> None:
    with pytest.raises(FlinkError, match=r"http://127.0.0.1:9: no answer .* is it up\?"):
        Rest("http://127.0.0.1:9").get("/overview")


def test_waiting_names_who_is_missing(rest: Rest) -> None:
    rest.wait_task_managers(["a"], 0.0)
    with pytest.raises(FlinkError, match="no TaskManager of b, c has registered"):
        rest.wait_task_managers(["a", "b", "c"], 0.2)


def test_what_failed_at_about_the_same_time_is_told(rest: Rest) -> None:
    assert rest.exceptions("failed") == [
        "a message of 0 bytes",
        "Recovery is suppressed",
        "a coordinator failed",
    ]


def test_a_job_has_ended_when_its_slots_are_free(rest: Rest) -> None:
    assert rest.wait_ended("free", 0.2) == "FINISHED"
    with pytest.raises(
        FlinkError, match=r"held is still CANCELED, with slots on tm-a, after 0.2 s"
    ):
        rest.wait_ended("held", 0.2)


def test_waiting_for_nobody_says_that_nothing_answers() -> None:
    with pytest.raises(FlinkError, match="no answer"):
        Rest("http://127.0.0.1:9").wait_task_managers(["a"], 0.2)


def test_addresses() -> None:
    assert Rest.at("h:1").url == Rest.at("http://h:1/").url == "http://h:1"
    assert host_and_port("http://h:1") == ("h", 1)
    for wrong in ("http://h", "http://[red]:1", "http://h:x", "h:1"):
        with pytest.raises(FlinkError, match="expected http://HOST:PORT"):
            host_and_port(wrong)
    with pytest.raises(FlinkError, match="red"):
        Rest.at("[red]").get("/overview")
