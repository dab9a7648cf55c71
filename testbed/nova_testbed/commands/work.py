"""``nova testbed ssh``, ``exec`` and ``stress``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from nova_core import console
from nova_core.errors import NovaError
from nova_core.numbers import NumberRange
from nova_core.programs import PROGRAMS
from nova_testbed.commands import shared

if TYPE_CHECKING:
    from nova_testbed.inventory import Inventory, StressProfile


@click.command(context_settings={"ignore_unknown_options": True})
@shared.inventory_option
@click.argument("host")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh(place: str, host: str, command: tuple[str, ...]) -> None:
    """Log in to a host with the system's ssh."""
    import os

    from nova_testbed.connection import ssh_options

    inventory = shared.running(shared.read(place))
    spec = inventory.host(host)
    program = PROGRAMS["ssh"].path
    if program is None:
        raise NovaError(PROGRAMS["ssh"].missing)
    os.execv(program, ["ssh", *ssh_options(spec), f"{spec.user}@{spec.address}", *command])


@click.command("exec", context_settings={"ignore_unknown_options": True})
@shared.inventory_option
@shared.on_option
@click.option("--timeout", type=NumberRange(min=0, min_open=True), default=60.0, show_default=True)
@click.option("--root", is_flag=True, help="Run as root, through sudo where need be.")
@shared.json_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def execute(
    ctx: click.Context,
    place: str,
    on: tuple[str, ...],
    timeout: float,
    root: bool,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Run a command on the hosts, on all at the same time; exit code 1 when it fails on one.

    Options stand before the command. It is run by the hosts' /bin/sh.
    """
    inventory = shared.running(shared.read(place))
    names = shared.chosen(inventory, on)
    line = " ".join(command)
    with shared.connected(inventory, names) as hosts:
        results = hosts.run(line, timeout=timeout, root=root, check=False)
    if as_json:
        console.print_json(results)
    else:
        width = max(len(name) for name in results)
        for name, result in results.items():
            for text in result.stdout.splitlines():
                click.echo(f"{name:{width}}  {text}")
            for text in result.stderr.splitlines():
                click.echo(f"{name:{width}}  {text}", err=True)
            if result.returncode:
                console.fail(f"{name}: ended with {result.returncode}")
    ctx.exit(1 if any(result.returncode for result in results.values()) else 0)


@click.command()
@shared.inventory_option
@shared.on_option
@click.option("--cpu", type=NumberRange(0, 100), help="Per cent of each host's CPU.")
@click.option("--memory", type=NumberRange(0, 95), help="Per cent of each host's memory.")
@click.option(
    "--for",
    "seconds",
    type=NumberRange(min=0, min_open=True),
    help="Stop after so many seconds [default: go on in the background].",
)
@click.option("--stop", "stopping", is_flag=True, help="Stop the load.")
@shared.json_option
def stress(
    place: str,
    on: tuple[str, ...],
    cpu: float | None,
    memory: float | None,
    seconds: float | None,
    stopping: bool,
    as_json: bool,
) -> None:
    """Put hosts under load with stress-ng: by default as the inventory says."""
    import time

    inventory = shared.running(shared.read(place))
    if stopping:
        from nova_testbed.stress import stop

        with shared.connected(inventory, shared.chosen(inventory, on)) as hosts:
            shared.say({"stopped": ", ".join(stop(hosts)) or "nothing; there was none"}, as_json)
        return
    profile = _profile(inventory, on, cpu, memory)
    from nova_testbed import stress as load

    with shared.connected(inventory, profile.hosts or None) as hosts:
        load.start(hosts, profile, keep=seconds is None)
        answer = {
            "under load": ", ".join(profile.hosts),
            "CPU, %": profile.cpu_percent,
            "memory, %": profile.memory_percent,
        }
        shared.say(answer, as_json)
        if seconds is not None:
            time.sleep(seconds)


def _profile(
    inventory: Inventory, on: Sequence[str], cpu: float | None, memory: float | None
) -> StressProfile:
    from dataclasses import replace

    profile = inventory.stress
    if on:
        profile = replace(profile, hosts=tuple(shared.chosen(inventory, on)))
    if cpu is not None:
        profile = replace(profile, cpu_percent=cpu)
    if memory is not None:
        profile = replace(profile, memory_percent=memory)
    return profile
