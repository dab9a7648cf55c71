"""Plans on NebulaStream itself: every row as the reference has it, every operator as planned."""

from __future__ import annotations

import csv
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from needs_nes import need_home, workers
from nes_plans import nes_plan
from nes_queries import forward_plan

from nova_core.cli import cli
from nova_core.errors import NovaError
from nova_core.io.examples import load_example
from nova_core.model import Plan, Problem
from nova_core.strategies import create
from nova_engines.flow import SOURCE, Match
from nova_engines.flow_of_plan import flow_of
from nova_nebulastream.bundle import Bundle, file_name
from nova_nebulastream.client import Cli
from nova_nebulastream.explained import explained, verify
from nova_nebulastream.queries import identifier
from nova_nebulastream.translate import translate
from nova_workloads.queries.readings import connection, load
from nova_workloads.queries.reference import compare, expected

pytestmark = pytest.mark.e2e
ADDRESSES = [f"127.0.0.{11 + number}" for number in range(12)]
START_MS = 1_700_000_000_000
MATCH = Match(1000, 5, 1)
ENDED_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A worker on every address."""
    with workers(need_home(), ADDRESSES, tmp_path_factory.mktemp("nes")):
        yield


def at_home(plan: Plan) -> Plan:
    """The same plan; its nodes are the workers."""
    problem = plan.problem
    host = np.array([ADDRESSES[i] for i in range(len(problem.nodes))])
    nodes = replace(problem.nodes, host=host)
    return replace(plan, problem=replace(problem, nodes=nodes))


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


def rows_of(directory: Path) -> dict[str, list[list[str]]]:
    """Results of every query, by what it computes."""
    bundle = Bundle(directory)
    found = {}
    for number, query in enumerate(bundle.planned.queries):
        path = directory / f"results-{file_name(query, number)}.csv"
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


def assert_pairs_come(plan: Plan, directory: Path) -> None:
    plan = at_home(plan)
    directory.mkdir()
    for source, rate in zip(plan.problem.sources.ids, plan.problem.sources.rate, strict=True):
        lines = [",".join(map(str, one)) for one in tuples(float(rate), round(5 * rate))]
        (directory / f"{identifier(str(source))}.csv").write_text("\n".join(lines) + "\n")
    bundle = directory / "bundle"
    translate(
        plan,
        plan.problem,
        bundle,
        source="file",
        keys=MATCH.keys,
        file=str(directory / "{source}.csv"),
        results=str(bundle / "results-{query}.csv"),
    )
    run(bundle)
    sources = {
        one.result: [each.source for each in one.inputs] for one in Bundle(bundle).planned.queries
    }
    came = Counter(
        (*sources[result], int(row[0]), int(row[1]), int(row[2]), float(row[3]))
        + (int(row[4]), int(row[5]), float(row[6]))
        for result, rows in rows_of(bundle).items()
        for row in rows
    )
    wanted = pairs_of(plan)
    assert wanted and came == wanted


def test_the_running_example(cluster: None, tmp_path: Path) -> None:
    problem = load_example("running-example")
    assert_pairs_come(create("nova").place(problem), tmp_path / "run")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("routes", "together"), [(False, False), (True, False), (False, True)])
def test_cut_joins(cluster: None, tmp_path: Path, seed: int, routes: bool, together: bool) -> None:
    """Both inputs of some instances are cut, with interior partitions; relays; one node."""
    assert_pairs_come(nes_plan(seed, routes=routes, together=together), tmp_path / "run")


# --- whole queries -------------------------------------------------------------------------------


def assert_queries_answer(problem: Problem, plan: Plan, directory: Path) -> None:
    database = connection()
    load(database, problem, directory)
    bundle = directory / "bundle"
    translate(
        plan,
        problem,
        bundle,
        file=str(directory / "lines" / "{source}.csv"),
        results=str(bundle / "results-{query}.csv"),
    )
    write_lines(bundle, plan, directory)
    run(bundle)
    results = rows_of(bundle)
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
        told = compare(expected(database, problem, query), came)
        assert told.ok, (query.id, told)


def write_lines(bundle: Path, plan: Plan, directory: Path) -> None:
    """Readings as the bundle's README says."""
    (directory / "lines").mkdir()
    columns = {one.id: one.columns for one in plan.problem.streams}
    stream_of = dict(
        zip(plan.problem.sources.ids.tolist(), plan.problem.sources.stream.tolist(), strict=True)
    )
    for query in Bundle(bundle).planned.queries:
        for one in query.inputs:
            with (directory / f"{one.source}.csv").open(encoding="utf-8") as file:
                readings = list(csv.DictReader(file))
            letters = [name[0] for name, _ in one.fields]
            names = [column.name for column in columns[stream_of[one.source]]]
            lines = []
            for number, reading in enumerate(readings):
                fields = [reading["time"], *([str(number)] if "S" in letters else [])]
                fields += [reading[name] for name in names]
                hashed = [name for name, kind in one.fields if name[0] == "H"]
                for name in hashed:
                    column = int(name[1:].split("_")[0])
                    fields.append(str(hash(reading[names[column]]) % 2**64))
                lines.append(",".join(fields))
            path = directory / "lines" / f"{identifier(one.source)}.csv"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("seed", range(40))
def test_random_queries(cluster: None, tmp_path: Path, seed: int) -> None:
    plan = forward_plan(seed, tmp_path)
    try:
        assert_queries_answer(plan.problem, plan, tmp_path)
    except NovaError as error:
        assert any(why in str(error) for why in ("tuples and partial results", "so many pieces"))
        pytest.skip(str(error))


# --- placement -----------------------------------------------------------------------------------


def test_a_wrong_place_is_found(cluster: None, tmp_path: Path) -> None:
    """A dump of another plan's topology: each operator that is elsewhere is named."""
    plan = at_home(nes_plan(1))
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


def test_check_names_what_would_be_elsewhere(tmp_path: Path) -> None:
    need_home()
    plan = at_home(nes_plan(1))
    bundle = tmp_path / "bundle"
    translate(plan, plan.problem, bundle, source="file")
    assert nova("check", str(bundle)).exit_code == 0
    planned = json.loads((bundle / "queries.json").read_text())
    # The plan says another node than the topology has.
    text = json.dumps(planned).replace('"node": "n 7"', '"node": "n 6"')
    (bundle / "queries.json").write_text(text)
    done = nova("check", str(bundle))
    assert done.exit_code == 1 or isinstance(done.exception, NovaError)
    assert SOURCE  # the flow's kinds are the planned ones
    assert yaml.safe_load(next((bundle / "topologies").iterdir()).read_text())
