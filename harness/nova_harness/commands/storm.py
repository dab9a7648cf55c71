"""The commands ``nova storm ...``: does a plan run where it should?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError

if TYPE_CHECKING:
    from nova_storm.nimbus import Nimbus

NIMBUS_PORT = 6627

_nimbus = click.option(
    "--nimbus",
    "address",
    required=True,
    metavar="HOST[:PORT]",
    help=f"Where nimbus answers Thrift (port {NIMBUS_PORT} unless given).",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def storm() -> None:
    """Ask a cluster of Apache Storm where it runs a plan."""


@storm.command()
@_nimbus
@shared.json_option
def status(address: str, as_json: bool) -> None:
    """Show supervisors and topologies."""
    answer = _client(address).status()
    if as_json:
        console.print_json(answer)
        return
    table = console.table("supervisors", ["host", "slots", "used"])
    for one in answer["supervisors"]:
        table.add_row(str(one["host"]), str(one["workers"]), str(one["used"]))
    console.show(table)
    table = console.table("topologies", ["name", "status", "executors", "scheduler"])
    for one in answer["topologies"]:
        row = (one["name"], one["status"], len(one["executors"]), one["scheduling"])
        table.add_row(*map(str, row))
    console.show(table)


@storm.command()
@click.argument("plan", type=paths.INPUT)
@click.option(
    "--problem", "-p", required=True, type=paths.INPUT, help="The problem that the plan answers."
)
@click.option("--topology", default="nova", show_default=True, help="Its name in Storm.")
@_nimbus
@shared.json_option
@click.pass_context
def verify(
    context: click.Context, plan: Path, problem: Path, topology: str, address: str, as_json: bool
) -> None:
    """Compare where nimbus has each executor with PLAN; exit code 1 where they differ."""
    from nova_engines.bundle import addresses
    from nova_flink.dataflow import from_plan
    from nova_storm.verification import verify as compare

    answered = shared.load_problem(problem, None)
    dataflow = from_plan(shared.load_plan(plan, answered), answered)
    reached = addresses(answered, dataflow.nodes)
    seen = compare(_client(address).status(), topology, dataflow, reached)
    if as_json:
        console.print_json(seen.to_plain())
    else:
        table = console.table(f"topology {topology}", ["component", "plan", "Storm", "status"])
        for row in seen.rows:
            table.add_row(row.operator, row.node or "-", row.actual or "-", row.status)
        console.show(table)
        console.say(f"the scheduler says: {seen.scheduling or 'nothing'}")
        wrong = len({*seen.misplaced, *seen.missing, *seen.unexpected})
        console.say("everything is where the plan has it" if seen.ok else f"{wrong} are not right")
    if not seen.ok:
        context.exit(1)


@storm.command()
@click.argument("topology")
@_nimbus
def kill(topology: str, address: str) -> None:
    """End TOPOLOGY."""
    _client(address).kill(topology)
    console.say(f"{topology} ends")


def _client(address: str) -> Nimbus:
    from nova_engines.installing import java
    from nova_storm.home import StormHome
    from nova_storm.nimbus import Nimbus

    host, _, port = address.partition(":")
    if not host or (port and not port.isdigit()):
        raise NovaError(f"--nimbus {address}: expected HOST or HOST:PORT")
    options: dict[str, Any] = {"port": int(port or NIMBUS_PORT), "java": java("Storm")}
    return Nimbus(StormHome.default(), host, **options)
