"""The commands ``nova corpus ...``: executed plans to learn from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError
from nova_core.numbers import NumberRange, at_least
from nova_research.costream.corpus.ranges import NAMED, PLANS

if TYPE_CHECKING:
    from nova_research.costream.corpus.prepared import Settings

INVENTORY = "virtual-17"
BATCH = 400
# Of two cores; the rest is for the switch, idle hosts and the controller.
CORES = 1.4


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def corpus() -> None:
    """Make traces of executed plans for learned cost models, and check them."""


def _settings(model: Path | None, **others: Any) -> Settings:
    from nova_research.costream.corpus.prepared import Settings

    return Settings(**others, model="" if model is None else str(model.absolute()))


setting_options = shared.together(
    "settings",
    _settings,
    shared.seed_option("Of queries, hardware and placements."),
    click.option(
        "--batch",
        type=at_least(2),
        default=BATCH,
        show_default=True,
        help="Runs under the same memory of the hosts, which takes a restart of the engine.",
    ),
    click.option(
        "--inventory",
        "-i",
        metavar="FILE|NAME",
        type=paths.InputPath(text=True),
        default=INVENTORY,
        show_default=True,
        help="Virtual hosts.",
    ),
    click.option(
        "--hosts",
        type=at_least(2),
        default=4,
        show_default=True,
        help="Hosts that a plan has to itself; as many plans run at once as there is room for.",
    ),
    click.option(
        "--duration",
        "duration_s",
        type=NumberRange(min=1, max=10),
        default=6.0,
        show_default=True,
        metavar="SECONDS",
        help="Measured time of a plan, or a little more: a whole number of its windows.",
    ),
    click.option(
        "--warm-up",
        "warm_up_s",
        type=NumberRange(min=1, max=4),
        default=2.0,
        show_default=True,
        metavar="SECONDS",
        help="Time before it, with limits in force in its second half.",
    ),
    click.option(
        "--drain",
        "drain_s",
        type=NumberRange(min=0, max=60),
        default=1.0,
        show_default=True,
        metavar="SECONDS",
        help="Time after it.",
    ),
    click.option(
        "--cores",
        type=NumberRange(min=0, min_open=True),
        default=CORES,
        show_default=True,
        help="What hosts with something to do may use together.",
    ),
    click.option(
        "--plans",
        type=at_least(2),
        default=PLANS,
        show_default=True,
        help="Of each problem.",
    ),
    click.option(
        "--strategy",
        "strategies",
        multiple=True,
        metavar="S",
        help="Have a problem's last plan made by this strategy, for `nova corpus compare`; may be "
        "repeated. Problems then have one query.",
    ),
    click.option("--model", type=paths.INPUT, help="Of the strategy costream."),
)


@corpus.command()
@click.argument("output", type=paths.OUTPUT)
@click.option(
    "--runs",
    "-n",
    type=at_least(1),
    required=True,
    help="Of plans, each with a trace for every query; one in ten is repeated in addition.",
)
@setting_options
@shared.json_option
def run(output: Path, runs: int, settings: Settings, as_json: bool) -> None:
    """Run random queries on random virtual hosts with Flink; a row in OUTPUT for each.

    What is finished is kept: the same command goes on where it was interrupted, and with more
    --runs a corpus grows. Exit code 1 when a run had to be left out.
    """
    batch, plans, strategies = settings.batch, settings.plans, settings.strategies
    if batch % plans:
        raise NovaError(f"--batch {batch}: a multiple of {plans} is expected, see --plans")
    if len(strategies) >= plans:
        raise NovaError(f"--plans {plans}: more than one is expected beside those of strategies")
    from msgspec.structs import replace

    from nova_core.strategies.base import load

    for name in strategies:
        load(name)  # refuses a name that is not known
    if "costream" in strategies:
        if not settings.model:
            raise NovaError("--strategy costream: name its --model, see `nova learn train`")
        from nova_research.costream.learned.model import load_model

        load_model(Path(settings.model))
    from nova_research.costream.corpus.runner import Watcher, run_corpus
    from nova_testbed.inventory import read_inventory

    with shared.working(), console.progress() as progress:
        rack = read_inventory(settings.inventory)
        settings = replace(settings, inventory=rack.name)
        corpus_run = run_corpus(output, settings, runs, rack, Watcher(progress.step, progress))
    finished = len(corpus_run.finished())
    if as_json:
        summary = {"output": str(output), "runs": finished, "left_out": corpus_run.dropped}
        console.print_json({**summary, "absent": corpus_run.absent})
    else:
        if corpus_run.absent:
            console.say(f"{corpus_run.absent:,} runs are of plans that their queries do not have")
        console.say(f"{finished:,} runs in {output}; `nova corpus check {output}` looks at them")
    click.get_current_context().exit(1 if corpus_run.dropped else 0)


@corpus.command()
@click.argument("output", type=paths.OUTPUT)
@click.option(
    "--runs",
    "-n",
    type=at_least(1),
    required=True,
    help="Plans to simulate, each with a trace for every query.",
)
@shared.seed_option("Of queries, hardware and placements.")
@click.option(
    "--ranges",
    type=click.Choice(list(NAMED)),
    default="paper",
    show_default=True,
    help="Of queries and hardware: those of a rack on one machine; the paper's; or those of the "
    "paper with several queries on the same hosts.",
)
@shared.json_option
def simulate(output: Path, runs: int, seed: int, ranges: str, as_json: bool) -> None:
    """Have the fitted simulator run random queries on random hosts; a row in OUTPUT for each.

    OUTPUT is a directory; the same command goes on where it was interrupted.
    """
    from nova_research.costream.corpus.simulated import simulate_corpus

    with shared.working(), console.progress() as progress:
        finished = simulate_corpus(output, runs, seed, ranges, progress)
    if as_json:
        console.print_json({"output": str(output), "runs": finished})
    else:
        console.say(f"{finished:,} runs in {output}")


@corpus.command()
@click.argument("traces", metavar="TRACES...", type=paths.INPUT, nargs=-1, required=True)
@shared.json_option
def check(traces: tuple[Path, ...], as_json: bool) -> None:
    """Check TRACES, files or directories: balance, noise of repetitions, ranges, leakage.

    Several are splits of one corpus: no query may be in two of them. Exit code 1 when something is
    wrong.
    """
    from nova_research.costream.corpus.check import check_corpus, tables

    with shared.working():
        report = check_corpus(traces)
    if as_json:
        import msgspec

        answer: dict[str, Any] = msgspec.to_builtins(report)
        console.print_json(answer)
    else:
        console.show(*tables(report))
        for problem in report.problems:
            console.warn(problem)
    click.get_current_context().exit(1 if report.problems else 0)


@corpus.command()
@click.argument("traces", metavar="TRACES...", type=paths.INPUT, nargs=-1, required=True)
@shared.json_option
def compare(traces: tuple[Path, ...], as_json: bool) -> None:
    """Compare the plans of strategies in TRACES with the other plans of their queries.

    TRACES are of `nova corpus run --plans N --strategy S`. The first plan of a query is the one
    that Costream's heuristic begins with; the best is of all that are no strategy's.
    """
    from nova_research.costream.corpus.compare import compared, summary_table

    with shared.working():
        comparisons = compared(traces)
    if as_json:
        import msgspec

        console.print_json({"comparisons": msgspec.to_builtins(comparisons)})
        return
    console.show(summary_table(comparisons))


@corpus.command()
@click.argument("traces", metavar="TRACES...", type=paths.INPUT, nargs=-1, required=True)
@shared.output_option("The file: .parquet.", required=True)
def merge(traces: tuple[Path, ...], output: Path) -> None:
    """Put TRACES, files or directories, into one compressed file; of two with one id, the first."""
    if output.suffix != ".parquet":
        raise NovaError(f"--output {output}: a .parquet file is expected")
    from nova_research.costream.training.traces import read_traces, write_traces

    table = read_traces(traces)
    write_traces(output, table)
    size = output.stat().st_size / 2**20
    console.say(f"{len(table):,} traces, {size:.1f} MiB in {output}")
