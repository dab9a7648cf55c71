"""Plans on NebulaStream itself: every row as the reference has it, every operator as planned."""

from __future__ import annotations

import csv
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from needs import skip_or_fail
from needs_nes import need_home
from nes_plans import nes_plan
from nes_queries import forward_plan

from nova_core import read_problem
from nova_core.cli import cli
from nova_core.errors import NovaError
from nova_core.io.binding import stream_columns
from nova_core.io.examples import load_example
from nova_core.model import Plan, Problem
from nova_core.strategies import create
from nova_engines.flow import Match
from nova_engines.flow_of_plan import flow_of
from nova_harness.engines.nebulastream import NesDeployment
from nova_nebulastream.bundle import Bundle, file_name
from nova_nebulastream.client import Cli
from nova_nebulastream.explained import explained, verify
from nova_nebulastream.queries import identifier
from nova_nebulastream.translate import translate
from nova_testbed.host import Host
from nova_testbed.hosts import Hosts, connect
from nova_testbed.inventory import read_inventory
from nova_testbed.rack import VirtualRack
from nova_testbed.rack.requirements import missing
from nova_workloads.queries.readings import connection, load
from nova_workloads.queries.reference import compare, expected
from nova_workloads.topology import generate

pytestmark = pytest.mark.e2e
HOSTS = 14
INVENTORY = """
inventory: 1
name: {name}
virtual: true
defaults: {{cpu: 0.1, memory: 1 GiB}}
hosts:
"""
# On hosts: lines of sources, and results.
FILES = "/tmp/nova-nes-test"
START_MS = 1_700_000_000_000
MATCH = Match(1000, 5, 1)
ENDED_S = 60.0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Hosts with a worker on each: workers listen on all interfaces of a host."""
    need_home()
    lacking = missing()
    if lacking:
        skip_or_fail(str(lacking))
    file = tmp_path_factory.mktemp("nes") / "hosts.yaml"
    rows = [f"  - {{name: n{i}, role: {'worker' if i else 'sink'}}}\n" for i in range(HOSTS)]
    rows[1] = "  - {name: n1, role: source}\n"
    file.write_text(INVENTORY.format(name=f"novanes-{os.getpid()}") + "".join(rows))
    rack = VirtualRack(read_inventory(file))
    rack.up()
    try:
        with connect(rack.reachable()) as connected:
            deployment = NesDeployment(connected, need_home())
            deployment.up()
            yield connected
            # Of this revision, some end by themselves as queries are stopped.
            deployment.down()
    finally:
        rack.down()


def addressed(plan: Plan, hosts: Hosts) -> Plan:
    """The same plan, whose nodes are the hosts."""
    problem = plan.problem
    host = np.array([hosts[f"n{i}"].spec.address for i in range(len(problem.nodes))])
    nodes = replace(problem.nodes, host=host)
    return replace(plan, problem=replace(problem, nodes=nodes))


PATHS = {"file": f"{FILES}/{{source}}.csv", "results": f"{FILES}/results-{{query}}.csv"}


def nova(*words: str) -> Any:
    done = CliRunner().invoke(cli, ["nebulastream", *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def run(bundle: Path) -> None:
    """Start a bundle's queries, and wait until all have ended as they should."""
    done = nova("start", str(bundle))
    assert done.exit_code == 0, done.output
    until = time.monotonic() + ENDED_S
    while True:
        done = nova("verify", str(bundle), "--json")
        answer = json.loads(done.stdout)
        assert all(row["actual"] == row["node"] for row in answer["rows"]), answer
        states = {row["status"] for row in answer["rows"]}
        if states == {"FINISHED"}:
            break
        assert states <= {"RUNNING", "FINISHED"} and time.monotonic() < until, answer
        time.sleep(0.2)
    assert nova("stop", str(bundle)).exit_code == 0


def put(hosts: Hosts, lines: dict[str, str], scratch: Path) -> None:
    """Give all hosts the lines of all sources."""
    (scratch / "lines").mkdir()
    for source, text in lines.items():
        (scratch / "lines" / f"{identifier(source)}.csv").write_text(text, "utf-8")

    def give(host: Host) -> None:
        host.run(f"rm -rf {FILES}")
        host.put(scratch / "lines", FILES)

    hosts.map(give)


def rows_of(directory: Path, hosts: Hosts) -> dict[str, list[list[str]]]:
    """Results of every query, by what it computes."""
    bundle = Bundle(directory)
    found = {}
    by_address = {host.spec.address: host for host in hosts}
    for number, query in enumerate(bundle.planned.queries):
        path = directory / f"results-{file_name(query, number)}.csv"
        sink = by_address[bundle.planned.addresses[query.top.node]]
        sink.get(f"{FILES}/{path.name}", path)
        rows = list(csv.reader(path.read_text().splitlines()))
        # The first line names the fields.
        assert len(rows[0]) == len(query.fields)
        found[query.result] = rows[1:]
    return found


# --- pairs ---------------------------------------------------------------------------------------


def tuples(rate: float, count: int) -> list[tuple[int, int, int, float]]:
    due = [int(k * 1e6 / rate) for k in range(count)]
    return [(START_MS + us // 1000, k, 1000 * START_MS + us, k / 8) for k, us in enumerate(due)]


def pairs_of(plan: Plan) -> Counter[tuple[Any, ...]]:
    """What a join of the whole streams gives: sources, window, both tuples."""
    problem, wanted = plan.problem, Counter[tuple[Any, ...]]()
    emitted = {
        str(source): tuples(float(rate), round(5 * rate))
        for source, rate in zip(problem.sources.ids, problem.sources.rate, strict=True)
    }
    for left, right in zip(problem.matrix.left, problem.matrix.right, strict=True):
        ids = str(problem.sources.ids[left]), str(problem.sources.ids[right])
        found = defaultdict(list)
        for b in emitted[ids[1]]:
            found[b[0] // MATCH.window_ms, b[1] % MATCH.keys].append(b)
        for a in emitted[ids[0]]:
            for b in found[a[0] // MATCH.window_ms, a[1] % MATCH.keys]:
                begin = a[0] // MATCH.window_ms * MATCH.window_ms
                wanted[(*ids, begin, *a[1:], *b[1:])] += 1
    return wanted


def assert_pairs_come(plan: Plan, hosts: Hosts, directory: Path) -> None:
    plan = addressed(plan, hosts)
    lines = {
        str(source): "".join(
            ",".join(map(str, one)) + "\n" for one in tuples(float(rate), round(5 * rate))
        )
        for source, rate in zip(plan.problem.sources.ids, plan.problem.sources.rate, strict=True)
    }
    put(hosts, lines, directory)
    bundle = directory / "bundle"
    translate(plan, plan.problem, bundle, source="file", keys=MATCH.keys, **PATHS)
    run(bundle)
    sources = {
        one.result: [each.source for each in one.inputs] for one in Bundle(bundle).planned.queries
    }
    came = Counter(
        (*sources[result], *(float(one) if "." in one else int(one) for one in row))
        for result, rows in rows_of(bundle, hosts).items()
        for row in rows
    )
    wanted = pairs_of(plan)
    assert wanted and came == wanted


def test_the_running_example(hosts: Hosts, tmp_path: Path) -> None:
    problem = load_example("running-example")
    assert_pairs_come(create("nova").place(problem), hosts, tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_generated_problems(hosts: Hosts, tmp_path: Path, seed: int) -> None:
    problem = generate(HOSTS, heterogeneity=0.5, seed=seed)
    assert_pairs_come(create("nova").place(problem), hosts, tmp_path)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("routes", "together"), [(False, False), (True, False), (False, True)])
def test_cut_joins(hosts: Hosts, tmp_path: Path, seed: int, routes: bool, together: bool) -> None:
    """Both inputs of some instances are cut, with interior partitions; relays; one node."""
    assert_pairs_come(nes_plan(seed, routes=routes, together=together), hosts, tmp_path)


# --- whole queries -------------------------------------------------------------------------------


def assert_queries_answer(plan: Plan, hosts: Hosts, directory: Path) -> None:
    plan = addressed(plan, hosts)
    problem, bundle = plan.problem, directory / "bundle"
    database = connection()
    load(database, problem, directory)
    translate(plan, problem, bundle, **PATHS)
    put(hosts, lines_of(Bundle(bundle), problem, directory), directory)
    run(bundle)
    results = rows_of(bundle, hosts)
    for sink in flow_of(plan).sinks:
        query = next(one for one in problem.queries if one.id == sink.query)
        kinds = {"int": int, "float": float, "text": str}
        came = [
            (
                int(row[0]),
                *(kinds[kind](text) for kind, text in zip(sink.types, row[1:], strict=True)),
            )
            for row in results[sink.name]
        ]
        # Sinks write floats with six decimals.
        wanted = [
            tuple(round(one, 6) if isinstance(one, float) else one for one in row)
            for row in expected(database, problem, query)
        ]
        told = compare(wanted, came)
        assert told.ok, (query.id, told)


def lines_of(bundle: Bundle, problem: Problem, directory: Path) -> dict[str, str]:
    """Readings as the bundle's README says."""
    columns = {
        stream: [column.name for column in known]
        for stream, known in stream_columns(problem.streams).items()
    }
    ids, streams = problem.sources.ids.tolist(), problem.sources.stream.tolist()
    stream_of = dict(zip(ids, streams, strict=True))
    found = {}
    for one in (each for query in bundle.planned.queries for each in query.inputs):
        with (directory / f"{one.source}.csv").open(encoding="utf-8") as file:
            readings = list(csv.DictReader(file))
        names = columns[stream_of[one.source]]
        hashed = [int(name[1:].split("_")[0]) for name, _ in one.fields if name[0] == "H"]
        lines = []
        for number, reading in enumerate(readings):
            fields = [reading["time"], *([str(number)] if one.fields[1][0][0] == "S" else [])]
            fields += [reading[name] for name in names]
            fields += [str(hash(reading[names[column]]) % 2**64) for column in hashed]
            lines.append(",".join(fields) + "\n")
        # Queries that cut something read more fields of it than others.
        found[one.source] = "".join(lines)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_random_queries(hosts: Hosts, tmp_path: Path, seed: int) -> None:
    plan = forward_plan(seed, tmp_path)
    try:
        assert_queries_answer(plan, hosts, tmp_path)
    except NovaError as error:
        assert any(why in str(error) for why in ("tuples and partial results", "so many pieces"))
        pytest.skip(str(error))


# --- placement -----------------------------------------------------------------------------------


def test_a_wrong_place_is_found(hosts: Hosts, tmp_path: Path) -> None:
    """A dump of another plan's topology: each operator that is elsewhere is named."""
    plan = addressed(nes_plan(1), hosts)
    moved = replace(plan, instances=replace(plan.instances, node=np.full(len(plan.instances), 6)))
    for name, one in (("planned", plan), ("moved", moved)):
        translate(one, one.problem, tmp_path / name, source="file")
    cli_ = Cli(need_home())
    started = Bundle(tmp_path / "moved").fitted(cli_, lambda done: None)
    planned = Bundle(tmp_path / "planned")
    wrong = 0
    for query, (one, _) in zip(planned.planned.queries, started, strict=True):
        found = verify(query, explained(one.dump), planned.hosts())
        misplaced = {row.operator for row in found.misplaced}
        joins = {query.result} if query.placed != ("n 6",) else set()
        assert joins <= misplaced
        wrong += len(joins)
    assert wrong


def test_another_plan_takes_over(hosts: Hosts, tmp_path: Path) -> None:
    """What is the same in both goes on; the rest is stopped, and started anew."""
    put(hosts, {}, tmp_path)
    plan = addressed(nes_plan(1), hosts)
    node = plan.instances.node.copy()
    node[0] = 3 + (node[0] - 2) % 4
    other = replace(plan, instances=replace(plan.instances, node=node))
    for name, one in (("old", plan), ("new", other)):
        translate(one, one.problem, tmp_path / name, results=PATHS["results"])
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    total = len(node)
    assert f"{total} queries started, 0 go on" in nova("start", old).stderr
    ids = [one.id for one in Bundle(tmp_path / "old").read("").queries]
    assert "has been started" in nova("start", old).stderr
    told = nova("start", new, "--replace", old)
    assert f"1 queries started, {total - 1} go on, 1 stopped" in told.stderr
    running = Bundle(tmp_path / "new").read("").queries
    assert [one.id for one in running][1:] == ids[1:] and running[0].id != ids[0]
    answer = json.loads(nova("verify", new, "--json").stdout)
    assert answer["ok"], answer
    assert {row["status"] for row in answer["rows"]} == {"RUNNING"}
    assert "nothing has been started" in nova("verify", old).stderr
    assert f"{total} queries stopped" in nova("stop", new).stderr
    states = Cli(need_home()).status(running[1])
    # A part whose neighbour has ended before it may count as failed.
    assert {state for _, state, _ in states} <= {"Stopped", "Failed"}


def test_check_starts_nothing(hosts: Hosts, tmp_path: Path) -> None:
    need_home()
    plan = addressed(nes_plan(1), hosts)
    translate(plan, plan.problem, tmp_path / "bundle", source="file")
    done = nova("check", str(tmp_path / "bundle"), "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["ok"]
    assert not (tmp_path / "bundle" / "started.json").exists()
    done = nova("verify", str(tmp_path / "bundle"))
    assert done.exit_code == 2 and "nothing has been started from it" in done.stderr


PROBLEMS = Path(__file__).parents[1] / "golden" / "problems"


@pytest.mark.parametrize("file", sorted(PROBLEMS.glob("*/*.yaml")), ids=lambda file: file.stem)
def test_the_engine_takes_what_goldens_translate_to(tmp_path: Path, file: Path) -> None:
    """Its own grammar parses every query, and its planner places it."""
    tool = Cli(need_home())
    try:
        plan = create("nova").place(read_problem(file))
        translate(plan, plan.problem, tmp_path / "bundle")
    except NovaError as error:
        pytest.skip(str(error))
    for _, found in Bundle(tmp_path / "bundle").fitted(tool, lambda done: None):
        assert found.placed, found.rows
