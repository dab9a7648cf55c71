"""What is shown of a controlled job: in a terminal, in a browser, to Prometheus."""

from __future__ import annotations

import html
import io
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import numpy as np
import pytest
from browsers import chromium, find_browser
from PIL import Image
from rich.console import Console
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from nova_core.errors import NovaError
from nova_engines.results import PAIR, PAIR_BYTES, dtype
from nova_harness.control import arrivals
from nova_harness.control.arrivals import Arrival, ArrivalsWatch, newest
from nova_harness.control.page import application, served
from nova_harness.control.state import ControlState, HostState, LogLine
from nova_harness.control.watching import drawn
from nova_testbed.hosts import Hosts, connect

sys.path.append(str(Path(__file__).parents[1] / "nova_testbed"))
from loopback_hosts import loopback_inventory, sshds

NOW = 1_700_000_000.0
STATE = ControlState(
    NOW,
    ["c0ffee", "decaf"],
    [
        HostState("hub", "sink", (0.0, 0.0), 1.0, 0.0, 1.0, 0, "up"),
        HostState("left", "source", (-20.0, 5.0), 1.0, None, 1.0, 0, "silent"),
        HostState("near", "worker", (-8.0, 3.0), 0.5, 0.4, 0.2, 1, "up"),
        HostState("far", "worker", (30.0, -9.0), 0.5, 0.0, 0.0, 0, "lost"),
    ],
    [("left", "near"), ("near", "hub")],
    [Arrival(NOW - 60 + 2 * k, 400.0 + k, 80.0 + k, 200.0 + 9 * k) for k in range(30)],
    [
        LogLine(NOW - 30, "noticed", "near can do 80 % less: a-b from near to far"),
        LogLine(NOW - 20, "handed-over", "handed over at 02:43:45.000"),
        LogLine(NOW - 5, "failed", "<script>alert(1)</script> & more"),
    ],
    {"noticed": 1, "handed-over": 1, "failed": 1},
)


@pytest.fixture
def address() -> Iterator[str]:
    with served(0, application(lambda: STATE)) as found:
        yield found


def test_state_and_figures(address: str) -> None:
    told = msgspec.json.decode(httpx.get(f"{address}/state").content, type=ControlState)
    assert told == STATE
    text = httpx.get(f"{address}/metrics").text
    assert 'nova_control_host_taken_cores{host="near"} 0.4' in text
    assert 'nova_control_host_taken_cores{host="left"}' not in text
    assert 'nova_control_host_up{host="far"} 0.0' in text
    assert 'nova_control_log_lines_total{kind="handed-over"} 1.0' in text
    assert "nova_control_results_per_second 429.0" in text
    assert 'nova_control_latency_seconds{quantile="0.99"} 0.461' in text


def test_the_dashboard_asks_for_figures_that_are_there(address: str) -> None:
    served_text = httpx.get(f"{address}/metrics").text
    dashboard = httpx.get(f"{address}/grafana.json").json()
    asked = {
        name
        for one in [t for panel in dashboard["panels"] for t in panel["targets"]]
        + dashboard["annotations"]["list"]
        for name in re.findall(r"nova_\w+", one["expr"])
    }
    there = {line.split("{")[0].split()[0] for line in served_text.splitlines() if line[0] != "#"}
    assert asked == there


def test_nothing_is_known_at_first() -> None:
    with served(0, application(lambda: None)) as address:
        assert httpx.get(f"{address}/state").json() is None
        assert httpx.get(f"{address}/metrics").text == ""


def test_only_for_this_machine(address: str) -> None:
    assert address.startswith("http://127.0.0.1:")
    assert httpx.get(address, headers={"Host": "elsewhere.example"}).status_code == 400
    assert httpx.post(f"{address}/state").status_code == 405
    policy = httpx.get(address).headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")


def test_a_port_that_is_taken(address: str) -> None:
    port = int(address.rpartition(":")[2])
    with (
        pytest.raises(NovaError, match=f"127.0.0.1:{port}: cannot be listened on"),
        served(port, application(lambda: STATE)),
    ):
        pass


def test_in_a_terminal() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(drawn(STATE))
    text = console.export_text()
    assert "c0ffee, decaf: 429 results/s, 109 ms (99 %: 461 ms)" in text
    assert re.search(r"near +\S* +80 % +\S* +20 % +\S* +1", text)
    assert re.search(r"far .* lost", text) and re.search(r"left .* - .* silent", text)
    assert "handed-over handed over at 02:43:45.000" in text


# --- results as they arrive ----------------------------------------------------------------------


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with sshds("one") as running, connect(loopback_inventory(running)) as found:
        yield found


def records(late_us: list[int]) -> bytes:
    made = np.zeros(len(late_us), dtype(PAIR))
    made["left_emit_us"], made["right_emit_us"] = 5_000, 9_000
    made["arrive_us"] = 9_000 + np.array(late_us)
    return made.tobytes()


def test_the_newest_records(hosts: Hosts, tmp_path: Path) -> None:
    file = ("one", str(tmp_path / "it's results"))
    assert newest(hosts, file, 0, PAIR_BYTES) == (0, b"")
    some = records([1, 2, 3])
    Path(file[1]).write_bytes(some + b"half a record")
    assert newest(hosts, file, 0, PAIR_BYTES) == (240, some)
    assert newest(hosts, file, 160, PAIR_BYTES) == (240, some[160:])
    assert newest(hosts, file, 240, PAIR_BYTES) == (240, b"")
    many = records(list(range(3 * arrivals.NEWEST)))
    Path(file[1]).write_bytes(many)
    found = newest(hosts, file, 80, PAIR_BYTES)
    assert found == (len(many), many[-arrivals.NEWEST * PAIR_BYTES :])


def test_results_over_time(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "PERIOD_S", 0.1)
    file = tmp_path / "results"
    file.write_bytes(records([1000] * 50))
    watch = ArrivalsWatch(hosts)
    watch.follow({("one", str(file)): PAIR})

    def until(text: str) -> Arrival:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            for one in watch.history():
                if eval(text, {"one": one}):
                    return one
            time.sleep(0.05)
        raise AssertionError(watch.history())

    try:
        first = until("one.p50_ms is not None")
        assert (first.per_second, first.p50_ms) == (0, 1)
        with file.open("ab") as more:
            more.write(records([3000] * 99 + [7000]))
        then = until("one.per_second > 0")
        assert (then.p50_ms, then.p99_ms) == (3, 3) and then.at > first.at
    finally:
        watch.close()


# --- in a browser --------------------------------------------------------------------------------

# Runs in the page once its state is there.
AUDIT = """
setTimeout(() => {
  const seen = document.documentElement.clientWidth, problems = [];
  if (document.documentElement.scrollWidth > seen) problems.push("the page is too wide");
  for (const node of document.querySelectorAll("h1, h2, p, li, .tile, svg, .scroll, b, span")) {
    const box = node.getBoundingClientRect();
    if (box.left < -1 || box.right > seen + 1) problems.push(`${node.tagName} leaves the window`);
  }
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll("text, circle")) {
      const box = text.getBoundingClientRect();
      if (box.left < frame.left || box.right > frame.right || box.top < frame.top
          || box.bottom > frame.bottom) problems.push(`${text.textContent} leaves its figure`);
    }
  }
  const count = what => document.querySelectorAll(what).length;
  const found = document.createElement("pre");
  found.id = "audit";
  found.textContent = JSON.stringify({problems, hosts: count("#map circle"),
    lost: count("#map .lost"), half: count("#map .half"), flows: count(".flow"),
    curves: count(".curve"), marks: count(".mark"), rows: count("#hosts tr"),
    log: [...document.querySelectorAll("#log li")].map(node => node.textContent),
    rate: document.getElementById("rate").textContent});
  document.body.append(found);
}, 1500);
"""


def audited(app: ASGIApp, base: str) -> ASGIApp:
    """The page below a path, with a script that measures it."""
    app = Starlette(routes=[Mount(base, app)])

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == f"{base}/audited":
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://localhost"
            ) as client:
                text = (await client.get(f"{base}/")).text
            page = HTMLResponse(text.replace("</script>", f"{AUDIT}</script>"))
            await page(scope, receive, send)
        else:
            await app(scope, receive, send)

    return answer


@pytest.mark.e2e
@pytest.mark.parametrize(("width", "base"), [(500, ""), (1200, "/jobs/field/watch")])
def test_the_page_in_a_browser(width: int, base: str, tmp_path: Path) -> None:
    browser = find_browser()
    with served(0, audited(application(lambda: STATE), base)) as server:
        address = f"{server}{base}"
        size = f"--window-size={width},1600"
        arguments = (size, "--virtual-time-budget=4000")
        dom = chromium(browser, tmp_path, *arguments, "--dump-dom", f"{address}/audited")
        told = re.search(r'<pre id="audit">(.*?)</pre>', dom, re.DOTALL)
        assert told is not None, dom[-2000:]
        found = json.loads(html.unescape(told[1]))
        shot = tmp_path / "page.png"
        chromium(browser, tmp_path, *arguments, f"--screenshot={shot}", f"{address}/")
    assert found["problems"] == []
    assert (found["hosts"], found["lost"], found["half"], found["flows"]) == (4, 2, 1, 2)
    assert (found["curves"], found["marks"], found["rows"]) == (2, 2, 4)
    assert found["rate"] == "429"
    # Newest first; what a log says is text.
    assert "<script>alert(1)</script> & more" in found["log"][0] and len(found["log"]) == 3
    pixels = np.asarray(Image.open(shot).convert("L"), dtype=float)
    assert pixels.shape == (1600, width) and pixels.std() > 10
