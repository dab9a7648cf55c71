"""Jobs that clients of `nova serve` control: who may, what runs, and what is left when it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from click.testing import CliRunner
from control_hosts import placed_join
from starlette.testclient import TestClient
from test_control_page import STATE as SEEN

from nova_core.cli import cli
from nova_core.errors import NovaError
from nova_core.io.files import write_plan
from nova_core.service.application import application
from nova_core.service.endpoints import load
from nova_core.service.settings import Settings
from nova_core.service.store import Store
from nova_engines.handover import Ledger, Share
from nova_engines.source_orders import ControlledJob
from nova_harness.control.controller import PAUSED
from nova_harness.control.job_groups import LEDGERS
from nova_harness.control.watching import STATE, read_state
from nova_harness.service.jobs import HostedJob, Jobs, control_run
from nova_harness.service.jobs_file import read_jobs

TOKEN = {"Authorization": "Bearer secret"}
PATIENCE_S = 30.0
NOVA = [sys.executable, "-c", "from nova_core.cli import main; main()"]
# In place of a controller: begins a job, and ends like one. `slow` does not end by SIGTERM.
CHILD = """
import os, pathlib, signal, sys, time
state = pathlib.Path(sys.argv[1].removeprefix("--state="))
state.joinpath("ledgers").mkdir(exist_ok=True)
state.joinpath("ledgers", "1.json").write_text("{}")
print("runs with", *sys.argv[2:], "NOVA_TOKEN" in os.environ, sys.stdin.read(), flush=True)
def end(*_):
    print("the job keeps running", flush=True)
    if "slow" not in sys.argv:
        sys.exit(0)
signal.signal(signal.SIGTERM, end)
state.joinpath("ready").touch()
while "fails" not in sys.argv:
    time.sleep(0.02)
sys.exit("no such host")
"""
JOBS = {
    "nova_jobs": 1,
    "jobs": {
        "field": {
            "problem": "problem.yaml",
            "plan": "plan.json",
            "inventory": "rack.yaml",
            "cooldown": 1,
            "miss-after": 30,
            "for": 5,
        }
    },
}


def child(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-c", CHILD, *arguments]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Callable[..., TestClient]]:
    """Starts the service with jobs of some arguments, as often as asked."""
    with ExitStack() as stack:

        def start(**jobs: list[str]) -> TestClient:
            hosted = [
                HostedJob(name, line, tmp_path / "jobs", child) for name, line in jobs.items()
            ]
            app = application(
                Store(Settings(tmp_path / "data", token="secret")), None, [Jobs(hosted)]
            )
            client = TestClient(app, base_url="http://127.0.0.1", headers=TOKEN)
            client.app_state["directory"] = tmp_path / "jobs"
            return stack.enter_context(client)

        yield start


def until(client: httpx.Client, job: str, status: str) -> dict[str, Any]:
    """A job's report, once it has that status."""
    end = time.monotonic() + PATIENCE_S
    while True:
        report: dict[str, Any] = client.get(f"/jobs/{job}").json()
        if report["status"] == status:
            return report
        assert time.monotonic() < end, report
        time.sleep(0.05)


def begun(client: TestClient, job: str = "field") -> Path:
    """Start a job; returns its directory, once its controller takes signals."""
    answer = client.post(f"/jobs/{job}/start")
    assert answer.status_code == 200 and answer.json()["status"] == "running", answer.text
    directory: Path = client.app_state["directory"] / job
    end = time.monotonic() + PATIENCE_S
    while not (directory / "ready").exists():
        assert time.monotonic() < end, client.get(f"/jobs/{job}").text
        time.sleep(0.02)
    (directory / "ready").unlink()
    return directory


def test_start_pause_resume_and_stop(
    service: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOVA_TOKEN", "secret")
    client = service(field=["a b", "$HOME"], other=[])
    first = {"name": "field", "status": "never started", "exit_code": None, "log": []}
    assert client.get("/jobs").json() == {"jobs": [first, first | {"name": "other"}]}
    for what in ("stop", "pause", "resume"):
        refused = client.post(f"/jobs/field/{what}")
        assert refused.status_code == 409 and refused.json()["error"].startswith("field: ")
    directory = begun(client)
    again = client.post("/jobs/field/start")
    assert (again.status_code, again.json()) == (
        409,
        {"error": "field: is already under control"},
    )
    paused = client.post("/jobs/field/pause").json()
    assert paused["status"] == "paused" and (directory / PAUSED).exists()
    assert client.post("/jobs/field/resume").json()["status"] == "running"
    assert not (directory / PAUSED).exists()
    stopped = client.post("/jobs/field/stop")
    assert stopped.status_code == 200
    assert stopped.json() == {
        "name": "field",
        "status": "stopped",
        "exit_code": 0,
        # No shell has read it; the service's token stays where it is.
        "log": ["runs with a b $HOME False ", "the job keeps running"],
    }
    assert client.get("/jobs/other").json()["status"] == "never started"
    begun(client)
    assert client.post("/jobs/field/stop").json()["log"] == 2 * stopped.json()["log"]


def test_a_controller_that_fails_or_is_killed_harms_nobody(
    service: Callable[..., TestClient],
) -> None:
    client = service(field=[], broken=["fails"])
    directory = begun(client)
    begun(client, "broken")
    failed = until(client, "broken", "failed")
    assert (failed["exit_code"], failed["log"][-1]) == (1, "no such host")
    (running,) = children_with(str(directory))
    os.kill(running, signal.SIGKILL)
    assert until(client, "field", "failed")["exit_code"] == -signal.SIGKILL
    begun(client)
    assert client.get("/health").json()["status"] == "ok"


def children_with(text: str) -> list[int]:
    """Children of this process with a text in their command line."""
    tasks = Path("/proc/self/task").glob("*/children")
    pids = [int(pid) for file in tasks for pid in file.read_text().split()]
    return [p for p in pids if text in Path(f"/proc/{p}/cmdline").read_text()]


def test_a_controller_that_takes_long_to_end(
    service: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nova_harness.service.jobs.STOPPING_S", 0.2)
    monkeypatch.setattr("nova_harness.service.jobs.CLOSING_S", 0.2)
    client = service(field=["slow"])
    directory = begun(client)
    for _ in range(2):
        answer = client.post("/jobs/field/stop")
        assert (answer.status_code, answer.json()["status"]) == (202, "stopping")
    # It was asked to end only once.
    assert answer.json()["log"].count("the job keeps running") == 1
    assert client.post("/jobs/field/start").status_code == 409
    (running,) = children_with(str(directory))
    os.kill(running, signal.SIGKILL)
    # What was stopped has not failed, however it ended.
    assert until(client, "field", "stopped")["exit_code"] == -signal.SIGKILL


def test_controllers_end_with_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next service resumes control."""
    monkeypatch.setattr("nova_harness.service.jobs.CLOSING_S", 1.0)
    hosted = [HostedJob(name, [name], tmp_path / "jobs", child) for name in ("field", "slow")]

    def started() -> TestClient:
        store = Store(Settings(tmp_path / "data", token="secret"))
        app = application(store, None, [Jobs(hosted)])
        client = TestClient(app, base_url="http://127.0.0.1", headers=TOKEN)
        client.app_state["directory"] = tmp_path / "jobs"
        return client

    with started() as client:
        for name in ("field", "slow"):
            begun(client, name)
        assert len(children_with(str(tmp_path))) == 2
    assert children_with(str(tmp_path)) == []
    logs = [(tmp_path / f"jobs/{name}.log").read_text() for name in ("field", "slow")]
    assert all("the job keeps running" in log for log in logs)
    hosted = [HostedJob("field", ["field"], tmp_path / "jobs", child)]
    with started() as client:
        known = client.get("/jobs/field").json()
        assert (known["status"], known["exit_code"]) == ("stopped", None)
        begun(client)


def test_a_long_log_is_shortened(tmp_path: Path) -> None:
    job = HostedJob("field", ["fails"], tmp_path, child)
    line = "as before\n"
    (tmp_path / "field.log").write_text(line * 500_000)
    job.start()
    assert job._process is not None and job._process.wait(PATIENCE_S) == 1
    log = (tmp_path / "field.log").read_text()
    assert len(log) < 2**20 + 100 and log.startswith(line * 100_000)
    assert job.report.log[-1] == "no such host" and job.report.log[0] == "as before"


def test_a_job_that_has_ended(service: Callable[..., TestClient]) -> None:
    client = service(field=[])
    directory = client.app_state["directory"] / "field"
    directory.mkdir(parents=True)
    job = ControlledJob("c0ffee", "/orders", ((0, "left"),), (("hub", "/results"),))
    (directory / LEDGERS).mkdir()
    Ledger(100, (Share(job, 0, 0),)).write(directory / LEDGERS / "1.json")
    assert client.get("/jobs/field").json()["status"] == "stopped"
    Ledger(100, (Share(job, 0, 0),), end_ms=500).write(directory / LEDGERS / "1.json")
    assert client.get("/jobs/field").json()["status"] == "ended"


def test_watch_a_job(service: Callable[..., TestClient]) -> None:
    client = service(field=[])
    watch = "/jobs/field/watch"
    assert client.get(f"{watch}/state").json() is None
    directory = begun(client)
    assert client.get(f"{watch}/state").json() is None
    (directory / STATE).write_bytes(msgspec.json.encode(SEEN))
    assert read_state(directory) == SEEN
    assert msgspec.json.decode(client.get(f"{watch}/state").content, type=type(SEEN)) == SEEN
    assert 'nova_control_host_up{host="far"} 0.0' in client.get(f"{watch}/metrics").text
    page = client.get(f"{watch}/")
    assert 'fetch("state"' in page.text and "default-src 'none'" in str(page.headers)
    assert client.get(f"{watch}/grafana.json").json()["panels"]
    for path in (f"{watch}/nothing", watch, "/jobs/other/watch/state"):
        answer = client.get(path)
        assert answer.status_code == 404 and list(answer.json()) == ["error"], path
    client.post("/jobs/field/stop")
    # What the last controller saw is not the present.
    assert client.get(f"{watch}/state").json() is None
    begun(client)
    assert client.get(f"{watch}/state").json() is None


def test_only_with_the_token(service: Callable[..., TestClient]) -> None:
    client = service(field=[])
    paths = [("GET", "/jobs"), ("GET", "/jobs/field"), ("GET", "/jobs/field/watch/")]
    paths += [("GET", f"/jobs/field/watch/{name}") for name in ("state", "metrics")]
    paths += [("POST", f"/jobs/field/{what}") for what in ("start", "stop", "pause", "resume")]
    for method, path in paths:
        for given in ("", "Bearer wrong"):
            answer = client.request(method, path, headers={"Authorization": given})
            assert answer.status_code == 401, (method, path)
    assert client.get("/jobs/field").json()["status"] == "never started"


@pytest.mark.parametrize(
    "name", ["other", "..", "%2e%2e", "..%2ffield", "a%2fb", "field%2f", "Field", "field ", "%00"]
)
def test_no_other_names(service: Callable[..., TestClient], name: str, tmp_path: Path) -> None:
    client = service(field=[])
    for method, path in (("GET", ""), ("POST", "/start"), ("POST", "/stop"), ("GET", "/watch/")):
        # As it is: the client would resolve dots.
        url = httpx.URL(f"http://127.0.0.1/jobs/x{path}").copy_with(
            raw_path=f"/jobs/{name}{path}".encode()
        )
        answer = client.request(method, url)
        assert answer.status_code in (404, 405), (method, path, answer.text)
        assert "\n" not in answer.json()["error"]
    assert not (tmp_path / "jobs").exists()


def test_operations_are_described(service: Callable[..., TestClient]) -> None:
    paths = service(field=[]).get("/openapi.json").json()["paths"]
    assert {"/jobs", "/jobs/{job}", "/jobs/{job}/start", "/jobs/{job}/resume"} < set(paths)
    stop = paths["/jobs/{job}/stop"]["post"]
    assert {"200", "202", "401", "404", "409"} <= set(stop["responses"])
    assert stop["summary"] and [one["name"] for one in stop["parameters"]] == ["job"]


# --- the file ------------------------------------------------------------------------------------


@pytest.fixture
def jobs_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of jobs, beside a problem, its plan and an inventory."""
    (tmp_path / "files").mkdir()
    _, plan = placed_join(tmp_path / "files", {"near": 5.0})
    write_plan(plan, tmp_path / "files" / "plan.json")

    def write(text: str | None = None, **fields: Any) -> Path:
        file = tmp_path / "files" / "jobs.yaml"
        document = json.loads(json.dumps(JOBS))
        document["jobs"]["field"] |= fields
        file.write_text(text or json.dumps(document))
        return file

    return write


def test_what_a_file_says(jobs_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    file = jobs_file()
    monkeypatch.chdir("/")
    assert read_jobs(file) == {
        "field": [
            f"--inventory={file.parent / 'rack.yaml'}",
            "--engine=flink",
            "--for=5.0",
            "--cooldown=1.0",
            "--miss-after=30.0",
            "--",
            str(file.parent / "problem.yaml"),
            str(file.parent / "plan.json"),
        ]
    }
    named = read_jobs(jobs_file(inventory="virtual-14", engine="storm"))["field"]
    assert {"--inventory=virtual-14", "--engine=storm"} < set(named)


def test_the_example_in_the_documentation(jobs_file: Callable[..., Path]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "control.md").read_text()
    file = jobs_file(page.partition("```yaml jobs.yaml\n")[2].partition("```")[0])
    for copy, name in (("problem.yaml", "measured.yaml"), ("problem.yaml", "coast.yaml"),
                       ("plan.json", "coast.json"), ("rack.yaml", "coast-hosts.yaml")):  # fmt: skip
        shutil.copy(file.parent / copy, file.parent / name)
    assert list(read_jobs(file)) == ["field", "coast"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"enigne": "flink"}, "jobs: field: unknown field 'enigne'; did you mean 'engine'?"),
        ({"engine": "flonk"}, "jobs: field: .*'flonk'.*flink.*storm"),
        ({"engine": "spark"}, "jobs: field: --engine spark: its jobs cannot be controlled; those"),
        ({"problem": "absent.yaml"}, "jobs: field: problem: .*absent.yaml: no such file"),
        ({"sources": "../absent.json"}, "jobs: field: sources: .*: no such file"),
        ({"inventory": "absent"}, "jobs: field: inventory 'absent': no such file, nor one that"),
        ({"inventory": "plan.json"}, "jobs: field: .*plan.json: field 'inventory'"),
        ({"cooldown": -1}, "jobs: field: Invalid value for '--cooldown': -1.0 is not in the range"),
        ({"cooldown": "1"}, "jobs: field: cooldown: '1' is not accepted; a number"),
        ({"window": 0}, "jobs: field: Invalid value for '--window': 0 is not in the range"),
        ({"problem": ""}, "jobs: field: problem: '' is not accepted"),
        ({"plan": None}, "jobs: field: plan: None is not accepted; text is expected"),
    ],
)
def test_a_job_that_is_refused(
    jobs_file: Callable[..., Path], fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(NovaError, match=f"jobs.yaml: {reason}") as raised:
        read_jobs(jobs_file(**fields))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nova_jobs: 1\njobs: {a: [", "line 3, column 1: "),
        ("nova_jobs: 2\njobs: {}", "nova_jobs: format version 2; 1 is read here"),
        ("jobs: {}", "field 'nova_jobs' is missing; a line 'nova_jobs: 1'"),
        ("nova_jobs: 1", "field 'jobs' is missing"),
        ("nova_jobs: 1\njobs: {../a: {}}", "jobs: '../a' is no name; a-z, 0-9 and - are expected"),
        ("nova_jobs: 1\njobs: {-a: {}}", "jobs: '-a' is no name"),
        ("nova_jobs: 1\njobs: {Field: {}}", "jobs: 'Field' is no name"),
        ("nova_jobs: 1\njobs: {a: {}}", "jobs: a: field 'problem' is missing"),
        ("nova_jobs: 1\njobs: {a: 5}", "jobs: a: 5 is not accepted; a mapping of fields"),
        ("nova_jobs: 1\njobs: {a: {}, a: {}}", "field 'a' is given twice"),
    ],
)
def test_a_file_that_is_refused(
    jobs_file: Callable[..., Path], text: str, reason: str, tmp_path: Path
) -> None:
    file = jobs_file(text)
    line = ["serve", str(tmp_path / "data"), "--jobs", str(file)]
    done = CliRunner().invoke(cli, line, env={"NOVA_TOKEN": "secret"}, standalone_mode=False)
    assert isinstance(done.exception, NovaError) and done.exception.exit_code == 2
    assert str(done.exception).startswith(f"{file}: ") and reason in str(done.exception)
    assert not (tmp_path / "data").exists()


def test_a_token_is_required(jobs_file: Callable[..., Path], tmp_path: Path) -> None:
    line = [*NOVA, "serve", str(tmp_path / "data"), "--jobs", str(jobs_file())]
    environment = {name: value for name, value in os.environ.items() if name != "NOVA_TOKEN"}
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == (
        "nova: error: --jobs: every client could start jobs as this user; give --token-file or "
        "NOVA_TOKEN\n"
    )


def test_packages_without_jobs() -> None:
    with pytest.raises(NovaError, match="--nothing: no installed package has the entry point"):
        load("nothing")


# --- processes -----------------------------------------------------------------------------------


@contextmanager
def serving(directory: Path, jobs: Path) -> Iterator[httpx.Client]:
    """A client of a service with jobs, which is a process of its own."""
    (jobs.parent / "token").write_text("secret")
    line = ["serve", str(directory), "--port", "0", "--json", "--jobs", str(jobs)]
    process = subprocess.Popen(
        [*NOVA, *line, "--token-file", str(jobs.parent / "token")], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        with httpx.Client(base_url=url, headers=TOKEN, timeout=PATIENCE_S) as client:
            yield client
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def test_a_real_controller_that_cannot_begin(
    jobs_file: Callable[..., Path], tmp_path: Path
) -> None:
    """A service in a process of its own, and `nova control run`."""
    file = jobs_file()
    (file.parent / "plan.json").write_text("{}")
    with serving(tmp_path / "data", file) as client:
        client.post("/jobs/field/start").raise_for_status()
        failed = until(client, "field", "failed")
    assert failed["exit_code"] == 2
    assert failed["log"][-1].startswith(f"nova: error: {file.parent / 'plan.json'}: ")


def test_a_controller_ends_even_if_the_service_is_killed(tmp_path: Path) -> None:
    """A command of nova that runs until SIGTERM stands for the controller."""
    parent = (
        "import subprocess, sys; from nova_harness.service.jobs import control_run\n"
        "line = control_run([])[:5]\n"
        f"line += ['serve', {str(tmp_path / 'data')!r}, '--port', '0', '--json']\n"
        "print(subprocess.Popen(line, stdout=subprocess.PIPE).stdout.readline().decode())\n"
        "sys.stdout.flush()\n"
        "sys.stdin.read()"
    )
    assert control_run(["--state=x"])[-4:] == ["control", "run", "--json", "--state=x"]
    service = subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert service.stdout is not None
    process = json.loads(service.stdout.readline())["process"]
    service.kill()
    service.communicate()
    until_gone = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < until_gone
        time.sleep(0.05)
