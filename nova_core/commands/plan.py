"""``nova plan``: place a problem's joins or queries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from nova_core import console, paths
from nova_core.commands import figures, shared
from nova_core.errors import NovaError
from nova_core.numbers import SEED

# Above this many nodes baselines run only on request: the spanning tree is slow.
BASELINE_NODES = 20_000
# Documents are written as one text; 3 million instances take more than 13 GB of memory.
LARGE_DOCUMENT = 500_000


@click.command(short_help="Decide where each join or query of a problem runs.")
@shared.problem_argument
@click.option(
    "--strategy",
    default="nova",
    show_default=True,
    metavar="S",
    shell_complete=shared.complete_strategies,
    help="How to place; `nova compare` lists what is installed.",
)
@shared.objective_option
@click.option(
    "--sigma",
    type=float,
    help="How coarsely inputs are cut, 0 to 1 (Eq. 7) [default: 0.4; less where there is no room].",
)
@click.option(
    "--bandwidth",
    type=float,
    metavar="T_B",
    help="The most an instance may receive, tuples/s; gives sigma if that is not given (Eq. 8).",
)
@click.option(
    "--c-min", type=float, help="C_min, what a node must have free to be chosen, tuples/s."
)
@click.option(
    "--index",
    type=click.Choice(["capacity-tree", "kdtree", "annoy"]),
    help="How near nodes are found [default: capacity-tree].",
)
@click.option(
    "--on-full",
    type=click.Choice(["expand", "spread"]),
    help="Where nothing fits: search wider, or overload evenly [default: expand].",
)
@click.option(
    "--refine/--no-refine",
    default=None,
    help="Improve the first assignment [default: up to 100,000 joins].",
)
@click.option(
    "--push/--no-push", "push_filters", default=None, help="Queries: filters before joins."
)
@click.option(
    "--split/--no-split", "split_aggregates", default=None, help="Queries: partial aggregates."
)
@click.option(
    "--share/--no-share",
    "share_operators",
    default=None,
    help="Queries: place what they have in common once.",
)
@click.option("--seed", type=SEED, help="Of what is random in the strategy.")
@shared.capacity_option
@shared.set_option
@click.option(
    "--output",
    "-o",
    type=paths.OUTPUT,
    help="Where the plan goes: .json, .yaml, or a directory of tables.",
)
@click.option(
    "--baselines/--no-baselines",
    default=None,
    help=f"Whether to show the baselines [default: up to {BASELINE_NODES:,} nodes].",
)
@shared.rows_option
@shared.json_option
def plan(
    problem: Path,
    strategy: str,
    capacity: str | None,
    settings: tuple[str, ...],
    output: Path | None,
    baselines: bool | None,
    rows: int | None,
    as_json: bool,
    **named: Any,
) -> None:
    """Decide where each join or query operator of PROBLEM runs, and how finely it is cut.

    PROBLEM is a YAML or JSON document, a directory of tables, or a directory with nodes.csv and
    joins.csv.
    """
    if output is not None:
        require_writable(output)
    parameters = shared.parameters_of(strategy, named, settings)
    loaded = shared.load_problem(problem, capacity)
    if baselines is None:
        baselines = len(loaded.nodes) <= BASELINE_NODES
        if not baselines:
            console.say(
                f"no baselines above {BASELINE_NODES:,} nodes unless --baselines requests them"
            )
    with shared.working():
        outcome = figures.run(loaded, strategy, parameters, warm=False)
        others: dict[str, dict[str, Any]] = {
            name: {} for name in shared.baselines(loaded) if baselines and name != strategy
        }
        compared = figures.run_all(loaded, others)
        if output is not None:
            from nova_core.io.files import write_plan

            if output.suffix and (count := len(outcome.plan.instances)) > LARGE_DOCUMENT:
                console.warn(
                    f"{output}: a document of {count:,} instances takes minutes and gigabytes; "
                    f"tables do not: --output {output.with_suffix('')}"
                )
            write_plan(outcome.plan, output)
    if as_json:
        console.print_json(figures.outcome_dict(loaded, outcome, compared, rows or None, output))
        return
    seconds = figures.duration(outcome.seconds)
    console.show(
        figures.problem_line(loaded),
        f"placed with {strategy}{settings_text(strategy, outcome.plan.parameters)} in {seconds}",
        *figures.finer_cuts(outcome.plan),
        "",
        figures.decision_table(*figures.decisions(outcome.plan, shared.shown_rows(rows))),
        "",
        *figures.costs(strategy, outcome, compared),
        *figures.left_out_lines(outcome.plan),
    )
    if output is not None:
        console.say(f"plan written to {output}")


def require_writable(output: Path) -> None:
    """Refuse, before any work, a place where nothing could be written.

    Raises:
        NovaError: when its directory is missing.
    """
    if not output.parent.is_dir():
        raise NovaError(f"{output}: there is no directory {output.parent}")


def settings_text(strategy: str, parameters: Mapping[str, Any]) -> str:
    """Parameters that are not the strategy's defaults, in brackets."""
    from dataclasses import asdict

    from nova_core.strategies.base import load

    usual = asdict(load(strategy).Parameters())
    others = [f"{name} {value}" for name, value in parameters.items() if value != usual.get(name)]
    return f" ({', '.join(others)})" if others else ""
