"""From prepared sensors and a topology to a placement problem, in Arrow from end to end.

Sensors become sources on nodes of the topology: the node a table gives, or the nearest one. Nothing
here has a Python object per sensor or pair, so a hundred thousand sensors take seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nova_core import scratch
from nova_core.errors import NovaError, ProblemError, first_line
from nova_core.io.files import read_problem, write_problem
from nova_core.io.safe_files import DOCUMENT_SUFFIXES
from nova_workloads.debs import JOIN
from nova_workloads.logical_streams import HUMIDITY, PRESSURE, STREAMS
from nova_workloads.sensor_archive.sensors import EARTH_RADIUS
from nova_workloads.sensor_archive.store import JOURNAL, MANIFEST

if TYPE_CHECKING:
    from nova_core.model.problem import Floats, Ints, Strings


@dataclass(frozen=True)
class Build:
    """What problem to build.

    Attributes:
        sink: the node that consumes the result.
        rate: which of a sensor's rates is the source's: ``median`` or ``peak``.
        rate_scale: the rate is multiplied by this.
        fixed_rate: tuples/s of every source, instead of its own.
        selectivity: results per tuple of the slower input of a pair.
        nodes_of: a table with columns ``source`` (or ``sensor``) and ``node``.
        latencies: pairs of nodes (``source``, ``target``, ``latency`` in ms).
        name: of the problem.
    """

    sink: str
    rate: Literal["median", "peak"] = "median"
    rate_scale: float = 1.0
    fixed_rate: float | None = None
    selectivity: float = 1.0
    nodes_of: Path | None = None
    latencies: Path | None = None
    name: str = "sensors"

    def __post_init__(self) -> None:
        for what, value in (
            ("rate scale", self.rate_scale),
            ("rate", 1.0 if self.fixed_rate is None else self.fixed_rate),
            ("selectivity", self.selectivity),
        ):
            if not 0 < value < np.inf:
                raise NovaError(f"{what} {value:g}: expected more than 0")


def build_problem(prepared: Path, topology: Path, output: Path, build: Build) -> dict[str, Any]:
    """Write the problem of joining pressure and humidity of each region.

    Args:
        prepared: a directory that `nova workload prepare` wrote.
        topology: nodes: a table (.csv, .parquet, .arrow) with the columns id, capacity, coordinates
            (x, y, …) and, to find nearest nodes, lat and lon; also worker, memory, cost, tags and
            host. Or a problem, whose nodes are taken.
        output: a .yaml or .json document; a path without suffix becomes a directory of Parquet.
        build: how.

    Returns:
        figures of the problem.

    Raises:
        NovaError: naming the file, the field, the value and what would be accepted.
    """
    nodes, place = _nodes(topology)
    if build.sink not in nodes.column("id").to_pylist():
        raise NovaError(f"--sink {build.sink!r}: {topology} has no such node")
    positioned = bool({"x", "position_0"} & set(nodes.column_names))
    if build.latencies is None and not positioned:
        raise NovaError(
            f"{topology}: nodes have neither coordinates (x, y, …) nor latencies; give --latencies"
        )
    sensors = _sensors(prepared, build)
    node, distance = _assigned(sensors, nodes, place, topology, build)
    document = output.suffix.lower() in DOCUMENT_SUFFIXES
    target = output.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    with scratch.beside(target) as staging:
        tables = staging / "problem"
        tables.mkdir()
        pairs = _write_tables(tables, prepared, nodes, sensors, node, build)
        try:
            # Positions of a directory are computed when it is read.
            problem = read_problem(tables, locate=None if document or positioned else _anywhere)
        except ProblemError as error:
            # The cause is in the topology, or is visible there.
            raise ProblemError(
                str(error).replace(f"{tables}/nodes.parquet", str(topology))
            ) from None
        if document:
            write_problem(problem, output)
        else:
            _replace(tables, target)
    distances = distance[np.isfinite(distance)]
    return {
        "output": str(output),
        "nodes": nodes.num_rows,
        "sources": {stream: int((problem.sources.stream == stream).sum()) for stream in STREAMS},
        "unmatched": sensors.num_rows - len(problem.sources),
        "pairs": pairs,
        "regions": len(np.unique(problem.sources.key)) if problem.sources.key is not None else 0,
        "rate": float(problem.sources.rate.sum()),
        "capacity": float(problem.nodes.capacity[problem.nodes.worker].sum()),
        "nearest": {
            "sources": len(distances),
            "km_median": float(np.median(distances)) if len(distances) else None,
            "km_max": float(distances.max()) if len(distances) else None,
        },
        "digest": problem.digest if document or positioned else None,
    }


def _anywhere(ids: Strings, *_: Any) -> tuple[Floats, None]:
    return np.zeros((len(ids), 1)), None


def _replace(directory: Path, target: Path) -> None:
    """Move a directory to a path, and replace one that is there."""
    if target.exists():
        if not (target / "problem.yaml").is_file():
            raise NovaError(f"{target}: already there, and no problem; give another name")
        old = directory.parent / "old"
        target.rename(old)
        try:
            directory.rename(target)
        except OSError:
            old.rename(target)
            raise
    else:
        directory.rename(target)


# --- nodes ----------------------------------------------------------------------------------------


def _nodes(topology: Path) -> tuple[Any, Floats | None]:
    """The topology as a table of a problem, and (n, 2) latitudes and longitudes if it has any."""
    from nova_core.io.columnar import POSITION_KINDS, read_columns

    if topology.is_dir() or topology.suffix.lower() in DOCUMENT_SUFFIXES:
        return _nodes_of_problem(topology), None
    kinds: Any = {"id": "text", "capacity": "capacity", "worker": "flag", "tags": "text"}
    kinds |= {"host": "text", "memory": "number", "cost": "number", "lat": "number"}
    kinds |= {"lon": "number", "height": "number", "penalty": "number", "cpu": "number"}
    kinds |= POSITION_KINDS
    table = read_columns(topology, kinds, ProblemError)
    for needed in ("id", "capacity"):
        if needed not in table:
            raise NovaError(
                f"{topology}: column {needed!r} is missing; there are {', '.join(table.names)}"
            )
    ids = table.text("id")
    names, count = np.unique(ids, return_counts=True)
    if (count > 1).any():
        raise NovaError(f"{topology}: node {str(names[np.argmax(count > 1)])!r} is there twice")
    place = None
    if "lat" in table or "lon" in table:
        place = np.stack([table.floats("lat", np.nan), table.floats("lon", np.nan)], axis=1)
        wrong = (np.abs(place) > (90, 180)).any(axis=1)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise table.fail("lat", f"{place[row].tolist()}: no degrees of a place on Earth", row)
    return _arrow(table, ids), place


def _arrow(table: Any, ids: Any) -> Any:
    import pyarrow as pa

    columns: dict[str, Any] = {"id": pa.array(ids.tolist(), pa.string())}
    for name in table.names:
        if name == "capacity":
            columns[name] = table.capacity(name)
        elif name in ("tags", "host"):
            columns[name] = pa.array(table.text(name, "").tolist(), pa.string())
        elif name == "worker":
            columns[name] = table.flags(name, np.ones(len(table), bool))
        elif name not in ("id", "lat", "lon"):
            missing = np.nan if name in ("memory", "cost", "cpu") else None
            columns[name] = table.floats(name, missing)
    return pa.table(columns)


def _nodes_of_problem(topology: Path) -> Any:
    import pyarrow as pa

    from nova_core.io.columns import file_columns
    from nova_core.io.problem_writing import problem_tables

    columns = file_columns(problem_tables(read_problem(topology))["nodes"])
    texts = ("id", "tags", "host")
    return pa.table(
        {
            name: pa.array(values.tolist(), pa.string()) if name in texts else values
            for name, values in columns.items()
        }
    )


# --- sources --------------------------------------------------------------------------------------


def _batches(prepared: Path, table: str, texts: Sequence[str], numbers: Sequence[str]) -> Any:
    """Columns of a prepared table, batch by batch.

    Raises:
        NovaError: when it is damaged, lacks a column, or has a column of another type or without a
            value.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.types as kinds

    if not (prepared / MANIFEST).is_file():
        raise NovaError(f"{prepared}: no {MANIFEST}; give what `nova workload prepare` wrote")
    if (prepared / JOURNAL).exists():
        raise NovaError(f"{prepared}: a commit was broken off; run `nova workload prepare` again")
    try:
        dataset = ds.dataset(
            prepared / table, format="parquet", partitioning="hive", exclude_invalid_files=False
        )
        for name in (*texts, *numbers):
            if name not in dataset.schema.names:
                raise NovaError(f"{prepared / table}: no column {name!r}")
            kind = dataset.schema.field(name).type
            is_text = kinds.is_string(kind.value_type if kinds.is_dictionary(kind) else kind)
            is_number = kinds.is_integer(kind) or kinds.is_floating(kind)
            if not (is_text if name in texts else is_number):
                needed = "text" if name in texts else "numbers"
                raise NovaError(f"{prepared / table}: column {name!r} is {kind}; {needed} expected")
        for batch in dataset.to_batches(columns=[*texts, *numbers]):
            for name in texts:
                if batch.column(name).null_count:
                    raise NovaError(f"{prepared / table}: column {name!r}: a row has no value")
            yield batch
    except UnicodeEncodeError as error:
        raise NovaError(f"{prepared}: the name of a folder of readings is UTF-8 text") from error
    except (pa.ArrowException, OSError) as error:
        raise NovaError(f"{prepared / table}: cannot be read: {first_line(error)}") from error


def _sensors(prepared: Path, build: Build) -> Any:
    import pyarrow as pa

    numbers = ["sensor", "lat", "lon", "tuple_bytes", f"rate_{build.rate}"]
    batches = list(_batches(prepared, "sensors", ["id", "stream", "region"], numbers))
    if not sum(map(len, batches)):
        raise NovaError(f"{prepared}: no sensors")
    return pa.Table.from_batches(batches).sort_by("id")


def _assigned(
    sensors: Any, nodes: Any, place: Floats | None, topology: Path, build: Build
) -> tuple[Ints, Floats]:
    """((s,), (s,)) the node of each sensor, and its distance, km; NaN for nodes from a table."""
    node = np.full(sensors.num_rows, -1, np.int64)
    distance = np.full(sensors.num_rows, np.nan)
    if build.nodes_of is not None:
        node = _nodes_from_table(sensors, nodes, build.nodes_of, topology)
    open_ = np.flatnonzero(node < 0)
    if len(open_) == 0:
        return node, distance
    where = np.stack(
        [sensors.column(axis).to_numpy(zero_copy_only=False)[open_] for axis in ("lat", "lon")],
        axis=1,
    )
    lost = np.isnan(where.astype(np.float64)).any(axis=1)
    if place is None or lost.any():
        first = open_[int(np.argmax(lost)) if lost.any() else 0]
        name = sensors.column("id")[int(first)].as_py()
        missing = "has no position" if lost.any() else f"has no node: {topology} has no lat and lon"
        raise NovaError(
            f"source {name!r} {missing}; give its node with --nodes-of (columns source, node)"
        )
    located = np.flatnonzero(~np.isnan(place).any(axis=1))
    if len(located) == 0:
        raise NovaError(f"{topology}: no node has a lat and a lon")
    nearest, chord = _nearest(where.astype(np.float64), place[located])
    node[open_] = located[nearest]
    distance[open_] = 2 * EARTH_RADIUS * np.arcsin(np.minimum(chord / 2, 1))
    return node, distance


def _nearest(where: Floats, among: Floats) -> tuple[Ints, Floats]:
    """Nearest by great circle: those with the shortest chord of the unit sphere."""
    from scipy.spatial import cKDTree

    def on_sphere(degrees: Floats) -> Floats:
        lat, lon = np.radians(degrees).T
        return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)

    chord, index = cKDTree(on_sphere(among)).query(on_sphere(where))
    return np.asarray(index, np.int64), np.asarray(chord, np.float64)


def _nodes_from_table(sensors: Any, nodes: Any, file: Path, topology: Path) -> Ints:
    import pyarrow as pa
    import pyarrow.compute as pc

    from nova_core.io.columnar import read_columns

    table = read_columns(file, {"source": "text", "sensor": "text", "node": "text"}, ProblemError)
    by = next((name for name in ("source", "sensor") if name in table), None)
    if by is None or "node" not in table:
        raise NovaError(
            f"{file}: columns {', '.join(table.names)}; source (or sensor), node needed"
        )
    of_source, of_node = (pa.array(table.text(name).tolist(), pa.string()) for name in (by, "node"))
    row = pc.index_in(of_node, nodes.column("id"))
    if row.null_count:
        wrong = of_node.filter(row.is_null())[0].as_py()
        raise NovaError(f"{file}: column 'node': {wrong!r}: {topology} has no such node")
    key = sensors.column("id" if by == "source" else "sensor").cast(pa.string())
    index = pc.index_in(key, of_source).combine_chunks()
    chosen = row.take(index).fill_null(-1)
    return np.asarray(chosen.to_numpy(zero_copy_only=False), np.int64)


# --- tables ---------------------------------------------------------------------------------------


def _write_tables(
    tables: Path, prepared: Path, nodes: Any, sensors: Any, node: Ints, build: Build
) -> int:
    """Write the document and its tables; return the number of pairs."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from nova_core.io.syntax import dump

    pairs = _batches(prepared, "join_matrix", ["left", "right"], [])
    ids = sensors.column("id").combine_chunks()
    used = np.zeros(sensors.num_rows, bool)
    count = 0
    schema = pa.schema({"join": pa.string(), "left": pa.string(), "right": pa.string()})
    with pq.ParquetWriter(tables / "matrix.parquet", schema, compression="zstd") as writer:
        # A matrix may have many more rows than fit in memory as text.
        for batch in pairs:
            for side in ("left", "right"):
                row = pc.index_in(batch.column(side), ids)
                if row.null_count:
                    stranger = batch.column(side).filter(row.is_null())[0].as_py()
                    raise NovaError(f"{prepared / 'join_matrix'}: {side} {stranger!r} is no sensor")
                used[row.to_numpy(zero_copy_only=False)] = True
            join = pa.array([JOIN], pa.string()).take(pa.nulls(len(batch), pa.int32()).fill_null(0))
            writer.write_batch(
                pa.record_batch([join, batch.column("left"), batch.column("right")], schema=schema)
            )
            count += len(batch)
    if not count:
        raise NovaError(f"{prepared}: no pair of sensors joins: no region has both streams")
    # Sensors without a partner have nothing to join.
    joined = pa.array(used)
    rate = sensors.column(f"rate_{build.rate}")
    scaled = pc.multiply(rate, build.rate_scale)
    if build.fixed_rate is not None:
        scaled = pa.array(np.full(sensors.num_rows, build.fixed_rate))
    sources = pa.table(
        {
            "id": ids,
            "node": nodes.column("id").combine_chunks().take(pa.array(node)),
            "stream": sensors.column("stream").cast(pa.string()),
            "rate": scaled,
            "tuple_bytes": sensors.column("tuple_bytes"),
            "key": sensors.column("region"),
        }
    ).filter(joined)
    pq.write_table(nodes, tables / "nodes.parquet", compression="zstd")
    pq.write_table(sources, tables / "sources.parquet", compression="zstd")
    named = {"nodes": "nodes.parquet", "sources": "sources.parquet", "matrix": "matrix.parquet"}
    if build.latencies is not None:
        _write_latencies(build.latencies, nodes, tables / "latency_pairs.parquet")
        named["latency_pairs"] = "latency_pairs.parquet"
    operator: dict[str, Any] = {"id": JOIN, "left": PRESSURE, "right": HUMIDITY, "sink": build.sink}
    operator |= {"match": "matrix", "selectivity": build.selectivity}
    document = {"nova": 1, "name": build.name, "query": {"operators": [operator]}, "tables": named}
    (tables / "problem.yaml").write_text(dump(document, ".yaml"))
    return count


def _write_latencies(file: Path, nodes: Any, output: Path) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from nova_core.costspace.latency_files import read_measurements

    measured = read_measurements(file)
    found = measured.pairs()
    source, target = (
        pa.array(measured.ids[end].tolist(), pa.string()) for end in (found.source, found.target)
    )
    known = pc.and_(*(pc.is_in(end, nodes.column("id")) for end in (source, target)))
    if not pc.any(known).as_py():
        raise NovaError(
            f"{file}: none of its pairs is of two nodes of the topology; names must be the same"
        )
    pairs = pa.table({"from": source, "to": target, "ms": found.latency}).filter(known)
    pq.write_table(pairs, output, compression="zstd")
