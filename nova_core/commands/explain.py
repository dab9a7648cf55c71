"""``nova explain``: why a join, or a query's operator, is where it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nova_core import console, paths
from nova_core.commands import figures, shared

if TYPE_CHECKING:
    from nova_core.explain import NodeExplanation, OperatorExplanation

# Operators explained, and names listed, at most.
OPERATORS = 5
NAMES = 6


@click.command(short_help="Explain why an operator runs where it does.")
@click.argument("plan", type=paths.INPUT)
@shared.problem_option
@shared.capacity_option
@click.option(
    "--join",
    metavar="J",
    help="An operator (tw/t1*w1), a join, a query, an operator of one, or a source.",
)
@click.option("--node", metavar="N", help="A node's id.")
@shared.rows_option
@shared.json_option
def explain(
    plan: Path,
    problem: Path,
    capacity: str | None,
    join: str | None,
    node: str | None,
    rows: int | None,
    as_json: bool,
) -> None:
    """Explain why an operator runs where it does, or what a node does.

    Without --join and --node: the operators that ended up farthest from their ideal.
    """
    if join is not None and node is not None:
        raise click.UsageError("--join and --node: give one of them")
    from rich.markup import escape

    from nova_core.io.syntax import listed

    loaded = shared.load_problem(problem, capacity)
    with shared.working():
        placed = shared.load_plan(plan, loaded)
        from nova_core.explain import Explainer, find_node
        from nova_core.left_out import left_out

        explainer = Explainer(placed)
        if node is not None:
            answer = explainer.node(find_node(loaded, node))
            if as_json:
                console.print_json(asdict(answer) | {"left_out": left_out(placed)})
            else:
                print_node(answer, rows)
                console.show(*figures.left_out_lines(placed))
            return
        most = shared.shown_rows(rows, OPERATORS, as_json)
        answers, more = explainer.explain(join, most)
    if as_json:
        console.print_json({"operators": answers, "more": more, "left_out": left_out(placed)})
        return
    if join is None:
        count = len(answers) + more
        console.say(f"the {count} operators farthest from their ideal; name others with --join")
    elif not answers:
        console.say(f"{join}: no operator of it is placed; filters run with what they read")
    for each in answers:
        print_operator(each)
    latency = {query: ms for one in answers for query, ms in one.queries.items()}
    ways = [f"{query}: {console.number(ms)} ms" for query, ms in latency.items()]
    if ways:
        console.show(escape(f"longest way from a source to the sink: {listed(ways, NAMES)}"))
    console.show(*figures.left_out_lines(placed))
    if more:
        console.say(f"{more} more operators; see all with --rows 0")


def print_operator(answer: OperatorExplanation) -> None:
    """One operator, for a person."""
    from rich.markup import escape
    from rich.padding import Padding

    from nova_core.io.syntax import listed

    def together(texts: Sequence[str]) -> str:
        return " and ".join(texts) if len(texts) == 2 else listed(texts, NAMES)

    in_ms = "tuples/s * ms" if answer.objective == "network-usage" else "ms"
    m, n = answer.partitions
    ideal = ", ".join(f"{x:.1f}" for x in answer.ideal_position)
    over = answer.cost / answer.ideal_cost - 1 if answer.ideal_cost > 0 else 0.0
    inputs = [f"{one.name} on {listed(one.nodes, NAMES)} ({one.rate:g}/s)" for one in answer.inputs]
    # A sink is nothing but its node.
    outputs = [
        (f"{one.name} on " if one.kind != "sink" else "") + listed(one.nodes, NAMES)
        for one in answer.outputs
    ]
    lines = [
        f"[bold]{escape(answer.operator)}[/]",
        escape(
            f"{together(inputs)} to {together(outputs)}; "
            f"needs {answer.required_capacity:g} tuples/s in one piece"
        ),
        escape(
            f"ideal: ({ideal}) in the cost space, {console.number(answer.ideal_cost)} {in_ms}; "
            f"got {console.number(answer.cost)} {in_ms}, {100 * over:.1f} % above"
        ),
    ]
    if answer.runs_with:
        lines.insert(2, escape(f"runs with it: {together(answer.runs_with)}"))
    if len(answer.hosts) > 1:
        lines.append(
            f"cut: {m} x {n} partitions, {m * n} pieces on {len(answer.hosts)} nodes; inputs sent "
            f"{answer.received / answer.required_capacity:.2f} times"
        )
    lines += [f"- {escape(reason)}" for reason in answer.reasons]
    table = console.table(
        f"Candidates by cost, of {answer.workers:,} workers",
        [">#", "node", f">cost, {in_ms}", ">capacity", ">free", "verdict", "who is there"],
    )
    last = 0
    for one in answer.candidates:
        if one.rank is not None and one.rank > last + 1:
            table.add_row("", f"... {one.rank - last - 1:,} more", "", "", "", "", "")
        last = one.rank or last
        who = ", ".join(f"{o.operator} ({o.rate:g})" for o in one.occupants)
        more = f" and {one.more_occupants} more" if one.more_occupants else ""
        table.add_row(
            str(one.rank or "-"),
            escape(one.node),
            console.number(one.cost),
            console.number(one.capacity),
            console.number(one.free),
            escape(one.verdict),
            escape(who + more),
            style="bold" if one.verdict.startswith("chosen") else None,
        )
    console.show(*lines, Padding(table, (1, 0, 1, 0), expand=False))


def print_node(answer: NodeExplanation, rows: int | None) -> None:
    """One node, for a person."""
    from rich.markup import escape

    from nova_core.io.syntax import listed

    limit = shared.shown_rows(rows)
    free = answer.capacity - answer.load
    state = "may host operators" if answer.worker else "may not host operators"
    at = ", ".join(f"{x:.1f}" for x in answer.position)
    lines = [
        f"[bold]{escape(answer.node)}[/] at ({at}) in the cost space; {state}",
        f"receives {console.number(answer.load)} of {console.number(answer.capacity)} tuples/s"
        + (f", {console.number(answer.relayed)} only to forward" if answer.relayed else "")
        + (f"; {console.number(free)} free" if free >= 0 else f"; overloaded by {-free:,.1f}"),
    ]
    if answer.produces:
        lines.append(escape(f"produces {listed(answer.produces, NAMES)}"))
    if answer.sink_of:
        lines.append(escape(f"consumes the results of {listed(answer.sink_of, NAMES)}"))
    hosted = [(one.operator, console.number(one.rate)) for one in answer.hosted[:limit]]
    if len(answer.hosted) > len(hosted):
        hosted.append((f"... {len(answer.hosted) - len(hosted):,} more", ""))
    gaining = [
        (
            wish.operator,
            console.number(wish.gain),
            console.number(wish.needs) + ("" if wish.needs > free else " (would fit)"),
            listed(wish.runs_on, NAMES),
        )
        for wish in answer.wishes
    ]
    headings = ["operator", ">gain", ">needs, tuples/s", "runs on"]
    console.show(
        *lines,
        "",
        console.table("Hosts", ["operator", ">tuples/s"], hosted) if hosted else "hosts nothing",
        "",
        console.table("Would gain by being here", headings, gaining)
        if gaining
        else "nobody would gain by being here",
    )
