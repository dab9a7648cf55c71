"""Scripts of bundles: nothing in a plan or an option is run, and nobody else's process is ended."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import skip_or_fail
from nes_plans import nes_plan
from random_plans import random_plan
from random_queries import random_problem, random_query_plan, sources_file

import nova_flink.translate
import nova_nebulastream.translate
import nova_spark.translate
import nova_storm.translate
from nova_core.errors import NovaError, ProblemError
from nova_core.io.validation import is_host, validate_problem
from nova_core.model import Plan
from nova_engines import bundle
from nova_engines.nodes import write_files
from nova_engines.sources import Sources

TRANSLATE = {
    "flink": nova_flink.translate.translate,
    "spark": nova_spark.translate.translate,
    "storm": nova_storm.translate.translate,
    "nebulastream": nova_nebulastream.translate.translate,
}
# What shells would run, out of quotes of either kind as well.
HOSTILE = "a'$(touch ran)`touch ran`\"$(touch ran)\"; touch ran; #'"
PROGRAMS = ("java", "python3", "curl", "nes-cli", "nes-single-node-worker")


def texts(values: Any) -> Any:
    """Names that are as hostile as names can be, and differ."""
    return np.array([f"{HOSTILE} {one}" for one in values.tolist()])


def hostile(plan: Plan) -> Plan:
    """A plan with other names; its nodes have hosts."""
    p = plan.problem
    hosts = np.array([f"127.9.0.{i}" for i in range(1, len(p.nodes) + 1)])
    problem = replace(
        p,
        nodes=replace(p.nodes, ids=texts(p.nodes.ids), host=hosts),
        sources=replace(p.sources, ids=texts(p.sources.ids)),
        joins=replace(p.joins, ids=texts(p.joins.ids)),
    )
    validate_problem(problem)
    return replace(plan, problem=problem)


def stubs(directory: Path) -> dict[str, str]:
    """An environment in which programs of engines note that they were called, and do nothing."""
    directory.mkdir()
    for name in PROGRAMS:
        (directory / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {directory}/called\n')
        (directory / name).chmod(0o755)
    return {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}


OPTIONS: dict[str, dict[str, str]] = {
    "flink": {"home": "/opt/{}", "work": "{work}/{}", "results": "/r/{}"},
    "spark": {"spark_home": "/opt/{}", "python": "/usr/bin/{}", "work": "{work}/{}"},
    "storm": {"home": "/opt/{}", "work": "{work}/{}", "results": "/r/{}", "name": "{}"},
    "nebulastream": {},
}


@pytest.mark.parametrize("engine", TRANSLATE)
def test_scripts_run_nothing_of_a_hostile_plan(tmp_path: Path, engine: str) -> None:
    plan = hostile(nes_plan(0) if engine == "nebulastream" else random_plan(2, nodes=3, regions=1))
    # A path that goes with the text would have to be there.
    text = HOSTILE.replace("/", "")
    options = {
        name: value.replace("{work}", str(tmp_path)).replace("{}", text)
        for name, value in OPTIONS[engine].items()
    }
    made = tmp_path / "made"
    environment = stubs(tmp_path / "stubs")
    TRANSLATE[engine](plan, plan.problem, made, **options)
    # Those that end what others start come last.
    scripts = sorted(made.rglob("*.sh"), key=lambda path: (path.name == "stop.sh", path))
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
        where = tmp_path / "where"
        where.mkdir(exist_ok=True)
        subprocess.run(
            [script], cwd=where, env=environment, capture_output=True, timeout=5, check=False
        )
    ran = [path for path in tmp_path.rglob("*") if path.name == "ran" or path.name.endswith(" ran")]
    assert ran == []
    assert not list(Path("/").glob("ran"))
    assert len(scripts) >= 4
    if engine in ("flink", "storm"):
        # They came as far as the program that they are for.
        assert "java" in (tmp_path / "stubs" / "called").read_text()


@pytest.mark.parametrize("engine", TRANSLATE)
def test_hosts_that_are_none_are_refused(tmp_path: Path, engine: str) -> None:
    plan = nes_plan(0) if engine == "nebulastream" else random_plan(2, nodes=3, regions=1)
    for host in ("$(touch /tmp/x)", "a b", "-oProxyCommand=x", "../../x", "a\nb"):
        nodes = replace(plan.problem.nodes, host=np.full(len(plan.problem.nodes), host))
        problem = replace(plan.problem, nodes=nodes)
        with pytest.raises(ProblemError, match=r"nodes\[0\]\.host: .* is no"):
            validate_problem(problem)
        with pytest.raises(NovaError, match="no host name or IP address"):
            TRANSLATE[engine](replace(plan, problem=problem), problem, tmp_path / "out")
    # Nodes without a host are reached by their names.
    ids = np.array([f"{HOSTILE}{i}" for i in range(len(plan.problem.nodes))])
    nodes = replace(plan.problem.nodes, ids=ids, host=None)
    problem = replace(plan.problem, nodes=nodes)
    with pytest.raises(NovaError, match="its name is no host name or IP address; give the node"):
        TRANSLATE[engine](replace(plan, problem=problem), problem, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_hosts() -> None:
    good = ["a", "A-1.b.c.", "10.0.0.1", "::1", "fd00::1:2", "my_host", "x" * 253]
    assert [one for one in good if not is_host(one)] == []
    bad = ["", "-a", "a b", "a;b", "$(x)", "a/b", "[::1]", "fe80::1%eth0", "x" * 254, "ä", "a\n"]
    assert [one for one in bad if is_host(one)] == []


@pytest.mark.parametrize("engine", ["flink", "spark", "storm"])
def test_a_bundle_of_queries_carries_their_readings(tmp_path: Path, engine: str) -> None:
    problem = random_problem(11, tmp_path)
    hosts = np.array([f"127.9.0.{i}" for i in range(1, len(problem.nodes) + 1)])
    problem = replace(problem, nodes=replace(problem.nodes, host=hosts))
    plan, made = random_query_plan(11, problem), tmp_path / "made"
    file = sources_file(tmp_path / "problem.yaml", tmp_path)
    with pytest.raises(NovaError, match="holds whole queries: give their readings, sources=FILE"):
        TRANSLATE[engine](plan, problem, made)
    with pytest.raises(NovaError, match="window_ms, keys, every: whole queries say themselves"):
        TRANSLATE[engine](plan, problem, made, sources=file, window_ms="5")
    pairs = random_plan(2, nodes=3, regions=1)
    with pytest.raises(NovaError, match="has readings, which joins of pairs do not take"):
        TRANSLATE[engine](pairs, pairs.problem, made, sources=file)
    TRANSLATE[engine](plan, problem, made, sources=file)
    given, sent = Sources.read(file), Sources.read(made / "job" / "sources.json")
    assert [one.encoded() for one in sent.sources] == [one.encoded() for one in given.sources]
    assert all(Path(str(one.path)).is_relative_to(made / "job") for one in sent.sources)
    assert given.with_paths({one.source: str(one.path) for one in sent.sources}) == sent
    about = (made / "README.md").read_text()
    assert "nova query reference" in about
    assert ("a Java compiler (JDK)" in about) == (engine == "spark")
    with pytest.raises(NovaError, match="count: readings end with their files"):
        replace(given, count=5)


@pytest.mark.parametrize("engine", ["flink"])
def test_queries_may_read_a_broker_without_a_file(tmp_path: Path, engine: str) -> None:
    problem = random_problem(11, tmp_path)
    hosts = np.array([f"127.9.0.{i}" for i in range(1, len(problem.nodes) + 1)])
    problem = replace(problem, nodes=replace(problem.nodes, host=hosts))
    plan, made = random_query_plan(11, problem), tmp_path / "made"
    TRANSLATE[engine](plan, problem, made, kafka="broker:9092")
    sources = Sources.read(made / "job" / "sources.json")
    assert {one.source: (one.kind, one.topic) for one in sources.sources} == {
        str(one): ("kafka", str(stream))
        for one, stream in zip(problem.sources.ids, problem.sources.stream, strict=True)
    }
    assert sources.of_readings
    assert "event time (int64, ms)," in (made / "README.md").read_text()


@pytest.mark.parametrize("engine", ["flink", "spark", "storm"])
def test_lines_in_options_are_refused(tmp_path: Path, engine: str) -> None:
    plan = random_plan(2, nodes=3, regions=1)
    name = "name" if engine == "storm" else "work"
    with pytest.raises(NovaError, match=f"option {name}: .*expected text without control"):
        TRANSLATE[engine](plan, plan.problem, tmp_path / "out", **{name: "/a\ntouch ran"})
    with pytest.raises(NovaError, match=f"option {name}: nothing is given"):
        TRANSLATE[engine](plan, plan.problem, tmp_path / "out", **{name: ""})


# --- starting and ending ------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """A host's directory, with scripts of two processes beside it; what they started is ended."""
    made = tmp_path / "work dir"
    processes = {"first": "exec sleep 1000", "second": "sleep 1000; true"}
    write_files(bundle.process_scripts("things", str(made), processes), tmp_path / "node")
    yield made
    for name in processes:
        pid = pid_of(made, name)
        if pid and alive(pid):
            os.kill(pid, signal.SIGKILL)


def pid_of(work: Path, name: str) -> int:
    file = work / f"{name}.pid"
    return int(file.read_text().split()[0]) if file.is_file() else 0


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]
    except OSError:
        return False
    return not state.startswith("Z")


def script(work: Path, name: str, code: int = 0) -> str:
    done = subprocess.run(
        [work.parent / "node" / f"{name}.sh"], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stderr


def test_what_was_started_is_ended(work: Path) -> None:
    assert script(work, "start") == ""
    first, second = pid_of(work, "first"), pid_of(work, "second")
    assert alive(first) and alive(second) and first != second
    assert work.stat().st_mode & 0o777 == 0o700
    script(work, "stop")
    assert not alive(first) and not alive(second)
    assert sorted(path.name for path in work.iterdir()) == ["log"]
    # There is nothing to end, and it can be started again.
    assert script(work, "stop") == ""
    script(work, "start")
    assert alive(pid_of(work, "first"))
    script(work, "stop")


def test_a_second_start_does_not_lose_the_first(work: Path) -> None:
    script(work, "start")
    first, second = pid_of(work, "first"), pid_of(work, "second")
    os.kill(second, signal.SIGKILL)
    told = script(work, "start")
    assert f"first runs already, process {first}" in told and "second" not in told
    assert pid_of(work, "first") == first
    again = pid_of(work, "second")
    assert again != second and alive(again)
    script(work, "stop")
    assert not alive(first) and not alive(again)


@pytest.mark.parametrize("same_begin", [True, False])
def test_the_process_of_another_is_left_alone(work: Path, same_begin: bool) -> None:
    work.mkdir(mode=0o700)
    other = subprocess.Popen(["sleep", "1000"])
    try:
        begun = Path(f"/proc/{other.pid}/stat").read_text().rpartition(") ")[2].split()[19]
        (work / "first.pid").write_text(f"{other.pid} {begun if same_begin else '1'}\n")
        (work / "second.pid").write_text(f"{other.pid}\n")
        script(work, "stop")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert not (work / "first.pid").exists()


@pytest.mark.parametrize("text", ["", "x", "-1 1", "1 1", "../1 1", "$(touch ran) 1", "99999999 7"])
def test_files_that_name_no_process(work: Path, text: str) -> None:
    work.mkdir(mode=0o700)
    (work / "first.pid").write_text(text)
    script(work, "stop")
    assert not list(work.parent.rglob("ran"))
    script(work, "start")
    assert alive(pid_of(work, "first"))
    script(work, "stop")


def test_a_directory_that_others_can_write_to_is_refused(work: Path) -> None:
    work.mkdir()
    work.chmod(0o777)
    told = script(work, "start", code=1)
    assert re.search("work dir: belongs to someone else, or others can write to it", told)
    assert list(work.iterdir()) == []
    work.rmdir()
    work.symlink_to("/root")
    assert "belongs to someone else" in script(work, "start", code=1)
    work.unlink()


def test_a_directory_of_someone_else_is_refused(work: Path) -> None:
    if os.geteuid() != 0:
        skip_or_fail("giving a directory to another user needs root")
    work.mkdir(mode=0o700)
    os.chown(work, 65534, 65534)
    assert "belongs to someone else" in script(work, "start", code=1)


@pytest.mark.parametrize(
    "modules", [nova_flink.translate.MODULES, nova_spark.translate.MODULES], ids=["flink", "spark"]
)
def test_a_job_has_all_modules_that_its_own_import(modules: dict[str, tuple[str, ...]]) -> None:
    there = {f"{package}.{name}" for package, names in modules.items() for name in names}
    wanted = set()
    for module in there:
        spec = find_spec(module.removesuffix(".__init__"))
        assert spec is not None and spec.origin is not None
        # What types alone need, and what is imported where it is used, is below other statements.
        for statement in ast.parse(Path(spec.origin).read_text()).body:
            if isinstance(statement, ast.ImportFrom) and str(statement.module).startswith("nova_"):
                names = [f"{statement.module}.{alias.name}" for alias in statement.names]
                wanted |= set(filter(_is_module, names)) or {str(statement.module)}
    assert wanted <= there


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
