"""``nova compare``: every strategy on one problem, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import figures, shared
from nova_core.errors import NovaError, ProblemError
from nova_core.extensions import Extensions

if TYPE_CHECKING:
    from rich.table import Table

PREDICTORS = Extensions("nova.predictors", "predictor")
PREDICTOR = "costream"


@click.command(short_help="Place with every strategy, side by side.")
@shared.problem_argument
@click.argument("strategies", nargs=-1, shell_complete=shared.complete_strategies)
@shared.objective_option
@click.option("--bound", is_flag=True, help="Show ratios to the linear program's lower bound.")
@shared.capacity_option
@shared.settings_option(
    "Any parameter of a strategy, e.g. nova.sigma=0.2; may be repeated.", "STRATEGY.KEY=VALUE"
)
@click.option(
    "--model",
    type=paths.INPUT,
    help="Predict with this trained model [default: the one that comes with Nova].",
)
@shared.json_option
def compare(
    problem: Path,
    strategies: tuple[str, ...],
    objective: str | None,
    bound: bool,
    capacity: str | None,
    settings: tuple[str, ...],
    model: Path | None,
    as_json: bool,
) -> None:
    """Place PROBLEM with every strategy (or those named) and show what each one costs.

    The objective is minimized by strategies that can choose, and shown of all. Where the
    first run took less than five seconds, times are of the quickest of later ones.
    """
    from nova_core.strategies import names

    objective = objective or "latency"
    loaded = shared.load_problem(problem, capacity)
    requested = list(dict.fromkeys(strategies)) or names()
    chosen = {name: _parameters(name, objective, requested, settings) for name in requested}
    with shared.working():
        outcomes = figures.run_all(loaded, chosen, warm=True)
        if all(isinstance(one, NovaError) for one in outcomes.values()):
            raise next(one for one in outcomes.values() if isinstance(one, NovaError))
        lowest = None
        if bound:
            from nova_core.evaluation import lower_bound

            lowest = lower_bound(loaded, objective)
        predicted = _predicted(outcomes, model)
    if as_json:
        results = figures.outcomes_dict(outcomes)
        for name, one in predicted.items():
            results[name]["predicted"] = one
        console.print_json(
            {
                "problem": figures.problem_dict(loaded),
                "objective": objective,
                "lower_bound": lowest,
                "strategies": results,
            }
        )
        return
    direct = next(o for o in outcomes.values() if not isinstance(o, NovaError)).evaluation.estimated
    lines = [
        f"sending straight to the sink: mean {console.number(direct.direct_mean)}, "
        f"90P {console.number(direct.direct_p90)} ms"
    ]
    if lowest is not None:
        lines.append(
            f"no placement of whole operators has {objective} below {console.number(lowest)}"
        )
    good = [one for one in outcomes.values() if not isinstance(one, NovaError)]
    if (compiling := sum(one.compiling for one in good)) > 1:
        lines.append(f"compiling kernels, once, took {compiling:.0f} s more than the times shown")
    predictions: list[Any] = [_prediction_table(predicted), ""] if predicted else []
    console.show(
        figures.problem_line(loaded),
        "",
        figures.cost_table(
            "What it costs (ms)",
            outcomes,
            [*figures.latency_columns(outcomes, objective, lowest), *figures.BREAKS_COLUMN],
        ),
        "",
        figures.cost_table(
            "What it takes", outcomes, [*figures.LOAD_COLUMNS, *figures.EXTENT_COLUMNS]
        ),
        "",
        *predictions,
        *lines,
    )


def _predicted(
    outcomes: Mapping[str, figures.Outcome | NovaError], path: Path | None
) -> dict[str, dict[str, float]]:
    """What the installed model predicts of every plan, over all queries or pairs."""
    if path is None and PREDICTOR not in PREDICTORS.names():
        return {}
    plans = {k: one.plan for k, one in outcomes.items() if not isinstance(one, NovaError)}
    predicted: dict[str, dict[str, float]] = PREDICTORS.load(PREDICTOR)(plans, path)
    return predicted


def _prediction_table(predicted: Mapping[str, Mapping[str, float]]) -> Table:
    rows = [
        (
            name,
            console.number(one["throughput"]),
            console.number(one["e2e_latency_ms"]),
            console.number(one["processing_latency_ms"]),
            f"{one['back_pressure']} of {one['queries']}",
            f"{one['success']} of {one['queries']}",
        )
        for name, one in predicted.items()
    ]
    return console.table(
        "What is predicted (sums of results, mean latencies of queries or pairs)",
        [
            *("strategy", ">results/s", ">end-to-end, ms", ">processing, ms"),
            *(">back-pressure", ">results arrive"),
        ],
        rows,
    )


def _parameters(
    name: str, objective: str, all_names: list[str], settings: tuple[str, ...]
) -> dict[str, Any]:
    """Parameters of one strategy out of ``strategy.key=value`` texts."""
    from nova_core.strategies.parameters import takes

    mine = []
    for setting in settings:
        strategy, dot, rest = setting.partition(".")
        if not dot or strategy not in all_names:
            raise ProblemError(
                f"--set {setting}: expected STRATEGY.KEY=VALUE with one of {', '.join(all_names)}"
            )
        if strategy == name:
            mine.append(rest)
    named = {"objective": objective} if takes(name, "objective") else {}
    return shared.parameters_of(name, named, mine)
