"""``nova testbed`` on an ordinary sshd on loopback and, end to end, on a virtual rack."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from loopback_hosts import LoopbackSshd, sshds
from needs import need_namespaces, skip_or_fail

from nova_core.cli import cli
from nova_core.io.files import read_problem

NOVA = [str(Path(sys.executable).parent / "nova")]


def invoke(*arguments: str) -> Result:
    """Run ``nova`` as from the shell, with its exit codes."""
    return CliRunner().invoke(cli, ["testbed", *arguments])


def write(path: Path, running: list[LoopbackSshd], **changes: Any) -> Path:
    roles = ["sink", "source", "source"]
    content = {
        "inventory": 1,
        "name": "loopback",
        "defaults": {"user": running[0].spec().user},
        "hosts": [
            {
                "name": sshd.name,
                "role": roles[i],
                "address": "127.0.0.1",
                "port": sshd.port,
                "key": str(sshd.key),
                "known_hosts": str(sshd.known_hosts),
            }
            for i, sshd in enumerate(running)
        ],
    }
    path.write_text(yaml.safe_dump(content | changes))
    return path


@pytest.fixture(scope="module")
def running() -> Iterator[list[LoopbackSshd]]:
    with sshds("one", "two", "three") as started:
        yield started


@pytest.fixture(scope="module")
def place(running: list[LoopbackSshd], tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write(tmp_path_factory.mktemp("cli") / "loopback.yaml", running))


# --- real hosts ----------------------------------------------------------------------------------


def test_up_status_and_down_of_real_hosts(place: str) -> None:
    for _ in range(2):
        done = invoke("up", "-i", place)
        assert done.exit_code == 0, done.output
        assert "loopback is up" in done.stdout and "three" in done.stdout
    done = invoke("status", "-i", place, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["state"] == "up" and [host["up"] for host in told["hosts"]] == [True] * 3
    done = invoke("down", "-i", place)
    assert (done.exit_code, done.stdout) == (0, "removed: nothing; there was none\n")


def test_a_host_that_is_down_is_told(running: list[LoopbackSshd], place: str) -> None:
    running[1].stop()
    try:
        done = invoke("status", "-i", place)
        assert done.exit_code == 1
        assert "loopback: broken" in done.stdout and "two: nothing listens" in done.stdout
        done = invoke("up", "-i", place)
        assert done.exit_code != 0
        done = invoke("check", "-i", place, "--json")
        assert done.exit_code == 1
        told = json.loads(done.stdout)
        assert not told["ok"] and told["missing"].startswith("two: SSH (nothing listens")
    finally:
        running[1].start()


def test_exec_on_some_and_on_all(place: str) -> None:
    done = invoke("exec", "-i", place, "echo", "hello;", "echo there >&2")
    assert done.exit_code == 0, done.output
    assert done.stdout == "one    hello\ntwo    hello\nthree  hello\n"
    assert done.stderr == "one    there\ntwo    there\nthree  there\n"
    done = invoke("exec", "-i", place, "--on", "source", "--on", "three", "--json", "exit 3")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert {name: result["returncode"] for name, result in told.items()} == {"two": 3, "three": 3}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["exec", "--on", "four", "true"], "unknown host 'four'; accepted are one, three, two"),
        (["exec", "--on", "worker", "true"], "no host has the role worker"),
        (["ssh", "four"], "unknown host 'four'"),
        (["measure", "-o", "problem.txt"], "problem.txt: a problem document is a .yaml or .json"),
        (["measure", "--neighbours", "0"], "0 is not in the range 1<=x"),
        (["stress"], "stress: names no hosts or roles; name hosts"),
        (["exec", "--timeout", "0.3", "sleep 9"], "`sleep 9` took over 0.3 s and was stopped"),
    ],
)
def test_bad_arguments_are_one_line(place: str, arguments: list[str], message: str) -> None:
    command, *rest = arguments
    done = subprocess.run(
        [*NOVA, "testbed", command, "-i", place, *rest], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_ssh_logs_in(place: str) -> None:
    command = [*NOVA, "testbed", "ssh", "-i", place, "two", "echo", "-n", "$((40+2))"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "42"), done.stderr


@pytest.mark.filterwarnings("ignore:.*no positions")
def test_measure_and_what_it_writes(place: str, tmp_path: Path) -> None:
    problem, pairs = tmp_path / "problem.yaml", tmp_path / "pairs.csv"
    arguments = ["--count", "5", "--clocks", "-o", str(problem), "--pairs", str(pairs)]
    done = invoke("measure", "-i", place, *arguments)
    assert done.exit_code == 0, done.output
    for title in ("round trips, ms", "capacity, window-join", "clocks"):
        assert title in done.stdout
    assert read_problem(problem).nodes.ids.tolist() == ["one", "two", "three"]
    assert len(list(csv.DictReader(pairs.open()))) == 3
    done = invoke("measure", "-i", place, "-m", "1", "--count", "3", "--on", "source", "--json")
    assert done.exit_code == 0, done.output
    (pair,) = json.loads(done.stdout)["pairs"]
    assert {pair["source"], pair["target"]} == {"two", "three"}
    assert len(pair["udp_ms"]) == 3


def test_strict_measure_says_no(running: list[LoopbackSshd], tmp_path: Path) -> None:
    # Loopback takes no 500 ms.
    asked = write(tmp_path / "far.yaml", running, network={"rtt_ms": 500})
    arguments = ["measure", "-i", str(asked), "-m", "1", "--count", "2"]
    assert invoke(*arguments).exit_code == 0
    done = invoke(*arguments, "--strict")
    assert done.exit_code == 1
    assert "0 of 3 links are within" in done.stdout or "0 of 2 links are within" in done.stdout


def test_links_that_cannot_be_emulated(running: list[LoopbackSshd], tmp_path: Path) -> None:
    from nova_testbed import netem
    from nova_testbed.rack.processes import local_run

    if len(netem.supported(local_run)) == 3:
        pytest.skip("this machine can emulate links; its loopback device is not to be touched")
    asked = write(tmp_path / "far.yaml", running, network={"rtt_ms": 5})
    done = invoke("up", "-i", str(asked))
    assert done.exit_code != 0
    assert "one: cannot emulate its links: its kernel or iproute2 lacks " in done.stderr
    assert "modprobe -a sch_netem" in done.stderr


def test_check_of_hosts(place: str) -> None:
    done = invoke("check", "-i", place)
    assert done.exit_code == 0, done.output
    assert "SSH" in done.stdout and "tar" in done.stdout


@pytest.mark.e2e
def test_stress_starts_and_stops(place: str) -> None:
    if invoke("exec", "-i", place, "--on", "one", "command -v stress-ng").exit_code:
        skip_or_fail("there is no stress-ng; apt-get install stress-ng")
    load = ["--on", "one", "--cpu", "5", "--memory", "0"]
    assert invoke("stress", "-i", place, *load).exit_code == 0
    # Whatever is left running is found by `clean`, without it being told what.
    done = invoke("clean", "-i", place, "--json")
    assert json.loads(done.stdout) == {"removed": ["background jobs of one: 1"]}
    done = invoke("stress", "-i", place, "--stop")
    assert done.stdout == "stopped: nothing; there was none\n"
    done = invoke("stress", "-i", place, *load, "--for", "0.2", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["under load"] == "one"
    assert "nothing" in invoke("stress", "-i", place, "--stop").stdout


def test_ctrl_c_ends_exec_with_130(place: str) -> None:
    process = subprocess.Popen(
        [*NOVA, "testbed", "exec", "-i", place, "--timeout", "60", "echo begun; sleep 333.3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 20
    while len(sleeping()) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.strip() == "nova: error: interrupted"
    assert sleeping() == []


def sleeping() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == b"sleep\x00333.3\x00":
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def test_no_namespaces_is_told_in_one_line() -> None:
    command = [*NOVA, "testbed", "check"]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            skip_or_fail("there is no setpriv; apt-get install util-linux")
        without = "-sys_admin,-net_admin"
        command = ["setpriv", f"--bounding-set={without}", f"--inh-caps={without}", *command]
    done = subprocess.run(command, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    if os.geteuid() and done.returncode == 0:
        return  # sudo does it
    assert done.returncode == 1
    (line,) = errors
    assert line.startswith("nova: error: no virtual rack here: ")


# --- a virtual rack ------------------------------------------------------------------------------


@pytest.fixture
def virtual(tmp_path: Path) -> Iterator[str]:
    need_namespaces()
    content = {
        "inventory": 1,
        "name": f"nova-cli-{os.getpid()}",
        "virtual": True,
        "hosts": [
            {"name": "sink", "role": "sink", "cpu": 0.3},
            {"name": "left", "role": "source", "cpu": 0.1, "memory": "256 MiB"},
            {"name": "right", "role": "source", "cpu": 0.1, "memory": "256 MiB"},
        ],
        "network": {"generate": {"seed": 3}},
        "stress": {"roles": ["source"], "memory_percent": 10},
    }
    path = tmp_path / "rack.yaml"
    path.write_text(yaml.safe_dump(content))
    yield str(path)
    invoke("down", "-i", str(path))


@pytest.mark.e2e
def test_a_virtual_rack_from_up_to_down(virtual: str, tmp_path: Path) -> None:
    assert invoke("status", "-i", virtual).exit_code == 1
    assert "nova testbed up" in invoke("exec", "-i", virtual, "true").stderr
    for _ in range(2):
        done = invoke("up", "-i", virtual)
        assert done.exit_code == 0, done.output
    assert invoke("status", "-i", virtual).exit_code == 0
    assert invoke("check", "-i", virtual).exit_code == 0
    done = invoke("exec", "-i", virtual, "hostname")
    assert done.stdout == "sink   sink\nleft   left\nright  right\n"
    done = invoke("measure", "-i", virtual, "-o", str(tmp_path / "p.yaml"), "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert all(abs(p["median_ms"] - p["asked_ms"]) < 5 for p in told["pairs"])
    cores = {entry["host"]: entry["cores"] for entry in told["capacities"]}
    assert 0.05 < cores["left"] < 0.15
    assert invoke("stress", "-i", virtual).exit_code == 0
    assert invoke("stress", "-i", virtual, "--stop").stdout == "stopped: left, right\n"
    assert invoke("down", "-i", virtual).exit_code == 0
    assert "nothing" in invoke("down", "-i", virtual).stdout
