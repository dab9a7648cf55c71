"""``nova query reorder``: another order of a query's joins and filters."""

from __future__ import annotations

from pathlib import Path

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError
from nova_core.numbers import SEED


@click.command(short_help="Other orders of joins and filters, by WhiteWater's search.")
@click.argument("problem", type=paths.InputPath(exists=True))
@click.option(
    "--output", "-o", type=paths.OUTPUT, help="Where the problem with the queries reordered goes."
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of the search.")
@shared.json_option
def reorder(problem: Path, output: Path | None, seed: int, as_json: bool) -> None:
    """Look for an order of PROBLEM's joins and filters in which joins receive less.

    What queries emit stays the same. `nova compare` shows what strategies make of either problem.
    """
    from dataclasses import asdict

    from nova_core.io.files import read_problem, write_problem
    from nova_research.whitewater.reordering import reordered

    read = read_problem(problem)
    if not read.queries:
        raise NovaError(f"{problem}: it has joins of pairs; there is no order to look for")
    with shared.working():
        changed, orders = reordered(read, seed)
    if output is not None:
        write_problem(changed, output)
    if as_json:
        console.print_json({"queries": [asdict(one) for one in orders]})
        return
    rows = []
    for one in orders:
        order = one.after if one.after != one.before else "the same"
        rows.append((one.query, one.before, order, f"{one.load:,.4g}", f"{one.reordered:,.4g}"))
    headings = ["query", "as written", "found", ">joins receive, tuples/s", ">found "]
    console.show(console.table("Orders", headings, rows))
    if output is not None:
        console.say(f"problem written to {output}")
