"""Everything a person needs to run a plan on Spark by their own means, as a directory of files."""

from __future__ import annotations

import json
import sys
import tempfile
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
from nova_engines.workload import SourceStream, Workload
from nova_spark import names
from nova_spark.configuration import COORDINATOR, ClusterConfiguration, Node
from nova_spark.engine import spark_home
from nova_spark.flow import Flow, from_plan
from nova_spark.place import SLOTS

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem

# What the job needs beside PySpark, numpy, pyarrow and pandas.
MODULES = {
    "nova_spark": (
        *("__init__", "clock", "flow", "job", "names", "place", "rest", "session"),
        *("streaming_join", "tasks", "verification"),
    ),
    "nova_engines": ("__init__", "documents", "results", "verification", "workload"),
    "nova_core": ("__init__", "errors"),
    "nova_core/model": ("partitioner",),
}
NODE = "{node}"


@dataclass(frozen=True)
class Options:
    """How a plan is translated.

    Attributes:
        workload: JSON file of a `nova_engines.workload.Workload`; without, every source of the plan
            repeats a few values at its rate, without end.
        window_ms: length of the windows, without a workload.
        keys: sequence numbers have to be equal modulo this, without a workload.
        spark_home: Spark as hosts see it; without, where it is here.
        python: of hosts and driver; without, the one that runs now.
        work: where a host keeps configuration and logs; ``{node}`` stands for its name.
        coordinator: the node that runs the Master; the first sink's, if not given.
        results: directory the sink writes to on its node; in its work directory, if not given.
        slots: tasks a node runs at once.
    """

    workload: str = ""
    window_ms: int = 1000
    keys: int = 1
    spark_home: str = ""
    python: str = ""
    work: str = "/tmp/nova-spark"
    coordinator: str = ""
    results: str = ""
    slots: int = SLOTS


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
    chosen = read_options(Options, options, "Spark")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise NovaError(f"{directory}: is there already; give a directory to be made")
    workload = _workload(chosen, problem)
    flow = from_plan(plan, problem, workload)
    if not flow.stages:
        raise NovaError("plan: nothing runs in it")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}.") as scratch:
        made = Path(scratch) / "made"
        _write(made, flow, workload, problem, chosen)
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


def _write(made: Path, flow: Flow, workload: Workload, problem: Problem, options: Options) -> None:
    coordinator = options.coordinator or flow.sinks[0].node
    configuration = _configuration(flow, problem, options, coordinator)
    for node in configuration.nodes:
        work = options.work.replace(NODE, names.sanitised(node.name))
        own = replace(configuration, work_directory=work)
        _write_node(made / "nodes" / names.sanitised(node.name), own, node)
    results = options.results or f"{options.work}/results"
    results = results.replace(NODE, names.sanitised(flow.sinks[0].node))
    _write_job(made / "job", flow, workload, configuration, results)
    (made / "README.md").write_text(_readme(flow, configuration, results), "utf-8")


def _configuration(
    flow: Flow, problem: Problem, options: Options, coordinator: str
) -> ClusterConfiguration:
    index, known = problem.node_index, problem.nodes
    if coordinator not in index:
        raise NovaError(f"option coordinator: {coordinator!r} is no node of the problem")
    reached = addresses(problem, dict.fromkeys((coordinator, *flow.nodes)))
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
    home = options.spark_home or str(spark_home() or "")
    if not home:
        raise NovaError("option spark_home: Spark is not installed here; say where hosts have it")
    return ClusterConfiguration(
        nodes,
        home,
        options.python or sys.executable,
        options.work,
        slots=options.slots,
    )


def _write_node(directory: Path, configuration: ClusterConfiguration, node: Node) -> None:
    configuration.write(node, directory)
    processes = {"worker": configuration.worker_command(node)}
    if node.role == COORDINATOR:
        processes = {"master": configuration.master_command(node), **processes}
    write_processes(
        directory,
        f"Spark on node {node.name!r} ({node.address})",
        configuration.work_directory,
        processes,
        ['mkdir -p "$work/conf"', '[ "$here" = "$work" ] || cp "$here"/conf/* "$work/conf/"'],
    )


def _write_job(
    directory: Path,
    flow: Flow,
    workload: Workload,
    configuration: ClusterConfiguration,
    results: str,
) -> None:
    copy_modules(directory / "modules", MODULES)
    (directory / "flow.json").write_text(flow.to_json(), "utf-8")
    (directory / "workload.json").write_text(workload.to_json(), "utf-8")
    (directory / "heaps.json").write_text(json.dumps(configuration.heaps) + "\n", "utf-8")
    _write_hints(directory / "hints.json", flow, configuration)
    c = configuration
    given = words(
        *("--master", c.master_url, "--results", results, "--slots", c.slots),
        *("--checkpoints", f"{c.work_directory}/checkpoints"),
    )
    run = [
        comment("Runs the job until its tuples end, or Ctrl-C. Options: see run.sh --help."),
        "set -eu",
        HERE,
        'export PYTHONPATH="$here/modules" PYTHONDONTWRITEBYTECODE=1',
        f"export {assignment('SPARK_HOME', c.spark_home)}",
        f"export {assignment('PYSPARK_PYTHON', c.python)}",
        f'exec {words(c.python)} -m nova_spark.job --directory "$here" \\',
        f'  {given} "$@"',
    ]
    write_script(directory / "run.sh", run)


def _write_hints(path: Path, flow: Flow, configuration: ClusterConfiguration) -> None:
    """For jobs that cannot use profiles: what Spark takes as a wish."""
    address = configuration.addresses
    hints = {
        "kind": "best-effort",
        "meaning": "preferred locations: Spark runs a task elsewhere when its host has no free "
        "slot for spark.locality.wait, or no executor",
        "settings": {"spark.locality.wait": "1h"},
        "preferred_hosts": {stage.name: address[stage.node] for stage in flow.stages},
    }
    path.write_text(json.dumps(hints, indent=1) + "\n", "utf-8")


def _readme(flow: Flow, configuration: ClusterConfiguration, results: str) -> str:
    rows = "\n".join(
        f"| {node.name} | {node.address} | {names.sanitised(node.name)} | "
        f"{', '.join(one.name for one in flow.stages if one.node == node.name)} |"
        for node in configuration.nodes
    )
    c = configuration
    return f"""\
# A plan by {flow.strategy or "hand"} for Apache Spark

Problem {flow.problem}: {len(flow.instances)} join instances, {len(flow.stages)} stages in every
micro-batch on {len(flow.nodes)} nodes.

| node | address | directory in `nodes` | runs |
|---|---|---|---|
{rows}

1. Every host needs Java 17 or later, Spark at `{c.spark_home}`, and Python at
   `{c.python}` with numpy, pyarrow and pandas (pip's package `pyspark` is both).
2. Copy each directory in `nodes` to its host and run `start.sh` there; the one of
   {c.coordinator.name} first, which also starts the Master. `stop.sh` ends it.
3. Run `job/run.sh` on a host that the nodes reach; it is the driver, and the job runs as long as
   it does. `job/workload.json` says what the sources emit and how long windows are.
4. Results are written to `{results}/N` on {", ".join(one.node for one in flow.sinks)}, N counting
   sinks from 0: a file of 80-byte records for every micro-batch (`nova_spark.results` reads them).
5. `nova cluster verify record.json --engine spark --at record` compares where tasks ran with the
   plan; `job/run.sh` writes that file where it is started.

Placement is exact: a node's Worker offers a resource only it has, and every stage asks for one.
`job/hints.json` is best-effort, for jobs that cannot: wishes Spark may ignore.
"""
