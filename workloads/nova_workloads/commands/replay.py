"""The command ``nova workload replay``."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError
from nova_core.numbers import NumberRange
from nova_workloads.commands.inputs import NOW, Inputs, input_options

if TYPE_CHECKING:
    from nova_workloads.replay import Lane, Part, Progress, Summary
    from nova_workloads.streams import Stream

INTERRUPTED = 130
LAG_WORTH_TELLING = 0.1  # s
FORMATS = ("csv", "json")
SPLITS = ("none", "sensor", "stream", "region")


@click.command()
@input_options
@click.option(
    "--to",
    "target",
    type=paths.OutputPath(text=True),
    default="-",
    show_default=True,
    metavar="WHERE",
    help="-, a file, tcp://HOST:PORT (connect), tcp-listen://HOST:PORT (wait for a reader) or "
    "kafka://HOST:PORT/TOPIC.",
)
@click.option(
    "--split",
    type=click.Choice(SPLITS),
    default="none",
    show_default=True,
    help="An output each: files with a name each, ports one after the other, a topic each.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="csv",
    show_default=True,
    help="Of tuples.",
)
@click.option(
    "--plan",
    type=paths.INPUT,
    help="Adds each tuple's partition under this plan; needs --problem.",
)
@click.option("--problem", type=paths.INPUT, help="The problem the plan answers.")
@click.option(
    "--tick",
    type=NumberRange(0.1, 100),
    default=1.0,
    show_default=True,
    help="ms between checks for due tuples; larger ones need less CPU.",
)
@click.option("--unpaced", is_flag=True, help="As fast as readers take it.")
@click.option(
    "--wait",
    type=NumberRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds to wait for the other side of a connection.",
)
@shared.json_option
def replay(
    given: Inputs,
    target: str,
    split: str,
    form: str,
    plan: Path | None,
    problem: Path | None,
    tick: float,
    unpaced: bool,
    wait: float,
    as_json: bool,
) -> None:
    """Emit streams as they were recorded, or at a rate.

    INPUTS are the pipeline's readings (Parquet), four-column sensor files, or files a replay wrote.
    Each tuple has its sensor, region, stream, sequence number, event time (ms since the epoch),
    value and the moment it was sent (us since the epoch). Ends with an account of the rate, how
    late tuples were, readers that were too slow, and the CPU used; after Ctrl-C as well.
    """
    from nova_workloads.outputs import Target
    from nova_workloads.replay import Replay

    where = Target.parse(target)
    if as_json and where.kind == "stdout":
        raise NovaError("--json: standard output carries the tuples; give --to")
    if (plan is None) is not (problem is None):
        raise NovaError("--plan and --problem: give both or none")
    start_ms = given.start_ms()
    given.schedule(start_ms)  # refuse contradicting options before reading anything
    streams = given.streams()
    partitions = _partitions(plan, problem, streams)
    lanes = _lanes(streams, where.kind == "kafka", split, form, partitions, where, wait)

    aligned = given.start == NOW or (given.start is None and given.rate is not None)
    if aligned and not unpaced:
        # Replays on several hosts agree on the windows when they start with a second.
        start_ms = -(-time.time_ns() // 1_000_000_000) * 1000
    elif aligned:
        start_ms = time.time_ns() // 1_000_000
    with _Reporter() as reporter:
        run = Replay(lanes, given.schedule(start_ms), tick, not unpaced, reporter)
        summary = run.run(start_ms if aligned and not unpaced else None)
    if as_json:
        console.print_json(asdict(summary))
    else:
        _show(summary)
    if summary.error is not None:
        raise NovaError(summary.error)
    if summary.interrupted:
        click.get_current_context().exit(INTERRUPTED)


def _partitions(
    plan: Path | None, problem: Path | None, streams: list[Stream]
) -> dict[str, Any] | None:
    if plan is None or problem is None:
        return None
    from nova_core.io.files import read_plan, read_problem
    from nova_workloads.tuple_text import partitions_of

    joined = read_problem(problem)
    joined.require_pairs("nova workload replay")
    return partitions_of(read_plan(plan, joined), streams)


def _lanes(
    streams: list[Stream],
    by_key: bool,
    split: str,
    form: str,
    partitions: dict[str, Any] | None,
    where: Any,
    wait: float,
) -> list[Lane]:
    """Streams that share an output, and the output."""
    from nova_workloads.replay import Lane, groups
    from nova_workloads.tuple_text import TupleText

    parts = list(groups(streams, split).items())
    if by_key:
        # A message has one key: each sensor's messages are made separately.
        parts = [(name, [stream]) for name, members in parts for stream in members]
    names = [members[0].sensor if by_key else name for name, members in parts]
    outputs = where.open(
        [name for name, _ in parts],
        [members[0].sensor for _, members in parts],
        wait,
        console.say,
    )
    return [
        Lane(name, members, output, TupleText(members, form, partitions))
        for name, (_, members), output in zip(names, parts, outputs, strict=True)
    ]


class _Reporter:
    """Reports progress: every second on a terminal, elsewhere when a reader cannot keep up."""

    def __init__(self) -> None:
        self._live: Any = None
        self._lagging = False

    def __enter__(self) -> _Reporter:
        if sys.stderr.isatty():
            from rich.live import Live

            # Without a refresh thread, which would take CPU at the wrong moment.
            self._live = Live(
                console=console.output(stderr=True), auto_refresh=False, transient=True
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        held = f", held up by {', '.join(progress.waiting)}" if progress.waiting else ""
        text = (
            f"{progress.tuples:,} tuples in {progress.seconds:,.0f} s, "
            f"{progress.lag:,.3f} s behind{held}"
        )
        if self._live is not None:
            self._live.update(text, refresh=True)
            return
        lagging = progress.lag > LAG_WORTH_TELLING or bool(progress.waiting)
        if lagging is not self._lagging:
            console.say(text if lagging else f"{text}: caught up")
        self._lagging = lagging


def _show(summary: Summary) -> None:
    """Show the summary on stderr: stdout may carry the tuples."""
    columns = [
        "output", ">tuples", ">asked/s", ">achieved/s", ">late ms p50", ">p99", ">max", ">held up s"
    ]  # fmt: skip
    parts = summary.parts if len(summary.parts) > 1 else []
    rows = []
    for part in [*parts[: console.ROWS], summary.total]:
        name = "all" if part is summary.total else f"{part.name} {part.to}".strip()
        rows.append((name, f"{part.tuples:,}", *_figures(part, summary.paced)))
    console.output(stderr=True).print(console.table("replayed", columns, rows))
    if len(parts) > console.ROWS:
        console.say(f"{len(parts) - console.ROWS} more outputs; --json has them all")
    total = summary.total
    off = f" ({total.achieved / total.asked - 1:+.2%} of what was asked)" if total.asked else ""
    console.say(
        f"{total.tuples:,} tuples in {total.seconds:.1f} s: {total.achieved:,.1f} tuples/s{off}, "
        f"{total.bytes / total.seconds / 1e6:.2f} MB/s, {summary.cpu_share:.0%} of one core"
        + (", interrupted" if summary.interrupted else "")
    )
    if summary.start_ms is not None:
        console.say(f"event time starts at {summary.start_ms}")


def _figures(part: Part, paced: bool) -> list[str]:
    late = (part.late_p50_ms, part.late_p99_ms, part.late_max_ms)
    return [
        console.number(part.asked) if paced else "-",
        console.number(part.achieved),
        *(console.number(value, 2) if paced else "-" for value in late),
        console.number(part.blocked_seconds, 2),
    ]
