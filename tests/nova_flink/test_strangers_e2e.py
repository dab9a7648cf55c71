"""Jobs of strangers under each of Flink's schedulers: placed and seen there, or never sent."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from own_jobs_material import (
    HERE,
    OwnClient,
    Service,
    cluster_of_others,
    joined,
    joining,
    of_files,
    readings,
    wait,
    written,
)

from nova_engines.compiling import compiler, pack
from nova_flink import own_jobs
from nova_flink.configuration import JOB_MANAGER_MAIN, ClusterConfiguration
from nova_flink.home import FlinkHome
from nova_flink.local_cluster import LocalCluster
from nova_flink.rest import FlinkError

pytestmark = pytest.mark.e2e
# Nothing between a source and a sink fits elsewhere than on barn.
NODES = """\
nova: 1
name: field
nodes:
  - {id: hill, capacity: 1, position: [-60, 60]}
  - {id: barn, capacity: 1000, position: [-30, 40]}
  - {id: hub, capacity: 1, position: [0, 0], worker: false}
"""
MAPPING = "sources: {'*': {node: hill, rate: 5}}\nsinks: {'*': hub}\n"
SCHEDULER = "jobmanager.scheduler"
SET_DEFAULT = f"{SCHEDULER}: Default there"
STREAMING = ("join", "odd", "sums", "united", "sized", "sql", "python")
BATCH = ("batch", "batch-sql")
APPLICATION = "org.apache.flink.container.entrypoint.StandaloneApplicationClusterEntryPoint"
WRAPPED = " --job-classname nova.flink.plugin.Main Strangers odd"
JOB = re.compile(r"(?:job|JobID) ([0-9a-f]{32})")


@dataclass(frozen=True)
class Desk:
    """Where jobs are submitted from.

    Attributes:
        folder: with the files of jobs.
        jar: of the jobs in `Strangers.java`.
        settings: of the plug-in.
    """

    cluster: LocalCluster
    client: OwnClient
    folder: Path
    jar: Path
    settings: Mapping[str, str]

    def run(self, main: str, *words: str, **more: str) -> list[str]:
        """`flink run` with a class of the jar, and settings with ``_`` for ``.`` in their names."""
        return ["flink", "run", "-d", *self.given(**more), "-c", main, str(self.jar), *words]

    def given(self, **more: str) -> list[str]:
        told = dict(self.settings) | {key.replace("_", "."): more[key] for key in more}
        return [f"-D{key}={value}" for key, value in told.items()]

    def elsewhere(self) -> dict[str, str]:
        """Settings of a sink on a node without a TaskManager, which the plug-in is not to check."""
        for key, words in (("nodes", "id: hub"), ("mapping", "'*': hub")):
            file = self.folder / f"sea-{key}.yaml"
            text = Path(self.settings[f"nova.{key}"]).read_text()
            file.write_text(text.replace(words, words.replace("hub", "sea")))
        files = {
            f"nova_{key}": str(self.folder / f"sea-{key}.yaml") for key in ("nodes", "mapping")
        }
        return files | {"nova_check": "false", "nova_verify-timeout": "3 s"}

    def tasks(self) -> dict[str, list[str]]:
        """A task for each of `STREAMING` and `BATCH`."""
        examples = "org.apache.flink.streaming.examples.join.WindowJoin"
        python = ["-pyclientexec", str(self.client.home.python), "-py", str(HERE / "stranger.py")]
        tasks = {
            "join": ["flink", "run", "-d", *self.given(), "-c", examples],
            "python": ["flink", "run", "-d", *self.given(), *python],
            "batch": self.run("Strangers", "counted"),
        }
        tasks["join"].append(str(self.client.examples))
        for name in ("odd", "sums", "united"):
            tasks[name] = self.run("Strangers", name)
        tasks["sized"] = self.run("Strangers", "sized", "20")
        files = readings(self.folder, 400)
        for name, mode in (("sql", "streaming"), ("batch-sql", "batch")):
            script = self.folder / f"{name}.sql"
            query = joining(of_files(files), self.folder / f"{name}-results")
            script.write_text(f"SET 'execution.runtime-mode' = '{mode}';\n{query}")
            tasks[name] = ["sql-client", *self.given(), "-f", str(script)]
        return tasks


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, jars = tmp_path_factory.mktemp("jar"), FlinkHome.default().jars
    command = [compiler(), "--release", "11", "-nowarn", "-cp", ":".join(map(str, jars))]
    source = HERE / "java" / "Strangers.java"
    subprocess.run([*command, "-d", str(path / "classes"), str(source)], check=True)
    pack(path / "classes", "", path / "strangers.jar")
    return path / "strangers.jar"


@pytest.fixture
def desk(request: pytest.FixtureRequest, jar: Path, tmp_path: Path) -> Iterator[Desk]:
    settings: Mapping[str, str] = request.param
    with (
        cluster_of_others(
            tmp_path / "cluster", nodes=("hub", "hill", "barn"), settings=settings
        ) as cluster,
        Service(tmp_path / "service") as service,
    ):
        (tmp_path / "nodes.yaml").write_text(NODES)
        (tmp_path / "mapping.yaml").write_text(MAPPING)
        (tmp_path / "client").mkdir()
        client = OwnClient(cluster.home, cluster.rest.url, tmp_path / "client")
        files = {key: str(tmp_path / f"{key}.yaml") for key in ("nodes", "mapping")}
        told = {f"nova.{key}": file for key, file in files.items()}
        yield Desk(cluster, client, tmp_path, jar, told | {"nova.service": service.url})


@pytest.mark.parametrize("desk", [{}], indirect=True, ids=["unset"])
def test_by_default_all_jobs_run_where_they_are_planned(desk: Desk) -> None:
    more = {
        "too-big": desk.run("Strangers", "sized", "2000"),
        "by-hand": desk.run("Strangers", "by-hand"),
        "unverified": desk.run("Strangers", "odd", nova_verify="false"),
        "attached": [one for one in desk.run("Strangers", "counted") if one != "-d"],
        "nowhere": desk.run("Strangers", "odd", **desk.elsewhere()),
    }
    said = desk.client.submit(desk.tasks() | more, timeout_s=400)
    assert said["too-big"].startswith("1\n")
    slot = "a slot takes 1.500 cores, 2000 MB of heap, 24 MB of managed memory"
    assert f"has room for 0 of the 1 slots that the job needs there: {slot}" in said["too-big"]
    assert said["by-hand"].startswith("1\n")
    assert "the job asks for node-hill by a slot-sharing group" in said["by-hand"]
    assert said["unverified"].startswith("0\n") and "subtasks run" not in said["unverified"]
    # Whoever waits for the end of a batch job hears of all of it.
    assert "all 3 subtasks run where the plan has them" in said["attached"]
    assert said["nowhere"].startswith("1\n")
    assert re.search(r"job \w+: (after 3 s [123] of 3 subtasks do|is FAILED)", said["nowhere"])
    check(desk, said, (*STREAMING, *BATCH, "unverified", "attached"), others=1)
    sized_slot(desk)
    assert written(desk.folder / "batch-sql-results") == joined(readings(desk.folder, 400))


@pytest.mark.parametrize("desk", [{SCHEDULER: "Default"}], indirect=True, ids=["Default"])
def test_batch_jobs_run_where_they_are_planned_under_the_streaming_scheduler(desk: Desk) -> None:
    tasks = {name: task for name, task in desk.tasks().items() if name in BATCH}
    check(desk, desk.client.submit(tasks, timeout_s=400), BATCH)


@pytest.mark.parametrize("desk", [{SCHEDULER: "AdaptiveBatch"}], indirect=True, ids=["batch"])
def test_the_batch_scheduler_gets_no_streaming_jobs(desk: Desk) -> None:
    said = desk.client.submit(desk.tasks(), timeout_s=400)
    refused(said, "its batch scheduler runs no streaming jobs")
    check(desk, said, BATCH)


@pytest.mark.parametrize("desk", [{SCHEDULER: "Adaptive"}], indirect=True, ids=["adaptive"])
def test_the_adaptive_scheduler_gets_no_streaming_jobs(desk: Desk) -> None:
    more = {
        "anyway": desk.run("Strangers", "odd", nova_check="false"),
        "warned": desk.run("Strangers", "odd", **{"nova_on-error": "unpinned"}),
    }
    said = desk.client.submit(desk.tasks() | more, timeout_s=400)
    refused(said, "its adaptive scheduler runs operators on any node")
    # One is sent all the same; it runs anywhere, by chance where the plan has it, and whoever has
    # sent it hears of it.
    found = JOB.search(said["anyway"])
    assert found, said["anyway"]
    if own_jobs.verify(desk.cluster.rest, found[1]).ok:
        assert said["anyway"].startswith("0\n")
        assert "all 3 subtasks run where the plan has them" in said["anyway"]
    else:
        assert said["anyway"].startswith("1\n")
        heard = "of 3 subtasks are not where the plan has them, e.g. "
        assert heard in said["anyway"], said["anyway"]
    assert said["warned"].startswith("0\n")
    assert "runs operators on any node: set " in said["warned"]
    check(desk, said, BATCH, others=2)


@pytest.mark.parametrize("mode", ["", "reactive"])
def test_applications_are_placed_or_refused_too(
    mode: str, jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ClusterConfiguration.coordinator_command
    monkeypatch.setattr(
        ClusterConfiguration,
        "coordinator_command",
        lambda self, node: command(self, node).replace(JOB_MANAGER_MAIN, APPLICATION) + WRAPPED,
    )
    with Service(tmp_path / "service") as service:
        settings = {f"nova.{key}": str(tmp_path / f"{key}.yaml") for key in ("nodes", "mapping")}
        settings |= {"nova.service": service.url} | ({"scheduler-mode": mode} if mode else {})
        # TaskManagers may come later than the job.
        settings["resourcemanager.standalone.start-up-time"] = "60 s"
        (tmp_path / "nodes.yaml").write_text(NODES)
        (tmp_path / "mapping.yaml").write_text(MAPPING)
        cluster = cluster_of_others(
            tmp_path / "cluster", nodes=("hub", "hill", "barn"), settings=settings, extra_jars=[jar]
        )
        log = tmp_path / "cluster" / "node0" / "log" / "jobmanager.log"
        with contextlib.ExitStack() as running:
            running.callback(cluster.stop)
            if mode:
                with contextlib.suppress(FlinkError):  # it may end before its TaskManagers come
                    cluster.launch()
                assert cluster.processes["jobmanager"].wait(60) != 0
                assert "set no scheduler-mode and jobmanager.scheduler: Default" in log.read_text()
                return
            cluster.launch()
            wait(lambda: "all 3 subtasks run where the plan has them" in log.read_text(), 60)
            (job,) = cluster.rest.jobs()
            assert own_jobs.verify(cluster.rest, job).ok


def refused(said: Mapping[str, str], words: str) -> None:
    """All streaming jobs, in a line that says what to set."""
    for name in STREAMING:
        if name == "sql":
            # Flink's SQL client writes errors to the terminal only, and always ends with code 0.
            assert not JOB.search(said[name]), said[name]
            continue
        assert said[name].startswith("1\n"), said[name]
        lines = [line for line in said[name].splitlines() if words in line]
        assert lines and SET_DEFAULT in lines[0], said[name]


def check(desk: Desk, said: Mapping[str, str], placed: Sequence[str], others: int = 0) -> None:
    """These jobs run, or have run, where their plans have them; no other was ever sent."""
    rest = desk.cluster.rest
    for name in placed:
        assert said[name].startswith("0\n"), (name, said[name])
        assert ("where the plan has them" in said[name]) == (name != "unverified"), said[name]
    assert len(rest.jobs()) == len(placed) + others, said
    for name in placed:
        found = JOB.search(said[name])
        assert found, said[name]
        job = found[1]
        if name in (*BATCH, "attached"):
            wait(lambda job=job: ended(desk, job))
        verified = own_jobs.verify(rest, job)
        assert verified.ok, (name, verified)
        assert {row.actual for row in verified.rows} == {"hill", "barn", "hub"}, (name, verified)


def ended(desk: Desk, job: str) -> bool:
    state = desk.cluster.rest.state(job)
    assert state in ("RUNNING", "FINISHED"), desk.cluster.rest.exceptions(job)
    return state == "FINISHED"


def sized_slot(desk: Desk) -> None:
    """The slots of the job whose author said what they must have."""
    rest = desk.cluster.rest
    (job,) = (job for job, row in rest.jobs().items() if row["name"] == "sized")
    got = {
        node: slot["resource"]
        for node in ("hill", "barn", "hub")
        for slot in rest.get(f"/taskmanagers/tm-{node}")["allocatedSlots"]
        if slot["jobId"] == job
    }
    for node in ("barn", "hub"):
        sizes = [got[node][key] for key in ("cpuCores", "taskHeapMemory", "managedMemory")]
        assert sizes == [1.5, 20, 24]
    assert got["hill"]["cpuCores"] == 0.01
