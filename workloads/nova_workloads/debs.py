"""The DEBS-style workload of the paper's end-to-end runs, as a problem and as a query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from nova_core.errors import ProblemError
from nova_core.model.syntax import Row, dump
from nova_workloads.streams import HUMIDITY, PRESSURE

WINDOWS_MS = (1, 1000)
REGION_DISTANCE = 45.0  # ms from the sink to the middle of a region
SENSOR_DISTANCE = 4.0  # ms from there to its sensors
FOG_DISTANCE = 30.0  # ms from the sink to a region's fog node
# Of a sensor's rate; a whole join needs 2. Sensors are busy measuring, the sink is the weakest.
SENSOR_CAPACITY, FOG_CAPACITY, CLOUD_CAPACITY = 0.5, 2.5, 3.0
SINK_HEADROOM = 1.2
TUPLE_BYTES = 64
MOST_NODES = 10_000


@dataclass(frozen=True)
class Debs:
    """The workload of the Nova paper, section 4.1: pressure joined with humidity.

    Each region has a pressure and a humidity sensor and is joined on its own. The defaults are the
    paper's: four regions, eight sensors at 1 kHz, 14 nodes.

    Attributes:
        window_ms: tumbling windows over event time; the paper has 1 ms to 1 s.
        rate: of each sensor, tuples/s.
        regions: how many.
        nodes: the sink, two sensors per region, a fog node per region, and the rest in the cloud.
        keys: tuples of a window match when their sequence numbers are equal modulo this as well,
            which divides the output; 1 matches all of them, as the paper does.
    """

    window_ms: int = 1
    rate: float = 1000.0
    regions: int = 4
    nodes: int = 14
    keys: int = 1

    def __post_init__(self) -> None:
        low, high = WINDOWS_MS
        if not low <= self.window_ms <= high:
            raise ProblemError(f"window {self.window_ms} ms: expected {low} to {high} ms")
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise ProblemError(f"rate {self.rate:g}: expected more than 0 tuples/s")
        for name in ("regions", "keys"):
            if getattr(self, name) < 1:
                raise ProblemError(f"{name} {getattr(self, name)}: expected 1 or more")
        if self.nodes > MOST_NODES:
            raise ProblemError(
                f"nodes {self.nodes}: expected {MOST_NODES:,} at most, as this writes a document; "
                "`nova generate` writes larger problems as tables"
            )
        if self.nodes < self.least_nodes:
            raise ProblemError(
                f"nodes {self.nodes}: {self.regions} regions need {self.least_nodes} or more "
                "(a sink, and two sensors and a fog node per region)"
            )

    @property
    def least_nodes(self) -> int:
        """The sink, and two sensors and a fog node per region."""
        return 1 + 3 * self.regions

    @property
    def selectivity(self) -> float:
        """Results per tuple of a sensor: how many of the other's share its window and key.

        Sensors emit at the same moments, so that there is always one.
        """
        return max(1.0, self.rate * self.window_ms / 1000 / self.keys)

    @property
    def output_rate(self) -> float:
        """Results of all regions, tuples/s."""
        return self.regions * self.rate * self.selectivity

    def document(self) -> dict[str, Any]:
        """The problem: topology, sources and the operators of the query."""
        nodes = [
            Row(
                id="sink",
                position=[0, 0],
                capacity=math.ceil(SINK_HEADROOM * self.output_rate),
                worker=False,
            )
        ]
        sources = []
        for number in range(1, self.regions + 1):
            angle = 2 * math.pi * (number - 0.5) / self.regions
            for stream, side in ((PRESSURE, -1), (HUMIDITY, 1)):
                name = f"{stream}-{number}"
                nodes.append(
                    Row(
                        id=name,
                        position=_polar(REGION_DISTANCE, angle, side * SENSOR_DISTANCE),
                        capacity=self._capacity(SENSOR_CAPACITY),
                        tags=["edge"],
                    )
                )
                sources.append(
                    Row(
                        id=name,
                        node=name,
                        stream=stream,
                        rate=_plain(self.rate),
                        key=f"region-{number}",
                        tuple_bytes=TUPLE_BYTES,
                    )
                )
            nodes.append(
                Row(
                    id=f"fog-{number}",
                    position=_polar(FOG_DISTANCE, angle, 0),
                    capacity=self._capacity(FOG_CAPACITY),
                    tags=["fog"],
                )
            )
        cloud = self.nodes - self.least_nodes
        for number in range(1, cloud + 1):
            angle = 2 * math.pi * (number - 1) / cloud
            nodes.append(
                Row(
                    id=f"cloud-{number}",
                    position=_polar(2 * REGION_DISTANCE, angle, 0),
                    capacity=self._capacity(CLOUD_CAPACITY),
                    tags=["cloud"],
                )
            )
        join = Row(
            id="climate",
            kind="join",
            left=PRESSURE,
            right=HUMIDITY,
            sink="sink",
            match="key",
            selectivity=_plain(self.selectivity),
        )
        return {
            "nova": 1,
            "name": f"DEBS-style, {self.regions} regions, windows of {self.window_ms} ms",
            "nodes": nodes,
            "sources": sources,
            "query": {"operators": [join]},
        }

    def text(self, suffix: str = ".yaml") -> str:
        """The problem as the text of a ``.yaml`` or ``.json`` document."""
        return dump(self.document(), suffix)

    def sql(self) -> str:
        """The query in standard SQL over the streams ``pressure`` and ``humidity``."""
        keys = f"\n AND l.sequence % {self.keys} = r.sequence % {self.keys}"
        template = (files("nova_workloads") / "debs.sql").read_text("utf-8")
        return template.format(window_ms=self.window_ms, keys=keys if self.keys > 1 else "")

    def _capacity(self, share: float) -> float:
        return _plain(max(1.0, share * self.rate))


def _polar(distance: float, angle: float, aside: float) -> list[float]:
    """A point that far along a direction and to its side, ms."""
    x = distance * math.cos(angle) - aside * math.sin(angle)
    y = distance * math.sin(angle) + aside * math.cos(angle)
    return [round(x, 1) + 0.0, round(y, 1) + 0.0]


def _plain(value: float) -> float:
    """A whole number without a decimal point."""
    return int(value) if value == int(value) else value
