"""The command ``nova report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_workloads.commands.spark_options import spark_options

if TYPE_CHECKING:
    from nova_harness.report import Report


@click.command(short_help="A page with figures about runs of experiments.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=paths.INPUT)
@click.option(
    "--output",
    "-o",
    type=paths.OUTPUT,
    default=Path("report.html"),
    show_default=True,
    help="The HTML file; figures and figures' numbers go into a directory beside it.",
)
@click.option("--strategy", metavar="NAME", help="The report's subject [default: nova].")
@click.option(
    "--spark",
    "with_spark",
    is_flag=True,
    help="Work percentiles out in Spark, for runs larger than this machine's memory.",
)
@spark_options
@shared.json_option
def report(
    runs: tuple[Path, ...],
    output: Path,
    strategy: str | None,
    with_spark: bool,
    spark: dict[str, Any],
    as_json: bool,
) -> None:
    """Compare the strategies of one or more runs on a page.

    The page needs no other file and no network. Several runs are pooled.
    """
    from nova_harness.aggregate import write_aggregate
    from nova_harness.report import write_report

    if output.suffix.lower() not in (".html", ".htm"):
        raise click.UsageError(f"--output {output}: a report is an .html file")
    if output.is_dir():
        raise click.UsageError(f"--output {output}: is a directory; an .html file is written")
    with shared.working():
        contents = _made(list(runs), strategy, spark if with_spark else None)
        beside = output.with_name(f"{output.stem}-files")
        with console.progress("drawing") as advance:
            written = write_report(contents, output, beside, advance)
        if contents.groups:
            written += write_aggregate(contents.groups, beside)
    if as_json:
        console.print_json(_answer(contents, written))
        return
    show(contents)
    console.say(f"report written to {output}, figures to {beside}")


def _made(runs: list[Path], strategy: str | None, spark: dict[str, Any] | None) -> Report:
    from nova_harness.report import make_report

    if spark is None:
        return make_report(runs, subject=strategy)
    from nova_harness import aggregate
    from nova_workloads.spark import shown_session

    with shown_session(spark) as (session, shown):
        shown.step("percentiles")
        return make_report(
            runs, subject=strategy, distribute=lambda cells: aggregate.distributions(session, cells)
        )


def show(contents: Report) -> None:
    """Print a report's figures."""
    from nova_harness.report.figures import name_of
    from nova_harness.report.summary import notes
    from nova_harness.report.wording import milliseconds

    table = console.table(
        "Latency and throughput",
        ["setting", "strategy", ">mean, ms", ">99 %", ">99.99 %", ">results/s", ">kept up"],
    )
    for group in contents.groups:
        latency = group.latency
        table.add_row(
            name_of(group.setting, rate=True),
            group.strategy,
            milliseconds(latency.mean) if latency else "-",
            milliseconds(latency.at(0.99)) if latency else "-",
            milliseconds(latency.at(0.9999)) if latency else "-",
            console.number(group.results_per_s, 0),
            console.share(group.results_per_s, group.expected_per_s),
        )
    if contents.groups:
        console.show(table, "")
    if contents.ratios:
        console.show(_ratios_table(contents), "")
    for note in notes(contents.runs, contents.groups, contents.ratios, contents.subject):
        (console.warn if note.kind == "bad" else console.say)(note.text)


def _ratios_table(contents: Report) -> Any:
    from nova_harness.report.comparison import METRICS
    from nova_harness.report.figures import name_of
    from nova_harness.report.wording import percent, times

    table = console.table(
        f"{contents.subject} against the best other strategy: how many times better",
        ["setting", f">{contents.subject} kept up", ">mean latency", ">99.99 %", ">throughput"],
        caption="Below 1 another strategy is better. In brackets: the best other strategy, and "
        "how much of what was due it delivered in time (kept up).",
    )
    for setting in dict.fromkeys(ratio.setting for ratio in contents.ratios):
        here = {ratio.metric: ratio for ratio in contents.ratios if ratio.setting == setting}
        cells = [
            f"{here[metric].sign}{times(here[metric].factor)} ({here[metric].best_other}, "
            f"{percent(here[metric].kept_up[1])})"
            for metric in METRICS
        ]
        kept_up = percent(here["mean"].kept_up[0])
        table.add_row(name_of(setting, rate=True), kept_up, *cells)
    return table


def _answer(contents: Report, written: list[Path]) -> dict[str, Any]:
    import msgspec

    from nova_harness.report.summary import notes

    return {
        "written": [str(path) for path in written],
        "strategy": contents.subject,
        "ratios": [msgspec.to_builtins(ratio) for ratio in contents.ratios],
        "notes": [
            msgspec.to_builtins(note)
            for note in notes(contents.runs, contents.groups, contents.ratios, contents.subject)
        ],
        "groups": [
            {
                "strategy": group.strategy,
                **msgspec.to_builtins(group.setting),
                "results": group.results,
                "mean_ms": group.latency.mean if group.latency else None,
                "p9999_ms": group.latency.at(0.9999) if group.latency else None,
                "results_per_s": group.results_per_s,
                "expected_per_s": group.expected_per_s,
            }
            for group in contents.groups
        ],
    }
