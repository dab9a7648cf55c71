"""Everything a person needs to run a plan on Storm by their own means, as a directory of files."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from nova_core.errors import NovaError
from nova_flink.dataflow import Dataflow, from_plan
from nova_flink.names import sanitised
from nova_flink.workload import SourceStream, Workload
from nova_storm.configuration import ClusterConfiguration, Node
from nova_storm.flux import topology
from nova_storm.home import EXTENSION, StormHome
from nova_storm.nimbus import client_command

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem

# A made-up stream begins when workers are surely up, and its first windows are whole.
HEAD_START_S = 20


@dataclass(frozen=True)
class Options:
    """How a plan is translated.

    Attributes:
        workload: JSON file of a `nova_flink.workload.Workload`; without, every source of the plan
            repeats a few values at its rate, without end.
        window_ms: length of the windows, without a workload.
        keys: sequence numbers have to be equal modulo this, without a workload.
        home: the engine home as hosts see it.
        work: where a host keeps configuration, state and logs.
        coordinator: the node whose host runs nimbus and ZooKeeper; the first sink's, if not given.
        results: file the sink writes on its node; in ``work``, if not given.
        name: of the topology.
    """

    workload: str = ""
    window_ms: int = 1000
    keys: int = 1
    home: str = ""
    work: str = "/tmp/nova-storm"
    coordinator: str = ""
    results: str = ""
    name: str = "nova"


def translate(plan: Plan, problem: Problem, directory: Path, **options: Any) -> list[Path]:
    """Write a plan as configuration of hosts, start and stop scripts and a topology.

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
    chosen = _options(options)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise NovaError(f"{directory}: is there already; give a directory to be made")
    workload = _workload(chosen, problem)
    dataflow = from_plan(plan, problem, workload)
    if not dataflow.operators:
        raise NovaError("plan: nothing runs in it")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}.") as scratch:
        made = Path(scratch) / "made"
        _write(made, dataflow, workload, problem, chosen)
        written = sorted(path.relative_to(made) for path in made.rglob("*") if path.is_file())
        if directory.exists():
            directory.rmdir()
        made.rename(directory)
    return [directory / path for path in written]


def addresses(problem: Problem, names: tuple[str, ...]) -> dict[str, str]:
    """Where nodes of a problem are reached."""
    known, index = problem.nodes, problem.node_index
    hosts = [""] * len(known) if known.host is None else known.host.tolist()
    return {name: str(hosts[index[name]] or name) for name in names}


def _options(given: dict[str, Any]) -> Options:
    known: dict[str, Callable[[Any], Any]] = {
        field.name: int if isinstance(field.default, int) else str for field in fields(Options)
    }
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise NovaError(f"option {name!r}: unknown; Storm takes {', '.join(known)}")
        try:
            values[name] = known[name](value)
        except ValueError as error:
            raise NovaError(f"option {name}: {value!r}: expected a whole number") from error
    for name in ("work", "results"):
        if values.get(name) and not Path(values[name]).is_absolute():
            raise NovaError(f"option {name}: {values[name]!r}: expected an absolute path")
    return Options(**values)


def _workload(options: Options, problem: Problem) -> Workload:
    if options.workload:
        path = Path(options.workload)
        try:
            return Workload.read(path)
        except OSError as error:
            raise NovaError(f"{path}: {error.strerror}") from error
    s, m = problem.sources, problem.matrix
    streams = tuple(
        SourceStream(
            source=str(s.ids[i]),
            rate=float(s.rate[i]),
            values=tuple(float(value) for value in range(10)),
        )
        for i in sorted({*m.left.tolist(), *m.right.tolist()})
    )
    return Workload(streams, options.window_ms, start_ms=0, keys=options.keys)


def _write(
    made: Path, dataflow: Dataflow, workload: Workload, problem: Problem, options: Options
) -> None:
    coordinator = options.coordinator or dataflow.sinks[0].node
    if coordinator not in problem.node_index:
        raise NovaError(f"option coordinator: {coordinator!r} is no node of the problem")
    reached = addresses(problem, (coordinator, *dataflow.nodes))
    configuration = ClusterConfiguration(
        [Node(name, reached[name]) for name in dataflow.nodes],
        options.home or str(StormHome.default().path),
        reached[coordinator],
        options.work,
    )
    results = options.results or f"{options.work}/results"
    _write_process(made / "coordinator", configuration, ("zookeeper", "nimbus"), None)
    for node in configuration.nodes:
        _write_process(made / "nodes" / sanitised(node.name), configuration, ("supervisor",), node)
    _write_job(made / "job", dataflow, workload, configuration, results, options.name)
    text = _readme(dataflow, configuration, coordinator, results, options.name)
    (made / "README.md").write_text(text, "utf-8")


def _write_process(
    directory: Path,
    configuration: ClusterConfiguration,
    processes: tuple[str, ...],
    node: Node | None,
) -> None:
    work = shlex.quote(configuration.work)
    start = [
        "#!/bin/sh",
        f"# Starts {' and '.join(processes)}; logs are in {configuration.work}/log.",
        "set -eu",
        'here=$(cd "$(dirname "$0")" && pwd)',
        f"work={work}",
        'mkdir -p "$work/log"',
        'cp "$here"/*.yaml "$work/"',
    ]
    stop = ["#!/bin/sh", "# Ends what start.sh started.", f"work={work}"]
    for name in processes:
        configuration.write(name, node, directory)
        _script(directory / f"{name}.sh", ["#!/bin/sh", configuration.command(name)])
        start += [
            f'nohup sh "$here/{name}.sh" > "$work/log/{name}.out" 2>&1 < /dev/null &',
            f'echo $! > "$work/{name}.pid"',
        ]
    for name in reversed(processes):
        stop += [
            f'if [ -f "$work/{name}.pid" ]; then',
            f'  kill "$(cat "$work/{name}.pid")" 2> /dev/null',
            f'  rm "$work/{name}.pid"',
            "fi",
        ]
    if node is not None:
        stop += [
            "# Workers outlive their supervisor.",
            'for file in "$work"/state/workers/*/pids/*; do',
            '  [ -e "$file" ] || continue',
            '  pid=$(basename "$file")',
            '  if grep -qs org.apache.storm "/proc/$pid/cmdline"; then kill -9 "$pid"; fi',
            "done",
        ]
    _script(directory / "start.sh", start)
    _script(directory / "stop.sh", stop)


def _write_job(
    directory: Path,
    dataflow: Dataflow,
    workload: Workload,
    configuration: ClusterConfiguration,
    results: str,
    name: str,
) -> None:
    directory.mkdir(parents=True)
    document = topology(dataflow, workload, results, name)
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    (directory / "topology.yaml").write_text(text, "utf-8")
    (directory / "dataflow.json").write_text(dataflow.to_json(), "utf-8")
    (directory / "workload.json").write_text(workload.to_json(), "utf-8")
    client = client_command(
        configuration.home, configuration.coordinator, configuration.nimbus_port, configuration.java
    )
    submit = [
        "#!/bin/sh",
        f"# Submits topology {name}. Sources without a start begin {HEAD_START_S} s later.",
        "set -eu",
        'here=$(cd "$(dirname "$0")" && pwd)',
        f": ${{NOVA_START_MS:=$(( ($(date +%s) + {HEAD_START_S}) * 1000 ))}}",
        "export NOVA_START_MS",
        f'exec {client} org.apache.storm.flux.Flux -e -n -q "$here/topology.yaml"',
    ]
    _script(directory / "submit.sh", submit)
    where = f"{configuration.coordinator} {configuration.nimbus_port}"
    _script(
        directory / "kill.sh",
        [
            "#!/bin/sh",
            f"# Ends topology {name}.",
            f"exec {client} nova.storm.Ask {where} kill {shlex.quote(name)}",
        ],
    )


def _script(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", "utf-8")
    path.chmod(0o755)


def _readme(
    dataflow: Dataflow,
    configuration: ClusterConfiguration,
    coordinator: str,
    results: str,
    name: str,
) -> str:
    rows = "\n".join(
        f"| {node.name} | {node.address} | {sanitised(node.name)} | "
        f"{', '.join(one.name for one in dataflow.operators if one.node == node.name)} |"
        for node in configuration.nodes
    )
    return f"""\
# A plan by {dataflow.strategy or "hand"} for Apache Storm

Problem {dataflow.problem}: {len(dataflow.joins)} join instances, {len(dataflow.operators)}
components on {len(dataflow.nodes)} nodes.

| node | address | directory in `nodes` | runs |
|---|---|---|---|
{rows}

1. Every host needs Java 17 or later and `{configuration.home}` at the same path. `nova engines
   install storm` makes that directory; copying it is enough.
2. Copy `coordinator` to the host of {coordinator} ({configuration.coordinator}) and run its
   `start.sh`: ZooKeeper and nimbus, with Nova's scheduler (`{EXTENSION}`).
3. Copy each directory in `nodes` to its host and run `start.sh` there: the node's supervisor.
   `stop.sh` ends what `start.sh` started.
4. Run `job/submit.sh`, `job/kill.sh` on a host that reaches {configuration.coordinator}, port
   {configuration.nimbus_port}.
5. Results are written to `{results}` on {", ".join(one.node for one in dataflow.sinks)}, 80 bytes
   each (`nova_flink.results` reads them).
6. `nova storm verify PLAN -p PROBLEM --nimbus {configuration.coordinator} --topology {name}`
   compares where nimbus has each executor with the plan.

A cluster of your own needs of this: `{EXTENSION}` in the `extlib-daemon` of nimbus'
host; `storm.scheduler` as in `coordinator/nimbus.yaml`; `supervisor.scheduler.meta` as in each
node's `supervisor.yaml`. Topologies without `nova.placement` are scheduled as ever.
"""


__all__ = ["Options", "addresses", "translate"]
