"""Everything a person needs to run a plan on Spark by their own means, as a directory of files."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core import extras
from nova_core.errors import NovaError
from nova_engines import bundle
from nova_engines.bundle import NODE, BrokerOptions, words
from nova_engines.flow import Flow
from nova_engines.names import sanitised
from nova_engines.nodes import COORDINATOR, nodes_of
from nova_engines.sources import Sources
from nova_spark import stages
from nova_spark.configuration import ClusterConfiguration
from nova_spark.extension import kafka_client
from nova_spark.home import spark_home
from nova_spark.realtime import ROWS, jobs_of
from nova_spark.tasks import SLOTS

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem

# What the job needs of Nova on the driver's host, beside PySpark and the standard library.
MODULES = {
    "nova_spark": (
        *("__init__", "extension", "home", "job", "pairs", "queries", "realtime", "rest"),
        *("session", "tasks", "verification"),
    ),
    "nova_engines": (
        *("__init__", "compiling", "flow", "documents", "installing", "json_interface"),
        *("readings", "verification", "sources"),
    ),
    "nova_core": ("__init__", "environment", "errors", "extras", "programs"),
}


@dataclass(frozen=True)
class Options(BrokerOptions):
    """How a plan is translated.

    Attributes:
        spark_home: Spark as hosts see it; if empty, its path on this machine.
        python: of the driver; if empty, the one that runs now.
        work: where a host keeps configuration and logs; ``{node}`` stands for its name.
        coordinator: the node that runs the Master; the first sink's, if not given.
        results: directory the sink writes to on its node; in its work directory, if not given.
        form: ``bundle``, or ``stages`` for rules that place a user's own query.
    """

    spark_home: str = ""
    python: str = ""
    work: str = "/tmp/nova-spark"
    coordinator: str = ""
    results: str = ""
    form: str = "bundle"


def translate(plan: Plan, problem: Problem, directory: Path, **options: Any) -> list[Path]:
    """Write a plan as configuration of hosts, start and stop scripts and a job.

    Arguments and errors are those of `nova_core.engines.Engine.translate`, options the fields of
    `Options`. Nodes are reached at the addresses the problem gives them (``host``), or at their
    names.
    """
    chosen = bundle.read_options(Options, options, "Spark")
    if chosen.form == "stages":
        return bundle.write_bundle(directory, stages.files(plan, problem))
    if chosen.form != "bundle":
        raise NovaError(f"option form: {chosen.form!r}: expected bundle or stages")
    sources = bundle.sources_of(chosen, problem)
    flow = bundle.flow_for(plan, problem, chosen, sources)
    coordinator = chosen.coordinator or flow.sinks[0].node
    home = chosen.spark_home or str(spark_home() or "")
    if not home:
        raise NovaError(
            "option spark_home: Spark is not installed here; say where hosts have it, or "
            f"{extras.install_command('spark')}"
        )
    configuration = ClusterConfiguration(
        nodes_of(problem, coordinator, flow.nodes),
        home,
        chosen.python or sys.executable,
        chosen.work,
        slots=SLOTS,
    )
    results = chosen.results or f"{chosen.work}/results"
    results = results.replace(NODE, sanitised(flow.sinks[0].node))
    jobs_of(flow, sources, configuration.addresses, results)  # what it refuses is refused here

    written: dict[str, str | bytes] = {"README.md": _readme(flow, sources, configuration, results)}
    for node in configuration.nodes:
        work = chosen.work.replace(NODE, sanitised(node.name))
        own = replace(configuration, work_directory=work)
        processes = {"worker": own.worker_command(node)}
        if node.role == COORDINATOR:
            processes = {"master": own.master_command(node), **processes}
        written |= bundle.node_files("Spark", node, own.files(node), work, processes)
    written |= bundle.below("job", _job_files(flow, sources, configuration, results))
    return bundle.write_bundle(directory, written)


def _job_files(
    flow: Flow, sources: Sources, configuration: ClusterConfiguration, results: str
) -> dict[str, str | bytes]:
    c = configuration
    sources, sent = bundle.with_files(sources)
    arguments = words(
        *("--master", c.master_url, "--results", results, "--heap", min(c.heaps.values())),
        *("--checkpoints", f"{c.work_directory.replace(NODE, 'job')}/checkpoints"),
    )
    run = bundle.script(
        bundle.comment("Runs the job until its tuples end, or Ctrl-C. Options: run.sh --help."),
        "set -eu",
        bundle.HERE,
        'export PYTHONPATH="$here/modules" PYTHONDONTWRITEBYTECODE=1',
        f"export {bundle.assignment('SPARK_HOME', c.spark_home)}",
        f"export {bundle.assignment('PYSPARK_PYTHON', c.python)}",
        f'exec {words(c.python)} -m nova_spark.job --directory "$here" \\',
        f'  {arguments} "$@"',
    )
    job: dict[str, str | bytes] = {
        **bundle.modules(MODULES),
        "flow.json": flow.to_json(),
        "sources.json": sources.to_json(),
        "addresses.json": json.dumps(c.addresses) + "\n",
        "run.sh": run,
        **sent,
    }
    # Scala and Java are compiled where the job runs, for the Spark there.
    parts = ["nova_spark/scala/*.scala", "nova_spark/scala/kafka/*.scala"]
    if flow.has_columns:
        parts += ["nova_spark/scala/query/**/*.scala", "nova_engines/java/**/*.java"]
    for part in parts:
        package, _, pattern = part.partition("/")
        with as_file(files(package)) as directory:
            for path in directory.glob(pattern):
                name = path.relative_to(directory)
                job[f"modules/{package}/{name}"] = path.read_bytes()
    if any(one.kind == "kafka" for one in sources.sources):
        client = kafka_client()
        job[client.name] = client.read_bytes()
    return job


def _readme(flow: Flow, sources: Sources, configuration: ClusterConfiguration, results: str) -> str:
    c = configuration
    # Operators of queries are the Java of all engines, and compiled where the job begins.
    compiler = ", and a Java compiler (JDK)" if flow.has_columns else ""
    pairs = f"""\
Results are written to `{results}/N` on {", ".join(one.node for one in flow.sinks)}, N
   counting sinks from 0: files of 80-byte records (`nova_spark.results` reads them)."""
    return f"""\
{bundle.heading("Apache Spark", flow, c.nodes)}
1. Every host needs Java 17 or later and Spark at `{c.spark_home}`, which pip's package `pyspark`
   brings; the driver's host also Python with PySpark at `{c.python}`{compiler}.
2. Copy each directory in `nodes` to its host and run `start.sh` there; the one of
   {c.coordinator.name} first, which also starts the Master. `stop.sh` ends it.
3. Run `job/run.sh` on a host that the nodes reach; it is the driver, and the job runs as long as
   it does. `job/sources.json` says what the sources emit, or where they read;
   `job/flow.json` how long windows are.
4. {bundle.about_results(flow, f"{results}/{ROWS}", pairs)}
5. `nova cluster verify record.json --engine spark --at record` compares where tasks ran with the
   plan; `job/run.sh` writes that file where it is started.
{bundle.about_topics(sources, [])}"""
