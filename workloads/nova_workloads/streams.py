"""Sensor streams as columns: read from files, or synthetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nova_core.errors import NovaError, first_line
from nova_core.io.columnar import open_input
from nova_core.io.packed import PackedError, check_packed
from nova_workloads.logical_streams import HUMIDITY, PRESSURE

if TYPE_CHECKING:
    import pyarrow as pa

    from nova_core.model.problem import Floats, Ints

# The stream of a sensor type, for files that name no stream (data of the Nova paper).
STREAM_OF_TYPE = {"bmp280": PRESSURE, "bme280": PRESSURE, "dht22": HUMIDITY}
FOUR_COLUMNS = ("sensor", "region", "sequence", "value")
CYCLE = 1 << 13  # values of a synthetic sensor, before they repeat
WALKS = 256  # even, as pressure and humidity alternate
MS = "ms"


@dataclass(frozen=True, eq=False)
class Stream:
    """The readings of one sensor in one logical stream.

    Attributes:
        sensor: its name.
        region: the region it is joined within.
        stream: the logical stream it belongs to.
        time: (t,) ascending event times, ms since the epoch.
        value: (t,) what was measured.
        sequence: (t,) sequence numbers, or None: from 0.
    """

    sensor: str
    region: str
    stream: str
    time: Ints
    value: Floats
    sequence: Ints | None = None

    def __len__(self) -> int:
        return len(self.value)

    @property
    def name(self) -> str:
        """Unique among streams: a sensor that measures two things is in two."""
        return f"{self.sensor}-{self.stream}"


def synthetic(sensors: int, *, regions: int = 4, seed: int = 0) -> list[Stream]:
    """Sensors of the DEBS-style workload: ``pressure-1`` and ``humidity-1`` in ``region-1``, ...

    Sensors are dealt to pressure and humidity in turn, and pairs of them to the regions in turn.
    Values are random walks of `CYCLE` steps, `WALKS` different ones; one seed gives a sensor the
    same ones whatever the number of sensors.
    """
    time = np.arange(CYCLE, dtype=np.int64)
    walks = [_walk(seed, number) for number in range(min(sensors, WALKS))]
    streams = []
    for number in range(sensors):
        pair, side = divmod(number, 2)
        stream = (PRESSURE, HUMIDITY)[side]
        streams.append(
            Stream(
                sensor=f"{stream}-{pair + 1}",
                region=f"region-{pair % regions + 1}",
                stream=stream,
                time=time,
                value=walks[number % WALKS],
            )
        )
    return streams


def _walk(seed: int, number: int) -> Floats:
    """Pressures (Pa) for an even number, humidities (percent) for an odd one."""
    middle, step, most = ((98_000.0, 4.0, None), (60.0, 0.2, 100))[number % 2]
    walk = np.random.default_rng([seed, number]).normal(0, step, CYCLE // 2).cumsum()
    # There and back, so that the values do not jump where they repeat.
    value = middle + np.concatenate((walk, walk[::-1]))
    return np.clip(value, 0, most).round(2)


def read_streams(
    paths: Sequence[Path],
    *,
    sensors: Sequence[str] = (),
    regions: Sequence[str] = (),
    stream: str | None = None,
) -> list[Stream]:
    """Read streams, ordered by stream and sensor.

    Args:
        paths: Parquet files or directories with the columns sensor, region, stream, time (or
            timestamp) and value, such as the pipeline's output or its ``readings``; CSV files of
            four columns without header (sensor, region, sequence, value), whose sequence numbers
            are ms; or CSV files that a replay wrote. CSV may be gzipped.
        sensors: only these; all when empty.
        regions: only these; all when empty.
        stream: logical stream of four-column files; else by the type their name begins with,
            ``bmp280_...`` or ``dht22_...``.

    Raises:
        NovaError: naming the file and what it should hold.
    """
    streams: list[Stream] = []
    for path in paths:
        if not path.exists():
            raise NovaError(f"{path}: there is no such file or directory")
        streams += _split(_table(path, stream, sensors, regions), path, sensors, regions)
    if not streams:
        chosen = f" of {', '.join([*sensors, *regions])}" if sensors or regions else ""
        raise NovaError(f"{', '.join(map(str, paths))}: no readings{chosen}")
    streams.sort(key=lambda s: (s.stream, s.sensor))
    for one, other in pairwise(streams):
        if one.name == other.name:
            raise NovaError(
                f"sensor {one.sensor!r}: its stream {one.stream!r} is in two regions or files; "
                "give each sensor once"
            )
    return streams


def _table(
    path: Path, stream: str | None, sensors: Sequence[str], regions: Sequence[str]
) -> pa.Table:
    """Columns sensor, region, stream, time_ms, value and perhaps sequence."""
    if path.is_dir() or path.suffix == ".parquet":
        return _parquet(path, sensors, regions)
    if path.name.endswith((".csv", ".csv.gz")):
        return _csv(path, stream)
    raise NovaError(f"{path}: expected a .csv, .csv.gz or .parquet file, or a directory of Parquet")


def _parquet(path: Path, sensors: Sequence[str], regions: Sequence[str]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    columns = ["sensor", "region", "stream", "time", "value"]
    if (path / "readings").is_dir():
        path = path / "readings"
    try:
        dataset = ds.dataset(path, format="parquet", partitioning="hive")
        if "timestamp" in dataset.schema.names:
            columns[3] = "timestamp"
        missing = [name for name in columns if name not in dataset.schema.names]
        if missing:
            raise NovaError(
                f"{path}: no column {missing[0]!r}; readings have the columns {', '.join(columns)}"
            )
        chosen = None
        for column, values in (("sensor", sensors), ("region", regions)):
            if values:
                among = pc.field(column).cast(pa.string()).isin(list(values))
                chosen = among if chosen is None else chosen & among
        table = dataset.to_table(columns=columns, filter=chosen)
    except UnicodeEncodeError as error:
        raise NovaError(f"{path}: the name of a folder of readings is UTF-8 text") from error
    except (pa.ArrowException, OSError) as error:
        raise NovaError(f"{path}: cannot be read as Parquet: {first_line(error)}") from error
    time = table.column(columns[3])
    if not pa.types.is_timestamp(time.type):
        raise NovaError(f"{path}: column {columns[3]!r} is {time.type}; expected timestamps")
    table = table.drop_columns(columns[3]).append_column("time_ms", time)
    types = {name: pa.string() for name in ("sensor", "region", "stream")} | {
        "time_ms": pa.timestamp(MS, time.type.tz), "value": pa.float64()
    }  # fmt: skip
    for name, kind in types.items():
        index = table.schema.get_field_index(name)
        try:
            # Times may be finer than milliseconds.
            column = pc.cast(table.column(name), kind, safe=name != "time_ms")
        except pa.ArrowException as error:
            raise NovaError(f"{path}: column {name!r}: {first_line(error)}") from error
        table = table.set_column(
            index, name, column.cast(pa.int64()) if name == "time_ms" else column
        )
    return table


def _csv(path: Path, stream: str | None) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv as pacsv

    names = _header(path)
    has_header = "time_ms" in names
    types = {name: pa.string() for name in ("sensor", "region", "stream")} | {
        "sequence": pa.int64(), "time_ms": pa.int64(), "value": pa.float64()
    }  # fmt: skip
    if has_header:
        missing = [name for name in types if name not in names]
        if missing:
            raise NovaError(f"{path}: no column {missing[0]!r}; it has {', '.join(names)}")
    elif len(names) != len(FOUR_COLUMNS):
        raise NovaError(
            f"{path}: {len(names)} columns; expected sensor, region, sequence, value "
            "without a header, or a header with time_ms"
        )
    try:
        table = pacsv.read_csv(
            open_input(path),
            read_options=pacsv.ReadOptions(column_names=None if has_header else list(FOUR_COLUMNS)),
            convert_options=pacsv.ConvertOptions(
                column_types=types,
                include_columns=list(types) if has_header else list(FOUR_COLUMNS),
            ),
        )
    except (pa.ArrowException, OSError) as error:
        raise NovaError(f"{path}: {first_line(error)}") from error
    if has_header:
        return table
    if stream is None:
        kind = path.name.partition("_")[0].lower()
        if kind not in STREAM_OF_TYPE:
            raise NovaError(
                f"{path}: its name does not begin with {', '.join(STREAM_OF_TYPE)}; "
                "say which stream it is with --stream"
            )
        stream = STREAM_OF_TYPE[kind]
    named = pa.array([stream] * len(table), pa.string())
    time = table.column("sequence")
    # A replay counts sequence numbers from 0; those of the file serve as times.
    return (
        table.drop_columns("sequence").append_column("stream", named).append_column("time_ms", time)
    )


def _header(path: Path) -> list[str]:
    import gzip

    opened = gzip.open if path.suffix == ".gz" else open
    try:
        if path.suffix == ".gz":
            check_packed(path)
        with opened(path, "rt", encoding="utf-8") as file:
            return [name.strip() for name in file.readline().rstrip("\n").split(",")]
    except (OSError, PackedError, UnicodeDecodeError) as error:
        raise NovaError(f"{path}: cannot be read: {first_line(error)}") from error


def _split(
    table: pa.Table, path: Path, sensors: Sequence[str], regions: Sequence[str]
) -> list[Stream]:
    """A table as one stream per sensor, region and logical stream."""
    import pyarrow.compute as pc

    for name in table.schema.names:
        column = table.column(name)
        wrong = column.null_count
        if name == "value" and not wrong:
            wrong = len(column) - (pc.sum(pc.is_finite(column)).as_py() or 0)
        if wrong:
            raise NovaError(f"{path}: {wrong} rows have no {name}; clean the data first")
    columns: dict[str, Any] = {}
    code = np.zeros(len(table), np.int64)
    labels = []
    for name in ("sensor", "region", "stream"):
        encoded = table.column(name).combine_chunks().dictionary_encode()
        labels.append(encoded.dictionary.to_pylist())
        code = code * len(labels[-1]) + encoded.indices.to_numpy(zero_copy_only=False)
    for name in ("time_ms", "value", "sequence"):
        if name in table.schema.names:
            columns[name] = table.column(name).to_numpy()
    sequence = columns.get("sequence")
    by = (columns["time_ms"], code) if sequence is None else (sequence, columns["time_ms"], code)
    order = np.lexsort(by)
    code = code[order]
    bounds = np.flatnonzero(np.diff(code, prepend=-1, append=-1)) if len(code) else np.zeros(1, int)
    streams = []
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rest, which = divmod(int(code[begin]), len(labels[2]))
        sensor, region = divmod(rest, len(labels[1]))
        names = labels[0][sensor], labels[1][region], labels[2][which]
        if (sensors and names[0] not in sensors) or (regions and names[1] not in regions):
            continue
        rows = order[begin:end]
        if sequence is not None:
            numbers = np.sort(sequence[rows])
            for number in numbers[1:][np.diff(numbers) == 0][:1].tolist():
                raise NovaError(
                    f"{path}: sensor {names[0]}: two tuples of sequence number {number}; "
                    "a result must say which one it means"
                )
        streams.append(
            Stream(
                *names,
                time=columns["time_ms"][rows],
                value=columns["value"][rows],
                sequence=None if sequence is None else sequence[rows],
            )
        )
    return streams
