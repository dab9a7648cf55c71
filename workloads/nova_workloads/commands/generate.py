"""The command ``nova generate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.numbers import SEED, NumberRange

if TYPE_CHECKING:
    from nova_core.model.problem import Problem

# Of nodes, clusters and tuples/s: more is a slip of the hand.
MOST = 100_000_000


@click.command()
@click.option("--nodes", "-n", type=click.IntRange(4, MOST), required=True, help="Number of nodes.")
@click.option(
    "--output",
    "-o",
    type=paths.OUTPUT,
    required=True,
    help="A .yaml or .json document; a path without suffix becomes a directory of Parquet tables.",
)
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "--heterogeneity",
    type=NumberRange(0, 1),
    default=0.0,
    show_default=True,
    help="Of the nodes' capacities: 0 near uniform, 1 exponential.",
)
@click.option(
    "--dimensions",
    type=click.IntRange(2, 64),
    default=2,
    show_default=True,
    help="Of the cost space.",
)
@click.option(
    "--clusters",
    type=click.IntRange(1, MOST),
    default=10,
    show_default=True,
    help="Gaussian clusters the nodes lie in.",
)
@click.option(
    "--rate-min",
    type=click.IntRange(1, MOST),
    default=1,
    show_default=True,
    help="Least rate of a source, tuples/s.",
)
@click.option(
    "--rate-max",
    type=click.IntRange(1, MOST),
    default=75,
    show_default=True,
    help="Greatest rate of a source, tuples/s.",
)
@shared.json_option
def generate(output: Path, as_json: bool, **arguments: Any) -> None:
    """Write a synthetic topology and workload (Nova paper, section 4.1).

    60 % of the nodes are sources, each joined with one other; every node but the sink may host
    joins. Up to millions of nodes; one seed gives one problem.
    """
    from nova_core.io.files import write_problem
    from nova_workloads import topology

    problem = topology.generate(**arguments)
    write_problem(problem, output)
    summary = {"output": str(output), **arguments, **_summary(problem)}
    if as_json:
        console.print_json(summary)
        return
    rows = [
        ("nodes", f"{len(problem.nodes):,}"),
        ("sources", f"{summary['sources']:,}"),
        ("pairs of sources to join", f"{summary['pairs']:,}"),
        ("capacity, tuples/s: total", console.number(summary["capacity"], 0)),
        ("capacity, tuples/s: median", console.number(summary["capacity_median"], 0)),
        ("capacity: coefficient of variation", console.number(summary["capacity_variation"], 2)),
        ("rate of all sources, tuples/s", console.number(summary["rate"], 0)),
        ("load", console.share(summary["rate"], summary["capacity"])),
        ("digest", problem.digest),
        ("written to", str(output)),
    ]
    console.show(console.table(problem.name, ["what", ">value"], rows))


def _summary(problem: Problem) -> dict[str, Any]:
    """Figures of the nodes that may host joins, and of what they are asked for."""
    import numpy as np

    capacity = problem.nodes.capacity[problem.nodes.worker]
    return {
        "sources": len(problem.sources),
        "pairs": len(problem.matrix),
        "capacity": float(capacity.sum()),
        "capacity_median": float(np.median(capacity)),
        "capacity_variation": float(capacity.std() / capacity.mean()),
        "rate": float(problem.sources.rate.sum()),
        "digest": problem.digest,
    }
