"""The group ``nova data``."""

from __future__ import annotations

import click

from nova_core.lazy_commands import LazyCommands

NAMES = ("synth", "fetch")


@click.group(
    cls=LazyCommands, places={name: f"nova_workloads.commands.{name}:{name}" for name in NAMES}
)
def data() -> None:
    """Make or fetch archives of sensor readings and latencies."""
