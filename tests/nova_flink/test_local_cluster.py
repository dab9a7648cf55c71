"""A cluster on loopback: up, used, down, and nothing of it left."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from needs_flink import require

from nova_flink.home import EngineError, FlinkHome
from nova_flink.local_cluster import LocalCluster
from nova_flink.rest import FlinkError


@pytest.fixture
def home() -> FlinkHome:
    found = FlinkHome.default()
    require(found)
    return found


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_without_a_home_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="nova engines install flink"):
        LocalCluster(FlinkHome(tmp_path), ["a"], tmp_path / "cluster")


@pytest.mark.e2e
def test_a_killed_task_manager_is_missed_and_comes_back(home: FlinkHome, tmp_path: Path) -> None:
    with LocalCluster(home, ["a", "b"], tmp_path) as cluster:
        pids = [process.pid for process in cluster.processes.values()]
        assert set(cluster.processes) == {"jobmanager", "a", "b"}
        assert cluster.rest.get("/overview")["flink-version"] == home.version
        assert set(cluster.rest.task_managers()) == {"tm-a", "tm-b"}
        for pid in pids:
            assert "nova-flink.jar" in Path(f"/proc/{pid}/cmdline").read_text()

        cluster.kill("b")
        until = time.monotonic() + 40
        while "tm-b" in cluster.rest.task_managers():
            assert time.monotonic() < until, "a dead TaskManager is still registered"
            time.sleep(0.2)
        cluster.restart("b")
        cluster.rest.wait_task_managers(["a", "b"], 60)

        cluster.kill("jobmanager")
        with pytest.raises(FlinkError, match="no answer"):
            cluster.rest.get("/overview")
        pids += [process.pid for process in cluster.processes.values()]
    assert not cluster.processes
    assert [pid for pid in pids if alive(pid)] == []


@pytest.mark.e2e
def test_no_page_can_upload_a_program_or_read_what_there_is(
    home: FlinkHome, tmp_path: Path
) -> None:
    with LocalCluster(home, ["a"], tmp_path) as cluster:
        url, boundary = cluster.rest.url, "x"
        body = f'--{boundary}\r\nContent-Disposition: form-data; name="jarfile"; '
        body += f'filename="x.jar"\r\n\r\nPK\r\n--{boundary}--\r\n'
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        for path, data, code in (("/jars", None, 404), ("/jars/upload", body.encode(), 400)):
            request = urllib.request.Request(f"{url}{path}", data, headers)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=20)
            assert refused.value.code == code
        with urllib.request.urlopen(f"{url}/overview", timeout=20) as answer:
            # Of all pages only its own.
            assert answer.headers["Access-Control-Allow-Origin"] == url


@pytest.mark.e2e
def test_a_cluster_that_cannot_start_says_why_and_leaves_nothing(
    home: FlinkHome, tmp_path: Path
) -> None:
    cluster = LocalCluster(home, ["a", "b"], tmp_path, task_manager_options=["-XX:NoSuchOption"])
    with pytest.raises(FlinkError, match=r"ended with code 1: .*NoSuchOption"):
        cluster.start()
    assert not cluster.processes
