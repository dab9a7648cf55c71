"""What a person needs to run a plan on NebulaStream by their own means, as a directory of files."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from nova_core.errors import NovaError
from nova_engines.bundle import (
    HERE,
    assignment,
    comment,
    read_options,
    script,
    words,
    write_bundle,
)
from nova_engines.documents import to_json
from nova_nebulastream import current, legacy
from nova_nebulastream.views import View, addresses, identifier, views

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem

VERSIONS = ("current", "0.x")
SOURCES = ("generator", "file")
LONGEST_MS = 2**31 - 1
# Paths are written into C++ texts, YAML and shell scripts.
PATH = re.compile(r"/?[A-Za-z0-9._{}/-]+")


@dataclass(frozen=True)
class Options:
    """How a plan is translated.

    Attributes:
        nes_version: ``current`` or ``0.x``.
        window_ms: length of the tumbling windows over event time.
        source: ``generator`` for synthetic tuples at the plan's rates (current only) or ``file``
            for CSV files; ``generator`` for current and ``file`` for 0.x, if not given.
        file: CSV file of a source on its node, ``{source}`` stands for its name: lines of
            timestamp (ms), sequence number (from 0), key (all UINT64) and value.
        results: file on the sink's node; ``{instance}`` stands for the instance.
    """

    nes_version: str = "current"
    window_ms: int = 1000
    source: str = ""
    file: str = "/tmp/nova-nebulastream/{source}.csv"
    results: str = "/tmp/nova-nebulastream/results-{instance}.csv"


def translate(plan: Plan, problem: Problem, directory: Path, **options: Any) -> list[Path]:
    """Write a plan for one of NebulaStream's generations.

    Arguments and errors are those of `nova_core.engines.Engine.translate`, options the fields of
    `Options`.
    """
    chosen = _options(options)
    plan_views = views(plan, problem)
    nodes = tuple(dict.fromkeys(node for view in plan_views for node in view.nodes))
    hosts = addresses(problem, nodes)
    _distinct_files([one.source for view in plan_views for one in view.inputs])
    if chosen.nes_version == "current":
        files = _current(plan_views, hosts, chosen)
    else:
        files = _legacy(plan_views, problem, hosts, chosen)
    files["README.md"] = _readme(plan_views, plan, problem, chosen)
    return write_bundle(directory, files)


def _options(raw_options: dict[str, Any]) -> Options:
    options = read_options(Options, raw_options, "NebulaStream")
    if not options.source:
        source = "generator" if options.nes_version == "current" else "file"
        options = replace(options, source=source)
    for name, accepted in (
        ("nes_version", VERSIONS),
        ("source", SOURCES if options.nes_version == "current" else ("file",)),
    ):
        value = getattr(options, name)
        if value not in accepted:
            raise NovaError(f"option {name}: {value!r}: expected {' or '.join(accepted)}")
    if not 1 <= options.window_ms <= LONGEST_MS:
        raise NovaError(f"option window_ms: {options.window_ms}: expected 1 to {LONGEST_MS}")
    for name, part in (("file", "{source}"), ("results", "{instance}")):
        value = getattr(options, name)
        if not PATH.fullmatch(value) or part not in value:
            raise NovaError(
                f"option {name}: {value!r}: expected a path with {part} in it, of letters, digits, "
                "'.', '_', '-' and '/'"
            )
    return options


def _distinct_files(sources: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for source in sources:
        other = seen.setdefault(identifier(source), source)
        if other != source:
            raise NovaError(
                f"source {source!r}: in NebulaStream called {identifier(source)!r}, as {other!r}; "
                "rename one"
            )


def _current(plan_views: Sequence[View], hosts: dict[str, str], options: Options) -> dict[str, str]:
    streams = current.Streams(options.window_ms, options.source, options.file, options.results)
    results = Path(options.results.replace("{instance}", "")).parent
    files = {
        f"topologies/{current.file_name(view)}.yaml": current.text(
            current.topology(view, hosts, streams)
        )
        for view in plan_views
    }
    # For the hook in `cpp/`; the engine writes names in capitals.
    files["placement.txt"] = "".join(
        f"{current.sink_name(view).upper()} {hosts[view.node]}:{current.GRPC_PORT}\n"
        for view in plan_views
    )
    for node, host in hosts.items():
        command = words(
            "nes-single-node-worker",
            f"--grpc={host}:{current.GRPC_PORT}",
            f"--data_address={host}:{current.DATA_PORT}",
        )
        files[f"nodes/{host}.sh"] = _script(
            comment(f"Starts the worker of node {node!r} on {host}."),
            words("mkdir", "-p", results),
            f'exec {command} "$@"',
        )
    ids = 'ids=${NOVA_NES_QUERIES:-"$here/queries.txt"}'
    files["check.sh"] = _script(
        "# Has nes-cli parse, validate and place every query; needs no workers.",
        HERE,
        'for topology in "$here"/topologies/*.yaml; do',
        '  nes-cli -t "$topology" dump',
        "done",
    )
    files["start.sh"] = _script(
        "# Starts every query, each with its own view of the topology; notes their ids.",
        HERE,
        ids,
        ': > "$ids"',
        'for topology in "$here"/topologies/*.yaml; do',
        '  id=$(nes-cli -t "$topology" start)',
        '  echo "$topology $id" | tee -a "$ids"',
        "done",
    )
    files["stop.sh"] = _script(
        "# Stops what start.sh started.",
        HERE,
        ids,
        "while read -r topology id; do",
        '  nes-cli -t "$topology" stop "$id" < /dev/null',
        'done < "$ids"',
        'rm "$ids"',
    )
    return files


def _legacy(
    plan_views: Sequence[View], problem: Problem, hosts: dict[str, str], options: Options
) -> dict[str, str]:
    root = legacy.check(plan_views)
    deployment = legacy.deployment(plan_views, problem, hosts, options.window_ms, options.results)
    top = legacy.coordinator(plan_views, hosts, root, options.file)
    files = {
        "deployment.json": to_json(deployment),
        "coordinator.yaml": yaml.safe_dump(top, sort_keys=False),
        "calls.sh": _calls(deployment),
        "submit.sh": _script(
            "# Submits every query and compares the execution plan with the plan.",
            HERE,
            'exec python3 -m nova_nebulastream "$here/deployment.json" "$@"',
        ),
    }
    for node, number in deployment.workers.items():
        if number != legacy.ROOT:
            document = legacy.worker(plan_views, hosts, deployment.workers, node, options.file)
            name = f"workers/{number}-{hosts[node]}.yaml"
            files[name] = yaml.safe_dump(document, sort_keys=False)
    for view, query in zip(plan_views, deployment.queries, strict=True):
        files[f"queries/{current.file_name(view)}.json"] = json.dumps(query.body, indent=1) + "\n"
    return files


def _calls(deployment: legacy.Deployment) -> str:
    """The REST calls for a coordinator whose workers have just joined, as a person would make."""
    links = {
        (legacy.ROOT, number) for number in deployment.workers.values() if number != legacy.ROOT
    }
    lines = [
        "# As submit.sh, without reading back; for a coordinator that has run nothing yet.",
        assignment("coordinator", deployment.rest),
        f"rest=${{REST:-$coordinator}}{legacy.PREFIX}",
        "call() {",
        '  curl -fsS -X "$1" -H "Content-Type: application/json" -d "$3" "$rest/$2"',
        "}",
        "run() {",
        '  answer=$(call POST query/execute-query "$1")',
        '  id=$(echo "$answer" | sed \'s/.*"queryId" *: *\\([0-9]*\\).*/\\1/\')',
        '  until curl -fsS "$rest/query/query-status?queryId=$id" | grep -q RUNNING; do',
        "    sleep 1",
        "  done",
        '  echo "query $id"',
        "}",
    ]
    for query in deployment.queries:
        added, removed = legacy.changes(links, query.links)
        lines.append(comment(query.instance))
        for parent, child, latency in added:
            body = {"parentId": parent, "childId": child, "latency": latency}
            lines.append(words("call", "POST", "topology/addAsChild", json.dumps(body)))
        for parent, child in removed:
            body = {"parentId": parent, "childId": child}
            lines.append(words("call", "DELETE", "topology/removeAsChild", json.dumps(body)))
        links = (links | {(parent, child) for parent, child, _ in added}) - set(removed)
        lines.append(words("run", json.dumps(query.body)))
    return _script(*lines)


def _script(about: str, *lines: str) -> str:
    return script(about, "set -eu", *lines)


def _readme(plan_views: Sequence[View], plan: Plan, problem: Problem, options: Options) -> str:
    rows = "\n".join(
        f"| {view.instance} | {' -> '.join(view.left.route)} | {' -> '.join(view.right.route)} | "
        f"{view.node} | {' -> '.join(view.result)} | {current.file_name(view)} |"
        for view in plan_views
    )
    how = _CURRENT if options.nes_version == "current" else _LEGACY
    return f"""\
# A plan by {plan.strategy or "hand"} for NebulaStream ({options.nes_version})

Problem {problem.digest}: {len(plan_views)} join instances, one query each.

| instance | left input | right input | joined on | result | file |
|---|---|---|---|---|---|
{rows}

{how}
Every query reads its sources anew, so sources must deliver the same tuples to each: files do.
Tuples are timestamp (ms), sequence number (from 0), key and value; a cut input is divided by the
sequence number. Windows are {options.window_ms} ms long.
"""


_CURRENT = """\
1. Run the script in `nodes` on each host; it needs `nes-single-node-worker`.
2. `check.sh` has `nes-cli` place every query without workers; `start.sh` starts them, `stop.sh`
   stops them.

Each file in `topologies` shows NebulaStream only what its instance may use: the join's worker has
room, the sources' and the sink's have none (besides that for the partition filters).
`placement.txt` is for engines built with `NovaOperatorPlacer` (docs/nebulastream.md).
"""
_LEGACY = """\
1. Start `nesCoordinator --configPath=coordinator.yaml` on the sink's host, then
   `nesWorker --configPath=` with the file in `workers` on each other host.
2. `submit.sh` (needs Nova) sets the topology's links for each query, submits it, reads the
   execution plan back and says what is not where the plan has it. `calls.sh` makes the same calls
   with curl.
"""
