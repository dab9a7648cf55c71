"""What a person needs to run a plan on NebulaStream by their own means, as a directory of files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core.errors import NovaError
from nova_core.io.binding import stream_columns
from nova_core.io.syntax import parse
from nova_engines.bundle import comment, read_options, script, words, write_bundle
from nova_engines.documents import to_json
from nova_engines.flow import Match
from nova_engines.flow_of_plan import flow_of
from nova_engines.nodes import addresses
from nova_nebulastream import topologies
from nova_nebulastream.bundle import PLANNED, Planned, file_name
from nova_nebulastream.home import WORKER
from nova_nebulastream.queries import Input, Query, identifier, queries

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_engines.flow import Flow

# Paths are written into YAML and shell scripts.
PATH = re.compile(r"/?[A-Za-z0-9._{}/-]+")
GENERATOR, FILE = "generator", "file"


@dataclass(frozen=True)
class Options:
    """How a plan is translated.

    Attributes:
        window_ms: length of the windows of pairs.
        keys: their sequence numbers have to be equal modulo this.
        every: the remainder has to be a multiple of this.
        source: ``generator`` for synthetic tuples of pairs at the plan's rates, or ``file`` for CSV
            files; the former for pairs, if not given.
        file: CSV file of a source on its node; ``{source}`` stands for its name.
        sources: YAML file with ``type``, ``source_config`` and ``parser_config`` of sources that
            are read otherwise, by their ids.
        results: file on the sink's node; ``{query}`` stands for the query.
    """

    window_ms: int = 1000
    keys: int = 1
    every: int = 1
    source: str = ""
    file: str = "/tmp/nova-nebulastream/{source}.csv"
    sources: str = ""
    results: str = "/tmp/nova-nebulastream/results-{query}.csv"


def translate(plan: Plan, problem: Problem, directory: Path, **options: Any) -> list[Path]:
    """Write a plan for NebulaStream: its queries, each with the topology that it may use.

    Arguments and errors are those of `nova_core.engines.Engine.translate`, options the fields of
    `Options`.
    """
    chosen = read_options(Options, options, "NebulaStream")
    plan.require_problem(problem)
    flow = _flow(plan, problem, chosen)
    found = queries(flow)
    nodes = tuple(dict.fromkeys(node for query in found for node in query.nodes))
    hosts = topologies.distinct(addresses(problem, nodes))
    _check_paths(chosen)
    _distinct_files([one.source for query in found for one in query.inputs])
    reads = _reads(problem, chosen)
    files: dict[str, str] = {PLANNED: to_json(Planned(hosts, tuple(found)))}
    for number, query in enumerate(found):
        results = chosen.results.replace("{query}", file_name(query, number))
        document = topologies.topology(query, hosts, reads, results)
        files[f"topologies/{file_name(query, number)}.yaml"] = topologies.text(document)
    files["placement.txt"] = topologies.placement(found, hosts)
    for node, host in hosts.items():
        command = words(
            WORKER,
            f"--grpc={topologies.worker(host)}",
            f"--data_address={host}:{topologies.DATA_PORT}",
        )
        files[f"nodes/{host}.sh"] = script(
            comment(f"Starts the worker of node {node!r} on {host}."),
            "set -eu",
            words("mkdir", "-p", Path(chosen.results.replace("{query}", "")).parent),
            f'exec {command} "$@"',
        )
    files["README.md"] = _readme(found, plan, problem)
    return write_bundle(directory, files)


def _flow(plan: Plan, problem: Problem, options: Options) -> Flow:
    match = Match(options.window_ms, options.keys, options.every)
    if problem.queries:
        usual = Options()
        if match != Match(usual.window_ms, usual.keys, usual.every):
            raise NovaError(
                "options window_ms, keys, every: whole queries say themselves what matches"
            )
        return flow_of(plan)
    return flow_of(plan, match)


def _check_paths(options: Options) -> None:
    for name, part in (("file", "{source}"), ("results", "{query}")):
        value = getattr(options, name)
        if not PATH.fullmatch(value) or part not in value:
            raise NovaError(
                f"option {name}: {value!r}: expected a path with {part} in it, of letters, digits, "
                "'.', '_', '-' and '/'"
            )


def _distinct_files(sources: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for source in sources:
        other = seen.setdefault(identifier(source), source)
        if other != source:
            raise NovaError(
                f"source {source!r}: in NebulaStream called {identifier(source)!r}, as {other!r}; "
                "rename one"
            )


def _reads(problem: Problem, options: Options) -> topologies.Reads:
    """How sources are read.

    Raises:
        NovaError: for options that contradict each other or the problem.
    """
    accepted = (FILE,) if problem.queries else (GENERATOR, FILE)
    source = options.source or accepted[0]
    if source not in accepted:
        raise NovaError(f"option source: {source!r}: expected {' or '.join(accepted)}")
    own = _own_sources(options.sources)
    rates = dict(zip(problem.sources.ids.tolist(), problem.sources.rate.tolist(), strict=True))
    if unknown := sorted(own.keys() - rates.keys()):
        raise NovaError(f"{options.sources}: {unknown[0]!r} is no source of the problem")

    def read(one: Input) -> tuple[str, dict[str, Any], dict[str, Any]]:
        if one.source in own:
            return own[one.source]
        if source == FILE:
            path = options.file.replace("{source}", identifier(one.source))
            return "File", {"file_path": path}, {}
        return "Generator", _generated(float(rates[one.source])), {}

    return read


def _own_sources(path: str) -> dict[str, tuple[str, dict[str, Any], dict[str, Any]]]:
    if not path:
        return {}
    document = parse(Path(path), NovaError)
    known = {"type", "source_config", "parser_config"}
    if not isinstance(document, Mapping) or not all(
        isinstance(one, Mapping) and "type" in one and one.keys() <= known
        for one in document.values()
    ):
        raise NovaError(
            f"{path}: expected for each source: type, source_config and parser_config, as in "
            "physical sources of nes-cli's topologies"
        )
    return {
        str(source): (
            str(one["type"]),
            one.get("source_config") or {},
            one.get("parser_config") or {},
        )
        for source, one in document.items()
    }


def _generated(rate: float) -> dict[str, Any]:
    return {
        "generator_rate_type": "FIXED",
        "generator_rate_config": f"emit_rate {rate:g}",
        "stop_generator_when_sequence_finishes": "NONE",
        "seed": 1,
        # Event time in whole ms, number, time of emission in us, value.
        "generator_schema": f"SEQUENCE UINT64 0 {10**15} {max(1, round(1000 / rate))}\n"
        f"SEQUENCE UINT64 0 {10**15} 1\n"
        f"SEQUENCE UINT64 0 {10**15} {max(1, round(1e6 / rate))}\n"
        "NORMAL_DISTRIBUTION FLOAT64 0 1\n",
    }


def _readme(found: Sequence[Query], plan: Plan, problem: Problem) -> str:
    rows = "\n".join(
        f"| {query.result} | {', '.join(dict.fromkeys(query.placed)) or '-'} | {query.top.node} | "
        f"{file_name(query, number)} |"
        for number, query in enumerate(found)
    )
    fields = "\n".join(
        f"| {source} | {kinds} |" for source, kinds in _columns(found, problem).items()
    )
    return f"""\
# A plan by {plan.strategy or "hand"} for NebulaStream

Problem {problem.digest}: {len(found)} queries.

| result | joins and aggregates on | sink | file |
|---|---|---|---|
{rows}

1. Run the script in `nodes` on each host; it needs `nes-single-node-worker`.
2. `nova nebulastream check .` asks `nes-cli` where it places every query, without workers.
   `nova nebulastream start .` starts them, each where the plan has it; `verify` and `stop` are the
   other two. To go over to another plan: `nova nebulastream start NEW --replace .`

Each file in `topologies` has a query and the part of the topology that it may use. You can change
how its sources are read (`physical`) and where results go (`sinks`). `placement.txt` is for engines
built with Nova's hook.

Every query reads its sources anew, so sources must deliver the same tuples to each: files do. Lines
are CSV: the event time (ms since the epoch, UINT64), then what the table says. A number counts the
tuples of a source from 0. A hash is any UINT64 that equal values have in common.

| source | after the event time |
|---|---|
{fields}
"""


def _columns(found: Sequence[Query], problem: Problem) -> dict[str, str]:
    """What lines of each source have after the event time."""
    s, known = problem.sources, stream_columns(problem.streams)
    stream_of = dict(zip(s.ids.tolist(), s.stream.tolist(), strict=True))
    names = {"S": "number", "E": "time of emission (us)", "V": "value"}
    columns = {}
    for one in (each for query in found for each in query.inputs):
        own = [column.name for column in known.get(stream_of[one.source], ())]
        told = []
        for field, kind in one.fields[1:]:
            letter, number = field[0], field[1:].partition("_")[0]
            name = own[int(number)] if letter in "CH" else names[letter]
            told.append(f"{'hash of ' if letter == 'H' else ''}{name} {kind}")
        columns[one.source] = ", ".join(told)
    return columns
