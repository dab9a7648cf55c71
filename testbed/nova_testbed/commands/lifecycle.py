"""``nova testbed up``, ``down``, ``clean`` and ``status``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from nova_core import console
from nova_testbed.commands import shared

if TYPE_CHECKING:
    from nova_testbed.host import Host
    from nova_testbed.inventory import Inventory


@click.command()
@shared.inventory_option
@shared.json_option
def up(place: str, as_json: bool) -> None:
    """Bring the test bed up; safe to repeat.

    Virtual hosts are made; on real ones the links of the inventory are put in force.
    """
    inventory = shared.read(place)
    if inventory.virtual:
        rack = shared.rack(inventory)
        with rack.reserved(), _steps() as step:
            inventory = rack.up(step)
    else:
        from nova_testbed.emulation import emulate

        with shared.connected(inventory) as hosts, shared.counter("links", len(hosts)) as advance:
            emulate(hosts, advance)
    _show_hosts(inventory, as_json, f"{inventory.name} is up")


@click.command()
@shared.inventory_option
@shared.json_option
def down(place: str, as_json: bool) -> None:
    """Take the test bed down: remove virtual hosts, or links and jobs from real ones.

    On real hosts the emulated links and Nova's background jobs are removed.
    """
    inventory = shared.read(place)
    if inventory.virtual:
        rack = shared.rack(inventory)
        with rack.reserved():
            existed = rack.status().state != "down"
            # Also when the rack seems down: an interrupted start may have left parts.
            rack.down()
        answer = {"removed": f"rack {inventory.name}" if existed else "nothing; there was none"}
    else:
        answer = {"removed": ", ".join(_tidied(inventory)) or "nothing; there was none"}
    shared.say(answer, as_json)


@click.command()
@click.option(
    "--inventory",
    "-i",
    "place",
    metavar="FILE",
    help="Clean these real hosts [default: the virtual racks of this machine].",
)
@click.option("--all", "running", is_flag=True, help="Remove racks that are up, too.")
@shared.json_option
def clean(place: str | None, running: bool, as_json: bool) -> None:
    """Remove whatever crashed runs have left.

    Without an inventory: namespaces, control groups, mounts, routes and processes of all virtual
    racks but those that are up with all their hosts. With one: links and background jobs on its
    hosts.
    """
    inventory = None if place is None else shared.read(place)
    if inventory is None or inventory.virtual:
        from nova_testbed import rack

        with console.warnings_as_lines():
            removed = list(rack.clean(running=running))
    else:
        removed = _tidied(inventory)
    if as_json:
        console.print_json({"removed": removed})
        return
    for line in removed:
        console.show(f"removed: {line}")
    if not removed:
        console.show("nothing to remove")


@click.command()
@shared.inventory_option
@shared.json_option
@click.pass_context
def status(ctx: click.Context, place: str, as_json: bool) -> None:
    """Show the hosts; exit code 1 unless all of them are up."""
    inventory = shared.read(place)
    report = _rack_status(inventory) if inventory.virtual else _real_status(inventory)
    if as_json:
        console.print_json(report)
    else:
        table = console.table(
            f"{inventory.name}: {report['state']}",
            ["host", "role", "address", "up", ">CPU, cores", ">memory", "links"],
            caption="\n".join(report["problems"]) or None,
        )
        for row in report["hosts"]:
            table.add_row(
                row["name"],
                row["role"],
                row["address"] or "-",
                "yes" if row["up"] else "no",
                shared.cores(row["cpu"]),
                shared.mebibytes(row["memory"]),
                row["links"] or "-",
            )
        console.show(table)
    ctx.exit(0 if report["state"] == "up" else 1)


@contextmanager
def _steps() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar that shows the current step, how much of it is finished, and its total."""
    from rich.progress import Progress

    err = console.output(stderr=True)
    with (
        console.warnings_as_lines(),
        Progress(console=err, transient=True, disable=not err.is_terminal) as bar,
    ):
        task = bar.add_task("")
        yield lambda what, finished, total: bar.update(
            task, description=what, completed=finished, total=total
        )


def _tidied(inventory: Inventory) -> list[str]:
    """Remove links and background jobs from real hosts; returns a line per removed item."""
    from nova_testbed.emulation import unlink

    removed = []

    def one(host: Host) -> None:
        try:
            if unlink(host, inventory.has_links):
                removed.append(f"links of {host.name}")
        finally:
            if count := host.end_jobs():
                removed.append(f"background jobs of {host.name}: {count}")

    with shared.connected(inventory) as hosts:
        hosts.map(one)
    return sorted(removed)


def _rack_status(inventory: Inventory) -> dict[str, Any]:
    rack_status = shared.rack(inventory).status()
    hosts = {host.name: host for host in rack_status.hosts}
    rows = []
    for spec in inventory.hosts:
        host = hosts.get(spec.name)
        rows.append(
            {
                "name": spec.name,
                "role": spec.role,
                "address": host.address if host else "",
                "up": bool(host and host.up),
                "cpu": host.cpu if host else spec.cpu,
                "memory": host.memory if host else spec.memory,
                "links": rack_status.emulation if host else None,
            }
        )
    return {
        "name": rack_status.name,
        "state": rack_status.state,
        "hosts": rows,
        "problems": rack_status.problems,
    }


def _real_status(inventory: Inventory) -> dict[str, Any]:
    from nova_testbed.connection import HostError
    from nova_testbed.emulation import links
    from nova_testbed.hosts import Hosts

    problems = []
    reached: dict[str, bool] = {}
    emulated: dict[str, str | None] = {}

    def look(host: Host) -> None:
        reached[host.name], emulated[host.name] = False, None
        try:
            host.connection.open()
            reached[host.name] = True
            emulated[host.name] = "netem" if links(host, inventory.has_links) else None
        except HostError as error:
            problems.append(str(error))
            emulated[host.name] = "unknown"

    with Hosts(inventory) as hosts:
        hosts.map(look)
    rows = [
        {
            "name": spec.name,
            "role": spec.role,
            "address": spec.address,
            "up": reached[spec.name],
            "cpu": spec.cpu,
            "memory": spec.memory,
            "links": emulated[spec.name],
        }
        for spec in inventory.hosts
    ]
    state = "broken" if problems else "up"
    return {"name": inventory.name, "state": state, "hosts": rows, "problems": sorted(problems)}


def _show_hosts(inventory: Inventory, as_json: bool, title: str) -> None:
    if as_json:
        console.print_json({"name": inventory.name, "hosts": inventory.hosts})
        return
    table = console.table(title, ["host", "role", "address", ">CPU, cores", ">memory", ">RTT, ms"])
    sink = inventory.with_role("sink")[0].name
    for host in inventory.hosts:
        rtt = "-" if host.name == sink else f"{inventory.link(host.name, sink).rtt_ms:.1f}"
        table.add_row(
            host.name,
            host.role,
            host.address,
            shared.cores(host.cpu),
            shared.mebibytes(host.memory),
            rtt,
        )
    table.caption = f"RTT: to {sink}, as requested; `nova testbed measure` measures it."
    console.show(table)
