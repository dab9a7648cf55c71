"""``nova predict``: what a plan will do before it runs, by a learned cost model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError

if TYPE_CHECKING:
    from nova_core.model.plan import Plan
    from nova_research.costream.learned.model import Model

_HEADINGS = {
    "throughput": ">results/s",
    "e2e_latency_ms": ">end-to-end latency, ms",
    "processing_latency_ms": ">processing latency, ms",
    "back_pressure": ">back-pressure",
    "success": ">results arrive",
}


@click.command(short_help="Predict what a plan will do before it runs.")
@click.argument("plan", type=paths.INPUT)
@shared.problem_option
@shared.capacity_option
@click.option(
    "--model", type=paths.INPUT, help="A trained model [default: the one that comes with Nova]."
)
@shared.rows_option
@shared.json_option
def predict(
    plan: Path,
    problem: Path,
    capacity: str | None,
    model: Path | None,
    rows: int | None,
    as_json: bool,
) -> None:
    """Predict what PLAN will do: of each query or pair, throughput, latencies and whether it works.

    In brackets is what members of the ensemble say at least and at most; classes are decided by
    most of them.
    """
    from nova_research.costream.learned.model import load_model

    loaded = load_model(model)
    placed = shared.load_plan(plan, shared.load_problem(problem, capacity))
    with console.warnings_as_lines():
        predicted = predictions(placed, loaded)
    if as_json:
        console.print_json({"model": loaded.digest, "predictions": predicted})
        return
    shown = predicted[: shared.shown_rows(rows)]
    more = len(predicted) - len(shown)
    console.show(
        console.table(
            "What is predicted",
            ["query", *_HEADINGS.values()],
            [[row["query"], *(_cell(row[metric]) for metric in _HEADINGS)] for row in shown],
            caption=f"{more:,} more rows (--rows)" if more else None,
        )
    )


def predictions(plan: Plan, model: Model) -> list[dict[str, Any]]:
    """Rows of `rows_of`, one per query or pair of sources.

    Warns:
        ProblemWarning: of operators or values that the model has not been trained for, naming them.
    """
    import warnings

    from nova_core.errors import ProblemWarning
    from nova_research.costream.learned.graph import graph_of
    from nova_research.costream.learned.model import rows_of

    graph = graph_of(plan)
    if doubt := model.doubt(graph):
        warnings.warn(
            f"{plan.problem.name}: the model {doubt}; predictions may be far off",
            ProblemWarning,
            stacklevel=2,
        )
    return list(rows_of(model.predict([graph]), graph.queries))


def compared(plans: Mapping[str, Plan], path: Path | None) -> dict[str, dict[str, float]]:
    """What a model predicts of every plan, over all queries or pairs: for `nova compare`.

    Plans with more operators than a prediction supports are left out; so are, without ``path``,
    those that the model that comes with Nova has not been trained for.

    Args:
        plans: by strategy.
        path: a trained model's file; None for the one that comes with Nova.
    """
    from nova_research.costream.learned.graph import graph_of
    from nova_research.costream.learned.model import load_model

    model, predicted, doubt = load_model(path), {}, ""
    for name, plan in plans.items():
        try:
            if path is None and (strange := model.doubt(graph_of(plan))):
                doubt = strange
                continue
            rows = predictions(plan, model)
        except NovaError:
            continue
        many = len(rows)
        predicted[name] = {
            "queries": many,
            "throughput": sum(row["throughput"]["value"] for row in rows),
            **{
                metric: sum(row[metric]["value"] for row in rows) / many
                for metric in ("e2e_latency_ms", "processing_latency_ms")
            },
            **{
                metric: sum(row[metric]["holds"] for row in rows)
                for metric in ("back_pressure", "success")
            },
        }
    if doubt:
        console.say(f"predictions are left out: the model that comes with Nova {doubt}")
    return predicted


def _cell(one: dict[str, Any]) -> str:
    if "holds" in one:
        word = "yes" if one["holds"] else "no"
        return f"{word} ({100 * one['low']:.0f}-{100 * one['high']:.0f} %)"
    low, high = console.number(one["low"]), console.number(one["high"])
    return f"{console.number(one['value'])} ({low}-{high})"
