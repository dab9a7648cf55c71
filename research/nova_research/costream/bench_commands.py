"""``nova bench simulator`` and ``nova bench predictions``."""

from __future__ import annotations

from typing import Any

import click

from nova_core.commands import shared
from nova_core.numbers import NumberRange, at_least
from nova_harness.bench.commands import repeat_option, seed_option


@click.command()
@click.option(
    "--ranges",
    type=click.Choice(["rack", "paper"]),
    multiple=True,
    default=("rack", "paper"),
    show_default=True,
    help="Of queries and hardware.",
)
@click.option("--load", type=NumberRange(0.01, 1000), default=4.0, show_default=True)
@click.option("--traces", type=at_least(1), default=100, show_default=True)
@seed_option
@repeat_option(3, "; the quickest counts.")
@shared.json_option
def simulator(ranges: tuple[str, ...], as_json: bool, **of_case: Any) -> None:
    """Time the simulator of placements on random queries, on one core.

    Rates are --load times the usual ones. The first run compiles, which is not counted.
    """
    from nova_harness.bench.base import answer, measured
    from nova_research.costream import bench_simulator as benchmark

    cases = [benchmark.Case(one, **of_case) for one in dict.fromkeys(ranges)]
    measurements = measured(benchmark.__name__, cases, benchmark.Measurement)
    answer(measurements, benchmark.summary_table, as_json=as_json)


@click.command()
@click.option(
    "--filters", type=click.IntRange(1, 100), multiple=True, default=(2, 8), show_default=True
)
@click.option(
    "--hidden",
    type=click.IntRange(0, 1024),
    default=64,
    show_default=True,
    help="Width of the network; 0 for the model that Nova brings.",
)
@click.option("--layers", type=click.IntRange(1, 4), default=1, show_default=True)
@click.option("--members", type=click.IntRange(1, 32), default=3, show_default=True)
@click.option("--candidates", type=at_least(1), default=2000, show_default=True)
@seed_option
@repeat_option(5, "; the quickest counts.")
@shared.json_option
def predictions(filters: tuple[int, ...], as_json: bool, **of_case: Any) -> None:
    """Time the learned cost model on candidate placements of a query, on one core.

    A query has two streams, filters, a join and an aggregate. Rates are of CPU time.
    """
    from nova_harness.bench.base import answer, measured
    from nova_research.costream import bench_predictions as benchmark

    cases = [benchmark.Case(many, **of_case) for many in dict.fromkeys(filters)]
    measurements = measured(benchmark.__name__, cases, benchmark.Measurement)
    answer(measurements, benchmark.summary_table, as_json=as_json)
