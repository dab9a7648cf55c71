"""What bundles of all engines share: options, streams, scripts, and the directory as a whole.

Text from a plan, a problem or an option enters a script only through `words`, `assignment` or
`comment`, which quote it for the shell.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nova_core import scratch
from nova_core.errors import NovaError
from nova_core.io.validation import UNUSABLE
from nova_engines.flow import Flow, Match
from nova_engines.flow_of_plan import flow_of
from nova_engines.names import sanitised
from nova_engines.nodes import Node, write_files
from nova_engines.sources import EARLIEST, KAFKA, SOCKET, Source, Sources, through

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem

T = TypeVar("T")

TRUTH = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
HERE = 'here=$(cd "$(dirname "$0")" && pwd)'
NODE = "{node}"
QUOTED = 5  # of sources without address

TUPLE_MESSAGE = """\
A message is 24 bytes, little endian: sequence number (int64), time of production (int64, us since
the epoch), value (float64); its timestamp is the event time.
`python -m nova_kafka.produce job/sources.json SOURCE ...` sends such: the sources' values, from
their `start_ms` on.
"""
READING_MESSAGE = """\
A message is little endian: time of production (int64, us since the epoch), event time (int64, ms),
then each column of the stream: 64 bits, or of a text its length (int32) and its UTF-8.
`python -m nova_kafka.produce job/sources.json SOURCE ... --flow job/flow.json` sends such: the
sources' readings, from their `start_ms` on.
"""
# Others must not be able to write here: the scripts would start their files.
OWN = """\
umask 077
mkdir -p "$work"
if [ ! -O "$work" ] || [ -L "$work" ] || [ -n "$(find "$work" -maxdepth 0 -perm /022)" ]; then
  echo "$work: belongs to someone else, or others can write to it" >&2
  exit 1
fi"""
# A process is identified by its mark and its start time: its id may have been reused.
RUNNING = """\
begun() {
  sed 2> /dev/null 's/^.*) //' "/proc/$1/stat" | cut -d ' ' -f 20
}
running() {
  pid= ticks=
  [ ! -f "$work/$1.pid" ] || read -r pid ticks < "$work/$1.pid" || true
  case $pid in '' | *[!0-9]*) return 1 ;; esac
  [ -n "$ticks" ] && [ "$(begun "$pid")" = "$ticks" ] &&
    tr 2> /dev/null '\\0' '\\n' < "/proc/$pid/environ" | grep -qxF -e "NOVA_ENGINE=$work/$1"
}"""
START = """\
start() {
  if running "$1"; then
    echo "$1 runs already, process $pid" >&2
    return
  fi
  NOVA_ENGINE="$work/$1" nohup sh "$here/$1.sh" > "$work/log/$1.out" 2>&1 < /dev/null &
  pid=$!
  echo "$pid $(begun "$pid")" > "$work/$1.pid"
}"""
STOP = """\
stop() {
  left=100
  while running "$1"; do
    if [ "$left" -eq 100 ]; then kill "$pid" 2> /dev/null || true; fi
    if [ "$left" -le 0 ]; then kill -9 "$pid" 2> /dev/null || true; fi
    if [ "$left" -le -50 ]; then
      echo "$1, process $pid, does not end" >&2
      exit 1
    fi
    sleep 0.1
    left=$((left - 1))
  done
  rm -f "$work/$1.pid"
}"""


def words(*command: object) -> str:
    """A command's words, quoted for the shell."""
    return shlex.join(map(str, command))


def assignment(name: str, value: object) -> str:
    """A variable's assignment, quoted for the shell."""
    return f"{name}={shlex.quote(str(value))}"


def comment(text: str) -> str:
    """A comment line."""
    return "# " + "".join(c if c.isprintable() else " " for c in text)


def script(*lines: str) -> str:
    """The text of a script that ``/bin/sh`` runs."""
    return "\n".join(["#!/bin/sh", *lines]) + "\n"


def process_scripts(
    about: str,
    work: str,
    processes: Mapping[str, str],
    prepare: Sequence[str] = (),
    after: Sequence[str] = (),
) -> dict[str, str]:
    """``start.sh`` and ``stop.sh`` of a host's processes, and a script for each.

    Args:
        about: what they are, for people.
        work: directory on the host; refused there unless it is the user's own.
        processes: shell commands by name, in the order they are started.
        prepare: lines of shell before the first is started; ``$here`` and ``$work`` are set.
        after: lines of shell after the last has ended.
    """
    begin = ["set -eu", HERE, assignment("work", work), OWN, 'mkdir -p "$work/log"', *prepare]
    starts = [words("start", name) for name in processes]
    stops = [words("stop", name) for name in reversed(list(processes))]
    about_stop = comment("Ends what start.sh started.")
    return {
        **{f"{name}.sh": script(command) for name, command in processes.items()},
        "start.sh": script(comment(f"Starts {about}."), *begin, RUNNING, START, *starts),
        "stop.sh": script(about_stop, assignment("work", work), RUNNING, STOP, *stops, *after),
    }


def read_options(kind: Callable[..., T], options: Mapping[str, Any], engine: str) -> T:
    """Read the options of a bundle (``--set``).

    Args:
        kind: a dataclass whose fields have defaults.
        options: values by name; numbers and yes or no may be text.
        engine: its name for people.

    Raises:
        NovaError: for one that is unknown, or not what its field takes.
    """
    known = {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            raise NovaError(f"option {name!r}: unknown; {engine} takes {', '.join(known)}")
        if isinstance(known[name], bool):
            if str(value).lower() not in TRUTH:
                raise NovaError(f"option {name}: {value!r}: expected yes or no")
            values[name] = TRUTH[str(value).lower()]
        elif isinstance(known[name], int):
            try:
                values[name] = int(value)
            except (ValueError, OverflowError) as error:
                raise NovaError(f"option {name}: {value!r}: expected a whole number") from error
        else:
            values[name] = str(value)
            if not values[name]:
                raise NovaError(
                    f"option {name}: nothing is given; leave it out if it is not wanted"
                )
            if UNUSABLE.search(values[name]):
                raise NovaError(
                    f"option {name}: {value!r}: expected text without control characters"
                )
    return kind(**values)


@dataclass(frozen=True)
class StreamOptions:
    """Options about sources and windows, the same for all engines.

    Attributes:
        sources: JSON file of `nova_engines.sources.Sources`; without, every source of the plan
            repeats a few values at its rate, without end.
        window_ms: length of the windows.
        keys: sequence numbers have to be equal modulo this.
        every: the remainder has to be a multiple of this.
    """

    sources: str = ""
    window_ms: int = 1000
    keys: int = 1
    every: int = 1


@dataclass(frozen=True)
class BrokerOptions(StreamOptions):
    """Options of engines that read Kafka.

    Attributes:
        kafka: ``HOST:PORT`` of a broker that all sources are read from: a topic for each logical
            stream, with a partition for each of its sources in their order.
        topics: of sources that are elsewhere on the broker, ``SOURCE=TOPIC:PARTITION,...``.
        begin: where reading begins (`Source.begin`).
        group: consumer group of the readers.
        strict: whether input from outside that is no tuple of its source ends the job.
    """

    kafka: str = ""
    topics: str = ""
    begin: str = EARLIEST
    group: str = ""
    strict: bool = False


def sources_of(options: StreamOptions, problem: Problem) -> Sources:
    """The sources that options ask for.

    Raises:
        NovaError: for a file that has none, or others than the problem's plans take; for invalid
            topics, and for whole queries without a file or a broker.
    """
    broker = options.kafka if isinstance(options, BrokerOptions) else ""
    if options.sources:
        sources = Sources.read(Path(options.sources))
        if sources.of_readings != bool(problem.queries):
            raise NovaError(
                f"{options.sources}: has no readings, which whole queries take: `nova query "
                "sources` writes them"
                if problem.queries
                else f"{options.sources}: has readings, which joins of pairs do not take"
            )
    elif problem.queries:
        if not broker:
            raise NovaError(
                f"{problem.name}: holds whole queries: give their readings, sources=FILE, which "
                "`nova query sources` writes"
                + (", or kafka=HOST:PORT" if isinstance(options, BrokerOptions) else "")
            )
        sources = _of_topics(problem, broker)
    else:
        s, m = problem.sources, problem.matrix
        sources = Sources(
            tuple(
                Source(
                    source=str(s.ids[i]),
                    rate=float(s.rate[i]),
                    sensor=str(s.ids[i]),
                    stream=str(s.stream[i]),
                    region="" if s.key is None else str(s.key[i]),
                    values=tuple(float(value) for value in range(10)),
                )
                for i in sorted({*m.left.tolist(), *m.right.tolist()})
            )
        )
    if isinstance(options, BrokerOptions):
        if options.kafka:
            sources = _from_kafka(sources, options)
        elif options.topics or options.group or options.begin != EARLIEST:
            raise NovaError("options topics, begin, group: there is no broker: give kafka as well")
        if options.strict:
            sources = replace(sources, strict=True)
    return sources


def _of_topics(problem: Problem, broker: str) -> Sources:
    """Sources of whole queries whose readings only a broker has."""
    s = problem.sources
    return Sources(
        tuple(
            Source(source=str(one), stream=str(stream), kind=KAFKA, address=broker, topic=stream)
            for one, stream in zip(s.ids.tolist(), s.stream.tolist(), strict=True)
        )
    )


def with_files(sources: Sources) -> tuple[Sources, dict[str, bytes]]:
    """The same sources, with their files in ``readings`` beside ``sources.json``; and these.

    Raises:
        NovaError: for a file that cannot be read.
    """
    paths = {
        one.source: f"readings/{number}"
        for number, one in enumerate(sources.sources)
        if one.path is not None
    }
    files = {paths[one.source]: one.encoded() for one in sources.sources if one.source in paths}
    return sources.with_paths(paths), files


def flow_for(plan: Plan, problem: Problem, options: StreamOptions, sources: Sources) -> Flow:
    """The flow of a plan, with the windows that options ask for.

    Raises:
        NovaError: for a plan of another problem, without instances, or with other sources, and for
            windows of whole queries, which have their own.
    """
    plan.require_problem(problem)
    usual, match = StreamOptions(), Match(options.window_ms, options.keys, options.every)
    if problem.queries and match != Match(usual.window_ms, usual.keys, usual.every):
        raise NovaError("options window_ms, keys, every: whole queries say themselves what matches")
    flow = flow_of(plan, None if problem.queries else match)
    if not flow.operators:
        raise NovaError("plan: nothing runs in it")
    sources.require(flow)
    return flow


def by_source(sources: Sources, option: str, text: str, form: str) -> dict[str, str]:
    """An option's values by source, from ``SOURCE=...,SOURCE=...``.

    Raises:
        NovaError: for another form, and for a source that occurs twice or is unknown.
    """
    values: dict[str, str] = {}
    for part in text.split(","):
        source, _, value = part.strip().rpartition("=")
        if not source or source in values:
            wrong = "is there twice" if source else f"expected SOURCE={form}"
            raise NovaError(f"option {option}: {part!r}: {wrong}")
        sources.index(source)
        values[source] = value
    return values


def from_sockets(sources: Sources, text: str) -> Sources:
    """The same streams, read from sockets: ``SOURCE=HOST:PORT,...``."""
    addresses = by_source(sources, "sockets", text, "HOST:PORT")
    missing = [one.source for one in sources.sources if one.source not in addresses]
    if missing:
        more = ", ..." if len(missing) > QUOTED else ""
        raise NovaError(f"option sockets: no address for {', '.join(missing[:QUOTED])}{more}")
    read = tuple(
        replace(one, kind=SOCKET, address=addresses[one.source], values=(), path=None)
        for one in sources.sources
    )
    return replace(sources, sources=read)


def _from_kafka(sources: Sources, options: BrokerOptions) -> Sources:
    """The same streams, read from a broker."""
    topics: dict[str, tuple[str, int]] = {}
    text = options.topics
    chosen = by_source(sources, "topics", text, "TOPIC:PARTITION") if text else {}
    for source, value in chosen.items():
        topic, _, number = value.rpartition(":")
        if not topic or not number.isdecimal():
            raise NovaError(f"option topics: {source}={value}: expected SOURCE=TOPIC:PARTITION")
        topics[source] = topic, int(number)
    return through(sources, options.kafka, topics, begin=options.begin, group=options.group)


def write_bundle(directory: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Write a directory, completely or not at all.

    Args:
        directory: must be absent or empty.
        files: contents by path below it.

    Returns:
        The files written.

    Raises:
        NovaError: for a directory that holds something.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise NovaError(f"{directory}: is there already; give a directory to be made")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with scratch.beside(directory) as place:
        staging = place / "made"
        write_files(files, staging)
        if directory.exists():
            directory.rmdir()
        staging.rename(directory)
    return sorted(directory / name for name in files)


def below(directory: str, files: Mapping[str, T]) -> dict[str, T]:
    """Files that are in a directory of a bundle."""
    return {f"{directory}/{name}": content for name, content in files.items()}


def node_files(
    engine: str, node: Node, files: Mapping[str, str], work: str, commands: Mapping[str, str]
) -> dict[str, str]:
    """A host's directory in ``nodes``: its files, and scripts that start and stop.

    Args:
        engine: its name for people.
        node: the host.
        files: texts by path below the work directory.
        work: the work directory, on the host.
        commands: shell commands of its processes by name, in the order they are started.
    """
    scripts = process_scripts(
        f"{engine} on node {node.name!r} ({node.address})",
        work,
        commands,
        ['mkdir -p "$work/conf"', '[ "$here" = "$work" ] || cp "$here"/conf/* "$work/conf/"'],
    )
    return below(f"nodes/{sanitised(node.name)}", {**files, **scripts})


def heading(engine: str, flow: Flow, nodes: Sequence[Node]) -> str:
    """The beginning of a bundle's README: what runs where."""
    rows = "\n".join(
        f"| {node.name} | {node.address} | {sanitised(node.name)} | "
        f"{', '.join(one.name for one in flow.operators if one.node == node.name)} |"
        for node in nodes
    )
    return f"""\
# A plan by {flow.strategy or "hand"} for {engine}

Problem {flow.problem}: {len(flow.joins)} join instances, {len(flow.operators)}
operators on {len(flow.nodes)} nodes.

| node | address | directory in `nodes` | runs |
|---|---|---|---|
{rows}
"""


def about_results(flow: Flow, results: str, of_pairs: str) -> str:
    """A README's sentence on where results are.

    Args:
        flow: of the job.
        results: the first sink's file, see `Flow.result_files`.
        of_pairs: the sentence, where sinks have results of pairs.
    """
    if not flow.has_columns:
        return of_pairs
    nodes, files = flow.placement, flow.result_files(results)
    places = ", ".join(f"`{file}` on {nodes[sink]}" for sink, file in files.items())
    return f"""\
Results are written to {places}: a file of each query, with
   others beside it. `nova query reference PROBLEM --readings DIR --check FILE` compares one with
   what must come."""


def about_topics(sources: Sources, jars: Sequence[str]) -> str:
    """A README's section on sources that read Kafka; empty if there are none.

    Args:
        sources: of the job.
        jars: that hosts need for them.
    """
    read = [one for one in sources.sources if one.kind == KAFKA]
    if not read:
        return ""
    lines = "\n".join(
        f"| {one.source} | {one.address} | {one.topic} | {one.partition} |" for one in read
    )
    begins = ", ".join(sorted({one.begin for one in read}))
    message = READING_MESSAGE if sources.of_readings else TUPLE_MESSAGE
    needs = f"Every host also needs {', '.join(jars)} (`nova engines install kafka`).\n"
    return f"""
Sources that read from Kafka, each a partition of its own, from {begins} on:

| source | broker | topic | partition |
|---|---|---|---|
{lines}

{needs if jars else ""}\
{message}"""


def modules(names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Modules of Nova's in ``modules``, for hosts that have no Nova.

    Args:
        names: by package.
    """
    return {
        f"modules/{package}/{name}.py": (resources.files(package) / f"{name}.py").read_text("utf-8")
        for package, of_package in names.items()
        for name in of_package
    }
