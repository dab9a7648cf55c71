"""The commands ``nova control ...``: jobs that follow the live optimizer, and their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError
from nova_core.numbers import NumberRange, at_least
from nova_engines.workload import LONGEST_S
from nova_harness.commands.cluster import (
    engine_option,
    flow_options,
    on_hosts,
    refuse_unknown,
    workload_for,
)
from nova_testbed.commands import shared as testbed

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_harness.control.controller import Controller
    from nova_harness.control.outcome import Outcome
    from nova_harness.control.watching import Watching
    from nova_harness.engines.base import ControlledEngine
    from nova_harness.experiment.limits import Limits

state_option = click.option(
    "--state",
    type=paths.OutputPath(file_okay=False),
    default="nova-control",
    show_default=True,
    metavar="DIR",
    help="What the controller keeps: plans, the ledger of hand-overs, its log.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def control() -> None:
    """Keep running jobs on the live optimizer's plan, with every result exactly once."""


# Options of `nova_harness.control.deciding.Tuning`; ``miss_after`` is the engine's, ``jobs`` and
# ``dry_run`` are the controller's.
tuning_options = shared.together(
    "tuning",
    dict,
    click.option(
        "--cooldown",
        "cooldown_s",
        type=NumberRange(min=0),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="Least time between two hand-overs by choice; failures do not wait.",
    ),
    click.option(
        "--step",
        type=NumberRange(0, 1, min_open=True),
        default=0.2,
        show_default=True,
        help="Least lasting change of a host's free CPU that counts, as a share of all it has.",
    ),
    click.option(
        "--back-after",
        "stable_s",
        type=NumberRange(min=0),
        default=15.0,
        show_default=True,
        metavar="SECONDS",
        help="How long a lost host must be back before it is used; doubles each time.",
    ),
    click.option(
        "--miss-after",
        type=NumberRange(min=1),
        default=5.0,
        show_default=True,
        metavar="SECONDS",
        help="A host that hangs or is cut off for so long is lost; one that is killed is "
        "missed at once. Where CPUs are busy, more is needed.",
    ),
    click.option(
        "--jobs",
        type=at_least(1),
        default=8,
        show_default=True,
        metavar="N",
        help="Most jobs that joins are divided into. Joins that share no source can be jobs of "
        "their own: when one is replaced or fails, others go on. On Storm there is one job.",
    ),
    click.option("--dry-run", is_flag=True, help="Deploy the plan and only report changes."),
)


# Where a run reports.
tell_options = shared.together(
    "tell",
    dict,
    click.option(
        "--listen",
        type=click.IntRange(0, 65_535),
        metavar="PORT",
        help="Show the job in a browser, at this port of 127.0.0.1, and figures for Prometheus "
        "at /metrics; 0 takes any that is free.",
    ),
    click.option("--results", type=paths.OUTPUT, help="With --for: write the results as CSV."),
    testbed.json_option,
)


@control.command()
@click.argument("problem", type=paths.INPUT)
@click.argument("plan", type=paths.INPUT)
@engine_option
@testbed.inventory_option
@state_option
@flow_options
@click.option(
    "--for",
    "seconds",
    type=NumberRange(min=0, min_open=True),
    metavar="SECONDS",
    help="After this time, end the job at a window's end and check its results [default: run until "
    "Ctrl-C; the job keeps running].",
)
@tuning_options
@click.option(
    "--disturb",
    type=paths.INPUT,
    metavar="SCRIPT",
    help="Put load on hosts, kill workers and more, by a script, to test the controller.",
)
@tell_options
def run(
    problem: Path,
    plan: Path,
    name: str,
    place: str,
    state: Path,
    flow: dict[str, Any],
    seconds: float | None,
    tuning: dict[str, Any],
    disturb: Path | None,
    tell: dict[str, Any],
) -> None:
    """Run PLAN with Flink or Storm on the hosts, and replace it while it runs when hosts change.

    Looks at hosts' CPU, at the engine's workers and at joins that fall behind; moves joins to other
    hosts at a window's end; deploys anew after a failure. The engine is brought up unless it runs.
    Resumes the job of an existing --state directory. Exit code 1 when results were lost, doubled
    or wrong.
    """
    from nova_harness.control.controller import WARM_UP_S, Controller, controlled
    from nova_harness.control.deciding import Tuning, rehearse
    from nova_harness.control.disturbances import (
        Script,
        added_hosts,
        with_surges,
        without_workers,
    )
    from nova_harness.control.job_groups import ledgers_of
    from nova_harness.control.watching import watching
    from nova_testbed.probing import refuse_clocks

    results = tell["results"]
    if results is not None and seconds is None:
        raise NovaError("--results: goes with --for, after which results are complete")
    answered = shared.load_problem(problem, None)
    refuse_queries(answered)
    decided = shared.load_plan(plan, answered)
    flows = workload_for(answered, **flow, seconds=None)(0)
    script = None if disturb is None else Script.read(disturb, testbed.read(place))
    events = [] if script is None else script.events
    flows, added = with_surges(flows, answered, events, 0), added_hosts(events)
    # They have been added already to a job that is resumed.
    added = [] if ledgers_of(state) else added
    miss_after, jobs = tuning.pop("miss_after"), tuning.pop("jobs")
    dry_run = tuning.pop("dry_run")
    with (
        controlled(state),
        watching(state, lines=tell["as_json"]) as shown,
        _page(tell["listen"], shown),
        _engine(name, place, state, miss_after) as (engine, limits),
    ):
        refuse_unknown(decided, engine)
        _refuse_added(added, decided, engine)
        refuse_clocks(engine.deployment.hosts)
        with shared.working():
            rehearse(answered, decided)
        controller = Controller(
            engine, state, Tuning(**tuning), shown.note, dry_run=dry_run, most_jobs=jobs
        )
        with closing(controller), without_workers(engine, added), ExitStack() as disturbing:
            try:
                with limits.off():
                    controller.begin(answered, decided, flows, warm_s=WARM_UP_S)
                if script is not None:
                    disturbing.enter_context(closing(controller.disturbed(script)))
                controller.run(seconds, shown.show)
                controller.end()
            except KeyboardInterrupt:
                if not ledgers_of(state):
                    raise  # no job runs yet
                console.say(f"the job keeps running; --state {state} resumes control of it")
                return
        answer = _outcome(controller, answered, results)
    testbed.say(answer, tell["as_json"])
    click.get_current_context().exit(0 if answer["exact"] else 1)


@control.command()
@state_option
def pause(state: Path) -> None:
    """Let the controller make no voluntary moves; joins of lost hosts still move."""
    from nova_harness.control import controller

    controller.pause(state, paused=True)
    console.say("paused; `nova control resume` ends it")


@control.command()
@state_option
def resume(state: Path) -> None:
    """End a pause."""
    from nova_harness.control import controller

    controller.pause(state, paused=False)


@control.command()
@testbed.inventory_option
@click.option(
    "--for",
    "seconds",
    type=NumberRange(min=0, max=LONGEST_S, min_open=True),
    default=1800.0,
    show_default=True,
    metavar="SECONDS",
    help="Time until the last disturbance is over.",
)
@shared.seed_option()
@click.option(
    "--output", "-o", type=paths.OUTPUT, default=Path("disturbances.yaml"), show_default=True
)
def script(place: str, seconds: float, seed: int, output: Path) -> None:
    """Write a script of random disturbances for `nova control run --disturb`.

    Load, less CPU, longer or cut links, killed and hanging workers, one after the other, on hosts
    without sources and sinks. Real hosts get load, killed and hanging workers only.
    """
    import msgspec
    import yaml

    from nova_core.io.safe_files import write_text
    from nova_harness.control.disturbances import random_script

    disturbances = random_script(testbed.read(place), seconds, seed)
    document = msgspec.to_builtins(disturbances)
    document["events"] = [
        {name: value for name, value in event.items() if value is not None}
        for event in document["events"]
    ]
    write_text(output, yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    console.say(f"{len(disturbances.events)} disturbances written to {output}")


def _outcome(controller: Controller, problem: Any, results: Path | None) -> dict[str, Any]:
    """Outcome of ended jobs; also writes their results, if ``results`` is given."""
    from nova_harness.control.job_groups import read_ledgers
    from nova_harness.control.outcome import outcome, write_csv

    ledgers = read_ledgers(controller.directory)
    observed = outcome(ledgers, controller.hosts, problem, controller.workload)
    if results is not None:
        parts = [part for group in observed.valid for part in group]
        write_csv(parts, controller.workload, results)
    return _answer(observed, sum(len(ledger.shares) for ledger in ledgers))


def _answer(outcome: Outcome, jobs: int) -> dict[str, Any]:
    compared, latency = outcome.compared, outcome.latency
    return {
        "exact": compared.ok,
        "results": compared.delivered,
        "expected": compared.expected,
        "lost": compared.lost,
        "doubled": compared.duplicated,
        "wrong": compared.wrong,
        "dropped": outcome.dropped,
        "jobs": jobs,
        "p50_ms": latency.p50,
        "p99_ms": latency.p99,
        "p9999_ms": latency.p9999,
        "longest_silence_ms": [round(one, 1) for one in outcome.silence_ms],
    }


def refuse_queries(problem: Problem) -> None:
    """Refuse whole queries: what is decided for them cannot be done to a running job.

    Raises:
        NovaError: saying what is missing.
    """
    if problem.queries:
        raise NovaError(
            f"{problem.name}: holds whole queries, whose jobs cannot be handed over yet: their "
            "sources take no orders to begin and end at a window's boundary, and windows of "
            "several lengths have none in common; `nova live` tells where operators should run"
        )


def _refuse_added(added: Sequence[str], plan: Plan, engine: ControlledEngine) -> None:
    """Refuse hosts that a script adds later, where they are used from the beginning."""
    from nova_engines.dataflow import from_plan

    if used := sorted(set(added).intersection(from_plan(plan, plan.problem).nodes)):
        raise NovaError(
            f"--disturb: add: {', '.join(used)}: the plan uses it from the beginning; add a host "
            "that it does not use"
        )


def require_controlled(name: str) -> None:
    """Refuse an engine whose jobs cannot be controlled.

    Raises:
        NovaError: naming those that can be used.
    """
    from nova_harness.engines.base import names, runner

    if not runner(name).controlled:
        raise NovaError(
            f"--engine {name}: its jobs cannot be controlled; those of "
            f"{' and '.join(one for one in names() if runner(one).controlled)} can"
        )


@contextmanager
def _engine(
    name: str, place: str, state: Path, miss_after: float
) -> Iterator[tuple[ControlledEngine, Limits]]:
    """The engine, up on the inventory's hosts, and their limits, which are in force."""
    from nova_harness.control.job_groups import ledgers_of
    from nova_harness.engines.base import ControlledEngine

    # Bringing the engine up ends it first where a worker is missing; its job may still run.
    resumes = bool(ledgers_of(state))
    require_controlled(name)
    with on_hosts(name, place, prepare=not resumes) as (engine, limits):
        assert isinstance(engine, ControlledEngine)
        engine.miss_after(miss_after)
        if not resumes:
            with limits.off():
                engine.up(console.say)
        try:
            yield engine, limits
        finally:
            engine.close()


@contextmanager
def _page(port: int | None, shown: Watching) -> Iterator[None]:
    """Show the job in a browser, if ``port`` is given."""
    if port is None:
        yield
        return
    from nova_harness.control.page import application, served

    with served(port, application(lambda: shown.state)) as address:
        console.say(f"watch it at {address}")
        yield
