"""``nova live``: follow a stream of events, telling what changes in the plan."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import InfeasibleError, NovaError, ProblemError
from nova_core.numbers import NumberRange, at_least

if TYPE_CHECKING:
    from nova_core.placement.live import Journal, LivePlacement

# Log entries after which a journal writes its state again.
CHECKPOINT = 100_000


# Options for when instances move by choice. The mapping has the arguments of
# `nova_core.placement.live.Policy`, which is not loaded for --help.
policy_options = shared.together(
    "policy",
    dict,
    click.option(
        "--gain",
        type=NumberRange(min=0),
        default=0.0,
        show_default=True,
        help="Least gain of a move by choice, in the objective's unit.",
    ),
    click.option(
        "--gain-share",
        type=NumberRange(min=0),
        default=0.05,
        show_default=True,
        help="Least gain as a share of what the operator costs.",
    ),
    click.option(
        "--cooldown",
        type=at_least(0),
        default=0,
        show_default=True,
        help="Events after a move during which an operator does not move again by choice.",
    ),
    click.option(
        "--pin",
        "pinned",
        multiple=True,
        metavar="OPERATOR",
        help="A join, or QUERY/OPERATOR of whole queries, whose instances stay.",
    ),
    click.option(
        "--overload", is_flag=True, help="Overload near nodes where nothing fits; not refuse."
    ),
)


@click.command(short_help="Follow a stream of events and tell what changes.")
@shared.problem_argument
@click.argument("plan", type=paths.INPUT)
@click.option(
    "--events",
    type=paths.InputPath(text=True),
    default="-",
    show_default=True,
    metavar="FILE",
    help="Events as JSON lines; - for standard input.",
)
@click.option(
    "--journal",
    type=paths.OutputPath(file_okay=False),
    help="Keep state and events in this directory; continue where it ends if it exists.",
)
@click.option(
    "--skip-seen",
    is_flag=True,
    help="Leave out as many events as the journal has seen: the same file once more.",
)
@shared.sync_option
@policy_options
@shared.capacity_option
@shared.json_option
@click.pass_context
def live(
    ctx: click.Context,
    problem: Path,
    plan: Path,
    events: str,
    journal: Path | None,
    skip_seen: bool,
    sync: bool,
    policy: dict[str, Any],
    capacity: str | None,
    as_json: bool,
) -> None:
    """Follow events that happen to PROBLEM, placed by PLAN; exit code 1 if any is refused.

    Reads one event per line, as `nova schema event` describes them, and writes one line for each:
    what changes (`nova schema plan-delta`), or why the event is refused, as {"error": ...}. With a
    journal, an event is on disk before its line is written.
    """
    if skip_seen and journal is None:
        raise NovaError("--skip-seen: only with --journal DIR, which tells what was seen")
    with ExitStack() as stack:
        lines = stack.enter_context(event_lines(events))
        stack.enter_context(shared.working())
        loaded = shared.load_problem(problem, capacity)
        from nova_core.placement.live import Journal, LivePlacement, Policy

        placed = shared.load_plan(plan, loaded)
        placement = LivePlacement(loaded, placed, Policy(**policy))
        book: Journal | None = None
        if journal is not None:
            book = stack.enter_context(Journal.open(journal, placement, sync=sync))
            placement = book.live
            if book.resumed:
                console.say(
                    f"{journal}: continues after {book.entries:,} events, "
                    f"version {placement.version}"
                )
            if skip_seen:
                for _ in range(book.entries):
                    next(lines, None)
        ctx.exit(1 if follow(lines, placement, book) else 0)


@contextmanager
def event_lines(events: str) -> Iterator[Iterator[tuple[str, bytes]]]:
    """Lines of a file or standard input that hold something, each with its place.

    Raises:
        NovaError: when the file cannot be read.
    """
    if events == "-":
        yield _numbered("standard input", sys.stdin.buffer)
        return
    try:
        file = Path(events).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise NovaError(f"{events}: cannot be read: {error.strerror or error}") from error
    with file:
        yield _numbered(events, file)


def _numbered(name: str, file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            yield f"{name}: line {number}", line


def follow(
    lines: Iterator[tuple[str, bytes]], placement: LivePlacement, book: Journal | None
) -> int:
    """Apply event after event and write a line for each; how many were refused."""
    from nova_core.placement.live.events import parse_event

    out = sys.stdout.buffer
    refused = 0
    for where, line in lines:
        answer: Any
        parsed = False
        try:
            event = parse_event(line, where)
            parsed = True
            answer = (book or placement).apply(event)
        except (ProblemError, InfeasibleError) as error:
            refused += 1
            if book is not None and not parsed:
                book.note_refusal()
            reason = str(error)
            answer = {"error": reason if reason.startswith(where) else f"{where}: {reason}"}
            if isinstance(error, InfeasibleError):
                answer["missing"] = error.missing
        out.write(console.json_line(answer) + b"\n")
        # A program at the other end of a pipe waits for this line.
        out.flush()
        if book is not None and book.since_checkpoint >= CHECKPOINT:
            book.checkpoint()
    return refused
