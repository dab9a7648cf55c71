"""The placement problem of an inventory: its hosts, its links, and what they can take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_core.model.syntax import Row, number
from nova_harness.experiment.document import Experiment, ExperimentError
from nova_workloads.streams import HUMIDITY, PRESSURE, Stream, read_streams, synthetic

if TYPE_CHECKING:
    from nova_core.model.problem import Problem
    from nova_testbed.inventory import Inventory

JOIN = "join"
DIGITS = 3


def problem_document(
    inventory: Inventory,
    capacity: Mapping[str, float],
    rate: float,
    regions: int,
    matches: float = 1.0,
) -> dict[str, Any]:
    """The plain content of a problem document: the inventory's sources, joined by region.

    Hosts in the role of a source measure pressure and humidity in turn, two and two in a region, as
    in the paper's end-to-end run (section 4.1). Latencies are one-way: half of the links' round
    trips. The sink hosts no joins, unless a strategy insists.

    Args:
        inventory: of the hosts.
        capacity: C_a by host, tuples/s.
        rate: of each source, tuples/s.
        regions: how many.
        matches: results per tuple.

    Raises:
        ExperimentError: for an inventory with too few sources.
    """
    sources = inventory.with_role("source")
    if len(sources) < 2 * regions:
        raise ExperimentError(
            f"inventory {inventory.name}: {len(sources)} hosts with the role source; "
            f"{regions} regions need {2 * regions}"
        )
    sink = inventory.with_role("sink")[0].name
    nodes = []
    for host in inventory.hosts:
        row: dict[str, Any] = {"id": host.name, "capacity": number(round(capacity[host.name], 1))}
        if host.name == sink:
            row["worker"] = False
        if host.memory is not None:
            row["memory"] = host.memory
        nodes.append(Row(row | {"tags": [host.role]}))
    join = Row(id=JOIN, left=PRESSURE, right=HUMIDITY, sink=sink, match="key")
    if matches != 1:
        join["selectivity"] = matches
    return {
        "nova": 1,
        "name": f"{inventory.name}, {regions} regions",
        "query": {"operators": [join]},
        "nodes": nodes,
        "sources": [
            Row(
                id=f"{(PRESSURE, HUMIDITY)[i % 2]}-{i // 2 + 1}",
                node=host.name,
                stream=(PRESSURE, HUMIDITY)[i % 2],
                rate=number(rate),
                key=f"region-{i // 2 + 1}",
            )
            for i, host in enumerate(sources[: 2 * regions])
        ],
        "latency": {
            "pairs": [
                Row({"from": a.name, "to": b.name, "ms": number(round(link.rtt_ms / 2, DIGITS))})
                for a, b, link in inventory.pairs()
            ]
        },
    }


def problem_of(document: Mapping[str, Any], path: Path) -> Problem:
    """Write a problem document and read it as everybody else does.

    Raises:
        NovaError: when it cannot be written.
    """
    import warnings

    from nova_core.errors import ProblemWarning
    from nova_core.model.files import read_problem, write_text
    from nova_core.model.syntax import dump

    write_text(path, dump(document, path.suffix))
    with warnings.catch_warnings():
        # That positions are worked out from latencies is no surprise here.
        warnings.simplefilter("ignore", ProblemWarning)
        return read_problem(path)


def streams_of(problem: Problem, data: Path | None, seed: int) -> list[Stream]:
    """What each source measures, in the order of the problem's sources.

    Args:
        problem: of `problem_document`.
        data: readings to replay, or None for made-up ones. Where it has fewer sensors of a stream
            than the problem has sources, sensors serve more than one.
        seed: of made-up values.

    Raises:
        ExperimentError: for data that cannot be used.
    """
    s = problem.sources
    assert s.key is not None
    made_up = synthetic(len(s), regions=len(s) // 2, seed=seed)
    found = made_up if data is None else readings_in(data)
    by_stream = {name: [f for f in found if f.stream == name] for name in (PRESSURE, HUMIDITY)}
    streams = []
    used = dict.fromkeys(by_stream, 0)
    for i in range(len(s)):
        name = str(s.stream[i])
        values = by_stream[name][used[name] % len(by_stream[name])]
        used[name] += 1
        streams.append(Stream(str(s.ids[i]), str(s.key[i]), name, values.time, values.value))
    return streams


def data_of(experiment: Experiment, base: Path) -> Path | None:
    """The readings to replay, or None for made-up ones."""
    data = experiment.workload.data
    return None if data is None else base / Path(data).expanduser()


def readings_in(data: Path) -> list[Stream]:
    """The readings of a file or directory that an experiment replays.

    Raises:
        ExperimentError: where there are none of one of the streams.
    """
    if not data.exists():
        raise ExperimentError(f"workload.data: {data}: there is no such file or directory")
    try:
        found = read_streams(_files(data))
    except NovaError as error:
        raise ExperimentError(f"workload.data: {error}") from None
    for name in (PRESSURE, HUMIDITY):
        if not any(stream.stream == name for stream in found):
            raise ExperimentError(
                f"workload.data: {data}: no readings of {name!r}; the workload joins {PRESSURE} "
                f"with {HUMIDITY}"
            )
    return found


def _files(data: Path) -> list[Path]:
    """The four-column files of a directory, or what was named itself."""
    if data.is_dir():
        inside = data / "sensors" if (data / "sensors").is_dir() else data
        files = sorted(p for p in inside.iterdir() if p.name.endswith((".csv", ".csv.gz")))
        if files:
            return files
    return [data]


def rtt_csv(inventory: Inventory) -> str:
    """Round trips asked for, ms: a header of names, then a row per host."""
    lines = [",".join(host.name for host in inventory.hosts)]
    lines += [",".join(f"{value:g}" for value in row) for row in inventory.rtt().tolist()]
    return "\n".join(lines) + "\n"
