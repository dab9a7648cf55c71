"""The commands ``nova cluster ...``: an engine on the hosts of a test bed, and plans on it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from nova_core import console, paths
from nova_core.choices import LazyChoice
from nova_core.commands import shared
from nova_core.errors import NovaError
from nova_core.numbers import NumberRange, at_least
from nova_engines.names import OWN_JOBS
from nova_engines.sources import REPLAY
from nova_harness.engines.base import require, runner
from nova_testbed.commands import shared as testbed

if TYPE_CHECKING:
    from nova_core.model.problem import Problem
    from nova_engines.flow import Flow, Match
    from nova_engines.sources import Sources
    from nova_engines.verification import Verification
    from nova_harness.engines.base import Cluster, Engine, Job
    from nova_harness.experiment.limits import Limits
    from nova_workloads.queries.replayed import ReplayedReadings

JOB_NAME = f"{OWN_JOBS}plan"
engine_option = click.option(
    "--engine",
    "-e",
    "name",
    type=LazyChoice("nova_harness.engines.base:names"),
    envvar="NOVA_ENGINE",
    default="flink",
    show_default=True,
    show_envvar=True,
)
at_option = click.option(
    "--at",
    metavar="ADDRESS",
    help="A cluster that Nova did not start, in place of an inventory's: the URL of Flink's REST "
    "interface, nimbus' HOST[:PORT], or for Spark 'record', where JOB is the file that the job "
    "keeps.",
)
# Where tuples of pairs come from and which match, see `sources_for`.
PAIR_OPTIONS = (
    click.option(
        "--sources",
        "file",
        type=paths.INPUT,
        help="What sources emit, as written by `nova translate`; they begin anew [default: made-up "
        "readings at the problem's rates].",
    ),
    click.option(
        "--window", type=click.IntRange(1, 1000), default=100, show_default=True, help="ms."
    ),
    click.option(
        "--keys",
        type=at_least(1),
        help="Match sequence numbers modulo this as well [default: one result per tuple].",
    ),
)
flow_options = shared.together("flow", dict, *PAIR_OPTIONS)
# What sources of queries with columns replay.
READINGS_OPTIONS = (
    click.option(
        "--readings",
        type=paths.InputPath(exists=True, file_okay=False),
        metavar="DIR",
        help="Of a plan of queries: SOURCE.csv or .parquet for every source, as `nova query "
        "reference` reads them.",
    ),
    click.option(
        "--speed",
        type=NumberRange(min=0),
        default=1.0,
        show_default=True,
        help="ms of readings' time per ms; 0 is as fast as they are taken.",
    ),
)
query_options = shared.together(
    "query",
    dict,
    *READINGS_OPTIONS,
    click.option(
        "--check",
        is_flag=True,
        help="Wait for the end of the readings, and compare what the queries delivered with "
        "what `nova query reference` says.",
    ),
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cluster() -> None:
    """Run plans with an engine on the hosts of a test bed, and verify where they run."""


@cluster.command()
@engine_option
@testbed.inventory_option
@testbed.json_option
def up(name: str, place: str, as_json: bool) -> None:
    """Bring the engine up on the hosts; one that runs with the same configuration is used."""
    with on_hosts(name, place, prepare=True) as (engine, limits):
        begin = time.monotonic()
        with limits.off():
            engine.up(console.say)
            engine.close()
        answer = {
            "address": engine.address,
            "hosts": len(engine.deployment.hosts),
            "found": engine.deployment.reused,
            "seconds": round(time.monotonic() - begin, 1),
        }
    testbed.say(answer, as_json)


@cluster.command()
@click.argument("plan", type=paths.INPUT)
@shared.problem_option
@engine_option
@testbed.inventory_option
@flow_options
@click.option(
    "--for",
    "seconds",
    type=NumberRange(min=0, min_open=True),
    metavar="SECONDS",
    help="End the job after this time [default: never].",
)
@query_options
@testbed.json_option
def deploy(
    plan: Path,
    problem: Path,
    name: str,
    place: str,
    flow: dict[str, Any],
    seconds: float | None,
    query: dict[str, Any],
    as_json: bool,
) -> None:
    """Run PLAN on the hosts, in place of the plan that runs there.

    The engine is brought up unless it runs; jobs that Nova did not start keep running. Exit code 1
    when an operator is not where the plan has it, or a query's results are not the expected ones.
    """
    import msgspec

    from nova_engines.flow_of_plan import flow_of
    from nova_harness.engines.base import await_end

    with tempfile.TemporaryDirectory(prefix="nova-readings-") as scratch:
        answered = shared.load_problem(problem, None)
        decided = shared.load_plan(plan, answered)
        if query["check"] and not answered.queries:
            raise NovaError("--check: is for plans of queries with columns")
        if seconds is not None and answered.queries:
            raise NovaError("--for: is for plans of joins of pairs")
        sources, match, replay = what_flows(answered, flow, seconds, query, Path(scratch))
        runs = flow_of(decided, match)
        # Refused before anything is started.
        require(name, {one.kind for one in runs.operators}, sources(0).kinds)
        with on_hosts(name, place, prepare=True) as (engine, limits):
            with limits.off():
                job, replaced = _started(engine, runs, sources)
            # Before any wait: the job keeps running when the wait is interrupted.
            _remember(name, engine, job.name, job.document)
            verification = job.verify()
            compared = {}
            if replay is not None and query["check"]:
                console.say("waiting for the end of the readings")
                await_end(job)
                came = job.results(Path(scratch))
                if (loss := came.loss(finished=True)) is not None:
                    raise NovaError(loss)
                rows: Any = came.records
                compared = replay.compare(rows)
            results = engine.deployment.result_file("results")
    answer: dict[str, Any] = {"job": job.name, "address": engine.address, "replaced": replaced}
    answer["results"] = results
    if query["check"]:
        answer["queries"] = {
            one: {"ok": it.ok, **msgspec.to_builtins(it)} for one, it in compared.items()
        }
    wrong = [one for one, it in compared.items() if not it.ok]
    for one, it in compared.items():
        console.say(
            f"{one}: {it.delivered:,} results came: {it.lost:,} lost, {it.duplicated:,} twice, "
            f"{it.wrong:,} wrong"
        )
    _show(verification, answer, as_json, ok=not wrong)


class Flowing(NamedTuple):
    """What flows through a plan.

    Attributes:
        sources: by their start time, ms since the epoch.
        match: which tuples of pairs match; None of queries.
        replayed: readings of queries; None of pairs.
    """

    sources: Callable[[int], Sources]
    match: Match | None
    replayed: ReplayedReadings | None


def what_flows(
    problem: Problem,
    flow: Mapping[str, Any],
    seconds: float | None,
    query: Mapping[str, Any],
    scratch: Path,
) -> Flowing:
    """What sources of a problem emit.

    Args:
        problem: of pairs or of queries.
        flow: values of `PAIR_OPTIONS`.
        seconds: for how long, of pairs; None is without end.
        query: values of `READINGS_OPTIONS`.
        scratch: directory for encoded readings, which must exist while jobs are submitted.

    Raises:
        NovaError: for options that belong to the other kind of problem, or are missing.
    """
    from nova_workloads.queries.replayed import ReplayedReadings

    if not problem.queries:
        if query["readings"] is not None:
            raise NovaError("--readings: are for plans of queries with columns")
        return Flowing(*sources_for(problem, **flow, seconds=seconds), None)
    if query["readings"] is None:
        raise NovaError("--readings is missing: sources of queries with columns replay readings")
    if flow["file"] is not None or flow["keys"] is not None:
        raise NovaError("--sources, --keys: are for plans of joins of pairs")
    replay = ReplayedReadings(problem, query["readings"], scratch, query["speed"])
    return Flowing(replay.from_time, None, replay)


def _started(
    engine: Engine, flow: Flow, sources: Callable[[int], Sources]
) -> tuple[Job, list[str]]:
    """A job that runs, and those that ran before."""
    engine.up(console.say)
    try:
        replaced = [job for job in _running_jobs(engine) if engine.stop(job)]
        refuse_unknown(flow, engine)
        job = engine.start(flow, sources, JOB_NAME)
        job.await_running()
    finally:
        engine.close()
    return job, replaced


@cluster.command()
@click.argument("job")
@engine_option
@testbed.inventory_option
@at_option
@click.option("--plan", type=paths.INPUT, help="For a job that was not deployed from here.")
@click.option("--problem", "-p", type=paths.INPUT, help="The problem that plan answers.")
@click.option(
    "--rest",
    metavar="URL",
    help="Of a Flink cluster, for a job of one's own that Nova's plug-in has pinned (JOB is its id "
    "or name); the job itself has its plan.",
)
@testbed.json_option
def verify(
    job: str,
    name: str,
    place: str,
    at: str | None,
    plan: Path | None,
    problem: Path | None,
    rest: str | None,
    as_json: bool,
) -> None:
    """Compare where each operator of JOB runs with its plan.

    Exit code 1 when one is elsewhere, or the job neither runs nor has finished.
    """
    if rest is not None:
        if plan is not None or problem is not None or at is not None:
            raise NovaError("--rest: goes without --at, --plan and --problem: the job has it all")
        from nova_flink import own_jobs
        from nova_flink.rest import Rest

        reached_at = Rest.at(rest)
        job_id = own_jobs.find(reached_at, job)
        _show(own_jobs.verify(reached_at, job_id), {"job": job_id}, as_json)
        return
    if plan is not None and problem is None:
        raise NovaError("--plan and --problem: give both, or neither")
    answered = None if problem is None else shared.load_problem(problem, None)
    decided = None if plan is None or answered is None else shared.load_plan(plan, answered)
    with _cluster(name, place, at, answered) as reached:
        document = _recall(name, reached, job) if decided is None else reached.document(decided)
        _show(reached.verify(job, document), {"job": job}, as_json)


@cluster.command()
@engine_option
@testbed.inventory_option
@at_option
@testbed.json_option
@click.pass_context
def status(ctx: click.Context, name: str, place: str, at: str | None, as_json: bool) -> None:
    """Show the engine's hosts and jobs; exit code 1 unless all hosts have registered."""
    with _cluster(name, place, at, None) as reached:
        hosts = reached.hosts()
        jobs = [{"job": j.job, "name": j.name, "state": j.state} for j in reached.jobs()]
    missing = [one for one, registered in hosts.items() if not registered]
    if as_json:
        console.print_json({"address": reached.address, "missing": missing, "jobs": jobs})
    else:
        console.show(f"{reached.address}: {len(hosts) - len(missing)} of {len(hosts)} hosts")
        if missing:
            console.show(f"missing: {', '.join(missing)}")
        rows = [(one["job"], one["name"], one["state"]) for one in jobs]
        console.show(console.table("jobs", ["job", "name", "state"], rows))
    ctx.exit(1 if missing else 0)


@cluster.command()
@click.argument("job", required=False)
@engine_option
@testbed.inventory_option
@at_option
@click.option("--all", "all_jobs", is_flag=True, help="Also jobs that Nova did not start.")
@testbed.json_option
def stop(
    job: str | None, name: str, place: str, at: str | None, all_jobs: bool, as_json: bool
) -> None:
    """End JOB, or all jobs that Nova started; the engine keeps running."""
    if job is not None and all_jobs:
        raise NovaError("JOB and --all: give one")
    with _cluster(name, place, at, None) as reached:
        ending = [job] if job is not None else _running_jobs(reached, foreign=all_jobs)
        ended = {one: reached.stop(one) for one in ending}
    if as_json or ended:
        testbed.say(ended, as_json)
    else:
        console.show("no job of Nova's runs; --all ends those of others")


@cluster.command()
@engine_option
@testbed.inventory_option
@testbed.json_option
def down(name: str, place: str, as_json: bool) -> None:
    """End the engine on all hosts."""
    with on_hosts(name, place) as (engine, _):
        had = engine.down()
    testbed.say({"ended on": ", ".join(had) or "no host; it did not run"}, as_json)


@contextmanager
def on_hosts(name: str, place: str, *, prepare: bool = False) -> Iterator[tuple[Engine, Limits]]:
    """The engine on connected, reserved hosts, and the hosts' limits.

    Args:
        name: of the engine.
        place: the inventory, by file or name.
        prepare: whether to get the engine ready on this machine first.
    """
    from nova_harness.experiment.bed import reserved
    from nova_harness.experiment.limits import Limits

    inventory = testbed.running(testbed.read(place))
    engine_runner = runner(name)
    if prepare:
        engine_runner.prepare(console.say, REPLAY)
    with reserved(inventory), testbed.connected(inventory) as hosts:
        yield engine_runner.engine(hosts, REPLAY), Limits(inventory)


@contextmanager
def _cluster(name: str, place: str, at: str | None, problem: Problem | None) -> Iterator[Cluster]:
    """A cluster that runs: at an address, or on the hosts of an inventory."""
    if at is not None:
        yield runner(name).cluster(at, problem)
        return
    inventory = testbed.running(testbed.read(place))
    with testbed.connected(inventory) as hosts:
        yield runner(name).engine(hosts, REPLAY)


def _running_jobs(reached: Cluster, *, foreign: bool = False) -> list[str]:
    """Ids of jobs that have not ended: Nova's own, or all."""
    return [one.job for one in reached.jobs() if one.runs and (foreign or one.own)]


def sources_for(
    problem: Problem, file: Path | None, window: int, keys: int | None, seconds: float | None
) -> tuple[Callable[[int], Sources], Match]:
    """The sources of pairs from a start time, of a file or made up; and which tuples match."""
    from dataclasses import replace

    from nova_engines.sources import Sources
    from nova_workloads.base import Traffic
    from nova_workloads.debs import measured_by
    from nova_workloads.joined_streams import JoinedStreams
    from nova_workloads.streams import synthetic

    rate = float(problem.sources.rate.max())
    traffic = Traffic(rate, window, keys or max(1, round(rate * window / 1000)))
    if file is not None:
        written = Sources.read(file)
        return lambda start_ms: replace(written, start_ms=start_ms), traffic.match
    if problem.sources.key is None:
        raise NovaError("the problem's sources have no key to make readings for; give --sources")
    own = problem.sources.rate.tolist()
    made_up = synthetic(len(own), regions=len(own) // 2)
    streams = JoinedStreams(problem, measured_by(problem, made_up), traffic)

    def starting(start_ms: int) -> Sources:
        sources = streams.sources(start_ms, seconds)
        rates = tuple(replace(s, rate=r) for s, r in zip(sources.sources, own, strict=True))
        return replace(sources, sources=rates)

    return starting, traffic.match


def refuse_unknown(flow: Flow, engine: Engine) -> None:
    """Refuse a flow that uses hosts outside the engine's inventory.

    Raises:
        NovaError: naming them.
    """
    hosts = engine.deployment.hosts
    unknown = sorted(set(flow.nodes) - {host.name for host in hosts})
    if unknown:
        raise NovaError(
            f"inventory {hosts.inventory.name}: has no host {', '.join(unknown)}, which the plan "
            "uses; nodes of the problem must be called like hosts"
        )


def _memory(name: str, reached: Cluster, job: str) -> Path:
    """The file that keeps a job's document."""
    from nova_testbed.rack.state import default_state_root

    def plain(text: str) -> str:
        return "".join(sign if sign.isalnum() or sign in "-." else "_" for sign in text)

    directory = default_state_root().parent / "jobs" / name / plain(reached.address)
    return directory / f"{plain(job)}.json"


def _remember(name: str, reached: Cluster, job: str, document: str) -> None:
    from nova_core.io.safe_files import make_directory, write_text

    file = _memory(name, reached, job)
    make_directory(file.parent)
    write_text(file, document)


def _recall(name: str, reached: Cluster, job: str) -> str:
    """The document of a job that was deployed from here."""
    file = _memory(name, reached, job)
    if file.is_file():
        return file.read_text("utf-8")
    if name == "spark" and Path(job).is_file():
        return ""  # its record has the planned hosts of its steps
    raise NovaError(f"job {job}: not deployed from here; give --plan and --problem")


def _show(
    verification: Verification, answer: dict[str, Any], as_json: bool, *, ok: bool = True
) -> None:
    if as_json:
        console.print_json({**answer, **verification.to_plain()})
    else:
        from rich.markup import escape

        table = console.table(
            f"job {answer['job']}",
            ["operator", "planned", "runs on", "status"],
            caption=verification.summary(),
        )
        for row in verification.rows:
            colour = "" if row.ok else "[red]"
            operator, node, actual = map(escape, (row.operator, row.node or "-", row.actual or "-"))
            table.add_row(operator, node, f"{colour}{actual}", row.status)
        console.show(table)
        if verification.note:
            console.say(f"the scheduler says: {verification.note}")
    click.get_current_context().exit(0 if verification.ok and ok else 1)
