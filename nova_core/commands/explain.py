"""``nova explain``: why a join, or a query's operators, are where they are."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nova_core import console, paths
from nova_core.commands import figures, shared

if TYPE_CHECKING:
    from nova_core.explain import LinkExplanation, NodeExplanation, PairExplanation
    from nova_core.model.plan import Plan

PAIRS = 5
# Names listed at most.
NAMES = 6


@click.command(short_help="Explain why a join runs where it does.")
@click.argument("plan", type=paths.INPUT)
@shared.problem_option
@shared.capacity_option
@click.option(
    "--join",
    metavar="J",
    help="A pair (tw/t1*w1) or join; of queries: a query or operator; or a source.",
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
    """Explain why a join or query runs where it does, or what a node does.

    Without --join and --node: the pairs that ended up farthest from their ideal, or of queries the
    operators that did.
    """
    if join is not None and node is not None:
        raise click.UsageError("--join and --node: give one of them")
    loaded = shared.load_problem(problem, capacity)
    with shared.working():
        placed = shared.load_plan(plan, loaded)
        from nova_core.explain import Explainer, find_node, find_pairs
        from nova_core.left_out import left_out

        if loaded.queries and node is None:
            print_query(placed, join, rows, as_json)
            return
        explainer = Explainer(placed)
        if node is not None:
            answer = explainer.node(find_node(loaded, node))
            if as_json:
                console.print_json(asdict(answer) | {"left_out": left_out(placed)})
            else:
                print_node(answer, rows)
                console.show(*figures.left_out_lines(placed))
            return
        pairs = explainer.farthest(PAIRS) if join is None else find_pairs(loaded, join)
        shown = pairs[: shared.shown_rows(rows, PAIRS, as_json)]
        answers = [explainer.pair(pair) for pair in shown]
    if as_json:
        more = len(pairs) - len(shown)
        console.print_json({"pairs": answers, "more": more, "left_out": left_out(placed)})
        return
    if join is None:
        console.say(f"the {len(pairs)} pairs farthest from their ideal; name others with --join")
    for each in answers:
        print_pair(each)
    console.show(*figures.left_out_lines(placed))
    if len(pairs) > len(shown):
        console.say(f"{len(pairs) - len(shown)} more pairs; see all with --rows 0")


def unit(objective: str) -> str:
    """What costs are measured in."""
    return "tuples/s * ms" if objective == "network-usage" else "ms"


def print_pair(answer: PairExplanation) -> None:
    """One pair, for a person."""
    from rich.markup import escape
    from rich.padding import Padding

    left, right = answer.left, answer.right
    in_ms = unit(answer.objective)
    m, n = answer.partitions
    virtual = ", ".join(f"{x:.1f}" for x in answer.virtual_position)
    over = answer.cost / answer.ideal_cost - 1 if answer.ideal_cost > 0 else 0.0
    lines = [
        f"[bold]{escape(answer.pair)}[/]",
        escape(
            f"{left['source']} on {left['node']} ({left['rate']:g}/s) and {right['source']} on "
            f"{right['node']} ({right['rate']:g}/s) to {answer.sink}; "
            f"needs {answer.required_capacity:g} tuples/s in one piece"
        ),
        escape(
            f"ideal: ({virtual}) in the cost space, {console.number(answer.ideal_cost)} {in_ms}; "
            f"got {console.number(answer.cost)} {in_ms}, {100 * over:.1f} % above"
        ),
    ]
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
        who = ", ".join(f"{o.pair} ({o.rate:g})" for o in one.occupants)
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


def print_query(plan: Plan, name: str | None, rows: int | None, as_json: bool) -> None:
    """What operators of queries receive and emit, and how far they are from their ideal."""
    from rich.markup import escape

    from nova_core.explain import explain_cuts, explain_links
    from nova_core.left_out import left_out

    links, latency = explain_links(plan, name)
    cuts = explain_cuts(plan, name)
    shown: list[LinkExplanation] = links[: shared.shown_rows(rows, as_json=as_json)]
    if as_json:
        more = len(links) - len(shown)
        console.print_json(
            {
                "latency": latency,
                "cuts": cuts,
                "links": shown,
                "more": more,
                "left_out": left_out(plan),
            }
        )
        return
    table = console.table(
        "Links" if name is None else f"Links of {name}",
        ["from", "to", ">tuples/s", ">ms", "node", "to node", ">from ideal, ms"],
        [
            (
                one.carries,
                one.receiver,
                console.number(one.rate),
                console.number(one.latency),
                one.node,
                one.to_node,
                "" if one.from_ideal is None else console.number(one.from_ideal),
            )
            for one in shown
        ],
    )
    ways = [f"{escape(query)}: {console.number(ms)} ms" for query, ms in latency.items()]
    lines = [
        escape(
            f"{one.operator} is cut into {one.instances}, sent "
            f"{one.received / one.required:.2f} times: {one.reason}"
        )
        for one in cuts
    ]
    lines.append("longest way from a source to the sink: " + ", ".join(ways))
    console.show(table, "", *lines, *figures.left_out_lines(plan))
    if len(links) > len(shown):
        console.say(f"{len(links) - len(shown)} more links; see all with --rows 0")


def print_node(answer: NodeExplanation, rows: int | None) -> None:
    """One node, for a person."""
    from rich.markup import escape

    from nova_core.model.syntax import listed

    limit = shared.shown_rows(rows)
    free = answer.capacity - answer.load
    state = "may host joins" if answer.worker else "may not host joins"
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
    hosted = [(one.pair, console.number(one.rate)) for one in answer.hosted[:limit]]
    if len(answer.hosted) > len(hosted):
        hosted.append((f"... {len(answer.hosted) - len(hosted):,} more", ""))
    gaining = [
        (
            wish.pair,
            console.number(wish.gain),
            console.number(wish.needs) + ("" if wish.needs > free else " (would fit)"),
            listed(wish.runs_on, NAMES),
        )
        for wish in answer.wishes
    ]
    headings = ["pair", ">gain", ">needs, tuples/s", "runs on"]
    console.show(
        *lines,
        "",
        console.table("Hosts", ["operator", ">tuples/s"], hosted) if hosted else "hosts nothing",
        "",
        console.table("Would gain by being here", headings, gaining)
        if gaining
        else "nobody would gain by being here",
    )
