"""A controlled job in a browser, and for Prometheus: read-only, on this machine only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files

import msgspec
import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from nova_core.service.server import listen
from nova_harness.control.state import ControlState

LOOPBACK = "127.0.0.1"
# The page is one file: nothing is fetched but its own state.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
States = Callable[[], ControlState | None]


@contextmanager
def served(port: int, app: ASGIApp) -> Iterator[str]:
    """Serve the page inside the context.

    Args:
        port: on loopback; 0 for any that is free.
        app: see `application`.

    Yields:
        The page's address.

    Raises:
        NovaError: when the port is taken.
    """
    with listen(LOOPBACK, port) as listener:
        config = uvicorn.Config(app, access_log=False, log_config=None, server_header=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def application(states: States) -> Starlette:
    """`routes`, for this machine only.

    Args:
        states: the state to show; None before there is any.
    """
    # Against DNS rebinding: another page may resolve its own name to this machine.
    own = Middleware(TrustedHostMiddleware, allowed_hosts=["localhost", LOOPBACK])
    return Starlette(routes=routes(states), middleware=[own])


def routes(states: States) -> list[Route]:
    """The page, its state as JSON, figures for Prometheus, and a Grafana dashboard for these.

    Args:
        states: as in `application`.
    """
    own_files = files("nova_harness.control")
    page = (own_files / "page.html").read_text("utf-8")
    dashboard = (own_files / "grafana.json").read_text("utf-8")
    registry = CollectorRegistry()
    registry.register(Figures(states))

    async def whole(_: Request) -> Response:
        return HTMLResponse(page, headers=HEADERS)

    async def grafana(_: Request) -> Response:
        return Response(dashboard, media_type="application/json", headers=HEADERS)

    async def state(_: Request) -> Response:
        body = msgspec.json.encode(states())
        return Response(body, media_type="application/json", headers=HEADERS)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    return [
        Route("/", whole),
        Route("/state", state),
        Route("/metrics", metrics),
        Route("/grafana.json", grafana),
    ]


class Figures(Collector):
    """A controller's figures for Prometheus.

    Args:
        states: as in `application`.
    """

    def __init__(self, states: States) -> None:
        self._states = states

    def collect(self) -> Iterator[Metric]:
        """All figures as they are now; none before the first look."""
        state = self._states()
        if state is None:
            return
        for name, text, value in (
            ("taken_cores", "Cores that others than the engine use", "taken"),
            ("counted_share", "What the host counts as, of its own capacity", "counts"),
            ("joins", "Join instances on the host", "joins"),
        ):
            family = GaugeMetricFamily(f"nova_control_host_{name}", text, labels=["host"])
            for host in state.hosts:
                if getattr(host, value) is not None:
                    family.add_metric([host.name], float(getattr(host, value)))
            yield family
        up = GaugeMetricFamily("nova_control_host_up", "The engine's worker runs", labels=["host"])
        for host in state.hosts:
            up.add_metric([host.name], float(host.state == "up"))
        yield up
        lines = CounterMetricFamily("nova_control_log_lines", "Lines of the log", labels=["kind"])
        for kind, count in sorted(state.kinds.items()):
            lines.add_metric([kind], count)
        yield lines
        yield from _arrivals(state)


def _arrivals(state: ControlState) -> Iterator[Metric]:
    if not state.arrivals:
        return
    last = state.arrivals[-1]
    yield GaugeMetricFamily("nova_control_results_per_second", "At the sinks", last.per_second)
    late = GaugeMetricFamily(
        "nova_control_latency_seconds", "Of the newest results", labels=["quantile"]
    )
    for quantile, value in (("0.5", last.p50_ms), ("0.99", last.p99_ms)):
        if value is not None:
            late.add_metric([quantile], value / 1000)
    yield late
