"""What commands show of a plan: the rows of its decisions, and its costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_core import console
from nova_core.errors import NovaError

if TYPE_CHECKING:
    from rich.table import Table

    from nova_core.evaluation.metrics import Evaluation
    from nova_core.model.plan import Plan
    from nova_core.model.problem import Floats, Ints, Problem
    from nova_core.model.verify import Report

# A table's column: its heading and what it says of an outcome.
Column = tuple[str, Callable[["Outcome"], str]]

# A faster strategy runs again, so that its time does not include the first load, s; and how long
# runs are repeated, s: the quickest counts.
AGAIN_BELOW = 5.0
AGAIN_FOR = 0.05


@dataclass(frozen=True, eq=False)
class Outcome:
    """A plan with what it costs and what it breaks.

    Attributes:
        plan: the plan.
        evaluation: what it costs.
        report: which constraints it keeps.
        seconds: how long placing took, without compiling; or None where it is not known.
        compiling: how long it took to compile kernels for it, which are kept, s.
    """

    plan: Plan
    evaluation: Evaluation
    report: Report
    seconds: float | None
    compiling: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Everything but the placement itself, for JSON."""
        return {
            "strategy": self.plan.strategy,
            "objective": self.plan.objective,
            "parameters": dict(self.plan.parameters),
            "seconds": self.seconds,
            "compile_seconds": self.compiling,
            "evaluation": self.evaluation.to_dict(),
            "verification": self.report.to_dict(),
        }


def judge(plan: Plan, seconds: float | None = None) -> Outcome:
    """Evaluate and verify a plan."""
    from nova_core.evaluation import evaluate
    from nova_core.model.verify import verify

    return Outcome(plan, evaluate(plan), verify(plan), seconds)


def quickest(work: Callable[[], object]) -> float:
    """The time of the quickest of as many runs as fit into `AGAIN_FOR`, at least one, s."""
    until, best = time.perf_counter() + AGAIN_FOR, float("inf")
    while True:
        begin = time.perf_counter()
        work()
        end = time.perf_counter()
        best = min(best, end - begin)
        if end > until:
            return best


def run(problem: Problem, strategy: str, parameters: Mapping[str, Any], warm: bool) -> Outcome:
    """Place a problem; ``warm`` compiles, and times later runs where the first was quick."""
    from nova_core.kernel_cache import compile_first
    from nova_core.placement.compilation import CompileTime, compilations
    from nova_core.strategies import create

    placer, compiling = create(strategy, **parameters), CompileTime()
    if warm:
        compile_first()
    with compilations(compiling):
        begin = time.perf_counter()
        plan = placer.solve(problem)
        seconds = time.perf_counter() - begin - compiling.seconds
    if warm and seconds < AGAIN_BELOW:
        seconds = quickest(lambda: placer.solve(problem))
    return replace(judge(plan, seconds), compiling=compiling.seconds)


def run_all(
    problem: Problem, strategies: Mapping[str, Mapping[str, Any]], warm: bool = False
) -> dict[str, Outcome | NovaError]:
    """Place a problem with each strategy (name to parameters); a failure is kept as an error."""
    outcomes: dict[str, Outcome | NovaError] = {}
    for name, parameters in strategies.items():
        try:
            outcomes[name] = run(problem, name, parameters, warm)
        except NovaError as error:
            outcomes[name] = error
    return outcomes


# --- the problem ---------------------------------------------------------------------------------


def problem_dict(problem: Problem) -> dict[str, Any]:
    """A problem in a few figures, for JSON."""
    p = problem
    return {
        "name": p.name,
        "digest": p.digest,
        "nodes": len(p.nodes),
        "workers": int(p.nodes.worker.sum()),
        "dimensions": int(p.nodes.position.shape[1]),
        "heights": p.nodes.height is not None,
        "metrics": list(p.metrics),
        "capacity": float(p.nodes.capacity[p.nodes.worker].sum()),
        "sources": len(p.sources),
        "rate": float(p.sources.rate.sum()),
        "joins": len(p.joins),
        "pairs": len(p.matrix),
        "queries": len(p.queries),
        "required_capacity": float(p.required_capacity.sum()),
        "links": len(p.links),
        "measured_latency": p.latency is not None,
    }


def problem_line(problem: Problem) -> str:
    """A problem in one line, with rich markup."""
    from rich.markup import escape

    d = problem_dict(problem)
    need = console.number(d["required_capacity"], 0)
    what = (
        f"{_count(d['joins'], 'join')}, "
        f"{_count(d['pairs'], 'pair')} that need{'s' * (d['pairs'] == 1)} {need} tuples/s"
    )
    if problem.queries:
        many = d["queries"]
        what = f"{many:,} quer{'y' if many == 1 else 'ies'}"
    return (
        f"[bold]{escape(problem.name)}[/]: {_count(d['nodes'], 'node')} "
        f"({d['workers']:,} may host {'operators' if problem.queries else 'joins'}, "
        f"{console.number(d['capacity'], 0)} tuples/s), "
        f"{_count(d['sources'], 'source')}, {what}"
    )


def _count(amount: int, what: str) -> str:
    return f"{amount:,} {what}{'' if amount == 1 else 's'}"


# --- what was decided ----------------------------------------------------------------------------


def decisions(plan: Plan, limit: int | None) -> tuple[list[dict[str, Any]], int]:
    """Rows of a plan's decisions, one per operator and node, and their total number.

    With a limit, the rows with the slowest paths are returned.
    """
    import numpy as np

    p, i = plan.problem, plan.instances
    place, row = np.unique(i.pair * len(p.nodes) + i.node, return_inverse=True)
    pair, node = np.divmod(place, len(p.nodes))
    rate = np.bincount(row, plan.added_load, len(place))
    pieces = np.bincount(row, i.replicas, len(place)).astype(np.int64)
    latency = np.zeros(len(place))
    np.maximum.at(latency, row, plan.path_latency)
    distance = _virtual_distance(plan, pair, node)
    cut = plan.partitions.count
    total = cut[0::2] * cut[1::2]
    shown = np.arange(len(place))
    if limit is not None and len(place) > limit:
        shown = np.argsort(-latency, kind="stable")[:limit]
    rows = [
        {
            "operator": plan.operator_name(int(pair[k])),
            "node": str(p.nodes.ids[node[k]]),
            "pieces": int(pieces[k]),
            "pieces_of_operator": int(total[pair[k]]),
            "rate": float(rate[k]),
            "virtual_distance": float(distance[k]),
            "latency": float(latency[k]),
        }
        for k in shown
    ]
    return rows, len(place)


def _virtual_distance(plan: Plan, operator: Ints, node: Ints) -> Floats:
    """(k,) ms from nodes to operators' virtual positions; NaN without any."""
    import numpy as np

    if plan.virtual_position is None:
        return np.full(len(node), np.nan)
    away = plan.virtual_position[operator] - plan.problem.nodes.position[node]
    return np.asarray(np.linalg.norm(away, axis=1))


def decision_table(rows: Sequence[Mapping[str, Any]], total: int) -> Table:
    """The table of what was decided."""
    more = total - len(rows)
    return console.table(
        "What was decided",
        ["operator", "node", ">pieces", ">tuples/s", ">from ideal, ms", ">latency, ms"],
        [
            (
                row["operator"],
                row["node"],
                "whole"
                if row["pieces"] == row["pieces_of_operator"]
                else f"{row['pieces']:,} of {row['pieces_of_operator']:,}",
                console.number(row["rate"]),
                console.number(row["virtual_distance"]),
                console.number(row["latency"]),
            )
            for row in rows
        ],
        caption=f"the {len(rows)} slowest; {more:,} more rows (--rows)" if more else None,
    )


def outcome_dict(
    problem: Problem,
    outcome: Outcome,
    compared: Mapping[str, Outcome | NovaError],
    limit: int | None,
    written: Path | None,
) -> dict[str, Any]:
    """A problem, how it was placed, and what other strategies would cost, for JSON."""
    from nova_core.left_out import left_out

    shown, total = decisions(outcome.plan, limit)
    return {
        "problem": problem_dict(problem),
        **outcome.to_dict(),
        "notes": dict(outcome.plan.notes),
        "decisions": shown,
        "decisions_total": total,
        "left_out": left_out(outcome.plan),
        "baselines": outcomes_dict(compared),
        "written": None if written is None else str(written),
    }


def outcomes_dict(outcomes: Mapping[str, Outcome | NovaError]) -> dict[str, Any]:
    """Outcomes by strategy for JSON; an error becomes ``{"error": text}``."""
    return {
        name: {"error": str(one)} if isinstance(one, NovaError) else one.to_dict()
        for name, one in outcomes.items()
    }


# --- what it costs -------------------------------------------------------------------------------


def cost_table(
    title: str,
    outcomes: Mapping[str, Outcome | NovaError],
    columns: Sequence[Column],
    chosen: str = "nova",
) -> Table:
    """Strategies side by side, one per row; of those that failed, the reason is given below.

    Args:
        title: above the table.
        outcomes: what each strategy did, or why it could not.
        columns: what is shown of each.
        chosen: the strategy that stands out.
    """
    from rich.markup import escape

    failed = {name: one for name, one in outcomes.items() if isinstance(one, NovaError)}
    table = console.table(
        title,
        ["strategy", *(heading for heading, _ in columns)],
        caption="\n".join(f"{name}: {escape(str(error))}" for name, error in failed.items())
        or None,
    )
    table.columns[0].no_wrap = True
    for name, one in outcomes.items():
        if isinstance(one, NovaError):
            table.add_row(escape(name), *("-" for _ in columns), style="dim")
        else:
            cells = [cell(one) for _, cell in columns]
            table.add_row(escape(name), *cells, style="bold" if name == chosen else None)
    return table


def costs(
    strategy: str, outcome: Outcome, compared: Mapping[str, Outcome | NovaError]
) -> tuple[Table, str, str]:
    """What a plan costs, beside others if there are any, and whether it holds."""
    outcomes = {strategy: outcome, **compared}
    columns = latency_columns(outcomes, outcome.plan.objective)
    title = "What it costs" + (", and what the baselines would" if compared else "") + " (ms)"
    columns += [*LOAD_COLUMNS, *BREAKS_COLUMN]
    return cost_table(title, outcomes, columns, chosen=strategy), "", verdict(outcome)


def finer_cuts(plan: Plan) -> list[str]:
    """A line where the default sigma left no room for all pieces."""
    if (sigma := plan.notes.get("finest_sigma")) is None:
        return []
    return [f"what found no room in coarser pieces is cut by sigma {sigma:g}"]


def left_out_lines(plan: Plan) -> list[str]:
    """A line about nodes that could host but may not, where there are any, with rich markup."""
    from rich.markup import escape

    from nova_core.left_out import left_out

    found = left_out(plan)
    return [] if found is None else [escape(f"{found}.")]


def verdict(outcome: Outcome) -> str:
    """Whether the plan holds, with rich markup."""
    from rich.markup import escape

    report = outcome.report
    if report.ok:
        return f"[green]The plan {report.summary()}.[/]"
    knowing = " knowingly" if report.honest else ""
    first = escape(report.violations[0].text)
    return f"[yellow]The plan{knowing} {report.summary()}; worst: {first}.[/]"


def latency_columns(
    outcomes: Mapping[str, Outcome | NovaError], objective: str, bound: float | None = None
) -> list[Column]:
    """Latency, measured latency where there is any, and the objective, against a lower bound."""
    columns: list[Column] = [
        (">mean", lambda o: console.number(o.evaluation.estimated.mean)),
        (">90P", lambda o: console.number(o.evaluation.estimated.p90)),
    ]
    good = [one for one in outcomes.values() if not isinstance(one, NovaError)]
    if any(one.evaluation.measured is not None for one in good):
        columns += [
            (">measured mean", lambda o: _measured(o, "mean")),
            (">measured 90P", lambda o: _measured(o, "p90")),
        ]
    heading = ">network usage" if objective == "network-usage" else f">{objective} sum"
    if objective != "network-usage" and any(one.evaluation.joins_cut for one in good):
        heading += ", of cut joins the mean"

    def value(one: Outcome) -> float:
        return one.evaluation.estimated.objectives[objective]

    columns.append((heading, lambda o: console.number(value(o))))
    if bound is not None:
        columns.append((">/ bound", lambda o: f"{value(o) / bound:.3f}" if bound > 0 else "-"))
    return columns


def _measured(one: Outcome, name: str) -> str:
    measured = one.evaluation.measured
    return "-" if measured is None else console.number(getattr(measured, name))


LOAD_COLUMNS: list[Column] = [
    (">overload %", lambda o: console.number(o.evaluation.load.overloaded_percent, 0)),
    (">max load", lambda o: _factor(o.evaluation.load.worst_factor)),
    (">traffic /s", lambda o: console.number(o.evaluation.traffic, 0)),
    (">pieces", lambda o: f"{o.evaluation.replicas:,}"),
]
EXTENT_COLUMNS: list[Column] = [
    (">nodes used", lambda o: f"{o.evaluation.nodes_used:,}"),
    (">network usage", lambda o: console.number(o.evaluation.estimated.network_usage, 0)),
    (">time ms", lambda o: "-" if o.seconds is None else console.number(1000 * o.seconds, 2)),
]
BREAKS_COLUMN: list[Column] = [("breaks", lambda o: _broken(o.report))]


def _factor(value: float) -> str:
    return "∞" if value == float("inf") else console.number(value, 2)


def _broken(report: Report) -> str:
    broken = [name for name, count in report.counts.items() if count]
    return f"[yellow]{' '.join(broken)}[/]" if broken else "[green]nothing[/]"


def duration(seconds: float | None) -> str:
    """A time for people: ms below a second."""
    if seconds is None:
        return "-"
    return f"{seconds * 1000:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s"
