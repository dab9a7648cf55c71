"""Everything a person needs to run a plan on Storm by their own means, as a directory of files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from nova_core.errors import NovaError
from nova_engines import bundle
from nova_engines.bundle import HERE, StreamOptions, comment, words
from nova_engines.flow import Flow
from nova_engines.names import sanitised
from nova_engines.nodes import nodes_of
from nova_engines.sources import Sources
from nova_storm.configuration import ClusterConfiguration, Node
from nova_storm.flux import topology
from nova_storm.home import EXTENSION, StormHome
from nova_storm.nimbus import client_command

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem

# A synthetic stream begins when workers surely run, so that its first windows are complete.
HEAD_START_S = 20
# The directory of what is submitted, as `submit.sh` tells.
JOB = "${ENV-NOVA_JOB}"
# Workers outlive their supervisor; a process that reuses a worker's id must not be killed.
WORKERS = (
    'for file in "$work"/state/workers/*/pids/*; do',
    '  [ -e "$file" ] || continue',
    '  pid=$(basename "$file")',
    "  case $pid in *[!0-9]*) continue ;; esac",
    "  command=$(tr 2> /dev/null '\\0' ' ' < \"/proc/$pid/cmdline\") || continue",
    '  case $command in *" org.apache.storm."*) ;; *) continue ;; esac',
    '  case $command in *"$work/"*) kill -9 "$pid" ;; esac',
    "done",
)


@dataclass(frozen=True)
class Options(StreamOptions):
    """How a plan is translated.

    Attributes:
        home: the engine home as hosts see it.
        work: where a host keeps configuration, state and logs.
        coordinator: the node whose host runs nimbus and ZooKeeper; the first sink's, if not given.
        results: file the sink writes on its node; in ``work``, if not given.
        name: of the topology.
    """

    home: str = ""
    work: str = "/tmp/nova-storm"
    coordinator: str = ""
    results: str = ""
    name: str = "nova"


def translate(plan: Plan, problem: Problem, directory: Path, **options: Any) -> list[Path]:
    """Write a plan as configuration of hosts, start and stop scripts and a topology.

    Arguments and errors are those of `nova_core.engines.Engine.translate`, options the fields of
    `Options`. Nodes are reached at the addresses the problem gives them (``host``), or at their
    names.
    """
    chosen = bundle.read_options(Options, options, "Storm")
    for name in ("work", "results"):
        value = getattr(chosen, name)
        if value and not Path(value).is_absolute():
            raise NovaError(f"option {name}: {value!r}: expected an absolute path")
    sources = bundle.sources_of(chosen, problem)
    flow = bundle.flow_for(plan, problem, chosen, sources)
    coordinator = chosen.coordinator or flow.sinks[0].node
    hosts = {one.name: one for one in nodes_of(problem, coordinator, flow.nodes)}
    configuration = ClusterConfiguration(
        [Node(name, hosts[name].address) for name in flow.nodes],
        chosen.home or str(StormHome.default().path),
        hosts[coordinator].address,
        chosen.work,
    )
    results = chosen.results or f"{chosen.work}/results"

    own = [hosts[name] for name in flow.nodes]
    heading = bundle.heading("Apache Storm", flow, own)
    text = _readme(flow, configuration, coordinator, results, chosen.name)
    processes = _process_files(configuration, ("zookeeper", "nimbus"), None)
    files: dict[str, str | bytes] = {
        "README.md": heading + text,
        **bundle.below("coordinator", processes),
    }
    for node in configuration.nodes:
        processes = _process_files(configuration, ("supervisor",), node)
        files |= bundle.below(f"nodes/{sanitised(node.name)}", processes)
    job = _job_files(flow, sources, configuration, results, chosen.name)
    return bundle.write_bundle(directory, files | bundle.below("job", job))


def _process_files(
    configuration: ClusterConfiguration, processes: tuple[str, ...], node: Node | None
) -> dict[str, str]:
    scripts = bundle.process_scripts(
        f"{' and '.join(processes)}; logs are in {configuration.work}/log",
        configuration.work,
        {name: configuration.command(name) for name in processes},
        ['cp "$here"/*.yaml "$work/"'],
        () if node is None else WORKERS,
    )
    return {**{f"{name}.yaml": configuration.storm_yaml(node) for name in processes}, **scripts}


def _job_files(
    flow: Flow,
    sources: Sources,
    configuration: ClusterConfiguration,
    results: str,
    name: str,
) -> dict[str, str | bytes]:
    sources, sent = bundle.with_files(sources)
    there = {one.source: f"{JOB}/{one.path}" for one in sources.sources if one.path is not None}
    document = topology(flow, sources.with_paths(there), results, name)
    client = client_command(
        configuration.home, configuration.coordinator, configuration.nimbus_port, configuration.java
    )
    flux = ["org.apache.storm.flux.Flux", "-e", "-n", "-q"]
    submit = bundle.script(
        comment(f"Submits topology {name}. Sources without a start begin {HEAD_START_S} s later."),
        "set -eu",
        HERE,
        f": ${{NOVA_START_MS:=$(( ($(date +%s) + {HEAD_START_S}) * 1000 ))}}",
        'export NOVA_START_MS NOVA_JOB="$here"',
        f'exec {words(*client, *flux)} "$here/topology.yaml"',
    )
    ask = ["nova.storm.Ask", configuration.coordinator, configuration.nimbus_port, "kill", name]
    kill = bundle.script(comment(f"Ends topology {name}."), f"exec {words(*client, *ask)}")
    return {
        "topology.yaml": yaml.safe_dump(document, sort_keys=False, allow_unicode=True),
        "flow.json": flow.to_json(),
        "sources.json": sources.to_json(),
        "submit.sh": submit,
        "kill.sh": kill,
        **sent,
    }


def _readme(
    flow: Flow,
    configuration: ClusterConfiguration,
    coordinator: str,
    results: str,
    name: str,
) -> str:
    pairs = f"""\
Results are written to `{results}` on {", ".join(one.node for one in flow.sinks)}, 80 bytes
   each (`nova_engines.results` reads them)."""
    return f"""\

1. Every host needs Java 17 or later and `{configuration.home}` at the same path. `nova engines
   install storm` makes that directory; copying it is enough.
2. Copy `coordinator` to the host of {coordinator} ({configuration.coordinator}) and run its
   `start.sh`: ZooKeeper and nimbus, with Nova's scheduler (`{EXTENSION}`).
3. Copy each directory in `nodes` to its host and run `start.sh` there: the node's supervisor.
   `stop.sh` ends what `start.sh` started.
4. Run `job/submit.sh`, `job/kill.sh` on a host that reaches {configuration.coordinator}, port
   {configuration.nimbus_port}.
5. {bundle.about_results(flow, results, pairs)}
6. `nova cluster verify {name} --engine storm --at {configuration.coordinator} --plan PLAN
   -p PROBLEM` compares where nimbus has each executor with the plan.

A cluster of your own needs of this: `{EXTENSION}` in the `extlib-daemon` of nimbus'
host; `storm.scheduler` and `blacklist.scheduler.tolerance.count` as in `coordinator/nimbus.yaml`;
`supervisor.scheduler.meta` as in each node's `supervisor.yaml`. Topologies without
`nova.placement` are scheduled as ever.
"""
