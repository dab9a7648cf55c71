"""``nova replan``: the plan after some events."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import figures, shared
from nova_core.commands.live import event_lines, policy_options
from nova_core.commands.plan import require_writable
from nova_core.errors import InfeasibleError, ProblemError
from nova_core.numbers import at_least

if TYPE_CHECKING:
    from nova_core.placement.live import LivePlacement


@click.command(short_help="Adapt a plan to what has changed.")
@shared.problem_argument
@click.argument("plan", type=paths.INPUT)
@click.argument("events", type=paths.InputPath(text=True))
@click.option("--output", "-o", type=paths.OUTPUT, required=True, help="Where the new plan goes.")
@click.option(
    "--problem-output",
    type=paths.OUTPUT,
    help="Where the changed problem goes, which the new plan answers.",
)
@click.option(
    "--rebalance",
    type=at_least(1),
    metavar="MOVES",
    help="Improve the whole placement in the end, by at most so many moves.",
)
@policy_options
@shared.capacity_option
@shared.json_option
def replan(
    problem: Path,
    plan: Path,
    events: str,
    output: Path,
    problem_output: Path | None,
    rebalance: int | None,
    policy: dict[str, Any],
    capacity: str | None,
    as_json: bool,
) -> None:
    """Adapt PLAN to EVENTS that happen to PROBLEM, moving as little as possible.

    EVENTS is a file of JSON lines (`nova schema event`), or - for standard input. An event that
    cannot be satisfied ends it, and nothing is written.
    """
    require_writable(output)
    if problem_output is not None:
        require_writable(problem_output)
    loaded = shared.load_problem(problem, capacity)
    old = shared.load_plan(plan, loaded)
    with event_lines(events) as lines, shared.working():
        from nova_core.placement.live import LivePlacement, Policy

        placement = LivePlacement(loaded, old, Policy(**policy))
        total: Counter[str] = Counter()
        for where, line in lines:
            total.update(_applied(placement, where, line))
        followed = placement.version
        if rebalance is not None:
            total.update(placement.rebalance(rebalance).counts())
        new_problem = placement.problem()
        new = placement.plan(new_problem)
        outcomes = figures.judge(old), figures.judge(new)
        from nova_core.io.files import write_plan, write_problem

        write_plan(new, output)
        if problem_output is not None:
            write_problem(new_problem, problem_output)
    if as_json:
        console.print_json(
            {
                "events": followed,
                "counts": dict(total),
                "old": outcomes[0].to_dict(),
                "new": outcomes[1].to_dict(),
                "written": str(output),
                "problem_written": None if problem_output is None else str(problem_output),
            }
        )
        return
    from nova_core.commands.diff import cost_changes

    changes = [f"{count:,} {_WORDS[kind]}" for kind, count in total.items() if count]
    console.show(
        f"{followed:,} events: {', '.join(changes) or 'nothing changes'}",
        "",
        cost_changes(outcomes, (plan, output)),
    )
    console.say(f"plan written to {output}")
    if problem_output is not None:
        console.say(f"problem written to {problem_output}")
    else:
        console.say("the plan answers the changed problem; --problem-output writes that too")


_WORDS = {
    "stop": "instances stopped",
    "start": "started",
    "move": "moved",
    "reroute": "routed otherwise",
    "removed": "operators removed",
    "added": "operators added",
}


def _applied(placement: LivePlacement, where: str, line: bytes) -> dict[str, Any]:
    """Apply one event; how many rows of each kind its delta has."""
    from nova_core.placement.live import parse_event

    event = parse_event(line, where)
    try:
        return placement.apply(event).counts()
    except InfeasibleError as error:
        raise InfeasibleError(f"{where}: {error}", error.missing) from None
    except ProblemError as error:
        raise ProblemError(f"{where}: {error}") from None
