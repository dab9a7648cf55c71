"""Options of the commands that take streams, and the streams they select."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nova_core import paths
from nova_core.commands import shared
from nova_core.errors import NovaError
from nova_core.numbers import NumberRange, at_least

if TYPE_CHECKING:
    from nova_workloads.schedule import Schedule
    from nova_workloads.streams import Stream

NOW = "now"


@dataclass(frozen=True)
class Inputs:
    """The streams, and when each tuple is due; values of `input_options`."""

    inputs: tuple[Path, ...]
    synthetic: int | None
    regions: int
    seed: int
    sensors: tuple[str, ...]
    only_regions: tuple[str, ...]
    stream: str | None
    rate: float | None
    speed: float | None
    duration: float | None
    count: int | None
    start: str | None

    def streams(self) -> list[Stream]:
        """Read the files, or generate the sensors."""
        from nova_workloads import streams

        if bool(self.inputs) is (self.synthetic is not None):
            raise NovaError("give files or --synthetic N, one of them")
        if self.synthetic is None:
            return streams.read_streams(
                self.inputs,
                sensors=self.sensors,
                regions=self.only_regions,
                stream=self.stream,
            )
        if self.rate is None:
            raise NovaError("--synthetic: give --rate, e.g. 1000")
        chosen = [
            s
            for s in streams.synthetic(self.synthetic, regions=self.regions, seed=self.seed)
            if (not self.sensors or s.sensor in self.sensors)
            and (not self.only_regions or s.region in self.only_regions)
        ]
        if not chosen:
            raise NovaError(f"--sensor, --region: none of the {self.synthetic} sensors is left")
        return chosen

    def schedule(self, start_ms: int | None) -> Schedule:
        """When each tuple is due."""
        from nova_workloads.schedule import Schedule

        if self.rate is not None and self.speed is not None:
            raise NovaError("--rate and --speed: give one of them")
        return Schedule(
            rate=self.rate,
            speed=self.speed or 1.0,
            start_ms=start_ms,
            duration=self.duration,
            count=self.count,
            endless=self.synthetic is not None,
        )

    def start_ms(self) -> int | None:
        """The start that was given as a time, ms since the epoch, or None."""
        if self.start is None or self.start == NOW:
            return None
        if len(self.start) < 20 and self.start.lstrip("-").isdigit():
            return int(self.start)
        try:
            moment = datetime.fromisoformat(self.start)
        except ValueError as error:
            raise NovaError(
                f"--start {self.start}: expected an ISO date such as 2025-01-01T12:00:00, ms since "
                "the epoch, or now"
            ) from error
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)


input_options = shared.together(
    "given",
    Inputs,
    click.argument("inputs", nargs=-1, type=paths.INPUT),
    click.option(
        "--synthetic",
        type=at_least(1),
        metavar="N",
        help="Made-up sensors instead of files: pressure and humidity in turn.",
    ),
    click.option(
        "--regions",
        type=at_least(1),
        default=4,
        show_default=True,
        help="Of synthetic sensors.",
    ),
    shared.seed_option(),
    click.option("--sensor", "sensors", multiple=True, help="Only this; may be repeated."),
    click.option("--region", "only_regions", multiple=True, help="Only this; may be repeated."),
    click.option("--stream", help="Logical stream of four-column files."),
    click.option(
        "--rate",
        type=NumberRange(min=0, min_open=True),
        help="Tuples/s of each sensor, whatever was recorded.",
    ),
    click.option(
        "--speed",
        type=NumberRange(min=0, min_open=True),
        help="How much faster than recorded, without --rate. [default: 1]",
    ),
    click.option(
        "--duration",
        type=NumberRange(min=0, min_open=True),
        metavar="SECONDS",
        help="With --rate, values repeat until then.",
    ),
    click.option("--count", type=at_least(1), help="Tuples per sensor."),
    click.option(
        "--start",
        metavar="WHEN",
        help="Event time of the first tuple: an ISO date (UTC), ms since the epoch, or now "
        "(the next full second).",
    ),
)
