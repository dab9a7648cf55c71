"""The commands ``nova topology ...``: from measured latencies to a cost space."""

from __future__ import annotations

from pathlib import Path

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.commands import topology_figures as figures
from nova_core.commands.plan import require_writable
from nova_core.errors import NovaError
from nova_core.numbers import NumberRange

# Kept by hand so that --help needs no numpy; a test compares it with the library's own.
METHODS = ("solver", "vivaldi", "smacof", "classical")

latencies_argument = click.argument("latencies", type=paths.INPUT)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def topology() -> None:
    """Turn measured latencies into the cost space joins are placed in.

    LATENCIES is a matrix (.csv, .csv.gz, .parquet, .arrow: a column per node), a table of measured
    pairs (source, target, latency in ms, perhaps time), or a problem that holds either.
    """


@topology.command()
@latencies_argument
@click.option(
    "--output",
    "-o",
    type=paths.OUTPUT,
    required=True,
    help="A .csv, .parquet or .arrow table of nodes; of a problem, also the problem with "
    "positions: .yaml, .json or a directory.",
)
@click.option(
    "--dimensions", type=click.IntRange(1, 10), default=2, show_default=True, help="Of the space."
)
@click.option(
    "--height/--no-height",
    default=None,
    help="Give every node a height, the latency of its access link [default: yes, but for the "
    "methods that know none, smacof and classical].",
)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default="solver",
    show_default=True,
    help="How: solver fits all pairs at once, vivaldi is decentralized, the others scale a matrix.",
)
@click.option(
    "--neighbours",
    type=click.IntRange(min=1),
    metavar="M",
    help="Of a matrix, as if every node had measured only M others [default: all up to 500 nodes, "
    "else 32].",
)
@click.option(
    "--near",
    type=NumberRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of those that are a node's nearest; the others are random.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME=WEIGHT[:FILE]",
    help="Another metric; WEIGHT is what one unit counts as, in ms. FILE is a matrix of distances "
    "(of a problem), or a table with id and a column NAME. May be repeated.",
)
@shared.json_option
def embed(
    latencies: Path,
    output: Path,
    dimensions: int,
    height: bool | None,
    method: str,
    neighbours: int | None,
    near: float,
    seed: int,
    metrics: tuple[str, ...],
    as_json: bool,
) -> None:
    """Work out coordinates from LATENCIES, and heights."""
    from nova_core.costspace.automatic import embed_measurements
    from nova_core.costspace.errors import errors
    from nova_core.costspace.latency_files import read_measurements
    from nova_core.costspace.metrics_space import Metric
    from nova_core.costspace.space_files import require_output, write_embedded

    added = [Metric.parse(text) for text in metrics]
    require_writable(output)
    with shared.working():
        measured = read_measurements(latencies)
        require_output(output, measured, added)
        with shared.progress("embedding") as advance:
            space, used = embed_measurements(
                measured,
                dimensions=dimensions,
                height=height,
                method=method,
                neighbours=neighbours,
                near=near,
                seed=seed,
                progress=advance,
            )
        report = errors(space, measured.pairs())
        write_embedded(output, measured, space, added, seed)
    if as_json:
        console.print_json(
            {
                "nodes": len(space),
                "dimensions": dimensions,
                "method": method,
                "pairs_used": used,
                "metrics": [metric.name for metric in added],
                **figures.error_dict(measured.ids, space, report, figures.WORST),
                "written": str(output),
            }
        )
        return
    console.show(
        f"{len(space):,} nodes in {dimensions} dimensions{figures.and_heights(space)}, from "
        f"{used:,} of {report.pairs:,} measured pairs by {method}",
        "",
        figures.error_table(space, report),
    )
    console.say(f"cost space written to {output}")


@topology.command()
@latencies_argument
@shared.json_option
def measure(latencies: Path, as_json: bool) -> None:
    """Tell how LATENCIES are distributed, and how far they are from a metric space.

    Symmetry, coverage, and violations of the triangle inequality: three nodes where the detour
    over the third is shorter than the direct way. No coordinates can be right about those.
    """
    from nova_core.costspace.latency_files import read_measurements
    from nova_core.costspace.statistics import statistics_of

    with shared.working():
        measured = read_measurements(latencies)
        found = statistics_of(measured)
    if as_json:
        console.print_json(found.to_dict())
        return
    console.show(figures.statistics_table(str(latencies), found))


space_argument = click.argument("space", type=paths.INPUT)
optional_latencies = click.argument("latencies", type=paths.INPUT, required=False)


@topology.command()
@space_argument
@optional_latencies
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    default=figures.WORST,
    show_default=True,
    help="How many of the worst nodes are named; 0 for all.",
)
@shared.json_option
def error(space: Path, latencies: Path | None, rows: int, as_json: bool) -> None:
    """Compare the cost space SPACE with measured LATENCIES.

    SPACE is a table of nodes (id, x, y, ..., height) or a problem; LATENCIES may be left out if
    that problem holds some.
    """
    from nova_core.costspace.errors import errors
    from nova_core.costspace.space_files import read_compared

    with shared.working():
        ids, where, pairs = read_compared(space, latencies)
        if pairs is None:
            raise NovaError(f"{space}: holds no measured latencies; name a file of them as well")
        report = errors(where, pairs)
    if as_json:
        told = figures.error_dict(ids, where, report, rows or len(ids))
        console.print_json({"nodes": len(ids), "dimensions": where.dimensions, **told})
        return
    console.show(
        figures.error_table(where, report), "", figures.worst_table(ids, where, report, rows)
    )


@topology.command()
@space_argument
@optional_latencies
@click.option("--output", "-o", type=paths.OUTPUT, required=True, help="A .png or .svg file.")
@shared.json_option
def plot(space: Path, latencies: Path | None, output: Path, as_json: bool) -> None:
    """Draw the cost space SPACE with its heights, and how well it tells LATENCIES.

    SPACE and LATENCIES are as for `nova topology error`; without latencies only the map is drawn.
    """
    from nova_core.costspace.space_files import read_compared
    from nova_core.plotting.cost_space import save_space_plot

    with shared.working():
        ids, where, pairs = read_compared(space, latencies)
        save_space_plot(output, space.name, where, pairs)
    if as_json:
        console.print_json({"nodes": len(ids), "written": str(output)})
        return
    console.say(f"plot written to {output}")


__all__ = ["topology"]
