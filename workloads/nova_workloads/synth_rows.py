"""Rows of synthetic daily files: many sensors at once, as columns, faults included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova_workloads.synth_settings import DAY, TYPES, Settings

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

    from nova_core.model.problem import Bools, Floats, Ints

# Readings worked on at once: files of one chunk share one sequence of random numbers.
CHUNK_READINGS = 1 << 16

MIXED_AS = "bme280"  # whose columns files of several types have
MEASURED = ("pressure", "temperature", "humidity")
IMPOSSIBLE = {  # Pa, degrees Celsius, percent; no station on Earth reports any of these
    "pressure": (-142.36, 0.0, 254_321.5),
    "temperature": (-142.36, 187.2, 999.9),
    "humidity": (-5.0, 142.5, 999.9),
}
NOT_A_NUMBER = ("nan", "unavailable")
VALUE_KINDS = ("missing", "not_a_number", "impossible")  # of one value in a row
KINDS = (*VALUE_KINDS, "duplicate")
BAD_FILES = ("truncated", "html", "other-columns", "binary", "empty", "wrong-compression")

EUROPE = ((42.0, 56.0), (-1.0, 24.0))  # latitudes, longitudes of towns
TOWN = 0.15  # degrees around its middle that sensors stand in
SCALE_HEIGHT = 8430.0  # m, of the barometric formula


@dataclass(frozen=True)
class Fleet:
    """All sensors of an archive, one row each; place 0 is where one starts, 1 where it moves to.

    Attributes:
        ids: (s,) sensor ids.
        kind: (s,) index into the archive's types.
        town: (s, 2) town at each place.
        location: (s, 2) location ids.
        lat: (s, 2) degrees.
        lon: (s, 2) degrees.
        moves_at: (s,) second of the archive from which it stands at place 1; infinite for most.
        altitude: (towns,) m.
        phase: (towns,) of the weather.
        sea_level: (s,) whether it reports a pressure at sea level as well.
    """

    ids: Ints
    kind: Ints
    town: Ints
    location: Ints
    lat: Floats
    lon: Floats
    moves_at: Floats
    altitude: Floats
    phase: Floats
    sea_level: Bools

    @classmethod
    def of(cls, settings: Settings) -> Fleet:
        """The sensors of an archive, from its seed alone."""
        random = np.random.default_rng([settings.seed, 0])
        count, towns = settings.sensors, settings.regions
        middle = np.stack([random.uniform(*bounds, towns) for bounds in EUROPE])
        # Sensors on one board share a location, as a BMP280 beside a DHT22 does.
        board = np.arange(count) // len(settings.types)
        boards = int(board[-1]) + 1
        town = np.stack([random.integers(0, towns, boards) for _ in range(2)])
        place = middle[:, town] + random.uniform(-TOWN, TOWN, (2, 2, boards))
        # A move must be seen, also within a town.
        place[:, 1] += np.array([[1.0], [1.5]])
        place = place[:, :, board].round(3)
        moves = random.random(count) < settings.faults.moved
        when = random.uniform(0.25, 0.75, count) * settings.days * DAY
        return cls(
            ids=np.arange(count, dtype=np.int64) * 3 + 10_001,
            kind=np.arange(count, dtype=np.int64) % len(settings.types),
            town=town[:, board].T,
            location=np.stack([board + 5_000, board + 5_000 + boards], axis=1),
            lat=place[0].T,
            lon=place[1].T,
            moves_at=np.where(moves, when, np.inf),
            altitude=random.uniform(0, 600, towns).round(),
            phase=random.uniform(0, 2 * np.pi, towns),
            sea_level=random.random(count) < 0.5,
        )


@dataclass(frozen=True)
class DailyFile:
    """One file to write.

    Attributes:
        name: without directory and suffix.
        header: the names of its columns.
        lines: its rows, beginning with the line break after the header.
        bad: how it is to be spoilt; empty for a good one.
        rows: in it.
        cut: where ``text`` ends within a row, for a truncated file.
    """

    name: str
    header: bytes
    lines: bytes
    bad: str
    rows: int
    cut: int

    @property
    def text(self) -> bytes:
        """The content of a good file."""
        return self.header + self.lines


def day_files(
    fleet: Fleet, settings: Settings, day: int, counts: Counter[str]
) -> Iterator[DailyFile]:
    """The files of one day, a chunk of sensors after the other.

    Args:
        fleet: the archive's sensors.
        settings: the archive's settings.
        day: number of the day, from 0.
        counts: is added to, for good files: rows and faults by kind and measured value.
    """
    size = max(1, CHUNK_READINGS // settings.readings_per_file)
    for kind in range(len(settings.types)):
        members = np.flatnonzero(fleet.kind == kind)
        for first in range(0, len(members), size):
            random = np.random.default_rng([settings.seed, 1, day, kind, first])
            chunk = _Chunk(fleet, settings, day, members[first : first + size], random)
            yield from chunk.files(counts)


class _Chunk:
    """Sensors of one type on one day; arrays are (sensors, readings)."""

    def __init__(
        self, fleet: Fleet, settings: Settings, day: int, members: Ints, random: Generator
    ) -> None:
        self.fleet, self.settings, self.members, self.random = fleet, settings, members, random
        self.date = settings.start + timedelta(days=day)
        self.type = settings.types[fleet.kind[members[0]]]
        self.columns = TYPES[MIXED_AS if settings.mixed else self.type]
        self.measured = [name for name in MEASURED if name in TYPES[self.type]]
        self.shape = len(members), settings.readings_per_file
        jitter = random.integers(0, max(1, settings.interval // 2), self.shape)
        self.second = np.arange(self.shape[1]) * settings.interval + jitter
        moment = day * DAY + self.second
        self.place = (moment >= fleet.moves_at[members][:, None]).astype(np.int64)
        self.moment = moment.astype(np.float64)
        self.jump = self._clock_jumps()
        self.fault = self._reading_faults()
        self.victim = random.integers(0, len(self.measured), self.shape)

    def _clock_jumps(self) -> Ints:
        """Seconds each reading's clock is off: runs of readings, decades away.

        Jumps end far outside of any archive and keep the readings' order, so that their times
        never coincide with another reading.
        """
        count, readings = self.shape
        jumps = self.random.random(count) < self.settings.faults.clock_jumps
        begin = self.random.integers(0, readings, count)
        length = self.random.integers(1, max(2, readings // 4), count)
        to_epoch = -(self.settings.start - type(self.date)(1970, 1, 1)).days
        days = np.array([to_epoch, -7305, 7305])[self.random.integers(0, 3, count)]
        reading = np.arange(readings)
        within = (reading >= begin[:, None]) & (reading < (begin + length)[:, None])
        return np.where(within & jumps[:, None], days[:, None] * DAY, 0)

    def _reading_faults(self) -> Ints:
        """Index into ``KINDS`` of each reading's fault, or ``len(KINDS)``."""
        f = self.settings.faults
        edges = np.cumsum([f.missing, f.not_a_number, f.impossible, f.duplicates])
        kind = np.searchsorted(edges, self.random.random(self.shape), side="right")
        return np.where(self.jump != 0, len(KINDS), kind)

    def _values(self) -> dict[str, Floats]:
        """What sensors measure: weather of their town, and noise."""
        fleet, random = self.fleet, self.random
        town = np.take_along_axis(fleet.town[self.members], self.place, axis=1)
        phase, altitude = fleet.phase[town], fleet.altitude[town]
        daily = np.sin(2 * np.pi * self.moment / DAY + phase)
        front = np.sin(2 * np.pi * self.moment / (4.7 * DAY) + 2 * phase)
        sea = 101_325 + 1_200 * front + random.normal(0, 8, self.shape)
        values = {
            "pressure": sea * np.exp(-altitude / SCALE_HEIGHT),
            "pressure_sealevel": sea,
            "temperature": 9 + 6 * daily + 3 * front + random.normal(0, 0.1, self.shape),
            "humidity": np.clip(
                62 - 18 * daily - 9 * front + random.normal(0, 0.8, self.shape), 1, 99.9
            ),
        }
        impossible = self.fault == KINDS.index("impossible")
        choice = random.integers(0, 3, self.shape)
        for number, name in enumerate(self.measured):
            hit = impossible & (self.victim == number)
            values[name][hit] = np.array(IMPOSSIBLE[name])[choice[hit]]
        return values

    def _column(self, name: str, values: dict[str, Floats]) -> Any:
        """A column as texts."""
        if name == "altitude":
            return pa.scalar("")
        text = pc.cast(pa.array(values[name].round(2).ravel()), pa.string())
        if name == "pressure_sealevel":
            silent = np.broadcast_to(~self.fleet.sea_level[self.members][:, None], self.shape)
            return pc.if_else(pa.array(silent.ravel()), "", text)
        hit = self.victim == self.measured.index(name)
        for kind, spellings in (("missing", ("",)), ("not_a_number", NOT_A_NUMBER)):
            wrong = hit & (self.fault == KINDS.index(kind))
            which = self.random.integers(0, len(spellings), self.shape)
            for number, spelling in enumerate(spellings):
                text = pc.if_else(pa.array((wrong & (which == number)).ravel()), spelling, text)
        return text

    def _lines(self) -> pa.StringArray:
        """Every reading as a row of text, with the line break in front."""
        f, members, label = self.fleet, self.members, self.type.upper()
        heads = [
            f"\n{f.ids[s]};{label};{f.location[s, p]};{f.lat[s, p]:.3f};{f.lon[s, p]:.3f}"
            for s in members.tolist()
            for p in (0, 1)
        ]
        head = pa.array(heads).take(
            pa.array((2 * np.arange(len(members))[:, None] + self.place).ravel())
        )
        clock = np.datetime64(self.date, "s") + (self.second + self.jump).ravel()
        stamp = pc.replace_substring(pc.cast(pa.array(clock), pa.string()), " ", "T")
        values = self._values()
        nothing = pa.scalar("")
        columns = [
            self._column(name, values) if name in TYPES[self.type] else nothing
            for name in self.columns
        ]
        lines = pc.binary_join_element_wise(head, stamp, *columns, ";")
        twice = (self.fault == KINDS.index("duplicate")).ravel()
        if twice.any():
            lines = lines.take(pa.array(np.repeat(np.arange(len(twice)), 1 + twice)))
        return lines

    def files(self, counts: Counter[str]) -> Iterator[DailyFile]:
        """The chunk's files; absent ones are counted and left out."""
        lines = self._lines()
        rows = self.shape[1] + (self.fault == KINDS.index("duplicate")).sum(axis=1)
        last = np.concatenate(([0], np.cumsum(rows)))
        offset = np.frombuffer(lines.buffers()[1], np.int32)[: len(lines) + 1]
        data = memoryview(lines.buffers()[2])
        header = header_of(self.columns)

        draw = self.random.random((2, len(self.members)))
        absent = draw[0] < self.settings.faults.absent
        bad = (draw[1] < self.settings.faults.bad_files) & ~absent
        how = self.random.integers(0, len(BAD_FILES), len(self.members))
        self._count(counts, ~absent & ~bad, rows)
        counts["absent"] += int(absent.sum())
        for i in np.flatnonzero(~absent).tolist():
            begin, end = int(offset[last[i]]), int(offset[last[i + 1]])
            half = int(offset[(last[i] + last[i + 1]) // 2]) - begin
            yield DailyFile(
                name=f"{self.date}_{self.type}_sensor_{self.fleet.ids[self.members[i]]}",
                header=header,
                lines=bytes(data[begin:end]) + b"\n",
                bad=BAD_FILES[how[i]] if bad[i] else "",
                rows=int(rows[i]),
                # Within the first column: what is left of the row cannot pass for a whole one.
                cut=len(header) + half + 4,
            )

    def _count(self, counts: Counter[str], good: Bools, rows: Ints) -> None:
        """Add the good files' rows and faults."""
        fault, victim, jumped = self.fault[good], self.victim[good], self.jump[good] != 0
        twice = fault == KINDS.index("duplicate")
        by_row = {
            "rows": int(rows[good].sum()),
            "duplicate": int(twice.sum()),
            "clock_jump": int(jumped.sum()),
        }
        for what, number in by_row.items():
            counts[what] += number
            for name in self.measured:
                counts[f"{what}.{name}"] += number
        own = {name: np.zeros(fault.shape, bool) for name in self.measured}
        for kind in VALUE_KINDS:
            hit = fault == KINDS.index(kind)
            counts[kind] += int(hit.sum())
            for number, name in enumerate(self.measured):
                wrong = hit & (victim == number)
                own[name] |= wrong
                counts[f"{kind}.{name}"] += int(wrong.sum())
        hot = fault == KINDS.index("impossible")
        hot &= victim == self.measured.index("temperature")
        counts["hot"] += int(hot.sum())
        moved = (self.place[good] == 1) & ~jumped
        counts["moved"] += int((moved & ((fault == len(KINDS)) | twice)).sum())
        for name in self.measured:
            counts[f"hot.{name}"] += int(hot.sum())
            counts[f"moved.{name}"] += int((moved & ~own[name] & ~hot).sum())


def header_of(columns: tuple[str, ...]) -> bytes:
    """The first line of a file, without its line break."""
    always = ("sensor_id", "sensor_type", "location", "lat", "lon", "timestamp")
    return ";".join((*always, *columns)).encode()


def place_of(fleet: Fleet, sensor: int, place: int) -> dict[str, NDArray[Any] | float | int]:
    """Where a sensor stands, for the truth."""
    return {
        "location": int(fleet.location[sensor, place]),
        "lat": float(fleet.lat[sensor, place]),
        "lon": float(fleet.lon[sensor, place]),
    }
