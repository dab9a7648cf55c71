"""``nova testbed check``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from nova_core import console
from nova_testbed.commands import shared

if TYPE_CHECKING:
    from nova_testbed.inventory import Inventory


@click.command()
@shared.inventory_option
@shared.json_option
@click.pass_context
def check(ctx: click.Context, place: str, as_json: bool) -> None:
    """Show what this machine, or the hosts of an inventory, can do, and what is missing.

    Exit code 1 when something needed is missing; remedies are shown.
    """
    inventory = shared.read(place)
    rows: list[dict[str, Any]] = []
    verdict, install = None, ""
    if inventory.virtual:
        from nova_testbed import rack

        capabilities = rack.capabilities()
        verdict = rack.missing(capabilities)
        install = rack.install_command(capabilities, optional=True)
        rows = [{"host": "this machine", **asdict(item)} for item in capabilities]
    if not inventory.virtual or verdict is None:
        hosts_rows, host_verdict, host_install = _check_hosts(inventory)
        rows += hosts_rows
        verdict = verdict or host_verdict
        install = install or host_install
    if as_json:
        answer = {"ok": verdict is None, "missing": verdict, "install": install, "found": rows}
        console.print_json(answer)
    else:
        _show_findings(inventory, rows, install)
        if verdict is not None:
            console.fail(verdict)
    ctx.exit(0 if verdict is None else 1)


def _check_hosts(inventory: Inventory) -> tuple[list[dict[str, Any]], str | None, str]:
    """Findings on the hosts that are up, what they lack, and the command that installs it."""
    from nova_testbed.checks import check_hosts, install_command
    from nova_testbed.hosts import Hosts

    if inventory.virtual:
        if shared.rack(inventory).status().state != "up":
            return [], None, ""
        inventory = shared.running(inventory)
    with Hosts(inventory) as hosts:
        findings = check_hosts(hosts)
    install = install_command(findings)
    wanting = [f"{f.host}: {f.name} ({f.detail})" for f in findings if f.needed and not f.ok]
    remedies = dict.fromkeys(f.remedy for f in findings if f.needed and not f.ok and f.remedy)
    verdict = "; ".join([*wanting, *remedies]) if wanting else None
    return [asdict(finding) for finding in findings], verdict, install


def _show_findings(inventory: Inventory, rows: list[dict[str, Any]], install: str) -> None:
    """One line per host for all that is present, and one for each missing item."""
    table = console.table(
        f"what {inventory.name} needs", ["where", "what", "there", "detail", "what would help"]
    )
    # Hosts with equal findings share their lines.
    alike: dict[tuple[tuple[Any, ...], ...], list[str]] = {}
    for host in dict.fromkeys(row["host"] for row in rows):
        mine = [row for row in rows if row["host"] == host]
        alike.setdefault(tuple(_cells(mine)), []).append(host)
    for cells, hosts in alike.items():
        where = ", ".join(hosts) if len(hosts) < 4 else f"{len(hosts)} hosts: {', '.join(hosts)}"
        for row_of_cells in cells:
            table.add_row(where, *row_of_cells)
            where = ""
    if install:
        table.caption = f"to install what is missing: {install}"
    console.show(table)


def _cells(rows: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    fine = ", ".join(row["name"] for row in rows if row["ok"])
    cells = [(fine, "[green]yes[/]", "", "")] if fine else []
    for row in rows:
        if not row["ok"]:
            present = "[red]no[/]" if row["needed"] else "[yellow]no, optional[/]"
            cells.append((row["name"], present, row["detail"], row["remedy"]))
    return cells
