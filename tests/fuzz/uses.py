"""The table of what is attacked: a valid use of every command that reads something.

`test_fuzz.py` holds it against the command line itself: a command, or an option that takes a file,
is here or in `LEFT_OUT` with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True)
class Use:
    """A valid use of a command.

    Attributes:
        line: the command and its arguments; ``{NAME}`` is a file of the material, ``{PORT}`` and
            ``{CASE}`` are the local web server's port and this input's folder on it.
        then: lines that must not answer 2 when the command succeeded, on what it wrote.
        codes: exit codes of the valid use.
        function: run in place of a command, on the input's folder; ``line`` says what that is.
        slow: takes tens of seconds at best; left out unless asked for.
    """

    line: str
    then: tuple[str, ...] = ()
    codes: tuple[int, ...] = (0,)
    function: Callable[[Path], int] | None = None
    slow: bool = False

    @property
    def words(self) -> list[str]:
        """The command line word by word."""
        return self.line.split()

    @property
    def files(self) -> list[str]:
        """Names of the material it reads."""
        return [name for name in PLACEHOLDER.findall(self.line) if name not in ("PORT", "CASE")]


# Documents whose reader refuses every field it does not know, and the schema that tells more.
STRICT: Mapping[str, str] = {
    "problem.yaml": "problem",
    "problem.json": "problem",
    "measured.yaml": "problem",
    "pairs.yaml": "problem",
    "plan.json": "plan",
    "plan.yaml": "plan",
    "queries.yaml": "problem",
    "query-plan.json": "plan",
    "inventory.yaml": "",
    "experiment.yaml": "",
    "jobs.yaml": "",
    "hosts.yaml": "",
    "disturbances.yaml": "",
    "requests": "",
    "strategies": "",
    "plug-in": "",
    "model.npz": "",
}

CHECK = "check out.json -p {problem.yaml} --accept"
P = "-p {problem.yaml}"
WEB = "http://127.0.0.1:{PORT}/{CASE}/{web}"
FETCH = "--from 2025-01-01 --retries 0 --per-second 1000"
REFERENCE = "workload reference {readings.csv} --window 10 --rate 10 --count 20"


# That a job of the service may take.
JOB_SECONDS = 8.0
# How the service shows an exception that is no error of Nova's.
UNFORESEEN = re.compile(r"\w+\(")
JSON = {"content-type": "application/json"}


def service_requests(folder: Path) -> int:
    """Send the requests of a directory to the service; 0 where all are followed, else 2."""
    import json

    from starlette.testclient import TestClient

    from nova_core.service.application import application
    from nova_core.service.settings import Settings
    from nova_core.service.store import Store

    refused = 0
    (folder / "state").mkdir()
    app = application(Store(Settings(folder / "state", limit=2**20, job_seconds=JOB_SECONDS)))
    files = sorted(folder.glob("*/*.request"), key=lambda path: int(path.stem))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        for file in files:
            head, _, body = file.read_bytes().partition(b"\n")
            method, _, path = head.decode("ascii", "replace").partition(" ")
            if (
                not path.startswith("/")
                or not path.isprintable()
                or method not in ("GET", "POST", "PUT", "DELETE")
            ):
                continue
            answer = client.request(method, path, content=body, headers=JSON)
            assert answer.status_code < 500, (answer.status_code, answer.text[:500])
            assert "a fault of the service" not in answer.text, answer.text[:500]
            if answer.status_code < 300 and method == "GET":
                json.loads(answer.content)
            if answer.status_code >= 400:
                click.echo(f"nova: error: {method} {path}: {answer.text[:300]}", err=True)
                refused += 1
    return 2 if refused else 0


def service_directory(folder: Path) -> int:
    """Start the service on what it kept, and read all of it; 2 where something is set aside."""
    from starlette.testclient import TestClient

    from nova_core.service.application import application
    from nova_core.service.settings import Settings
    from nova_core.service.store import Store

    store = Store(Settings(folder / "service", limit=2**20))
    unforeseen = [why for why in store.damaged.values() if UNFORESEEN.match(why)]
    assert not unforeseen, unforeseen
    refused = 0
    with TestClient(application(store), base_url="http://127.0.0.1") as client:
        for path in ("health", "problems", "placements", "placements/field",
                     "placements/field/plan", "placements/field/problem",
                     "placements/field/deltas"):  # fmt: skip
            answer = client.get(f"/{path}")
            if path == "health":
                aside = answer.json()["damaged"]
            expected = 503 if aside and path.startswith("placements/") else 499
            assert answer.status_code <= expected, (path, answer.status_code, answer.text[:500])
            if answer.status_code >= 400:
                click.echo(f"nova: error: {path}: {answer.text[:300]}", err=True)
                refused += 1
    return 2 if refused else 0


def service_jobs(folder: Path) -> int:
    """Read a file of jobs as the service does; none of them is started."""
    from nova_harness.service.jobs import jobs

    return 0 if jobs(folder / "jobs.yaml", folder / "state").routes() else 2


USES: tuple[Use, ...] = (
    Use("plan {problem.yaml} --no-baselines -o out.json", (CHECK,)),
    Use("plan {problem.json} -o out.yaml"),
    Use("plan {measured.yaml} --no-baselines -o out", ("check out -p {measured.yaml} --accept",)),
    Use("plan {pairs.yaml} --no-baselines"),
    Use("plan {tables} --no-baselines -o out.json", ("check out.json -p {tables} --accept",)),
    Use("plan {instance} --capacity capacity_1 --strategy tree --no-baselines -o out.json"),
    Use("check {plan.json} -p {problem.yaml}"),
    Use("check {plan.yaml} -p {problem.yaml}"),
    Use("check {plan-tables} -p {problem.yaml}"),
    Use("explain {plan.json} -p {problem.yaml}"),
    Use("predict {plan.json} -p {problem.yaml} --model {model.npz}"),
    Use("predict {query-plan.json} -p {queries.yaml} --model {model.npz} --json"),
    Use("plan {queries.yaml} --strategy costream --set candidates=9 --set model={model.npz}"),
    Use("plot {plan.json} -p {problem.yaml} -o out.svg"),
    Use("plot {measured.yaml} -o out.svg"),
    Use("diff {plan.json} {plan.yaml} -p {problem.yaml}"),
    Use("replan {problem.yaml} {plan.json} {events.jsonl} -o out.json --problem-output new.json",
        ("check out.json -p new.json --accept",)),
    Use("live {problem.yaml} {plan.json} --events {events.jsonl}"),
    Use("live {problem.yaml} {plan.json} --events {events.jsonl} --journal {journal}",
        codes=(1,)),
    Use("plan {queries.yaml} -o out.json", ("check out.json -p {queries.yaml}",)),
    Use("check {query-plan.json} -p {queries.yaml}"),
    Use("explain {query-plan.json} --join mean -p {queries.yaml}"),
    Use("query reorder {queries.yaml} -o reordered.yaml", ("plan reordered.yaml",)),
    Use("diff {query-plan.json} {query-plan.json} -p {queries.yaml}"),
    Use("compare {queries.yaml} sink source --model {model.npz}"),
    Use("learn evaluate {model.npz} {traces.parquet} --all"),
    # So few traces are not balanced.
    Use("corpus check {traces.parquet} --json", codes=(1,)),
    Use("corpus merge {traces.parquet} -o out.parquet"),
    Use("learn fit {traces.parquet} --evaluations 1 -o constants.json", slow=True),
    Use("compare {problem.yaml} nova sink tree --bound"),
    # It may ask for any amount of work, but not for more time.
    Use("pareto {problem.yaml} --steps 2 --limit 10"),
    Use("topology embed {matrix.csv} -o out.csv --metric load=1:{metric.csv}",
        ("topology error out.csv {matrix.csv}",)),
    Use("topology embed {pairs.parquet} -o out.csv --method vivaldi"),
    Use("topology embed {measured.yaml} -o out.json", ("plot out.json -o out.svg",)),
    Use("topology measure {matrix.csv.gz}"),
    Use("topology import {edges.txt} -o out.csv"),
    Use("topology import {topology.graphml} -o out.csv"),
    Use("topology import {topology.json} -o out.csv --links"),
    Use("topology measure {matrix.parquet}"),
    Use("topology measure {pairs.csv}"),
    Use("topology error {space.csv} {matrix.arrow}"),
    Use("topology plot {space.csv} {pairs.csv} -o out.svg"),
    *(Use(f"translate {{plan.json}} {P} --engine {engine} -o out")
      for engine in ("flink", "storm", "spark", "nebulastream")),
    Use(f"translate {{plan.json}} {P} --engine flink -o out --set sources={{sources.json}}"),
    Use("bench kernels --sizes 100 --repeat 1 --instances {instance}", slow=True),
    Use("bench guard --against no-such-commit --sizes 200", codes=(2,)),
    Use("bench live --sizes 200 --events 10", slow=True),
    Use("bench live --sizes 200 --events 10 --queries", slow=True),
    Use(f"data fetch sensor-community out --everything --url {WEB} {FETCH}"),
    Use(f"data fetch ripe-atlas out --measurement 7 --url {WEB} {FETCH}"),
    Use("data synth out --sensors 4 --regions 1"),
    Use("experiment cells {experiment.yaml} -i {inventory.yaml} --data {readings.parquet}"),
    Use("cluster deploy {plan.json} -p {problem.yaml} -i {inventory.yaml} --sources "
        "{sources.json}", codes=(2,)),
    *(Use(f"nebulastream {command} .", codes=(2,)) for command in ("check", "verify", "stop")),
    Use("nebulastream start . --replace .", codes=(2,)),
    Use("cluster verify 00 -i {inventory.yaml} --plan {plan.json} -p {problem.yaml}", codes=(2,)),
    Use("cluster deploy {query-plan.json} -p {queries.yaml} -i {inventory.yaml} --readings "
        "{archive} --check", codes=(2,)),
    Use("cluster verify {record.json} -e spark --at record --plan {plan.json} -p {problem.yaml}",
        codes=(2,)),
    Use("cluster verify x -e storm --plan {plan.json} -p {problem.yaml} --at 127.0.0.1:9",
        codes=(2,), slow=True),
    Use("place x --plan {query-plan.json} -p {queries.yaml} --at 127.0.0.1:9", codes=(2,),
        slow=True),
    Use("observe x {queries.yaml} --rest 127.0.0.1:9 -o out.json", codes=(2,)),
    Use("flink move x {query-plan.json} --rest 127.0.0.1:9 -- true", codes=(2,)),
    Use("flink taskmanagers {problem.yaml} -o out"),
    Use("generate --nodes 20 -o out.yaml", ("plot out.yaml -o out.svg",)),
    Use("scale embed {problem.yaml} -o out", codes=(2,)),
    Use("scale plan {problem.yaml} -o out", codes=(2,)),
    Use(f"scale check {{plan.json}} {P}", codes=(2,)),
    Use("scale embed {scale-pairs} -o out --master local[1]", slow=True),
    Use("scale plan {scale} -o out --master local[1]", ("check out -p {scale} --accept",),
        slow=True),
    Use("scale check {scale-plan} -p {scale} --master local[1]", slow=True),
    Use("report {run} -o out.html", slow=True),
    Use("reproduce fig10 --parameters {fig10.yaml} --strategy nova -o out", slow=True),
    Use("reproduce fig6 --parameters {fig6.yaml} --strategy nova -o out", slow=True),
    Use("testbed check -i {inventory.yaml}", codes=(0, 1)),
    Use("control script -i {inventory.yaml} --for 100 -o out.yaml"),
    Use("testbed status -i {inventory.yaml}", codes=(0, 1)),
    # Of real hosts.
    Use("testbed check -i {hosts.yaml}", codes=(0, 1)),
    Use("testbed status -i {hosts.yaml} --json"),
    Use("testbed measure -i {hosts.yaml} --count 2 --clocks -o out.yaml"),
    Use("testbed exec -i {hosts.yaml} true"),
    # No rack is up.
    Use("control run {problem.yaml} {plan.json} -i {inventory.yaml} --disturb {disturbances.yaml}"
        " --sources {sources.json}", codes=(2,)),
    Use("control run {queries.yaml} {query-plan.json} -i {inventory.yaml} --readings {archive}",
        codes=(2,)),
    Use("workload build --sensors {prepared} --topology {topology.csv} --sink cloud -o out.yaml "
        "--nodes-of {nodes-of.csv}", ("plot out.yaml -o out.svg",)),
    Use("workload build --sensors {prepared} --topology {problem.yaml} --sink desk -o out "
        "--latencies {room-pairs.csv} --nodes-of {nodes-of-rooms.csv}", codes=(0, 2)),
    Use("workload debs -o out.yaml --sql out.sql", ("plot out.yaml -o out.svg",)),
    Use("workload replay {readings.csv} --unpaced --to out.csv", (
        "workload replay out.csv --unpaced --to again.csv",)),
    Use("workload replay {readings.parquet} --unpaced --to out.csv"),
    Use("workload replay {bmp280_four.csv} --unpaced --to out.jsonl --format json"),
    Use("workload replay --synthetic 4 --rate 100 --count 3 --unpaced --to out.csv --plan "
        "{debs-plan.json} --problem {debs.yaml}"),
    *(Use(f"{REFERENCE} --check {{results.{suffix}}}") for suffix in ("csv", "parquet", "jsonl")),
    Use("workload reference {readings.parquet} --window 10 -o out.parquet"),
    Use("workload reference --synthetic 8 --rate 100 --count 3 --window 10 --problem {debs.yaml}"),
    Use("serve {requests}", function=service_requests),
    Use("serve {strategies}", function=service_requests),
    Use("serve {plug-in}", function=service_requests),
    Use("serve {service}", function=service_directory),
    Use("serve state --jobs {jobs.yaml}", function=service_jobs),
    Use("workload prepare {archive} -o out --regions {regions.geojson} --master local[1]",
        slow=True),
    Use("workload latency {atlas.jsonl} {matrix.csv} -o out.parquet --master local[1]", slow=True),
)  # fmt: skip

# Commands that are not attacked, and why.
LEFT_OUT = {
    "query estimate": "not attacked yet: the material has no readings of queries",
    "query reference": "not attacked yet: the material has no readings of queries",
    "query sources": "not attacked yet: the material has no readings of queries",
    "corpus run": "drives an engine; what it reads, testbed check and corpus check read",
    "corpus compare": "of traces, it reads what corpus check reads",
    "corpus simulate": "reads nothing but what it has written",
    "learn train": "takes minutes; what it reads, learn evaluate reads",
    "learn validate": "takes minutes; what it reads, learn evaluate reads",
    "setup": "installs; reads nothing",
    "scale generate": "starts Spark; reads nothing",
    "engines install": "downloads; reads nothing",
    "engines list": "reads nothing",
    "engines path": "reads nothing",
    "tour": "reads nothing",
    "demo": "brings hosts up and takes a quarter of an hour; what it reads, experiment cells reads",
    "experiment calibrate": "drives an engine; what it reads, experiment cells reads",
    "experiment run": "drives an engine; what it reads, experiment cells reads",
    "control pause": "reads nothing",
    "control resume": "reads nothing",
    "cluster up": "brings a cluster up; what it reads, testbed check reads",
    "cluster down": "takes a cluster down; what it reads, testbed check reads",
    "cluster status": "what it reads, cluster verify reads",
    "cluster stop": "ends jobs; what it reads, cluster verify reads",
    "testbed up": "brings hosts up as root; what it reads, testbed check reads",
    "testbed down": "takes hosts down as root; what it reads, testbed check reads",
    "testbed clean": "takes hosts down as root; what it reads, testbed check reads",
    "testbed ssh": "runs commands; what it reads, testbed check reads",
    "testbed stress": "loads hosts; what it reads, testbed check reads",
    "reproduce all": "takes minutes; reads as the figures",
    "reproduce costream": "takes an hour; of traces, it reads what learn evaluate reads",
    "reproduce fig7": "takes minutes; reads as reproduce fig6",
    "reproduce fig7-readings": "reads the published instances alone",
    "reproduce fig8": "takes minutes; reads as reproduce fig10",
    "reproduce fig9": "takes minutes; reads as reproduce fig10",
    "reproduce sbon": "takes minutes; reads as reproduce fig10",
    "reproduce sbon-migration": "takes minutes; reads as reproduce fig10",
    "reproduce whitewater-examples": "reads nothing",
    "reproduce whitewater": "takes minutes; reads as reproduce fig10",
    "schema": "reads nothing",
    "completion": "reads nothing",
}
# Options that take a file which is only written, or a directory of the public measurements.
NOT_READ = {
    "output", "problem_output", "spark_log", "pairs", "sql", "target", "directory", "token_file",
    "data", "plot", "savepoints", "state", "results",
}  # fmt: skip


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command of the command line, by its words."""
    from nova_core.cli import cli

    yield from _commands(cli, "", None)


def _commands(
    command: click.Command, name: str, above: click.Context | None
) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command, info_name=name, parent=above)
    for word in command.list_commands(context):
        below = command.get_command(context, word)
        assert below is not None
        yield from _commands(below, f"{name} {word}".strip(), context)


def command_of(use: Use, known: Mapping[str, click.Command]) -> str:
    """The name of the command that a line uses."""
    found = [name for name in known if f"{use.line} ".startswith(f"{name} ")]
    return max(found, key=len)


def attackable(command: click.Command) -> list[click.Option]:
    """Options of a command that take a number or a text."""
    return [
        option
        for option in command.params
        if isinstance(option, click.Option)
        and not option.is_flag
        and not isinstance(option.type, (click.Path, click.Choice))
        and option.name not in NOT_READ
        and option.nargs == 1
    ]


def is_number(option: click.Option) -> bool:
    """Whether an option takes a number."""
    kinds: tuple[Any, ...] = (click.types.IntParamType, click.types.FloatParamType)
    return isinstance(option.type, kinds)
