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

F = TypeVar("F", bound=Callable[..., Any])

MIN_NODES = 4
# With fewer nodes, events run out of nodes, sources or free capacity.
MIN_NODES_LIVE = 200

seed_option = click.option("--seed", type=SEED, default=0, show_default=True)
table_option = click.option("--output", "-o", type=paths.OUTPUT, help="Write a table as CSV.")


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
@click.option(
    "--queries", is_flag=True, help="Of whole queries, three per ten nodes; not joins of pairs."
)
@seed_option
@shared.json_option
def live(sizes: list[int], as_json: bool, **of_case: Any) -> None:
    """Time live placement's events, kind by kind, each topology in a process of its own.

    Joins have ten pairs each, so that moving a sink concerns ten.
    """
    from nova_harness.bench import live as benchmark
    from nova_harness.bench.base import answer, measured

    cases = [benchmark.Case(size, **of_case) for size in sizes]
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
