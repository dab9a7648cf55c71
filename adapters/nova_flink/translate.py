"""Everything a person needs to run a plan on Flink by their own means, as a directory of files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_engines.bundle import (
    HERE,
    addresses,
    assignment,
    comment,
    copy_modules,
    read_options,
    words,
    write_processes,
    write_script,
)
from nova_engines.dataflow import Dataflow, from_plan
from nova_engines.names import sanitised
from nova_engines.workload import SourceStream, Workload
from nova_flink import own_cluster
from nova_flink.client import JVM
from nova_flink.configuration import COORDINATOR, ClusterConfiguration, Node
from nova_flink.home import EXTENSION, FlinkHome

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem

# What the job script needs: standard library and pyflink only.
MODULES = {
    "nova_flink": ("__init__", "builder", "names", "pin", "submit"),
    "nova_engines": ("__init__", "dataflow", "documents", "names", "workload"),
    "nova_core": ("__init__", "errors"),
}
NODE = "{node}"
TOLD = 5  # of sources without address


@dataclass(frozen=True)
class Options:
    """How a plan is translated.

    Attributes:
        workload: JSON file of a `nova_engines.workload.Workload`; without, every source of the plan
            repeats a few values at its rate, without end.
        window_ms: length of the windows, without a workload.
        keys: sequence numbers have to be equal modulo this, without a workload.
        sockets: where every source connects and reads, ``SOURCE=HOST:PORT,...``; without, as the
            workload says.
        kafka: ``HOST:PORT`` of a broker that all sources are read from: a topic for each logical
            stream, with a partition for each of its sources in their order.
        topics: of sources that lie elsewhere there, ``SOURCE=TOPIC:PARTITION,...``.
        connectors: the home of Flink's connector for Kafka as hosts see it.
        home: the engine home as hosts see it.
        work: where a host keeps configuration and logs; ``{node}`` stands for its name.
        coordinator: the node that runs the JobManager; the first sink's, if not given.
        results: file the sink writes on its node; in its work directory, if not given.
        strict: whether what comes from a socket or broker and is no tuple of its source ends the
            job; otherwise it is kept in ``work/log/dead-letters`` of the source's node.
        form: ``bundle`` is a cluster and Nova's own job; ``config`` only what TaskManagers of a
            cluster that is there have to be told.
    """

    workload: str = ""
    window_ms: int = 1000
    keys: int = 1
    sockets: str = ""
    kafka: str = ""
    topics: str = ""
    connectors: str = ""
    home: str = ""
    work: str = "/tmp/nova-flink"
    coordinator: str = ""
    results: str = ""
    strict: bool = False
    form: str = "bundle"


def translate(plan: Plan, problem: Problem, directory: Path, **options: Any) -> list[Path]:
    """Write a plan as configuration of hosts, start and stop scripts and a job.

    Nodes are reached at the addresses the problem gives them (``host``), or at their names.

    Args:
        plan: what runs where.
        problem: the one it answers.
        directory: is made; must be absent or empty.
        options: fields of `Options`; numbers may be text.

    Returns:
        The files written.

    Raises:
        NovaError: for an option that is unknown or of the wrong type, a directory that holds
            something, or a plan of another problem.
    """
    chosen = read_options(Options, options, "Flink")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise NovaError(f"{directory}: is there already; give a directory to be made")
    if chosen.form == "config":
        return _made(directory, lambda made: own_cluster.write(problem, made))
    if chosen.form != "bundle":
        raise NovaError(f"option form: {chosen.form!r}: expected bundle or config")
    workload = _workload(chosen, problem)
    if chosen.sockets and chosen.kafka:
        raise NovaError("options sockets and kafka: give one; a workload may have sources of both")
    if chosen.sockets:
        workload = _from_sockets(workload, chosen.sockets)
    if chosen.kafka:
        workload = _from_kafka(workload, chosen.kafka, chosen.topics)
    elif chosen.topics:
        raise NovaError("option topics: there is no broker: give kafka as well")
    if chosen.strict:
        workload = replace(workload, strict=True)
    dataflow = from_plan(plan, problem, workload)
    if not dataflow.operators:
        raise NovaError("plan: nothing runs in it")
    return _made(directory, lambda made: _write(made, dataflow, workload, problem, chosen))


def _made(directory: Path, write: Callable[[Path], object]) -> list[Path]:
    """Have a directory written, whole or not at all; its files."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}.") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        write(made)
        written = sorted(path.relative_to(made) for path in made.rglob("*") if path.is_file())
        if directory.exists():
            directory.rmdir()
        made.rename(directory)
    return [directory / path for path in written]


def _workload(options: Options, problem: Problem) -> Workload:
    if options.workload:
        path = Path(options.workload)
        try:
            return Workload.read(path)
        except OSError as error:
            raise NovaError(f"{path}: {error.strerror}") from error
    s, m = problem.sources, problem.matrix
    joined = sorted({*m.left.tolist(), *m.right.tolist()})
    streams = tuple(
        SourceStream(
            source=str(s.ids[i]),
            rate=float(s.rate[i]),
            sensor=str(s.ids[i]),
            stream=str(s.stream[i]),
            region="" if s.key is None else str(s.key[i]),
            values=tuple(float(value) for value in range(10)),
        )
        for i in joined
    )
    return Workload(streams, options.window_ms, start_ms=0, keys=options.keys)


def _of_sources(workload: Workload, option: str, text: str, form: str) -> dict[str, str]:
    """What an option says of sources, as ``SOURCE=...,SOURCE=...``."""
    told: dict[str, str] = {}
    for part in text.split(","):
        source, _, value = part.strip().rpartition("=")
        if not source or source in told:
            wrong = "is there twice" if source else f"expected SOURCE={form}"
            raise NovaError(f"option {option}: {part!r}: {wrong}")
        workload.index(source)
        told[source] = value
    return told


def _from_sockets(workload: Workload, text: str) -> Workload:
    """The same streams, read from sockets."""
    addresses = _of_sources(workload, "sockets", text, "HOST:PORT")
    missing = [one.source for one in workload.sources if one.source not in addresses]
    if missing:
        more = ", ..." if len(missing) > TOLD else ""
        raise NovaError(f"option sockets: no address for {', '.join(missing[:TOLD])}{more}")
    sources = tuple(
        replace(one, kind="socket", address=addresses[one.source], values=(), path=None)
        for one in workload.sources
    )
    return replace(workload, sources=sources)


def _from_kafka(workload: Workload, servers: str, text: str) -> Workload:
    """The same streams, read from a broker."""
    from nova_kafka.topics import partitions_of

    placed = partitions_of([one.stream or one.source for one in workload.sources])
    topics = {one.source: at for one, at in zip(workload.sources, placed, strict=True)}
    for source, told in (
        _of_sources(workload, "topics", text, "TOPIC:PARTITION").items() if text else ()
    ):
        topic, _, number = told.rpartition(":")
        if not topic or not number.isdecimal():
            raise NovaError(f"option topics: {source}={told}: expected SOURCE=TOPIC:PARTITION")
        topics[source] = topic, int(number)
    sources = tuple(
        replace(
            one,
            kind="kafka",
            address=servers,
            topic=topics[one.source][0],
            partition=topics[one.source][1],
        )
        for one in workload.sources
    )
    return replace(workload, sources=sources)


def _connectors(workload: Workload, options: Options) -> list[str]:
    """Jars that jobs of a workload need beside Flink's and Nova's, as hosts see them."""
    if all(one.kind != "kafka" for one in workload.sources):
        return []
    from nova_kafka.home import connectors_home

    home = connectors_home()
    directory = options.connectors or str(home.path)
    return [f"{directory}/lib/{artifact.file}" for artifact in home.artifacts]


def _write(
    made: Path, dataflow: Dataflow, workload: Workload, problem: Problem, options: Options
) -> None:
    home = options.home or str(FlinkHome.default().path)
    coordinator = options.coordinator or dataflow.sinks[0].node
    connectors = _connectors(workload, options)
    configuration = _configuration(dataflow, problem, home, coordinator, connectors)
    for node in configuration.nodes:
        work = options.work.replace(NODE, sanitised(node.name))
        _write_node(
            made / "nodes" / sanitised(node.name),
            replace(configuration, work_directory=work),
            node,
        )
    results = options.results or f"{options.work}/results"
    results = results.replace(NODE, sanitised(dataflow.sinks[0].node))
    _write_job(made / "job", dataflow, workload, configuration, home, results)
    text = _readme(dataflow, workload, configuration, home, results)
    (made / "README.md").write_text(text, "utf-8")


def _configuration(
    dataflow: Dataflow, problem: Problem, home: str, coordinator: str, connectors: list[str]
) -> ClusterConfiguration:
    index, known = problem.node_index, problem.nodes
    if coordinator not in index:
        raise NovaError(f"option coordinator: {coordinator!r} is no node of the problem")
    reached = addresses(problem, dict.fromkeys((coordinator, *dataflow.nodes)))
    nodes = []
    for name, address in reached.items():
        memory = None if known.memory is None else float(known.memory[index[name]])
        nodes.append(
            Node(
                name,
                address,
                memory=int(memory) if memory is not None and memory > 0 else None,
                role=COORDINATOR if name == coordinator else "worker",
            )
        )
    return ClusterConfiguration(nodes, home, extra_jars=connectors)


def _write_node(directory: Path, configuration: ClusterConfiguration, node: Node) -> None:
    configuration.write(node, directory)
    processes = {"taskmanager": configuration.task_manager_command(node)}
    if node.role == COORDINATOR:
        processes = {"jobmanager": configuration.coordinator_command(node), **processes}
    write_processes(
        directory,
        f"Flink on node {node.name!r} ({node.address})",
        configuration.work_directory,
        processes,
        ['mkdir -p "$work/conf"', '[ "$here" = "$work" ] || cp "$here"/conf/* "$work/conf/"'],
    )


def _write_job(
    directory: Path,
    dataflow: Dataflow,
    workload: Workload,
    configuration: ClusterConfiguration,
    home: str,
    results: str,
) -> None:
    copy_modules(directory / "modules", MODULES)
    (directory / "dataflow.json").write_text(dataflow.to_json(), "utf-8")
    (directory / "workload.json").write_text(workload.to_json(), "utf-8")
    path = [f"{home}/{EXTENSION}", *map(str, configuration.extra_jars)]
    given = words("--rest", configuration.rest_url, "--results", results)
    submit = [
        comment("Starts the job; prints its id. Options: see submit.sh --help."),
        "set -eu",
        HERE,
        'export PYTHONPATH="$here/modules" PYTHONDONTWRITEBYTECODE=1',
        f"export {assignment('FLINK_HOME', f'{home}/flink')}",
        f"export {assignment('HADOOP_CLASSPATH', ':'.join(path))}",
        f"export {assignment('JVM_ARGS', JVM)}",
        # Flink's own log of the client.
        'export FLINK_LOG_DIR="${FLINK_LOG_DIR:-${TMPDIR:-/tmp}}"',
        f"exec {words(f'{home}/bin/python')} -m nova_flink.submit \\",
        '  --dataflow "$here/dataflow.json" --workload "$here/workload.json" \\',
        f'  {given} "$@"',
    ]
    write_script(directory / "submit.sh", submit)


def _readme(
    dataflow: Dataflow,
    workload: Workload,
    configuration: ClusterConfiguration,
    home: str,
    results: str,
) -> str:
    rows = "\n".join(
        f"| {node.name} | {node.address} | {sanitised(node.name)} | "
        f"{', '.join(one.name for one in dataflow.operators if one.node == node.name)} |"
        for node in configuration.nodes
    )
    read = [one for one in workload.sources if one.kind == "kafka"]
    through = ""
    if read:
        lines = "\n".join(
            f"| {one.source} | {one.address} | {one.topic} | {one.partition} |" for one in read
        )
        jars = ", ".join(f"`{jar}`" for jar in configuration.extra_jars)
        through = f"""
Sources that read from Kafka, from the first message of a partition of their own:

| source | broker | topic | partition |
|---|---|---|---|
{lines}

Every host also needs {jars} (`nova engines install kafka`).
A message is 24 bytes, little endian: sequence number (int64), time of production (int64, us since
the epoch), value (float64); its timestamp is the event time.
`python -m nova_kafka.produce job/workload.json SOURCE ...` sends such: the values of a workload,
from its `start_ms` on.
"""
    return f"""\
# A plan by {dataflow.strategy or "hand"} for Apache Flink

Problem {dataflow.problem}: {len(dataflow.joins)} join instances, {len(dataflow.operators)}
operators on {len(dataflow.nodes)} nodes.

| node | address | directory in `nodes` | runs |
|---|---|---|---|
{rows}

1. Every host needs Java 17 or later and `{home}/flink/lib/*.jar` and `{home}/{EXTENSION}` at the
   same path. `nova engines install flink` makes that directory; copying it is enough.
2. Copy each directory in `nodes` to its host and run `start.sh` there; the one of
   {configuration.coordinator.name} first, which also starts the JobManager. `stop.sh` ends it.
3. Run `job/submit.sh` on a host that has the whole of `{home}` and reaches
   {configuration.rest_url}; it prints the job's id. `job/workload.json` says what the sources emit,
   or where they read, and how long windows are.
4. Results are written to `{results}` on {", ".join(one.node for one in dataflow.sinks)}, 80 bytes
   each (`nova_engines.results` reads them).
5. `nova cluster verify JOB --at {configuration.rest_url} --plan PLAN -p PROBLEM` compares where
   operators run with the plan, as
   {configuration.rest_url}/jobs/ID and the TaskManagers' ids (tm-NODE) tell.
{through}"""
