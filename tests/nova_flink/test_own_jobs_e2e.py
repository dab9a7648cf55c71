"""Jobs of anybody's, unmodified: placed by the plug-in, cut exactly, refused in a line, moved."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from own_jobs_material import (
    OwnClient,
    Service,
    cluster_of_others,
    compiled_jobs,
    joined,
    joining,
    near,
    of_files,
    readings,
    wait,
    written,
)

from nova_core.io.files import read_problem
from nova_core.io.safe_files import write_text
from nova_flink import moving, own_jobs
from nova_flink.local_cluster import LocalCluster
from nova_flink.observing import observe
from nova_flink.rest import ENDED
from nova_harness.commands.cluster import cluster as cluster_commands

pytestmark = pytest.mark.e2e
PACKAGE = "org.apache.flink.streaming.examples"
EXAMPLES = {
    "join.WindowJoin": 4,
    "windowing.TopSpeedWindowing": 3,
    "statemachine.StateMachineExample": 3,
    "windowing.GroupedProcessingTimeWindowExample": 3,
}
WRAPPED = "windowing.TopSpeedWindowing"
NODES = """\
nova: 1
name: field
nodes:
  - {id: hill, capacity: 10, position: [-60, 60]}
  - {id: shore, capacity: 150, position: [-55, 20]}
  - {id: barn, capacity: 160, position: [-30, 40]}
  - {id: mill, capacity: 150, position: [-28, 30]}
  - {id: hub, capacity: 400, position: [0, 0], worker: false}
"""
MAPPING = """\
sources:
  "*": {node: shore, rate: 10}
sinks: {"*": hub}
"""
OF_A_SET = """\
sources: {numbers: {node: hill, rate: 400}}
sinks: {sums: hub, copies: hill, least: shore}
"""
OF_SCRIPTS = """\
sources:
  pressure: {node: hill, rate: 100}
  humidity: {node: shore, rate: 100}
sinks: {"*": hub}
"""
OF_EXAMPLES = {
    "join.WindowJoin": MAPPING.replace("sources:", "sources:\n  Grades: {node: hill, rate: 3}")
}
WRONG = {
    "unmapped": ("sinks: {'*': hub}", {}, "Car data generator source': is nowhere mapped"),
    "unknown": (
        "sources: {'*': {node: hil, rate: 1}}\nsinks: {'*': hub}",
        {},
        "node hil is not in",
    ),
    "no-rate": ("sources: {'*': hill}\nsinks: {'*': hub}", {}, "its rate is not known"),
    "twice": (
        "sources: {'*': {partitions: {hill: [0, 1], shore: [1]}}}\nsinks: {'*': hub}",
        {},
        "partitions: shore: 1: expected numbers from 0 on, each once",
    ),
    "both": (
        "sources: {'*': {node: hill, partitions: {hill: [0]}}}\nsinks: {'*': hub}",
        {},
        "node and partitions: give one",
    ),
    "no-partitions": (
        "sources: {'*': {partitions: {hill: [0]}}}\nsinks: {'*': hub}",
        {},
        "partitions: only a table or source of Kafka has any",
    ),
    "down": (MAPPING, {"nova.service": "http://127.0.0.1:1"}, "no answer from `nova serve`"),
    "gone": (MAPPING.replace("shore", "sea"), {"nova.nodes": "sea.yaml"}, "node sea: no TaskMan"),
    "other": (MAPPING, {"nova.plan": "other.json"}, "is not in the plan"),
}
JOB = re.compile(r"JobID ([0-9a-f]{32})")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with cluster_of_others(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> OwnClient:
    return OwnClient(cluster.home, cluster.rest.url, tmp_path_factory.mktemp("client"))


def test_jobs_of_others_are_placed_cut_and_refused(
    cluster: LocalCluster, client: OwnClient, tmp_path: Path
) -> None:
    (tmp_path / "nodes.yaml").write_text(NODES)
    (tmp_path / "sea.yaml").write_text(NODES.replace("shore", "sea"))
    plan = {"nova_plan": 2, "rewriting": {}, "instances": [], "edges": [
        {"from": "hill", "to": "hub", "carries": "elsewhere"}]}  # fmt: skip
    (tmp_path / "other.json").write_text(json.dumps(plan))
    files = readings(tmp_path, 4000)
    scripts = {
        "uncut": (joining(of_files(files), tmp_path / "whole"), {"nova.plan": "none"}),
        "cut": (joining(of_files(files), tmp_path / "pieces"), {}),
        "interval": (joining(of_files(files), tmp_path / "near", 50), {}),
    }
    with Service(tmp_path / "service") as service:

        def settings(mapping: str, **more: str) -> list[str]:
            told = {
                "nova.service": service.url,
                "nova.nodes": str(tmp_path / "nodes.yaml"),
                "nova.mapping": mapping,
            } | more
            for key in ("nova.nodes", "nova.plan"):
                if told.get(key, "/").endswith((".yaml", ".json")):
                    told[key] = str(tmp_path / Path(told[key]).name)
            return [f"-D{key}={value}" for key, value in told.items()]

        own = str(tmp_path / "scripts.yaml")
        (tmp_path / "scripts.yaml").write_text(OF_SCRIPTS)
        tasks: dict[str, list[str]] = {}
        for name, (mapping, more, _) in WRONG.items():
            (tmp_path / f"{name}.yaml").write_text(mapping)
            given = settings(str(tmp_path / f"{name}.yaml"), **more)
            main = f"{PACKAGE}.windowing.TopSpeedWindowing"
            tasks[name] = ["flink", "run", "-d", *given, "-c", main, str(client.examples)]
        for name, (script, more) in scripts.items():
            (tmp_path / f"{name}.sql").write_text(script)
            given = settings(own, **more)
            tasks[name] = ["sql-client", *given, "-f", str(tmp_path / f"{name}.sql")]
        for name in EXAMPLES:
            problem = {"nova.problem-file": str(tmp_path / f"{name}.json")}
            (tmp_path / f"{name}.yaml").write_text(OF_EXAMPLES.get(name, MAPPING))
            given = settings(str(tmp_path / f"{name}.yaml"), **problem)
            main = [str(client.examples)]
            if name == WRAPPED:
                # As where Flink fixes the target: the wrapper's first argument is the main class.
                given.append("-Dexecution.target=remote")
                main = ["-c", "nova.flink.plugin.Main", *main, f"{PACKAGE}.{name}"]
            else:
                main = ["-c", f"{PACKAGE}.{name}", *main]
            tasks[name] = ["flink", "run", "-d", *given, *main]
        said = client.submit(tasks, timeout_s=900)

    for name, (_, _, words) in WRONG.items():
        # A line behind what the job itself prints, and no stack trace.
        lines = said[name].splitlines()
        assert lines[0] == "1" and lines[-1].startswith("nova: ") and words in lines[-1], said[name]
        assert not any(line.startswith("\tat ") for line in lines), said[name]
    reference = joined(files)
    assert written(tmp_path / "whole") == reference
    assert written(tmp_path / "pieces") == reference
    assert written(tmp_path / "near") == near(files, 50)

    jobs = cluster.rest.jobs()
    # What was refused has left nothing; three scripts have ended, the examples run.
    assert len(jobs) == len(EXAMPLES) + len(scripts)
    ended = {one for one, told in jobs.items() if told["state"] in ENDED}
    where = [
        {
            step: node
            for part in own_jobs.parts(cluster.rest, one)
            for step, node in part.steps.items()
        }
        for one in ended
    ]
    pieces = sorted(len({node for step, node in one.items() if "#" in step}) for one in where)
    assert pieces == [0, 3, 3]
    for name, count in EXAMPLES.items():
        found = JOB.search(said[name])
        assert found, said[name]
        job = found[1]
        wait(lambda job=job: own_jobs.verify(cluster.rest, job).ok)
        assert len(own_jobs.verify(cluster.rest, job).rows) == count
    _observed(cluster, JOB.findall(said["join.WindowJoin"])[0], tmp_path)
    for job in jobs.keys() - ended:
        cluster.rest.cancel(job)


def test_jobs_with_any_names_are_observed_and_verified(
    cluster: LocalCluster, client: OwnClient, tmp_path: Path
) -> None:
    jar = compiled_jobs(cluster.home, "Shapes", tmp_path)
    (tmp_path / "nodes.yaml").write_text(NODES.replace("150", "500"))
    (tmp_path / "mapping.yaml").write_text(MAPPING)
    (tmp_path / "kinds.yaml").write_text(MAPPING + "operators: {more: {selectivity: 2}}")
    (tmp_path / "set.yaml").write_text(OF_A_SET)
    with Service(tmp_path / "service") as service:
        tasks = {}
        jobs = {"odd": "mapping", "kinds": "kinds", "fails": "mapping", "set": "set"}
        for job, mapping in jobs.items():
            given = {
                "nova.service": service.url,
                "nova.nodes": tmp_path / "nodes.yaml",
                "nova.mapping": tmp_path / f"{mapping}.yaml",
                "nova.problem-file": tmp_path / f"{job}.json",
                # The job that fails shall be submitted, too.
                "nova.verify": "false",
            }
            settings = [f"-D{key}={value}" for key, value in given.items()]
            tasks[job] = ["flink", "run", "-d", *settings, "-c", "Shapes", str(jar), job]
        said = client.submit(tasks, timeout_s=300)
    job = {name: JOB.findall(text)[0] for name, text in said.items()}
    rest = cluster.rest

    wait(lambda: own_jobs.verify(rest, job["odd"]).ok)
    problem = json.loads((tmp_path / "odd.json").read_text())
    seen = observe(rest, job["odd"], problem, 4.0)
    read, emitted = seen["sources"][0]["rate"], seen["queries"][0]["operators"][0]["output_rate"]
    # A reading each 5 ms, at most; the last operator is a filter of every second, and called "Map".
    assert 10 < read <= 200 and 0.3 < emitted / read < 0.7
    rest.cancel(job["odd"])
    cancelled = own_jobs.verify(rest, job["odd"])
    assert not cancelled.ok and not cancelled.misplaced and cancelled.state == "CANCELED"

    # A projection that emits more than it receives has a node of its own.
    assert rest.wait_ended(job["kinds"], timeout_s=120) == "FINISHED"
    kinds = own_jobs.verify(rest, job["kinds"])
    assert kinds.ok and "more" in {row.operator for row in kinds.rows}

    # What three statements have in common is on one node, and its results go to three.
    wait(lambda: own_jobs.verify(rest, job["set"]).ok)
    where = {row.operator: row.actual for row in own_jobs.verify(rest, job["set"]).rows}
    assert where["windowaggregate"] in ("shore", "mill", "barn")
    assert (where["sums"], where["copies"], where["least"]) == ("hub", "hill", "shore")
    rest.cancel(job["set"])

    assert rest.wait_ended(job["fails"], timeout_s=120) == "FAILED"
    failed = CliRunner().invoke(cluster_commands, ["verify", job["fails"], "--rest", rest.url])
    assert failed.exit_code == 1 and "the job is FAILED" in failed.output


def _observed(cluster: LocalCluster, job: str, tmp_path: Path) -> None:
    """What is observed of a job is a problem of Nova's, with other figures."""
    written_down = json.loads((tmp_path / "join.WindowJoin.json").read_text())

    def plausible() -> bool:
        write_text(seen, json.dumps(observe(cluster.rest, job, written_down, 6.0)))
        # The example sends three tuples a second from each source.
        return all(0.5 < rate < 6 for rate in read_problem(seen).sources.rate.tolist())

    seen = tmp_path / "seen.json"
    wait(plausible)


def test_a_job_is_moved_with_its_state(
    cluster: LocalCluster, client: OwnClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums in RocksDB are right though the job was stopped and pinned anew halfway."""
    count, keys = 3000, 5
    (tmp_path / "mapping.yaml").write_text("sources: {'*': hill}\nsinks: {'*': hub}\n")
    script = tmp_path / "sums.sql"
    script.write_text(f"""
        SET 'state.backend.type' = 'rocksdb';
        SET 'execution.checkpointing.interval' = '1 s';
        CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen',
            'rows-per-second' = '100', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1',
            'fields.n.end' = '{count}');
        CREATE TABLE sums (k BIGINT, s BIGINT) WITH ('connector' = 'print');
        INSERT INTO sums SELECT MOD(n, {keys}), SUM(n) FROM numbers GROUP BY MOD(n, {keys});
        """)
    for node in ("barn", "mill"):
        plan = _plan_of_sums(node)
        (tmp_path / f"{node}.json").write_text(json.dumps(plan))
    sql = str(cluster.home.flink / "bin" / "sql-client.sh")
    mapped = f"-Dnova.mapping={tmp_path / 'mapping.yaml'}"
    first = ["sql-client", mapped, f"-Dnova.plan={tmp_path / 'barn.json'}", "-f", str(script)]
    said = client.submit({"sums": first}, timeout_s=300)["sums"]
    running = [j for j, told in cluster.rest.jobs().items() if told["state"] not in ENDED]
    assert len(running) == 1, said
    wait(lambda: own_jobs.verify(cluster.rest, running[0]).ok)
    for name, value in client.environment.items():
        monkeypatch.setenv(name, value)
    moved = moving.move(
        cluster.rest,
        running[0],
        tmp_path / "mill.json",
        [sql, mapped, "-f", str(script)],
        savepoints=str(tmp_path / "savepoints"),
    )
    assert moved.found.ok
    assert {row.actual for row in moved.found.rows} == {"hill", "mill", "hub"}
    cluster.rest.wait_ended(moved.job, timeout_s=240)
    print(f"paused for {moved.pause_s:.1f} s")
    last: dict[int, int] = {}
    printed = cluster.directory / "node0" / "log" / "taskmanager.out"
    for found in re.finditer(r"\+(?:I|U)\[(\d+), (\d+)\]", printed.read_text()):
        last[int(found[1])] = int(found[2])
    assert last == {
        key: sum(n for n in range(1, count + 1) if n % keys == key) for key in range(keys)
    }


def _plan_of_sums(node: str) -> dict[str, object]:
    """A plan as `nova plan` writes it, for a query that is one aggregate."""
    return {
        "nova_plan": 2,
        "rewriting": {"push_filters": True, "split_aggregates": True, "share_operators": True},
        "instances": [{"operator": "sums/groupaggregate", "node": node}],
        "edges": [
            {"from": "hill", "to": node, "consumer": 0, "input": "left", "carries": "numbers"},
            {"from": node, "to": "hub", "producer": 0},
        ],
    }
