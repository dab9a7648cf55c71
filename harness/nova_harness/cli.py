"""The commands ``nova bench ...``."""

from __future__ import annotations

from pathlib import Path

import click

from nova_core import console, paths
from nova_core.numbers import SEED, NumberRange, at_least

MIN_NODES = 4
# Among fewer, events run out of nodes and sources to happen to, or of room.
MIN_NODES_LIVE = 200


def _sizes(ctx: click.Context, param: click.Parameter, value: str) -> list[int]:
    try:
        sizes = [int(float(text)) for text in value.split(",")] if value else []
    except (ValueError, OverflowError):
        sizes = [0]
    if any(size < MIN_NODES for size in sizes):
        raise click.BadParameter(
            f"{value!r}; expected numbers of nodes >= {MIN_NODES}, separated by commas"
        )
    return sizes


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def bench() -> None:
    """Measure how fast Nova is on this machine."""


@bench.command()
@click.option(
    "--sizes",
    callback=_sizes,
    default="1000,10000,100000,1000000",
    show_default=True,
    help="Numbers of nodes of synthetic topologies; '' for none.",
)
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
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "--repeat",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="Runs of each step, at least; short ones run more often.",
)
@click.option("--output", "-o", type=paths.OUTPUT, help="Write a table as CSV.")
@click.option("--plot", type=paths.OUTPUT, help="Draw times over sizes: PNG or SVG.")
@click.option(
    "--json", "as_json", is_flag=True, help="Write the figures as JSON to stdout, nothing else."
)
def kernels(
    sizes: list[int],
    instances: Path | None,
    heterogeneity: float,
    seed: int,
    repeat: int,
    output: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Time the optimizer's steps, warm and on one core, each problem in a process of its own.

    Steps: geometric medians (Phase II), building the capacity tree, the whole optimization without
    and with refinement, verification and evaluation of the refined plan. Peak memory is what is in
    use beyond the inputs.
    """
    from nova_harness import bench as benchmark

    if plot is not None:
        benchmark.plot_format(plot)
    cases = benchmark.synthetic_cases(sizes, heterogeneity, seed, repeat)
    if instances is not None:
        cases = benchmark.instance_cases(instances, repeat) + cases
    if not cases:
        raise click.UsageError("nothing to measure: give --sizes or --instances")
    measurements = [m for found in benchmark.progress(cases) for m in found]
    if output is not None:
        benchmark.write_csv(measurements, output)
    if plot is not None:
        benchmark.write_plot(measurements, plot)
    if as_json:
        exponents = benchmark.exponents(measurements)
        console.print_json({"measurements": measurements, "exponents": exponents})
    else:
        console.show(benchmark.summary_table(measurements))


@bench.command()
@click.option(
    "--sizes",
    callback=_sizes,
    default="1000,10000,100000,1000000",
    show_default=True,
    help="Numbers of nodes of synthetic internets.",
)
@click.option(
    "--neighbours",
    type=at_least(1),
    default=20,
    show_default=True,
    help="How many others each node measures.",
)
@click.option("--dimensions", type=click.IntRange(1, 10), default=2, show_default=True)
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "--repeat",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Runs of each step; the quickest counts.",
)
@click.option("--output", "-o", type=paths.OUTPUT, help="Write a table as CSV.")
@click.option(
    "--json", "as_json", is_flag=True, help="Write the figures as JSON to stdout, nothing else."
)
def costspace(
    sizes: list[int],
    neighbours: int,
    dimensions: int,
    seed: int,
    repeat: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Time the embedding of measured latencies, warm and on all cores.

    Steps: the batch solver without and with heights, Vivaldi with heights, and one more node
    joining a space of that size. Errors are those of pairs nobody measured. Peak memory is the
    whole process's, measurements included.
    """
    from nova_harness import bench as benchmark
    from nova_harness import measure_costspace as measure

    cases = [measure.Case(size, neighbours, dimensions, seed, repeat) for size in sizes]
    if not cases:
        raise click.UsageError("nothing to measure: give --sizes")
    measurements = [m for found in measure.progress(cases) for m in found]
    if output is not None:
        benchmark.write_csv(measurements, output)
    if as_json:
        console.print_json({"measurements": measurements})
    else:
        console.show(measure.summary_table(measurements))


def _live_sizes(ctx: click.Context, param: click.Parameter, value: str) -> list[int]:
    sizes = _sizes(ctx, param, value)
    if any(size < MIN_NODES_LIVE for size in sizes):
        raise click.BadParameter(
            f"{value!r}; live placement is timed on {MIN_NODES_LIVE} nodes or more: among fewer, "
            "events soon find nothing left to happen to"
        )
    return sizes


@bench.command()
@click.option(
    "--sizes",
    callback=_live_sizes,
    default="1000,10000,100000,1000000",
    show_default=True,
    help="Numbers of nodes of synthetic topologies.",
)
@click.option(
    "--events",
    type=at_least(10),
    default=1000,
    show_default=True,
    help="Events timed of each kind.",
)
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "--json", "as_json", is_flag=True, help="Write the figures as JSON to stdout, nothing else."
)
def live(sizes: list[int], events: int, seed: int, as_json: bool) -> None:
    """Time live placement's events, kind by kind, each topology in a process of its own.

    Operators have ten joins each, so that moving a sink concerns ten.
    """
    from nova_harness import measure_live

    cases = [measure_live.LiveCase(nodes=size, seed=seed, events=events) for size in sizes]
    measurements = [m for found in measure_live.progress(cases) for m in found]
    if as_json:
        console.print_json({"measurements": measurements})
    else:
        console.show(measure_live.summary_table(measurements))


@bench.command()
@click.option(
    "--sizes",
    callback=_sizes,
    default="1000,10000",
    show_default=True,
    help="Numbers of nodes of synthetic topologies.",
)
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "--repeat",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="Runs of each step; the quickest counts.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Write the figures as JSON to stdout, nothing else."
)
def queries(sizes: list[int], seed: int, repeat: int, as_json: bool) -> None:
    """Time the placement of whole queries, three per ten nodes, kernels compiled."""
    from nova_harness import measure_queries

    measurements = [
        measure_queries.measure(size, objective, seed, repeat)
        for size in sizes
        for objective in ("latency", "network-usage")
    ]
    if as_json:
        console.print_json({"measurements": measurements})
    else:
        console.show(measure_queries.summary_table(measurements))


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
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "--json", "as_json", is_flag=True, help="Write the figures as JSON to stdout, nothing else."
)
def serve(nodes: int, rate: float, seconds: float, seed: int, as_json: bool) -> None:
    """Send random events to `nova serve` and time the answers; count what is lost."""
    from nova_harness import measure_serve

    case = measure_serve.ServeCase(nodes=nodes, rate=rate, seconds=seconds, seed=seed)
    measurement = measure_serve.measure(case)
    if as_json:
        console.print_json({"measurement": measurement})
    else:
        console.show(measure_serve.summary_table(measurement))
