"""The command ``nova place``: a running topology of one's own on the nodes of a plan."""

from __future__ import annotations

from pathlib import Path

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError


@click.command(short_help="Place a running Storm topology of your own.")
@click.argument("topology")
@click.option("--plan", type=paths.INPUT, required=True, help="Of whole queries, as JSON.")
@shared.problem_option
@click.option("--at", metavar="HOST[:PORT]", required=True, help="Where nimbus answers.")
@click.option(
    "--node",
    "chosen",
    metavar="COMPONENT=NODE",
    multiple=True,
    help="Where a component runs that the plan has not; may be repeated.",
)
@click.option("--show", is_flag=True, help="Only write nova.placement, as JSON; change nothing.")
@shared.json_option
@click.pass_context
def place(
    ctx: click.Context,
    topology: str,
    plan: Path,
    problem: Path,
    at: str,
    chosen: tuple[str, ...],
    show: bool,
    as_json: bool,
) -> None:
    """Have the components of a running TOPOLOGY run on the nodes of a plan, by one rebalancing.

    Components are called like the plan's sources, operators and queries. Exit code 1 when one does
    not run where the plan has it.
    """
    from nova_engines.nodes import addresses
    from nova_storm import own_topologies as own
    from nova_storm.nimbus import Nimbus

    answered = shared.load_problem(problem, None)
    nimbus = Nimbus.at(at)
    present = own.components(nimbus.status(), topology)
    ids = answered.nodes.ids
    sources = zip(answered.sources.ids, answered.sources.node, strict=True)
    at_sources = {str(one): str(ids[node]) for one, node in sources}
    nodes = own.placement(plan, present, _chosen(chosen), at_sources)
    unknown = sorted(set(nodes.values()) - set(answered.node_index))
    if unknown:
        raise NovaError(f"{plan}: node {unknown[0]}: is not in {problem}")
    if show:
        console.print_json({"nova.placement": nodes, "topology.workers": len(set(nodes.values()))})
        return
    verification = own.move(nimbus, topology, nodes, addresses(answered, set(nodes.values())))
    if as_json:
        console.print_json({"topology": topology, **verification.to_plain()})
    else:
        columns = ["component", "planned", "runs on", "status"]
        rows = [
            (row.operator, row.node or "-", row.actual or "-", row.status)
            for row in verification.rows
        ]
        console.show(console.table(f"topology {topology}", columns, rows))
        if verification.note:
            console.say(f"the scheduler says: {verification.note}")
    ctx.exit(0 if verification.ok else 1)


def _chosen(texts: tuple[str, ...]) -> dict[str, str]:
    nodes: dict[str, str] = {}
    for text in texts:
        component, _, node = text.rpartition("=")
        if not component or not node or component in nodes:
            wrong = "is given twice" if component in nodes else "expected COMPONENT=NODE"
            raise NovaError(f"--node {text}: {wrong}")
        nodes[component] = node
    return nodes
