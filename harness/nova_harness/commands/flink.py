"""The commands ``nova flink ...``: a Flink cluster on the hosts of a test bed, and plans on it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError
from nova_core.numbers import NumberRange, at_least
from nova_flink.names import OWN_JOBS
from nova_testbed.commands import shared as testbed

if TYPE_CHECKING:
    from nova_flink.dataflow import Dataflow
    from nova_flink.verification import Verification
    from nova_harness.experiment.limits import Limits
    from nova_harness.flink_deployment import FlinkDeployment
    from nova_testbed.inventory import Inventory

JOB_NAME = f"{OWN_JOBS}plan"
# From submitting to the first tuple.
LEAD_SECONDS = 5
RUNNING_SECONDS = 60.0


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def flink() -> None:
    """Run plans with Flink on the hosts of a test bed."""


@flink.command()
@testbed.inventory_option
@testbed.json_option
def up(place: str, as_json: bool) -> None:
    """Bring Flink up on the hosts; one that runs with the same configuration is used."""
    with cluster(place) as (deployment, limits):
        begin = time.monotonic()
        with limits.off():
            deployment.up(console.say)
        told = {
            "url": deployment.rest.url,
            "task_managers": len(deployment.nodes),
            "found": deployment.reused,
            "seconds": round(time.monotonic() - begin, 1),
        }
    testbed.say(told, as_json)


@flink.command()
@click.argument("plan", type=paths.INPUT)
@shared.problem_option
@testbed.inventory_option
@click.option(
    "--workload",
    type=paths.INPUT,
    help="What flows, as written by `nova translate`; sources begin anew [default: made-up "
    "readings at the problem's rates].",
)
@click.option("--window", type=click.IntRange(1, 1000), default=100, show_default=True, help="ms.")
@click.option(
    "--keys",
    type=at_least(1),
    help="Match sequence numbers modulo this as well [default: one result per tuple].",
)
@click.option(
    "--for",
    "seconds",
    type=NumberRange(min=0, min_open=True),
    metavar="SECONDS",
    help="After which the job ends by itself [default: it does not].",
)
@testbed.json_option
def deploy(
    plan: Path,
    problem: Path,
    place: str,
    workload: Path | None,
    window: int,
    keys: int | None,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Run PLAN on the hosts, in place of the plan that runs there.

    Flink is brought up unless it runs; jobs that Nova did not start go on. Exit code 1 when an
    operator is not where the plan has it.
    """
    from nova_flink.client import Client
    from nova_flink.dataflow import from_plan
    from nova_flink.verification import await_running, verify

    asked = shared.load_problem(problem, None)
    decided = shared.load_plan(plan, asked)
    flows = _workload(asked, workload, window, keys, seconds)
    dataflow = from_plan(decided, asked, flows)
    with cluster(place) as (deployment, limits):
        _refuse_unknown(dataflow, deployment)
        with limits.off():
            deployment.up(console.say)
            ended = deployment.rest.cancel_all()
            with Client(deployment.home, deployment.rest.url) as client:
                file = deployment.result_file("results")
                job = client.submit(dataflow, flows, file, JOB_NAME)
            await_running(deployment.rest, job, dataflow, RUNNING_SECONDS)
        found = verify(deployment.rest, job, dataflow)
    _remember(job, dataflow)
    told = {"job": job, "url": deployment.rest.url, "replaced": list(ended), "results": file}
    _show(found, told, as_json)


@flink.command(name="verify")
@click.argument("job")
@testbed.inventory_option
@click.option("--plan", type=paths.INPUT, help="For a job that was not deployed from here.")
@click.option("--problem", "-p", type=paths.INPUT, help="The problem that plan answers.")
@testbed.json_option
def verify_job(
    job: str, place: str, plan: Path | None, problem: Path | None, as_json: bool
) -> None:
    """Compare where each operator of JOB runs with its plan; exit code 1 when one is elsewhere."""
    from nova_flink.dataflow import Dataflow, from_plan
    from nova_flink.rest import Rest
    from nova_flink.verification import verify

    if (plan is None) != (problem is None):
        raise NovaError("--plan and --problem: give both, or neither")
    if plan is not None and problem is not None:
        asked = shared.load_problem(problem, None)
        dataflow = from_plan(shared.load_plan(plan, asked), asked)
    else:
        file = _memory(job)
        if not file.is_file():
            raise NovaError(f"job {job}: not deployed from here; give --plan and --problem")
        dataflow = Dataflow.read(file)
    rest = Rest(_url(testbed.running(testbed.read(place))))
    _show(verify(rest, job, dataflow), {"job": job}, as_json)


@flink.command()
@testbed.inventory_option
@testbed.json_option
@click.pass_context
def status(ctx: click.Context, place: str, as_json: bool) -> None:
    """Show the TaskManagers and jobs; exit code 1 unless all hosts have theirs."""
    from nova_flink.names import task_manager
    from nova_flink.rest import Rest

    inventory = testbed.running(testbed.read(place))
    rest = Rest(_url(inventory))
    there = rest.task_managers()
    missing = [h.name for h in inventory.hosts if task_manager(h.name) not in there]
    jobs = [
        {"job": job, "name": one["name"], "state": one["state"]} for job, one in rest.jobs().items()
    ]
    if as_json:
        told = {"url": rest.url, "missing": missing, "jobs": jobs}
        console.print_json(told)
    else:
        count = len(inventory.hosts)
        console.show(f"{rest.url}: {count - len(missing)} of {count} TaskManagers")
        if missing:
            console.show(f"missing: {', '.join(missing)}")
        table = console.table("jobs", ["job", "name", "state"])
        for one in jobs:
            table.add_row(one["job"], one["name"], one["state"])
        console.show(table)
    ctx.exit(1 if missing else 0)


@flink.command()
@click.argument("job", required=False)
@testbed.inventory_option
@click.option("--all", "all_jobs", is_flag=True, help="Also jobs that Nova did not start.")
@testbed.json_option
def stop(job: str | None, place: str, all_jobs: bool, as_json: bool) -> None:
    """End JOB, or all jobs that Nova started; Flink goes on running."""
    from nova_flink.rest import Rest

    if job is not None and all_jobs:
        raise NovaError("JOB and --all: give one")
    rest = Rest(_url(testbed.running(testbed.read(place))))
    if job is not None:
        ended = {job: rest.cancel(job).lower()}
    else:
        ended = rest.cancel_all(foreign=all_jobs)
    if as_json or ended:
        testbed.say(ended, as_json)
    else:
        console.show("no job of Nova's runs; --all ends those of others")


@flink.command()
@testbed.inventory_option
@testbed.json_option
def down(place: str, as_json: bool) -> None:
    """End Flink on all hosts."""
    with cluster(place) as (deployment, _):
        had = deployment.down()
    testbed.say({"ended on": ", ".join(had) or "no host; it did not run"}, as_json)


@contextmanager
def cluster(place: str) -> Iterator[tuple[FlinkDeployment, Limits]]:
    """Flink on connected hosts, and the limits of those."""
    testbed.require("paramiko")
    from nova_harness.experiment.bed import reserved
    from nova_harness.experiment.limits import Limits
    from nova_harness.experiment.on_flink import ready_home
    from nova_harness.flink_deployment import FlinkDeployment

    inventory = testbed.running(testbed.read(place))
    home = ready_home(console.say)
    with reserved(inventory), testbed.connected(inventory) as hosts:
        yield FlinkDeployment(hosts, home), Limits(inventory)


def _url(inventory: Inventory) -> str:
    from nova_flink.configuration import ClusterConfiguration, Node

    sink = inventory.with_role("sink")[0]
    node = Node(sink.name, sink.address, role="coordinator")
    return ClusterConfiguration([node], "/").rest_url


def _workload(
    problem: Any, file: Path | None, window: int, keys: int | None, seconds: float | None
) -> Any:
    """What flows: from a file with a new begin, or made up at the problem's rates."""
    from dataclasses import replace

    from nova_flink.workload import Workload
    from nova_harness.experiment.document import EnginePart
    from nova_harness.experiment.engine_run import workload_of
    from nova_harness.experiment.problem import streams_of

    start_ms = 1000 * (int(time.time()) + LEAD_SECONDS)
    if file is not None:
        return replace(Workload.read(file), start_ms=start_ms)
    if problem.sources.key is None:
        raise NovaError("the problem's sources have no key to make readings for; give --workload")
    rate = float(problem.sources.rate.max())
    streams = streams_of(problem, None, 0)
    made = workload_of(
        streams,
        rate=rate,
        window_ms=window,
        keys=keys or max(1, round(rate * window / 1000)),
        start_ms=start_ms,
        count=None if seconds is None else round(seconds * rate),
        settings=EnginePart(),
    )
    own = problem.sources.rate.tolist()
    sources = tuple(replace(s, rate=r) for s, r in zip(made.sources, own, strict=True))
    return replace(made, sources=sources)


def _refuse_unknown(dataflow: Dataflow, deployment: FlinkDeployment) -> None:
    unknown = [node for node in dataflow.nodes if node not in deployment.nodes]
    if unknown:
        raise NovaError(
            f"inventory {deployment.hosts.inventory.name}: has no host {', '.join(unknown)}, which "
            "the plan uses; nodes of the problem must be called like hosts"
        )


def _memory(job: str) -> Path:
    """Where a job's dataflow is kept."""
    from nova_testbed.rack.state import default_state_root

    if not job.isalnum():
        raise NovaError(f"job {job!r}: expected the id that deploy tells, letters and digits")
    return default_state_root().parent / "flink" / f"{job}.json"


def _remember(job: str, dataflow: Dataflow) -> None:
    from nova_core.model.files import make_directory, write_text

    file = _memory(job)
    make_directory(file.parent)
    write_text(file, dataflow.to_json())


def _show(found: Verification, told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        console.print_json({**told, **found.to_plain()})
    else:
        table = console.table(
            f"job {told['job']}",
            ["operator", "planned", "runs on", "status"],
            caption="every operator is where the plan has it" if found.ok else "not as planned",
        )
        for row in found.rows:
            colour = "" if row.node == row.actual else "[red]"
            table.add_row(row.operator, row.node or "-", f"{colour}{row.actual or '-'}", row.status)
        console.show(table)
    click.get_current_context().exit(0 if found.ok else 1)
