"""The DEBS-style workload of the paper's end-to-end runs: on hosts, as a problem and as a query."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta

from nova_core.errors import NovaError, ProblemError
from nova_core.io.syntax import Row, dump, number
from nova_workloads.base import Traffic, Workload
from nova_workloads.logical_streams import HUMIDITY, PRESSURE, STREAMS

if TYPE_CHECKING:
    from nova_core.model.problem import Problem
    from nova_workloads.joined_streams import JoinedStreams
    from nova_workloads.streams import Stream

JOIN = "join"


def regional_join(
    hosts: Sequence[str],
    sink: str,
    rate: float,
    *,
    selectivity: float = 1.0,
    regions: Sequence[str] = (),
    join: str = JOIN,
    **facts: Any,
) -> dict[str, Any]:
    """Sources and query of a problem: pressure joined with humidity by region.

    Hosts measure pressure and humidity in turn, two and two in a region, as in the paper's
    end-to-end run (section 4.1).

    Args:
        hosts: two for each region; the last one of an odd number has no source.
        sink: node of the result.
        rate: of each source, tuples/s.
        selectivity: results per tuple.
        regions: what regions are called; by default ``region-1`` and so on.
        join: id of the operator.
        facts: other fields of all sources.
    """
    operator = Row(id=join, left=PRESSURE, right=HUMIDITY, sink=sink, match="key")
    if selectivity != 1:
        operator["selectivity"] = number(selectivity)
    return {
        "query": {"operators": [operator]},
        "sources": [
            Row(
                id=f"{STREAMS[i % 2]}-{i // 2 + 1}",
                node=host,
                stream=STREAMS[i % 2],
                rate=number(rate),
                key=regions[i // 2] if regions else f"region-{i // 2 + 1}",
                **facts,
            )
            for i, host in enumerate(hosts[: len(hosts) // 2 * 2])
        ],
    }


class DebsWorkload(Workload, frozen=True, kw_only=True):
    """Pressure joined with humidity by region (Nova paper, section 4.1).

    Attributes:
        regions: with a pressure and a humidity sensor each, on the inventory's sources in order.
        matches: results per tuple; where a window holds more tuples of a sensor, sequence numbers
            have to be equal modulo a number of keys as well. Below 1, only tuples of one in so
            many keys match. With ``all``, all pairs of a window do, as in the paper.
        data: files or directory of readings to replay, relative to the experiment's file; None
            for made-up ones. Regions are those of the readings, as far as enough of them have both
            sensors; experiments without rates take the sensors' mean rate.
    """

    regions: Annotated[int, Meta(ge=1, le=10_000)] = 4
    matches: Annotated[float, Meta(ge=0.001, le=1000)] | Literal["all"] = 1
    data: Annotated[str, Meta(min_length=1)] | None = None

    def at(self, base: Path) -> Self:
        """With readings relative to a directory."""
        if self.data is None:
            return self
        return msgspec.structs.replace(self, data=str(base / Path(self.data).expanduser()))

    def rates(self) -> list[float]:
        """The mean rate of the readings, where there are any."""
        if self.data is None:
            return super().rates()
        chosen = self._chosen()
        seconds = [float(s.time[-1] - s.time[0]) / 1000 for s in chosen]
        rates = [(len(s) - 1) / t for s, t in zip(chosen, seconds, strict=True) if t > 0]
        return [float(f"{sum(rates) / len(rates):.3g}")] if rates else super().rates()

    def check(self, windows_ms: Sequence[int]) -> None:
        """Whether there are readings of both streams."""
        if self.data is not None:
            self._chosen()

    def traffic(self, window_ms: int, rate: float) -> Traffic:
        """The traffic with the requested number of matches per tuple."""
        if self.matches == "all":
            return Traffic(rate, window_ms)
        tuples, every = rate * window_ms / 1000, max(1, round(1 / self.matches))
        if every > 1:
            return Traffic(rate, window_ms, math.ceil(tuples / every) * every, every)
        return Traffic(rate, window_ms, max(1, round(tuples / self.matches)))

    def problem(self, hosts: Sequence[str], sink: str, traffic: Traffic) -> dict[str, Any]:
        """A pressure and a humidity sensor per region, joined by region."""
        if len(hosts) < 2 * self.regions:
            raise NovaError(
                f"workload: {len(hosts)} hosts with the role source; {self.regions} regions need "
                f"{2 * self.regions}"
            )
        regions = [stream.region for stream in self._chosen()[::2]] if self.data else []
        if len(set(regions)) < self.regions:
            regions = []
        return regional_join(
            hosts[: 2 * self.regions],
            sink,
            traffic.rate,
            selectivity=traffic.matches if self.matches == "all" else self.matches,
            regions=regions,
        )

    def streams(self, problem: Problem, traffic: Traffic, seed: int) -> JoinedStreams:
        """Readings, or made-up values, in the order of the problem's sources."""
        from nova_workloads.joined_streams import JoinedStreams
        from nova_workloads.streams import synthetic

        made_up = self.data is None
        generated = synthetic(2 * self.regions, regions=self.regions, seed=seed)
        return JoinedStreams(
            problem, measured_by(problem, generated if made_up else self._chosen()), traffic
        )

    def _chosen(self) -> list[Stream]:
        """Readings of pressure and humidity in turn, region by region.

        With fewer regions that have both than requested, sensors of each stream are taken in turn;
        they serve more than one region where there are too few.
        """
        from nova_workloads.streams import read_streams

        assert self.data is not None
        data = Path(self.data)
        if not data.exists():
            raise NovaError(f"workload.data: {data}: there is no such file or directory")
        try:
            readings = read_streams(_files(data))
        except NovaError as error:
            raise NovaError(f"workload.data: {error}") from None
        sides = [[one for one in readings if one.stream == name] for name in STREAMS]
        for name, side in zip(STREAMS, sides, strict=True):
            if not side:
                raise NovaError(
                    f"workload.data: {data}: no readings of {name!r}; the workload joins "
                    f"{PRESSURE} with {HUMIDITY}"
                )
        first, second = ({one.region: one for one in reversed(side)} for side in sides)
        both = [region for region in dict.fromkeys(s.region for s in sides[0]) if region in second]
        if len(both) >= self.regions:
            sides = [[side[region] for region in both] for side in (first, second)]
        return [side[n % len(side)] for n in range(self.regions) for side in sides]


def measured_by(problem: Problem, readings: Sequence[Stream]) -> list[Stream]:
    """What each source of a problem measures: readings of its stream, assigned in turn.

    Args:
        problem: whose sources have a key, which becomes the region.
        readings: of its streams; one that is not among them gets any values.
    """
    from nova_workloads.streams import Stream

    s = problem.sources
    assert s.key is not None
    by_stream: dict[str, list[Stream]] = {}
    for one in readings:
        by_stream.setdefault(one.stream, []).append(one)
    streams, used = [], Counter[str]()
    for source, name, key in zip(s.ids.tolist(), s.stream.tolist(), s.key.tolist(), strict=True):
        some = by_stream.get(name, readings)
        values = some[used[name] % len(some)]
        used[name] += 1
        streams.append(Stream(source, key, name, values.time, values.value))
    return streams


def _files(data: Path) -> list[Path]:
    """The four-column files of a directory, or the path itself."""
    if data.is_dir():
        inside = data / "sensors" if (data / "sensors").is_dir() else data
        files = sorted(p for p in inside.iterdir() if p.name.endswith((".csv", ".csv.gz")))
        if files:
            return files
    return [data]


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
        """Results per tuple of a sensor; sensors emit at the same moments, so there is one."""
        return Traffic(self.rate, self.window_ms, self.keys).matches

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
        sensors = []
        for region in range(1, self.regions + 1):
            angle = 2 * math.pi * (region - 0.5) / self.regions
            for stream, side in ((PRESSURE, -1), (HUMIDITY, 1)):
                name = f"{stream}-{region}"
                sensors.append(name)
                nodes.append(
                    Row(
                        id=name,
                        position=_polar(REGION_DISTANCE, angle, side * SENSOR_DISTANCE),
                        capacity=self._capacity(SENSOR_CAPACITY),
                        tags=["edge"],
                    )
                )
            nodes.append(
                Row(
                    id=f"fog-{region}",
                    position=_polar(FOG_DISTANCE, angle, 0),
                    capacity=self._capacity(FOG_CAPACITY),
                    tags=["fog"],
                )
            )
        cloud = self.nodes - self.least_nodes
        for other in range(1, cloud + 1):
            angle = 2 * math.pi * (other - 1) / cloud
            nodes.append(
                Row(
                    id=f"cloud-{other}",
                    position=_polar(2 * REGION_DISTANCE, angle, 0),
                    capacity=self._capacity(CLOUD_CAPACITY),
                    tags=["cloud"],
                )
            )
        return {
            "nova": 1,
            "name": f"DEBS-style, {self.regions} regions, windows of {self.window_ms} ms",
            "nodes": nodes,
            **regional_join(
                sensors,
                "sink",
                self.rate,
                selectivity=self.selectivity,
                join="climate",
                tuple_bytes=TUPLE_BYTES,
            ),
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
        return number(max(1.0, share * self.rate))


def _polar(distance: float, angle: float, aside: float) -> list[float]:
    """A point that far along a direction and to its side, ms."""
    x = distance * math.cos(angle) - aside * math.sin(angle)
    y = distance * math.sin(angle) + aside * math.cos(angle)
    return [round(x, 1) + 0.0, round(y, 1) + 0.0]
