"""Which lines of an archive become readings, and why the others do not.

A *reading* is one value of one stream on one line: a line of a BME280 holds two, one of the other
types one. A reading that is dropped has exactly one reason, the first of `REASONS` that applies.
All but the last two reasons need nothing but the reading's own file.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from nova_workloads.archive import MIXED, SCHEMAS, SEQUENCE_DAY, STREAMS, STREAMS_OF, TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nova_core.model.problem import Bools, Floats, Ints
    from nova_workloads.archive import ArchiveFile
    from nova_workloads.archive_lines import Lines

# In order of precedence. The code of a reason is its place here, from 1; 0 is a reading that stays.
REASONS = {
    "malformed": "wrong number of fields, another sensor's line, unreadable position or time",
    "missing": "the value is empty",
    "not_a_number": "the value is nan, infinite, unavailable or other text",
    "impossible_pressure": "no place on Earth has this pressure",
    "impossible_humidity": "below 0 % or above 100 %",
    "impossible_temperature": "the line has a temperature the sensor cannot measure",
    "clock_jump": "the time is not on the day of the file",
    "duplicate": "an earlier line of the file has the same sensor, stream and time",
    "out_of_order": "the time contradicts the order of lines: the clock was set within the day",
    "moved": "the sensor is away from its home, where its first reading was made",
    "outside": "the sensor's home is in no region",
}
CODES = {reason: code for code, reason in enumerate(REASONS, 1)}
DAY = 86_400_000_000  # µs


@dataclass(frozen=True)
class Cleaning:
    """What counts as possible, and as the same place; both ends of a range do.

    Attributes:
        pressure: Pa; the default is what a BMP280 can measure.
        humidity: percent.
        temperature_bmp280: degrees Celsius; this and the following are the data sheets' ranges.
        temperature_bme280: degrees Celsius.
        temperature_dht22: degrees Celsius.
        move_distance: a sensor further from its home than this has moved, km. Published positions
            are rounded to some hundred metres.
        sequence_period: time between two numbers of sequence files, ms.
    """

    pressure: tuple[float, float] = (30_000.0, 110_000.0)
    humidity: tuple[float, float] = (0.0, 100.0)
    temperature_bmp280: tuple[float, float] = (-40.0, 85.0)
    temperature_bme280: tuple[float, float] = (-40.0, 85.0)
    temperature_dht22: tuple[float, float] = (-40.0, 80.0)
    move_distance: float = 1.0
    sequence_period: float = 1.0


@dataclass(frozen=True)
class Readings:
    """Readings of one stream, in the order of files and lines.

    Attributes:
        stream: index into `STREAMS`.
        row: (n,) the line each is on.
        code: (n,) of `CODES`, 0 for one that stays.
        value: (n,) Pa or percent; NaN where there is none.
    """

    stream: int
    row: Ints
    code: Ints
    value: Floats


def clean(
    kind: str, files: Sequence[ArchiveFile], lines: Lines, cleaning: Cleaning
) -> tuple[list[Readings], Ints]:
    """Judge the readings of files of one kind by what is in the files.

    Args:
        kind: of `nova_workloads.archive.SCHEMAS`.
        files: in the order that ``lines.file`` counts.
        lines: of these files.
        cleaning: what counts as possible.

    Returns:
        the readings per stream, and the time of every line ((n,) µs since 1970).
    """
    schema = SCHEMAS[kind]
    time = lines.time
    if schema.sequence:
        time = np.rint(lines.time * (1000 * cleaning.sequence_period)).astype(np.int64)
    fine = _well_formed(kind, files, lines)
    jumped = np.zeros(len(lines), np.bool_)
    if not schema.sequence:
        begin = np.array([(f.day - SEQUENCE_DAY) // timedelta(days=1) * DAY for f in files])
        within = time - begin[lines.file]
        jumped = (within < 0) | (within >= DAY)
    readings = []
    for place, stream in enumerate(schema.streams):
        held = np.arange(len(lines))
        if kind == MIXED:
            # A line of another type has no reading of this stream.
            with_it = [TYPES.index(name) for name, has in STREAMS_OF.items() if stream in has]
            held = np.flatnonzero(np.isin(lines.type, with_it))
        value = lines.values[held, place]
        # In sequence files a BMP280 gives its temperature.
        warmth = schema.sequence and stream == "pressure"
        temperature = value if warmth else lines.temperature[held]
        types = lines.type[held].astype(np.int64)
        rules = {
            "malformed": ~fine[held],
            "missing": lines.empty[held, place],
            "not_a_number": ~np.isfinite(value),
            "impossible_pressure": _outside(value, cleaning.pressure)
            & (stream == "pressure" and not warmth),
            "impossible_humidity": _outside(value, cleaning.humidity) & (stream == "humidity"),
            "impossible_temperature": _impossible(temperature, types, cleaning),
            "clock_jump": jumped[held],
        }
        code = np.select(list(rules.values()), [CODES[reason] for reason in rules], 0)
        good = np.flatnonzero(code == 0)
        # Of one file, or of one sensor in a mixed file.
        series = lines.file[held[good]].astype(np.int64)
        if kind == MIXED:
            sensors = np.stack([series, lines.sensor[held[good]]])
            series = np.unique(sensors, axis=1, return_inverse=True)[1].reshape(-1)
        code[good] = _order_codes(series, time[held[good]])
        readings.append(Readings(STREAMS.index(stream), held, code, value))
    return readings, time


def _well_formed(kind: str, files: Sequence[ArchiveFile], lines: Lines) -> Bools:
    schema = SCHEMAS[kind]
    fine = lines.whole & (lines.sensor >= 0)
    if schema.type is not None:
        own = np.array([file.sensor for file in files], np.int64)
        fine &= lines.sensor == own[lines.file]
        fine &= lines.type == TYPES.index(schema.type)
    if schema.sequence:
        return fine & (lines.time >= 0)
    placed = (np.abs(lines.lat) <= 90) & (np.abs(lines.lon) <= 180)
    # Jumps lead to 1970, or further back, but a time that cannot be read is -1 µs.
    return np.asarray(fine & placed & (lines.time != -1))


def _outside(value: Floats, limits: tuple[float, float]) -> Bools:
    return np.asarray((value < limits[0]) | (value > limits[1]))


def _impossible(temperature: Floats, types: Ints, cleaning: Cleaning) -> Bools:
    """Streams do not carry the temperature: one that is absent or no number says nothing."""
    limits = np.array([getattr(cleaning, f"temperature_{kind}") for kind in TYPES])[types]
    return np.asarray((temperature < limits[:, 0]) | (temperature > limits[:, 1]))


def _order_codes(series: Ints, time: Ints) -> Ints:
    """(n,) codes of readings that repeat a time, or contradict the order of lines.

    After one jump of a clock and back, either the lines behind an earlier line are wrong or those
    ahead of a later one: the fewer are dropped.

    Args:
        series: (n,) what a reading belongs to.
        time: (n,) µs, in the order of lines.
    """
    code = np.zeros(len(time), np.int64)
    if len(time) < 2:
        return code
    by_line = np.argsort(series, kind="stable")
    follows = np.diff(series[by_line]) == 0
    late = follows & (np.diff(time[by_line]) <= 0)
    if not late.any():
        return code
    # Only series with such a step can have anything wrong.
    odd = np.isin(series, series[by_line[1:][late]])
    chosen = np.flatnonzero(odd)
    series, time = series[chosen], time[chosen]
    by_time = np.lexsort((np.arange(len(time)), time, series))
    again = np.zeros(len(time), np.bool_)
    again[by_time[1:]] = (np.diff(series[by_time]) == 0) & (np.diff(time[by_time]) == 0)
    code[chosen[again]] = CODES["duplicate"]
    chosen, series, time = chosen[~again], series[~again], time[~again]
    by_line = np.argsort(series, kind="stable")
    groups = np.unique(series[by_line], return_inverse=True)[1]
    # Ranks, shifted by group, let one running maximum serve all groups.
    rank = np.unique(time[by_line], return_inverse=True)[1] + groups * (len(time) + 1)
    behind = np.zeros(len(rank), np.bool_)
    ahead = np.zeros(len(rank), np.bool_)
    behind[1:] = rank[1:] < np.maximum.accumulate(rank)[:-1]
    ahead[:-1] = rank[:-1] > np.minimum.accumulate(rank[::-1])[::-1][1:]
    behind_count, ahead_count = (np.bincount(groups, flag) for flag in (behind, ahead))
    wrong = np.where((behind_count <= ahead_count)[groups], behind, ahead)
    code[chosen[by_line[wrong]]] = CODES["out_of_order"]
    return code
