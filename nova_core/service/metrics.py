"""The service's metrics for Prometheus."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

_SECONDS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)


class Metrics:
    """Counters of one service.

    Attributes:
        requests: by route and status.
        seconds: time to answer, by route.
        events: by placement, kind and whether they took effect.
        event_seconds: time inside the optimizer and its journal.
        moves: instances that had to move, by placement.
        version: of each placement.
        streams: clients that follow, by placement.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.requests = Counter(
            "nova_http_requests", "Requests answered", ("route", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "nova_http_request_seconds", "Time to answer", ("route",),
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self.events = Counter(
            "nova_events", "Events seen", ("placement", "kind", "outcome"), registry=self.registry
        )
        self.event_seconds = Histogram(
            "nova_event_seconds", "Time to follow an event, journal included", ("placement",),
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self.moves = Counter(
            "nova_moves", "Instances moved", ("placement",), registry=self.registry
        )
        self.version = Gauge(
            "nova_placement_version", "Events followed", ("placement",), registry=self.registry
        )
        self.streams = Gauge(
            "nova_streams", "Clients that follow deltas", ("placement",), registry=self.registry
        )

    def forget(self, placement: str) -> None:
        """Drop what is counted of a placement that has been removed."""
        for metric in (self.events, self.event_seconds, self.moves, self.version, self.streams):
            metric.remove_by_labels({"placement": placement})

    def text(self) -> bytes:
        """All of it, in the text format of Prometheus."""
        return generate_latest(self.registry)
