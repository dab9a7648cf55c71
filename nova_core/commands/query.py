"""``nova query``: place queries of filters, aggregates and joins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.numbers import SEED

if TYPE_CHECKING:
    from nova_core.model.problem import Problem
    from nova_core.queries.document import Queries
    from nova_core.queries.plan import QueryPlan

queries_option = click.option(
    "--queries", "-q", type=paths.INPUT, required=True, help="The queries the plan answers."
)


@click.group(
    short_help="Place queries of filters, aggregates and joins.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def query() -> None:
    """Place queries of filters, projections, aggregates and joins over a problem's streams."""


def _load(problem: Path, queries: Path) -> tuple[Problem, Queries]:
    from nova_core.queries import read_queries, read_topology

    with shared.working():
        return read_topology(problem), read_queries(queries)


@query.command()
@shared.problem_argument
@click.argument("queries", type=paths.INPUT)
@shared.objective_option
@click.option("--sigma", type=float, help="How coarsely inputs are cut, 0 to 1 [default: 0.4].")
@click.option("--bandwidth", type=float, metavar="T_B", help="The most an instance may receive.")
@click.option("--c-min", type=float, help="C_min, what a node must have to be chosen, tuples/s.")
@click.option(
    "--on-full",
    type=click.Choice(["expand", "spread"]),
    help="Where nothing fits: refuse, or overload evenly [default: expand].",
)
@click.option("--push/--no-push", "push_filters", default=None, help="Filters before joins.")
@click.option("--split/--no-split", "split_aggregates", default=None, help="Partial aggregates.")
@click.option("--refine/--no-refine", default=None, help="Place queries again where it pays.")
@click.option("--seed", type=SEED, help="Of the orders tried on small inputs.")
@click.option("--output", "-o", type=paths.OUTPUT, help="Where the plan goes: .json or .yaml.")
@shared.rows_option
@shared.json_option
def plan(
    problem: Path,
    queries: Path,
    output: Path | None,
    rows: int | None,
    as_json: bool,
    **named: Any,
) -> None:
    """Decide where each operator of QUERIES runs.

    PROBLEM gives nodes and sources: any problem, or a document like one without a query.
    """
    from nova_core.commands.plan import require_writable
    from nova_core.queries import QueryParameters, place_queries, verify, write_query_plan

    if output is not None:
        require_writable(output)
    parameters = QueryParameters(**{k: v for k, v in named.items() if v is not None})
    asked = _load(problem, queries)
    with shared.working():
        made = place_queries(*asked, parameters)
        report = verify(made)
        if output is not None:
            write_query_plan(made, output)
    if as_json:
        from nova_core.queries.plan_document import plan_document

        console.print_json(plan_document(made))
        return
    _show(made, rows)
    state = "green" if report.ok else "yellow"
    console.show("", f"[{state}]The plan {report.summary()}.[/]")
    if output is not None:
        console.say(f"plan written to {output}")


def _show(plan: QueryPlan, rows: int | None) -> None:
    """What runs where, and what it costs."""
    from rich.markup import escape

    from nova_core.queries.plan_document import totals

    limit = console.ROWS if rows is None else rows or len(plan.instances)
    operators = plan.graph.graph.operators
    table = console.table(
        "Where operators run", ["operator", "kind", "node", ">takes (tuples/s)", "with it"]
    )
    runs: dict[int, list[str]] = {}
    for one in plan.graph.fused.tolist():
        runs.setdefault(int(plan.graph.root[one]), []).append(operators[one].id)
    for number, one in enumerate(plan.instances[:limit]):
        operator = operators[one.operator]
        table.add_row(
            escape(operator.id),
            operator.kind,
            escape(str(plan.problem.nodes.ids[one.node])),
            console.number(float(plan.required[number])),
            escape(", ".join(runs.get(one.operator, []))),
        )
    at_sources = [
        (operators[one].id, str(plan.problem.nodes.ids[at]))
        for one in plan.graph.fused.tolist()
        if (at := operators[int(plan.graph.root[one])].node) is not None
    ]
    for name, where in at_sources[: max(0, limit - len(plan.instances))]:
        table.add_row(escape(name), "filter", escape(where), "", "its source")
    console.show(table)
    left = len(plan.instances) + len(at_sources) - limit
    if left > 0:
        console.show(f"... and {left:,} more; --rows 0 shows all")
    t = totals(plan)
    console.show(
        "",
        f"{len(plan.queries):,} queries, {t['instances']:,} instances on {t['nodes_used']:,} nodes",
        f"latency of a query, ms: mean {console.number(t['latency_mean'])}, "
        f"90 % {console.number(t['latency_90p'])}, longest {console.number(t['latency_max'])}",
        f"network usage: {console.number(t['network_usage'])} tuples/s x ms",
        f"overloaded nodes: {t['overloaded']}",
    )


@query.command()
@click.argument("plan", type=paths.INPUT)
@shared.problem_option
@queries_option
@shared.json_option
@click.pass_context
def check(ctx: click.Context, plan: Path, problem: Path, queries: Path, as_json: bool) -> None:
    """Verify that PLAN answers the queries and keeps every constraint; exit code 1 if not."""
    from nova_core.commands.check import print_report
    from nova_core.queries import read_query_plan, verify

    asked = _load(problem, queries)
    with shared.working():
        report = verify(read_query_plan(plan, *asked))
    if as_json:
        console.print_json({"holds": report.ok, **report.to_dict()})
    else:
        print_report(plan, report)
    ctx.exit(0 if report.ok else 1)


@query.command()
@click.argument("plan", type=paths.INPUT)
@click.argument("name")
@shared.problem_option
@queries_option
@shared.json_option
def explain(plan: Path, name: str, problem: Path, queries: Path, as_json: bool) -> None:
    """Tell why query NAME of PLAN runs where it does: its links, and what distance would do."""
    from rich.markup import escape

    from nova_core.errors import PlanError
    from nova_core.model.syntax import unknown
    from nova_core.queries import read_query_plan

    asked = _load(problem, queries)
    with shared.working():
        placed = read_query_plan(plan, *asked)
    names = [one.id for one in placed.queries.queries]
    if name not in names:
        raise PlanError(f"{plan}: {unknown('query', name, names)}")
    number = names.index(name)
    links, latency = _links_of(placed, number), float(placed.query_latency[number])
    if as_json:
        console.print_json({"query": name, "latency": latency, "links": links})
        return
    table = console.table(
        f"Query {escape(name)}", ["from", "to", ">tuples/s", ">ms", "node", "to node", ">off (ms)"]
    )
    for one in links:
        table.add_row(
            escape(one["from"]),
            escape(one["to"]),
            console.number(one["rate"]),
            console.number(one["latency"]),
            escape(one["node"]),
            escape(one["to_node"]),
            "" if one["off"] is None else console.number(one["off"]),
        )
    console.show(
        table,
        "",
        f"longest way from a source to {escape(str(placed.queries.queries[number].sink))}: "
        f"{console.number(latency)} ms; `off` is how far a node is from the best point of the "
        "cost space",
    )


def _links_of(plan: QueryPlan, query: int) -> list[dict[str, Any]]:
    """Links of a query's instances, and how far from its virtual position each consumer runs."""
    operators, ids = plan.graph.graph.operators, plan.problem.nodes.ids
    links, (start, stop) = plan.links, plan.ends
    producer, consumer, _, _ = plan.graph.links
    found = []
    for row, logical in enumerate(links.logical.tolist()):
        end = int(links.consumer[row])
        to = plan.instances[end].operator if end >= 0 else int(consumer[logical])
        if operators[to].query != query:
            continue
        off = None
        if plan.virtual is not None and end >= 0:
            way = plan.problem.nodes.position[stop[row]] - plan.virtual[to]
            off = float((way @ way) ** 0.5)
        found.append(
            {
                "from": operators[to if logical < 0 else int(producer[logical])].id,
                "to": operators[to].id,
                "rate": float(links.rate[row]),
                "latency": float(plan.latency[row]),
                "node": str(ids[start[row]]),
                "to_node": str(ids[stop[row]]),
                "off": off,
            }
        )
    return found


@query.command()
@shared.problem_argument
@click.argument("queries", type=paths.INPUT)
@shared.objective_option
@shared.json_option
def compare(problem: Path, queries: Path, objective: str | None, as_json: bool) -> None:
    """Place QUERIES with Nova and with what it is compared with, and show what each costs."""
    from nova_core.errors import NovaError
    from nova_core.queries import QueryParameters, place_queries
    from nova_core.queries.baselines import BASELINES, place_baseline
    from nova_core.queries.plan_document import totals

    asked, wanted = _load(problem, queries), objective or "latency"
    found: dict[str, dict[str, Any]] = {}
    with shared.working():
        for name in ("nova", *BASELINES):
            try:
                found[name] = totals(
                    place_queries(*asked, QueryParameters(objective=wanted))
                    if name == "nova"
                    else place_baseline(*asked, name, wanted)
                )
            except NovaError as error:
                found[name] = {"error": str(error)}
    if as_json:
        console.print_json({"objective": wanted, "strategies": found})
        return
    table = console.table(
        f"What queries cost (placed for {wanted})",
        ["strategy", ">mean (ms)", ">90 % (ms)", ">longest (ms)", ">network usage", ">overloaded"],
    )
    for name, one in found.items():
        if "error" in one:
            table.add_row(name, *["-"] * 5)
            continue
        keys = ("latency_mean", "latency_90p", "latency_max", "network_usage")
        table.add_row(name, *(console.number(one[key]) for key in keys), str(one["overloaded"]))
    console.show(table)
    for name, one in found.items():
        if "error" in one:
            console.warn(f"{name}: {one['error']}")
