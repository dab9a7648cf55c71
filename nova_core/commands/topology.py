"""The commands ``nova topology ...``: from measured latencies to a cost space."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.choices import LazyChoice
from nova_core.commands import shared
from nova_core.commands.plan import require_writable
from nova_core.errors import NovaError
from nova_core.numbers import NumberRange, at_least

if TYPE_CHECKING:
    from rich.table import Table

    from nova_core.costspace import CostSpace, ErrorReport, TriangleReport
    from nova_core.costspace.statistics import Statistics
    from nova_core.model.problem import Strings

# Nodes that are named as the worst.
WORST = 10
latencies_argument = click.argument("latencies", type=paths.INPUT)
is_option = click.option(
    "--is",
    "what",
    type=LazyChoice("nova_core.io.latencies:ONE_WAY"),
    help="What LATENCIES are; half of a round trip counts [default: one-way; of a column rtt, "
    "round-trip].",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def topology() -> None:
    """Turn measured latencies into the cost space joins are placed in.

    LATENCIES is a matrix (.csv, .csv.gz, .parquet, .arrow: a column per node), a table of measured
    pairs (source, target, latency in ms, perhaps time), or a problem that holds either. Latencies
    are one-way ones; with --is round-trip, or in a column rtt, half of them counts.
    """


@topology.command()
@latencies_argument
@shared.output_option(
    "A .csv, .parquet or .arrow table of nodes; of a problem, also the problem with positions: "
    ".yaml, .json or a directory.",
    required=True,
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
    type=LazyChoice("nova_core.costspace.embedding:METHODS"),
    default="solver",
    show_default=True,
    help="How: solver fits all pairs at once, vivaldi is decentralized, the others scale a matrix.",
)
@click.option(
    "--neighbours",
    type=at_least(1),
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
@shared.seed_option()
@is_option
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
    what: str | None,
    metrics: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Work out coordinates from LATENCIES, and heights."""
    from nova_core.costspace.automatic import embed_measurements
    from nova_core.costspace.comparison import errors
    from nova_core.costspace.latency_files import read_measurements
    from nova_core.costspace.space_files import Metric, require_output, write_embedded

    added = [Metric.parse(text) for text in metrics]
    require_writable(output)
    with shared.working():
        measured = read_measurements(latencies, what)
        require_output(output, measured, added)
        with console.progress("embedding") as progress:
            space, used = embed_measurements(measured, progress=progress, **options)
        report = errors(space, measured.pairs())
        write_embedded(output, measured, space, added, options["seed"])
    if as_json:
        console.print_json(
            {
                "nodes": len(space),
                "dimensions": space.dimensions,
                "method": options["method"],
                "pairs_used": used,
                "metrics": [metric.name for metric in added],
                **error_dict(measured.ids, space, report, WORST),
                "written": str(output),
            }
        )
        return
    heights = "" if space.height is None else " and heights"
    console.show(
        f"{len(space):,} nodes in {space.dimensions} dimensions{heights}, from {used:,} of "
        f"{report.pairs:,} measured pairs by {options['method']}",
        "",
        error_table(space, report),
    )
    console.say(f"cost space written to {output}")


@topology.command("import")
@click.argument("file", type=paths.INPUT)
@shared.output_option("A .csv, .parquet or .arrow table of pairs and latencies.", required=True)
@click.option(
    "--delay",
    metavar="ATTRIBUTE",
    help="Attribute of links that is their one-way latency, ms [default: delay, latency or the "
    "like; else by latitudes and longitudes].",
)
@click.option("--links", "links_only", is_flag=True, help="Write links alone, not all pairs.")
@shared.json_option
def import_(file: Path, output: Path, delay: str | None, links_only: bool, as_json: bool) -> None:
    """Turn a topology of another program, FILE, into latencies between its nodes.

    FILE is GraphML (Topology Zoo), node-link JSON (networkx), a simulator's JSON (entity and link),
    or a list of edges: two nodes and ms on each line. A pair's latency is that of the fastest way.
    """
    from nova_core.costspace.topology_files import all_pairs, read_topology
    from nova_core.io.columnar import write_columns

    require_writable(output)
    with shared.working():
        found = read_topology(file, delay)
        pairs = found.links if links_only else all_pairs(found, file)
        write_columns(
            output,
            {
                "source": [found.ids[node] for node in pairs.source],
                "target": [found.ids[node] for node in pairs.target],
                "latency": pairs.latency,
            },
        )
    answer = {
        "nodes": len(found.ids),
        "links": len(found.links.latency),
        "links_by_places": found.from_places,
        "links_without_latency": found.unknown,
        "pairs": len(pairs.latency),
        "written": str(output),
    }
    if as_json:
        console.print_json(answer)
        return
    if found.from_places:
        console.warn(f"{file}: {found.from_places} links: latencies worked out from places")
    if found.unknown:
        console.warn(f"{file}: {found.unknown} links have no latency, and do not count")
    console.say(f"{len(pairs.latency):,} pairs of {len(found.ids):,} nodes written to {output}")


@topology.command()
@latencies_argument
@is_option
@shared.json_option
def measure(latencies: Path, what: str | None, as_json: bool) -> None:
    """Tell how LATENCIES are distributed, and how far they are from a metric space.

    Symmetry, coverage, and violations of the triangle inequality: three nodes where the detour
    over the third is shorter than the direct way. No coordinates can be right about those.
    """
    from nova_core.costspace.latency_files import read_measurements
    from nova_core.costspace.statistics import statistics_of

    with shared.working():
        measured = read_measurements(latencies, what)
        statistics = statistics_of(measured)
    if as_json:
        console.print_json(statistics.to_dict())
        return
    console.show(statistics_table(str(latencies), statistics))


space_argument = click.argument("space", type=paths.INPUT)
optional_latencies = click.argument("latencies", type=paths.INPUT, required=False)


@topology.command()
@space_argument
@optional_latencies
@click.option(
    "--rows",
    type=at_least(0),
    default=WORST,
    show_default=True,
    help="How many of the worst nodes are named; 0 for all.",
)
@is_option
@shared.json_option
def error(space: Path, latencies: Path | None, rows: int, what: str | None, as_json: bool) -> None:
    """Compare the cost space SPACE with measured LATENCIES.

    SPACE is a table of nodes (id, x, y, ..., height) or a problem; LATENCIES may be left out if
    that problem holds some.
    """
    from nova_core.costspace.comparison import errors
    from nova_core.costspace.space_files import read_compared

    with shared.working():
        ids, where, pairs = read_compared(space, latencies, what)
        if pairs is None:
            raise NovaError(f"{space}: holds no measured latencies; name a file of them as well")
        report = errors(where, pairs)
    if as_json:
        shown = error_dict(ids, where, report, rows or len(ids))
        console.print_json({"nodes": len(ids), "dimensions": where.dimensions, **shown})
        return
    console.show(error_table(where, report), "", worst_table(ids, where, report, rows))


@topology.command()
@space_argument
@optional_latencies
@shared.output_option("A .png or .svg file.", required=True)
@is_option
@shared.json_option
def plot(
    space: Path, latencies: Path | None, output: Path, what: str | None, as_json: bool
) -> None:
    """Draw the cost space SPACE with its heights, and how well it tells LATENCIES.

    SPACE and LATENCIES are as for `nova topology error`; without latencies only the map is drawn.
    """
    from nova_core.costspace.space_files import read_compared
    from nova_core.plotting.cost_space import save_space_plot

    with shared.working():
        ids, where, pairs = read_compared(space, latencies, what)
        save_space_plot(output, space.name, where, pairs)
    if as_json:
        console.print_json({"nodes": len(ids), "written": str(output)})
        return
    console.say(f"plot written to {output}")


# --- what is shown -------------------------------------------------------------------------------


def error_dict(ids: Strings, space: CostSpace, report: ErrorReport, worst: int) -> dict[str, Any]:
    """Errors as plain values for JSON, with the worst nodes."""
    return {
        **{name: value for name, value in vars(report).items() if name != "node_mae"},
        "median_height": _height(space, 50),
        "p90_height": _height(space, 90),
        "worst_nodes": [
            {
                "node": str(ids[node]),
                "mae": float(report.node_mae[node]),
                "height": None if space.height is None else float(space.height[node]),
            }
            for node in report.worst_nodes(worst).tolist()
        ],
    }


def _height(space: CostSpace, percentile: float) -> float | None:
    import numpy as np

    return None if space.height is None else float(np.percentile(space.height, percentile))


def error_table(space: CostSpace, report: ErrorReport) -> Table:
    """How far estimates are from measurements."""
    rows = [
        ("mean absolute error, ms", console.number(report.mae, 2)),
        ("median absolute error, ms", console.number(report.median_error, 2)),
        ("90P absolute error, ms", console.number(report.p90_error, 2)),
        ("median relative error", _percent(report.median_relative)),
        ("90P relative error", _percent(report.p90_relative)),
        ("mean of estimate - measured, ms", console.number(report.bias, 2)),
        ("stress", console.number(report.stress, 3)),
    ]
    if space.height is not None:
        median, p90 = _height(space, 50), _height(space, 90)
        assert median is not None
        assert p90 is not None
        rows.append(("height, ms: median, 90P", f"{median:.1f}, {p90:.1f}"))
    return console.table(f"Errors of {report.pairs:,} measured pairs", ["what", ">value"], rows)


def worst_table(ids: Strings, space: CostSpace, report: ErrorReport, rows: int) -> Table:
    """The nodes whose estimates are worst."""
    heights = [">height, ms"] if space.height is not None else []
    cells = []
    for node in report.worst_nodes(rows or len(ids)).tolist():
        height = [] if space.height is None else [console.number(space.height[node])]
        cells.append([str(ids[node]), console.number(report.node_mae[node], 2), *height])
    return console.table("Worst nodes", ["node", ">mean absolute error, ms", *heights], cells)


def _percent(share: float) -> str:
    return f"{console.number(100 * share)} %"


def statistics_table(name: str, statistics: Statistics) -> Table:
    """How measured latencies behave."""
    s, p = statistics, statistics.percentiles
    asymmetry = "-" if s.both_ways == 0 else _percent(s.asymmetric_share)
    rows = [
        ("nodes", f"{s.nodes:,}"),
        ("pairs measured", f"{s.pairs:,}"),
        ("coverage of all pairs", _percent(s.coverage)),
        ("measured others per node: least, median", f"{s.least_degree}, {s.degree:g}"),
        ("nodes connected", "all" if s.groups == 1 else f"no: {s.groups} groups"),
        ("latency, ms: mean", console.number(s.mean)),
        ("latency, ms: 10P, median, 90P, 99P", ", ".join(console.number(p[k]) for k in p)),
        ("pairs measured both ways", f"{s.both_ways:,}"),
        ("of them more than 10 % apart", asymmetry),
        *_triangles(s.triangles),
    ]
    return console.table(name, ["what", ">value"], rows)


def _triangles(report: TriangleReport | None) -> list[tuple[str, str]]:
    if report is None:
        return [("triangles", "not examined: too many nodes")]
    return [
        ("triangles examined", f"{report.triples:,}"),
        ("of them violate the triangle inequality", _percent(report.share)),
        ("longest side over the others' sum, in those: mean", f"+{_percent(report.severity)}"),
        ("pairs with a shorter detour", _percent(report.pairs_with_detour)),
        (
            "saved by the detour, of those: median, 90P",
            f"{_percent(report.median_saving)}, {_percent(report.p90_saving)}",
        ),
    ]
