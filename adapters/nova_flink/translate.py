"""Everything a person needs to run a plan on Flink by their own means, as a directory of files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_engines import bundle
from nova_engines.bundle import NODE, BrokerOptions, words
from nova_engines.flow import Flow
from nova_engines.names import sanitised
from nova_engines.nodes import COORDINATOR, nodes_of
from nova_engines.sources import Sources
from nova_flink.client import JVM
from nova_flink.configuration import ClusterConfiguration
from nova_flink.home import EXTENSION, FlinkHome

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem

# What the job script needs: standard library and pyflink only.
MODULES = {
    "nova_flink": ("__init__", "builder", "names", "pin", "rest", "submit"),
    "nova_engines": (
        *("__init__", "documents", "flow", "json_interface", "names", "readings", "sources"),
    ),
    "nova_core": ("__init__", "errors"),
}


@dataclass(frozen=True)
class Options(BrokerOptions):
    """How a plan is translated.

    Input that is no tuple of its source is kept in ``work/log/dead-letters`` of the source's node;
    with the option ``strict`` it ends the job.

    Attributes:
        sockets: where every source connects and reads, ``SOURCE=HOST:PORT,...``; without, as the
            file of sources says.
        connectors: the home of Flink's connector for Kafka as hosts see it.
        home: the engine home as hosts see it.
        work: where a host keeps configuration and logs; ``{node}`` stands for its name.
        coordinator: the node that runs the JobManager; the first sink's, if not given.
        results: file the sink writes on its node; in its work directory, if not given.
    """

    sockets: str = ""
    connectors: str = ""
    home: str = ""
    work: str = "/tmp/nova-flink"
    coordinator: str = ""
    results: str = ""


def translate(plan: Plan, problem: Problem, directory: Path, **options: Any) -> list[Path]:
    """Write a plan as configuration of hosts, start and stop scripts and a job.

    Arguments and errors are those of `nova_core.engines.Engine.translate`, options the fields of
    `Options`. Nodes are reached at the addresses the problem gives them (``host``), or at their
    names.
    """
    chosen = bundle.read_options(Options, options, "Flink")
    if chosen.sockets and chosen.kafka:
        raise NovaError("options sockets and kafka: give one; sources of both can be in a file")
    sources = bundle.sources_of(chosen, problem)
    if chosen.sockets:
        sources = bundle.from_sockets(sources, chosen.sockets)
    flow = bundle.flow_for(plan, problem, chosen, sources)
    home = chosen.home or str(FlinkHome.default().path)
    coordinator = chosen.coordinator or flow.sinks[0].node
    nodes = nodes_of(problem, coordinator, flow.nodes)
    jars = _connectors(sources, chosen)
    configuration = ClusterConfiguration(nodes, home, extra_jars=jars)
    results = chosen.results or f"{chosen.work}/results"
    results = results.replace(NODE, sanitised(flow.sinks[0].node))

    files: dict[str, str | bytes] = {"README.md": _readme(flow, sources, configuration, results)}
    for node in nodes:
        work = chosen.work.replace(NODE, sanitised(node.name))
        own = replace(configuration, work_directory=work)
        processes = {"taskmanager": own.task_manager_command(node)}
        if node.role == COORDINATOR:
            processes = {"jobmanager": own.coordinator_command(node), **processes}
        files |= bundle.node_files("Flink", node, own.files(node), work, processes)
    files |= bundle.below("job", _job_files(flow, sources, configuration, results))
    return bundle.write_bundle(directory, files)


def _connectors(sources: Sources, options: Options) -> list[str]:
    """Jars that jobs with some sources need beside Flink's and Nova's, as hosts see them."""
    if all(one.kind != "kafka" for one in sources.sources):
        return []
    from nova_kafka.home import connectors_home

    home = connectors_home()
    directory = options.connectors or str(home.path)
    return [f"{directory}/lib/{artifact.file}" for artifact in home.artifacts]


def _job_files(
    flow: Flow, sources: Sources, configuration: ClusterConfiguration, results: str
) -> dict[str, str | bytes]:
    sources, sent = bundle.with_files(sources)
    home = str(configuration.home_path)
    path = [f"{home}/{EXTENSION}", *map(str, configuration.extra_jars)]
    arguments = words("--rest", configuration.rest_url, "--results", results)
    submit = bundle.script(
        bundle.comment("Starts the job; prints its id. Options: see submit.sh --help."),
        "set -eu",
        bundle.HERE,
        'export PYTHONPATH="$here/modules" PYTHONDONTWRITEBYTECODE=1',
        f"export {bundle.assignment('FLINK_HOME', f'{home}/flink')}",
        f"export {bundle.assignment('HADOOP_CLASSPATH', ':'.join(path))}",
        f"export {bundle.assignment('JVM_ARGS', JVM)}",
        # Flink's own log of the client.
        'export FLINK_LOG_DIR="${FLINK_LOG_DIR:-${TMPDIR:-/tmp}}"',
        f"exec {words(f'{home}/bin/python')} -m nova_flink.submit \\",
        '  --flow "$here/flow.json" --sources "$here/sources.json" \\',
        f'  {arguments} "$@"',
    )
    return {
        **bundle.modules(MODULES),
        "flow.json": flow.to_json(),
        "sources.json": sources.to_json(),
        "submit.sh": submit,
        **sent,
    }


def _readme(flow: Flow, sources: Sources, configuration: ClusterConfiguration, results: str) -> str:
    home, rest = configuration.home_path, configuration.rest_url
    jars = [f"`{jar}`" for jar in configuration.extra_jars]
    pairs = f"""\
Results are written to `{results}` on {", ".join(one.node for one in flow.sinks)}, 80 bytes
   each (`nova_engines.results` reads them)."""
    return f"""\
{bundle.heading("Apache Flink", flow, configuration.nodes)}
1. Every host needs Java 17 or later and `{home}/flink/lib/*.jar` and `{home}/{EXTENSION}` at the
   same path. `nova engines install flink` makes that directory; copying it is enough.
2. Copy each directory in `nodes` to its host and run `start.sh` there; the one of
   {configuration.coordinator.name} first, which also starts the JobManager. `stop.sh` ends it.
3. Run `job/submit.sh` on a host that has the whole of `{home}` and reaches
   {rest}; it prints the job's id. `job/sources.json` says what the sources emit,
   or where they read; `job/flow.json` how long windows are.
4. {bundle.about_results(flow, results, pairs)}
5. `nova cluster verify JOB --at {rest} --plan PLAN -p PROBLEM` compares where
   operators run with the plan, as
   {rest}/jobs/ID and the TaskManagers' ids (tm-NODE) tell.
{bundle.about_topics(sources, jars)}"""
