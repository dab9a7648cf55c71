"""The commands ``nova bench ...``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from nova_core import paths
from nova_core.commands import shared
from nova_core.lazy_commands import OpenGroup
from nova_core.numbers import SEED, NumberRange, at_least
from nova_harness.commands.cluster import engine_option
from nova_testbed.commands import shared as testbed

F = TypeVar("F", bound=Callable[..., Any])

MIN_NODES = 4
# With fewer nodes, events run out of nodes, sources or free capacity.
MIN_NODES_LIVE = 200

seed_option = click.option("--seed", type=SEED, default=0, show_default=True)
table_option = click.option("--output", "-o", type=paths.OUTPUT, help="Write a table as CSV.")


class Counts(click.ParamType[list[int]]):
    """Numbers of hosts, separated by commas."""

    name = "counts"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[int]:
        """The numbers.

        Raises:
            click.BadParameter: for other text, and for too many hosts.
        """
        texts = value.split(",")
        if not all(text.isascii() and text.isdigit() and 0 < int(text) <= 32 for text in texts):
            self.fail(f"{value!r}; expected numbers from 1 to 32, separated by commas", param, ctx)
        return list(dict.fromkeys(map(int, texts)))


class Sizes(click.ParamType[list[int]]):
    """Numbers of nodes, separated by commas."""

    name = "sizes"

    def __init__(self, least: int = MIN_NODES, reason: str = "") -> None:
        self.least, self.reason = least, reason

    def convert(self, value: Any, param: Any, ctx: Any) -> list[int]:
        """The numbers.

        Raises:
            click.BadParameter: for other text, and for too few nodes.
        """
        try:
            sizes = [int(float(text)) for text in value.split(",")] if value else []
        except (ValueError, OverflowError):
            sizes = [0]
        if any(size < MIN_NODES for size in sizes):
            self.fail(
                f"{value!r}; expected numbers of nodes >= {MIN_NODES}, separated by commas",
                param,
                ctx,
            )
        if any(size < self.least for size in sizes):
            self.fail(f"{value!r}; {self.reason}", param, ctx)
        return sizes


def sizes_option(default: str = "1000,10000,100000,1000000", **least: Any) -> Callable[[F], F]:
    """Which topologies are measured."""
    return click.option(
        "--sizes",
        type=Sizes(**least),
        default=default,
        show_default=True,
        help="Numbers of nodes of synthetic topologies; '' for none.",
    )


def repeat_option(default: int, help_text: str) -> Callable[[F], F]:
    """How often each step runs."""
    return click.option(
        "--repeat",
        type=click.IntRange(1, 100),
        default=default,
        show_default=True,
        help=f"Runs of each step{help_text}",
    )


@click.group(cls=OpenGroup, context_settings={"help_option_names": ["-h", "--help"]})
def bench() -> None:
    """Measure how fast Nova is on this machine."""


@bench.command()
@sizes_option()
@click.option(
    "--instances",
    type=paths.INPUT,
    help="Also measure these: a directory with nodes.csv and joins.csv, or a directory of such.",
)
@click.option(
    "--heterogeneity",
    type=NumberRange(0, 1),
    default=1.0,
    show_default=True,
    help="Of the synthetic nodes' capacities: 0 near uniform, 1 exponential.",
)
@seed_option
@repeat_option(5, ", at least; short ones run more often.")
@table_option
@click.option("--plot", type=paths.OUTPUT, help="Draw times over sizes: PNG or SVG.")
@shared.json_option
def kernels(
    sizes: list[int],
    instances: Path | None,
    output: Path | None,
    plot: Path | None,
    as_json: bool,
    **of_case: Any,
) -> None:
    """Time the optimizer's steps, warm and on one core, each problem in a process of its own.

    Steps: geometric medians (Phase II), building the capacity tree, the whole optimization without
    and with refinement, verification and evaluation of the refined plan. Peak memory is what is in
    use beyond the inputs.
    """
    from nova_harness.bench import kernels as benchmark
    from nova_harness.bench.base import answer, measured

    if plot is not None:
        benchmark.plot_format(plot)
    cases = [benchmark.Case(nodes=size, **of_case) for size in sizes]
    if instances is not None:
        cases = benchmark.instance_cases(instances, of_case["repeat"]) + cases
    _some(cases, " or --instances")
    measurements = measured(benchmark.__name__, cases, benchmark.Measurement)
    if plot is not None:
        benchmark.write_plot(measurements, plot)
    exponents = benchmark.exponents(measurements)
    answer(
        measurements,
        benchmark.summary_table,
        as_json=as_json,
        output=output,
        exponents=exponents,
    )


def _some(cases: list[Any], other: str = "") -> None:
    if not cases:
        raise click.UsageError(f"nothing to measure: give --sizes{other}")


@bench.command()
@sizes_option()
@click.option(
    "--neighbours",
    type=at_least(1),
    default=20,
    show_default=True,
    help="How many others each node measures.",
)
@click.option("--dimensions", type=click.IntRange(1, 10), default=2, show_default=True)
@seed_option
@repeat_option(1, "; the quickest counts.")
@table_option
@shared.json_option
def costspace(sizes: list[int], output: Path | None, as_json: bool, **of_case: Any) -> None:
    """Time the embedding of measured latencies, warm and on all cores.

    Steps: the batch solver without and with heights, Vivaldi with heights, and one more node
    joining a space of that size. Errors are those of pairs nobody measured. Peak memory is the
    whole process's, measurements included.
    """
    from nova_harness.bench import costspace as benchmark
    from nova_harness.bench.base import answer, measured

    cases = [benchmark.Case(size, **of_case) for size in sizes]
    _some(cases)
    measurements = measured(benchmark.__name__, cases, benchmark.Measurement, environment={})
    answer(measurements, benchmark.summary_table, as_json=as_json, output=output)


@bench.command()
@sizes_option(
    least=MIN_NODES_LIVE,
    reason=f"live placement is timed on {MIN_NODES_LIVE} nodes or more: with fewer, events soon "
    "run out of nodes and sources",
)
@click.option(
    "--events",
    type=at_least(10),
    default=1000,
    show_default=True,
    help="Events timed of each kind.",
)
@seed_option
@shared.json_option
def live(sizes: list[int], as_json: bool, **of_case: Any) -> None:
    """Time live placement's events, kind by kind, each topology in a process of its own.

    Operators have ten joins each, so that moving a sink concerns ten.
    """
    from nova_harness.bench import live as benchmark
    from nova_harness.bench.base import answer, measured

    cases = [benchmark.Case(size, **of_case) for size in sizes]
    _some(cases)
    measurements = measured(benchmark.__name__, cases, benchmark.Measurement)
    answer(measurements, benchmark.summary_table, as_json=as_json)


@bench.command()
@sizes_option(
    "10000",
    least=MIN_NODES_LIVE,
    reason=f"control is simulated on {MIN_NODES_LIVE} hosts or more",
)
@click.option("--seconds", type=NumberRange(min=10), default=60, show_default=True)
@seed_option
@shared.json_option
def control(sizes: list[int], as_json: bool, **of_case: Any) -> None:
    """Read the reports of simulated hosts, and decide, as `nova control run` does."""
    from nova_harness.bench import control as benchmark
    from nova_harness.bench.base import answer, measured

    cases = [benchmark.Case(size, **of_case) for size in sizes]
    _some(cases)
    measurements = measured(benchmark.__name__, cases, benchmark.Measurement)
    answer(measurements, benchmark.summary_table, as_json=as_json)


@bench.command()
@sizes_option("1000,10000")
@seed_option
@repeat_option(3, "; the quickest counts.")
@shared.json_option
def queries(sizes: list[int], as_json: bool, **of_case: Any) -> None:
    """Time the placement of whole queries, three per ten nodes, kernels compiled."""
    from nova_harness.bench import queries as benchmark
    from nova_harness.bench.base import answer, measured

    cases = [
        benchmark.Case(size, objective, **of_case)
        for size in sizes
        for objective in ("latency", "network-usage")
    ]
    _some(cases)
    measurements = measured(benchmark.__name__, cases, benchmark.Measurement)
    answer(measurements, benchmark.summary_table, as_json=as_json)


@bench.command()
@click.option("--against", metavar="REV", help="The other commit.  [default: the last tag]")
@sizes_option(
    "1000,10000,1000000",
    least=MIN_NODES_LIVE,
    reason=f"live placement is timed on {MIN_NODES_LIVE} nodes or more",
)
@click.option(
    "--query-sizes",
    type=Sizes(),
    default="1000,10000",
    show_default=True,
    help="Numbers of nodes that whole queries are placed on; '' for none.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="How often each commit has its turn.",
)
@repeat_option(3, " in a turn; the quickest counts.")
@click.option("--events", type=at_least(10), default=1000, show_default=True, help="Of each kind.")
@seed_option
@table_option
@shared.json_option
def guard(
    against: str | None,
    sizes: list[int],
    query_sizes: list[int],
    output: Path | None,
    as_json: bool,
    **of_case: Any,
) -> None:
    """Compare the kernels' speed with that of another commit, the two in turn; needs a checkout.

    Placement without and with refinement, every live event, and whole queries: CPU time, on one
    core, without compiling. The other commit's files and compiled kernels stay in
    ~/.cache/nova/guard, or $XDG_CACHE_HOME/nova/guard, for the next time; delete them as you like.
    """
    from nova_harness.bench import guard as benchmark
    from nova_harness.bench.base import answer

    _some([*sizes, *query_sizes], " or --query-sizes")
    case = benchmark.Case(tuple(sizes), tuple(query_sizes), **of_case)
    measurements = benchmark.measure(case, against)
    answer(measurements, benchmark.summary_table, as_json=as_json, output=output)


@bench.command()
@click.option(
    "--hosts",
    type=Counts(),
    default="1,2,4,8",
    show_default=True,
    help="Over how many the join is cut, one number after the other.",
)
@click.option(
    "--skew",
    type=NumberRange(min=0, max=4),
    default=0.0,
    show_default=True,
    help="Exponent of a Zipf distribution of the keys; 0: all are equally frequent.",
)
@click.option(
    "--window", type=NumberRange(min=0.01, max=6), default=0.1, show_default=True, help="s."
)
@click.option("--readings", type=at_least(1000), default=200_000, show_default=True)
@seed_option
@table_option
@shared.json_option
def keys(
    hosts: list[int],
    skew: float,
    window: float,
    readings: int,
    seed: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Run a join of 10,000 keys with Flink on one virtual host, two, and more; needs root."""
    from nova_core import console
    from nova_harness.bench import keys as benchmark
    from nova_harness.bench.base import answer

    measurements = benchmark.measure(hosts, skew, window, readings, seed, console.say)
    answer(measurements, benchmark.summary_table, as_json=as_json, output=output)


@bench.command()
@engine_option
@testbed.inventory_option
@click.option(
    "--rate",
    "rates",
    type=NumberRange(min=1, max=1e6),
    multiple=True,
    default=(1000.0, 5000.0),
    show_default=True,
    help="Of each source, tuples/s: one series of hand-overs for each.",
)
@click.option(
    "--regions",
    type=click.IntRange(1, 1000),
    default=2,
    show_default=True,
    help="With two sources and a join each.",
)
@click.option("--handovers", type=click.IntRange(1, 1000), default=3, show_default=True)
@click.option(
    "--calm",
    "calm_s",
    type=NumberRange(min=5, max=3600),
    default=20.0,
    show_default=True,
    help="Seconds that are compared with each hand-over.",
)
@click.option(
    "--window",
    "window_ms",
    type=click.IntRange(1, 60_000),
    default=100,
    show_default=True,
    help="ms.",
)
@click.option("--load", is_flag=True, help="Keep every source's host busy.")
@seed_option
@table_option
@shared.json_option
def handovers(
    name: str,
    place: str,
    rates: tuple[float, ...],
    output: Path | None,
    as_json: bool,
    **of_case: Any,
) -> None:
    """Hand a running job over to other hosts and back; compare results with the reference join."""
    from nova_core import console
    from nova_harness.bench import handovers as benchmark
    from nova_harness.bench.base import answer

    cases = [benchmark.Case(rate, **of_case) for rate in dict.fromkeys(rates)]
    measurements = benchmark.measure(cases, place, name, console.say)
    answer(measurements, benchmark.summary_table, as_json=as_json, output=output)


@bench.command()
@click.option("--nodes", type=at_least(MIN_NODES), default=10_000, show_default=True)
@click.option(
    "--rate",
    type=NumberRange(min=1),
    default=1000,
    show_default=True,
    help="Events/s the client sends, answered or not.",
)
@click.option("--seconds", type=NumberRange(min=1), default=60, show_default=True)
@seed_option
@shared.json_option
def serve(as_json: bool, **of_case: Any) -> None:
    """Send random events to `nova serve` and time the answers; count what is lost."""
    from nova_harness.bench import serve as benchmark
    from nova_harness.bench.base import answer

    measurements = [benchmark.measure(benchmark.Case(**of_case))]
    answer(measurements, benchmark.summary_table, as_json=as_json)
